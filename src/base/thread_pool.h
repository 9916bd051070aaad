// A pool of hot threads for the operators of one step: many short parallel loops with little between them.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace hadal {

// CPUs that this process may use: the affinity mask, and the cgroup's CPU quota rounded up where there is one.
int usable_cpus();

// Tasks are handed out one at a time, in ascending order, to whoever is free; the caller takes part. Which thread runs
// a task is not defined, so a result must never depend on it.
class ThreadPool {
 public:
  // What a thread does while it waits for others: little, again and again; false when there is nothing to do now.
  struct Pastime {
    bool (*work)(void* state, int worker);
    void* state;
  };

  // 0 = usable_cpus(). The caller counts as one of the threads.
  explicit ThreadPool(int threads = 0, Pastime pastime = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Runs fn(task) or fn(task, worker) for every task in [0, tasks), worker in [0, size()), and returns when all are
  // done. The first exception is rethrown here; tasks that had not started by then are skipped. A call from inside a
  // task runs its tasks on the spot, with the worker of the task around it.
  template <typename F>
  void parallel_for(int tasks, F&& fn) {
    using Function = std::remove_reference_t<F>;
    run(tasks, const_cast<void*>(static_cast<const void*>(std::addressof(fn))), [](void* f, int task, int worker) {
      if constexpr (std::is_invocable_v<Function&, int, int>)
        (*static_cast<Function*>(f))(task, worker);
      else
        (*static_cast<Function*>(f))(task);
    });
  }

 private:
  using Invoke = void (*)(void* function, int task, int worker);

  void stop();
  void run(int tasks, void* function, Invoke invoke);
  void worker_loop(int worker);
  bool take_one(int worker);
  void pass_time(int worker) const;

  // The job. Written by the caller before `open_` is raised, read by a thread only while it holds a task of the job,
  // so that a worker that wakes late touches nothing.
  void* function_ = nullptr;
  Invoke invoke_ = nullptr;
  int tasks_ = 0;
  std::exception_ptr error_;
  std::mutex error_mutex_;

  alignas(64) std::atomic<int32_t> open_{0};  // tasks not handed out yet; -1 = stop
  alignas(64) std::atomic<int32_t> left_{0};  // tasks not finished yet
  std::atomic<bool> failed_{false};

  std::mutex caller_mutex_;
  const Pastime pastime_;
  int spins_ = 0;
  std::vector<std::thread> workers_;
};

}  // namespace hadal

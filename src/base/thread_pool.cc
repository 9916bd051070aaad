#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace hadal {
namespace {

// Which worker of which pool this thread is while it runs a task.
thread_local const ThreadPool* current_pool = nullptr;
thread_local int current_worker = 0;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// "MAX PERIOD" of cgroup v2, or the two files of v1; 0 = no limit.
double cgroup_cpus() {
  std::ifstream v2("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (v2 >> quota >> period) return quota == "max" || period <= 0 ? 0 : std::stod(quota) / period;
  std::ifstream q("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), p("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double limit = 0;
  if (q >> limit && p >> period && limit > 0 && period > 0) return limit / period;
  return 0;
}

}  // namespace

int usable_cpus() {
  int cpus = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) cpus = CPU_COUNT(&set);
  const double quota = cgroup_cpus();
  if (quota > 0) cpus = std::min(cpus, static_cast<int>(std::ceil(quota)));
  return std::max(cpus, 1);
}

ThreadPool::ThreadPool(int threads, Pastime pastime) : pastime_(pastime) {
  const int cpus = usable_cpus();
  if (threads <= 0) threads = cpus;
  // Between two operators of a decode step lie microseconds, a futex wake costs tens: workers poll for about 200 us
  // before they sleep (with 50 us, loops of a decode step of 12 ms began and ended 0.1 ms later in all). With more threads than CPUs a polling thread would keep a working one from running.
  spins_ = threads <= cpus ? 8000 : 0;
  workers_.reserve(static_cast<size_t>(threads - 1));
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { worker_loop(i); });
  } catch (const std::system_error& error) {
    stop();
    fail(ErrorKind::out_of_memory, "the system starts {} of {} threads ({}); take fewer", workers_.size() + 1, threads,
         error.code().message());
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  open_.store(-1, std::memory_order_release);
  open_.notify_all();
  for (auto& worker : workers_) worker.join();
}

bool ThreadPool::take_one(int worker) {
  int32_t open = open_.load(std::memory_order_acquire);
  while (open > 0) {
    if (!open_.compare_exchange_weak(open, open - 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    if (!failed_.load(std::memory_order_relaxed)) {
      try {
        invoke_(function_, tasks_ - open, worker);
      } catch (...) {
        const std::lock_guard lock(error_mutex_);
        if (!error_) error_ = std::current_exception();
        failed_.store(true, std::memory_order_relaxed);
      }
    }
    if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) left_.notify_one();
    return true;
  }
  return false;
}

void ThreadPool::pass_time(int worker) const {
  if (pastime_.work == nullptr || !pastime_.work(pastime_.state, worker)) pause();
}

void ThreadPool::worker_loop(int worker) {
  current_pool = this;
  current_worker = worker;
  for (;;) {
    while (take_one(worker)) {}
    int spin = 0;
    int32_t open = 0;
    while ((open = open_.load(std::memory_order_acquire)) == 0) {
      if (++spin < spins_)
        pass_time(worker);
      else
        open_.wait(0, std::memory_order_acquire);
    }
    if (open < 0) return;
  }
}

void ThreadPool::run(int tasks, void* function, Invoke invoke) {
  if (tasks <= 0) return;
  const bool nested = current_pool == this;
  if (nested || workers_.empty() || tasks == 1) {
    const int worker = nested ? current_worker : 0;
    for (int i = 0; i < tasks; ++i) invoke(function, i, worker);
    return;
  }
  const std::lock_guard lock(caller_mutex_);
  function_ = function;
  invoke_ = invoke;
  tasks_ = tasks;
  error_ = nullptr;
  failed_.store(false, std::memory_order_relaxed);
  left_.store(tasks, std::memory_order_relaxed);
  open_.store(tasks, std::memory_order_release);
  open_.notify_all();

  const ThreadPool* const outer_pool = current_pool;
  const int outer_worker = current_worker;
  current_pool = this;
  current_worker = 0;
  while (take_one(0)) {}
  current_pool = outer_pool;
  current_worker = outer_worker;

  int spin = 0;
  for (int32_t left = 0; (left = left_.load(std::memory_order_acquire)) != 0;) {
    if (++spin < spins_)
      pass_time(0);
    else
      left_.wait(left, std::memory_order_acquire);
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace hadal

// The CPU backend's context: host memory, a thread pool, an instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/cpu_features.h"
#include "base/thread_pool.h"
#include "ops/context.h"

namespace hadal {

// Memory that is handed out in order and taken back all at once, or down to a mark. It grows by large chunks and keeps
// them: after the first steps an engine allocates nothing.
class Arena {
 public:
  Arena() = default;
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  static constexpr size_t kAlignment = 256;

  void* allocate(size_t bytes);

  struct Mark {
    size_t chunk = 0;
    size_t used = 0;
  };
  Mark mark() const { return at_; }
  void release(Mark mark) { at_ = mark; }
  size_t capacity() const;

 private:
  struct Chunk {
    std::byte* data = nullptr;
    size_t size = 0;
  };
  std::vector<Chunk> chunks_;
  Mark at_;
};

class CpuContext : public Context {
 public:
  // threads 0 = all CPUs that the process may use.
  explicit CpuContext(Numerics numerics, int threads = 0, Isa isa = process_isa());
  ~CpuContext() override;

  DType activation_type() const override { return DType::f32; }
  void* allocate_step(size_t bytes) override { return step_.allocate(bytes); }
  void reset_step() override { step_.release({}); }
  void* allocate_cache(size_t bytes) override;
  const void* upload(const void* host, size_t bytes) override;
  using Context::upload;
  void download(void* host, const void* device, size_t bytes) override;
  void copy_to_device(void* device, const void* host, size_t bytes) override;
  void copy_on_device(void* to, const void* from, size_t bytes) override;

  ThreadPool& pool() { return pool_; }
  Isa isa() const { return isa_; }

 private:
  friend class Scratch;

  ThreadPool pool_;
  Isa isa_;
  Arena step_;
  Arena scratch_;  // of the running operator
  struct Mapping {
    void* data = nullptr;
    size_t size = 0;
  };
  std::vector<Mapping> caches_;
};

// The context that a CPU operator was given.
CpuContext& cpu_context(Context& context);

// Temporary memory of one operator, returned when it goes out of scope. Allocate before a parallel loop, not inside.
class Scratch {
 public:
  explicit Scratch(CpuContext& context) : arena_(context.scratch_), mark_(arena_.mark()) {}
  ~Scratch() { arena_.release(mark_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  template <typename T>
  T* get(int64_t count) {
    return static_cast<T*>(arena_.allocate(static_cast<size_t>(count) * sizeof(T)));
  }

 private:
  Arena& arena_;
  Arena::Mark mark_;
};

}  // namespace hadal

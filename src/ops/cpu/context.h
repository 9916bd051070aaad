// The CPU backend's context: host memory, a thread pool, an instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/cpu_features.h"
#include "base/thread_pool.h"
#include "ops/context.h"
#include "ops/cpu/read_ahead.h"

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

  // A mark is the chunk's number above the bytes used in it; 0 is the empty arena.
  size_t mark() const { return (chunk_ << kChunkShift) | used_; }
  void release(size_t mark) {
    chunk_ = mark >> kChunkShift;
    used_ = mark & ((size_t{1} << kChunkShift) - 1);
  }
  size_t capacity() const;

 private:
  struct Chunk {
    std::byte* data = nullptr;
    size_t size = 0;
  };
  static constexpr int kChunkShift = 48;
  std::vector<Chunk> chunks_;
  size_t chunk_ = 0;  // where the next allocation goes
  size_t used_ = 0;
};

class CpuContext : public Context {
 public:
  // threads 0 = all CPUs that the process may use.
  explicit CpuContext(Numerics numerics, int threads = 0, Isa isa = process_isa());
  ~CpuContext() override;

  std::string device_name() const override;
  DType activation_type() const override { return DType::f32; }
  void* allocate_step(size_t bytes) override { return step_.allocate(bytes); }
  void reset_step() override { step_.release(0); }
  size_t mark_step() override { return step_.mark(); }
  void release_step(size_t mark) override { step_.release(mark); }
  const void* place_weight(const void* host, size_t) override { return host; }
  void* allocate_cache(size_t bytes) override;
  const void* upload(const void* host, size_t bytes) override;
  using Context::upload;
  void download(void* host, const void* device, size_t bytes) override;
  void copy_to_device(void* device, const void* host, size_t bytes) override;
  void copy_on_device(void* to, const void* from, size_t bytes) override;

  ThreadPool& pool() { return pool_; }
  int threads() const { return pool_.size(); }
  Isa isa() const { return isa_; }
  cpu::ReadAhead& read_ahead() { return read_ahead_; }

 private:
  cpu::ReadAhead read_ahead_;
  ThreadPool pool_;  // after what its threads pass their time with
  Isa isa_;
  Arena step_;
  struct Mapping {
    void* data = nullptr;
    size_t size = 0;
  };
  std::vector<Mapping> caches_;
};

// The context that a CPU operator was given.
CpuContext& cpu_context(Context& context);

// Step memory that one operator needs only while it runs. Allocate before a parallel loop, not inside.
class Scratch {
 public:
  explicit Scratch(CpuContext& context) : context_(context), scope_(context) {}

  template <typename T>
  T* get(int64_t count) {
    return static_cast<T*>(context_.allocate_step(static_cast<size_t>(count) * sizeof(T)));
  }

 private:
  CpuContext& context_;
  StepScratch scope_;
};

}  // namespace hadal

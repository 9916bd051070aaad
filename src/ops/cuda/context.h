// The CUDA context of an engine: one device, one stream, a memory budget, step memory and uploads.
// Everything an operator does is ordered by the one stream; nothing waits except download().
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ops/context.h"
#include "ops/cuda/device.h"
#include "ops/tuning.h"

namespace hadal::cuda {

struct ContextOptions {
  Numerics numerics = Numerics::bf16;
  int device = 0;
  size_t memory_budget = 0;              // bytes this context may allocate; 0 = what is free now less 1 GiB
  size_t step_bytes = size_t{64} << 20;  // step memory to begin with; it grows to what a step needs
  bool graphs = true;                    // steps that repeat are replayed as CUDA graphs
  TablePlace tables = TablePlace::automatic;
  bool portable = false;  // kernels without Hopper's own instructions, as on other cards; other bits, and slow
};

class CudaContext final : public Context {
 public:
  explicit CudaContext(const ContextOptions& options);
  explicit CudaContext(Numerics numerics, int device = 0)
      : CudaContext(ContextOptions{.numerics = numerics, .device = device}) {}
  ~CudaContext() override;

  // The CUDA context behind `context`, its device made current for this thread. Every operator starts with it.
  static CudaContext& of(Context& context);

  const DeviceInfo& device() const { return device_; }
  cudaStream_t stream() const { return stream_; }  // inside a Branch, the side stream
  int multiprocessors() const { return device_.multiprocessors; }
  // Whether every operator takes its kernel for any card of compute capability 8.0 or newer, and weights are not packed.
  bool portable() const { return portable_; }
  // What was measured on this card; only `hadal tune` changes it.
  Tuning& tuning() { return tuning_; }
  const Tuning& tuning() const { return tuning_; }
  void wait() override;  // throws what a kernel did wrong
  std::string device_name() const override { return device_.name + (portable_ ? ", portable kernels" : ""); }
  std::unique_ptr<TimeMarks> time_marks() override;
  bool can_record() const override { return graphs_; }
  std::unique_ptr<Recording> record(const std::function<void()>& work, std::unique_ptr<Recording> old) override;
  void replay(Recording& recording) override;
  uint64_t step_memory_epoch() const override { return epoch_; }
  void fix_step_memory() override;
  bool in_fixed_step_memory() const override { return highest_block_ < fixed_blocks_; }

  DType activation_type() const override { return DType::bf16; }
  void* allocate_step(size_t bytes) override;
  void reset_step() override;
  // Inside a Branch nothing is given back: its order is not the one of the other stream.
  size_t mark_step() override { return (block_ << kMarkShift) | used_; }
  void release_step(size_t mark) override;
  const void* place_weight(const void* host, size_t bytes) override;
  TablePlace table_place() const override { return tables_; }
  void aside(const std::function<void()>& work) override;
  void join_aside() override;
  void* allocate_cache(size_t bytes) override { return allocate("caches", bytes, true); }
  const void* upload(const void* host, size_t bytes) override;
  void download(void* host, const void* device, size_t bytes) override;
  void copy_to_device(void* device, const void* host, size_t bytes) override;
  void copy_on_device(void* to, const void* from, size_t bytes) override;
  using Context::upload;

  // Device memory for the life of the context, booked under `purpose` ("weights", "caches", ...).
  void* allocate(const std::string& purpose, size_t bytes, bool zeroed = false);
  // Device memory for a weight whose bytes are made there; is_placed() holds for it.
  void* weight_memory(size_t bytes);
  // Pinned host memory that kernels read over the bus, for the life of the context.
  void* allocate_host(size_t bytes);
  // Device memory for what one launch leaves for the next, for the life of the context: one piece for each name, zeroed.
  void* lasting(const std::string& name, size_t bytes);
  // A device array made from something at the address `of` that does not change while the context lives: made once for each
  // name and address.
  const void* constant(const std::string& name, const void* of, const std::function<const void*()>& make);
  // Whether place_weight or weight_memory gave out this address: then what lies there stays as it is.
  bool is_placed(const void* device) const;
  size_t allocated() const { return allocated_; }
  size_t memory_in_use() const;  // of the device, by everybody
  size_t memory_budget() const { return budget_; }
  const std::map<std::string, size_t>& allocated_by_purpose() const { return by_purpose_; }

 private:
  friend class Branch;
  struct Block {
    void* data = nullptr;
    size_t bytes = 0;
  };
  static constexpr int kMarkShift = 48;  // a mark holds the block above and the offset below
  // Weights come in 10^5 pieces, so they are cut from slabs. A slab grows with the model, up to 512 MiB.
  static constexpr size_t kFirstSlab = size_t{8} << 20, kLastSlab = size_t{512} << 20;
  // Pinned memory in parts: a part is written again only after the copies out of it are done.
  static constexpr size_t kStagingPart = size_t{4} << 20;
  static constexpr int kStagingParts = 4;

  void* take(const std::string& purpose, size_t bytes);
  void give_back(const std::string& purpose, Block block);

  DeviceInfo device_;
  Tuning tuning_;
  cudaStream_t stream_ = nullptr, side_stream_ = nullptr, aside_stream_ = nullptr;
  cudaEvent_t forked_ = nullptr, joined_ = nullptr, aside_done_ = nullptr;
  bool branched_ = false;
  bool aside_ = false;  // something is there and not joined
  bool portable_ = false;
  TablePlace tables_;
  size_t budget_ = 0;
  size_t allocated_ = 0;
  std::map<std::string, size_t> by_purpose_;
  std::vector<void*> owned_, owned_host_;

  std::vector<Block> slabs_;  // of weights; the last is being filled
  size_t slab_used_ = 0;

  std::vector<Block> blocks_;  // step memory; more than one behind the fixed ones only until the next reset
  size_t block_ = 0;           // index into blocks_
  size_t used_ = 0;            // bytes of blocks_[block_] given out
  size_t fixed_blocks_ = 0;    // the first of them, which stay; 0 or 1
  size_t highest_block_ = 0;   // that the running step has used
  uint64_t epoch_ = 0;         // how often a block behind the fixed ones has moved
  bool graphs_ = false;
  bool recording_ = false;
  std::map<std::pair<std::string, const void*>, const void*> constants_;
  std::map<std::string, void*> lasting_;

  char* staging_ = nullptr;
  cudaEvent_t staging_done_[kStagingParts] = {};
  int staging_part_ = 0;
  size_t staging_used_ = 0;
};

// Few rows leave most multiprocessors without work, so that two independent chains take the time of the longer one. What
// is given between the constructor and rest() goes to the side stream; what is given between rest() and join(), to the
// stream of everything else, beside it. Scratch of both lives until the operator's own Scratch ends, which must be the
// outer one.
class Branch {
 public:
  static constexpr int kMostRows = 128;
  // With more rows than that there is one stream as ever.
  Branch(CudaContext& context, int rows);
  ~Branch();
  Branch(const Branch&) = delete;
  Branch& operator=(const Branch&) = delete;
  void rest();
  void join();

 private:
  CudaContext& context_;
  bool open_, aside_;
};

// Typed scratch of one operator.
class Scratch : public StepScratch {
 public:
  explicit Scratch(CudaContext& context) : StepScratch(context), context_(context) {}
  template <typename T>
  T* get(size_t count) {
    return static_cast<T*>(context_.allocate_step(count * sizeof(T)));
  }

 private:
  CudaContext& context_;
};

}  // namespace hadal::cuda

namespace hadal {
using cuda::CudaContext;
}

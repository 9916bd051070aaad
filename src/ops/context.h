// What every operator is given besides its arguments: the numeric mode, scratch memory and the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace hadal {

// Where values are rounded (docs/numerics.md). Cache rounding is on in all modes: it is part of the model.
enum class Numerics {
  bf16,      // rounded to bf16 at the published boundaries; weights dequantised exactly
  fp32,      // no bf16 rounding: for comparison with oracles
  official,  // bf16, and inputs of FP8/FP4 linears rounded by Q1, and bf16 index scores, as the published code does
  fp8,       // bf16, and inputs of FP8/FP4 linears rounded by Q4/Q5, and FP8 weights folded (fold_weight.h): for speed
};
std::string_view to_string(Numerics numerics);

enum class DType : uint8_t { f32, bf16, u8, i32 };
size_t size_of(DType type);

// A row-major matrix that somebody else owns. Operators check the shape, not the owner.
struct Tensor {
  void* data = nullptr;
  DType type = DType::f32;
  int64_t rows = 0;
  int64_t cols = 0;

  explicit operator bool() const { return data != nullptr; }
  float* f32(int64_t row = 0) const { return static_cast<float*>(data) + row * cols; }
  uint8_t* u8(int64_t row = 0) const { return static_cast<uint8_t*>(data) + row * cols; }
  int32_t* i32(int64_t row = 0) const { return static_cast<int32_t*>(data) + row * cols; }
  uint16_t* bf16(int64_t row = 0) const { return static_cast<uint16_t*>(data) + row * cols; }
};

// Marks in the operators' own order, for measurements.
class TimeMarks {
 public:
  virtual ~TimeMarks() = default;
  virtual void mark() = 0;
  // Seconds from each mark to the next, once all are reached; forgets them.
  virtual std::vector<double> seconds() = 0;
};

// Where the rows of Engram tables lie: in the device's memory, in host memory that the device reads, or wherever they fit.
enum class TablePlace : uint8_t { automatic, device, host };

// Work that a backend has kept, to be given again all at once: a CUDA graph.
class Recording {
 public:
  virtual ~Recording() = default;
};

// One per engine. Step memory lives until reset(): buffers of a step stay valid for its commit.
class Context {
 public:
  explicit Context(Numerics numerics) : numerics_(numerics) {}
  virtual ~Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Numerics numerics() const { return numerics_; }

  // What computes: the card, or the instruction set and the threads.
  virtual std::string device_name() const { return "host"; }

  // The element type of activations: f32 on a CPU (holding values on the bf16 grid in the bf16 modes), bf16 on a GPU.
  virtual DType activation_type() const = 0;

  // Step memory, uninitialised, aligned to 256 bytes.
  virtual void* allocate_step(size_t bytes) = 0;
  virtual void reset_step() = 0;
  // Step memory allocated after mark() is given back by release(mark): scratch of one operator (see StepScratch). After a
  // replay, release(mark) goes forward to where the recorded work had ended.
  virtual size_t mark_step() = 0;
  virtual void release_step(size_t mark) = 0;

  // Memory for caches, zeroed, freed with the context.
  virtual void* allocate_cache(size_t bytes) = 0;

  // Where Engram tables should lie.
  virtual TablePlace table_place() const { return TablePlace::device; }
  // Gives `work` aside: it waits for what was given before it, and holds up nothing that is given after it until join_aside().
  // For operators that read slow memory and are asked for early. Its step memory must outlive the join.
  virtual void aside(const std::function<void()>& work) { work(); }
  virtual void join_aside() {}

  // Where a published weight lies for the operators: in place on a CPU, a copy on a GPU. Lives as long as the context.
  virtual const void* place_weight(const void* host, size_t bytes) = 0;

  // A host array in step memory, as operators see it (a copy on the device; the operators' own order applies).
  virtual const void* upload(const void* host, size_t bytes) = 0;
  // Ordered with the operators: device to host (waits), host to device, device to device.
  virtual void download(void* host, const void* device, size_t bytes) = 0;
  virtual void copy_to_device(void* device, const void* host, size_t bytes) = 0;
  virtual void copy_on_device(void* to, const void* from, size_t bytes) = 0;
  // For everything that operators were given so far.
  virtual void wait() {}
  virtual std::unique_ptr<TimeMarks> time_marks();

  // Steps of one shape give the operators the same work over the same memory. Where this is true, such work may be
  // recorded once and replayed.
  virtual bool can_record() const { return false; }
  // Keeps what `work` gives the operators and does not run it. `work` may allocate step memory and touches no host array.
  // `old`, a recording that is not needed any more, is changed into the new one where that is cheaper.
  virtual std::unique_ptr<Recording> record(const std::function<void()>& work, std::unique_ptr<Recording> old);
  virtual void replay(Recording& recording);
  // Another number means that step memory has moved: what was recorded before it must not be replayed.
  virtual uint64_t step_memory_epoch() const { return 0; }
  // Between two steps: step memory as it is now never moves again; what a longer step needs comes on top of it, and only
  // that counts in step_memory_epoch().
  virtual void fix_step_memory() {}
  // Whether all that the running step has allocated so far, scratch included, is memory that never moves.
  virtual bool in_fixed_step_memory() const { return false; }

  Tensor tensor(int64_t rows, int64_t cols, DType type) {
    return {allocate_step(static_cast<size_t>(rows * cols) * size_of(type)), type, rows, cols};
  }
  Tensor activations(int64_t rows, int64_t cols) { return tensor(rows, cols, activation_type()); }

  template <typename T>
  const T* upload(std::span<const T> host) {
    return static_cast<const T*>(upload(host.data(), host.size_bytes()));
  }
  template <typename T>
  const T* upload(const std::vector<T>& host) {
    return upload(std::span<const T>(host));
  }

 private:
  Numerics numerics_;
};

// Scratch inside an operator: step memory allocated in its life is reused afterwards, in the operators' own order.
class StepScratch {
 public:
  explicit StepScratch(Context& context) : context_(context), mark_(context.mark_step()) {}
  ~StepScratch() { context_.release_step(mark_); }
  StepScratch(const StepScratch&) = delete;
  StepScratch& operator=(const StepScratch&) = delete;

 private:
  Context& context_;
  size_t mark_;
};

// Rounding at a published BF16 boundary: every norm and linear output, q, latents after rounding, layer outputs, h.
inline float round_activation(Numerics numerics, float x) { return numerics == Numerics::fp32 ? x : round_bf16(x); }

}  // namespace hadal

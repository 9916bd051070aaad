// A backend as the cases see it: inputs from host arrays, poisoned outputs, outputs back on the host.
#pragma once

#include <string>
#include <vector>

#include "ops/operators.h"
#include "ops/testing/case.h"

namespace hadal::testing {

// A weight in a published format, on the host.
struct HostWeight {
  WeightFormat format = WeightFormat::bf16;
  int n = 0;
  int k = 0;
  std::vector<uint8_t> data;
  std::vector<uint8_t> scale;
};

// Normal values of deviation gain / sqrt(k), so that a unit input gives outputs of size `gain`; scales differ from block
// to block by up to 2^2.
HostWeight random_weight(Random& random, WeightFormat format, int n, int k, double gain = 1);
HostWeight f32_weight(const std::vector<float>& values, int n, int k);
HostWeight bf16_weight(const std::vector<float>& values, int n, int k);
std::vector<uint16_t> to_bf16(const std::vector<float>& values);
// Norm weights as they occur: around 1, some small, some negative.
std::vector<uint16_t> random_norm(Random& random, int n);
// Bytes of a weight as published.
double weight_bytes(WeightFormat format, double n, double k);

class Backend {
 public:
  Backend(const Operators& operators, Context& context) : operators_(operators), context_(context) {}

  const Operators& operators() const { return operators_; }
  Context& context() { return context_; }
  Numerics numerics() const { return context_.numerics(); }
  // The reference also reports values in front of a rounding, which packed rows are checked against.
  bool is_reference() const { return &operators_ == &reference_operators(); }

  // ---- inputs ----
  // On the bf16 grid in the bf16 modes.
  Tensor activations(const std::vector<float>& values, int64_t rows, int64_t cols);
  Tensor f32(const std::vector<float>& values, int64_t rows, int64_t cols);
  Tensor i32(const std::vector<int32_t>& values, int64_t rows, int64_t cols);
  Tensor u8(const std::vector<uint8_t>& values, int64_t rows, int64_t cols);
  Weight weight(const HostWeight& host);
  // Activations in the form that Operators::linear_input has for w where that is rounded (u8: ops/cuda/fp8_rows.h);
  // nothing where it is not.
  Tensor rounded(const Weight& w, const std::vector<float>& values, int64_t rows);
  template <typename T>
  const T* array(const std::vector<T>& host) {
    return context_.upload(host);
  }

  // ---- outputs: filled with NaN or other nonsense, with a guard behind them ----
  Tensor output(int64_t rows, int64_t cols, DType type);
  Tensor output_activations(int64_t rows, int64_t cols) { return output(rows, cols, context_.activation_type()); }
  // Of Operators::linear_input, which there must be.
  Tensor output_linear_input(int64_t rows, const Weight& w, int groups);
  // A caches' pool: given bytes, writable, with a guard.
  uint8_t* pool(const std::vector<uint8_t>& bytes);

  // ---- back on the host ----
  Output download(const Tensor& tensor);
  // The values of a tensor of Operators::linear_input that is rounded (u8: ops/cuda/fp8_rows.h).
  Output download_rounded(const Tensor& tensor);
  // What an operator wrote behind its outputs; empty when nothing.
  std::string damage();

 private:
  struct Guard {
    uint8_t* begin;
    std::string what;
  };
  uint8_t* allocate_guarded(size_t bytes, const std::string& what);

  const Operators& operators_;
  Context& context_;
  std::vector<Guard> guards_;
};

}  // namespace hadal::testing

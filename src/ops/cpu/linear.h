// Linear layers over all threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "ops/cpu/context.h"
#include "ops/cpu/kernels.h"

namespace hadal::cpu {

// The layout in which inputs of this weight are multiplied: the bf16 dot product where the CPU has it and the numerics
// round activations to bf16 anyway, else fp32.
Layout layout_of(const CpuContext& context, const Weight& weight);
// How the numerics round the input of this weight.
InputRounding input_rounding(const CpuContext& context, const Weight& weight);

// Rows ready to be multiplied. Made once and shared by the weights that read them.
struct Input {
  const void* data = nullptr;
  Layout layout = Layout::split;
  int64_t stride = 0;  // elements

  const void* row(int64_t r) const { return static_cast<const std::byte*>(data) + r * stride * element_bytes(layout); }
};
Input prepare(CpuContext& context, Scratch& scratch, const float* x, int64_t x_stride, int rows, int k, Layout layout,
              InputRounding rounding);
// For `weight`, as its format and the numerics want it.
Input prepare(CpuContext& context, Scratch& scratch, const float* x, int64_t x_stride, int rows, const Weight& weight);

struct Product {
  const Weight* weight = nullptr;
  Input x;
  const int32_t* x_index = nullptr;  // [rows] row of x, null = the same row
  int rows = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
  bool round = false;  // to bf16, in the modes that round
};
// Independent products in one parallel loop.
void multiply(CpuContext& context, std::span<const Product> products);
inline void multiply(CpuContext& context, std::initializer_list<Product> products) {
  multiply(context, std::span<const Product>(products.begin(), products.size()));
}

// fn(begin, end) over [0, n) in pieces of at least `grain`, for loops whose iterations are independent.
template <typename F>
void parallel_ranges(CpuContext& context, int64_t n, int64_t grain, F&& fn) {
  const int64_t pieces =
      std::max<int64_t>(1, std::min<int64_t>((n + grain - 1) / grain, int64_t{4} * context.pool().size()));
  const int64_t step = (n + pieces - 1) / pieces;
  context.pool().parallel_for(static_cast<int>(pieces), [&](int i) {
    const int64_t begin = i * step, end = std::min(n, begin + step);
    if (begin < end) fn(begin, end);
  });
}

// (cos, sin) of each rotated pair at a position, in fp32 from the fp32 angle: out[rope.dim].
void cos_sin(const Rope& rope, int32_t position, float* out);

// The bytes of rows n0 .. n1 of a weight, without their scales.
Read read_of(const Weight& weight, int n0, int n1);

inline bool rounds(const CpuContext& context) { return context.numerics() != Numerics::fp32; }
inline const Kernels& kernels(const CpuContext& context) { return kernels(context.isa()); }

// Shapes, checked where an operator starts.
void check_weight(const Weight& weight, int64_t n, int64_t k, const char* name);
void check_tensor(const Tensor& tensor, DType type, int64_t rows, int64_t cols, const char* name);

}  // namespace hadal::cpu

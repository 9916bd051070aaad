#include "ops/cuda/linear.h"

#include <algorithm>

#include "ops/cuda/fp8_linear.h"
#include "ops/cuda/linear_launch.cuh"
#include "ops/cuda/packed_linear.h"
#include "ops/cuda/row.cuh"

namespace hadal::cuda {
namespace {

// Adds the segments that ran side by side, in ascending order.
__global__ void add_segments(const LinearProblem p) {
  const int64_t n_total = int64_t{p.groups} * p.group_n, count = p.rows * n_total;
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float total = 0;
  for (int s = 0; s < p.segments; ++s) total += p.partial[s * count + i];
  store_output(p, i / n_total, i % n_total, total);
}

// x rounded by Q1, Q4 or Q5 (`group` channels a scale; the last group of the k columns of an input may be shorter), one
// warp a group.
__global__ void quantise_input(const uint16_t* x, int64_t x_stride, const int32_t* x_row, int64_t warps, int k,
                               int inputs, int group, uint16_t* out) {
  const int64_t warp = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32;
  if (warp >= warps) return;
  const int groups = (k + group - 1) / group;
  const int64_t row = warp / (int64_t{groups} * inputs), input = warp / groups % inputs;
  const int begin = static_cast<int>(warp % groups) * group, first = begin + threadIdx.x % 32,
            last = min(begin + group, k);
  const uint16_t* from = x + (x_row != nullptr ? x_row[row] : row) * x_stride + input * k;
  uint16_t* to = out + (row * inputs + input) * k;
  float largest = 0;
  for (int col = first; col < last; col += 32) largest = fmaxf(largest, fabsf(from_bf16(from[col])));
  const uint8_t scale = q1_scale(warp_max(largest));
  for (int col = first; col < last; col += 32)
    to[col] = to_bf16(from_e4m3(q1_code(from_bf16(from[col]), scale)) * from_ue8m0(scale));
}

// Shapes that the tensor core kernels do not take (k or the rows of x not a multiple of 16 bytes): one warp an output.
template <WeightFormat F>
__global__ void linear_any(const LinearProblem p) {
  const int64_t n_total = int64_t{p.groups} * p.group_n;
  const int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32;
  if (i >= p.rows * n_total) return;
  const int64_t row = i / n_total, n = i % n_total, source = p.x_row != nullptr ? p.x_row[row] : row;
  const uint16_t* x = p.x + source * p.x_stride + n / p.group_n * p.k;
  const int64_t scale_cols = (p.k + 31) / 32;
  float sum = 0;
  for (int k = threadIdx.x % 32; k < p.k; k += 32) {
    float w;
    if constexpr (F == WeightFormat::bf16)
      w = from_bf16(reinterpret_cast<const uint16_t*>(p.w)[n * p.k + k]);
    else if constexpr (F == WeightFormat::fp8_block32)
      w = from_e4m3(p.w[n * p.k + k]) * from_ue8m0(p.scale[n / 32 * scale_cols + k / 32]);
    else
      w = from_e2m1(p.w[(n * p.k + k) / 2] >> (k % 2 * 4)) * from_ue8m0(p.scale[n * scale_cols + k / 32]);
    sum = fmaf(w, from_bf16(x[k]), sum);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) store_output(p, row, n, sum);
}

void launch_any(const LinearProblem& p, WeightFormat format, cudaStream_t stream) {
  const int64_t outputs = int64_t{p.rows} * p.groups * p.group_n;
  const auto kernel = format == WeightFormat::bf16          ? linear_any<WeightFormat::bf16>
                      : format == WeightFormat::fp8_block32 ? linear_any<WeightFormat::fp8_block32>
                                                            : linear_any<WeightFormat::mxfp4>;
  kernel<<<static_cast<unsigned>((outputs + 7) / 8), 256, 0, stream>>>(p);
  HADAL_CUDA_LAUNCHED("linear_any");
}

int lane_values(WeightFormat format) {
  return format == WeightFormat::bf16 ? 8 : format == WeightFormat::fp8_block32 ? 16 : 32;
}

// The tile that was measured for this shape, of tile_names; -1 when none was, or none of that name is here any more.
int tuned_tile(const CudaContext& context, const Weight& w, int rows, bool fp8, bool rounded) {
  if (rows <= kMostNarrowRows || context.tuning().choices().empty()) return -1;
  const Tuning::Choice* choice = context.tuning().find({tuned_kernel(fp8, rounded), w.n, w.k, rows});
  if (choice == nullptr) return -1;
  const std::vector<std::string> names = tile_names(fp8, rounded);
  const auto at = std::find(names.begin(), names.end(), choice->name);
  return at == names.end() ? -1 : static_cast<int>(at - names.begin());
}

void run_fp8(CudaContext& context, const LinearArgs& a, const LinearArgs* second = nullptr) {
  const Weight& w = a.w;
  Scratch scratch(context);
  Fp8Problem p;
  p.x = a.x_fp8;
  if (!p.x && rounds_rows(a.rows, w)) {
    p.x.rows = a.rows;
    p.x.columns = w.k * a.groups;
    p.x_bf16 = a.x;
    p.x_stride = a.x_stride;
    p.x_row = a.x_row;
    HADAL_CUDA_CHECK(a.x_stride % 8 == 0 && reinterpret_cast<uintptr_t>(a.x) % 16 == 0);
  } else if (!p.x) {
    p.x = fp8_rows(scratch, a.rows, w.k * a.groups);
    quantise_rows(context, a.x, a.x_stride, a.x_row, p.x);
  }
  HADAL_CUDA_CHECK(p.x.rows == a.rows);
  p.k = w.k;
  p.n = w.n;
  p.group_n = w.n / a.groups;
  locate_packed_fp8(w, p);
  p.y = a.y;
  p.y_stride = a.y_stride;
  const bool rounded = a.y_fp8 && quantises_results(p);
  if (second != nullptr) {
    locate_second_fp8(second->w, p);
    p.second_y = second->y;
  } else {
    p.tile = tuned_tile(context, w, a.rows, true, rounded);
  }
  if (!a.y_fp8) return fp8_linear(p, context.multiprocessors(), context.stream());
  if (rounded) {
    p.quantised = a.y_fp8;
    return fp8_linear(p, context.multiprocessors(), context.stream());
  }
  p.y = scratch.get<uint16_t>(static_cast<size_t>(a.rows) * w.n);
  p.y_stride = w.n;
  fp8_linear(p, context.multiprocessors(), context.stream());
  quantise_rows(context, p.y, w.n, nullptr, a.y_fp8);
}

}  // namespace

const char* tuned_kernel(bool fp8, bool rounded) { return fp8 ? rounded ? "fp8_rounded" : "fp8" : "bf16"; }

std::vector<std::string> tile_names(bool fp8, bool rounded) {
  std::vector<std::string> names;
  if (fp8)
    for (const char* name : fp8_wide_tiles(rounded)) names.emplace_back(name);
  else
    for (const int width : packed_widths()) names.push_back(std::to_string(width));
  return names;
}

bool wants_fp8(const CudaContext& context, int rows, const Weight& w, int groups) {
  return reads_fp8(context, w, groups) && !rounds_rows(rows, w);
}

bool reads_fp8(const CudaContext& context, const Weight& w, int groups) {
  return context.numerics() == Numerics::fp8 && w.packed != nullptr && can_pack_fp8(w) && fits_packed_tiles(w, groups);
}

LinearArgs linear_args(const Tensor& x, const Weight& w, const Tensor& y) {
  LinearArgs a;
  a.rows = static_cast<int>(y.rows);
  a.x = x.bf16();
  a.x_stride = x.cols;
  a.w = w;
  if (y.type == DType::f32)
    a.y_f32 = y.f32();
  else
    a.y = y.bf16();
  a.y_stride = y.cols;
  return a;
}

void linear_pair(CudaContext& context, const LinearArgs& first, const LinearArgs& second) {
  HADAL_CUDA_CHECK(first.x == second.x && first.rows == second.rows && first.x_fp8.codes == second.x_fp8.codes);
  const Weight &a = first.w, &b = second.w;
  if (first.rows > 0 && first.groups == 1 && reads_fp8(context, a) && reads_fp8(context, b) && a.n == b.n &&
      a.k == b.k && !rounds_rows(first.rows, a) && !first.y_fp8 && !second.y_fp8 && first.y_stride == second.y_stride)
    return run_fp8(context, first, &second);
  linear(context, first);
  linear(context, second);
}

void linear(CudaContext& context, const LinearArgs& a) {
  if (a.rows == 0) return;
  const Weight& w = a.w;
  if (w.format == WeightFormat::f32) fail_shape("a linear", "a bf16, FP8 or MXFP4 weight; format is", 0);
  if (reads_fp8(context, w, a.groups)) return run_fp8(context, a);
  HADAL_CUDA_CHECK(!a.x_fp8 && !a.y_fp8);
  const int lane = lane_values(w.format);
  // By the shape alone, never by the number of rows.
  const bool any = w.k % lane != 0 || a.x_stride % 8 != 0;
  HADAL_CUDA_CHECK(a.groups > 0 && w.n % a.groups == 0);
  const bool packed = w.packed != nullptr && !(context.numerics() == Numerics::fp8 && can_pack_fp8(w)) &&
                      fits_packed_tiles(w, a.groups);
  // Operators::check_groups has seen to it before the weight was loaded.
  if (!packed && w.data == nullptr) fail_shape("a grouped linear", "a multiple of 64 outputs a group", w.n / a.groups);
  HADAL_CUDA_CHECK(a.x != nullptr && w && (a.y != nullptr) != (a.y_f32 != nullptr));
  HADAL_CUDA_CHECK(any || (reinterpret_cast<uintptr_t>(w.data) | reinterpret_cast<uintptr_t>(a.x)) % 16 == 0);

  Scratch scratch(context);
  LinearProblem p{};
  p.x = a.x;
  p.x_stride = a.x_stride;
  p.x_row = a.x_row;
  const bool q1 = context.numerics() == Numerics::official && a.q1, fp8 = context.numerics() == Numerics::fp8;
  if ((q1 || fp8) && w.format != WeightFormat::bf16) {
    if (w.k % 32 != 0) fail_shape("a linear with quantised inputs", "k a multiple of 32", w.k);
    const int group = q1 ? 32 : w.format == WeightFormat::mxfp4 ? w.k : 128;
    const int64_t cols = int64_t{w.k} * a.groups, warps = int64_t{a.rows} * a.groups * ((w.k + group - 1) / group);
    auto* rounded = scratch.get<uint16_t>(a.rows * cols);
    quantise_input<<<static_cast<unsigned>((warps + 7) / 8), 256, 0, context.stream()>>>(
        a.x, a.x_stride, a.x_row, warps, w.k, a.groups, group, rounded);
    HADAL_CUDA_LAUNCHED("quantise_input");
    p.x = rounded;
    p.x_stride = cols;
    p.x_row = nullptr;
  }
  if (packed) {
    HADAL_CUDA_CHECK(a.y != nullptr && a.y_stride % 8 == 0);
    PackedProblem q{p.x, p.x_stride, p.x_row, a.rows, w.k, w.n, w.n / a.groups, nullptr, nullptr, a.y, a.y_stride};
    locate_packed(w, q);
    if (const int tile = tuned_tile(context, w, a.rows, false, false); tile >= 0)
      q.width = packed_widths()[static_cast<size_t>(tile)];
    return packed_linear(q, context.multiprocessors(), context.stream());
  }
  p.w = static_cast<const uint8_t*>(w.data);
  p.scale = w.scale;
  p.rows = a.rows;
  p.k = w.k;
  p.groups = a.groups;
  p.group_n = w.n / a.groups;
  // The segments depend on k and the format alone: eight, each a multiple of the step of linear_tile.
  const int step = w.format == WeightFormat::mxfp4 ? 128 : 64;
  p.segment = (w.k + kMaxSegments * step - 1) / (kMaxSegments * step) * step;
  p.segments = (w.k + p.segment - 1) / p.segment;
  p.y = a.y;
  p.y_f32 = a.y_f32;
  p.y_stride = a.y_stride;
  p.add = a.add;
  p.split = 1;
  if (any) return launch_any(p, w.format, context.stream());
  if (a.rows > kFewRows) {
    const int64_t tiles = tile_count(p.rows, p.groups, p.group_n);
    p.split = static_cast<int>(std::clamp<int64_t>(context.multiprocessors() / tiles, 1, p.segments));
    if (p.split > 1) p.partial = scratch.get<float>(static_cast<size_t>(p.segments) * p.rows * w.n);
  }
  switch (w.format) {
    case WeightFormat::bf16: launch_linear_bf16(p, context.stream()); break;
    case WeightFormat::fp8_block32: launch_linear_fp8(p, context.stream()); break;
    default: launch_linear_mxfp4(p, context.stream()); break;
  }
  if (p.split > 1) {
    const int64_t count = int64_t{p.rows} * w.n;
    add_segments<<<static_cast<unsigned>((count + 255) / 256), 256, 0, context.stream()>>>(p);
    HADAL_CUDA_LAUNCHED("add_segments");
  }
}

}  // namespace hadal::cuda

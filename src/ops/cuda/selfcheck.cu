#include "ops/cuda/selfcheck.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "base/dtype.h"
#include "ops/cuda/codec.cuh"
#include "ops/cuda/errors.h"
#include "ops/cuda/fold.h"
#include "ops/cuda/fp8_linear.h"
#include "ops/cuda/linear.h"
#include "ops/cuda/packed_linear.h"

namespace hadal::cuda {
namespace {

struct Codes {
  uint16_t bf16;
  uint8_t e4m3, e2m1, pow2;
};
__global__ void encode_kernel(const float* x, int count, Codes* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = {to_bf16(x[i]), to_e4m3(x[i]), to_e2m1(x[i]), pow2ceil_ue8m0(x[i])};
}
__global__ void decode_kernel(float* e4m3, float* e2m1, float* ue8m0) {
  const auto c = static_cast<uint8_t>(threadIdx.x);
  e4m3[c] = from_e4m3(c);
  e2m1[c] = from_e2m1(c & 15);
  ue8m0[c] = from_ue8m0(c);
}

bool same_bits(float a, float b) { return float_bits(a) == float_bits(b) || (std::isnan(a) && std::isnan(b)); }

std::vector<float> hard_values() {
  std::vector<float> values;
  for (unsigned b = 0; b < 0x10000; ++b) values.push_back(hadal::from_bf16(static_cast<uint16_t>(b)));
  std::vector<float> grid;
  for (int c = 0; c < 127; ++c) grid.push_back(hadal::from_e4m3(static_cast<uint8_t>(c)));
  for (int c = 0; c < 8; ++c) grid.push_back(hadal::from_e2m1(static_cast<uint8_t>(c)));
  std::sort(grid.begin(), grid.end());
  grid.push_back(480);  // where the next e4m3 value would be
  for (size_t i = 0; i + 1 < grid.size(); ++i)
    for (const float centre : {grid[i], (grid[i] + grid[i + 1]) / 2})
      for (const float v : {centre, std::nextafter(centre, -1e9f), std::nextafter(centre, 1e9f)})
        values.insert(values.end(), {v, -v});
  return values;
}

template <typename T>
std::vector<T> download(CudaContext& context, const T* device, size_t count) {
  std::vector<T> host(count);
  context.download(host.data(), device, count * sizeof(T));
  return host;
}

void check_conversions(CudaContext& context, std::vector<std::string>& failures) {
  Scratch scratch(context);
  const std::vector<float> x = hard_values();
  const int count = static_cast<int>(x.size());
  auto* codes = scratch.get<Codes>(x.size());
  auto* decoded = scratch.get<float>(3 * 256);
  encode_kernel<<<(count + 255) / 256, 256, 0, context.stream()>>>(context.upload(x), count, codes);
  HADAL_CUDA_LAUNCHED("encode_kernel");
  decode_kernel<<<1, 256, 0, context.stream()>>>(decoded, decoded + 256, decoded + 512);
  HADAL_CUDA_LAUNCHED("decode_kernel");
  const auto have = download(context, codes, x.size());
  const auto values = download(context, decoded, 3 * 256);
  for (int c = 0; c < 256; ++c) {
    const auto b = static_cast<uint8_t>(c);
    if (!same_bits(values[c], hadal::from_e4m3(b)) || !same_bits(values[256 + c], hadal::from_e2m1(b)) ||
        !same_bits(values[512 + c], hadal::from_ue8m0(b)))
      failures.push_back("decoding differs at code " + std::to_string(c));
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const bool normal = std::isnormal(x[i]) && x[i] > 0;
    if (have[i].bf16 != hadal::to_bf16(x[i]) || have[i].e4m3 != hadal::to_e4m3(x[i]) ||
        have[i].e2m1 != hadal::to_e2m1(x[i]) || (normal && have[i].pow2 != hadal::pow2ceil_ue8m0(x[i])))
      failures.push_back("encoding differs at " + std::to_string(x[i]));
  }
}

// W has one row for a pair (code, scale); x picks one column at a time.
void check_linear_decoder(CudaContext& context, WeightFormat format, std::vector<std::string>& failures) {
  Scratch scratch(context);
  const bool fp8 = format == WeightFormat::fp8_block32;
  const int k = fp8 ? 256 : 32, n = 255 * 32;  // 32 rows share a scale byte of FP8
  std::vector<uint8_t> data, scale;
  for (int r = 0; r < n; ++r) {
    if (fp8)
      for (int c = 0; c < k; ++c) data.push_back(static_cast<uint8_t>(c));
    else
      for (int c = 0; c < k / 2; ++c) data.push_back(static_cast<uint8_t>((2 * c & 15) | ((2 * c + 1) & 15) << 4));
    if (!fp8 || r % 32 == 0) scale.insert(scale.end(), static_cast<size_t>(k / 32), static_cast<uint8_t>(r / 32));
  }
  std::vector<uint16_t> x(static_cast<size_t>(k) * k);
  for (int c = 0; c < k; ++c) x[static_cast<size_t>(c) * k + c] = 0x3f80;
  LinearArgs a;
  a.rows = k;
  a.x = context.upload(x);
  a.x_stride = k;
  a.w = {format, n, k, context.upload(data), context.upload(scale)};
  a.y_f32 = scratch.get<float>(static_cast<size_t>(n) * k);
  a.y_stride = n;
  a.q1 = false;
  linear(context, a);
  const auto y = download(context, a.y_f32, static_cast<size_t>(n) * k);
  for (int c = 0; c < k; ++c)
    for (int r = 0; r < n; r += 32) {
      const auto code = static_cast<uint8_t>(fp8 ? c : c & 15);
      if (fp8 && (code & 0x7f) == 0x7f) continue;  // NaN, refused at load
      const float scale_value = hadal::from_ue8m0(static_cast<uint8_t>(r / 32));
      const float want = (fp8 ? hadal::from_e4m3(code) : hadal::from_e2m1(code)) * scale_value;
      // A block that can overflow is refused at load; below the range of bf16 weights may lose bits.
      if (!std::isfinite(scale_value * (fp8 ? 448.0f : 6.0f)) || std::fabs(want) < 0x1p-126f) continue;
      if (y[static_cast<size_t>(c) * n + r] != want) {
        failures.push_back("linear decodes code " + std::to_string(code) + " with scale byte " +
                           std::to_string(r / 32) + " as " + std::to_string(y[static_cast<size_t>(c) * n + r]) +
                           ", expected " + std::to_string(want));
        if (failures.size() > 20) return;
      }
    }
}

// The packed path against the published bytes, and against itself for every tile width.
void check_packed(CudaContext& context, LinearArgs a, int most, std::vector<std::string>& failures) {
  Scratch scratch(context);
  const int n = a.w.n;
  a.y_f32 = nullptr;
  a.rows = most;
  a.y = scratch.get<uint16_t>(static_cast<size_t>(most) * n);
  linear(context, a);
  const auto want = download(context, a.y, static_cast<size_t>(most) * n);
  void* packed = context.allocate_step(packed_bytes(a.w));
  pack_linear(context, a.w, packed);
  a.w.packed = packed;
  std::vector<uint16_t> first;
  for (const int rows : {most, 1, 7, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 136, 137, 256}) {
    a.rows = rows;
    linear(context, a);
    const auto y = download(context, a.y, static_cast<size_t>(rows) * n);
    if (first.empty()) first = y;
    if (!std::equal(y.begin(), y.end(), first.begin()))
      failures.push_back("packed [" + std::to_string(n) + ", " + std::to_string(a.w.k) + "]: " + std::to_string(rows) +
                         " rows differ from " + std::to_string(most));
  }
  double error = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double w = hadal::from_bf16(want[i]), e = w - hadal::from_bf16(first[i]);
    error += e * e;
    size += w * w;
  }
  if (!(error <= size * 1e-6))
    failures.push_back("packed [" + std::to_string(n) + ", " + std::to_string(a.w.k) + "] is off by " +
                       std::to_string(std::sqrt(error / size)));
}

// FP8 products against the 16-bit ones of the same rounded operands, and against themselves for every tile.
void check_fp8(CudaContext& context, int n, int k, int groups, std::vector<std::string>& failures) {
  Scratch scratch(context);
  constexpr int kMost = 300;
  const std::string name = "fp8 [" + std::to_string(n) + ", " + std::to_string(k) + "]";
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  std::vector<uint8_t> data, scale;
  for (int64_t i = 0; i < int64_t{n} * k; ++i) data.push_back(hadal::to_e4m3(normal(random) * 60));
  for (int i = 0; i < n / 32 * (k / 32); ++i) scale.push_back(static_cast<uint8_t>(118 + random() % 5));
  std::vector<uint16_t> x(static_cast<size_t>(kMost) * k * groups);
  for (uint16_t& v : x) v = hadal::to_bf16(normal(random));
  LinearArgs a;
  a.rows = kMost;
  a.x = context.upload(x);
  a.x_stride = int64_t{k} * groups;
  a.groups = groups;
  a.w = {WeightFormat::fp8_block32, n, k, context.upload(data), context.upload(scale)};
  fold_weight(context, a.w);
  a.y = scratch.get<uint16_t>(static_cast<size_t>(kMost) * n);
  a.y_stride = n;
  linear(context, a);
  const auto want = download(context, a.y, static_cast<size_t>(kMost) * n);

  void* packed = context.allocate_step(packed_fp8_bytes(a.w));
  pack_fp8(context, a.w, packed);
  a.w.packed = packed;
  std::vector<uint16_t> first;
  for (const int rows : {kMost, kMost, 1, 7, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 136, 137, 256, 257}) {
    a.rows = rows;
    linear(context, a);
    const auto y = download(context, a.y, static_cast<size_t>(rows) * n);
    if (first.empty()) first = y;
    if (!std::equal(y.begin(), y.end(), first.begin()))
      failures.push_back(name + ": " + std::to_string(rows) + " rows differ from " + std::to_string(kMost));
  }
  double error = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double w = hadal::from_bf16(want[i]), e = w - hadal::from_bf16(first[i]);
    error += e * e;
    size += w * w;
  }
  // Both sides round to bf16, and the tensor core drops bits (tolerance.h).
  if (!(error <= size * 4e-6)) failures.push_back(name + " is off by " + std::to_string(std::sqrt(error / size)));

  // Q4 of the results, for the next linear: by the epilogue of many rows, and by a pass over few.
  if (n / groups % 128 != 0) return;
  for (const int rows : {kMost, 129, 65}) {
    Scratch inner(context);
    a.rows = rows;
    a.y_fp8 = {};
    linear(context, a);
    const Fp8Rows apart = fp8_rows(inner, rows, n);
    quantise_rows(context, a.y, n, nullptr, apart);
    a.y_fp8 = fp8_rows(inner, rows, n);
    linear(context, a);
    const size_t count = static_cast<size_t>(apart.padded) * n;
    const auto codes = download(context, apart.codes, count), fused = download(context, a.y_fp8.codes, count);
    const auto scales = download(context, apart.scales, count / 128),
               fused_scales = download(context, a.y_fp8.scales, count / 128);
    for (size_t i = 0; i < count; ++i)
      if (i / 128 % apart.padded < static_cast<size_t>(rows) &&
          (codes[i] != fused[i] || scales[i / 128] != fused_scales[i / 128])) {
        failures.push_back(name + ": results quantised in the kernel differ for " + std::to_string(rows) + " rows");
        break;
      }
  }
}

}  // namespace

std::vector<std::string> check_fp8_linear(CudaContext& context) {
  std::vector<std::string> failures;
  check_fp8(context, 512, 5120, 1, failures);
  check_fp8(context, 1280, 1280, 1, failures);
  check_fp8(context, 1024, 256, 4, failures);
  check_fp8(context, 256, 128, 4, failures);  // groups of 64 outputs
  return failures;
}

std::vector<std::string> check_codecs(CudaContext& context) {
  std::vector<std::string> failures;
  check_conversions(context, failures);
  check_linear_decoder(context, WeightFormat::fp8_block32, failures);
  check_linear_decoder(context, WeightFormat::mxfp4, failures);
  return failures;
}

std::vector<std::string> check_row_invariance(CudaContext& context) {
  std::vector<std::string> failures;
  struct Shape {
    int n, k, groups;
  };
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  constexpr int kMost = 300;
  for (const WeightFormat format : {WeightFormat::bf16, WeightFormat::fp8_block32, WeightFormat::mxfp4})
    for (const Shape shape :
         {Shape{512, 5120, 1}, Shape{1280, 1280, 1}, Shape{96, 160, 1}, Shape{256, 96, 4}, Shape{40, 64, 1}}) {
      Scratch scratch(context);
      const int bits = format == WeightFormat::bf16 ? 16 : format == WeightFormat::fp8_block32 ? 8 : 4;
      const size_t cells = static_cast<size_t>(shape.n) * shape.k;
      std::vector<uint8_t> data;
      for (size_t i = 0; i < cells; ++i) {
        const float v = normal(random);
        if (bits == 16) {
          const uint16_t b = hadal::to_bf16(v);
          data.insert(data.end(), {static_cast<uint8_t>(b), static_cast<uint8_t>(b >> 8)});
        } else if (bits == 8) {
          data.push_back(hadal::to_e4m3(v * 60));
        } else if (i % 2 == 0) {
          data.push_back(static_cast<uint8_t>(hadal::to_e2m1(v * 2) | (hadal::to_e2m1(normal(random) * 2) << 4)));
        }
      }
      std::vector<uint8_t> scale(bits == 4 ? cells / 32
                                           : static_cast<size_t>((shape.n + 31) / 32) * ((shape.k + 31) / 32));
      for (uint8_t& b : scale) b = static_cast<uint8_t>(118 + random() % 5);
      const int width = shape.k * shape.groups;
      std::vector<uint16_t> x(static_cast<size_t>(kMost) * width);
      for (uint16_t& v : x) v = hadal::to_bf16(normal(random));

      LinearArgs a;
      a.x = context.upload(x);
      a.x_stride = width;
      a.groups = shape.groups;
      a.w = {format, shape.n, shape.k, context.upload(data), context.upload(scale)};
      a.y_f32 = scratch.get<float>(static_cast<size_t>(kMost) * shape.n);
      a.y_stride = shape.n;
      if (can_pack(a.w) && !context.portable()) check_packed(context, a, kMost, failures);
      std::vector<float> first;
      for (const int rows : {kMost, 1, 2, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129}) {
        a.rows = rows;
        linear(context, a);
        const auto y = download(context, a.y_f32, static_cast<size_t>(rows) * shape.n);
        if (first.empty()) first = y;
        if (!std::equal(y.begin(), y.end(), first.begin(),
                        [](float p, float q) { return float_bits(p) == float_bits(q); }))
          failures.push_back("format " + std::to_string(static_cast<int>(format)) + " [" + std::to_string(shape.n) +
                             ", " + std::to_string(shape.k) + "]: " + std::to_string(rows) + " rows differ from " +
                             std::to_string(kMost));
      }
    }
  return failures;
}

}  // namespace hadal::cuda

// How far off the sums of a GPU's packed linears are at the release's lengths, of 16-bit and of 8-bit products, before and
// after they are rounded to bf16. 256 rows x 256 outputs against float64 of the same operands; nothing is timed.
#include "base/dtype.h"
#include "base/row_format.h"
#include "bench.cuh"
#include "ops/cuda/codec.cuh"
#include "ops/cuda/fp8_linear.h"
#include "ops/cuda/linear.h"
#include "ops/cuda/packed_linear.h"
#include "ops/testing/tolerance.h"

namespace hadal::bench {
namespace {

using namespace hadal::cuda;

constexpr int kRows = 256, kOutputs = 256, kTurns = 4;
// The last products of a sum, which may cancel what came before: parts of a number by weights of one.
constexpr int kParts = 3, kLast = 128;

// One warp an output, a row of the grid a row.
__global__ void exact_sums(const uint16_t* x, const uint8_t* w, const uint8_t* scale, int k, double* out) {
  const int o = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  double sum = 0;
  for (int c = lane; c < k; c += 32)
    sum += double(cuda::from_bf16(x[int64_t(blockIdx.y) * k + c])) * cuda::from_e4m3(w[int64_t(o) * k + c]) *
           cuda::from_ue8m0(scale[int64_t(o / 32) * (k / 32) + c / 32]);
  for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  if (lane == 0) out[int64_t(blockIdx.y) * kOutputs + o] = sum;
}

double rms(const std::vector<double>& v) {
  double squares = 0;
  for (const double x : v) squares += x * x;
  return std::sqrt(squares / double(v.size()));
}

// Random operands, of which the last kLast are zero but for the weights of one. 128 columns of 32 outputs share a scale, so
// that `fp8` numerics change no weight; `rounded`: nor a row.
struct Operands {
  Operands(int length, bool rounded)
      : k(length), x(size_t(kRows) * k), codes(size_t(kOutputs) * k), scales(codes.size() / 1024) {
    for (size_t i = 0; i < codes.size(); ++i) {
      const auto c = static_cast<int>(i % k);
      codes[i] = c < k - kLast ? hadal::to_e4m3(gaussian(5, i) * 100) : c < k - kParts ? 0 : 0x38;
    }
    for (size_t i = 0; i < scales.size(); ++i) {
      const size_t group = i / 4;  // k is a multiple of 128
      scales[i] = static_cast<uint8_t>((group + 1) % (k / 128) == 0 ? 127 : 113 + mix(group) % 3);
    }
    std::vector<float> group(128);
    for (size_t first = 0; first < x.size(); first += 128) {
      for (size_t i = 0; i < 128; ++i) group[i] = hadal::round_bf16(gaussian(7, first + i));
      if (rounded) round_fp8_128(group.data(), 128);
      for (size_t i = 0; i < 128; ++i)
        x[first + i] = static_cast<int>(first % k) < k - kLast ? hadal::to_bf16(group[i]) : 0;
    }
  }
  std::vector<double> sums() const {
    const DeviceArray<uint16_t> rows(x);
    const DeviceArray<uint8_t> weights(codes), weight_scales(scales);
    const DeviceArray<double> out(size_t(kRows) * kOutputs);
    exact_sums<<<dim3(kOutputs / 8, kRows), 256>>>(rows.get(), weights.get(), weight_scales.get(), k, out.get());
    HADAL_CUDA_LAUNCHED("exact_sums");
    return out.host();
  }
  // Makes the last products of each row cancel the sum of one output, and says what is left.
  std::vector<double> cancel(const std::vector<double>& exact, int turn) {
    std::vector<double> left(kRows);
    for (int r = 0; r < kRows; ++r) {
      left[r] = exact[size_t(r) * kOutputs + output(r, turn)];
      for (int i = 0; i < kParts; ++i) {
        const uint16_t bits = hadal::to_bf16(static_cast<float>(left[r]));
        x[size_t(r + 1) * k - kParts + i] = bits ^ 0x8000;
        left[r] -= bf16_value(bits);
      }
    }
    return left;
  }
  static int output(int row, int turn) { return (row + turn) % kOutputs; }

  int k;
  std::vector<uint16_t> x;
  std::vector<uint8_t> codes, scales;
};

std::vector<uint16_t> products(CudaContext& context, const Operands& operands) {
  const DeviceArray<uint16_t> x(operands.x);
  const DeviceArray<uint8_t> codes(operands.codes), scales(operands.scales);
  DeviceArray<uint16_t> y(size_t(kRows) * kOutputs);
  y.poison();
  LinearArgs a;
  a.rows = kRows;
  a.x = x.get();
  a.x_stride = operands.k;
  a.w = {WeightFormat::fp8_block32, kOutputs, operands.k, codes.get(), scales.get()};
  const bool narrow = context.numerics() == Numerics::fp8;
  DeviceArray<uint8_t> packed(narrow ? packed_fp8_bytes(a.w) : packed_bytes(a.w));
  narrow ? pack_fp8(context, a.w, packed.get()) : pack_linear(context, a.w, packed.get());
  a.w.packed = packed.get();
  a.y = y.get();
  a.y_stride = kOutputs;
  linear(context, a);
  context.wait();
  return y.host();
}

// Of results that are not what the exact sum rounds to.
double flipped(const std::vector<double>& exact, const std::vector<uint16_t>& have) {
  size_t count = 0;
  for (size_t i = 0; i < have.size(); ++i) count += have[i] != hadal::to_bf16(static_cast<float>(exact[i]));
  return double(count) / double(have.size());
}
// Of results that normal errors of this deviation carry over a midpoint.
double expected_flips(const std::vector<double>& exact, double deviation) {
  double sum = 0;
  for (const double v : exact) sum += std::min(1.0, std::sqrt(2 / M_PI) * deviation / std::ldexp(1, std::ilogb(v) - 7));
  return sum / double(exact.size());
}

// One activation in 64 may flip (tolerance.h, rounded()).
void check_16_bits(int k) {
  CudaContext context(Numerics::bf16);
  Operands operands(k, false);
  const std::vector<double> exact = operands.sums();
  const double share = flipped(exact, products(context, operands)), size = rms(exact);
  std::vector<double> errors;
  double lean = 0;  // of the error along the value
  for (int turn = 0; turn < kTurns; ++turn) {
    const std::vector<double> left = operands.cancel(exact, turn);
    const std::vector<uint16_t> have = products(context, operands);
    for (int r = 0; r < kRows; ++r) {
      const size_t at = size_t(r) * kOutputs + Operands::output(r, turn);
      errors.push_back(bf16_value(have[at]) - left[r]);
      lean += errors.back() * exact[at] / (size * size);
    }
  }
  expect(share <= 1.0 / 64,
         "16 bits, sums of %d: off by %.2e of a typical one (fp32 in any order: %.2e), along it %.1e; %.2e flip", k,
         rms(errors) / size, testing::sum(k).deviation, lean / double(errors.size()), share);
}

void check_8_bits(int k) {
  CudaContext context(Numerics::fp8);
  const Operands operands(k, true);
  const std::vector<double> exact = operands.sums();
  const double share = flipped(exact, products(context, operands)),
               most = expected_flips(exact, testing::products(Numerics::fp8, k).deviation * rms(exact));
  expect(share <= most, "8 bits, sums of %d: %.2e flip (of errors as tolerance.h has them: %.2e)", k, share, most);
}

}  // namespace
}  // namespace hadal::bench

int main() {
  // Inputs of wq_b, shared w2, wo_a, wq_a, Engram's wkv, wo_b, main_proj of drafts.
  constexpr int kLengths[] = {1280, 2304, 4096, 5120, 6144, 8192, 15360};
  for (const int k : kLengths) hadal::bench::check_16_bits(k);
  for (const int k : kLengths) hadal::bench::check_8_bits(k);
  return hadal::bench::exit_code();
}

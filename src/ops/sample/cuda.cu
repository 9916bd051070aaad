#include "ops/cuda/context.h"
#include "ops/cuda/errors.h"
#include "ops/cuda/launch.h"
#include "ops/sample/noise.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / 32;
constexpr int kListed = 2048;
constexpr float kBinsOfOne = 32;  // in differences of logits; kThreads of them

// Larger for the more likely token: the logit's bits in order, then the lower id first.
__device__ uint64_t key_of(float logit, int token) {
  const uint32_t bits = __float_as_uint(logit + 0.0f);  // one zero
  const uint32_t ordered = bits >> 31 ? ~bits : bits | 0x80000000u;
  return uint64_t{ordered} << 32 | ~static_cast<uint32_t>(token);
}
__device__ float logit_of(uint64_t key) {
  const auto ordered = static_cast<uint32_t>(key >> 32);
  return __uint_as_float(ordered >> 31 ? ordered & 0x7fffffffu : ~ordered);
}
__device__ int token_of(uint64_t key) { return static_cast<int>(~static_cast<uint32_t>(key)); }

struct Shared {
  unsigned long long bins[kThreads];
  unsigned long long keys[kListed], measures[kListed];
  unsigned long long partial[kWarps];
  double values[kWarps];
  int listed, bin;
  unsigned long long above;
};

// `combine` of all threads' values, for all of them; of integers, so that the order does not show.
template <typename F>
__device__ uint64_t over_block(Shared& s, uint64_t v, F combine) {
  for (int i = 16; i > 0; i /= 2) v = combine(v, __shfl_xor_sync(~0u, v, i));
  __syncthreads();
  if (threadIdx.x % 32 == 0) s.partial[threadIdx.x / 32] = v;
  __syncthreads();
  v = s.partial[threadIdx.x % kWarps];
  for (int i = 16; i > 0; i /= 2) v = combine(v, __shfl_xor_sync(~0u, v, i));
  return v;
}
__device__ uint64_t sum_over_block(Shared& s, uint64_t v) {
  return over_block(s, v, [](uint64_t a, uint64_t b) { return a + b; });
}

// The largest key such that the measures of all keys from it on, of those that are at least `cut`, reach `wanted`. A histogram
// by the distance from the largest logit finds a narrow range, whose keys are then searched bit by bit.
template <typename Measure>
__device__ uint64_t last_kept(Shared& s, const float* logits, int vocab, float largest, uint64_t cut, uint64_t wanted,
                              Measure measure) {
  const auto bin_of = [largest](float logit) {
    const float bin = (largest - logit) * kBinsOfOne;
    return bin < kThreads - 1 ? static_cast<int>(bin) : kThreads - 1;
  };
  s.bins[threadIdx.x] = 0;
  if (threadIdx.x == 0) s.listed = 0;
  __syncthreads();
  for (int t = threadIdx.x; t < vocab; t += kThreads)
    if (key_of(logits[t], t) >= cut)
      if (const uint64_t m = measure(logits[t]); m > 0)
        atomicAdd(&s.bins[bin_of(logits[t])], static_cast<unsigned long long>(m));
  __syncthreads();

  // Sums from the first bin on; the bin in which they come to `wanted`.
  uint64_t upto = s.bins[threadIdx.x];
  const uint64_t mine = upto;
  for (int i = 1; i < 32; i *= 2) {
    const uint64_t lower = __shfl_up_sync(~0u, upto, i);
    if (threadIdx.x % 32 >= i) upto += lower;
  }
  if (threadIdx.x % 32 == 31) s.partial[threadIdx.x / 32] = upto;
  __syncthreads();
  for (int w = 0; w < static_cast<int>(threadIdx.x) / 32; ++w) upto += s.partial[w];
  if (upto >= wanted && upto - mine < wanted) {
    s.bin = static_cast<int>(threadIdx.x);
    s.above = upto - mine;
  }
  __syncthreads();
  const int bin = s.bin;
  const uint64_t above = s.above;

  uint64_t all = ~uint64_t{0}, any = 0;  // bits that every key, or some key, of the bin has
  for (int t = threadIdx.x; t < vocab; t += kThreads) {
    const uint64_t key = key_of(logits[t], t);
    if (key < cut || bin_of(logits[t]) != bin) continue;
    all &= key;
    any |= key;
    if (const int i = atomicAdd(&s.listed, 1); i < kListed) {
      s.keys[i] = key;
      s.measures[i] = measure(logits[t]);
    }
  }
  all = over_block(s, all, [](uint64_t a, uint64_t b) { return a & b; });
  any = over_block(s, any, [](uint64_t a, uint64_t b) { return a | b; });
  const int listed = s.listed;
  uint64_t last = all;
  for (uint64_t differ = any & ~all; differ != 0;) {
    const uint64_t bit = uint64_t{1} << (63 - __clzll(static_cast<long long>(differ)));
    differ ^= bit;
    uint64_t sum = 0;
    if (listed <= kListed) {
      for (int i = threadIdx.x; i < listed; i += kThreads)
        if (s.keys[i] >= (last | bit)) sum += s.measures[i];
    } else {
      for (int t = threadIdx.x; t < vocab; t += kThreads)
        if (bin_of(logits[t]) == bin && key_of(logits[t], t) >= (last | bit)) sum += measure(logits[t]);
    }
    if (above + sum_over_block(s, sum) >= wanted) last |= bit;
  }
  __syncthreads();
  return last < cut ? cut : last;
}

// One CTA a row.
__global__ void __launch_bounds__(kThreads)
    sample_kernel(const float* all_logits, int vocab, const SampleRow* rows, int32_t* tokens) {
  __shared__ Shared s;
  const SampleRow o = rows[blockIdx.x];
  const float* const logits = all_logits + int64_t{o.logits_row} * vocab;

  uint64_t first = 0;
  bool numbers = true;
#pragma unroll 4
  for (int t = threadIdx.x; t < vocab; t += kThreads) {
    const float v = logits[t];
    numbers &= v == v;
    const uint64_t key = key_of(v, t);
    first = key > first ? key : first;
  }
  first = over_block(s, first, [](uint64_t a, uint64_t b) { return a > b ? a : b; });
  const float largest = logit_of(first);
  const bool broken = __syncthreads_or(!numbers) != 0;
  if (broken || o.temperature == 0 || isinf(largest)) {
    if (threadIdx.x == 0) tokens[blockIdx.x] = broken ? -1 : token_of(first);
    return;
  }

  uint64_t cut = 0;
  if (o.top_k > 0 && o.top_k < vocab)
    cut = last_kept(s, logits, vocab, largest, cut, static_cast<uint64_t>(o.top_k), [](float) { return uint64_t{1}; });
  if (o.top_p < 1) {
    const auto units = [&](float v) { return sampling::weight_units(sampling::weight(v, largest, o.temperature)); };
    uint64_t total = 0;
    for (int t = threadIdx.x; t < vocab; t += kThreads)
      if (key_of(logits[t], t) >= cut) total += units(logits[t]);
    total = sum_over_block(s, total);
    cut = last_kept(s, logits, vocab, largest, cut, sampling::nucleus_units(total, o.top_p), units);
  }

  // As on a host: begin with the most likely token, and skip what no noise lets win.
  const uint64_t noise = sampling::noise_of_position(o.seed, o.position);
  int chosen = token_of(first);
  double best = static_cast<double>(largest) / o.temperature + sampling::gumbel(sampling::noise_bits(noise, chosen));
  for (int t = threadIdx.x; t < vocab; t += kThreads) {
    const float v = logits[t];
    if (key_of(v, t) < cut) continue;
    const uint64_t bits = sampling::noise_bits(noise, t);
    const double scaled = static_cast<double>(v) / o.temperature;
    const int ones = ~bits == 0 ? 64 : __clzll(static_cast<long long>(~bits));
    if (scaled + sampling::gumbel_bound(ones) < best) continue;
    if (o.min_p > 0 && sampling::weight(v, largest, o.temperature) < o.min_p) continue;
    const double value = scaled + sampling::gumbel(bits);
    if (value > best || (value == best && t < chosen)) {
      chosen = t;
      best = value;
    }
  }
  const auto take = [&](double value, int token) {
    if (value > best || (value == best && token < chosen)) {
      chosen = token;
      best = value;
    }
  };
  for (int i = 16; i > 0; i /= 2) take(__shfl_xor_sync(~0u, best, i), __shfl_xor_sync(~0u, chosen, i));
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    s.values[threadIdx.x / 32] = best;
    s.keys[threadIdx.x / 32] = static_cast<unsigned long long>(chosen);
  }
  __syncthreads();
  if (threadIdx.x >= 32) return;
  best = s.values[threadIdx.x];
  chosen = static_cast<int>(s.keys[threadIdx.x]);
  for (int i = 16; i > 0; i /= 2) take(__shfl_xor_sync(~0u, best, i), __shfl_xor_sync(~0u, chosen, i));
  if (threadIdx.x == 0) tokens[blockIdx.x] = chosen;
}

}  // namespace

void sample(Context& context, const SampleArgs& args) {
  CudaContext& cuda = CudaContext::of(context);
  if (args.rows == 0) return;
  HADAL_CUDA_CHECK(args.logits.type == DType::f32 && args.logits.cols >= 1 &&
                   args.logits.cols <= sampling::kMostVocab && args.token.type == DType::i32 &&
                   args.token.rows == args.rows && args.token.cols == 1);
  launch("sample", sample_kernel, {.grid = dim3(args.rows), .block = dim3(kThreads), .stream = cuda.stream()},
         static_cast<const float*>(args.logits.f32()), static_cast<int>(args.logits.cols), args.row, args.token.i32());
}

}  // namespace hadal::cuda

// The k largest of a row of scores by digits: histograms of the scores' bits, the highest first. Works on any row; where the
// score kernel left the largest score of every few neighbours, the k-th largest of these is a lower bound of the k-th
// largest score: only neighbours that reach it are read, and the hundreds of scores that do go through the search in shared
// memory. Otherwise, and when too many scores reach the bound, the search reads the whole row several times.
// For blocks of kSelectThreads threads.
#pragma once

#include <climits>
#include <cmath>

#include "ops/cuda/row.cuh"
#include "ops/indexer/kernels.cuh"

namespace hadal::cuda {

inline constexpr int kSelectThreads = 512, kSelectWarps = kSelectThreads / 32;  // four bins a thread: 11 bits
inline constexpr int kMostGranules = 2560, kMostScores = 2560;                  // kept in shared memory

struct __align__(16) SelectShared {
  uint4 bins[kSelectThreads];
  int warp_counts[kSelectWarps];
  unsigned prefix;
  int need;
  int granule[kMostGranules];
  __align__(16) unsigned key[kMostScores];
  int entry[kMostScores];
};

// Unsigned order of these keys is the order of the floats; -inf becomes 0x007fffff.
__device__ __forceinline__ unsigned order_key(float score) {
  const unsigned u = __float_as_uint(score);
  return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}
inline constexpr unsigned kMinusInfinity = 0x007fffffu;

// Keys of a row in global memory, four neighbours at once where they exist and lie on 16 bytes; past the end 0.
struct RowKeys {
  const float* scores;
  int n;
  __device__ __forceinline__ void load(int first, unsigned (&key)[4]) const {
    if (first + 3 < n && (reinterpret_cast<uintptr_t>(scores) & 15) == 0) {
      const float4 v = *reinterpret_cast<const float4*>(scores + first);
      key[0] = order_key(v.x), key[1] = order_key(v.y), key[2] = order_key(v.z), key[3] = order_key(v.w);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) key[i] = first + i < n ? order_key(scores[first + i]) : 0;
    }
  }
};
// Scores of the listed granules, one after the other.
struct GranuleKeys {
  const float* scores;
  const int* granule;
  int size, length, n;  // of a granule, of the row, size * granules
  __device__ __forceinline__ int entry(int i) const { return granule[i / size] * size + i % size; }
  __device__ __forceinline__ void load(int first, unsigned (&key)[4]) const {
    const int at = first < n ? entry(first) : length;  // sizes are multiples of 4
#pragma unroll
    for (int i = 0; i < 4; ++i) key[i] = 0;
    if (at + 3 < length) {
      const float4 v = *reinterpret_cast<const float4*>(scores + at);
      key[0] = order_key(v.x), key[1] = order_key(v.y), key[2] = order_key(v.z), key[3] = order_key(v.w);
    } else {
      for (int i = 0; i < 4 && at + i < length; ++i) key[i] = order_key(scores[at + i]);
    }
  }
};
struct SharedKeys {
  const unsigned* keys;  // on 16 bytes
  int n;
  __device__ __forceinline__ void load(int first, unsigned (&key)[4]) const {
    const uint4 v = *reinterpret_cast<const uint4*>(keys + first);  // past the end, within the array
    key[0] = v.x, key[1] = v.y, key[2] = v.z, key[3] = v.w;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (first + i >= n) key[i] = 0;
  }
};

// Sum over earlier threads of the block; `total` gets the sum over all. Two barriers.
__device__ __forceinline__ int exclusive_sum(int own, SelectShared& shared, int& total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int up_to = own;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const int other = __shfl_up_sync(kFullWarp, up_to, offset);
    if (lane >= offset) up_to += other;
  }
  if (lane == 31) shared.warp_counts[warp] = up_to;
  __syncthreads();
  int of_warps = lane < kSelectWarps ? shared.warp_counts[lane] : 0;
#pragma unroll
  for (int offset = 1; offset < kSelectWarps; offset *= 2) {
    const int other = __shfl_up_sync(kFullWarp, of_warps, offset);
    if (lane >= offset) of_warps += other;
  }
  total = __shfl_sync(kFullWarp, of_warps, kSelectWarps - 1);
  const int previous = __shfl_sync(kFullWarp, of_warps, (warp + 31) % 32);
  __syncthreads();
  return (warp == 0 ? 0 : previous) + up_to - own;
}

struct Threshold {
  unsigned key;  // the k-th largest, or -inf when there are fewer than k finite ones
  int equals;    // how many of the keys equal to it belong to the k largest
};

// Keys of 0 are not there. Only the upper `Digits` digits of the threshold are found; the others are 0.
template <int Digits, typename Keys>
__device__ Threshold find_threshold(const Keys& keys, int k, SelectShared& shared) {
  unsigned prefix = 0;
  int need = k;
  auto* bins = reinterpret_cast<unsigned*>(shared.bins);
#pragma unroll
  for (int digit = 0; digit < Digits; ++digit) {
    const int above = 32 - 11 * digit, shift = max(above - 11, 0), width = above - shift;
    shared.bins[threadIdx.x] = make_uint4(0, 0, 0, 0);
    if (threadIdx.x == 0) shared.need = INT_MAX;
    __syncthreads();
    const unsigned mask = (1u << width) - 1;
    for (int first = 4 * threadIdx.x; first < keys.n; first += 4 * kSelectThreads) {
      unsigned key[4];
      keys.load(first, key);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (key[i] != 0 && (digit == 0 || (key[i] >> above) == (prefix >> above)))
          atomicAdd(&bins[(key[i] >> shift) & mask], 1u);
    }
    __syncthreads();
    // Four bins a thread, the largest first.
    const uint4 four = shared.bins[kSelectThreads - 1 - threadIdx.x];
    const int count[4] = {static_cast<int>(four.w), static_cast<int>(four.z), static_cast<int>(four.y),
                          static_cast<int>(four.x)};
    int total, before = exclusive_sum(count[0] + count[1] + count[2] + count[3], shared, total);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (before < need && before + count[i] >= need) {
        shared.prefix = prefix | static_cast<unsigned>(4 * (kSelectThreads - 1 - threadIdx.x) + 3 - i) << shift;
        shared.need = need - before;
      }
      before += count[i];
    }
    __syncthreads();
    need = shared.need;
    if (need == INT_MAX) return {kMinusInfinity, 0};  // fewer than k
    prefix = shared.prefix;
    __syncthreads();
  }
  if (prefix <= kMinusInfinity) return {kMinusInfinity, 0};
  return {prefix, need};
}

// Calls emit(place, i, key) for all keys above the threshold and the first `equals` equal ones, in ascending order of i, and
// returns their number to every thread.
template <typename Keys, typename Emit>
__device__ int list_in_order(const Keys& keys, Threshold threshold, SelectShared& shared, Emit emit) {
  int before_above = 0, before_equal = 0;  // in earlier rounds
  for (int base = 0; base < keys.n; base += 4 * kSelectThreads) {
    const int first = base + 4 * threadIdx.x;
    unsigned key[4] = {};
    if (first < keys.n) keys.load(first, key);
    int own = 0;  // above in the upper half, equal in the lower
#pragma unroll
    for (int i = 0; i < 4; ++i) own += (key[i] > threshold.key ? 1 << 16 : 0) + (key[i] == threshold.key ? 1 : 0);
    int total;
    const int at = exclusive_sum(own, shared, total);
    if (own != 0) {
      int above = before_above + (at >> 16), equal = before_equal + (at & 0xffff);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (key[i] > threshold.key) {
          emit(above + min(equal, threshold.equals), first + i, key[i]);
          ++above;
        } else if (key[i] == threshold.key) {
          if (equal < threshold.equals) emit(above + equal, first + i, key[i]);
          ++equal;
        }
      }
    }
    before_above += total >> 16;
    before_equal += total & 0xffff;
  }
  __syncthreads();
  return before_above + min(before_equal, threshold.equals);
}

// Calls emit(place, index) for the k largest scores.
template <typename Emit>
__device__ int select_largest(const float* scores, int n, int k, SelectShared& shared, Emit emit) {
  const RowKeys row{scores, n};
  const Threshold threshold = find_threshold<3>(row, k, shared);
  return list_in_order(row, threshold, shared, [&](int place, int i, unsigned) { emit(place, i); });
}

// The same by way of the largest score of each granule.
template <typename Maxima, typename Emit>
__device__ int select_by_granules(const float* scores, int n, const Maxima& maxima, int granule, int k,
                                  SelectShared& shared, Emit emit) {
  // All that reach the bound, finite ones only: "above" the key before it.
  unsigned bound = kMinusInfinity;
  if (maxima.n > k) bound = max(find_threshold<2>(maxima, k, shared).key, kMinusInfinity + 1) - 1;
  const int granules = list_in_order(maxima, {bound, 0}, shared, [&](int place, int i, unsigned) {
    if (place < kMostGranules) shared.granule[place] = i;
  });
  if (granules > kMostGranules) return select_largest(scores, n, k, shared, emit);
  const GranuleKeys listed{scores, shared.granule, granule, n, granules * granule};
  const int count = list_in_order(listed, {bound, 0}, shared, [&](int place, int i, unsigned key) {
    if (place < kMostScores) {
      shared.key[place] = key;
      shared.entry[place] = listed.entry(i);
    }
  });
  if (count > kMostScores) return select_largest(scores, n, k, shared, emit);
  const SharedKeys kept{shared.key, count};
  const Threshold threshold = find_threshold<3>(kept, k, shared);
  return list_in_order(kept, threshold, shared, [&](int place, int i, unsigned) { emit(place, shared.entry[i]); });
}

// Fills up a row's candidate blocks. all: every visible block is one, which is said by a count of -1.
__device__ __forceinline__ void finish_candidates(const SelectProblem& p, int64_t step_row, int count, bool all) {
  int32_t* out = p.candidate_blocks + step_row * p.lists.max_blocks;
  for (int i = (all ? 0 : count) + threadIdx.x; i < p.lists.max_blocks; i += kSelectThreads) out[i] = -1;
  if (threadIdx.x == 0) p.candidate_count[step_row] = all ? -1 : count;
}

}  // namespace hadal::cuda

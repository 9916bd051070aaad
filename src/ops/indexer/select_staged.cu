// Selection for rows whose granules, or whose scores, fit in shared memory; reads them once.
//
// Keys are counted in bins of equal width between the smallest and the largest of them: neighbours in value meet in a bin
// only where they lie close, so that hardly any two threads count in the same place (bins by the scores' bits are crowded:
// most scores have one of a few exponents). The few keys in the bin of the k-th largest are ranked one by one. With granules
// two searches: the lower edge of the bin of their k-th largest maximum is a bound that every selected score reaches, and the
// hundreds of scores that do are searched themselves. What does not fit (equal maxima by the thousand, infinite scores) goes
// the way of select.cuh.
#include <algorithm>

#include "ops/cuda/errors.h"
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/mma.cuh"
#include "ops/indexer/select.cuh"

namespace hadal::cuda {
namespace {

constexpr int kThreads = kSelectThreads, kWarps = kSelectWarps;
constexpr int kEach = 4, kBins = kEach * kThreads;  // bins of a thread, and all
constexpr int kMostListed = 3072;                   // granules that reach the bound
constexpr int kMostKept = 4096;                     // scores that do
constexpr int kMostTied = 512;                      // keys of one bin
constexpr int kMostStaged = 32768;                  // keys in shared memory: at most 64 a thread, a bit each
constexpr int kDirect = 8192;                       // as many scores are searched without a bound
constexpr int kQuads = 6;                           // four neighbouring scores, of a thread at a time

struct Cut {
  float place;        // the bin of the k-th largest key
  int need, members;  // how many of its keys are among the k largest, and how many it has
};
struct Tied {
  float value;
  int index;
};
struct Staged {
  unsigned bins[kBins + 1];  // and one for keys that are in none
  unsigned warp_counts[2][kWarps];
  unsigned low[kWarps], high[kWarps];
  Cut cut[2];
  int tied;
  Tied tie[kMostTied];
  unsigned chosen[kMostStaged / 32];  // of the tied keys
  uint16_t granule[kMostListed];
  int entry[kMostKept];
};
union __align__(16) Shared {
  Staged staged;
  SelectShared general;
};

using Four = float[4];
// Keys in shared memory; a thread has `each` neighbours, a multiple of 4. Behind the last there are NaN
// up to a multiple of 4.
struct Keys {
  float* values;
  int n, each, stride;  // of the threads' first keys; padded, so that the threads' reads meet all banks
  int log_each;

  static __device__ __forceinline__ Keys of(float* values, int n, bool padded) {
    int log_each = 2;
    while (kThreads << log_each < n) ++log_each;
    return {values, n, 1 << log_each, padded ? 1 << log_each | 4 : 1 << log_each, log_each};
  }
  __device__ __forceinline__ int offset(int i) const { return (i >> log_each) * stride + (i & (each - 1)); }
  __device__ __forceinline__ int first() const { return static_cast<int>(threadIdx.x) << log_each; }
  // f(four values, number of the first among the thread's)
  template <typename F>
  __device__ __forceinline__ void each_four(F f) const {
    const float* own = values + static_cast<int>(threadIdx.x) * stride;
    const int count = min(each, n - first());
#pragma unroll 1  // fetching instructions takes a good part of one row's time
    for (int q = 0; q < count; q += 4) {
      const float4 v = *reinterpret_cast<const float4*>(own + q);
      f({v.x, v.y, v.z, v.w}, q);
    }
  }
};

// Copies n values; a barrier must follow.
__device__ __forceinline__ void stage(const float* from, const Keys& to) {
  float* at = to.values + to.offset(4 * threadIdx.x);
  const int step = (4 * kThreads >> to.log_each) * to.stride;
  for (int i = 4 * threadIdx.x; i < to.n; i += 4 * kThreads, at += step) {
    if (i + 3 < to.n)
      copy16_async(smem_address(at), from + i);
    else
      for (int k = 0; k < 4; ++k) at[k] = i + k < to.n ? from[i + k] : NAN;
  }
  copy_async_commit();
  copy_async_wait<0>();
}

// Bin b is the number 2^23 + b: adding 2^23 rounds to integers. Larger keys never come into a lower bin. Keys below `low`,
// and NaN, are in none.
struct Bins {
  float low, factor;
  bool all;  // no finite key lies below `low`
  __device__ __forceinline__ float place(float v) const { return (v - low) * factor + 0x1p23f; }
};
struct Search {
  Staged& s;
  int turn = 0;

  // Sum over earlier threads, and over all. One barrier.
  __device__ __forceinline__ unsigned exclusive_sum(unsigned own, unsigned& total) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned up_to = own;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const unsigned other = __shfl_up_sync(kFullWarp, up_to, offset);
      if (lane >= offset) up_to += other;
    }
    if (lane == 31) s.warp_counts[turn][warp] = up_to;
    __syncthreads();
    const unsigned of_warps = lane < kWarps ? s.warp_counts[turn][lane] : 0;
    turn ^= 1;
    total = __reduce_add_sync(kFullWarp, of_warps);
    return __reduce_add_sync(kFullWarp, lane < warp ? of_warps : 0) + up_to - own;
  }

  // Bins that hold the k largest keys, if there are as many finite ones; false where there are none, or they span more than
  // fp32 holds.
  __device__ __forceinline__ bool make_bins(const Keys& keys, int k, Bins& bins) {
    // The smallest of the largest of every four is a bound when there are k fours.
    const bool fours = keys.n / 4 >= k;
    float low = INFINITY, high = -INFINITY;
    keys.each_four([&](const Four& v, int) {
      const float top = fmaxf(fmaxf(v[0], v[1]), fmaxf(v[2], v[3]));
      float bottom = fours ? top : fminf(fminf(v[0], v[1]), fminf(v[2], v[3]));
      if (!(bottom > -INFINITY)) {
        bottom = INFINITY;
        for (const float key : v)
          if (key > -INFINITY) bottom = fminf(bottom, key);
      }
      high = fmaxf(high, top);
      low = fminf(low, bottom);
    });
    unsigned least = __reduce_min_sync(kFullWarp, order_key(low)), most = __reduce_max_sync(kFullWarp, order_key(high));
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (lane == 0) s.low[warp] = least, s.high[warp] = most;
#pragma unroll
    for (int i = 0; i < kEach; ++i) s.bins[threadIdx.x + kThreads * i] = 0;
    if (threadIdx.x == 0) s.tied = 0;
    __syncthreads();
    least = __reduce_min_sync(kFullWarp, lane < kWarps ? s.low[lane] : ~0u);
    most = __reduce_max_sync(kFullWarp, lane < kWarps ? s.high[lane] : 0);
    const auto value = [](unsigned key) { return __uint_as_float((key >> 31) != 0 ? key ^ 0x80000000u : ~key); };
    const float range = value(most) - value(least), factor = (kBins - 1) / range;
    bins = {value(least), factor < INFINITY ? factor : 0, !fours};
    return range >= 0 && range < INFINITY;
  }

  // The bins of the k[c]-th largest keys, `skip` left out. Where there are fewer, all that there are; false if not all are in
  // the bins.
  template <int Cuts>
  __device__ __forceinline__ bool find(const Keys& keys, const Bins& bins, int skip, const int (&k)[Cuts]) {
    const auto count = [&](float v, unsigned by) {
      atomicAdd(&s.bins[v >= bins.low ? __float_as_uint(bins.place(v)) & (kBins - 1) : kBins], by);
    };
    keys.each_four([&](const Four& v, int) {
#pragma unroll
      for (int i = 0; i < 4; ++i) count(v[i], 1);
    });
    if (threadIdx.x == 0 && skip >= 0) count(keys.values[keys.offset(skip)], ~0u);
    __syncthreads();
    // Neighbouring bins a thread, the largest first.
    const int own = kThreads - 1 - static_cast<int>(threadIdx.x);
    int number[kEach], sum = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) sum += number[i] = static_cast<int>(s.bins[kEach * own + kEach - 1 - i]);
    unsigned total;
    int before = static_cast<int>(exclusive_sum(sum, total));
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int c = 0; c < Cuts; ++c)
        if (before < k[c] && before + number[i] >= k[c])
          s.cut[c] = {0x1p23f + static_cast<float>(kEach * own + kEach - 1 - i), k[c] - before, number[i]};
      before += number[i];
    }
    if (own == 0)
#pragma unroll
      for (int c = 0; c < Cuts; ++c)
        if (static_cast<int>(total) < k[c]) s.cut[c] = {0x1p23f, number[kEach - 1], number[kEach - 1]};
    __syncthreads();
    bool found = true;
#pragma unroll
    for (int c = 0; c < Cuts; ++c) found &= bins.all || static_cast<int>(total) >= k[c];
    return found;
  }

  // A bit for each of the thread's keys. chosen: the k largest, lower index first among equals; `cut` is where they end.
  // reached: in the bin at `bound` or above. False when too many keys share the last one's bin.
  template <bool Choose, bool Reach>
  __device__ __forceinline__ bool mark(const Keys& keys, const Bins& bins, int skip, const Cut& cut, float bound,
                                       uint64_t& chosen, uint64_t& reached) {
    const bool whole = cut.need == cut.members;
    if (Choose) {
      // Keys below `low` may be rounded into the first bin.
      if ((!whole && cut.members > kMostTied) || (!bins.all && cut.place == 0x1p23f)) return false;
      for (int i = threadIdx.x; i < kMostStaged / 32; i += kThreads) s.chosen[i] = 0;
    }
    const float above = whole ? cut.place : cut.place + 1, tied = whole ? NAN : cut.place;
    unsigned marks[2][2] = {};
    keys.each_four([&](const Four& v, int q) {
      float at[4];
      unsigned four[2] = {};
      bool tie = false;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        at[i] = bins.place(v[i]);
        if (Choose && at[i] >= above) four[0] |= 1u << i;
        if (Reach && at[i] >= bound) four[1] |= 1u << i;
        tie |= at[i] == tied;
      }
      if (Choose && tie) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (at[i] == tied && keys.first() + q + i != skip)
            s.tie[atomicAdd(&s.tied, 1)] = {v[i], keys.first() + q + i};
      }
#pragma unroll
      for (int m = 0; m < 2; ++m) (q < 32 ? marks[m][0] : marks[m][1]) |= four[m] << (q % 32);
    });
    if (Choose && !whole) {
      __syncthreads();
      if (threadIdx.x < cut.members) {
        const Tied own = s.tie[threadIdx.x];
        int before = 0;
        for (int m = 0; m < cut.members; ++m) {
          const Tied other = s.tie[m];
          before += other.value > own.value || (other.value == own.value && other.index < own.index);
        }
        if (before < cut.need) atomicOr(&s.chosen[own.index / 32], 1u << own.index % 32);
      }
      __syncthreads();
      const int first = keys.first();
      if (keys.each == 64) marks[0][1] |= s.chosen[first / 32 + 1];
      marks[0][0] |= s.chosen[first / 32] >> first % 32 & (keys.each < 32 ? (1u << keys.each) - 1 : ~0u);
    }
    chosen = uint64_t{marks[0][1]} << 32 | marks[0][0];
    reached = uint64_t{marks[1][1]} << 32 | marks[1][0];
    return true;
  }

  // emit(place, index) for every bit.
  template <typename Emit>
  static __device__ __forceinline__ void list(const Keys& keys, uint64_t mask, int place, Emit emit) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      for (auto bits = static_cast<unsigned>(mask >> 32 * half); bits != 0; bits &= bits - 1)
        emit(place++, keys.first() + 32 * half + __ffs(static_cast<int>(bits)) - 1);
  }
};

// The scores that reach the bound, of the listed granules: to keys.values and s.entry. Their number.
__device__ __forceinline__ int keep_scores(Search& search, const float* scores, int length, int granule, int granules,
                                           const Bins& bins, float bound, float* values) {
  Staged& s = search.s;
  const int quads = granule / 4, log_quads = granule == 16 ? 2 : 1;
  const int all = granules * quads, each = min((all + kThreads - 1) / kThreads, kQuads);
  int kept = 0;
  for (int base = 0; base < all; base += kThreads * each) {
    float4 v[kQuads];
    int entry[kQuads];
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const int unit = base + static_cast<int>(threadIdx.x) * each + q;
      entry[q] = q < each && unit < all ? s.granule[unit >> log_quads] * granule + (unit & (quads - 1)) * 4 : length;
      if (entry[q] < length) v[q] = *reinterpret_cast<const float4*>(scores + entry[q]);
    }
    unsigned mask = 0;
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const float four[4] = {v[q].x, v[q].y, v[q].z, v[q].w};
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (entry[q] + i < length && bins.place(four[i]) >= bound) mask |= 1u << (4 * q + i);
    }
    unsigned total;
    int place = kept + static_cast<int>(search.exclusive_sum(__popc(mask), total));
    kept += static_cast<int>(total);
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const float four[4] = {v[q].x, v[q].y, v[q].z, v[q].w};
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if ((mask >> (4 * q + i) & 1) != 0) {
          if (place < kMostKept) {
            values[place] = four[i];
            s.entry[place] = entry[q] + i;
          }
          ++place;
        }
    }
  }
  if (kept < kMostKept && threadIdx.x < (-kept & 3)) values[kept + threadIdx.x] = NAN;
  __syncthreads();
  return kept;
}

// The selection, entry_of() each, to the keys' place in shared memory; its size. -1 when it has to go the general way.
template <typename EntryOf>
__device__ __forceinline__ int select_kept(Search& search, const Keys& keys, int k, const EntryOf& entry_of) {
  Bins bins;
  uint64_t chosen, none;
  if (!search.make_bins(keys, k, bins)) return -1;
  const int of[1] = {k};
  if (!search.find(keys, bins, -1, of)) return -1;
  if (!search.mark<true, false>(keys, bins, -1, search.s.cut[0], 0, chosen, none)) return -1;
  unsigned total;
  const unsigned first = search.exclusive_sum(__popcll(chosen), total);
  auto* list = reinterpret_cast<int*>(keys.values);
  search.list(keys, chosen, static_cast<int>(first), [&](int place, int i) { list[place] = entry_of(i); });
  __syncthreads();
  return static_cast<int>(total);
}

// The newest block's maximum as candidate blocks see it.
struct NewestWins {
  RowKeys keys;
  int n;
  __device__ __forceinline__ void load(int first, unsigned (&key)[4]) const {
    keys.load(first, key);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (first + i == n - 1) key[i] = order_key(INFINITY);
  }
};

__global__ void __launch_bounds__(kThreads, 2) staged_kernel(const __grid_constant__ SelectProblem p, int room) {
  __shared__ Shared shared;
  extern __shared__ __align__(16) float staged[];
  wait_for_previous();
  let_next_start();
  const int row = p.first_row + blockIdx.x;
  const int64_t step_row = p.lists.rows.step_row[row];
  const int segment = p.lists.rows.segment[row];
  const int blocks = p.lists.blocks(row), length = p.lists.length(row);
  int32_t* out = p.selected + step_row * p.topk;
  const auto emit = [&](int place, int e) {
    out[place] = static_cast<int32_t>(
        physical_row(p.lists.segments, segment, p.lists.keys.page_rows, p.lists.group(row, blocks, e)));
  };
  const float* scores = p.scores + blockIdx.x * p.stride;
  const float* best = p.best + blockIdx.x * (p.stride / p.granule);
  const int granules = (length + p.granule - 1) >> (p.granule == 16 ? 4 : 3);
  const bool publish = p.candidate_blocks != nullptr, all = granules <= p.lists.max_blocks;
  Search search{shared.staged};
  int count = -1, candidates = -1;
  if ((!publish || all) && length <= min(room, kDirect)) {
    const Keys keys = Keys::of(staged, length, true);
    stage(scores, keys);
    __syncthreads();
    count = select_kept(search, keys, p.topk, [](int i) { return i; });
  } else {
    const Keys keys = Keys::of(staged, granules, true);
    stage(best, keys);
    __syncthreads();
    Bins bins;
    // The newest block is a candidate in any case. Without it a bound is a bound all the more.
    const int newest = publish && !all ? granules - 1 : -1;
    const int k[2] = {p.topk, newest >= 0 ? max(p.lists.max_blocks - 1, 1) : 1};
    if (search.make_bins(keys, max(k[0], k[1]) + 1, bins) && search.find(keys, bins, newest, k)) {
      const float bound = shared.staged.cut[0].place;
      uint64_t candidate = 0, reached;
      const bool both = newest >= 0 && p.lists.max_blocks > 1 &&
                        search.mark<true, true>(keys, bins, newest, shared.staged.cut[1], bound, candidate, reached);
      if (!both) search.mark<false, true>(keys, bins, newest, shared.staged.cut[0], bound, candidate, reached);
      if (both && newest >> keys.log_each == static_cast<int>(threadIdx.x))
        candidate |= uint64_t{1} << (newest & (keys.each - 1));
      unsigned total;
      const unsigned counts = search.exclusive_sum(__popcll(candidate) << 16 | __popcll(reached), total);
      const int listed = static_cast<int>(total & 0xffff);
      if (both) {
        candidates = static_cast<int>(total >> 16);
        int32_t* list = p.candidate_blocks + step_row * p.lists.max_blocks;
        search.list(keys, candidate, static_cast<int>(counts >> 16), [&](int place, int b) { list[place] = b; });
      }
      search.list(keys, reached, static_cast<int>(counts & 0xffff), [&](int place, int i) {
        if (place < kMostListed) shared.staged.granule[place] = static_cast<uint16_t>(i);
      });
      __syncthreads();
      if (listed <= kMostListed) {
        const int kept = keep_scores(search, scores, length, p.granule, listed, bins, bound, staged);
        if (kept <= kMostKept)
          count =
              select_kept(search, Keys::of(staged, kept, false), p.topk, [&](int i) { return shared.staged.entry[i]; });
      }
    }
  }
  if (count < 0 || (publish && !all && candidates < 0)) __syncthreads();
  const RowKeys maxima{best, granules};
  const auto* list = reinterpret_cast<const int*>(staged);
  for (int i = threadIdx.x; i < count; i += kThreads) emit(i, list[i]);
  if (count < 0) count = select_by_granules(scores, length, maxima, p.granule, p.topk, shared.general, emit);
  if (publish) {
    if (!all && candidates < 0) {
      __syncthreads();
      const NewestWins keys{maxima, granules};
      int32_t* to = p.candidate_blocks + step_row * p.lists.max_blocks;
      candidates = list_in_order(keys, find_threshold<3>(keys, p.lists.max_blocks, shared.general), shared.general,
                                 [&](int place, int b, unsigned) { to[place] = b; });
    }
    finish_candidates(p, step_row, candidates, all);
  }
  for (int i = count + threadIdx.x; i < p.topk; i += kThreads) out[i] = -1;
  if (threadIdx.x == 0) p.count[step_row] = count;
}

// Keys that there must be room for, with the threads' padding.
int staged_keys(const SelectProblem& p) {
  return static_cast<int>(std::max({p.stride / p.granule, std::min<int64_t>(p.stride, kDirect), int64_t{kMostKept}}));
}

}  // namespace

bool select_staged_takes(const SelectProblem& p) {
  return p.best != nullptr && p.stride / p.granule <= kMostStaged && (p.granule == 8 || p.granule == 16) &&
         (p.candidate_blocks == nullptr || p.granule == p.lists.block_size);
}

void launch_select_staged(cudaStream_t stream, const SelectProblem& p) {
  int each = 1;
  while (4 * kThreads * each < staged_keys(p)) each *= 2;
  launch("index selection", staged_kernel,
         {.grid = dim3(p.row_count),
          .block = dim3(kThreads),
          .shared = sizeof(float4) * kThreads * (each | 1),
          .stream = stream,
          .early = true},
         p, 4 * kThreads * each);
}

}  // namespace hadal::cuda

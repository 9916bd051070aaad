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
constexpr int kBins = 4 * kThreads;
constexpr int kMostListed = 3072;   // granules that reach the bound
constexpr int kMostKept = 4096;     // scores that do
constexpr int kMostTied = 512;      // keys of one bin
constexpr int kMostStaged = 32768;  // keys in shared memory: 64 a thread, a bit each
constexpr int kDirect = 8192;       // as many scores are searched without a bound
constexpr int kQuads = 6;           // four neighbouring scores, of a thread at a time

struct Cut {
  float place;        // the bin of the k-th largest key
  int need, members;  // how many of its keys are among the k largest, and how many it has
};
// The last of the k largest.
struct Last {
  float value;
  int index;
};
struct Staged {
  uint4 bins[kThreads];
  unsigned warp_counts[2][kWarps];
  unsigned low[kWarps], high[kWarps];
  Cut cut[2];
  Last last;
  int tied;
  Last tie[kMostTied];
  uint16_t granule[kMostListed];
  int entry[kMostKept];
};
union __align__(16) Shared {
  Staged staged;
  SelectShared general;
};

// Keys in shared memory; a thread has `each` neighbours, a multiple of 4. Behind the last there are -inf up to a multiple of 4.
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
  // f(value, index, number among the thread's)
  template <typename F>
  __device__ __forceinline__ void each_key(F f) const {
    const int first = static_cast<int>(threadIdx.x) * each;
    const float* own = values + static_cast<int>(threadIdx.x) * stride;
    for (int q = 0; q < each && first + q < n; q += 4) {
      const float4 v = *reinterpret_cast<const float4*>(own + q);
      f(v.x, first + q, q);
      f(v.y, first + q + 1, q + 1);
      f(v.z, first + q + 2, q + 2);
      f(v.w, first + q + 3, q + 3);
    }
  }
};

// Copies n values; a barrier must follow.
__device__ __forceinline__ void stage(const float* from, const Keys& to) {
  for (int i = 4 * threadIdx.x; i < to.n; i += 4 * kThreads) {
    float* at = to.values + to.offset(i);
    if (i + 3 < to.n)
      copy16_async(smem_address(at), from + i);
    else
      for (int k = 0; k < 4; ++k) at[k] = i + k < to.n ? from[i + k] : -INFINITY;
  }
  copy_async_commit();
  copy_async_wait<0>();
}

// Bin b is the number 2^23 + b: adding 2^23 rounds to integers. Larger keys never come into a lower bin; NaN comes into none.
struct Bins {
  float low, factor;
  __device__ __forceinline__ float place(float v) const { return (v - low) * factor + 0x1p23f; }
  __device__ __forceinline__ static int number(float place) { return static_cast<int>(__float_as_uint(place)) & (kBins - 1); }
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

  // Bins over all finite keys; false where there are none, or they span more than fp32 holds.
  __device__ __forceinline__ bool make_bins(const Keys& keys, Bins& bins) {
    unsigned low = ~0u, high = 0;
    keys.each_key([&](float v, int, int) {
      if (v > -INFINITY) {
        low = min(low, order_key(v));
        high = max(high, order_key(v));
      }
    });
    low = __reduce_min_sync(kFullWarp, low);
    high = __reduce_max_sync(kFullWarp, high);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (lane == 0) s.low[warp] = low, s.high[warp] = high;
    s.bins[threadIdx.x] = make_uint4(0, 0, 0, 0);
    if (threadIdx.x == 0) s.tied = 0;
    __syncthreads();
    low = __reduce_min_sync(kFullWarp, lane < kWarps ? s.low[lane] : ~0u);
    high = __reduce_max_sync(kFullWarp, lane < kWarps ? s.high[lane] : 0);
    if (low > high) return false;
    const auto value = [](unsigned key) { return __uint_as_float((key >> 31) != 0 ? key ^ 0x80000000u : ~key); };
    const float range = value(high) - value(low), factor = (kBins - 1) / range;
    bins = {value(low), factor < INFINITY ? factor : 0};
    return range < INFINITY;
  }

  // The bins of the k[c]-th largest keys, `skip` left out. Where there are fewer, all that there are.
  template <int Cuts>
  __device__ __forceinline__ void find(const Keys& keys, const Bins& bins, int skip, const int (&k)[Cuts]) {
    auto* counts = reinterpret_cast<unsigned*>(s.bins);
    keys.each_key([&](float v, int i, int) {
      if (v > -INFINITY && i != skip) atomicAdd(&counts[Bins::number(bins.place(v))], 1u);
    });
    __syncthreads();
    // Four bins a thread, the largest first.
    const int four = kThreads - 1 - static_cast<int>(threadIdx.x);
    const uint4 c4 = s.bins[four];
    const int count[4] = {static_cast<int>(c4.w), static_cast<int>(c4.z), static_cast<int>(c4.y),
                          static_cast<int>(c4.x)};
    unsigned total;
    int before = static_cast<int>(exclusive_sum(count[0] + count[1] + count[2] + count[3], total));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int c = 0; c < Cuts; ++c)
        if (before < k[c] && before + count[i] >= k[c])
          s.cut[c] = {0x1p23f + static_cast<float>(4 * four + 3 - i), k[c] - before, count[i]};
      before += count[i];
    }
    if (four == 0)
#pragma unroll
      for (int c = 0; c < Cuts; ++c)
        if (static_cast<int>(total) < k[c]) s.cut[c] = {0x1p23f, count[3], count[3]};
    __syncthreads();
  }

  // Whether a key is one of the k largest, lower index first among equals. False when too many share a bin.
  struct Chosen {
    Bins bins;
    float place;
    Last last;
    __device__ __forceinline__ bool operator()(float v, int i) const {
      const float at = bins.place(v);
      return at > place || (at == place && (v > last.value || (v == last.value && i <= last.index)));
    }
  };
  __device__ __forceinline__ bool choose(const Keys& keys, const Bins& bins, int skip, const Cut& cut, Chosen& chosen) {
    chosen = {bins, cut.place, {-INFINITY, 0}};
    if (cut.need == cut.members) return true;
    if (cut.members > kMostTied) return false;
    keys.each_key([&](float v, int i, int) {
      if (bins.place(v) == cut.place && i != skip) s.tie[atomicAdd(&s.tied, 1)] = {v, i};
    });
    __syncthreads();
    if (threadIdx.x < cut.members) {
      const Last own = s.tie[threadIdx.x];
      int before = 0;
      for (int m = 0; m < cut.members; ++m) {
        const Last other = s.tie[m];
        before += other.value > own.value || (other.value == own.value && other.index < own.index);
      }
      if (before == cut.need - 1) s.last = own;
    }
    __syncthreads();
    chosen.last = s.last;
    return true;
  }

  // emit(place, index) for all keys that are taken, in ascending order; their number.
  template <typename Take, typename Emit>
  __device__ __forceinline__ int list(const Keys& keys, Take take, Emit emit) {
    uint64_t mask = 0;
    keys.each_key([&](float v, int i, int bit) {
      if (take(v, i)) mask |= uint64_t{1} << bit;
    });
    unsigned total;
    int place = static_cast<int>(exclusive_sum(__popcll(mask), total));
    for (; mask != 0; mask &= mask - 1)
      emit(place++, static_cast<int>(threadIdx.x) * keys.each + __ffsll(static_cast<long long>(mask)) - 1);
    return static_cast<int>(total);
  }
};

// The scores that reach the bound, of the listed granules: to keys.values and s.entry. Their number.
__device__ __forceinline__ int keep_scores(Search& search, const float* scores, int length, int granule, int granules,
                                           const Bins& bins, float bound, float* values) {
  Staged& s = search.s;
  const int quads = granule / 4, all = granules * quads, each = min((all + kThreads - 1) / kThreads, kQuads);
  int kept = 0;
  for (int base = 0; base < all; base += kThreads * each) {
    float4 v[kQuads];
    int entry[kQuads];
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const int unit = base + static_cast<int>(threadIdx.x) * each + q;
      entry[q] = q < each && unit < all ? s.granule[unit / quads] * granule + unit % quads * 4 : length;
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
  if (kept < kMostKept && threadIdx.x < 4) values[kept + threadIdx.x] = -INFINITY;
  __syncthreads();
  return kept;
}

// Emits the selection; -1 when it has to go the general way.
template <typename Emit>
__device__ __forceinline__ int select_kept(Search& search, const Keys& keys, int k, const Emit& emit) {
  Bins bins;
  Search::Chosen chosen;
  if (!search.make_bins(keys, bins)) return -1;
  const int of[1] = {k};
  search.find(keys, bins, -1, of);
  if (!search.choose(keys, bins, -1, search.s.cut[0], chosen)) return -1;
  return search.list(keys, chosen, emit);
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
  const int granules = (length + p.granule - 1) / p.granule;
  const bool publish = p.candidate_blocks != nullptr, all = granules <= p.lists.max_blocks;
  Search search{shared.staged};
  int count = -1, candidates = -1;
  if ((!publish || all) && length <= min(room, kDirect)) {
    const Keys keys = Keys::of(staged, length, true);
    stage(scores, keys);
    __syncthreads();
    count = select_kept(search, keys, p.topk, emit);
  } else {
    const Keys keys = Keys::of(staged, granules, true);
    stage(best, keys);
    __syncthreads();
    Bins bins;
    if (search.make_bins(keys, bins)) {
      // The newest block is a candidate in any case. Without it a bound is a bound all the more.
      const int newest = publish && !all ? granules - 1 : -1;
      const int k[2] = {p.topk, max(p.lists.max_blocks - 1, 1)};
      search.find(keys, bins, newest, k);
      const float bound = shared.staged.cut[0].place;
      Search::Chosen chosen;
      if (newest >= 0 && p.lists.max_blocks > 1 &&
          search.choose(keys, bins, newest, shared.staged.cut[1], chosen)) {
        int32_t* list = p.candidate_blocks + step_row * p.lists.max_blocks;
        candidates = search.list(
            keys, [&](float v, int i) { return i == newest || chosen(v, i); }, [&](int place, int b) { list[place] = b; });
      }
      const int listed = search.list(
          keys, [&](float v, int) { return bins.place(v) >= bound; },
          [&](int place, int i) {
            if (place < kMostListed) shared.staged.granule[place] = static_cast<uint16_t>(i);
          });
      __syncthreads();
      if (listed <= kMostListed) {
        const int kept = keep_scores(search, scores, length, p.granule, listed, bins, bound, staged);
        if (kept <= kMostKept)
          count = select_kept(search, Keys::of(staged, kept, false), p.topk,
                              [&](int place, int i) { emit(place, shared.staged.entry[i]); });
      }
    }
  }
  const RowKeys maxima{best, granules};
  if (count < 0) {
    __syncthreads();
    count = select_by_granules(scores, length, maxima, p.granule, p.topk, shared.general, emit);
  }
  if (publish) {
    if (!all && candidates < 0) {
      __syncthreads();
      const NewestWins keys{maxima, granules};
      int32_t* list = p.candidate_blocks + step_row * p.lists.max_blocks;
      candidates = list_in_order(keys, find_threshold<3>(keys, p.lists.max_blocks, shared.general), shared.general,
                                 [&](int place, int b, unsigned) { list[place] = b; });
    }
    finish_candidates(p, step_row, candidates, all);
  }
  for (int i = count + threadIdx.x; i < p.topk; i += kThreads) out[i] = -1;
  if (threadIdx.x == 0) p.count[step_row] = count;
}

// Keys that there must be room for, with the threads' padding.
int staged_keys(const SelectProblem& p) {
  return static_cast<int>(
      std::max({p.stride / p.granule, std::min<int64_t>(p.stride, kDirect), int64_t{kMostKept}}));
}

}  // namespace

bool select_staged_takes(const SelectProblem& p) {
  return p.best != nullptr && p.stride / p.granule <= kMostStaged && (p.granule == 8 || p.granule == 16) &&
         (p.candidate_blocks == nullptr || p.granule == p.lists.block_size);
}

void launch_select_staged(cudaStream_t stream, const SelectProblem& p) {
  int each = 1;
  while (4 * kThreads * each < staged_keys(p)) each *= 2;
  const auto bytes = [](int units) { return sizeof(float4) * kThreads * (units | 1); };
  static const cudaError_t prepared =
      cudaFuncSetAttribute(staged_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(bytes(kMostStaged / kThreads / 4)));
  HADAL_CUDA(prepared);
  launch("index selection", staged_kernel,
         {.grid = dim3(p.row_count), .block = dim3(kThreads), .shared = bytes(each), .stream = stream, .early = true},
         p, 4 * kThreads * each);
}

}  // namespace hadal::cuda

// Dispatch: rows of x are rounded to FP8 and stored straight into the memory of the ranks that need them.
//
// A few multiprocessors must keep the links busy, so that a block has all of one: its first warp streams rows into a
// ring in shared memory, far ahead; groups of warps take rows in turn, find the scale and store codes. Stores do not
// wait for the other side.
#include "ops/cuda/launch.h"
#include "ops/experts/expert_rows.cuh"
#include "parallel/signals.cuh"
#include "parallel/slots.cuh"

namespace hadal::cuda {
namespace {

constexpr int kMaxGroups = 8, kMostThreads = 992;  // beside the first warp

constexpr int kAhead = 8;
constexpr int kParts = 2;  // times 16 channels of a thread

struct DispatchShared {
  SlotBarriers slots;
  uint32_t to[kMaxSlots];               // ranks that need the row, as bits
  uint32_t largest[kMaxGroups][2][32];  // [group][row of the group % 2][warp]
};

// Sixteen channels of a row in shared memory (RowPart).
__device__ __forceinline__ RowPart part_of_row(const uint8_t* row, int unit) {
  RowPart part;
  const uint8_t* from = row + (unit / 8 * 128 + unit % 8 * 4) * 2;
#pragma unroll
  for (int j = 0; j < 4; ++j) part.v[j] = *reinterpret_cast<const uint2*>(from + 64 * j);
  return part;
}

// Routing of every place of this rank, to every rank.
__device__ __forceinline__ void send_routing(const ExchangeView& view, const DispatchRows& rows, int thread,
                                             int threads) {
  const ExchangeShape& shape = view.shape;
  const int there = view.tokens * shape.topk, all = shape.stride * shape.topk;
  const size_t first = static_cast<size_t>(view.me) * all;
  for (int i = thread; i < all; i += threads) {
    const int32_t id = i < there ? rows.ids[i] : shape.experts;
    const float weight = i < there ? rows.weights[i] : 0;
    for (int r = 0; r < shape.ranks; ++r) {
      view.rank[r].ids[first + i] = id;
      view.rank[r].weights[first + i] = weight;
    }
  }
}

// The ranks that have experts of a token, as bits; lane k knows expert k.
__device__ __forceinline__ uint32_t ranks_of(int32_t id, int experts_per_rank) {
  return __reduce_or_sync(0xffffffffu, id < 0 ? 0u : 1u << (id / experts_per_rank));
}

__global__ void __launch_bounds__(1024, 1)
    dispatch_send_kernel(const __grid_constant__ ExchangeView view, const DispatchRows rows, int groups,
                         int row_threads, int slots) {
  extern __shared__ __align__(128) uint8_t shared_bytes[];
  auto& s = *reinterpret_cast<DispatchShared*>(shared_bytes);
  uint8_t* ring = shared_bytes + sizeof(DispatchShared);
  const ExchangeShape& shape = view.shape;
  const int d = shape.d, row_bytes = 2 * d, step = static_cast<int>(gridDim.x);
  const int consumers = groups * row_threads;
  if (threadIdx.x == 0) s.slots.init(slots, row_threads / 32);
  __syncthreads();
  wait_for_previous();
  let_next_start();
  if (threadIdx.x >= consumers) {
    const int lane = threadIdx.x % 32, experts_per_rank = shape.experts / shape.ranks;
    const auto id_of = [&](int token) {
      return lane < shape.topk && token < view.tokens ? rows.ids[token * shape.topk + lane] : -1;
    };
    SlotPosition at;
    int32_t ids[kAhead];  // of the next tokens: a load is awaited for longer than a row may take
#pragma unroll
    for (int i = 0; i < kAhead; ++i) ids[i] = id_of(blockIdx.x + i * step);
    for (int first = blockIdx.x; first < view.tokens; first += kAhead * step) {
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int token = first + i * step;
        if (token >= view.tokens) break;
        const uint32_t to = view.staging == nullptr ? ranks_of(ids[i], experts_per_rank) : 1u << view.me;
        ids[i] = id_of(token + kAhead * step);
        if (lane == 0) {
          mbarrier_wait(&s.slots.empty[at.slot], at.parity ^ 1);
          s.to[at.slot] = to;
          mbarrier_arrive_expect(&s.slots.full[at.slot], row_bytes);
          bulk_copy(ring + at.slot * row_bytes, rows.x + static_cast<size_t>(token) * d, row_bytes,
                    &s.slots.full[at.slot]);
        }
        at.advance(1, slots);
      }
    }
  } else {
    send_routing(view, rows, blockIdx.x * consumers + threadIdx.x, step * consumers);
    const int group = threadIdx.x / row_threads, t = threadIdx.x % row_threads, lane = t % 32;
    const int warps = row_threads / 32, units = d / 16;
    SlotPosition at;
    at.advance(group, slots);
    int buffer = 0;
    for (int token = blockIdx.x + group * step; token < view.tokens;
         token += groups * step, at.advance(groups, slots), buffer ^= 1) {
      mbarrier_wait(&s.slots.full[at.slot], at.parity);
      RowPart part[kParts] = {};
      uint32_t largest_of_thread = 0;
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        if (t + p * row_threads < units) part[p] = part_of_row(ring + at.slot * row_bytes, t + p * row_threads);
        const uint2* v = part[p].v;
        largest_of_thread = larger(largest_of_thread, {v[0].x, v[0].y, v[1].x, v[1].y});
        largest_of_thread = larger(largest_of_thread, {v[2].x, v[2].y, v[3].x, v[3].y});
      }
      uint32_t to = s.to[at.slot];
      const uint32_t of_warp = warp_largest(largest_of_thread);
      __syncwarp();
      if (lane == 0) {
        mbarrier_arrive(&s.slots.empty[at.slot]);
        s.largest[group][buffer][t / 32] = of_warp;
      }
      named_barrier(1 + group, row_threads);
      const float scale =
          row_scale_of(__reduce_max_sync(0xffffffffu, lane < warps ? s.largest[group][buffer][lane] : 0));
      const float inverse = reciprocal_of_power(scale);
      uint4 codes[kParts];
#pragma unroll
      for (int p = 0; p < kParts; ++p)
        codes[p] = {round4(part[p].v[0], inverse), round4(part[p].v[1], inverse), round4(part[p].v[2], inverse),
                    round4(part[p].v[3], inverse)};
      const size_t place = static_cast<size_t>(view.me) * shape.stride + token;
      if (view.staging != nullptr && t < shape.ranks) view.rank[t].scales[place] = scale;
      while (to != 0) {
        const int r = __ffs(static_cast<int>(to)) - 1;
        to &= to - 1;
        auto* row = reinterpret_cast<uint4*>(view.rank[r].codes + place * d);
#pragma unroll
        for (int p = 0; p < kParts; ++p)
          if (t + p * row_threads < units) row[t + p * row_threads] = codes[p];
        if (t == 0) view.rank[r].scales[place] = scale;
      }
    }
  }
  __syncthreads();
  ExchangeSignals& own = *view.rank[view.me].signals;
  if (threadIdx.x != 0 || !last_block(own.blocks_done[kDispatch]) || view.staging != nullptr) return;
  const uint32_t number = ++own.sent[kDispatch];
  for (int r = 0; r < shape.ranks; ++r) store_release_system(&view.rank[r].signals->dispatched[view.me], number);
}

// One warp: lane r waits for rank r.
__global__ void dispatch_receive_kernel(const __grid_constant__ ExchangeView view) {
  ExchangeSignals& own = *view.rank[view.me].signals;
  const int lane = threadIdx.x;
  const uint32_t number = own.received[kDispatch] + 1;
  if (lane < view.shape.ranks) await_step(view, kDispatch, lane, &own.dispatched[lane], number);
  wait_for_previous();
  let_next_start();
  __syncwarp();
  if (lane == 0) own.received[kDispatch] = number;
}

__global__ void announce_kernel(const __grid_constant__ ExchangeView view, ExchangePart part) {
  ExchangeSignals& own = *view.rank[view.me].signals;
  wait_for_previous();
  const uint32_t number = own.sent[part] + 1;
  __syncthreads();
  fence_system();
  const int tokens = chunk_tokens(view.shape), chunks = (view.shape.stride + tokens - 1) / tokens;
  for (int r = 0; r < view.shape.ranks; ++r) {
    if (part == kDispatch) {
      if (threadIdx.x == 0) store_release_system(&view.rank[r].signals->dispatched[view.me], number);
    } else {
      for (int c = threadIdx.x; c < chunks; c += blockDim.x)
        store_release_system(&view.rank[r].combined[view.me * view.chunk_capacity + c], number);
    }
  }
  if (threadIdx.x == 0) own.sent[part] = number;
}

}  // namespace

void dispatch_send(const ExchangeView& view, const DispatchRows& rows, int blocks, cudaStream_t stream) {
  const int d = view.shape.d, unit_threads = 32 * kParts, row_threads = (d / 16 + unit_threads - 1) / unit_threads * 32;
  const int groups = row_threads * kMaxGroups <= kMostThreads ? kMaxGroups : kMostThreads / row_threads;
  static_assert(kMaxExchangeChannels / 16 / kParts <= kMostThreads);
  const int slots = slots_for(sizeof(DispatchShared), 2 * d);
  LaunchShape shape{dim3(blocks), dim3(groups * row_threads + 32), sizeof(DispatchShared) + size_t(2) * d * slots,
                    stream};
  shape.early = true;
  if (blocks % 2 == 0) shape.cluster = 2;
  launch("dispatch_send_kernel", dispatch_send_kernel, shape, view, rows, groups, row_threads, slots);
}

void dispatch_receive(const ExchangeView& view, cudaStream_t stream) {
  LaunchShape shape{dim3(1), dim3(32), 0, stream};
  shape.early = true;
  launch("dispatch_receive_kernel", dispatch_receive_kernel, shape, view);
}

void announce(const ExchangeView& view, ExchangePart part, cudaStream_t stream) {
  launch("announce_kernel", announce_kernel, LaunchShape{dim3(1), dim3(256), 0, stream}, view, part);
}

void load_combine_kernels();
void load_exchange_kernels() {
  cudaFuncAttributes attributes;
  HADAL_CUDA(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(dispatch_send_kernel)));
  HADAL_CUDA(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(dispatch_receive_kernel)));
  HADAL_CUDA(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(announce_kernel)));
  load_combine_kernels();
}

}  // namespace hadal::cuda

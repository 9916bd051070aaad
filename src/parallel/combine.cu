// Combine: sums of rows, at the rank of the experts and again at the owner of the tokens.
//
// Both are one kernel. A block has a multiprocessor for itself and several teams: of each, one warp lists the rows of a
// chunk of tokens and streams them into a ring in shared memory, far ahead; the others add rows that follow each other
// and store sums, 32 channels a thread. (With all warps at one row, what a row takes from barrier to barrier was the
// limit: 600 cycles.) At the experts' rank a further warp announces each chunk that is stored, since the fence in front
// of a number takes microseconds over the link; at the owner the listing warp waits for these numbers.
#include "ops/cuda/errors.h"
#include "ops/cuda/launch.h"
#include "parallel/signals.cuh"
#include "parallel/slots.cuh"

namespace hadal::cuda {
namespace {

constexpr int kParts = 4;  // times eight channels of a thread
constexpr int kMaxThreads = 896, kMaxTeams = 8;
constexpr int kUnannounced = 4;  // chunks that are stored and not announced yet

// How a block is divided.
struct Teams {
  int count, warps;                                                     // teams; warps of each that add
  int slots;                                                            // of each
  __host__ __device__ int threads() const { return (warps + 2) * 32; }  // of each
};

enum SlotFlags : uint32_t { kNoRow = 1, kFirstOfToken = 2, kLastOfToken = 4, kLastOfChunk = 8, kEnd = 16 };
struct SlotInfo {
  uint16_t* to;
  uint32_t flags;
};
struct Listed {
  const uint16_t* from;
  uint32_t token;  // of the chunk
};
struct alignas(16) TeamShared {
  SlotBarriers slots;
  SlotInfo info[kMaxSlots];
  Listed list[kMaxChunkRows];
  uint64_t stored[kUnannounced], announced[kUnannounced];
};

// Where the rows of a piece of work come from and go to. A piece is a chunk of tokens of one owner.
struct SendWork {
  static constexpr bool kAnnounces = true;
  const uint16_t* out;
  const int32_t* pair_row;

  __device__ int pieces(const ExchangeView& v, int chunks) const { return chunks * v.shape.ranks; }
  // Owners in turn, beginning with the next rank, so that every link has work at any time.
  __device__ int owner(const ExchangeView& v, int piece) const {
    return (v.me + 1 + piece % v.shape.ranks) % v.shape.ranks;
  }
  __device__ int chunk(const ExchangeView& v, int piece) const { return piece / v.shape.ranks; }
  __device__ int rows_of_token(const ExchangeView& v) const { return v.shape.topk; }
  __device__ const uint16_t* row(const ExchangeView& v, int piece, int token, int k) const {
    const size_t place = static_cast<size_t>(owner(v, piece)) * v.shape.stride + token;
    const int at = pair_row[place * v.shape.topk + k];
    return at < 0 ? nullptr : out + static_cast<size_t>(at) * v.shape.d;
  }
  __device__ uint16_t* to(const ExchangeView& v, int piece, int token) const {
    const int to = owner(v, piece), source = v.staging == nullptr || to == v.me ? v.me : to;
    uint16_t* base = v.staging == nullptr || to == v.me ? v.rank[to].partial : v.staging;
    return base + (static_cast<size_t>(source) * v.shape.stride + token) * v.shape.d;
  }
  __device__ void await(const ExchangeView&, int, uint32_t, int) const {}
};
struct ReceiveWork {
  static constexpr bool kAnnounces = false;
  const uint16_t* shared_out;
  uint16_t* y;

  __device__ int pieces(const ExchangeView&, int chunks) const { return chunks; }
  __device__ int chunk(const ExchangeView&, int piece) const { return piece; }
  __device__ int rows_of_token(const ExchangeView& v) const { return v.shape.ranks + 1; }
  __device__ const uint16_t* row(const ExchangeView& v, int, int token, int r) const {
    const ExchangeShape& shape = v.shape;
    if (token >= v.tokens) return nullptr;
    if (r == shape.ranks) return shared_out ? shared_out + static_cast<size_t>(token) * shape.d : nullptr;
    const RankMemory& own = v.rank[v.me];
    const int32_t* ids = own.ids + (static_cast<size_t>(v.me) * shape.stride + token) * shape.topk;
    const int first = r * (shape.experts / shape.ranks), end = first + shape.experts / shape.ranks;
    bool here = false;
    for (int k = 0; k < shape.topk; ++k) here |= ids[k] >= first && ids[k] < end;
    return here ? own.partial + (static_cast<size_t>(r) * shape.stride + token) * shape.d : nullptr;
  }
  __device__ uint16_t* to(const ExchangeView& v, int, int token) const {
    return y + static_cast<size_t>(token) * v.shape.d;
  }
  // All lanes: rank `lane` has sent this chunk. What others stored is then read by the copy engine.
  __device__ void await(const ExchangeView& v, int piece, uint32_t step, int lane) const {
    if (lane < v.shape.ranks)
      await_step(v, kCombine, lane, v.rank[v.me].combined + lane * v.chunk_capacity + piece, step);
    __syncwarp();
    fence_async_global();
  }
};

// Pieces of a team: first, first + step, ...
struct Share {
  int first, step, pieces;
};

// One warp: rows of all pieces of this team, in order.
template <class Work>
__device__ __forceinline__ void stream_rows(TeamShared& s, uint8_t* ring, int slots, const ExchangeView& view,
                                            const Work& work, const Share& share, uint32_t step) {
  constexpr int kEach = (kMaxChunkRows + 31) / 32;
  const int lane = threadIdx.x % 32, tokens = chunk_tokens(view.shape), each = work.rows_of_token(view);
  const int row_bytes = 2 * view.shape.d;
  const uint16_t* next[kEach];
  const auto look_up = [&](int piece) {
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int entry = lane + 32 * j, token = work.chunk(view, piece) * tokens + entry / each;
      const bool any = piece < share.pieces && entry < tokens * each && token < view.shape.stride;
      next[j] = any ? work.row(view, piece, token, entry % each) : nullptr;
    }
  };
  SlotPosition at;
  const auto push = [&](const uint16_t* from, SlotInfo info) {
    mbarrier_wait(&s.slots.empty[at.slot], at.parity ^ 1);
    s.info[at.slot] = info;
    uint64_t* full = &s.slots.full[at.slot];
    if (from == nullptr) {
      mbarrier_arrive(full);
    } else {
      mbarrier_arrive_expect(full, row_bytes);
      bulk_copy(ring + at.slot * row_bytes, from, row_bytes, full);
    }
    at.advance(1, slots);
  };
  RingPosition<kUnannounced> chunk_ring;
  look_up(share.first);
  for (int piece = share.first; piece < share.pieces; piece += share.step) {
    int count = 0;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const uint32_t there = __ballot_sync(0xffffffffu, next[j] != nullptr);
      if (next[j] != nullptr)
        s.list[count + __popc(there & ((1u << lane) - 1))] = {next[j], static_cast<uint32_t>((lane + 32 * j) / each)};
      count += __popc(there);
    }
    __syncwarp();
    look_up(piece + share.step);
    work.await(view, piece, step, lane);
    if (lane == 0) {
      if constexpr (Work::kAnnounces) {
        mbarrier_wait(&s.announced[chunk_ring.stage], chunk_ring.parity ^ 1);
        chunk_ring.advance();
      }
      const int first = work.chunk(view, piece) * tokens;
      for (int i = 0; i < count; ++i) {
        const Listed row = s.list[i];
        const bool first_row = i == 0 || s.list[i - 1].token != row.token;
        const bool last = i + 1 == count || s.list[i + 1].token != row.token;
        uint16_t* to = last ? work.to(view, piece, first + static_cast<int>(row.token)) : nullptr;
        push(row.from, {to, (first_row ? kFirstOfToken : 0u) | (last ? kLastOfToken : 0u) |
                                (i + 1 == count ? kLastOfChunk : 0u)});
      }
      if (count == 0) push(nullptr, {nullptr, kNoRow | kLastOfChunk});
    }
    __syncwarp();
  }
  if (lane == 0) push(nullptr, {nullptr, kNoRow | kEnd});
}

__device__ __forceinline__ void add8(float (&sum)[8], const uint4& v, bool first) {
  const uint32_t u[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float low = __uint_as_float(u[i] << 16), high = __uint_as_float(u[i] & 0xffff0000u);
    sum[2 * i] = first ? low : sum[2 * i] + low;
    sum[2 * i + 1] = first ? high : sum[2 * i + 1] + high;
  }
}

template <class Work>
__device__ __forceinline__ void add_rows(TeamShared& s, const uint8_t* ring, int slots, int d, int thread,
                                         int threads) {
  const int lane = thread % 32, units = d / 8;
  float sum[kParts][8] = {};
  SlotPosition at;
  RingPosition<kUnannounced> chunk_ring;
  while (true) {
    mbarrier_wait(&s.slots.full[at.slot], at.parity);
    const SlotInfo info = s.info[at.slot];
    uint4 v[kParts] = {};
    if (!(info.flags & kNoRow)) {
      const auto* row = reinterpret_cast<const uint4*>(ring + at.slot * 2 * d);
#pragma unroll
      for (int p = 0; p < kParts; ++p)
        if (thread + p * threads < units) v[p] = row[thread + p * threads];
    }
    __syncwarp();
    if (lane == 0) mbarrier_arrive(&s.slots.empty[at.slot]);
    if (info.flags & kEnd) return;
    if (info.flags & kFirstOfToken) {
#pragma unroll
      for (int p = 0; p < kParts; ++p) add8(sum[p], v[p], true);
    } else {
#pragma unroll
      for (int p = 0; p < kParts; ++p) add8(sum[p], v[p], false);
    }
    if (info.flags & kLastOfToken)
#pragma unroll
      for (int p = 0; p < kParts; ++p)
        if (thread + p * threads < units)
          *reinterpret_cast<uint4*>(info.to + (thread + p * threads) * 8) =
              make_uint4(pack_bf16x2(sum[p][0], sum[p][1]), pack_bf16x2(sum[p][2], sum[p][3]),
                         pack_bf16x2(sum[p][4], sum[p][5]), pack_bf16x2(sum[p][6], sum[p][7]));
    if (Work::kAnnounces && (info.flags & kLastOfChunk)) {
      __syncwarp();
      if (lane == 0) mbarrier_arrive(&s.stored[chunk_ring.stage]);
      chunk_ring.advance();
    }
    at.advance(1, slots);
  }
}

// One thread: the numbers of stored chunks, to their owners.
__device__ __forceinline__ void announce_chunks(TeamShared& s, const ExchangeView& view, const SendWork& work,
                                                const Share& share, uint32_t step) {
  RingPosition<kUnannounced> chunk_ring;
  for (int piece = share.first; piece < share.pieces; piece += share.step) {
    mbarrier_wait(&s.stored[chunk_ring.stage], chunk_ring.parity);
    if (view.staging == nullptr) {
      fence_system();
      store_release_system(
          view.rank[work.owner(view, piece)].combined + view.me * view.chunk_capacity + work.chunk(view, piece), step);
    }
    mbarrier_arrive(&s.announced[chunk_ring.stage]);
    chunk_ring.advance();
  }
}

template <class Work>
__global__ void __launch_bounds__(kMaxThreads, 1)
    combine_kernel(const __grid_constant__ ExchangeView view, const Work work, const Teams teams) {
  extern __shared__ __align__(128) uint8_t shared_bytes[];
  const int team = threadIdx.x / teams.threads(), thread = threadIdx.x % teams.threads(), warp = thread / 32;
  const int d = view.shape.d;
  auto& s = reinterpret_cast<TeamShared*>(shared_bytes)[team];
  uint8_t* ring = shared_bytes + teams.count * sizeof(TeamShared) + team * teams.slots * 2 * d;
  ExchangeSignals& own = *view.rank[view.me].signals;
  if (thread == 0) {
    s.slots.init(teams.slots, teams.warps);
    for (int i = 0; i < kUnannounced; ++i) {
      mbarrier_init(&s.stored[i], teams.warps);
      mbarrier_init(&s.announced[i], 1);
    }
    mbarrier_init_fence();
  }
  __syncthreads();
  if constexpr (Work::kAnnounces) {
    wait_for_previous();
    let_next_start();  // not before: combine_receive relies on what lies in front of this kernel
  }
  uint32_t& count = Work::kAnnounces ? own.sent[kCombine] : own.received[kCombine];
  const uint32_t step = load_acquire_system(&count) + 1;
  const int tokens = chunk_tokens(view.shape), chunks = (view.shape.stride + tokens - 1) / tokens;
  const auto blocks = static_cast<int>(gridDim.x);
  const Share share{static_cast<int>(blockIdx.x) + team * blocks, teams.count * blocks, work.pieces(view, chunks)};
  if (warp < teams.warps) {
    add_rows<Work>(s, ring, teams.slots, d, thread, teams.warps * 32);
  } else if (warp == teams.warps) {
    stream_rows(s, ring, teams.slots, view, work, share, step);
  } else if constexpr (Work::kAnnounces) {
    if (thread % 32 == 0) announce_chunks(s, view, work, share, step);
  }
  if constexpr (!Work::kAnnounces) {
    wait_for_previous();  // what comes behind relies on combine_send too
    let_next_start();
  }
  __syncthreads();
  if (threadIdx.x != 0 || !last_block(own.blocks_done[Work::kAnnounces ? 2 : 3])) return;
  if (view.staging == nullptr || !Work::kAnnounces) count = step;  // else announce() counts
}

template <class Work>
void launch_combine(const ExchangeView& view, const Work& work, int blocks, cudaStream_t stream) {
  const int row_bytes = 2 * view.shape.d, unit_warps = 32 * kParts;
  Teams teams{};
  teams.warps = (view.shape.d / 8 + unit_warps - 1) / unit_warps;
  teams.count = kMaxThreads / teams.threads() < kMaxTeams ? kMaxThreads / teams.threads() : kMaxTeams;
  teams.slots = slots_for(teams.count * sizeof(TeamShared), teams.count * row_bytes);
  static_assert(kMaxExchangeChannels / 8 <= unit_warps * (kMaxThreads / 32 - 2));
  LaunchShape shape{dim3(blocks), dim3(teams.count * teams.threads()),
                    teams.count * (sizeof(TeamShared) + size_t(row_bytes) * teams.slots), stream};
  shape.early = true;
  if (blocks % 2 == 0) shape.cluster = 2;
  launch("combine_kernel", combine_kernel<Work>, shape, view, work, teams);
}

}  // namespace

void combine_send(const ExchangeView& view, const uint16_t* out, const int32_t* pair_row, int blocks,
                  cudaStream_t stream) {
  launch_combine(view, SendWork{out, pair_row}, blocks, stream);
}

void combine_receive(const ExchangeView& view, const uint16_t* shared_out, uint16_t* y, int blocks,
                     cudaStream_t stream) {
  launch_combine(view, ReceiveWork{shared_out, y}, blocks, stream);
}

void load_combine_kernels() {
  cudaFuncAttributes attributes;
  HADAL_CUDA(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(combine_kernel<SendWork>)));
  HADAL_CUDA(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(combine_kernel<ReceiveWork>)));
}

}  // namespace hadal::cuda

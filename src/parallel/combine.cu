// Combine: sums of rows, at the rank of the experts and again at the owner of the tokens.
//
// Both are one kernel. A block has a multiprocessor for itself and several teams: of each, one warp lists the rows of a
// chunk of tokens and streams them into a ring in shared memory, far ahead; the others add rows that follow each other
// and store sums, 32 channels a thread. (With all warps at one row, what a row takes from barrier to barrier was the
// limit: 600 cycles.) A further warp announces each chunk that is stored for its owner, since the fence in front of a
// number takes microseconds over the link; at the owner the listing warp waits for these numbers. All teams of a block but
// one begin with what is sent; the last one begins with what is received, and the others go on with that.
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

enum SlotFlags : uint32_t { kNoRow = 1, kFirstOfToken = 2, kLastOfToken = 4, kChunkToSend = 8, kEnd = 16 };
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
  static constexpr bool kSends = true;
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
  static constexpr bool kSends = false;
  const uint16_t* shared_out;
  uint16_t* y;

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

// What a launch does: with copy engines in between, only half of it.
struct CombineWork {
  SendWork send;
  ReceiveWork receive;
  bool sends, receives;
};

// Where a team's listing warp is in its rings.
struct ListPosition {
  SlotPosition slot;
  RingPosition<kUnannounced> chunk;
};

// One warp: rows of all pieces that `next` gives, in order.
template <class Work, class Next>
__device__ __forceinline__ void stream_pieces(TeamShared& s, uint8_t* ring, int slots, ListPosition& at,
                                              const ExchangeView& view, const Work& work, int pieces, uint32_t step,
                                              Next next_piece) {
  constexpr int kEach = (kMaxChunkRows + 31) / 32;
  const int lane = threadIdx.x % 32, tokens = chunk_tokens(view.shape), each = work.rows_of_token(view);
  const int row_bytes = 2 * view.shape.d;
  const uint16_t* rows[kEach];
  const auto look_up = [&](int piece) {
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int entry = lane + 32 * j, token = work.chunk(view, piece) * tokens + entry / each;
      const bool any = piece < pieces && entry < tokens * each && token < view.shape.stride;
      rows[j] = any ? work.row(view, piece, token, entry % each) : nullptr;
    }
  };
  const auto push = [&](const uint16_t* from, SlotInfo info) {
    const int slot = at.slot.slot;
    mbarrier_wait(&s.slots.empty[slot], at.slot.parity ^ 1);
    s.info[slot] = info;
    if (from == nullptr) {
      mbarrier_arrive(&s.slots.full[slot]);
    } else {
      mbarrier_arrive_expect(&s.slots.full[slot], row_bytes);
      bulk_copy(ring + slot * row_bytes, from, row_bytes, &s.slots.full[slot]);
    }
    at.slot.advance(1, slots);
  };
  int piece = next_piece();
  look_up(piece);
  while (piece < pieces) {
    int count = 0;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const uint32_t there = __ballot_sync(0xffffffffu, rows[j] != nullptr);
      if (rows[j] != nullptr)
        s.list[count + __popc(there & ((1u << lane) - 1))] = {rows[j], static_cast<uint32_t>((lane + 32 * j) / each)};
      count += __popc(there);
    }
    __syncwarp();
    const int after = next_piece();
    look_up(after);
    work.await(view, piece, step, lane);
    if (lane == 0) {
      if constexpr (Work::kSends) {
        mbarrier_wait(&s.announced[at.chunk.stage], at.chunk.parity ^ 1);
        at.chunk.advance();
      }
      const int first = work.chunk(view, piece) * tokens;
      for (int i = 0; i < count; ++i) {
        const Listed row = s.list[i];
        const bool begins = i == 0 || s.list[i - 1].token != row.token;
        const bool ends = i + 1 == count || s.list[i + 1].token != row.token;
        push(row.from, {ends ? work.to(view, piece, first + static_cast<int>(row.token)) : nullptr,
                        (begins ? kFirstOfToken : 0u) | (ends ? kLastOfToken : 0u) |
                            (Work::kSends && i + 1 == count ? kChunkToSend : 0u)});
      }
      if (Work::kSends && count == 0) push(nullptr, {nullptr, kNoRow | kChunkToSend});
    }
    __syncwarp();
    piece = after;
  }
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
    const bool begins = info.flags & kFirstOfToken, ends = info.flags & kLastOfToken;
    if (!begins) {
#pragma unroll
      for (int p = 0; p < kParts; ++p) add8(sum[p], v[p], false);
    } else if (!ends) {
#pragma unroll
      for (int p = 0; p < kParts; ++p) add8(sum[p], v[p], true);
    }
    if (ends) {
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        if (!begins)  // a sum of one row is that row
          v[p] = make_uint4(pack_bf16x2(sum[p][0], sum[p][1]), pack_bf16x2(sum[p][2], sum[p][3]),
                            pack_bf16x2(sum[p][4], sum[p][5]), pack_bf16x2(sum[p][6], sum[p][7]));
        if (thread + p * threads < units) *reinterpret_cast<uint4*>(info.to + (thread + p * threads) * 8) = v[p];
      }
    }
    if (info.flags & kChunkToSend) {
      __syncwarp();
      if (lane == 0) mbarrier_arrive(&s.stored[chunk_ring.stage]);
      chunk_ring.advance();
    }
    at.advance(1, slots);
  }
}

// One thread: the numbers of stored chunks, to their owners.
__device__ __forceinline__ void announce_chunks(TeamShared& s, const ExchangeView& view, const SendWork& work,
                                                int first, int each, int pieces, uint32_t step) {
  RingPosition<kUnannounced> at;
  for (int piece = first; piece < pieces; piece += each, at.advance()) {
    mbarrier_wait(&s.stored[at.stage], at.parity);
    if (view.staging == nullptr) {
      fence_system();
      store_release_system(
          view.rank[work.owner(view, piece)].combined + view.me * view.chunk_capacity + work.chunk(view, piece), step);
    }
    mbarrier_arrive(&s.announced[at.stage]);
  }
}

__global__ void __launch_bounds__(kMaxThreads, 1)
    combine_kernel(const __grid_constant__ ExchangeView view, const CombineWork work, const Teams teams) {
  extern __shared__ __align__(128) uint8_t shared_bytes[];
  const int team = threadIdx.x / teams.threads(), thread = threadIdx.x % teams.threads(), warp = thread / 32;
  const int d = view.shape.d, slots = teams.slots;
  auto& s = reinterpret_cast<TeamShared*>(shared_bytes)[team];
  uint8_t* ring = shared_bytes + teams.count * sizeof(TeamShared) + team * slots * 2 * d;
  if (thread == 0) {
    s.slots.init(slots, teams.warps);
    for (int i = 0; i < kUnannounced; ++i) {
      mbarrier_init(&s.stored[i], teams.warps);
      mbarrier_init(&s.announced[i], 1);
    }
    mbarrier_init_fence();
  }
  __syncthreads();
  wait_for_previous();
  let_next_start();
  ExchangeSignals& own = *view.rank[view.me].signals;
  const uint32_t sent = own.sent[kCombine] + 1, received = own.received[kCombine] + 1;
  const int tokens = chunk_tokens(view.shape), chunks = (view.shape.stride + tokens - 1) / tokens;
  const auto blocks = static_cast<int>(gridDim.x);
  const int senders = !work.sends ? 0 : work.receives && teams.count > 1 ? teams.count - 1 : teams.count;
  const int first = static_cast<int>(blockIdx.x) + team * blocks, each = senders * blocks;
  const int to_send = team < senders ? work.send.pieces(view, chunks) : 0;
  if (warp < teams.warps) {
    add_rows(s, ring, slots, d, thread, teams.warps * 32);
  } else if (warp == teams.warps) {
    ListPosition at;
    int next = first;
    stream_pieces(s, ring, slots, at, view, work.send, to_send, sent, [&] {
      const int piece = next;
      next += each;
      return piece;
    });
    stream_pieces(s, ring, slots, at, view, work.receive, work.receives ? chunks : 0, received, [&] {
      return __shfl_sync(0xffffffffu, thread % 32 == 0 ? static_cast<int>(atomicAdd(&own.chunks_taken, 1)) : 0, 0);
    });
    if (thread % 32 == 0) {
      mbarrier_wait(&s.slots.empty[at.slot.slot], at.slot.parity ^ 1);
      s.info[at.slot.slot] = {nullptr, kNoRow | kEnd};
      mbarrier_arrive(&s.slots.full[at.slot.slot]);
    }
  } else if (thread % 32 == 0) {
    announce_chunks(s, view, work.send, first, each, to_send, sent);
  }
  __syncthreads();
  if (threadIdx.x != 0 || !last_block(own.blocks_done[kCombine])) return;
  own.chunks_taken = 0;
  if (work.sends && view.staging == nullptr) own.sent[kCombine] = sent;  // else announce() counts
  if (work.receives) own.received[kCombine] = received;
}

void launch_combine(const ExchangeView& view, const CombineWork& work, int blocks, cudaStream_t stream) {
  const int row_bytes = 2 * view.shape.d, unit_warps = 32 * kParts;
  Teams teams{};
  teams.warps = (view.shape.d / 8 + unit_warps - 1) / unit_warps;
  teams.count = kMaxThreads / teams.threads() < kMaxTeams ? kMaxThreads / teams.threads() : kMaxTeams;
  teams.slots = slots_for(teams.count * sizeof(TeamShared), teams.count * row_bytes);
  LaunchShape shape{dim3(blocks), dim3(teams.count * teams.threads()),
                    teams.count * (sizeof(TeamShared) + size_t(row_bytes) * teams.slots), stream};
  shape.early = true;
  if (blocks % 2 == 0) shape.cluster = 2;
  launch("combine_kernel", combine_kernel, shape, view, work, teams);
}

}  // namespace

void combine(const ExchangeView& view, const CombineRows& rows, int blocks, cudaStream_t stream) {
  launch_combine(view, {{rows.out, rows.pair_row}, {rows.shared_out, rows.y}, true, true}, blocks, stream);
}
void combine_send(const ExchangeView& view, const CombineRows& rows, int blocks, cudaStream_t stream) {
  launch_combine(view, {{rows.out, rows.pair_row}, {}, true, false}, blocks, stream);
}
void combine_receive(const ExchangeView& view, const CombineRows& rows, int blocks, cudaStream_t stream) {
  launch_combine(view, {{}, {rows.shared_out, rows.y}, false, true}, blocks, stream);
}

void load_combine_kernels() {
  cudaFuncAttributes attributes;
  HADAL_CUDA(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(combine_kernel)));
}

}  // namespace hadal::cuda

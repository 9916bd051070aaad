// Kernels of the exchange between ranks (exchange.h) that lie on GPUs which reach each other's memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "ops/experts/grouped.h"
#include "parallel/exchange.h"

namespace hadal::cuda {

// Dispatch and combine of a step each send and then receive. Steps are counted
// by the ranks on their own, in device memory, so that a replayed graph goes on counting: a rank writes the number of
// its step behind what it has sent, and a receiver waits for the number of its own.
enum ExchangePart { kDispatch = 0, kCombine = 1 };
struct ExchangeSignals {
  uint32_t dispatched[kMaxRanks];  // [source] written by the others: their last step
  uint32_t sent[2], received[2];   // [part] steps of this rank
  uint32_t blocks_done[2];         // [part] of the running kernel
  uint32_t chunks_taken;           // by teams that receive, in the running kernel
  uint32_t failed;                 // nothing is waited for any more
};
// Where a rank gave up waiting. In host memory; all zero while nothing is wrong.
struct ExchangeFailure {
  int32_t happened, part, source;
  uint32_t step, seen;
};

// What a rank's memory holds for others to write to.
struct RankMemory {
  uint8_t* codes;      // [places, d]
  float* scales;       // [places]
  int32_t* ids;        // [places, topk]
  float* weights;      // [places, topk]
  uint16_t* partial;   // bf16 [source][stride, d]
  uint32_t* combined;  // [source][chunk_capacity] step whose partial sums of a chunk of tokens are there
  ExchangeSignals* signals;
};

// Tokens whose partial sums are announced together: few where there are few, and so many that the rows of a chunk, of
// experts or of ranks and the shared expert, can be listed.
constexpr int kMaxChunkRows = 72;
constexpr int chunk_tokens(const ExchangeShape& shape) { return shape.stride >= 1024 && shape.topk <= 9 ? 8 : 1; }
// Chunks of a step of at most this many places a rank.
constexpr int chunk_capacity(const ExchangeShape& shape) {
  return shape.topk > 9 ? shape.stride : shape.stride / 8 > 1024 ? shape.stride / 8 + 1 : 1024;
}

struct ExchangeView {
  RankMemory rank[kMaxRanks];
  ExchangeShape shape;
  int me = 0;
  int tokens = 0;  // of this rank, in this step
  int chunk_capacity = 0;
  uint64_t patience_ns = 0;
  ExchangeFailure* failure = nullptr;
  // Unless null, nothing is sent: rows are left here for copy engines. Dispatch: in the own rank's memory; combine:
  // bf16 [owner][stride, d], but for the own tokens.
  uint16_t* staging = nullptr;
};

struct DispatchRows {
  const uint16_t* x;     // bf16 [tokens, d]
  const int32_t* ids;    // [tokens, topk] ascending in a row
  const float* weights;  // [tokens, topk]
};
// `blocks` are multiprocessors that a kernel takes as a whole; with an even number neighbours, so that clusters of two
// fit beside it.
void dispatch_send(const ExchangeView& view, const DispatchRows& rows, int blocks, cudaStream_t stream);
void dispatch_receive(const ExchangeView& view, cudaStream_t stream);

// Received rows go to the tiles of a plan that plan_rows has made of the received ids and weights of all places, without
// rows to round; its slot_of needs an entry more, -1 for no expert. codes: fp8_codes(plan, d); scales: bf16
// [row_capacity].
void place_rows(const ExchangeView& view, const RowPlan& plan, uint8_t* codes, uint16_t* scales, cudaStream_t stream);

struct CombineRows {
  const uint16_t* out;         // bf16 [.., d], the rows of the local experts
  const int32_t* pair_row;     // [places * topk] the row of each choice, -1 where it is not local
  const uint16_t* shared_out;  // bf16 [tokens, d] or null
  uint16_t* y;                 // bf16 [tokens, d]
};
// All of combine; and its parts, for copy engines between them, or ranks that share a stream.
void combine(const ExchangeView& view, const CombineRows& rows, int blocks, cudaStream_t stream);
void combine_send(const ExchangeView& view, const CombineRows& rows, int blocks, cudaStream_t stream);
void combine_receive(const ExchangeView& view, const CombineRows& rows, int blocks, cudaStream_t stream);

// Announces what copy engines have brought.
void announce(const ExchangeView& view, ExchangePart part, cudaStream_t stream);

// Loads the kernels on the current device. A kernel that is loaded when first launched may have to wait for those that
// run, which may be waiting for it.
void load_exchange_kernels();

}  // namespace hadal::cuda

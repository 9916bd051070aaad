// The operators of a backend. The model is written once over this table; a backend fills it.
#pragma once

#include <span>
#include <string_view>

#include "ops/attention_input/attention_input.h"
#include "ops/attention_output/attention_output.h"
#include "ops/cache_commit/cache_commit.h"
#include "ops/compressor/compressor.h"
#include "ops/draft/draft.h"
#include "ops/embedding/embedding.h"
#include "ops/engram/engram.h"
#include "ops/experts/experts.h"
#include "ops/head/head.h"
#include "ops/hyper_connection/hyper_connection.h"
#include "ops/indexer/indexer.h"
#include "ops/random_values.h"
#include "ops/router/router.h"
#include "ops/sample/sample.h"
#include "ops/sparse_attention/sparse_attention.h"

namespace hadal {

#define HADAL_OPERATORS(X)                 \
  X(embedding, EmbeddingArgs)              \
  X(hyper_connection, HyperConnectionArgs) \
  X(tap, TapArgs)                          \
  X(engram_gather, EngramGatherArgs)       \
  X(engram_apply, EngramApplyArgs)         \
  X(attention_input, AttentionInputArgs)   \
  X(compressor, CompressorArgs)            \
  X(indexer, IndexerArgs)                  \
  X(sparse_attention, SparseAttentionArgs) \
  X(attention_output, AttentionOutputArgs) \
  X(router, RouterArgs)                    \
  X(experts, ExpertsArgs)                  \
  X(head, HeadArgs)                        \
  X(sample, SampleArgs)                    \
  X(draft_context, DraftContextArgs)       \
  X(draft_logits, DraftLogitsArgs)         \
  X(cache_commit, CacheCommitArgs)

// `reference`: one thread, no tricks, the executable specification. `cpu`: threads and SIMD. `cuda`: Hopper.
#define HADAL_DECLARE(op, Args) void op(Context&, const Args&);
namespace reference {
HADAL_OPERATORS(HADAL_DECLARE)
}  // namespace reference
namespace cpu {
HADAL_OPERATORS(HADAL_DECLARE)
}  // namespace cpu
namespace cuda {
HADAL_OPERATORS(HADAL_DECLARE)
}  // namespace cuda
#undef HADAL_DECLARE

enum class OperatorId : uint8_t {
#define HADAL_ID(op, Args) op,
  HADAL_OPERATORS(HADAL_ID)
#undef HADAL_ID
};

struct Operators {
  const char* backend = nullptr;
#define HADAL_POINTER(op, Args) void (*op)(Context&, const Args&) = nullptr;  // NOLINT(bugprone-macro-parentheses)
  HADAL_OPERATORS(HADAL_POINTER)
#undef HADAL_POINTER
  // Makes the backend's own layout of an uploaded weight (Weight::packed) and folds scales in `fp8` numerics; null where
  // published bytes are read in place.
  void (*prepare_weight)(Context&, Weight&) = nullptr;

  // For a weight whose outputs come in `groups` that read k columns each, before anything is loaded: throws unsupported,
  // naming the weight, where the layout that load_weight and random_weight would keep of it has no place for such groups.
  // Null: all have.
  void (*check_groups)(Context&, std::string_view name, const Weight&, int groups) = nullptr;

  // How a model's weights, given as published bytes in host memory, come to lie where the operators read them: for one
  // weight, and for the routed experts of one layer (all of one shape), whose matrices are packed together. Where the
  // backend has a layout of its own, only that is kept, and `data` and `scale` are null afterwards. Null: the published
  // bytes are read in place. Routed experts are MXFP4, so that a backend that folds weights may have no load_experts.
  void (*load_weight)(Context&, Weight&) = nullptr;
  void (*load_experts)(Context&, std::span<FeedForward>) = nullptr;
  // The same for an Engram table, which lies in host memory that the device can read when table.on_host says so. Null: rows
  // are read in place.
  void (*load_table)(Context&, EngramTable&) = nullptr;
  // Room in step memory for activations [rows, groups * w.k] that only linears like w read, as an operator that makes them
  // finds it: of activation_type(), or u8 for a rounded form of the backend's own. Null: activations.
  Tensor (*linear_input)(Context&, int rows, const Weight& w, int groups) = nullptr;

  // Bytes of step memory for SparseAttentionArgs::shared, from arguments whose tensors need not be there; 0: nothing would be
  // shared. Null: 0 always.
  size_t (*shared_entries_bytes)(Context&, const SparseAttentionArgs&) = nullptr;

  // Begins what experts() does without knowing a row's experts, beside the router; rows, limit, x and shared are set. Then
  // come the router and experts() with the same args. Null, or nothing begun: experts() does all.
  void (*begin_experts)(Context&, ExpertsArgs&) = nullptr;

  // Bytes of weights that still fit; null where they are read in place.
  size_t (*weight_room)(Context&) = nullptr;

  // For benchmarks of models that are not at hand: the same as load_weight and load_experts with normal values made on the
  // device from a seed, of the given formats and shapes; and the rows of an Engram table, where table.on_host says. Null: the backend has none.
  void (*random_weight)(Context&, Weight&, const RandomValues&) = nullptr;
  void (*random_experts)(Context&, std::span<FeedForward>, const RandomValues& gate_up,
                         const RandomValues& down) = nullptr;
  void (*random_table)(Context&, EngramTable&, const RandomValues&) = nullptr;
  // Packed rows of `dim` values of size about 1, for caches that nothing has computed.
  void (*random_rows)(Context&, RowFormat, int dim, uint8_t* rows, int64_t count, uint64_t seed) = nullptr;

  // Room for the angles of `rows` queries, where sparse_attention is to rotate them as it reads them (AttentionInputArgs and
  // SparseAttentionArgs::q_angles); empty, or null: attention_input rotates them.
  Tensor (*query_angles)(Context&, int rows, const Rope&) = nullptr;
};

inline Tensor linear_input(const Operators& op, Context& context, int rows, const Weight& w, int groups) {
  return op.linear_input != nullptr ? op.linear_input(context, rows, w, groups)
                                    : context.activations(rows, int64_t{groups} * w.k);
}

const Operators& reference_operators();
const Operators& cpu_operators();
const Operators& cuda_operators();

}  // namespace hadal

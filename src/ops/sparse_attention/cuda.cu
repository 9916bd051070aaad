// The sparse attention operator on a GPU.
#include "ops/cuda/context.h"
#include "ops/cuda/errors.h"
#include "ops/sparse_attention/kernels.h"

namespace hadal::cuda {

void sparse_attention(Context& base, const SparseAttentionArgs& args) {
  CudaContext& context = CudaContext::of(base);
  if (args.out->rows == 0) return;
  HADAL_CUDA_CHECK(args.q.type == DType::bf16 && args.o.type == DType::bf16 && args.head_dim % 32 == 0);
  AttentionProblem problem;
  problem.args = args;
  problem.in = *args.in;
  problem.out = *args.out;
  problem.segments = *args.segments;
  problem.has_entries = args.entries != nullptr;
  if (problem.has_entries) {
    problem.entries = *args.entries;
    problem.selection = *args.selection;
  }
  problem.round_probabilities = context.numerics() != Numerics::fp32;
  // Draft rows see every row of their segment besides the ring.
  const int window_keys = args.ring.window + (args.bidirectional ? args.in->rows : 0);
  const int most_keys = window_keys + (problem.has_entries ? static_cast<int>(args.selection->rows.cols) : 0);
  if (!context.portable() && matrix_attention_takes(problem, most_keys)) {
    const int multiprocessors = context.multiprocessors();
    const AttentionKernel kernel = attention_kernel_for(problem, most_keys, multiprocessors);
    Scratch scratch(context);
    matrix_attention(problem, kernel, most_keys, scratch.get<uint8_t>(attention_scratch_bytes(problem, kernel)),
                     context.lasting("attention for few queries", few_attention_lasting_bytes(multiprocessors)),
                     multiprocessors, context.stream());
    return;
  }
  general_attention(problem, most_keys, context.stream());
}

}  // namespace hadal::cuda

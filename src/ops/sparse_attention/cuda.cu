// The sparse attention operator on a GPU.
#include "ops/cuda/context.h"
#include "ops/cuda/errors.h"
#include "ops/cuda/linear_input.h"
#include "ops/cuda/rotate.h"
#include "ops/sparse_attention/kernels.h"

namespace hadal::cuda {

namespace {

struct Choice {
  AttentionProblem problem;
  int most_keys = 0;
  std::optional<AttentionKernel> kernel;  // none: the general one
};

Choice choose(const CudaContext& context, const SparseAttentionArgs& args) {
  Choice c;
  AttentionProblem& problem = c.problem;
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
  c.most_keys = window_keys + (problem.has_entries ? static_cast<int>(args.selection->rows.cols) : 0);
  if (!context.portable() && matrix_attention_takes(problem, c.most_keys))
    c.kernel = attention_kernel_for(problem, c.most_keys, context.multiprocessors());
  return c;
}

}  // namespace

size_t shared_entries_bytes(Context& base, const SparseAttentionArgs& args) {
  const Choice c = choose(CudaContext::of(base), args);
  return c.kernel == AttentionKernel::shared ? attention_scratch_bytes(c.problem, *c.kernel) : 0;
}

void sparse_attention(Context& base, const SparseAttentionArgs& args) {
  CudaContext& context = CudaContext::of(base);
  if (args.out->rows == 0) return;
  HADAL_CUDA_CHECK(args.q.type == DType::bf16 && args.head_dim % 32 == 0);
  auto [problem, most_keys, kernel] = choose(context, args);
  const int multiprocessors = context.multiprocessors();
  // One multiprocessor a query rotates it as it reads it.
  const bool rotates =
      kernel == AttentionKernel::window || kernel == AttentionKernel::shared || kernel == AttentionKernel::packed;
  if (args.q_angles && !(rotates && args.rope.dim == kRotatedDim)) {
    rotate_queries(context, args.q, args.heads, args.head_dim, args.q_angles);
    problem.args.q_angles = {};
  }
  Scratch scratch(context);
  Fp8Rows rounded_after;
  if (args.o.type == DType::u8) {
    const Fp8Rows q4 = fp8_rows(args.o);
    if (kernel) {
      problem.o_q4 = q4;
    } else {
      rounded_after = q4;
      problem.args.o = context.activations(args.o.rows, args.o.cols);
    }
  }
  if (kernel)
    matrix_attention(
        problem, *kernel, most_keys,
        args.shared != nullptr ? args.shared->memory : scratch.get<uint8_t>(attention_scratch_bytes(problem, *kernel)),
        context.lasting("attention for few queries", few_attention_lasting_bytes(multiprocessors)), multiprocessors,
        context.stream());
  else
    general_attention(problem, most_keys, context.stream());
  if (rounded_after) quantise_rows(context, problem.args.o.bf16(), args.o.cols, nullptr, rounded_after);
}

}  // namespace hadal::cuda

#include "ops/cuda/codec.cuh"
#include "ops/cuda/context.h"
#include "ops/cuda/errors.h"
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/launch.h"
#include "ops/embedding/embedding.h"

namespace hadal::cuda {
namespace {

// One CTA a row; the row is read once and written to every copy. V is 16 bytes, or one value where the width asks for it.
template <typename V>
__global__ void __launch_bounds__(256)
    embedding_kernel(const int32_t* tokens, const uint16_t* embed, int d, int copies, uint16_t* h, float* pre) {
  wait_for_previous();
  let_next_start();
  const int64_t row = blockIdx.x;
  const int units = d / static_cast<int>(sizeof(V) / 2);
  const auto* from = reinterpret_cast<const V*>(embed + int64_t{tokens[row]} * d);
  auto* to = reinterpret_cast<V*>(h + row * copies * d);
  for (int i = threadIdx.x; i < units; i += blockDim.x) {
    const V v = from[i];
    for (int j = 0; j < copies; ++j) to[int64_t{j} * units + i] = v;
  }
  if (threadIdx.x < copies) pre[row * copies + threadIdx.x] = threadIdx.x == 0 ? 1.0f : 0.0f;
}

}  // namespace

void embedding(Context& context, const EmbeddingArgs& args) {
  CudaContext& cuda = CudaContext::of(context);
  const int rows = static_cast<int>(args.h.rows), d = args.embed.k, copies = static_cast<int>(args.pre.cols);
  if (rows == 0) return;
  HADAL_CUDA_CHECK(args.embed.format == WeightFormat::bf16 && args.h.cols == int64_t{copies} * d);
  const auto kernel = d % 8 == 0 ? embedding_kernel<uint4> : embedding_kernel<uint16_t>;
  launch("embedding", kernel, {.grid = dim3(rows), .block = dim3(256), .stream = cuda.stream(), .early = true},
         args.tokens, static_cast<const uint16_t*>(args.embed.data), d, copies, args.h.bf16(), args.pre.f32());
}

}  // namespace hadal::cuda

#include "ops/cuda/codec.cuh"
#include "ops/cuda/context.h"
#include "ops/cuda/errors.h"
#include "ops/embedding/embedding.h"

namespace hadal::cuda {
namespace {

// One CTA a row; the row is read once and written to every copy, 16 bytes a thread.
__global__ void __launch_bounds__(256) embedding_kernel(const int32_t* tokens, const uint16_t* embed, int d, int copies, uint16_t* h,
                                                        float* pre) {
  const int64_t row = blockIdx.x;
  const auto* from = reinterpret_cast<const uint4*>(embed + int64_t{tokens[row]} * d);
  auto* to = reinterpret_cast<uint4*>(h + row * copies * d);
  for (int i = threadIdx.x; i < d / 8; i += blockDim.x) {
    const uint4 v = from[i];
    for (int j = 0; j < copies; ++j) to[int64_t{j} * (d / 8) + i] = v;
  }
  if (threadIdx.x < copies) pre[row * copies + threadIdx.x] = threadIdx.x == 0 ? 1.0f : 0.0f;
}

}  // namespace

void embedding(Context& context, const EmbeddingArgs& args) {
  CudaContext& cuda = CudaContext::of(context);
  const int rows = static_cast<int>(args.h.rows), d = args.embed.k, copies = static_cast<int>(args.pre.cols);
  if (rows == 0) return;
  HADAL_CUDA_CHECK(args.embed.format == WeightFormat::bf16 && args.h.cols == int64_t{copies} * d);
  if (d % 8 != 0) fail_shape("embedding", "a width that is a multiple of 8", d);
  embedding_kernel<<<rows, 256, 0, cuda.stream()>>>(args.tokens, static_cast<const uint16_t*>(args.embed.data), d, copies,
                                                    args.h.bf16(), args.pre.f32());
  HADAL_CUDA_LAUNCHED("embedding");
}

}  // namespace hadal::cuda

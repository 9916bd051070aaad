#include "ops/cuda/linear_launch.cuh"

namespace hadal::cuda {

void launch_linear_bf16(const LinearProblem& problem, cudaStream_t stream) {
  launch_format<WeightFormat::bf16>(problem, stream);
}

}  // namespace hadal::cuda

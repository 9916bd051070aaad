#include "ops/cuda/linear_launch.cuh"

namespace hadal::cuda {

void launch_linear_fp8(const LinearProblem& problem, cudaStream_t stream) {
  launch_format<WeightFormat::fp8_block32>(problem, stream);
}

}  // namespace hadal::cuda

#include "ops/cuda/linear_launch.cuh"

namespace hadal::cuda {

void launch_linear_mxfp4(const LinearProblem& problem, cudaStream_t stream) {
  launch_format<WeightFormat::mxfp4>(problem, stream);
}

}  // namespace hadal::cuda

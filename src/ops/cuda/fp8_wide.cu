#include "ops/cuda/fp8_linear.cuh"

namespace hadal::cuda {

void fp8_wide(const Fp8Problem& p, int multiprocessors, cudaStream_t stream) {
  if (p.quantised) return launch_fp8_wide<Fp8Wide<1, 128, 6, true>>(p, multiprocessors, stream);
  launch_fp8_wide<Fp8Wide<1, 128, 6, false>>(p, multiprocessors, stream);
}

}  // namespace hadal::cuda

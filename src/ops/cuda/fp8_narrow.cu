#include "ops/cuda/fp8_linear.cuh"

namespace hadal::cuda {

void fp8_narrow(const Fp8Problem& p, int multiprocessors, cudaStream_t stream) {
  if (p.x.rows <= 8) return launch_fp8_narrow<Fp8Narrow<8, 12, 2>>(p, multiprocessors, stream);
  if (p.x.rows <= 16) return launch_fp8_narrow<Fp8Narrow<16, 10, 2>>(p, multiprocessors, stream);
  if (p.x.rows <= 32) return launch_fp8_narrow<Fp8Narrow<32, 8, 2>>(p, multiprocessors, stream);
  if (p.x.rows <= 64) return launch_fp8_narrow<Fp8Narrow<64, 6, 2>>(p, multiprocessors, stream);
  launch_fp8_narrow<Fp8Narrow<128, 8, 1>>(p, multiprocessors, stream);
}

}  // namespace hadal::cuda

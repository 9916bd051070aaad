#include "ops/cuda/fp8_linear.cuh"

namespace hadal::cuda {
namespace {

template <int N, int Stages, int Resident>
void launch(const Fp8Problem& p, int multiprocessors, cudaStream_t stream) {
  if (p.k < 3 * 128) return launch_fp8_narrow<Fp8Narrow<N, Stages, Resident, 2>>(p, multiprocessors, stream);
  launch_fp8_narrow<Fp8Narrow<N, Stages, Resident, 4>>(p, multiprocessors, stream);
}

}  // namespace

void fp8_narrow(const Fp8Problem& p, int multiprocessors, cudaStream_t stream) {
  if (p.x.rows <= 8) return launch<8, 12, 2>(p, multiprocessors, stream);
  if (p.x.rows <= 16) return launch<16, 10, 2>(p, multiprocessors, stream);
  if (p.x.rows <= 32) return launch<32, 8, 2>(p, multiprocessors, stream);
  if (p.x.rows <= 64) return launch_fp8_narrow<Fp8Narrow<64, 6, 2, 2>>(p, multiprocessors, stream);
  launch_fp8_narrow<Fp8Narrow<128, 8, 1, 2>>(p, multiprocessors, stream);
}

}  // namespace hadal::cuda

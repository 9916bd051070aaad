#include "ops/cuda/packed_linear.cuh"

namespace hadal::cuda {

void packed_narrow(const PackedProblem& p, int multiprocessors, cudaStream_t stream) {
  if (p.rows <= 8) return launch_packed<PackedShape<8, 1, 1, 12>>(p, multiprocessors, stream);
  if (p.rows <= 16) return launch_packed<PackedShape<16, 1, 1, 10>>(p, multiprocessors, stream);
  if (p.rows <= 32) return launch_packed<PackedShape<32, 1, 1, 8>>(p, multiprocessors, stream);
  if (p.rows <= 64) return launch_packed<PackedShape<64, 1, 1, 8>>(p, multiprocessors, stream);
  launch_packed<PackedShape<128, 1, 1, 4>>(p, multiprocessors, stream);
}

}  // namespace hadal::cuda

#include "ops/cuda/packed_linear.cuh"

namespace hadal::cuda {

void packed_wide(const PackedProblem& p, int width, int multiprocessors, cudaStream_t stream) {
  switch (width) {
    case 64: return launch_packed<PackedShape<64, 2, 2, 6>>(p, multiprocessors, stream);
    case 128: return launch_packed<PackedShape<128, 2, 2, 5>>(p, multiprocessors, stream);
    default: return launch_packed<PackedShape<136, 2, 2, 5>>(p, multiprocessors, stream);
  }
}

}  // namespace hadal::cuda

#include "ops/cuda/packed_linear.cuh"

namespace hadal::cuda {
namespace {

template <bool Boxes>
void launch_rows(const PackedProblem& p, int multiprocessors, cudaStream_t stream) {
  if (p.rows <= 8) return launch_packed<PackedShape<8, 1, 1, 12, Boxes>>(p, multiprocessors, stream);
  if (p.rows <= 16) return launch_packed<PackedShape<16, 1, 1, 10, Boxes>>(p, multiprocessors, stream);
  if (p.rows <= 32) return launch_packed<PackedShape<32, 1, 1, 8, Boxes>>(p, multiprocessors, stream);
  if (p.rows <= 64) return launch_packed<PackedShape<64, 1, 1, 8, Boxes>>(p, multiprocessors, stream);
  launch_packed<PackedShape<128, 1, 1, 4, Boxes>>(p, multiprocessors, stream);
}

}  // namespace

void packed_narrow(const PackedProblem& p, int multiprocessors, cudaStream_t stream) {
  if (p.x_row == nullptr) return launch_rows<true>(p, multiprocessors, stream);
  launch_rows<false>(p, multiprocessors, stream);
}

}  // namespace hadal::cuda

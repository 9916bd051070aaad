#include "ops/cuda/packed_linear.cuh"

namespace hadal::cuda {
namespace {

template <bool Boxes>
void launch_width(const PackedProblem& p, int width, int multiprocessors, cudaStream_t stream) {
  switch (width) {
    case 64: return launch_packed<PackedShape<64, 2, 2, 6, Boxes>>(p, multiprocessors, stream);
    case 128: return launch_packed<PackedShape<128, 2, 2, 5, Boxes>>(p, multiprocessors, stream);
    case 136: return launch_packed<PackedShape<136, 2, 2, 5, Boxes>>(p, multiprocessors, stream);
    case 256:  // more rows than 96 threads can gather
      if constexpr (Boxes) return launch_packed<PackedShape<256, 2, 1, 4, Boxes>>(p, multiprocessors, stream);
      [[fallthrough]];
    default: return launch_packed<PackedShape<160, 2, 1, 6, Boxes>>(p, multiprocessors, stream);
  }
}

}  // namespace

void packed_wide(const PackedProblem& p, int width, int multiprocessors, cudaStream_t stream) {
  if (p.x_row == nullptr) return launch_width<true>(p, width, multiprocessors, stream);
  launch_width<false>(p, width, multiprocessors, stream);
}

}  // namespace hadal::cuda

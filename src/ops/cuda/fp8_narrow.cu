#include "ops/cuda/fp8_linear.cuh"

namespace hadal::cuda {

void fp8_narrow(const Fp8Problem& p, int multiprocessors, cudaStream_t stream) {
  // A tile holds all rows, or fewer where that leaves about one CTA for a multiprocessor: what bounds a group of 128 of k is
  // the 64 weights and the rows that one takes in, about 48 bytes a cycle.
  const int blocks = p.n / 64 * fp8_sides(p);
  int tile = 8;
  while (tile < 128 && tile < p.x.rows) tile *= 2;
  while (tile > 32 && blocks * ((p.x.rows + tile / 2 - 1) / (tile / 2)) <= multiprocessors * 9 / 8) tile /= 2;
  switch (tile) {
    case 8: return launch_fp8_narrow<Fp8Narrow<8, 12, 2>>(p, multiprocessors, stream);
    case 16: return launch_fp8_narrow<Fp8Narrow<16, 10, 2>>(p, multiprocessors, stream);
    case 32: return launch_fp8_narrow<Fp8Narrow<32, 8, 2>>(p, multiprocessors, stream);
    case 64: return launch_fp8_narrow<Fp8Narrow<64, 6, 2>>(p, multiprocessors, stream);
    default: return launch_fp8_narrow<Fp8Narrow<128, 8, 1>>(p, multiprocessors, stream);
  }
}

}  // namespace hadal::cuda

#include "ops/cuda/fp8_linear.cuh"

namespace hadal::cuda {
namespace {

// Rounds of pieces, each as long as its products and, where it ends, about one group of 128 of k.
template <class S>
int64_t cost(const Fp8Problem& p, int multiprocessors) {
  const int64_t pieces =
      int64_t{(p.x.rows + S::kRows - 1) / S::kRows} * ((p.group_n + S::kN - 1) / S::kN) * (p.n / p.group_n);
  // Smaller tiles are slower for their size: they read more for each product.
  const int slowness = S::kRows == 256 ? 50 : S::kN == 192 ? 51 : S::kN == 160 ? 52 : 56;
  const int64_t area = int64_t{S::kRows} * S::kN * slowness;
  return (pieces + multiprocessors - 1) / multiprocessors * area * (p.k / 128 + 1);
}

template <class Best, class... Others>
void launch_cheapest(const Fp8Problem& p, int multiprocessors, cudaStream_t stream) {
  [[maybe_unused]] const int64_t own = cost<Best>(p, multiprocessors);
  if (((own <= cost<Others>(p, multiprocessors)) && ...)) return launch_fp8_wide<Best>(p, multiprocessors, stream);
  if constexpr (sizeof...(Others) > 0) launch_cheapest<Others...>(p, multiprocessors, stream);
}

}  // namespace

void fp8_wide(const Fp8Problem& p, int multiprocessors, cudaStream_t stream) {
  if (p.quantised)
    return launch_cheapest<Fp8Wide<2, 128, 4, true>, Fp8Wide<1, 128, 6, true>>(p, multiprocessors, stream);
  launch_cheapest<Fp8Wide<1, 192, 4, false>, Fp8Wide<2, 128, 4, false>, Fp8Wide<1, 160, 5, false>,
                  Fp8Wide<1, 128, 6, false>>(p, multiprocessors, stream);
}

}  // namespace hadal::cuda

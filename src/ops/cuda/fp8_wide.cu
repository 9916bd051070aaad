#include "ops/cuda/fp8_linear.cuh"

namespace hadal::cuda {
namespace {

// Rounds of pieces, each as long as its products and, where it ends, about one group of 128 of k.
template <class S>
int64_t cost(const Fp8Problem& p, int multiprocessors) {
  const int64_t pieces = Fp8Pieces<S>(p).count;
  // Smaller tiles are slower for their size: they read more for each product.
  const int slowness = S::kRows >= 192 ? 50 : S::kN == 192 ? 51 : S::kN == 160 ? 52 : 56;
  const int64_t area = int64_t{S::kRows} * S::kN * slowness;
  return (pieces + multiprocessors - 1) / multiprocessors * area * (p.k / 128 + 1);
}

struct Tile {
  int64_t (*cost)(const Fp8Problem&, int multiprocessors);
  void (*launch)(const Fp8Problem&, int multiprocessors, cudaStream_t);
};
template <class... Shapes>
constexpr Tile kTiles[] = {{cost<Shapes>, launch_fp8_wide<Shapes>}...};

constexpr const char* kNames[] = {"128x192", "256x128", "128x160", "128x128", "192x128"};
constexpr std::span<const Tile> kWide =
    kTiles<Fp8Wide<1, 192, 4, false>, Fp8Wide<2, 128, 4, false>, Fp8Wide<1, 160, 5, false>, Fp8Wide<1, 128, 6, false>,
           Fp8Wide<1, 128, 4, false, 3>>;
constexpr const char* kQuantisedNames[] = {"256x128", "128x128"};
constexpr std::span<const Tile> kQuantised = kTiles<Fp8Wide<2, 128, 4, true>, Fp8Wide<1, 128, 6, true>>;
static_assert(std::size(kNames) == kWide.size() && std::size(kQuantisedNames) == kQuantised.size());

}  // namespace

std::span<const char* const> fp8_wide_tiles(bool quantised) {
  if (quantised) return kQuantisedNames;
  return kNames;
}

void fp8_wide(const Fp8Problem& p, int multiprocessors, cudaStream_t stream) {
  const std::span<const Tile> tiles = p.quantised ? kQuantised : kWide;
  HADAL_CUDA_CHECK(p.tile < static_cast<int>(tiles.size()));
  const auto best = p.tile >= 0 ? tiles.begin() + p.tile
                                : std::min_element(tiles.begin(), tiles.end(), [&](const Tile& a, const Tile& b) {
                                    return a.cost(p, multiprocessors) < b.cost(p, multiprocessors);
                                  });
  best->launch(p, multiprocessors, stream);
}

}  // namespace hadal::cuda

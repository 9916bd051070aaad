// Rows that were received go to the tiles of their experts.
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/launch.h"
#include "ops/experts/expert_rows.cuh"
#include "parallel/exchange_kernels.h"

namespace hadal::cuda {
namespace {

constexpr int kRows = 8;  // of a block; rows of a tile are a multiple of it

// Sixteen channels of eight rows a thread. Rows that fill a tile up have weight 0 and take what lies at place 0.
__global__ void place_rows_kernel(const uint8_t* codes, const float* scales, int groups, RowPlan plan, uint8_t* to,
                                  uint16_t* to_scales) {
  wait_for_previous();
  let_next_start();
  const int first = static_cast<int>(blockIdx.y) * kRows, t = threadIdx.x;
  if (static_cast<int>(blockIdx.x) >= *plan.tile_count) return;
  const TokenTile tile = plan.tiles[blockIdx.x];
  if (first >= tile.n) return;
  const int* places = plan.row_token + tile.row0 + first;
  if (t < kRows) to_scales[tile.row0 + first + t] = bf16_of_power(scales[places[t]]);
  if (t >= groups * 8) return;
  const Fp8Tile where{tile.row0, tile.n, groups};
  uint4 v[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i)
    v[i] = *reinterpret_cast<const uint4*>(codes + static_cast<size_t>(places[i]) * groups * 128 + t * 16);
#pragma unroll
  for (int i = 0; i < kRows; ++i) *reinterpret_cast<uint4*>(to + unit_at(where, t / 8, first + i, 2 * (t % 8))) = v[i];
}

}  // namespace

void place_rows(const ExchangeView& view, const RowPlan& plan, uint8_t* codes, uint16_t* scales, cudaStream_t stream) {
  const RankMemory& own = view.rank[view.me];
  const int groups = view.shape.d / 128;
  LaunchShape shape{.grid = dim3(plan.tile_capacity, (plan.max_tile_rows + kRows - 1) / kRows),
                    .block = dim3((groups * 8 + 31) / 32 * 32),
                    .stream = stream,
                    .early = true};
  launch("place_rows_kernel", place_rows_kernel, shape, own.codes, own.scales, groups, plan, codes, scales);
}

}  // namespace hadal::cuda

// Chooses the kernel of a format by the number of rows. The choice never changes a result (linear.h).
#pragma once

#include "ops/cuda/errors.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/linear_kernels.cuh"

namespace hadal::cuda {

constexpr int kFewRows = 16;

// Rows of a tile, and how many CTAs share the segments of one.
inline int tile_rows(int rows) { return rows <= 32 ? 32 : rows <= 64 ? 64 : 128; }
inline int64_t tile_count(int rows, int groups, int group_n) {
  const int bm = tile_rows(rows);
  return int64_t{(rows + bm - 1) / bm} * groups * ((group_n + 127) / 128);
}

// Wide tiles where the card has the shared memory for them, which only Hopper's is sure to have.
template <WeightFormat F, int BM>
bool tile_fits(const LinearProblem& p) {
  static const int most = [] {
    int device = 0, bytes = 0;
    HADAL_CUDA(cudaGetDevice(&device));
    HADAL_CUDA(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    return bytes;
  }();
  return LinearTile<F, BM>::shared_bytes(p.k) <= static_cast<size_t>(most);
}

template <WeightFormat F, int BM>
void launch_tile(const LinearProblem& p, cudaStream_t stream) {
  using T = LinearTile<F, BM>;
  launch("linear_tile", linear_tile<F, BM>,
         {.grid = dim3((p.rows + BM - 1) / BM, p.groups * ((p.group_n + T::BN - 1) / T::BN), p.split),
          .block = dim3(T::kThreads),
          .shared = T::shared_bytes(p.k),
          .stream = stream},
         p);
}

template <WeightFormat F>
void launch_format(const LinearProblem& p, cudaStream_t stream) {
  if (p.rows <= kFewRows) {
    constexpr int kOutputs = 16;
    launch("linear_few", linear_few<F>,
           {.grid = dim3(p.groups * ((p.group_n + kOutputs - 1) / kOutputs)),
            .block = dim3(32 * kMaxSegments),
            .stream = stream,
            .early = true},
           p);
    return;
  }
  const int rows = tile_rows(p.rows);
  if (rows == 128 && tile_fits<F, 128>(p)) return launch_tile<F, 128>(p, stream);
  if (rows >= 64 && tile_fits<F, 64>(p)) return launch_tile<F, 64>(p, stream);
  launch_tile<F, 32>(p, stream);
}

void launch_linear_bf16(const LinearProblem& problem, cudaStream_t stream);
void launch_linear_fp8(const LinearProblem& problem, cudaStream_t stream);
void launch_linear_mxfp4(const LinearProblem& problem, cudaStream_t stream);

}  // namespace hadal::cuda

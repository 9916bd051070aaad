// Up to 8 rows, where a weight is read once and time is latency. k is cut among the CTAs of a cluster and among the four
// warpgroups of each, so that groups of 128 of k are multiplied side by side and all of a CTA's weights are under way at
// once. Partial sums of the groups go to the CTA that owns the output, which adds them in ascending k as every other kernel
// does: the same bits. Rows may come as bf16: each CTA rounds the k that it multiplies.
#include "ops/cuda/fp8_linear.cuh"

namespace hadal::cuda {
namespace {

constexpr int kN = kFewRows, kWarpgroups = 4, kThreads = 128 * kWarpgroups;

struct Few {
  Fp8Problem p;
  int groups;  // of 128 of k, of a CTA
};

struct FewLayout {
  size_t rows, parts, scales, barriers, bytes;
  __host__ __device__ FewLayout(int groups, int k_groups, int cluster) {
    rows = size_t{8192} * groups;
    parts = rows + size_t{kN} * 128 * groups;
    scales = parts + sizeof(float) * 64 * kN * k_groups / cluster;
    barriers = scales + sizeof(float) * kN * k_groups;
    bytes = barriers + sizeof(uint64_t) * groups;
  }
};

template <int Cluster>
__global__ void __launch_bounds__(kThreads) fp8_few_kernel(const __grid_constant__ Few f) {
  extern __shared__ __align__(1024) uint8_t shared[];
  const Fp8Problem& p = f.p;
  const int k_groups = p.k / 128, rank = Cluster > 1 ? static_cast<int>(cluster_cta_rank()) : 0;
  const int block = blockIdx.x / Cluster, first = rank * f.groups;
  const int count = max(min(f.groups, k_groups - first), 0), rows = p.x.rows;
  const FewLayout layout(f.groups, k_groups, Cluster);
  auto* barriers = reinterpret_cast<uint64_t*>(shared + layout.barriers);
  auto* scales = reinterpret_cast<float*>(shared + layout.scales);  // [k / 128][kN], of all k
  auto* parts = reinterpret_cast<float*>(shared + layout.parts);    // [k / 128][kN][64 / Cluster]
  const int thread = threadIdx.x, lane16 = thread % 16;

  if (thread == 0) {
    for (int i = 0; i < count; ++i) mbarrier_init(&barriers[i], 1);
    mbarrier_init_fence();
    const uint8_t* weights = p.weights + (static_cast<int64_t>(first) * p.n + block * 64) * 128;
    for (int i = 0; i < count; ++i, weights += static_cast<int64_t>(p.n) * 128) {
      mbarrier_arrive_expect(&barriers[i], 8192);
      bulk_copy(shared + 8192 * i, weights, 8192, &barriers[i]);
    }
  }
  if constexpr (Cluster > 1) cluster_sync();  // the others have begun: their memory may be written
  wait_for_previous();
  let_next_start();

  // This CTA's k of the rows, and its scales to all.
  const int input = block * 64 / p.group_n * k_groups + first;
  for (int i = thread / 16; i < count * rows; i += kThreads / 16) {
    const int group = i / rows, row = i % rows;
    float scale;
    uint2 codes;
    if (p.x_bf16 != nullptr) {
      const int64_t source = p.x_row != nullptr ? p.x_row[row] : row;
      float v[8];
      unpack_bf16x8(*reinterpret_cast<const uint4*>(p.x_bf16 + source * p.x_stride +
                                                    static_cast<int64_t>(input + group) * 128 + lane16 * 8),
                    v);
      codes = q4_codes(v, scale);
    } else {
      codes = *reinterpret_cast<const uint2*>(fp8_chunk(p.x, input + group, row, lane16 / 2) + lane16 % 2 * 8);
      scale = p.x.scales[static_cast<int64_t>(input + group) * p.x.padded + row];
    }
    *reinterpret_cast<uint2*>(shared + layout.rows + (group * kN + row) * 128 + ((lane16 / 2 ^ row) << 4) +
                              lane16 % 2 * 8) = codes;
    if (lane16 < Cluster) {
      float* to = scales + (first + group) * kN + row;
      if constexpr (Cluster > 1)
        store_cluster(cluster_address(smem_address(to), lane16), scale);
      else
        *to = scale;
    }
  }
  fence_async_shared();
  __syncthreads();

  const int warpgroup = thread / 128, warp = thread % 128 / 32, row8 = thread % 32 / 4, pair = thread % 4;
  for (int i = warpgroup; i < count; i += kWarpgroups) {
    mbarrier_wait(&barriers[i], 0);
    float part[kN / 2];
    multiply_group<kN>(part, k_major_descriptor(smem_address(shared + 8192 * i)),
                       k_major_descriptor(smem_address(shared + layout.rows + kN * 128 * i)));
    wgmma_wait<0>();
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int column = 2 * pair + j % 2, output = warp * 16 + row8 + j / 2 * 8;
      constexpr int kOwned = 64 / Cluster;
      float* to = parts + ((first + i) * kN + column) * kOwned + output % kOwned;
      if (column < rows) {
        if constexpr (Cluster > 1)
          store_cluster(cluster_address(smem_address(to), output / kOwned), part[j]);
        else
          *to = part[j];
      }
    }
  }
  if constexpr (Cluster > 1)
    cluster_sync();
  else
    __syncthreads();

  constexpr int kOwned = 64 / Cluster;
  for (int i = thread; i < rows * kOwned; i += kThreads) {
    const int row = i / kOwned, output = block * 64 + rank * kOwned + i % kOwned;
    const float* weight_scales = p.weight_scales + output / 32;
    float sum = 0;
#pragma unroll 8
    for (int g = 0; g < k_groups; ++g)
      sum = fmaf(parts[(g * kN + row) * kOwned + i % kOwned],
                 scales[g * kN + row] * __ldg(weight_scales + g * (p.n / 32)), sum);
    p.y[row * p.y_stride + output] = to_bf16(sum);
  }
}

template <int Cluster>
void launch_few(const Few& f, cudaStream_t stream) {
  launch("fp8_few", fp8_few_kernel<Cluster>,
         {.grid = dim3(f.p.n / 64 * Cluster),
          .block = dim3(kThreads),
          .shared = FewLayout(f.groups, f.p.k / 128, Cluster).bytes,
          .stream = stream,
          .early = true,
          .cluster = Cluster},
         f);
}

}  // namespace

void fp8_few(const Fp8Problem& p, cudaStream_t stream) {
  // CTAs enough for the multiprocessors, and few enough groups that two of them fit on one.
  int cluster = 1;
  while (cluster < 8 && ((p.k / 128 + cluster - 1) / cluster > 10 || p.n / 64 * cluster < 128)) cluster *= 2;
  const Few f{p, (p.k / 128 + cluster - 1) / cluster};
  switch (cluster) {
    case 1: return launch_few<1>(f, stream);
    case 2: return launch_few<2>(f, stream);
    case 4: return launch_few<4>(f, stream);
    default: return launch_few<8>(f, stream);
  }
}

}  // namespace hadal::cuda

// Boxes of a matrix (tensor_map.h, a __grid_constant__ parameter) to shared memory, of one CTA or of a cluster's.
#pragma once

#include "ops/cuda/hopper.cuh"

namespace hadal::cuda {

// The box that begins at `column` and `row`; completes on `bar`.
__device__ __forceinline__ void box_copy(void* to, const void* map, int column, int row, uint64_t* bar) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          smem_address(to)),
      "l"(map), "r"(column), "r"(row), "r"(smem_address(bar))
      : "memory");
}
// To the same place in every CTA whose bit is set in `ctas`; each one's barrier counts the bytes.
__device__ __forceinline__ void box_copy_to_cluster(void* to, const void* map, int column, int row, uint64_t* bar,
                                                    uint16_t ctas) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(smem_address(to)),
      "l"(map), "r"(column), "r"(row), "r"(smem_address(bar)), "h"(ctas)
      : "memory");
}

// An arrival at the same barrier of another CTA of the cluster. Not .release.cluster, which would be a fence of all memory:
// what comes before it here are reads of the matrix unit, which are done.
__device__ __forceinline__ void mbarrier_arrive_at(uint64_t* bar, int cta) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(cluster_address(smem_address(bar), cta))
               : "memory");
}

}  // namespace hadal::cuda

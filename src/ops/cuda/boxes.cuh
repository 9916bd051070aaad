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

// Boxes of all parts of some rows (slice_boxes of tensor_map.h): to shared memory, and back as this thread's bulk copies.
// `policy` is for L2.
__device__ __forceinline__ void slice_copy(void* to, const void* map, int column, int row, uint64_t* bar) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
          "r"(smem_address(to)),
      "l"(map), "r"(column), "r"(row), "r"(0), "r"(smem_address(bar))
      : "memory");
}
__device__ __forceinline__ void slice_copy(void* to, const void* map, int column, int row, uint64_t* bar,
                                           uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(smem_address(to)),
      "l"(map), "r"(column), "r"(row), "r"(0), "r"(smem_address(bar)), "l"(policy)
      : "memory");
}
__device__ __forceinline__ void slice_store(const void* map, int column, int row, const void* from, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group.L2::cache_hint [%0, {%1, %2, %3}], [%4], %5;" ::"l"(map),
      "r"(column), "r"(row), "r"(0), "r"(smem_address(from)), "l"(policy)
      : "memory");
}
__device__ __forceinline__ void bulk_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// The shared memory that this thread's copies read may be written again.
__device__ __forceinline__ void bulk_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
// Brings a description near, for the first copy.
__device__ __forceinline__ void prefetch_map(const void* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// An arrival at the same barrier of another CTA of the cluster. Not .release.cluster, which would be a fence of all memory:
// what comes before it here are reads of the matrix unit, which are done.
__device__ __forceinline__ void mbarrier_arrive_at(uint64_t* bar, int cta) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(cluster_address(smem_address(bar), cta))
               : "memory");
}

}  // namespace hadal::cuda

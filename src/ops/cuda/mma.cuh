// Warp-level tensor core product and asynchronous copies, as thin as PTX allows.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "ops/cuda/hopper.cuh"

namespace hadal::cuda {

// d += A B for one 16 x 8 tile over 16 values of k; bf16 operands, fp32 sums. With g = lane / 4 and t = lane % 4:
//   a0, a1 = A[g], A[g + 8] at k = 2t, 2t + 1      a2, a3 the same rows at k = 2t + 8, 2t + 9
//   b0 = B[n = g] at k = 2t, 2t + 1                b1 = B[n = g] at k = 2t + 8, 2t + 9
//   d0, d1 = D[g][2t, 2t + 1]                      d2, d3 = D[g + 8][2t, 2t + 1]
// Which 16 values of k meet in one instruction is free, as long as A and B agree.
__device__ __forceinline__ void mma_bf16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                         uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// 16 bytes global to shared; zeros when `valid` is false (the address is then not read).
__device__ __forceinline__ void copy_async_16(void* shared, const void* global, bool valid) {
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Pending>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

}  // namespace hadal::cuda

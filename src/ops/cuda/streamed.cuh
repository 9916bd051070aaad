// Products of a few rows with at most 64 outputs, whose bytes stream through a ring of stages: 64 values of k each, outputs
// (operand A) in front of rows (operand B), in 128-byte swizzle. One thread supplies, a warpgroup multiplies.
// `Shared` has stages[], full[] and empty[]; four warps empty a stage.
#pragma once

#include "ops/cuda/boxes.cuh"
#include "ops/cuda/wgmma.cuh"

namespace hadal::cuda {

// Outputs of the first `ahead` steps are under way: bring_outputs(step, stage) asks for those of another one, for whose bytes
// and the rows' the barrier is told to wait.
template <int Outputs, class Shared, int Stages, class Bring>
__device__ __forceinline__ void supply_stages(Shared& s, RingPosition<Stages>& ring, int steps, int ahead,
                                              const void* x, int first, int row0, const Bring& bring_outputs) {
  for (int step = 0; step < steps; ++step) {
    if (step >= ahead) {
      mbarrier_wait(&s.empty[ring.stage], ring.parity ^ 1);
      bring_outputs(step, ring.stage);
    }
    box_copy(s.stages[ring.stage] + Outputs * 128, x, first + 64 * step, row0, &s.full[ring.stage]);
    ring.advance();
  }
}

// All four warps, of which each frees a stage.
template <int N, int Outputs, class Shared, int Stages>
__device__ __forceinline__ void multiply_stages(Shared& s, RingPosition<Stages>& ring, int steps, int lane,
                                                float (&sum)[N / 2]) {
  int previous = -1;
  for (int step = 0; step < steps; ++step) {
    mbarrier_wait(&s.full[ring.stage], ring.parity);
    const uint64_t a = k_major_descriptor(smem_address(s.stages[ring.stage]));
    const uint64_t b = k_major_descriptor(smem_address(s.stages[ring.stage]) + Outputs * 128);
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < 4; ++j) Wgmma<N>::ss(sum, a + 2 * j, b + 2 * j, j > 0 || step > 0);
    wgmma_commit();
    wgmma_wait<1>();  // the step before is done: its stage is free
    if (previous >= 0 && lane == 0) mbarrier_arrive(&s.empty[previous]);
    previous = ring.stage;
    ring.advance();
  }
  Wgmma<N>::await(sum);
}

}  // namespace hadal::cuda

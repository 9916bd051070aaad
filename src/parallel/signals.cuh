// What ranks tell each other through memory: numbers of steps, behind what they announce. PTX ISA 9.0, system scope.
#pragma once

#include "parallel/exchange_kernels.h"

namespace hadal::cuda {

__device__ __forceinline__ void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
__device__ __forceinline__ uint32_t load_acquire_system(const uint32_t* p) {
  uint32_t v;
  asm volatile("ld.acquire.sys.global.b32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ void store_release_system(uint32_t* p, uint32_t v) {
  asm volatile("st.release.sys.global.b32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
__device__ __forceinline__ uint64_t nanoseconds() {
  uint64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

// Waits until the number has reached `step`, at most as long as the view says. False, now and ever after, if it did not
// come.
__device__ inline bool await_step(const ExchangeView& view, ExchangePart part, int source, const uint32_t* number,
                                  uint32_t step) {
  ExchangeSignals& own = *view.rank[view.me].signals;
  uint64_t begin = 0;
  while (true) {
    const uint32_t seen = load_acquire_system(number);
    if (static_cast<int32_t>(seen - step) >= 0) return true;
    if (load_acquire_system(&own.failed) != 0) return false;
    const uint64_t now = nanoseconds();
    if (begin == 0) begin = now;
    if (now - begin > view.patience_ns) {
      if (atomicExch(&own.failed, 1) == 0) {
        *view.failure = {1, part, source, step, seen};
        fence_system();
      }
      return false;
    }
    __nanosleep(40);
  }
}

// One thread of every block at its end, behind what the block has done: true in the last one.
__device__ __forceinline__ bool last_block(uint32_t& blocks_done) {
  fence_system();
  if (atomicAdd(&blocks_done, 1) != gridDim.x - 1) return false;
  blocks_done = 0;
  fence_system();
  return true;
}

}  // namespace hadal::cuda

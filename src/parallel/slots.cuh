// A ring of row slots in shared memory that a warp fills with bulk copies and other warps empty.
#pragma once

#include "ops/cuda/hopper.cuh"

namespace hadal::cuda {

constexpr int kMaxSlots = 24;

struct SlotBarriers {
  uint64_t full[kMaxSlots], empty[kMaxSlots];
  __device__ void init(int slots, int consumers) {
    for (int i = 0; i < slots; ++i) {
      mbarrier_init(&full[i], 1);
      mbarrier_init(&empty[i], consumers);
    }
    mbarrier_init_fence();
  }
};

struct SlotPosition {
  int slot = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance(int by, int slots) {
    for (slot += by; slot >= slots; slot -= slots) parity ^= 1;
  }
};

// As many as fit: so a block has a multiprocessor for itself.
inline int slots_for(size_t head_bytes, int row_bytes) {
  const int fit = static_cast<int>((size_t{226} * 1024 - head_bytes) / row_bytes);
  return fit < kMaxSlots ? fit : kMaxSlots;
}

}  // namespace hadal::cuda

// The GPU's own layout of a feed-forward's weights, made once at load from the published bytes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "ops/types.h"

namespace hadal::cuda {

// Which rows the weights are packed for: bf16 or FP8 (codec.cuh). The same size, decoded differently.
enum class ExpertLayout { bf16_rows, fp8_rows };

// Sizes of the two packed matrices: gate and up rows interleaved, and down. Both 0 when the matrix kernel does not take
// this shape or format (it wants MXFP4, width a multiple of 128, for FP8 rows of 256, hidden size a multiple of 256); the general kernel then
// reads the published bytes.
struct PackedFeedForward {
  size_t gate_up = 0;
  size_t down = 0;
  explicit operator bool() const { return gate_up != 0; }
};
PackedFeedForward packed_feed_forward(const FeedForward& weights, ExpertLayout layout);

// Packs weights whose `data` and `scale` are in device memory. Afterwards the published bytes are no longer needed: set
// w1.packed = w3.packed = gate_up and w2.packed = down, both aligned to 256 bytes.
void pack_feed_forward(const FeedForward& weights, ExpertLayout layout, void* gate_up, void* down, cudaStream_t stream);

}  // namespace hadal::cuda

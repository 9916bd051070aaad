// The experts without matrix instructions: any shape, any weight format, published bytes. For test checkpoints.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/types.h"

namespace hadal::cuda {

// One routing choice (row, k) is one unit of work; choices of experts that are not local are skipped.
struct GeneralExpertsArgs {
  const FeedForward* experts = nullptr;  // [experts], device; data null where not local
  const int32_t* ids = nullptr;          // [rows, topk]
  const float* weights = nullptr;        // [rows, topk]
  int rows = 0;
  int topk = 0;
  int d = 0;
  int width = 0;
  float limit = 0;
  const uint16_t* x = nullptr;    // bf16 [rows, d]
  uint16_t* activated = nullptr;  // bf16 [rows * topk, width]
  uint16_t* out = nullptr;        // bf16 [rows * topk, d]
  int* choice_row = nullptr;      // [rows * topk]: where combine_rows finds a choice's output, or -1
  Numerics numerics = Numerics::bf16;
};
void general_experts(const GeneralExpertsArgs& args, cudaStream_t stream);

// Channels that share a scale where inputs of FP4 linears with k channels are rounded to FP8; 0 where they are not.
int round_group(Numerics numerics, int k);

// activated = bf16(weight * silu(gate) * up) with the clamps, weight 1.
void swiglu(const uint16_t* gate, const uint16_t* up, uint16_t* activated, int64_t count, float limit,
            cudaStream_t stream);

// Q1 (group 32) or Q5 (group k) on rows of k values, from x to y, which may be x; the last group of a row may be shorter.
void round_inputs(const uint16_t* x, uint16_t* y, int64_t rows, int k, int group, cudaStream_t stream);

}  // namespace hadal::cuda

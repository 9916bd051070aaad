// The inner loops of the CPU operators, compiled once per instruction set. Everything here runs on one thread.
//
// Reductions are the same for every number of rows: an output element is 16 lanes that add up ascending k, 32 to
// 128 columns at a time, and one final tree. How many rows or outputs a loop keeps in registers does not touch that order.
#pragma once

#include <cstdint>

#include "base/cpu_features.h"
#include "base/row_format.h"
#include "ops/cpu/read_ahead.h"
#include "ops/types.h"

namespace hadal::cpu {

// How a linear's input rows are laid out.
enum class Layout : uint8_t {
  split,      // f32; of every 32 columns the 16 even ones first, then the 16 odd ones, as weights unpack naturally
  pairs,      // bf16 in order, for the bf16 dot product: inputs must lie on the bf16 grid
  pairs_fp8,  // bf16 in the order in which FP8 and
  pairs_fp4,  // MXFP4 weights are unpacked most cheaply (blocks_fp8.inc, blocks_fp4.inc)
  digits,     // whole numbers of two bytes with a scale a block, for MXFP4 weights as bytes (digits.inc)
};

constexpr int64_t element_bytes(Layout layout) { return layout == Layout::split || layout == Layout::digits ? 4 : 2; }
// A prepared row is filled up with zeros to a multiple of this.
constexpr int layout_columns(Layout layout) {
  return layout == Layout::pairs_fp4 || layout == Layout::digits ? 128 : layout == Layout::pairs_fp8 ? 64 : 32;
}

// A worker's memory for decoded weights, packed rows and partial sums.
constexpr int64_t kTileBytes = int64_t{2} << 20;
// Outputs that are decoded together when there are many rows: 32 rows of 5120 in bf16 take a third of the second-level
// cache.
constexpr int kTileOutputs = 32;
// Up to so many rows a linear layer is bound by reading its weight.
constexpr int kDirectRows = 6;

// How a linear's input is rounded before it is multiplied: Q1 in `official` numerics, in `fp8` Q4 for FP8 weights and
// Q5 for FP4 weights.
enum class InputRounding : uint8_t { none, q1, q4, q5 };

struct LinearTask {
  const Weight* weight = nullptr;
  int n0 = 0, n1 = 0;                // outputs
  const void* x = nullptr;           // prepared rows
  int64_t x_stride = 0;              // elements from one row to the next
  const int32_t* x_index = nullptr;  // [rows] row of x, null = 0, 1, ..
  int rows = 0;
  float* y = nullptr;  // y[r * y_stride + n - n0]
  int64_t y_stride = 0;
  bool round = false;        // to bf16
  void* tile = nullptr;      // kTileBytes, 64-byte aligned
  Reader* reader = nullptr;  // of the worker
  int pass = 0, passes = 1;  // the outputs are computed in so many passes, some rows in each
};

// One query row of sparse attention and some of its heads.
struct AttentionTask {
  const uint8_t* const* keys = nullptr;  // [count] packed rows: first `window_count` fp8_ue8m0_32, then fp4_e4m3_16
  int count = 0;
  int window_count = 0;
  int head_dim = 0;
  int heads = 0;
  float scale = 0;
  const float* sink = nullptr;  // [heads]
  const float* q = nullptr;     // [heads, head_dim]
  float* o = nullptr;           // [heads, head_dim], before the inverse rotation
  bool round = false;           // probabilities and output to bf16
  void* scratch = nullptr;      // attention_scratch() bytes, 64-byte aligned
  // Of the worker, which asks for up to `ahead` bytes of what it reads later: memory would be idle.
  Reader* reader = nullptr;
  int64_t ahead = 0;
};

// Index scores of 16 keys for some query rows.
struct IndexTask {
  const uint8_t* keys[16] = {};  // packed fp4_ue8m0_32 rows; all 16 are read
  int count = 16;                // how many are wanted
  int heads = 0;
  int dim = 0;
  int rows = 0;
  const void* const* query = nullptr;    // [rows] -> [heads, dim], f32 or (pairs) bf16
  const float* const* weight = nullptr;  // [rows] -> [heads]
  float* const* score = nullptr;         // [rows] -> where the 16 scores start
  bool bf16_scores = false;
};

// Columns [c0, c1) of all copies of one row.
struct StreamTask {
  int copies = 0, d = 0, c0 = 0, c1 = 0;
  const float* h = nullptr;     // [copies, d]
  const float* y = nullptr;     // [d] or null
  const float* post = nullptr;  // [copies]
  const float* comb = nullptr;  // [copies, copies]
  const float* pre = nullptr;   // [copies]
  const float* fn = nullptr;    // [mixes, copies * d] or null
  int mixes = 0;
  float* out_h = nullptr;  // [copies, d] or null
  float* out_x = nullptr;  // [d] or null: the collapse before its norm
  float* sums = nullptr;   // [mixes + 2]: partial mixes, sum of h'^2, sum of x^2
  bool round = false;
};

struct Kernels {
  Isa isa = Isa::scalar;
  bool has_pairs = false;
  bool has_digits = false;
  bool has_tiles = false;

  // One row of k columns into `layout`.
  void (*prepare)(const float* x, int k, Layout layout, InputRounding rounding, void* out) = nullptr;
  void (*linear)(const LinearTask& task, Layout layout) = nullptr;
  // y = norm * x / rms(x); x and y may be the same.
  void (*rms_norm)(const float* x, const uint16_t* norm, int n, float eps, bool round, float* y) = nullptr;
  // y *= norm * (1 / sqrt(mean_square + eps))
  void (*scale_norm)(float* y, const uint16_t* norm, int n, float inverse_rms, bool round) = nullptr;
  // Rotates the pairs of x[dim] by cos_sin[dim]: (cos, sin) of each pair.
  void (*rotate)(float* x, const float* cos_sin, int dim, bool inverse, bool round) = nullptr;
  // out = bf16( weight * silu(min(gate, limit)) * clamp(up, -limit, limit) )
  void (*swiglu)(const float* gate, const float* up, float weight, float limit, int n, bool round,
                 float* out) = nullptr;
  void (*attention)(const AttentionTask& task, Layout layout) = nullptr;
  void (*index_scores)(const IndexTask& task, Layout layout) = nullptr;
  // Of rows whose tasks differ in their rows only.
  void (*stream)(const StreamTask* tasks, int rows) = nullptr;
  // out[d] = the mean of h[copies, d]
  void (*mean)(const float* h, int copies, int d, bool round, float* out) = nullptr;
  // sums of h^2, key^2 and h * (q_weight * k_weight) * key
  void (*engram_sums)(const float* h, const float* key, const uint16_t* q, const uint16_t* k, int d,
                      float sums[3]) = nullptr;
  // h = bf16(h + gate * value)
  void (*engram_add)(float* h, const float* value, float gate, int d, bool round) = nullptr;
  // y += x, then rounded to bf16 when asked; any n
  void (*accumulate)(float* y, const float* x, int n, bool round) = nullptr;
  void (*unpack_bf16)(const uint16_t* x, int n, float* out) = nullptr;
};

const Kernels& kernels(Isa isa);

// Bytes of AttentionTask::scratch.
int64_t attention_scratch(int keys, int head_dim, int heads, Layout layout);

}  // namespace hadal::cpu

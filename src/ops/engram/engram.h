// Engram: hashed n-gram rows, gated into the residual copies.       spec 3.9
#pragma once

#include "ops/types.h"

namespace hadal {

// An Engram table: rows of `dim` e4m3 codes, and dim/32 ue8m0 scales a row, as published (two arrays).
struct EngramTable {
  const uint8_t* codes = nullptr;   // [table rows, dim]
  const uint8_t* scales = nullptr;  // [table rows, dim / 32]
  int64_t table_rows = 0;
  int dim = 0;
  bool on_host = false;  // in host memory, which the device reads over the bus: asked for early (Context::aside)
};

// out[r] = concatenation of the dequantised rows index[r, 0..columns).
struct EngramGatherArgs {
  int rows = 0;
  int columns = 0;
  const uint32_t* index = nullptr;  // [rows, columns], each < table_rows
  EngramTable table;
  Tensor out;  // [rows, columns * dim], as Operators::linear_input has it for the linear behind
};

// kvE = wkv e;  for each copy c: h_c = bf16( h_c + gate_c * value ), the gate from q_weight, k_weight, h_c and key_c.
// Rows whose position is dead (image tokens) have gate 0.
struct EngramApplyArgs {
  int rows = 0;
  int copies = 4;
  int d = 0;
  float norm_eps = 1e-20f;
  Tensor e;                            // [rows, columns * dim], as Operators::linear_input has it for wkv
  Weight wkv;                          // [(copies + 1) * d, columns * dim]
  const uint16_t* q_weight = nullptr;  // bf16 [copies, d]
  const uint16_t* k_weight = nullptr;  // bf16 [copies, d]
  const uint8_t* dead = nullptr;       // [rows] or null
  Tensor h;                            // activations [rows, copies * d], in place
  Tensor gate;                         // f32 [rows, copies], optional: for tests and traces
};

}  // namespace hadal

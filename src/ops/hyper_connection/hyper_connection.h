// Hyper-connections: the residual stream of a token is `copies` parallel vectors. One pass writes the previous
// sub-layer's output into them, mixes, and hands the next sub-layer its normalised input.       spec 3.2
#pragma once

#include "ops/types.h"

namespace hadal {

struct HyperConnectionWeights {
  const float* fn = nullptr;     // [(2 + copies) * copies, copies * d]
  const float* base = nullptr;   // [(2 + copies) * copies]
  const float* scale = nullptr;  // [3]
};

// The residual state of some rows: h, and the coefficients that the last mixing left for the next two steps.
struct Streams {
  Tensor h;     // activations [rows, copies * d], copy-major
  Tensor pre;   // f32 [rows, copies]           weights of the collapse that feeds the NEXT sub-layer but one
  Tensor post;  // f32 [rows, copies]           how the running sub-layer's output is written
  Tensor comb;  // f32 [rows, copies * copies]  [j, k]: source copy j, destination copy k
};

// For every output row r, with s = source[r] (r when null) and t = y_source[r] (r when null):
//   h'[k]  = bf16( post[s][k] * y[t] + sum_j comb[s][j,k] * h[s][j] )     when y is given, else h[s]
//   x      = bf16( norm * rms( bf16( sum_j pre[s][j] * h'[j] ) ) )        when norm is given
//   (pre', post', comb') = mixes(h')                                      when mix is given; else pre' = pre[s] when
//                                                                         out.pre is given
// out.h may be the same memory as in.h when source is null. All arithmetic inside is fp32.
struct HyperConnectionArgs {
  int rows = 0;
  int copies = 4;
  int d = 0;
  int sinkhorn_iters = 20;
  float hc_eps = 1e-6f;
  float norm_eps = 1e-20f;

  Streams in;
  Tensor y;                           // activations [.., d] or empty
  const int32_t* source = nullptr;    // [rows] row of `in`
  const int32_t* y_source = nullptr;  // [rows] row of `y`

  Streams out;  // out.h may be empty when only x is wanted
  const HyperConnectionWeights* mix = nullptr;
  const uint16_t* norm = nullptr;  // bf16 [d]
  Tensor x;                        // activations [rows, d]; may be empty where x_rounded is given
  Tensor x_rounded;                // x as Operators::linear_input has it where that is u8, optional
  Tensor collapsed;                // activations [rows, d], optional: bf16( sum_j pre[s][j] * h'[j] ), before the norm
};

// Mean over the copies, for the draft module: out[r, :] = bf16( mean_j h[source[r]][j] ), written at column `column` of
// `out` [rows, columns].      spec 5.1, 10.9
struct TapArgs {
  int rows = 0;
  int copies = 4;
  int d = 0;
  Tensor h;
  const int32_t* source = nullptr;
  Tensor out;
  int column = 0;
};

}  // namespace hadal

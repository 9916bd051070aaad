// What becomes of a piece's sums: SwiGLU and `a`, or the rows of the second product. Results pass through shared memory, so
// that rows are written 64 or 128 bytes at a time.
#pragma once

#include "ops/experts/grouped_kernel.cuh"

namespace hadal::cuda {

__device__ __forceinline__ float low_bf16(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_bf16(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

// Of values that bf16 holds.
__device__ __forceinline__ float swiglu(float gate, float up, float limit, float weight) {
  gate = fminf(gate, limit);
  up = fminf(fmaxf(up, -limit), limit);
  return weight * (__fdividef(gate, 1.0f + __expf(-gate)) * up);
}

// Writes [n tokens][8 * Chunks values] from `results` to rows of `out` (row stride in values), each 16 bytes changed
// on the way.
template <int Chunks, class Change>
__device__ __forceinline__ void write_out(const uint8_t* results, uint16_t* out, int stride, int n, int thread,
                                          const Change& change) {
  const int chunk = thread % Chunks;
#pragma unroll 4
  for (int i = thread / Chunks; i < n; i += 128 / Chunks) {
    const uint4 v = *reinterpret_cast<const uint4*>(results + i * 128 + ((chunk ^ (i & 7)) << 4));
    *reinterpret_cast<uint4*>(out + static_cast<size_t>(i) * stride + chunk * 8) = change(v);
  }
}
template <int Chunks>
__device__ __forceinline__ void write_out(const uint8_t* results, uint16_t* out, int stride, int n, int thread) {
  write_out<Chunks>(results, out, stride, n, thread, [](uint4 v) { return v; });
}

// A warpgroup has written its part of `a`.
__device__ __forceinline__ void part_done(const Work& work, const GroupedArgs& args, int group, int thread) {
  named_barrier(1 + group, 128);
  if (thread == 0) { add_release(&args.plan.done[work.tile], 1); }
}

// A warpgroup's part of `a`, staged in its own buffer, goes to memory, changed by M::leaving.
template <class M, class S>
__device__ __forceinline__ void hand_over(S& s, const Work& work, const GroupedArgs& args, int group, int thread,
                                          int n) {
  constexpr int kValues = 128 / M::Tiles::kGroups;
  uint16_t* out = args.activated + static_cast<size_t>(work.row0) * args.width + work.band * 128 + group * kValues;
  named_barrier(1 + group, 128);
  write_out<kValues / 8>(s.results[group], out, args.width, n, thread, [&](uint4 v) { return M::leaving(args, v); });
  part_done(work, args, group, thread);
}

// What the sums of a weight row become: scaled, and rounded to bf16. 16-bit rows have no scales of their own; of FP8 rows see
// grouped_fp8.cuh.
template <bool Scaled>
class RowFactor {
 public:
  __device__ explicit RowFactor(float scale) : scale_(scale) {}
  __device__ uint32_t round(float first, float second, uint32_t) const {
    return pack_bf16x2(first * scale_, second * scale_);
  }

 private:
  float scale_;
};

// The scales of the tokens of columns `column` and the next.
template <class M, class F>
__device__ __forceinline__ uint32_t token_scales(const F& factors, int column) {
  if constexpr (M::kScaled)
    return *reinterpret_cast<const uint32_t*>(factors.token_scale + column);
  else
    return 0;
}

// One block's rows of the second product.
template <class M, int N, class F>
__device__ __forceinline__ void write_block(uint8_t* results, uint16_t* out, int stride, int n, int barrier, int thread,
                                            const F& factors, const float (&sum)[N / 2], RowFactor<M::kScaled> low,
                                            RowFactor<M::kScaled> high) {
  const int warp = thread >> 5, lane = thread & 31;
  const uint32_t address =
      smem_address(results) + (lane & 7) * 128 + (((2 * warp + ((lane >> 3) & 1)) ^ (lane & 7)) << 4);
#pragma unroll
  for (int j = 0; j < N / 8; ++j) {
    const uint32_t t = token_scales<M>(factors, 8 * j + 2 * (lane & 3));
    store_matrix2_transposed(address + j * 1024, low.round(sum[4 * j], sum[4 * j + 1], t),
                             high.round(sum[4 * j + 2], sum[4 * j + 3], t));
  }
  named_barrier(barrier, 128);
  write_out<8>(results, out, stride, n, thread);
}

// SwiGLU of a block's gate and up rows, two tokens of columns 8 j.
template <class M, class F>
__device__ __forceinline__ uint32_t swiglu_pair(const F& factors, int column, const float* sum,
                                                RowFactor<M::kScaled> low, RowFactor<M::kScaled> high, float limit) {
  const float2 w = *reinterpret_cast<const float2*>(factors.row_weight + column);
  const uint32_t t = token_scales<M>(factors, column);
  const uint32_t gate = low.round(sum[0], sum[1], t), up = high.round(sum[2], sum[3], t);
  return pack_bf16x2(swiglu(low_bf16(gate), low_bf16(up), limit, w.x),
                     swiglu(high_bf16(gate), high_bf16(up), limit, w.y));
}

template <class M, int N, class S>
__device__ __forceinline__ void finish_two_blocks(S& s, const Work& work, const GroupedArgs& args, int group,
                                                  int thread, const float (&sum0)[N / 2], const float (&sum1)[N / 2]) {
  const int warp = thread >> 5, lane = thread & 31;
  const auto& factors = s.factors[work.factors];
  const auto factor = [&](int i) {
    return RowFactor<M::kScaled>(
        factors.row_scale[(2 * group + (i >> 1)) * 64 + warp * 16 + (lane >> 2) + (i & 1) * 8]);
  };
  const RowFactor<M::kScaled> row_scale[4] = {factor(0), factor(1), factor(2), factor(3)};
  const int barrier = 1 + group, n = opaque(work.n);
  named_barrier(barrier, 128);  // the results of the piece before have left
  if (work.product == 0) {
    const int chunk = ((lane >> 3) & 1) * 4 + warp;
    const uint32_t address = smem_address(s.results[group]) + (lane & 7) * 128 + ((chunk ^ (lane & 7)) << 4);
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
      const int column = 8 * j + 2 * (lane & 3);
      store_matrix2_transposed(address + j * 1024,
                               swiglu_pair<M>(factors, column, sum0 + 4 * j, row_scale[0], row_scale[1], args.limit),
                               swiglu_pair<M>(factors, column, sum1 + 4 * j, row_scale[2], row_scale[3], args.limit));
    }
    hand_over<M>(s, work, args, group, thread, n);
  } else {
    uint16_t* out = args.out + static_cast<size_t>(work.row0) * args.d + work.band * kTileM + group * 128;
    write_block<M, N>(s.results[group], out, args.d, n, barrier, thread, factors, sum0, row_scale[0], row_scale[1]);
    named_barrier(barrier, 128);
    write_block<M, N>(s.results[group], out + 64, args.d, n, barrier, thread, factors, sum1, row_scale[2],
                      row_scale[3]);
  }
}

// The same for a group with one block.
template <class M, int N, class S>
__device__ __forceinline__ void finish_one_block(S& s, const Work& work, const GroupedArgs& args, int group, int thread,
                                                 const float (&sum)[N / 2]) {
  const int warp = thread >> 5, lane = thread & 31;
  const auto& factors = s.factors[work.factors];
  const RowFactor<M::kScaled> low(factors.row_scale[group * 64 + warp * 16 + (lane >> 2)]);
  const RowFactor<M::kScaled> high(factors.row_scale[group * 64 + warp * 16 + (lane >> 2) + 8]);
  const int barrier = 1 + group, n = opaque(work.n);
  named_barrier(barrier, 128);  // the results of the piece before have left
  if (work.product == 0) {
    const uint32_t address = smem_address(s.results[group]) + (lane & 7) * 128 + ((warp ^ (lane & 7)) << 4);
#pragma unroll
    for (int j = 0; j < N / 8; ++j)
      store_matrix1_transposed(address + j * 1024,
                               swiglu_pair<M>(factors, 8 * j + 2 * (lane & 3), sum + 4 * j, low, high, args.limit));
    hand_over<M>(s, work, args, group, thread, n);
  } else {
    uint16_t* out = args.out + static_cast<size_t>(work.row0) * args.d + work.band * kTileM + group * 64;
    write_block<M, N>(s.results[group], out, args.d, n, barrier, thread, factors, sum, low, high);
  }
}

}  // namespace hadal::cuda

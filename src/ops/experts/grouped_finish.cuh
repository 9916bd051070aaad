// What becomes of a piece's sums: SwiGLU and `a`, or the rows of the second product. Results pass through shared memory, so
// that rows are written 64 or 128 bytes at a time.
#pragma once

#include "ops/experts/grouped_kernel.cuh"

namespace hadal::cuda {

__device__ __forceinline__ float swiglu(float gate, float up, float limit, float weight) {
  gate = fminf(round_to_bf16(gate), limit);
  up = fminf(fmaxf(round_to_bf16(up), -limit), limit);
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

// One block's rows of the second product.
template <int N>
__device__ __forceinline__ void write_block(uint8_t* results, uint16_t* out, int stride, int n, int barrier, int thread,
                                            const float (&sum)[N / 2], float low, float high) {
  const int warp = thread >> 5, lane = thread & 31;
  const uint32_t address =
      smem_address(results) + (lane & 7) * 128 + (((2 * warp + ((lane >> 3) & 1)) ^ (lane & 7)) << 4);
#pragma unroll
  for (int j = 0; j < N / 8; ++j)
    store_matrix2_transposed(address + j * 1024, pack_bf16x2(sum[4 * j] * low, sum[4 * j + 1] * low),
                             pack_bf16x2(sum[4 * j + 2] * high, sum[4 * j + 3] * high));
  named_barrier(barrier, 128);
  write_out<8>(results, out, stride, n, thread);
}

// M says how `a` leaves: where a group stages it (staging, first_chunk), when it may (await_staging), and what then
// becomes of it (hand_over).
template <class M, int N, class S>
__device__ __forceinline__ void finish_two_blocks(S& s, const Work& work, const GroupedArgs& args, int group,
                                                  int thread, const float (&sum0)[N / 2], const float (&sum1)[N / 2]) {
  const int warp = thread >> 5, lane = thread & 31;
  const Factors& factors = s.factors[work.factors];
  float row_scale[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    row_scale[i] = factors.row_scale[(2 * group + (i >> 1)) * 64 + warp * 16 + (lane >> 2) + (i & 1) * 8];
  const int barrier = 1 + group, n = opaque(work.n);
  M::await_staging(s, work);
  named_barrier(barrier, 128);  // the results of the piece before have left
  if (work.product == 0) {
    const int chunk = M::first_chunk(group) + ((lane >> 3) & 1) * 4 + warp;
    const uint32_t address = smem_address(M::staging(s, group)) + (lane & 7) * 128 + ((chunk ^ (lane & 7)) << 4);
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
      const float2 w = *reinterpret_cast<const float2*>(factors.row_weight + 8 * j + 2 * (lane & 3));
      const uint32_t first =
          pack_bf16x2(swiglu(sum0[4 * j] * row_scale[0], sum0[4 * j + 2] * row_scale[1], args.limit, w.x),
                      swiglu(sum0[4 * j + 1] * row_scale[0], sum0[4 * j + 3] * row_scale[1], args.limit, w.y));
      const uint32_t second =
          pack_bf16x2(swiglu(sum1[4 * j] * row_scale[2], sum1[4 * j + 2] * row_scale[3], args.limit, w.x),
                      swiglu(sum1[4 * j + 1] * row_scale[2], sum1[4 * j + 3] * row_scale[3], args.limit, w.y));
      store_matrix2_transposed(address + j * 1024, first, second);
    }
    M::hand_over(s, work, args, group, thread, n);
  } else {
    uint16_t* out = args.out + static_cast<size_t>(work.row0) * args.d + work.band * kTileM + group * 128;
    write_block<N>(s.results[group], out, args.d, n, barrier, thread, sum0, row_scale[0], row_scale[1]);
    named_barrier(barrier, 128);
    write_block<N>(s.results[group], out + 64, args.d, n, barrier, thread, sum1, row_scale[2], row_scale[3]);
  }
}

// The same for a group with one block.
template <class M, int N, class S>
__device__ __forceinline__ void finish_one_block(S& s, const Work& work, const GroupedArgs& args, int group, int thread,
                                                 const float (&sum)[N / 2]) {
  const int warp = thread >> 5, lane = thread & 31;
  const Factors& factors = s.factors[work.factors];
  const float low = factors.row_scale[group * 64 + warp * 16 + (lane >> 2)];
  const float high = factors.row_scale[group * 64 + warp * 16 + (lane >> 2) + 8];
  const int barrier = 1 + group, n = opaque(work.n);
  M::await_staging(s, work);
  named_barrier(barrier, 128);  // the results of the piece before have left
  if (work.product == 0) {
    const uint32_t store = smem_address(M::staging(s, group)) + (lane & 7) * 128;
    const int chunk = M::first_chunk(group) + warp;
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
      const float2 w = *reinterpret_cast<const float2*>(factors.row_weight + 8 * j + 2 * (lane & 3));
      store_matrix1_transposed(store + j * 1024 + ((chunk ^ (lane & 7)) << 4),
                               pack_bf16x2(swiglu(sum[4 * j] * low, sum[4 * j + 2] * high, args.limit, w.x),
                                           swiglu(sum[4 * j + 1] * low, sum[4 * j + 3] * high, args.limit, w.y)));
    }
    M::hand_over(s, work, args, group, thread, n);
  } else {
    write_block<N>(s.results[group],
                   args.out + static_cast<size_t>(work.row0) * args.d + work.band * kTileM + group * 64, args.d, n,
                   barrier, thread, sum, low, high);
  }
}

}  // namespace hadal::cuda

// Values that CTAs of one launch hand to each other: a float and a tag in one 64-bit word, which arrives whole, so that
// neither a flag nor a fence is needed. A reader polls the word until it carries the tag it expects. Tags are counted on
// the device, since a replayed graph has the same arguments every time: a launch begins where the last one ended.
#pragma once

#include <cstdint>

namespace hadal::cuda {

__device__ __forceinline__ void send(uint64_t* to, float value, uint32_t tag) {
  const uint64_t word = static_cast<uint64_t>(tag) << 32 | __float_as_uint(value);
  asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}

__device__ __forceinline__ uint64_t peek(const uint64_t* from) {
  uint64_t word;
  asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
  return word;
}

__device__ __forceinline__ bool carries(uint64_t word, uint32_t tag) {
  return static_cast<uint32_t>(word >> 32) == tag;
}
__device__ __forceinline__ float value_of(uint64_t word) { return __uint_as_float(static_cast<uint32_t>(word)); }

// Sums of words `Stride` apart in ascending order, once all of them carry the tag. All are asked for at once, so that their
// latencies overlap: A words from `a`, and B words from `b` unless it is null.
template <int A, int StrideA, int B, int StrideB>
__device__ __forceinline__ float2 receive_both(const uint64_t* a, const uint64_t* b, uint32_t tag) {
  uint64_t first[A], second[B];
  bool late;
  do {
    late = false;
#pragma unroll
    for (int n = 0; n < A; ++n) first[n] = peek(a + n * StrideA);
    if (b != nullptr) {
#pragma unroll
      for (int n = 0; n < B; ++n) second[n] = peek(b + n * StrideB);
#pragma unroll
      for (int n = 0; n < B; ++n) late |= !carries(second[n], tag);
    }
#pragma unroll
    for (int n = 0; n < A; ++n) late |= !carries(first[n], tag);
  } while (late);
  float2 sum = make_float2(0, 0);
#pragma unroll
  for (int n = 0; n < A; ++n) sum.x += value_of(first[n]);
  if (b != nullptr)
#pragma unroll
    for (int n = 0; n < B; ++n) sum.y += value_of(second[n]);
  return sum;
}

// The same for any number of words, one after the other.
__device__ __forceinline__ float receive_sum(const uint64_t* from, int stride, int count, uint32_t tag) {
  float sum = 0;
#pragma unroll 1
  for (int n = 0; n < count; ++n) {
    uint64_t word;
    do word = peek(from + int64_t{n} * stride);
    while (!carries(word, tag));
    sum += value_of(word);
  }
  return sum;
}

}  // namespace hadal::cuda

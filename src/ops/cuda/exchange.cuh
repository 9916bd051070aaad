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

// Sum of `count` words, Stride apart, in ascending order, once all of them carry the tag. Usual is the count for which all
// are asked for at once: their latencies overlap.
template <int Usual, int Stride>
__device__ __forceinline__ float receive_sum(const uint64_t* from, int count, uint32_t tag) {
  float sum = 0;
  if (count == Usual) {
    uint64_t word[Usual];
    bool late;
    do {
      late = false;
#pragma unroll
      for (int n = 0; n < Usual; ++n) word[n] = peek(from + n * Stride);
#pragma unroll
      for (int n = 0; n < Usual; ++n) late |= !carries(word[n], tag);
    } while (late);
#pragma unroll
    for (int n = 0; n < Usual; ++n) sum += value_of(word[n]);
  } else {
#pragma unroll 1
    for (int n = 0; n < count; ++n) {
      uint64_t word;
      do word = peek(from + n * Stride);
      while (!carries(word, tag));
      sum += value_of(word);
    }
  }
  return sum;
}

}  // namespace hadal::cuda

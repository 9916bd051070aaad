#include "ops/cpu/roof.h"

#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/error.h"

// GCC 12's header passes undefined registers on purpose and warns about it itself (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace hadal::cpu {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// ---- reading: 256 bytes a turn into four registers, so that nothing but memory is waited for ----
uint64_t read_scalar(const std::byte* p, size_t bytes) {
  const auto* q = reinterpret_cast<const uint64_t*>(p);
  uint64_t a = 0, b = 0, c = 0, d = 0;
  for (size_t i = 0; i + 4 <= bytes / 8; i += 4) {
    a |= q[i];
    b |= q[i + 1];
    c |= q[i + 2];
    d |= q[i + 3];
  }
  return a | b | c | d;
}

__attribute__((target("avx2"))) uint64_t read_avx2(const std::byte* p, size_t bytes) {
  const auto* q = reinterpret_cast<const __m256i*>(p);
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
  for (size_t i = 0; i + 4 <= bytes / 32; i += 4) {
    a = _mm256_or_si256(a, _mm256_loadu_si256(q + i));
    b = _mm256_or_si256(b, _mm256_loadu_si256(q + i + 1));
    c = _mm256_or_si256(c, _mm256_loadu_si256(q + i + 2));
    d = _mm256_or_si256(d, _mm256_loadu_si256(q + i + 3));
  }
  a = _mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d));
  return static_cast<uint64_t>(_mm256_extract_epi64(a, 0));
}

__attribute__((target("avx512f"))) uint64_t read_avx512(const std::byte* p, size_t bytes) {
  __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
  for (size_t i = 0; i + 256 <= bytes; i += 256) {
    a = _mm512_or_si512(a, _mm512_loadu_si512(p + i));
    b = _mm512_or_si512(b, _mm512_loadu_si512(p + i + 64));
    c = _mm512_or_si512(c, _mm512_loadu_si512(p + i + 128));
    d = _mm512_or_si512(d, _mm512_loadu_si512(p + i + 192));
  }
  a = _mm512_or_si512(_mm512_or_si512(a, b), _mm512_or_si512(c, d));
  return static_cast<uint64_t>(_mm512_castsi512_si128(a)[0]);
}

// ---- multiplying: ten independent chains, more than latency times rate of any of these instructions ----
constexpr int kChains = 10;

// `KEEP` tells the compiler that the operands may have changed, so that it computes every turn.
#define HADAL_CHAINS(Vector, zero, step, KEEP)                                \
  Vector acc[kChains];                                                        \
  for (int i = 0; i < kChains; ++i) acc[i] = zero;                            \
  for (int64_t turn = 0; turn < turns; ++turn) {                              \
    asm volatile("" : KEEP(x), KEEP(y));                                      \
    _Pragma("GCC unroll 16") for (int i = 0; i < kChains; ++i) acc[i] = step; \
  }                                                                           \
  _Pragma("GCC unroll 16") for (int i = 0; i < kChains; ++i) asm volatile("" : KEEP(acc[i]));

typedef float F4 __attribute__((vector_size(16)));

double multiply_scalar(int64_t turns) {
  F4 x = {1, 1, 1, 1}, y = x;
  HADAL_CHAINS(F4, F4{}, acc[i] * x + y, "+x")
  return 8.0 * kChains;
}
__attribute__((target("avx2,fma"))) double multiply_avx2(int64_t turns) {
  __m256 x = _mm256_set1_ps(1), y = x;
  HADAL_CHAINS(__m256, _mm256_setzero_ps(), _mm256_fmadd_ps(acc[i], x, y), "+x")
  return 16.0 * kChains;
}
__attribute__((target("avx512f"))) double multiply_avx512(int64_t turns) {
  __m512 x = _mm512_set1_ps(1), y = x;
  HADAL_CHAINS(__m512, _mm512_setzero_ps(), _mm512_fmadd_ps(acc[i], x, y), "+v")
  return 32.0 * kChains;
}
__attribute__((target("avx512f,avx512bf16"))) double multiply_bf16(int64_t turns) {
  __m512i x = _mm512_set1_epi32(0x3f803f80), y = x;
  HADAL_CHAINS(__m512, _mm512_setzero_ps(),
               _mm512_dpbf16_ps(acc[i], reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(y)), "+v")
  return 64.0 * kChains;
}
__attribute__((target("avx512f,avx512vnni"))) double multiply_int8(int64_t turns) {
  __m512i x = _mm512_set1_epi8(1), y = x;
  HADAL_CHAINS(__m512i, _mm512_setzero_si512(), _mm512_dpbusd_epi32(acc[i], x, y), "+v")
  return 128.0 * kChains;
}
#undef HADAL_CHAINS

// Four sums of 16 x 16, each of which takes 32 products an element and turn.
__attribute__((target("amx-tile,amx-bf16"))) double multiply_amx(int64_t turns) {
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } config;
  asm volatile("ldtilecfg %0" ::"m"(config));
  asm volatile(
      "tilezero %%tmm0\n tilezero %%tmm1\n tilezero %%tmm2\n tilezero %%tmm3\n"
      "tilezero %%tmm4\n tilezero %%tmm5\n tilezero %%tmm6\n tilezero %%tmm7\n" ::);
  for (int64_t i = 0; i < turns; ++i)
    asm volatile(
        "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n tdpbf16ps %%tmm7, %%tmm4, %%tmm1\n"
        "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n tdpbf16ps %%tmm7, %%tmm5, %%tmm3\n" ::);
  asm volatile("tilerelease" ::);
  return 4.0 * 16 * 16 * 32 * 2;
}

}  // namespace

bool has_multiply(Isa isa, Multiply kind) {
  if (kind == Multiply::fp32) return true;
  if (kind == Multiply::int8) return isa >= Isa::avx512_vnni && __builtin_cpu_supports("avx512vnni");
  return isa >= Isa::avx512_bf16;
}

double read_rate(ThreadPool& pool, std::span<const std::byte> memory, Isa isa) {
  const auto threads = static_cast<size_t>(pool.size());
  const size_t part = std::min(size_t{32} << 20, memory.size() / threads / 4096 * 4096), slice = part * threads;
  std::vector<uint64_t> seen(threads * 8);
  double best = 0;
  for (size_t at = 0; slice > 0 && at + slice <= memory.size(); at += slice) {
    const double begin = seconds_now();
    pool.parallel_for(pool.size(), [&](int i) {
      const std::byte* p = memory.data() + at + static_cast<size_t>(i) * part;
      uint64_t bits = 0;
      if (isa >= Isa::avx512)
        bits = read_avx512(p, part);
      else if (isa == Isa::avx2)
        bits = read_avx2(p, part);
      else
        bits = read_scalar(p, part);
      static_cast<volatile uint64_t&>(seen[static_cast<size_t>(i) * 8]) = bits;
    });
    best = std::max(best, static_cast<double>(slice) / (seconds_now() - begin));
  }
  return best;
}

double multiply_rate(ThreadPool& pool, Isa isa, Multiply kind, double scale) {
  HADAL_CHECK(has_multiply(isa, kind));
  const bool tiles = isa == Isa::amx && kind == Multiply::bf16;
  const auto turns = static_cast<int64_t>((tiles ? 30000 : 300000) * scale);
  double (*loop)(int64_t) = multiply_scalar;
  if (kind == Multiply::bf16) loop = tiles ? multiply_amx : multiply_bf16;
  if (kind == Multiply::int8) loop = multiply_int8;
  if (kind == Multiply::fp32 && isa >= Isa::avx512) loop = multiply_avx512;
  if (kind == Multiply::fp32 && isa == Isa::avx2) loop = multiply_avx2;
  const double begin = seconds_now();
  double per_turn = 0;
  pool.parallel_for(pool.size(), [&](int i) {
    const double n = loop(turns);
    if (i == 0) per_turn = n;
  });
  return per_turn * static_cast<double>(turns) * pool.size() / (seconds_now() - begin);
}

}  // namespace hadal::cpu

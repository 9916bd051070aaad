// What this machine can do at best, measured: loops that only read memory, and loops that only multiply in registers.
// Kernels are judged as a share of these, taken in the same run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/cpu_features.h"
#include "base/thread_pool.h"

namespace hadal::cpu {

enum class Multiply : uint8_t { fp32, bf16, int8 };

// Whether the instruction set has an instruction for it (bf16 and int8 dot products: AVX-512 with BF16 and VNNI).
bool has_multiply(Isa isa, Multiply kind);

// Reads every byte once, in slices of 32 MB a thread, and returns the bytes a second of the fastest slice: a slice takes a
// millisecond or so, which is short enough to be left alone now and then on a machine that others use.
double read_rate(ThreadPool& pool, std::span<const std::byte> memory, Isa isa);
// Multiplications and additions a second, all threads together; about a millisecond a call at `scale` 1.
double multiply_rate(ThreadPool& pool, Isa isa, Multiply kind, double scale = 1);

}  // namespace hadal::cpu

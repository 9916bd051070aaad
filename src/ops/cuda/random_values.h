// Fills device memory with random weights and rows (ops/random_values.h).
#pragma once

#include <cuda_runtime_api.h>

#include "ops/operators.h"

namespace hadal::cuda {

// A weight as published, in w.data and w.scale, which have room for it.
void fill_weight(const Weight& w, const RandomValues& values, cudaStream_t stream);
// E4M3 codes and one scale every 32.
void fill_table(const EngramTable& table, const RandomValues& values, cudaStream_t stream);
void fill_rows(RowFormat format, int dim, uint8_t* rows, int64_t count, uint64_t seed, cudaStream_t stream);

}  // namespace hadal::cuda

#include "ops/cuda/random_values.h"

#include <algorithm>
#include <cmath>

#include "ops/cuda/errors.h"

namespace hadal::cuda {
namespace {

namespace rv = random_values;

constexpr int kThreads = 256;

// A source says what element i is.
struct Fp8Codes {
  uint64_t seed;
  __device__ uint8_t operator()(int64_t i) const {
    return rv::fp8_code(static_cast<uint32_t>(rv::bits(seed, static_cast<uint64_t>(i))));
  }
};
struct Fp4Pairs {
  uint64_t seed;
  __device__ uint8_t operator()(int64_t i) const { return rv::fp4_pair(rv::bits(seed, static_cast<uint64_t>(i))); }
};
struct Scales {
  uint64_t seed;
  int centre;
  __device__ uint8_t operator()(int64_t i) const {
    return rv::scale_byte(centre, rv::bits(~seed, static_cast<uint64_t>(i)));
  }
};
struct Rows {
  uint64_t seed;
  RowFormat format;
  int dim, bytes;
  __device__ uint8_t operator()(int64_t i) const {
    return rv::row_byte(format, dim, static_cast<int>(i % bytes), rv::bits(seed, static_cast<uint64_t>(i)));
  }
};
struct Normals {
  RandomValues v;
  __device__ float operator()(int64_t i) const {
    return v.mean + v.deviation * rv::normal(static_cast<uint32_t>(rv::bits(v.seed, static_cast<uint64_t>(i))));
  }
};
struct Bf16Normals {
  Normals normals;
  __device__ uint16_t operator()(int64_t i) const { return to_bf16(normals(i)); }
};

// Four bytes are written at a time.
template <typename T, typename Source>
__global__ void __launch_bounds__(kThreads) fill_kernel(T* out, int64_t count, Source source) {
  constexpr int kPack = 4 / sizeof(T);
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i * kPack < count; i += stride) {
    T values[kPack];
    for (int j = 0; j < kPack; ++j) values[j] = source(kPack * i + j);
    if (kPack * (i + 1) <= count) {
      uint32_t word;
      memcpy(&word, values, 4);
      reinterpret_cast<uint32_t*>(out)[i] = word;
    } else {
      for (int j = 0; kPack * i + j < count; ++j) out[kPack * i + j] = values[j];
    }
  }
}

template <typename T, typename Source>
void fill(T* out, int64_t count, const Source& source, cudaStream_t stream) {
  if (count == 0) return;
  const auto grid = static_cast<unsigned>(std::min<int64_t>((count + kThreads - 1) / kThreads, 132 * 16));
  fill_kernel<<<grid, kThreads, 0, stream>>>(out, count, source);
  HADAL_CUDA_LAUNCHED("random values");
}

int centre_of(float size) { return 127 + static_cast<int>(std::lround(std::log2(size))); }

}  // namespace

void fill_weight(const Weight& w, const RandomValues& v, cudaStream_t stream) {
  const int64_t count = int64_t{w.n} * w.k;
  void* data = const_cast<void*>(w.data);
  auto* scale = const_cast<uint8_t*>(w.scale);
  switch (w.format) {
    case WeightFormat::f32: fill(static_cast<float*>(data), count, Normals{v}, stream); break;
    case WeightFormat::bf16: fill(static_cast<uint16_t*>(data), count, Bf16Normals{{v}}, stream); break;
    case WeightFormat::fp8_block32:
      fill(static_cast<uint8_t*>(data), count, Fp8Codes{v.seed}, stream);
      fill(scale, int64_t{(w.n + 31) / 32} * ((w.k + 31) / 32),
           Scales{v.seed, centre_of(v.deviation / rv::kFp8Deviation)}, stream);
      break;
    case WeightFormat::mxfp4:
      fill(static_cast<uint8_t*>(data), count / 2, Fp4Pairs{v.seed}, stream);
      fill(scale, int64_t{w.n} * (w.k / 32), Scales{v.seed, centre_of(v.deviation / rv::kFp4Deviation)}, stream);
      break;
  }
}

void fill_table(const EngramTable& table, const RandomValues& v, cudaStream_t stream) {
  fill(const_cast<uint8_t*>(table.codes), table.table_rows * table.dim, Fp8Codes{v.seed}, stream);
  fill(const_cast<uint8_t*>(table.scales), table.table_rows * (table.dim / 32),
       Scales{v.seed, centre_of(v.deviation / rv::kFp8Deviation)}, stream);
}

void fill_rows(RowFormat format, int dim, uint8_t* rows, int64_t count, uint64_t seed, cudaStream_t stream) {
  const int bytes = static_cast<int>(row_bytes(format, dim));
  fill(rows, count * bytes, Rows{seed, format, dim, bytes}, stream);
}

}  // namespace hadal::cuda

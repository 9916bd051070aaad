// Packs published weights for the matrix kernel; runs once a weight at load.
#include "ops/experts/pack.h"

#include "ops/cuda/errors.h"
#include "ops/experts/codec.cuh"

namespace hadal::cuda {
namespace {

// One published matrix or two whose rows are interleaved: of 16 packed rows the first 8 are gate, the last 8 up.
struct Source {
  const uint8_t* data[2];
  const uint8_t* scale[2];
  bool fp8;
  int matrices;  // 1 or 2
  int k;

  __device__ void locate(int row, int& matrix, int& source_row) const {
    matrix = matrices == 2 ? (row >> 3) & 1 : 0;
    source_row = matrices == 2 ? (row >> 4) * 8 + (row & 7) : row;
  }
  __device__ int scale_byte(int row, int group) const {
    int matrix, r;
    locate(row, matrix, r);
    if (fp8) r /= 32;
    return scale[matrix][static_cast<size_t>(r) * (k / 32) + group];
  }
  __device__ uint32_t code(int row, int column) const {
    int matrix, r;
    locate(row, matrix, r);
    if (fp8) return data[matrix][static_cast<size_t>(r) * k + column];
    const uint8_t byte = data[matrix][static_cast<size_t>(r) * (k / 2) + column / 2];
    return (column & 1) ? byte >> 4 : byte & 15;
  }
};

__device__ uint32_t mxfp4_field(uint32_t code, int reg) {
  const uint32_t sign = code >> 3, m = code & 7;
  switch (reg) {
    case 0: return sign << 15 | m << 6;
    case 1: return sign << 12 | m << 3;
    case 2: return sign << 9 | m;
    default: return sign << 14 | (m >> 2) << 13 | (m & 3) << 10;
  }
}

__device__ uint32_t fp8_field(uint32_t code, bool second) {
  const uint32_t sign = code >> 7, m = code & 127;
  return second ? sign << 11 | (m >> 4) << 12 | (m & 15) : sign << 15 | m << 4;
}

// The largest scale of a row, one warp a row.
__global__ void row_scale_kernel(Source source, int rows, float* out) {
  const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (row >= rows) return;
  int largest = 0;
  for (int g = threadIdx.x % 32; g < source.k / 32; g += 32) largest = max(largest, source.scale_byte(row, g));
  largest = __reduce_max_sync(0xffffffffu, largest);
  if (threadIdx.x % 32 == 0)
    out[row] = __uint_as_float(largest == 0 ? 0x00400000u : static_cast<uint32_t>(largest) << 23);
}

__device__ int scale_of(float row_scale) {
  const uint32_t u = __float_as_uint(row_scale);
  return u == 0x00400000u ? 0 : static_cast<int>(u >> 23);
}

// One block a tile; thread t of 128 writes its own operand bytes of the four blocks and four scales.
template <class Codec>
__global__ void pack_kernel(Source source, const float* row_scale, uint8_t* out) {
  const int tiles_k = source.k / kTileK;
  const int m0 = blockIdx.x / tiles_k * kTileM, k0 = blockIdx.x % tiles_k * kTileK;
  uint8_t* tile = out + static_cast<size_t>(blockIdx.x) * Codec::kTileBytes;
  const int thread = threadIdx.x, warp = thread / 32, g = thread % 32 / 4, pair = thread % 4;
  for (int block = 0; block < 4; ++block) {
    const int row = m0 + block * 64 + warp * 16 + g;
    uint32_t words[Codec::kBlockBytes / 512] = {};
    for (int step = 0; step < 4; ++step)
      for (int reg = 0; reg < 4; ++reg)
        for (int half = 0; half < 2; ++half) {
          const int column = k0 + step * 16 + (reg >> 1) * 8 + pair * 2 + half;
          const uint32_t code = source.code(row + (reg & 1) * 8, column);
          if constexpr (Codec::kBlockBytes == 2048)
            words[step] |= mxfp4_field(code, reg) << (16 * half);
          else
            words[step * 2 + reg / 2] |= fp8_field(code, reg & 1) << (16 * half);
        }
    for (int i = 0; i < Codec::kBlockBytes / 2048; ++i)
      *reinterpret_cast<uint4*>(tile + block * Codec::kBlockBytes + i * 2048 + thread * 16) =
          make_uint4(words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]);
    // lane `pair` of a row group writes one of its four scales
    const int scaled_row = row + (pair & 1) * 8;
    const int field =
        Codec::kExponent + source.scale_byte(scaled_row, k0 / 32 + (pair >> 1)) - scale_of(row_scale[scaled_row]);
    tile[4 * Codec::kBlockBytes + block * 128 + (thread >> 2) * 4 + pair] = static_cast<uint8_t>(max(field, 0));
  }
}

void pack(const Source& source, int rows, void* out, cudaStream_t stream) {
  const int tile_bytes = source.fp8 ? Fp8Codec::kTileBytes : Mxfp4Codec::kTileBytes;
  const int tiles = rows / kTileM * (source.k / kTileK);
  auto* bytes = static_cast<uint8_t*>(out);
  auto* scales = reinterpret_cast<float*>(bytes + static_cast<size_t>(tiles) * tile_bytes);
  row_scale_kernel<<<(rows + 7) / 8, 256, 0, stream>>>(source, rows, scales);
  if (source.fp8)
    pack_kernel<Fp8Codec><<<tiles, 128, 0, stream>>>(source, scales, bytes);
  else
    pack_kernel<Mxfp4Codec><<<tiles, 128, 0, stream>>>(source, scales, bytes);
  HADAL_CUDA_LAUNCHED("packing of experts");
}

int tile_bytes_of(const FeedForward& w) {
  const WeightFormat f = w.w1.format;
  if (w.w3.format != f || w.w2.format != f) return 0;
  return f == WeightFormat::mxfp4 ? Mxfp4Codec::kTileBytes : f == WeightFormat::fp8_block32 ? Fp8Codec::kTileBytes : 0;
}

const uint8_t* bytes_of(const Weight& w) { return static_cast<const uint8_t*>(w.data); }

}  // namespace

PackedFeedForward packed_feed_forward(const FeedForward& w) {
  const int tile_bytes = tile_bytes_of(w), width = w.w1.n, d = w.w1.k;
  if (tile_bytes == 0 || width % 128 != 0 || d % kTileM != 0) return {};
  return {packed_matrix_bytes(2 * width, d, tile_bytes), packed_matrix_bytes(d, width, tile_bytes)};
}

void pack_feed_forward(const FeedForward& w, void* gate_up, void* down, cudaStream_t stream) {
  if (!packed_feed_forward(w))
    fail_shape("pack_feed_forward", "MXFP4 or FP8 blocks, width a multiple of 128, hidden size a multiple of 256",
               w.w1.n);
  const bool fp8 = w.w1.format == WeightFormat::fp8_block32;
  pack({{bytes_of(w.w1), bytes_of(w.w3)}, {w.w1.scale, w.w3.scale}, fp8, 2, w.w1.k}, 2 * w.w1.n, gate_up, stream);
  pack({{bytes_of(w.w2), nullptr}, {w.w2.scale, nullptr}, fp8, 1, w.w2.k}, w.w2.n, down, stream);
}

}  // namespace hadal::cuda

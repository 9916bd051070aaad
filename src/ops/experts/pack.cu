// Packs published weights for the matrix kernel; runs once a weight at load.
#include "ops/experts/pack.h"

#include "ops/cuda/errors.h"
#include "ops/experts/codec.cuh"

namespace hadal::cuda {
namespace {

constexpr int kBf16RowExponent = 127;

// One published matrix or two whose rows are interleaved: of 16 packed rows the first 8 are gate, the last 8 up.
struct Source {
  const uint8_t* data[2];
  const uint8_t* scale[2];
  int matrices;  // 1 or 2
  int k;

  __device__ void locate(int row, int& matrix, int& source_row) const {
    matrix = matrices == 2 ? (row >> 3) & 1 : 0;
    source_row = matrices == 2 ? (row >> 4) * 8 + (row & 7) : row;
  }
  __device__ int scale_byte(int row, int group) const {
    int matrix, r;
    locate(row, matrix, r);
    return scale[matrix][static_cast<size_t>(r) * (k / 32) + group];
  }
  __device__ uint32_t code(int row, int column) const {
    int matrix, r;
    locate(row, matrix, r);
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

// The largest scale of a row as a power of two, one warp a row.
__global__ void row_scale_kernel(Source source, int rows, int bias, float* out) {
  const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (row >= rows) return;
  int largest = 0;
  for (int g = threadIdx.x % 32; g < source.k / 32; g += 32) largest = max(largest, source.scale_byte(row, g));
  largest = __reduce_max_sync(0xffffffffu, largest);
  if (threadIdx.x % 32 == 0) out[row] = ldexpf(1.0f, largest - bias);
}

// One block a tile; thread t of 128 writes its own operand bytes of the four blocks and its scales.
__global__ void pack_bf16_kernel(Source source, const float* row_scale, uint8_t* out) {
  using Codec = Mxfp4Codec;
  const int tiles_k = source.k / Codec::kTileK;
  const int m0 = blockIdx.x / tiles_k * kTileM, k0 = blockIdx.x % tiles_k * Codec::kTileK;
  uint8_t* tile = out + static_cast<size_t>(blockIdx.x) * Codec::kTileBytes;
  const int thread = threadIdx.x, warp = thread / 32, g = thread % 32 / 4, pair = thread % 4;
  for (int block = 0; block < 4; ++block) {
    const int row = m0 + block * 64 + warp * 16 + g;
    uint32_t words[4] = {};
    for (int step = 0; step < 4; ++step)
      for (int reg = 0; reg < 4; ++reg)
        for (int half = 0; half < 2; ++half) {
          const int column = k0 + step * 16 + (reg >> 1) * 8 + pair * 2 + half;
          words[step] |= mxfp4_field(source.code(row + (reg & 1) * 8, column), reg) << (16 * half);
        }
    *reinterpret_cast<uint4*>(tile + block * Codec::kBlockBytes + thread * 16) =
        make_uint4(words[0], words[1], words[2], words[3]);
    // lane `pair` of a row group writes one of its four scales
    const int scaled_row = row + (pair & 1) * 8;
    const int field = Codec::kExponent + source.scale_byte(scaled_row, k0 / 32 + (pair >> 1)) -
                      (ilogbf(row_scale[scaled_row]) + kBf16RowExponent);
    tile[4 * Codec::kBlockBytes + block * 128 + (thread >> 2) * 4 + pair] = static_cast<uint8_t>(max(field, 0));
  }
}

__global__ void pack_e5m2_kernel(Source source, const float* row_scale, uint8_t* out) {
  using Codec = E5m2Codec;
  const int tiles_k = source.k / Codec::kTileK;
  const int m0 = blockIdx.x / tiles_k * kTileM, k0 = blockIdx.x % tiles_k * Codec::kTileK;
  uint8_t* tile = out + static_cast<size_t>(blockIdx.x) * Codec::kTileBytes;
  const int thread = threadIdx.x, warp = thread / 32, g = thread % 32 / 4, lane = thread % 4;
  for (int block = 0; block < 4; ++block)
    for (int second = 0; second < 2; ++second) {
      const int row = m0 + block * 64 + warp * 16 + g + 8 * second;
      int exponent =
          Codec::kLargest + source.scale_byte(row, k0 / 32 + lane) - (ilogbf(row_scale[row]) + Codec::kRowExponent);
      const bool flush = exponent < 1;
      if (flush) exponent = Codec::kLargest;
      tile[4 * Codec::kBlockBytes + block * 256 + thread * 2 + second] = static_cast<uint8_t>(exponent << 2);
      for (int step = 0; step < 4; ++step) {
        uint32_t word = 0;
        for (int i = 0; i < 8; ++i) {
          const uint32_t code = flush ? 0 : source.code(row, k0 + 32 * lane + 8 * step + i);
          word |= (code & 7) << (4 * i) | (code >> 3) << (i < 4 ? 8 * i + 7 : 8 * (i - 4) + 3);
        }
        *reinterpret_cast<uint32_t*>(tile + block * Codec::kBlockBytes + (step >> 1) * 2048 + thread * 16 + second * 8 +
                                     (step & 1) * 4) = word;
      }
    }
}

void pack(const Source& source, int rows, ExpertLayout layout, void* out, cudaStream_t stream) {
  auto* bytes = static_cast<uint8_t*>(out);
  const bool e5m2 = layout == ExpertLayout::fp8_rows;
  const int columns = e5m2 ? E5m2Codec::kTileK : Mxfp4Codec::kTileK;
  const int tile_bytes = e5m2 ? E5m2Codec::kTileBytes : Mxfp4Codec::kTileBytes;
  const int tiles = rows / kTileM * (source.k / columns);
  auto* scales = reinterpret_cast<float*>(bytes + static_cast<size_t>(tiles) * tile_bytes);
  row_scale_kernel<<<(rows + 7) / 8, 256, 0, stream>>>(source, rows, e5m2 ? E5m2Codec::kRowExponent : kBf16RowExponent,
                                                       scales);
  (e5m2 ? pack_e5m2_kernel : pack_bf16_kernel)<<<tiles, 128, 0, stream>>>(source, scales, bytes);
  HADAL_CUDA_LAUNCHED("packing of experts");
}

const uint8_t* bytes_of(const Weight& w) { return static_cast<const uint8_t*>(w.data); }

}  // namespace

PackedFeedForward packed_feed_forward(const FeedForward& w, ExpertLayout layout) {
  const int width = w.w1.n, d = w.w1.k;
  for (const Weight& matrix : {w.w1, w.w3, w.w2})
    if (matrix.format != WeightFormat::mxfp4) return {};
  // FP8: sums run over 256 values of k.
  if (width % (layout == ExpertLayout::fp8_rows ? 256 : 128) != 0 || d % kTileM != 0) return {};
  const auto bytes =
      layout == ExpertLayout::fp8_rows ? packed_matrix_bytes<E5m2Codec> : packed_matrix_bytes<Mxfp4Codec>;
  return {bytes(2 * width, d), bytes(d, width)};
}

void pack_feed_forward(const FeedForward& w, ExpertLayout layout, void* gate_up, void* down, cudaStream_t stream) {
  if (!packed_feed_forward(w, layout))
    fail_shape("pack_feed_forward", "MXFP4, width a multiple of 128 (FP8 rows: 256), hidden size a multiple of 256",
               w.w1.n);
  pack({{bytes_of(w.w1), bytes_of(w.w3)}, {w.w1.scale, w.w3.scale}, 2, w.w1.k}, 2 * w.w1.n, layout, gate_up, stream);
  pack({{bytes_of(w.w2), nullptr}, {w.w2.scale, nullptr}, 1, w.w2.k}, w.w2.n, layout, down, stream);
}

}  // namespace hadal::cuda

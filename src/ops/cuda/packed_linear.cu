#include "ops/cuda/packed_linear.h"

#include "ops/cuda/packed_linear.cuh"

namespace hadal::cuda {

void packed_narrow(const PackedProblem&, int multiprocessors, cudaStream_t);
void packed_wide(const PackedProblem&, int width, int multiprocessors, cudaStream_t);

namespace {

int64_t tile_bytes(const Weight& w) { return int64_t{w.n / 64} * (w.k / 64) * kPackedTile; }

// The largest scale of a row of blocks: one warp 32 rows.
__global__ void row_scale_kernel(const uint8_t* scale, int n, int k_blocks, float* out) {
  const int block = blockIdx.x;
  int largest = 0;
  for (int i = threadIdx.x; i < k_blocks; i += 32)
    largest = max(largest, static_cast<int>(scale[int64_t{block} * k_blocks + i]));
  largest = __reduce_max_sync(0xffffffffu, largest);
  const int row = block * 32 + threadIdx.x;
  if (row < n) out[row] = __uint_as_float(largest == 0 ? 0x00400000u : static_cast<uint32_t>(largest) << 23);
}

// One CTA a tile, thread t writes what thread t of a warpgroup will read.
__global__ void __launch_bounds__(128)
    pack_kernel(const uint8_t* data, const uint8_t* scale, int k, const float* row_scale, uint8_t* out) {
  const int tiles_k = k / 64, m0 = blockIdx.x / tiles_k * 64, k0 = blockIdx.x % tiles_k * 64;
  const int thread = threadIdx.x, g = thread % 32 / 4, pair = thread % 4, row = m0 + thread / 32 * 16 + g;
  uint8_t* tile = out + int64_t{blockIdx.x} * kPackedTile;
  uint32_t words[8] = {};
  for (int step = 0; step < 4; ++step)
    for (int reg = 0; reg < 4; ++reg)
      for (int half = 0; half < 2; ++half) {
        const int column = k0 + step * 16 + (reg >> 1) * 8 + pair * 2 + half;
        const uint32_t code = data[int64_t{row + (reg & 1) * 8} * k + column], sign = code >> 7, m = code & 127;
        const uint32_t field = (reg & 1) != 0 ? sign << 11 | (m >> 4) << 12 | (m & 15) : sign << 15 | m << 4;
        words[step * 2 + reg / 2] |= field << (16 * half);
      }
  for (int i = 0; i < 2; ++i)
    *reinterpret_cast<uint4*>(tile + i * 2048 + thread * 16) =
        make_uint4(words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]);
  // Lane `pair` writes one of its rows' four scales: {row g, row g + 8} of 32 columns, then of the next 32.
  const int scaled = row + (pair & 1) * 8;
  const uint32_t bits = __float_as_uint(row_scale[scaled]);
  const int largest = bits == 0x00400000u ? 0 : static_cast<int>(bits >> 23);
  const int byte = scale[int64_t{scaled / 32} * (k / 32) + k0 / 32 + (pair >> 1)];
  tile[kPackedCodes + (thread >> 2) * 4 + pair] = static_cast<uint8_t>(max(kPackedExponent + byte - largest, 0));
}

}  // namespace

size_t packed_bytes(const Weight& w) {
  return static_cast<size_t>(tile_bytes(w)) + static_cast<size_t>(w.n) * sizeof(float);
}

void pack_linear(CudaContext& context, const Weight& weight, void* packed) {
  auto* bytes = static_cast<uint8_t*>(packed);
  auto* row_scale = reinterpret_cast<float*>(bytes + tile_bytes(weight));
  row_scale_kernel<<<weight.n / 32, 32, 0, context.stream()>>>(weight.scale, weight.n, weight.k / 32, row_scale);
  HADAL_CUDA_LAUNCHED("row scales");
  pack_kernel<<<weight.n / 64 * (weight.k / 64), 128, 0, context.stream()>>>(static_cast<const uint8_t*>(weight.data),
                                                                             weight.scale, weight.k, row_scale, bytes);
  HADAL_CUDA_LAUNCHED("pack");
  context.wait();  // weights are constants to the kernels behind, which read them before they wait for anything
}

void locate_packed(const Weight& w, PackedProblem& p) {
  p.tiles = static_cast<const uint8_t*>(w.packed);
  p.row_scale = reinterpret_cast<const float*>(p.tiles + tile_bytes(w));
}

std::span<const int> packed_widths() {
  static constexpr int kWidths[] = {64, 128, 136, 160, 256};
  return kWidths;
}

void packed_linear(const PackedProblem& p, int multiprocessors, cudaStream_t stream) {
  if (p.rows <= 128 || p.group_n % 256 != 0) return packed_narrow(p, multiprocessors, stream);
  // Rounds of pieces, each as long as its rows and a start. Tiles of 160 and 256 rows have 128 outputs instead of 256: with
  // 160 they read more for each product, with 256 they decode a weight half as often.
  const auto cost = [&](int width) {
    const int outputs = width >= 160 ? 128 : 256, slowness = width == 160 ? 36 : width == 256 ? 31 : 32;
    const int64_t pieces = int64_t{p.n / outputs} * ((p.rows + width - 1) / width);
    return (pieces + multiprocessors - 1) / multiprocessors * (width + 16) * outputs * slowness;
  };
  int best = p.width;
  if (best == 0) {
    best = 64;
    for (const int width : packed_widths())
      if (cost(width) <= cost(best)) best = width;
  }
  packed_wide(p, best, multiprocessors, stream);
}

}  // namespace hadal::cuda

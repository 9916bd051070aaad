#include "ops/cuda/fp8_linear.cuh"

namespace hadal::cuda {

void fp8_few(const Fp8Problem&, cudaStream_t);
void fp8_narrow(const Fp8Problem&, int multiprocessors, cudaStream_t);
void fp8_wide(const Fp8Problem&, int multiprocessors, cudaStream_t);

namespace {

constexpr int kNarrowRows = 128;

size_t code_bytes(const Weight& w) { return static_cast<size_t>(w.n) * static_cast<size_t>(w.k); }

// 16 bytes a thread; eight threads a row of 128.
__global__ void __launch_bounds__(256) pack_kernel(const uint8_t* data, int n, int k, uint8_t* out) {
  const int64_t i = int64_t{blockIdx.x} * 256 + threadIdx.x;
  if (i >= static_cast<int64_t>(n) * k / 16) return;
  const int chunk = i % 8, row = i / 8 % n, group = static_cast<int>(i / 8 / n);
  *reinterpret_cast<uint4*>(out + (static_cast<int64_t>(group) * n + row) * 128 + ((chunk ^ (row & 7)) << 4)) =
      *reinterpret_cast<const uint4*>(data + static_cast<int64_t>(row) * k + group * 128 + chunk * 16);
}

__global__ void scales_kernel(const uint8_t* scale, int n, int k, float* out) {
  const int i = blockIdx.x * 256 + threadIdx.x, blocks = n / 32;
  if (i < blocks * (k / 128)) out[i] = from_ue8m0(scale[i % blocks * (k / 32) + i / blocks * 4]);
}

// Weights with many outputs have CTAs enough without cutting k, and then one that stays on its multiprocessor is faster:
// wo_b, 80 blocks of 64 outputs, takes 13 microseconds so and 30 with its k cut into four; wq_a, 20 blocks, 6.6 and 6.5, of
// which the rounding of its rows is a part.
bool cuts_k(int rows, int n, int k) { return rows <= kFewRows && n <= 48 * 64 && k <= kMostFewColumns; }

}  // namespace

size_t packed_fp8_bytes(const Weight& w) {
  // Some scales more: a piece reads those of all its columns, also where the weight has ended.
  return code_bytes(w) + (code_bytes(w) / (32 * 128) + 16) * sizeof(float);
}

void pack_fp8(CudaContext& context, const Weight& weight, void* packed) {
  auto* bytes = static_cast<uint8_t*>(packed);
  pack_kernel<<<static_cast<unsigned>((code_bytes(weight) / 16 + 255) / 256), 256, 0, context.stream()>>>(
      static_cast<const uint8_t*>(weight.data), weight.n, weight.k, bytes);
  HADAL_CUDA_LAUNCHED("pack_fp8");
  const int scales = weight.n / 32 * (weight.k / 128);
  scales_kernel<<<(scales + 255) / 256, 256, 0, context.stream()>>>(
      weight.scale, weight.n, weight.k, reinterpret_cast<float*>(bytes + code_bytes(weight)));
  HADAL_CUDA_LAUNCHED("pack_fp8 scales");
  context.wait();  // weights are constants to the kernels behind, which read them before they wait for anything
}

void locate_packed_fp8(const Weight& w, Fp8Problem& p) {
  p.weights = static_cast<const uint8_t*>(w.packed);
  p.weight_scales = reinterpret_cast<const float*>(p.weights + code_bytes(w));
}

void locate_second_fp8(const Weight& w, Fp8Problem& p) {
  HADAL_CUDA_CHECK(w.n == p.n && w.k == p.k);
  p.second_weights = static_cast<const uint8_t*>(w.packed);
  p.second_scales = reinterpret_cast<const float*>(p.second_weights + code_bytes(w));
}

bool rounds_rows(int rows, const Weight& w) { return cuts_k(rows, w.n, w.k); }

bool quantises_results(const Fp8Problem& p) { return p.x.rows > kNarrowRows && p.group_n % 128 == 0; }

void fp8_linear(const Fp8Problem& p, int multiprocessors, cudaStream_t stream) {
  if (p.x.rows == 0) return;
  HADAL_CUDA_CHECK(p.k % 128 == 0 && p.group_n % 64 == 0 && p.n % p.group_n == 0);
  HADAL_CUDA_CHECK(p.x.columns == p.n / p.group_n * p.k && (!p.quantised || quantises_results(p)));
  HADAL_CUDA_CHECK(p.quantised || p.y_stride % 8 == 0);
  HADAL_CUDA_CHECK(p.second_weights == nullptr ||
                   (p.n == p.group_n && !p.quantised && p.second_y != nullptr && !cuts_k(p.x.rows, p.n, p.k)));
  if (cuts_k(p.x.rows, p.n, p.k)) return fp8_few(p, stream);
  HADAL_CUDA_CHECK(p.x.codes != nullptr);
  if (p.x.rows > kNarrowRows && p.group_n % 128 == 0) return fp8_wide(p, multiprocessors, stream);
  fp8_narrow(p, multiprocessors, stream);  // also many rows, of groups with an odd number of outputs
}

}  // namespace hadal::cuda

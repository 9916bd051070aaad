#include "ops/testing/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/dtype.h"

namespace hadal::testing {
namespace {

constexpr size_t kGuardBytes = 256;
constexpr uint8_t kGuardByte = 0xc3;

template <typename T>
std::vector<uint8_t> bytes_of(const std::vector<T>& values) {
  const auto* begin = reinterpret_cast<const uint8_t*>(values.data());
  return {begin, begin + values.size() * sizeof(T)};
}

// Power of two nearest to x, as a ue8m0 byte.
int scale_byte(double x) { return 127 + static_cast<int>(std::lround(std::log2(x))); }

}  // namespace

std::vector<uint16_t> to_bf16(const std::vector<float>& values) {
  std::vector<uint16_t> out;
  for (const float v : values) out.push_back(hadal::to_bf16(v));
  return out;
}

std::vector<uint16_t> random_norm(Random& random, int n) {
  std::vector<uint16_t> w(n);
  for (uint16_t& v : w) v = hadal::to_bf16(static_cast<float>(1 + 0.3 * random.normal()));
  return w;
}

HostWeight f32_weight(const std::vector<float>& values, int n, int k) {
  return {WeightFormat::f32, n, k, bytes_of(values), {}};
}

HostWeight bf16_weight(const std::vector<float>& values, int n, int k) {
  return {WeightFormat::bf16, n, k, bytes_of(to_bf16(values)), {}};
}

HostWeight random_weight(Random& random, WeightFormat format, int n, int k, double gain) {
  const double sigma = gain / std::sqrt(static_cast<double>(k));
  const int64_t count = int64_t{n} * k;
  if (format == WeightFormat::f32) return f32_weight(random.normals(count, sigma), n, k);
  if (format == WeightFormat::bf16) return bf16_weight(random.normals(count, sigma), n, k);

  HostWeight w{format, n, k, {}, {}};
  const bool fp8 = format == WeightFormat::fp8_block32;
  // Codes of a typical size well inside the grid; the block scales carry the rest.
  const double code_sigma = fp8 ? 100 : 2;
  for (int64_t i = 0; i < count; i += fp8 ? 1 : 2) {
    const auto code = [&] {
      const auto v = static_cast<float>(random.normal() * code_sigma);
      return fp8 ? to_e4m3(v) : to_e2m1(v);
    };
    const uint8_t low = code();
    w.data.push_back(fp8 ? low : static_cast<uint8_t>(low | (code() << 4)));
  }
  const int64_t scales = fp8 ? int64_t{(n + 31) / 32} * ((k + 31) / 32) : int64_t{n} * (k / 32);
  for (int64_t i = 0; i < scales; ++i)
    w.scale.push_back(static_cast<uint8_t>(scale_byte(sigma / code_sigma) + random.integer(-1, 1)));
  return w;
}

double weight_bytes(WeightFormat format, double n, double k) {
  switch (format) {
    case WeightFormat::f32: return 4 * n * k;
    case WeightFormat::bf16: return 2 * n * k;
    case WeightFormat::fp8_block32: return n * k * (1 + 1.0 / 1024);
    case WeightFormat::mxfp4: return n * k * (0.5 + 1.0 / 32);
  }
  return 0;
}

Tensor Backend::activations(const std::vector<float>& values, int64_t rows, int64_t cols) {
  std::vector<float> rounded;
  for (const float v : values) rounded.push_back(round_activation(numerics(), v));
  if (context_.activation_type() == DType::f32) return f32(rounded, rows, cols);
  const std::vector<uint8_t> bytes = bytes_of(to_bf16(rounded));
  uint8_t* data = allocate_guarded(bytes.size(), "activations");
  context_.copy_to_device(data, bytes.data(), bytes.size());
  return {data, DType::bf16, rows, cols};
}

Tensor Backend::f32(const std::vector<float>& values, int64_t rows, int64_t cols) {
  const std::vector<uint8_t> bytes = bytes_of(values);
  uint8_t* data = allocate_guarded(bytes.size(), "f32 input");
  context_.copy_to_device(data, bytes.data(), bytes.size());
  return {data, DType::f32, rows, cols};
}

Tensor Backend::i32(const std::vector<int32_t>& values, int64_t rows, int64_t cols) {
  return {const_cast<int32_t*>(array(values)), DType::i32, rows, cols};
}

Tensor Backend::u8(const std::vector<uint8_t>& values, int64_t rows, int64_t cols) {
  return {const_cast<uint8_t*>(array(values)), DType::u8, rows, cols};
}

Weight Backend::weight(const HostWeight& host) {
  Weight w{host.format, host.n, host.k, array(host.data), host.scale.empty() ? nullptr : array(host.scale)};
  if (operators_.prepare_weight != nullptr) operators_.prepare_weight(context_, w);
  return w;
}

uint8_t* Backend::allocate_guarded(size_t bytes, const std::string& what) {
  auto* data = static_cast<uint8_t*>(context_.allocate_step(bytes + kGuardBytes));
  const std::vector<uint8_t> guard(kGuardBytes, kGuardByte);
  context_.copy_to_device(data + bytes, guard.data(), kGuardBytes);
  guards_.push_back({data + bytes, what});
  return data;
}

Tensor Backend::output(int64_t rows, int64_t cols, DType type) {
  // 0xff is NaN as a float; as an integer it would be -1, which is a legal index.
  const std::vector<uint8_t> poison(rows * cols * size_of(type), type == DType::i32 ? 0xa5 : 0xff);
  uint8_t* data = allocate_guarded(poison.size(), fmt::format("an output [{}, {}]", rows, cols));
  context_.copy_to_device(data, poison.data(), poison.size());
  return {data, type, rows, cols};
}

Tensor Backend::output_linear_input(int64_t rows, const Weight& w, int groups) {
  const Tensor out = operators_.linear_input(context_, static_cast<int>(rows), w, groups);
  // Rounded rows lie in eights, with a scale for each 128 values behind them.
  const int64_t values = out.type == DType::u8 ? (rows + 7) / 8 * 8 * out.cols : rows * out.cols;
  const std::vector<uint8_t> poison(values * size_of(out.type) + (out.type == DType::u8 ? values / 128 * 4 : 0), 0xff);
  context_.copy_to_device(out.data, poison.data(), poison.size());
  return out;
}

Tensor Backend::rounded(const Weight& w, const std::vector<float>& values, int64_t rows) {
  if (operators_.linear_input == nullptr || rows == 0 || w.k % 128 != 0) return {};
  const Tensor out = output_linear_input(rows, w, 1);
  if (out.type != DType::u8) return {};
  const int64_t padded = (rows + 7) / 8 * 8, groups = w.k / 128;
  std::vector<uint8_t> codes(padded * w.k, 0xff);
  std::vector<float> scales(padded * groups, NAN);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t g = 0; g < groups; ++g) {
      float x[128];
      for (int i = 0; i < 128; ++i) x[i] = from_bf16(hadal::to_bf16(values[row * w.k + g * 128 + i]));
      const float scale = scales[g * padded + row] = fp8_row_scale(x, 128);
      for (int i = 0; i < 128; ++i)
        codes[(g * padded + row) * 128 + ((i / 16) ^ (row % 8)) * 16 + i % 16] = to_e4m3(x[i] / scale);
    }
  context_.copy_to_device(out.data, codes.data(), codes.size());
  context_.copy_to_device(out.u8() + codes.size(), scales.data(), scales.size() * sizeof(float));
  return out;
}

uint8_t* Backend::pool(const std::vector<uint8_t>& bytes) {
  uint8_t* data = allocate_guarded(bytes.size(), "a pool");
  context_.copy_to_device(data, bytes.data(), bytes.size());
  return data;
}

Output Backend::download(const Tensor& tensor) {
  Output out{tensor.rows, tensor.cols, {}, {}, {}};
  const int64_t count = tensor.rows * tensor.cols;
  const auto fetch = [&](auto& to) {
    to.resize(count);
    context_.download(to.data(), tensor.data, count * sizeof(to[0]));
  };
  switch (tensor.type) {
    case DType::f32: fetch(out.f32); break;
    case DType::u8: fetch(out.u8); break;
    case DType::i32: fetch(out.i32); break;
    case DType::bf16: {
      std::vector<uint16_t> raw;
      fetch(raw);
      for (const uint16_t v : raw) out.f32.push_back(from_bf16(v));
      break;
    }
  }
  return out;
}

Output Backend::download_rounded(const Tensor& tensor) {
  Output out{tensor.rows, tensor.cols, std::vector<float>(tensor.rows * tensor.cols), {}, {}};
  const int64_t padded = (tensor.rows + 7) / 8 * 8, count = padded * tensor.cols;
  std::vector<uint8_t> codes(count);
  std::vector<float> scales(count / 128);
  context_.download(codes.data(), tensor.data, codes.size());
  context_.download(scales.data(), tensor.u8() + count, scales.size() * sizeof(float));
  for (int64_t row = 0; row < tensor.rows; ++row)
    for (int64_t col = 0; col < tensor.cols; ++col) {
      const int64_t group = col / 128 * padded + row, chunk = (col % 128 / 16) ^ (row % 8);
      out.f32[row * tensor.cols + col] = from_e4m3(codes[group * 128 + chunk * 16 + col % 16]) * scales[group];
    }
  return out;
}

std::string Backend::damage() {
  for (const Guard& guard : guards_) {
    std::vector<uint8_t> bytes(kGuardBytes);
    context_.download(bytes.data(), guard.begin, kGuardBytes);
    const auto bad = std::find_if(bytes.begin(), bytes.end(), [](uint8_t b) { return b != kGuardByte; });
    if (bad != bytes.end()) return fmt::format("wrote {} bytes behind {}", bad - bytes.begin() + 1, guard.what);
  }
  return {};
}

}  // namespace hadal::testing

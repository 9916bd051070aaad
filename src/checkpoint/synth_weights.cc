#include "checkpoint/synth_weights.h"

#include "base/dtype.h"
#include "base/error.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace hadal {
namespace {

constexpr int64_t block = 32;
// Magnitudes of blocks are powers of 2^(1/16): whole steps make the choice of a scale integer arithmetic.
constexpr int steps = 16;

// Counter-based generator: the finaliser of SplitMix64 over key + counter.
uint64_t random_bits(uint64_t key, uint64_t counter) {
  uint64_t z = key + (counter + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Inverse of the normal distribution function (P. Acklam's approximation, relative error 1.2e-9), 0 < p < 1.
double normal_quantile(double p) {
  constexpr double a[] = {-3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                          1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00};
  constexpr double b[] = {-5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02, 6.680131188771972e+01,
                          -1.328068155288572e+01};
  constexpr double c[] = {-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                          -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
  constexpr double d[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00, 3.754408661907416e+00};
  if (p > 0.5) return -normal_quantile(1 - p);
  if (p < 0.02425) {
    const double q = std::sqrt(-2 * std::log(p));
    return (((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) * q + c[5]) /
           ((((d[0] * q + d[1]) * q + d[2]) * q + d[3]) * q + 1);
  }
  const double q = p - 0.5, r = q * q;
  return (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q /
         (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1);
}

// 16 random bits -> a normal value.
const std::vector<float>& normal_table() {
  static const std::vector<float> table = [] {
    std::vector<float> t(1 << 16);
    for (size_t i = 0; i < t.size(); ++i) t[i] = float(normal_quantile((double(i) + 0.5) / double(t.size())));
    return t;
  }();
  return table;
}

// 8 random bits -> steps * log2 of the largest of 32 normal magnitudes: what a block of 32 scales by.
const std::array<int, 256>& maximum_table() {
  static const std::array<int, 256> table = [] {
    std::array<int, 256> t{};
    for (size_t i = 0; i < t.size(); ++i) {
      const double p = std::pow((double(i) + 0.5) / double(t.size()), 1.0 / block);
      t[i] = int(std::lround(steps * std::log2(normal_quantile((1 + p) / 2))));
    }
    return t;
  }();
  return table;
}

// Codes of a normal variable of deviation 2^(bin / steps) in units of the block scale, by random bits.
template <int bits, int first_bin, int bins, typename Encode>
std::vector<uint8_t> code_table(Encode encode) {
  std::vector<uint8_t> table(size_t{bins} << bits);
  for (int bin = 0; bin < bins; ++bin) {
    const double deviation = std::exp2(double(bin + first_bin) / steps);
    for (int i = 0; i < 1 << bits; ++i)
      table[(size_t(bin) << bits) + size_t(i)] =
          encode(float(deviation * normal_quantile((i + 0.5) / double(1 << bits))));
  }
  return table;
}

constexpr int fp4_first = -16, fp4_bins = 72;  // deviations 0.5 to 11 of a grid that ends at 6
constexpr int fp8_first = 80, fp8_bins = 72;   // deviations 32 to 724 of a grid that ends at 448
constexpr int fp8_bits = 10;

const std::vector<uint8_t>& fp4_codes() {
  static const std::vector<uint8_t> table = code_table<8, fp4_first, fp4_bins>(to_e2m1);
  return table;
}
const std::vector<uint8_t>& fp8_codes() {
  static const std::vector<uint8_t> table = code_table<fp8_bits, fp8_first, fp8_bins>(to_e4m3);
  return table;
}

int ceil_div(int a, int b) { return a >= 0 ? (a + b - 1) / b : -(-a / b); }

// The scale exponent of a block whose values have deviation 2^(level / steps) and largest magnitude
// 2^(maximum / steps) times that, on a grid that ends at 2^(limit / steps): the smallest that avoids
// saturation.
int scale_exponent(int level, int maximum, int limit) { return ceil_div(level + maximum - limit, steps); }

uint64_t tensor_key(std::string_view base, uint64_t seed) {
  return XXH3_64bits_withSeed(base.data(), base.size(), seed);
}

// Magnitude of one 32x32 block, -11 to 11 steps: 2^-0.7 to 2^0.7.
int block_level(uint64_t key, int64_t index) { return int(random_bits(key ^ 0x5ca1ab1e, uint64_t(index)) % 23) - 11; }
float block_factor(int level) { return float(std::exp2(double(level) / steps)); }

std::string_view without_layer(std::string_view name) {
  for (const std::string_view prefix : {"layers.", "mtp."}) {
    if (!name.starts_with(prefix)) continue;
    return name.substr(name.find('.', prefix.size()) + 1);
  }
  return name;
}

}  // namespace

// How a weight, and with it its scale tensor, is drawn.
struct SynthWeights::Source {
  std::string_view base;   // name without ".weight"
  std::string_view local;  // and without the layer
  uint64_t key = 0;
  int64_t rows = 0, columns = 0;
  float gain = 1;  // deviation of the values
  float offset = 0;
  bool uniform = false;                      // hc_*_scale: 0.4 to 1.1
  int64_t zero_row = -1;                     // keeps layers from writing residual channel 0
  float first_column = 1;                    // factor of column 0, which reads the constant channel
  std::vector<float> row_bias, column_bias;  // outer product that is added
};

SynthWeights::SynthWeights(const V41Config& config, const std::vector<ExpectedTensor>& inventory, uint64_t seed)
    : config_(config), inventory_(inventory), seed_(seed) {
  const uint64_t key = tensor_key("index direction", seed);
  index_direction_.assign(size_t(config.index_head_dim), 0.f);
  for (int i = 0; i < config.index_head_dim - config.qk_rope_head_dim; ++i)
    index_direction_[size_t(i)] = (random_bits(key, uint64_t(i)) & 1) != 0 ? 1.f : -1.f;
}

SynthWeights::Source SynthWeights::source(const ExpectedTensor& weight) const {
  Source s;
  s.base = weight.name;
  if (s.base.ends_with(".weight")) s.base.remove_suffix(7);
  s.local = without_layer(s.base);
  s.key = tensor_key(s.base, seed_);
  s.rows = rows(weight);
  s.columns = weight.shape.back() * (weight.type == TensorType::i8 ? 2 : 1);

  const auto is = [&](std::string_view name) { return s.local == name; };
  float gain = 1;  // in units of 1/sqrt(columns), which keeps activations of order 1
  if (weight.type == TensorType::f32 && !s.local.ends_with("_fn")) {
    s.gain = is("attn.attn_sink") ? 0.7f : s.local.ends_with("_base") ? 0.6f : 0.2f;  // 0.2: biases of the gate
    s.uniform = s.local.ends_with("_scale");
    return s;
  }
  if (weight.shape.size() == 1 || is("engram.q_weight") || is("engram.k_weight")) {
    s.offset = 1;
    s.gain = 0.2f;
    return s;
  }
  if (is("embed") || is("markov_head.embed") || is("engram.embed")) return s;
  if (is("attn.wq_a") || is("attn.compressor.wkv")) s.first_column = 2.5f;
  if (is("head")) gain = 1.7f;
  if (is("attn.wq_b") || is("ffn.gate") || is("attn.compressor.wgate")) gain = 1.5f;
  if (is("attn.wo_a")) gain = 1.3f;
  if (is("attn.wo_b")) gain = 0.6f, s.zero_row = 0;
  // A small limit clamps more of what goes down.
  if (s.local.ends_with(".w2")) gain = config_.swiglu_limit > 2 ? 0.7f : 2.0f, s.zero_row = 0;
  if (is("engram.wkv")) gain = 0.8f, s.zero_row = int64_t(config_.hc_mult) * config_.hidden_size;
  s.gain = gain / std::sqrt(float(s.columns));

  // The latent component that the constant channel causes points along the index direction, for keys and for
  // queries. 2/sqrt(columns) gives that bias the same share of a key at every width.
  const bool is_key = is("attn.indexer.wk");
  if (is_key || is("attn.indexer.wq_b")) {
    const std::string layer(s.base.substr(0, s.base.size() - s.local.size()));
    s.row_bias = index_direction_;
    s.column_bias = first_column_direction(layer + (is_key ? "attn.compressor.wkv" : "attn.wq_a"), s.columns, !is_key);
    for (float& x : s.column_bias) x *= 2.f / std::sqrt(float(s.columns));
  }
  return s;
}

std::vector<float> SynthWeights::first_column_direction(const std::string& base, int64_t rows,
                                                        bool block_levels) const {
  const uint64_t key = tensor_key(base, seed_);
  const int64_t blocks = (config_.hidden_size + block - 1) / block;
  std::vector<float> v(static_cast<size_t>(rows));
  double squares = 0;
  for (int64_t i = 0; i < rows; ++i) {
    float& x = v[size_t(i)];
    x = normal_table()[random_bits(random_bits(key, uint64_t(i)), 0) & 0xffff];
    if (block_levels) x *= block_factor(block_level(key, i / block * blocks));
    squares += double(x) * double(x);
  }
  for (float& x : v) x /= float(std::sqrt(squares));
  return v;
}

void SynthWeights::float_row(const Source& s, int64_t row, float* out) const {
  const std::vector<float>& normal = normal_table();
  const int64_t K = s.columns;
  if (row == s.zero_row) {
    std::fill(out, out + K, 0.f);
    return;
  }
  const uint64_t key = random_bits(s.key, uint64_t(row));
  for (int64_t j = 0; j < K; j += 4) {
    const uint64_t bits = random_bits(key, uint64_t(j / 4));
    const int n = int(std::min<int64_t>(4, K - j));
    for (int i = 0; i < n; ++i) out[j + i] = s.offset + s.gain * normal[(bits >> (16 * i)) & 0xffff];
  }
  if (s.uniform)
    for (int64_t j = 0; j < K; ++j) out[j] = 0.4f + 0.7f * float(random_bits(key, uint64_t(j)) >> 40) * 0x1p-24f;
  out[0] *= s.first_column;
  if (s.local == "embed") out[0] = 0.6f * std::sqrt(float(K));
  if (s.local == "attn.indexer.weights_proj") out[0] = 0.3f + 0.3f * float(key >> 40) * 0x1p-24f;
  if (!s.row_bias.empty()) {
    const float r = s.row_bias[size_t(row) % s.row_bias.size()];
    for (int64_t j = 0; j < K; ++j) out[j] += r * s.column_bias[size_t(j)];
  }
}

// Dense linears: exact quantisation of float values, one scale per 32x32 block.
void SynthWeights::fill_fp8(const Source& s, int64_t begin, int64_t end, std::byte* weights, std::byte* scales) const {
  const int64_t K = s.columns, blocks = (K + block - 1) / block;
  std::vector<float> values(static_cast<size_t>(block * K));
  for (int64_t top = begin; top < end; top += block) {
    const int64_t n = std::min(block, end - top);
    for (int64_t i = 0; i < n; ++i) float_row(s, top + i, &values[size_t(i * K)]);
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t left = b * block, right = std::min(left + block, K);
      const float factor = block_factor(block_level(s.key, top / block * blocks + b));
      float largest = 0;
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = left; j < right; ++j) largest = std::max(largest, std::fabs(values[size_t(i * K + j)]));
      const uint8_t scale = largest > 0 ? pow2ceil_ue8m0(largest * factor / 448.f) : 127;
      if (scales) *scales++ = std::byte(scale);
      if (!weights) continue;
      const float multiplier = factor / from_ue8m0(scale);
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = left; j < right; ++j)
          weights[(top - begin + i) * K + j] = std::byte(to_e4m3(values[size_t(i * K + j)] * multiplier));
    }
  }
}

// Routed experts, by far most of the bytes: codes come from a table of the distribution that quantisation
// would give, and the scale from the distribution of a block's largest value, so that no float is ever made.
void SynthWeights::fill_fp4(const Source& s, int64_t begin, int64_t end, std::byte* weights, std::byte* scales) const {
  const std::vector<uint8_t>& codes = fp4_codes();
  const std::array<int, 256>& maximum = maximum_table();
  const int limit = int(std::lround(steps * std::log2(6.0)));
  const int gain = int(std::lround(steps * std::log2(double(s.gain))));
  const int64_t groups = s.columns / block;
  std::vector<int> levels(static_cast<size_t>(groups));
  int64_t levels_of = -1;
  for (int64_t row = begin; row < end; ++row) {
    if (row / block != levels_of) {
      levels_of = row / block;
      for (int64_t g = 0; g < groups; ++g) levels[size_t(g)] = gain + block_level(s.key, levels_of * groups + g);
    }
    const uint64_t key = random_bits(s.key, uint64_t(row));
    const bool zero = row == s.zero_row;
    for (int64_t g = 0; g < groups; ++g) {
      const int level = levels[size_t(g)];
      const int exponent = scale_exponent(level, maximum[random_bits(~key, uint64_t(g)) >> 56], limit);
      if (scales) *scales++ = std::byte(zero ? 127 : exponent + 127);
      if (!weights) continue;
      const uint8_t* table = &codes[size_t(level - steps * exponent - fp4_first) << 8];
      uint64_t packed[2] = {0, 0};
      for (int h = 0; h < 4 && !zero; ++h) {
        const uint64_t bits = random_bits(key, uint64_t(4 * g + h));
        uint64_t half = 0;
        for (int i = 0; i < 8; ++i) half |= uint64_t(table[(bits >> (8 * i)) & 0xff]) << (4 * i);
        packed[h / 2] |= half << (32 * (h % 2));
      }
      std::memcpy(weights, packed, sizeof packed);
      weights += sizeof packed;
    }
  }
}

// Engram tables: one scale per row and 32 channels; same method as for experts.
void SynthWeights::fill_table(const Source& s, int64_t begin, int64_t end, std::byte* weights,
                              std::byte* scales) const {
  const std::vector<uint8_t>& codes = fp8_codes();
  const std::array<int, 256>& maximum = maximum_table();
  const int limit = int(std::lround(steps * std::log2(448.0)));
  const int64_t groups = s.columns / block;
  for (int64_t row = begin; row < end; ++row) {
    const uint64_t key = random_bits(s.key, uint64_t(row));
    for (int64_t g = 0; g < groups; ++g) {
      const uint64_t choice = random_bits(~key, uint64_t(g));
      const int level = int(choice % 33) - 16;
      const int exponent = scale_exponent(level, maximum[choice >> 56], limit);
      if (scales) *scales++ = std::byte(exponent + 127);
      if (!weights) continue;
      const uint8_t* table = &codes[size_t(level - steps * exponent - fp8_first) << fp8_bits];
      for (int h = 0; h < 8; ++h) {
        const uint64_t bits = random_bits(key, uint64_t(8 * g + h));
        for (int i = 0; i < 4; ++i) *weights++ = std::byte(table[(bits >> (16 * i)) & 0x3ff]);
      }
    }
  }
}

void SynthWeights::fill(size_t index, int64_t begin, int64_t end, std::byte* out) const {
  const ExpectedTensor& tensor = inventory_[index];
  HADAL_CHECK(begin % row_step == 0 && begin <= end && end <= rows(tensor));
  const ExpectedTensor& weight = tensor.is_scale ? inventory_[index - 1] : tensor;
  const Source s = source(weight);
  std::byte* weights = tensor.is_scale ? nullptr : out;
  std::byte* scales = tensor.is_scale ? out : nullptr;
  if (weight.part == V41Part::engram_table) return fill_table(s, begin, end, weights, scales);
  if (weight.type == TensorType::i8) return fill_fp4(s, begin, end, weights, scales);
  if (weight.type == TensorType::f8_e4m3) {
    if (!tensor.is_scale) return fill_fp8(s, begin, end, weights, nullptr);
    return fill_fp8(s, begin * block, std::min(end * block, s.rows), nullptr, scales);
  }
  std::vector<float> values(static_cast<size_t>(s.columns));
  std::vector<uint16_t> halves(static_cast<size_t>(s.columns));
  for (int64_t row = begin; row < end; ++row) {
    float_row(s, row, values.data());
    if (tensor.type == TensorType::f32) {
      std::memcpy(out, values.data(), size_t(4 * s.columns));
      out += 4 * s.columns;
    } else {
      std::transform(values.begin(), values.end(), halves.begin(), to_bf16);
      std::memcpy(out, halves.data(), size_t(2 * s.columns));
      out += 2 * s.columns;
    }
  }
}

}  // namespace hadal

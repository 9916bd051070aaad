#include "models/deepseek_v41/engram_hash.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace hadal::deepseek_v41 {
namespace {

__extension__ typedef unsigned __int128 uint128;

// numpy.random.SeedSequence for one 32-bit word of entropy. numpy/random/bit_generator.pyx.
std::array<uint64_t, 4> seed_sequence(uint32_t entropy) {
  uint32_t hash = 0x43b0d7e5u;
  const auto hash_mix = [&hash](uint32_t value) {
    value ^= hash;
    hash *= 0x931e8875u;
    value *= hash;
    return value ^ (value >> 16);
  };
  const auto mix = [](uint32_t x, uint32_t y) {
    const uint32_t r = 0xca01f9ddu * x - 0x4973f715u * y;
    return r ^ (r >> 16);
  };
  std::array<uint32_t, 4> pool;
  for (size_t i = 0; i < 4; ++i) pool[i] = hash_mix(i == 0 ? entropy : 0);
  for (size_t from = 0; from < 4; ++from)
    for (size_t to = 0; to < 4; ++to)
      if (from != to) pool[to] = mix(pool[to], hash_mix(pool[from]));

  uint32_t out_hash = 0x8b51f9ddu;
  std::array<uint64_t, 4> state{};
  for (size_t i = 0; i < 8; ++i) {
    uint32_t value = pool[i % 4] ^ out_hash;
    out_hash *= 0x58f38dedu;
    value *= out_hash;
    value ^= value >> 16;
    state[i / 2] |= static_cast<uint64_t>(value) << (32 * (i % 2));
  }
  return state;
}

// PCG64 (XSL-RR 128/64), seeded as numpy does. numpy/random/src/pcg64/pcg64.h.
class Pcg64 {
 public:
  explicit Pcg64(const std::array<uint64_t, 4>& seed) {
    const uint128 start = (static_cast<uint128>(seed[0]) << 64) | seed[1];
    increment_ = (((static_cast<uint128>(seed[2]) << 64) | seed[3]) << 1) | 1;
    step();
    state_ += start;
    step();
  }

  uint64_t next() {
    step();
    const auto folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
    return std::rotr(folded, static_cast<int>(state_ >> 122));
  }

  // Uniform in [0, bound), Lemire's method; bound > 2^32.
  uint64_t below(uint64_t bound) {
    const uint64_t threshold = (0 - bound) % bound;
    while (true) {
      const uint128 product = static_cast<uint128>(next()) * bound;
      if (static_cast<uint64_t>(product) >= threshold) return static_cast<uint64_t>(product >> 64);
    }
  }

 private:
  void step() {
    constexpr uint128 kMultiplier = (static_cast<uint128>(2549297995355413924ULL) << 64) | 4865540595714422341ULL;
    state_ = state_ * kMultiplier + increment_;
  }
  uint128 state_ = 0, increment_ = 0;
};

}  // namespace

std::vector<uint64_t> EngramHash::multipliers(int layer, int ngram, int64_t compressed_vocab) {
  const uint64_t bound = ((uint64_t{1} << 63) - 1) / static_cast<uint64_t>(compressed_vocab) / 2;
  Pcg64 random(seed_sequence(10007u * static_cast<uint32_t>(layer)));
  std::vector<uint64_t> m(static_cast<size_t>(ngram));
  for (uint64_t& v : m) v = 2 * random.below(bound) + 1;
  return m;
}

EngramHash::EngramHash(const V41Config& config, std::span<const int32_t> token_map)
    : ngram_(config.engram_max_ngram_size),
      heads_(config.engram_n_heads),
      columns_(config.engram_columns()),
      pad_(0),
      token_map_(token_map.begin(), token_map.end()) {
  if (token_map_.size() != static_cast<size_t>(config.vocab_size))
    fail(ErrorKind::invalid_data, "the Engram token map has {} entries, vocab_size is {}", token_map_.size(),
         config.vocab_size);
  for (size_t i = 0; i < token_map_.size(); ++i)
    if (token_map_[i] < 0 || token_map_[i] >= config.engram_compressed_vocab_size)
      fail(ErrorKind::invalid_data, "the Engram token map gives token {} the compressed id {}, expected 0 to {}", i,
           token_map_[i], config.engram_compressed_vocab_size - 1);
  pad_ = token_map_[static_cast<size_t>(config.engram_pad_token_id)];
  for (size_t i = 0; i < config.engram_layer_ids.size(); ++i) {
    Layer layer;
    layer.multipliers = multipliers(config.engram_layer_ids[i], ngram_, config.engram_compressed_vocab_size);
    layer.primes = config.engram_primes(static_cast<int>(i));
    int64_t offset = 0;
    for (const int64_t prime : layer.primes) {
      layer.offsets.push_back(offset);
      offset += prime;
    }
    layers_.push_back(std::move(layer));
  }
}

void EngramHash::rows(int index, std::span<const int32_t> tokens, int64_t p, int32_t dead, uint32_t* out) const {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  bool blocked = false;
  uint64_t roll = 0;
  for (int s = 0; s < ngram_; ++s) {
    blocked = blocked || p < s || tokens[static_cast<size_t>(p - s)] == dead;
    const int32_t id = blocked ? pad_ : token_map_[static_cast<size_t>(tokens[static_cast<size_t>(p - s)])];
    roll ^= static_cast<uint64_t>(id) * layer.multipliers[static_cast<size_t>(s)];
    if (s == 0) continue;
    for (int h = 0; h < heads_; ++h) {
      const auto column = static_cast<size_t>((s - 1) * heads_ + h);
      *out++ = static_cast<uint32_t>(layer.offsets[column] +
                                     static_cast<int64_t>(roll % static_cast<uint64_t>(layer.primes[column])));
    }
  }
}

}  // namespace hadal::deepseek_v41

// Row numbers of the Engram tables. They depend on token ids alone, so they are known before the forward pass.  spec 3.9
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/deepseek_v41_config.h"

namespace hadal::deepseek_v41 {

class EngramHash {
 public:
  // `token_map`: token id -> compressed id, one entry per vocabulary id. Throws invalid_data when it does not fit the
  // configuration.
  EngramHash(const V41Config& config, std::span<const int32_t> token_map);

  int columns() const { return columns_; }

  // Table rows of position p of `tokens` in Engram layer number `index`, columns() of them: n-gram size major, head minor.
  // Tokens equal to `dead` (image placeholders) and everything before them read as padding.
  void rows(int index, std::span<const int32_t> tokens, int64_t p, int32_t dead, uint32_t* out) const;

  // Odd 64-bit multipliers of one layer, as numpy's default_rng(10007 * layer) gives them.
  static std::vector<uint64_t> multipliers(int layer, int ngram, int64_t compressed_vocab);

 private:
  struct Layer {
    std::vector<uint64_t> multipliers;  // [ngram]
    std::vector<int64_t> primes;        // [columns]
    std::vector<int64_t> offsets;       // [columns] exclusive prefix sums of the primes
  };
  int ngram_, heads_, columns_;
  int32_t pad_;  // compressed id
  std::vector<int32_t> token_map_;
  std::vector<Layer> layers_;
};

}  // namespace hadal::deepseek_v41

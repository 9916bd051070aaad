// Random weights that behave like trained ones: activations of order 1, block scales that vary, Gaussian FP4
// and FP8 codes.
#pragma once

#include "checkpoint/deepseek_v41_config.h"
#include "checkpoint/deepseek_v41_inventory.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hadal {

// Every value is a function of (seed, tensor name, position), so any range can be made alone, by any thread.
//
// Channel 0 of the residual stream is a constant: every embedding holds 0.6 sqrt(hidden_size) there and no
// layer writes to it. The indexer uses it as a bias, so that most head scores are positive: relu would
// otherwise make many index scores exactly zero, and a top-k among equal scores has no defined answer.
class SynthWeights {
 public:
  // `inventory` is v41_inventory(config); both must outlive this object.
  SynthWeights(const V41Config& config, const std::vector<ExpectedTensor>& inventory, uint64_t seed);

  // Writes rows [begin, end) of inventory[index]: (end - begin) * row_bytes() bytes. `begin` must be a
  // multiple of row_step.
  void fill(size_t index, int64_t begin, int64_t end, std::byte* out) const;

  static int64_t rows(const ExpectedTensor& tensor) { return tensor.shape.size() < 2 ? 1 : tensor.shape[0]; }
  static int64_t row_bytes(const ExpectedTensor& tensor) { return int64_t(tensor.bytes()) / rows(tensor); }
  static constexpr int64_t row_step = 32;

 private:
  struct Source;
  Source source(const ExpectedTensor& weight) const;
  // One row of the values before quantisation; block factors included.
  void float_row(const Source& source, int64_t row, float* out) const;
  // Column 0 of a linear of this name that reads the residual stream, scaled to length 1.
  std::vector<float> first_column_direction(const std::string& base, int64_t rows, bool block_levels) const;
  void fill_fp8(const Source& source, int64_t begin, int64_t end, std::byte* weights, std::byte* scales) const;
  void fill_fp4(const Source& source, int64_t begin, int64_t end, std::byte* weights, std::byte* scales) const;
  void fill_table(const Source& source, int64_t begin, int64_t end, std::byte* weights, std::byte* scales) const;

  const V41Config& config_;
  const std::vector<ExpectedTensor>& inventory_;
  uint64_t seed_;
  std::vector<float> index_direction_;  // +-1 in the channels of an index head that are not rotated, else 0
};

}  // namespace hadal

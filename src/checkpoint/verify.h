// Checks of the bytes of weights. Opening a checkpoint validates headers only; these read the data.
#pragma once

#include "checkpoint/checkpoint.h"

#include <cstdint>
#include <string>
#include <vector>

namespace hadal {

// One pass over the bytes of a UE8M0 scale tensor, for its first use. Throws invalid_data naming the tensor, the row, the
// column and the byte, when a byte is 255 (NaN) or so large that the largest code of `weight_type` times 2^(byte-127)
// overflows fp32: above 246 for f8_e4m3 (448), above 252 for i8 (packed E2M1, 6).
void check_scales(const TensorView& scale, TensorType weight_type);

struct VerifyReport {
  uint64_t bytes_read = 0;
  uint64_t scale_bytes = 0;
  int64_t tensors = 0;
  int files_with_checksum = 0;
  bool has_total_size = false;
  std::vector<std::string> problems;  // the first ones, at most max_problems
  int64_t problem_count = 0;
};

// Reads everything: scale bytes as check_scales() does, E4M3 codes 0x7f and 0xff (NaN), BF16 and F32 values that are not
// finite, the payload size and the checksums of files where the index has them. Vision tensors are not judged.
VerifyReport verify_checkpoint(const Checkpoint& checkpoint, int threads, size_t max_problems = 20);

}  // namespace hadal

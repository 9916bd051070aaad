// Cases of the embedding.
#pragma once

#include "ops/testing/case.h"

namespace hadal::testing {

struct EmbeddingCase {
  const char* name;
  int rows, copies, vocab, d;
};
inline constexpr EmbeddingCase kEmbeddingCases[] = {
    {"no rows", 0, 4, 32, 64},
    {"one row", 1, 4, 32, 64},
    {"two copies, odd multiple of 32", 3, 2, 7, 96},
    {"more rows than tokens", 70, 4, 11, 128},
    {"release width", 17, 4, 300, 5120},
};

Cases embedding_cases(uint64_t seed);

}  // namespace hadal::testing

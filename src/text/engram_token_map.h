// The compressed token ids of Engram, derived from a tokenizer.
#pragma once

#include <cstdint>
#include <vector>

#include "text/tokenizer.h"

namespace hadal::text {

// Token id -> compressed id: tokens whose text is equal but for case, accents, compatibility forms and blanks share one.
// Ids are given in order of first appearance, so the largest value is one less than the number of different keys. Ids from
// the tokenizer's end to `vocab_size` have no text and share the key of the empty text.                        spec 3.9(a)
//
// A checkpoint's Engram tables were trained with such a map, and one that differs in a single key shifts all later ids: the
// caller compares the count with the configuration's.
std::vector<int32_t> derive_engram_token_map(const Tokenizer& tokenizer, int vocab_size);

// How many different ids a map has.
int engram_token_map_size(const std::vector<int32_t>& map);

}  // namespace hadal::text

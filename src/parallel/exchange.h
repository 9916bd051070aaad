// Exchange of rows between expert-parallel ranks: a token's row goes to the ranks that have experts of it, and their
// sums come back.
//
// Rank r has its own tokens (0 .. tokens - 1) and experts r * E / ranks .. (r + 1) * E / ranks - 1 of E. A step's
// tokens lie at fixed places, the same on every rank: token t of rank r at place r * stride + t. `stride` is at least
// every rank's number of tokens, and all ranks give the same. So nothing is counted, where a row lies does not depend
// on timing or on other rows, and what groups rows by expert (ops/experts/grouped.h) takes the received arrays as they
// are: it reads rows of local experts only.
//
// Dispatch, from rank s to every rank:
//   ids, weights          of all places of s; where s has no token, every id is E (no expert)
//   codes, scale          Q5 of the row (docs/numerics.md), once to each rank that has an expert of the token. Other
//                         rows are not written.
// Combine, from rank r to the owner of every place that has experts of r:
//   partial = bf16( sum over the token's experts of r, ascending, of their outputs, in fp32 )
// and at the owner, whose own sum is rounded like the others', so that the result does not depend on which rank a
// request is at:
//   y = bf16( sum over ranks ascending of partial, in fp32, + shared )
// A single rank rounds once and not twice (experts.h), and adds in another order: n ranks give other bits than one
// rank.
#pragma once

#include <cstdint>
#include <vector>

namespace hadal {

constexpr int kMaxRanks = 8, kMaxExchangeChannels = 8192, kMaxStride = 1 << 20;

struct ExchangeShape {
  int ranks = 1;
  int stride = 0;   // places of a rank, at most 1,048,576
  int topk = 0;     // at most 32
  int d = 0;        // a multiple of 128, at most 8,192
  int experts = 0;  // of all ranks, a multiple of `ranks`

  int places() const { return ranks * stride; }
  int rank_of(int expert) const { return expert / (experts / ranks); }
};
// Throws invalid_argument, naming what does not fit.
void check_shape(const ExchangeShape& shape);

// Byte b of a group of 128 channels of a row's codes is this channel: the order in which the matrix kernel reads them
// (grouped.h), without its swizzle.
constexpr int exchange_channel(int b) { return 32 * (b % 16 / 4) + 8 * (b / 32) + 4 * (b / 16 % 2) + b % 4; }

namespace reference {

struct RankTokens {
  int tokens = 0;
  std::vector<float> x;        // [tokens, d]
  std::vector<int32_t> ids;    // [tokens, topk] ascending in a row
  std::vector<float> weights;  // [tokens, topk]
};
struct ReceivedTokens {
  std::vector<int32_t> ids;    // [places, topk]
  std::vector<float> weights;  // [places, topk]
  std::vector<bool> here;      // [places] whether the row was sent
  std::vector<uint8_t> codes;  // [places, d], 0 where it was not
  std::vector<float> scales;   // [places]
};
// What each rank receives.
std::vector<ReceivedTokens> dispatch(const ExchangeShape& shape, const std::vector<RankTokens>& ranks);

// outputs[r][(place * topk + k) * d ..]: what expert ids[place][k] gives, where it is of rank r; bf16 values.
// shared[r]: [tokens, d] of the owner, or empty. Returns y [tokens, d] of each rank.
std::vector<std::vector<float>> combine(const ExchangeShape& shape, const std::vector<RankTokens>& ranks,
                                        const std::vector<std::vector<float>>& outputs,
                                        const std::vector<std::vector<float>>& shared);

}  // namespace reference
}  // namespace hadal

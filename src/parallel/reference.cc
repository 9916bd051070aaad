// The exchange between ranks in plain code.
#include <cstddef>

#include "base/dtype.h"
#include "base/error.h"
#include "base/row_format.h"
#include "parallel/exchange.h"

namespace hadal {

void check_shape(const ExchangeShape& s) {
  const auto want = [](bool holds, const char* what, int have) {
    if (!holds) fail(ErrorKind::invalid_argument, "exchange between ranks: {}, not {}", what, have);
  };
  want(s.ranks >= 1 && s.ranks <= kMaxRanks, "1 to 8 ranks", s.ranks);
  want(s.stride >= 1 && s.stride <= kMaxStride, "1 to 1,048,576 places a rank", s.stride);
  want(s.topk >= 1 && s.topk <= 32, "1 to 32 experts a token", s.topk);
  want(s.d >= 128 && s.d % 128 == 0 && s.d <= kMaxExchangeChannels, "a multiple of 128 channels, at most 8,192", s.d);
  want(s.experts >= s.ranks && s.experts % s.ranks == 0, "as many experts on every rank", s.experts);
}

namespace reference {
namespace {

void check_tokens(const ExchangeShape& shape, const std::vector<RankTokens>& ranks) {
  check_shape(shape);
  HADAL_CHECK(static_cast<int>(ranks.size()) == shape.ranks);
  for (const RankTokens& rank : ranks) {
    HADAL_CHECK(rank.tokens <= shape.stride);
    for (const int32_t id : rank.ids) HADAL_CHECK(id >= 0 && id < shape.experts);
  }
}

bool has_expert(const ExchangeShape& shape, const int32_t* ids, int rank) {
  for (int k = 0; k < shape.topk; ++k)
    if (shape.rank_of(ids[k]) == rank) return true;
  return false;
}

}  // namespace

std::vector<ReceivedTokens> dispatch(const ExchangeShape& shape, const std::vector<RankTokens>& ranks) {
  check_tokens(shape, ranks);
  const auto d = static_cast<size_t>(shape.d), topk = static_cast<size_t>(shape.topk);
  std::vector<ReceivedTokens> received(shape.ranks);
  for (int r = 0; r < shape.ranks; ++r) {
    ReceivedTokens& to = received[r];
    const auto places = static_cast<size_t>(shape.places());
    to.ids.assign(places * topk, shape.experts);
    to.weights.assign(places * topk, 0);
    to.here.assign(places, false);
    to.codes.assign(places * d, 0);
    to.scales.assign(places, 0);
    for (int s = 0; s < shape.ranks; ++s)
      for (int t = 0; t < ranks[s].tokens; ++t) {
        const size_t place = static_cast<size_t>(s) * shape.stride + t;
        const int32_t* ids = &ranks[s].ids[t * topk];
        for (size_t k = 0; k < topk; ++k) {
          to.ids[place * topk + k] = ids[k];
          to.weights[place * topk + k] = ranks[s].weights[t * topk + k];
        }
        if (!has_expert(shape, ids, r)) continue;
        const float* x = &ranks[s].x[t * d];
        const float scale = fp8_row_scale(x, shape.d);
        to.here[place] = true;
        to.scales[place] = scale;
        for (size_t b = 0; b < d; ++b)
          to.codes[place * d + b] = to_e4m3(x[b / 128 * 128 + exchange_channel(static_cast<int>(b % 128))] / scale);
      }
  }
  return received;
}

// Sums are fp32 here too: their order is what the contract is about, so that equal bits can be asked for.
std::vector<std::vector<float>> combine(const ExchangeShape& shape, const std::vector<RankTokens>& ranks,
                                        const std::vector<std::vector<float>>& outputs,
                                        const std::vector<std::vector<float>>& shared) {
  check_tokens(shape, ranks);
  const auto d = static_cast<size_t>(shape.d), topk = static_cast<size_t>(shape.topk);
  std::vector<std::vector<float>> y(shape.ranks);
  for (int s = 0; s < shape.ranks; ++s) {
    y[s].assign(ranks[s].tokens * d, 0);
    for (int t = 0; t < ranks[s].tokens; ++t) {
      const size_t place = static_cast<size_t>(s) * shape.stride + t;
      const int32_t* ids = &ranks[s].ids[t * topk];
      for (size_t c = 0; c < d; ++c) {
        float sum = -0.0f;  // which changes nothing that is added to it
        for (int r = 0; r < shape.ranks; ++r) {
          if (!has_expert(shape, ids, r)) continue;
          float partial = -0.0f;
          for (size_t k = 0; k < topk; ++k)
            if (shape.rank_of(ids[k]) == r) partial += outputs[r][(place * topk + k) * d + c];
          sum += round_bf16(partial);
        }
        if (!shared[s].empty()) sum += shared[s][t * d + c];
        y[s][t * d + c] = round_bf16(sum);
      }
    }
  }
  return y;
}

}  // namespace reference
}  // namespace hadal

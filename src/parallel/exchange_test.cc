// The exchange between ranks: the reference, without a GPU; and the kernels against it, with all ranks on one GPU, and
// on several where there are several.
#include "parallel/exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <random>

#include "base/dtype.h"
#include "base/error.h"
#include "base/row_format.h"

#ifdef HADAL_HAVE_CUDA
#include <cuda_runtime_api.h>

#include "ops/cuda/device.h"
#include "ops/cuda/errors.h"
#include "parallel/device_exchange.h"
#include "parallel/test_support.h"
#endif

namespace hadal {
namespace {

using reference::RankTokens;
using reference::ReceivedTokens;
using Rows = std::vector<std::vector<float>>;  // of each rank

struct Step {
  ExchangeShape shape;
  std::vector<RankTokens> ranks;
  Rows outputs;  // [places, topk, d] of each rank, NaN where an expert is elsewhere
  Rows shared;
};

std::vector<int32_t> some_experts(std::mt19937& random, int topk, int experts) {
  std::vector<int32_t> ids(experts);
  for (int e = 0; e < experts; ++e) ids[e] = e;
  std::shuffle(ids.begin(), ids.end(), random);
  ids.resize(topk);
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::vector<float> bf16_values(std::mt19937& random, size_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> v(count);
  for (float& x : v) x = round_bf16(normal(random));
  return v;
}

// Every rank has another number of tokens; the second has none where there are more than two.
Step random_step(const ExchangeShape& shape, uint32_t seed) {
  std::mt19937 random(seed);
  Step step{shape, {}, {}, {}};
  const auto d = static_cast<size_t>(shape.d), topk = static_cast<size_t>(shape.topk);
  for (int r = 0; r < shape.ranks; ++r) {
    RankTokens tokens;
    tokens.tokens = r == 1 && shape.ranks > 2 ? 0 : std::max(0, shape.stride - r * static_cast<int>(seed % 3));
    const auto n = static_cast<size_t>(tokens.tokens);
    tokens.x = bf16_values(random, n * d);
    for (size_t t = 0; t < n; ++t) {
      const float size = std::ldexp(1.0f, static_cast<int>(random() % 40) - 20);  // other scales, also the floor of Q5
      for (size_t c = 0; c < d; ++c) tokens.x[t * d + c] = round_bf16(tokens.x[t * d + c] * size);
      const auto ids = some_experts(random, shape.topk, shape.experts);
      tokens.ids.insert(tokens.ids.end(), ids.begin(), ids.end());
    }
    for (size_t i = 0; i < n * topk; ++i) tokens.weights.push_back(static_cast<float>(random() % 1000) / 1000);
    step.shared.push_back(r == 0 ? std::vector<float>() : bf16_values(random, n * d));
    step.ranks.push_back(tokens);
  }
  for (int r = 0; r < shape.ranks; ++r) {
    std::vector<float> out(static_cast<size_t>(shape.places()) * topk * d, NAN);
    for (int s = 0; s < shape.ranks; ++s)
      for (int t = 0; t < step.ranks[s].tokens; ++t)
        for (size_t k = 0; k < topk; ++k) {
          if (shape.rank_of(step.ranks[s].ids[t * topk + k]) != r) continue;
          const auto row = bf16_values(random, d);
          std::copy(row.begin(), row.end(), &out[((static_cast<size_t>(s) * shape.stride + t) * topk + k) * d]);
        }
    step.outputs.push_back(out);
  }
  return step;
}

constexpr ExchangeShape kFour{4, 11, 6, 256, 16};

TEST(ExchangeReference, BadShapesAreRefused) {
  const auto refused = [](ExchangeShape shape) { EXPECT_THROW(check_shape(shape), Error); };
  check_shape(kFour);
  refused({9, 11, 6, 256, 18});
  refused({0, 11, 6, 256, 16});
  refused({4, 0, 6, 256, 16});
  refused({4, std::numeric_limits<int>::max(), 6, 256, 16});
  refused({4, 11, 33, 256, 64});
  refused({4, 11, 6, 200, 16});
  refused({4, 11, 6, 8320, 16});
  refused({4, 11, 6, 256, 18});
}

// Every order of bytes that the matrix kernel wants is a permutation of a group, and rows that arrive are Q5 of what
// was sent.
TEST(ExchangeReference, RowsArriveWhereTheirExpertsAre) {
  std::vector<bool> seen(128);
  for (int b = 0; b < 128; ++b) seen[exchange_channel(b)] = true;
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 128);
  const Step step = random_step(kFour, 4);
  const auto received = reference::dispatch(kFour, step.ranks);
  int sent = 0;
  for (int r = 0; r < kFour.ranks; ++r)
    for (int s = 0; s < kFour.ranks; ++s)
      for (int t = 0; t < kFour.stride; ++t) {
        const size_t place = static_cast<size_t>(s) * kFour.stride + t;
        const bool there = t < step.ranks[s].tokens;
        bool wanted = false;
        for (int k = 0; k < kFour.topk; ++k) {
          const int32_t id = received[r].ids[place * kFour.topk + k];
          EXPECT_EQ(id, there ? step.ranks[s].ids[t * kFour.topk + k] : kFour.experts);
          wanted |= there && id / 4 == r;
        }
        ASSERT_EQ(received[r].here[place], wanted);
        if (!wanted) continue;
        ++sent;
        std::vector<float> x(&step.ranks[s].x[static_cast<size_t>(t) * kFour.d],
                             &step.ranks[s].x[static_cast<size_t>(t + 1) * kFour.d - 1] + 1);
        round_fp8_row(x.data(), kFour.d);
        for (int b = 0; b < kFour.d; ++b)
          ASSERT_EQ(from_e4m3(received[r].codes[place * kFour.d + b]) * received[r].scales[place],
                    x[b / 128 * 128 + exchange_channel(b % 128)]);
      }
  EXPECT_GT(sent, kFour.stride * 3);
}

// Sums in double, rounded nowhere: what the rounding of the partial sums and of the result may add is half an ulp of
// each of them, up to 2^-8 of it; room for the second rounding of the first ones' errors, and for fp32 sums, is 1e-4.
TEST(ExchangeReference, SumsAreTheExpertsSums) {
  const Step step = random_step(kFour, 5);
  const Rows y = reference::combine(kFour, step.ranks, step.outputs, step.shared);
  const auto d = static_cast<size_t>(kFour.d), topk = static_cast<size_t>(kFour.topk);
  for (int s = 0; s < kFour.ranks; ++s)
    for (int t = 0; t < step.ranks[s].tokens; ++t)
      for (size_t c = 0; c < d; ++c) {
        const size_t place = static_cast<size_t>(s) * kFour.stride + t;
        double sum = step.shared[s].empty() ? 0 : step.shared[s][t * d + c], room = 0;
        for (int r = 0; r < kFour.ranks; ++r) {
          double partial = 0;
          for (size_t k = 0; k < topk; ++k)
            if (step.ranks[s].ids[t * topk + k] / 4 == r) partial += step.outputs[r][(place * topk + k) * d + c];
          sum += partial;
          room += std::fabs(partial);
        }
        ASSERT_NEAR(y[s][t * d + c], sum, (room + std::fabs(sum)) * 0x1p-8 + 1e-4);
      }
}

// The same token at another rank, with the same experts, gets the same bits.
TEST(ExchangeReference, TheOwnerDoesNotMatter) {
  const ExchangeShape shape{3, 1, 6, 128, 12};
  std::mt19937 random(6);
  RankTokens token{1, bf16_values(random, 128), some_experts(random, 6, 12), {1, 1, 1, 1, 1, 1}};
  const auto shared = bf16_values(random, 128), outputs = bf16_values(random, size_t{6} * 128);
  std::vector<float> first;
  for (int owner = 0; owner < 3; ++owner) {
    std::vector<RankTokens> ranks(3);
    ranks[owner] = token;
    Rows at(3), all(3, std::vector<float>(size_t{3} * 6 * 128));
    at[owner] = shared;
    for (auto& out : all) std::copy(outputs.begin(), outputs.end(), &out[static_cast<size_t>(owner) * 6 * 128]);
    const auto y = reference::combine(shape, ranks, all, at)[owner];
    if (owner == 0) first = y;
    EXPECT_EQ(y, first);
  }
}

#ifdef HADAL_HAVE_CUDA
using namespace hadal::cuda;

// What a rank has on its GPU in a step.
struct RankOnGpu {
  cudaStream_t stream;
  OnGpu<uint16_t> x;
  OnGpu<int32_t> ids;
  OnGpu<float> weights;
  OnGpu<uint16_t> out;
  OnGpu<int32_t> pair_row;
  OnGpu<uint16_t> shared, y;
  bool has_shared;
  CombineRows combine_rows() const { return {out.get(), pair_row.get(), has_shared ? shared.get() : nullptr, y.get()}; }
};

// The rows of local experts, packed in another order than that of the places; everything else is NaN.
RankOnGpu upload(const Step& step, int r, std::mt19937& random) {
  const ExchangeShape& shape = step.shape;
  const auto d = static_cast<size_t>(shape.d);
  std::vector<int32_t> pair_row(static_cast<size_t>(shape.places()) * shape.topk, -1), local;
  for (int s = 0; s < shape.ranks; ++s)
    for (int i = 0; i < step.ranks[s].tokens * shape.topk; ++i)
      if (shape.rank_of(step.ranks[s].ids[i]) == r) local.push_back(s * shape.stride * shape.topk + i);
  std::shuffle(local.begin(), local.end(), random);
  std::vector<uint16_t> out((local.size() + 1) * d, 0x7fff);
  for (size_t i = 0; i < local.size(); ++i) {
    pair_row[local[i]] = static_cast<int32_t>(i + 1);
    for (size_t c = 0; c < d; ++c) out[(i + 1) * d + c] = to_bf16(step.outputs[r][local[i] * d + c]);
  }
  const RankTokens& tokens = step.ranks[r];
  cudaStream_t stream = nullptr;
  HADAL_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return {stream,
          OnGpu<uint16_t>(bits(tokens.x)),
          OnGpu<int32_t>(tokens.ids),
          OnGpu<float>(tokens.weights),
          OnGpu<uint16_t>(out),
          OnGpu<int32_t>(pair_row),
          OnGpu<uint16_t>(bits(step.shared[r])),
          OnGpu<uint16_t>(std::vector<uint16_t>(tokens.tokens * d, 0x7fff)),
          !step.shared[r].empty()};
}

void expect_received(const ExchangeShape& shape, const RankMemory& memory, const ReceivedTokens& want, int rank) {
  const auto places = static_cast<size_t>(shape.places()), d = static_cast<size_t>(shape.d);
  EXPECT_EQ(OnGpu<int32_t>::read(memory.ids, places * shape.topk), want.ids) << "rank " << rank;
  EXPECT_EQ(OnGpu<float>::read(memory.weights, places * shape.topk), want.weights) << "rank " << rank;
  const auto codes = OnGpu<uint8_t>::read(memory.codes, places * d);
  const auto scales = OnGpu<float>::read(memory.scales, places);
  size_t wrong = 0;
  for (size_t p = 0; p < places; ++p) {
    if (!want.here[p]) continue;
    wrong += !(scales[p] == want.scales[p]);
    for (size_t b = 0; b < d; ++b) wrong += codes[p * d + b] != want.codes[p * d + b];
  }
  EXPECT_EQ(wrong, 0U) << "codes and scales of rank " << rank;
}

// The plan of the received routing has all local choices, and their tiles the rows that were received.
void expect_grouped(const ExchangeView& view, const ReceivedTokens& want) {
  const ExchangeShape& shape = view.shape;
  const RankMemory& memory = view.rank[view.me];
  const int slots = shape.experts / shape.ranks, groups = shape.d / 128;
  std::vector<int32_t> slot_of(shape.experts + 1, -1);
  for (int i = 0; i < slots; ++i) slot_of[view.me * slots + i] = i;
  const OnGpu<int32_t> slots_on_gpu(slot_of);
  const OnGpu<uint8_t> block(
      std::vector<uint8_t>(row_plan_bytes(shape.places(), shape.topk, slots, shape.experts, true)));
  const RowPlan plan = row_plan(block.get(), shape.places(), shape.topk, slots, shape.experts, true);
  const OnGpu<uint8_t> codes(std::vector<uint8_t>(fp8_codes(plan, shape.d), 0xff));
  const OnGpu<uint16_t> scales(std::vector<uint16_t>(plan.row_capacity));
  plan_rows(plan, memory.ids, memory.weights, shape.places(), shape.topk, slots_on_gpu.get(), slots, {}, nullptr);
  place_rows(view, plan, codes.get(), scales.get(), nullptr);
  HADAL_CUDA(cudaDeviceSynchronize());
  const auto pair_row = OnGpu<int>::read(plan.pair_row, static_cast<size_t>(shape.places()) * shape.topk);
  const auto tiles = OnGpu<TokenTile>::read(plan.tiles, OnGpu<int>::read(plan.tile_count, 1)[0]);
  const auto have = codes.host();
  const auto have_scales = scales.host();
  size_t wrong = 0;
  for (size_t choice = 0; choice < pair_row.size(); ++choice) {
    const size_t place = choice / shape.topk;
    const int32_t id = want.ids[choice];
    const int row = pair_row[choice];
    ASSERT_EQ(row >= 0, slot_of[id] >= 0);
    if (row < 0) continue;
    const auto tile = std::find_if(tiles.begin(), tiles.end(),
                                   [&](const TokenTile& t) { return row >= t.row0 && row < t.row0 + t.n; });
    ASSERT_TRUE(tile != tiles.end());
    ASSERT_EQ(tile->slot, slot_of[id]);
    wrong += !(from_bf16(have_scales[row]) == want.scales[place]);
    const int in_tile = row - tile->row0;
    for (int b = 0; b < shape.d; ++b) {
      const size_t at = Fp8Tile{tile->row0, tile->n, groups}.code(b / 128, in_tile) +
                        static_cast<size_t>((b % 128 / 16 ^ in_tile % 8) * 16 + b % 16);
      wrong += have[at] != want.codes[place * shape.d + b];
    }
  }
  EXPECT_EQ(wrong, 0U) << "grouped rows of rank " << view.me;
}

enum class Way { push, apart, copy };

// Steps of several sizes through one exchange, so that its counters and memory are used again.
void expect_exchange(ExchangeShape most, const std::vector<int>& devices, Way way, int blocks) {
  const Exchange exchange({.shape = most, .devices = devices, .patience = 3, .copy_engines = way == Way::copy});
  const auto view = [&](int r, const Step& step) {
    const int stride = step.shape.stride, tokens = step.ranks[r].tokens;
    return way == Way::copy ? exchange.staged_view(r, stride, tokens) : exchange.view(r, stride, tokens);
  };
  std::mt19937 random(17);
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    ExchangeShape shape = most;
    if (seed % 2 == 0) shape.stride = std::max(1, most.stride / 3);
    const Step step = random_step(shape, seed);
    std::vector<RankOnGpu> ranks;
    for (int r = 0; r < shape.ranks; ++r) {
      HADAL_CUDA(cudaSetDevice(devices[r]));
      ranks.push_back(upload(step, r, random));
      const RankMemory& m = exchange.view(r, shape.stride, 0).rank[r];
      const auto places = static_cast<size_t>(shape.places());
      HADAL_CUDA(cudaMemset(m.ids, 0xff, places * shape.topk * sizeof(int32_t)));
      HADAL_CUDA(cudaMemset(m.codes, 0xff, places * shape.d));
      HADAL_CUDA(cudaMemset(m.scales, 0xff, places * sizeof(float)));
      HADAL_CUDA(cudaMemset(m.partial, 0xff, places * shape.d * sizeof(uint16_t)));
      HADAL_CUDA(cudaDeviceSynchronize());
    }
    const auto each = [&](const auto& run) {
      for (int r = 0; r < shape.ranks; ++r) {
        HADAL_CUDA(cudaSetDevice(devices[r]));
        run(r, ranks[r], view(r, step));
      }
    };
    each([&](int, RankOnGpu& rank, const ExchangeView& v) {
      dispatch_send(v, {rank.x.get(), rank.ids.get(), rank.weights.get()}, blocks, rank.stream);
      if (way == Way::copy) exchange.copy(v, kDispatch, rank.stream);
    });
    each([&](int, RankOnGpu& rank, const ExchangeView& v) { dispatch_receive(v, rank.stream); });
    each([&](int, RankOnGpu& rank, const ExchangeView& v) {
      (way == Way::push ? combine : combine_send)(v, rank.combine_rows(), blocks, rank.stream);
      if (way == Way::copy) exchange.copy(v, kCombine, rank.stream);
    });
    each([&](int, RankOnGpu& rank, const ExchangeView& v) {
      if (way != Way::push) combine_receive(v, rank.combine_rows(), blocks, rank.stream);
    });
    each([&](int, RankOnGpu& rank, const ExchangeView&) {
      HADAL_CUDA(cudaStreamSynchronize(rank.stream));
      HADAL_CUDA(cudaStreamDestroy(rank.stream));
    });
    exchange.check();
    const auto received = reference::dispatch(shape, step.ranks);
    const Rows y = reference::combine(shape, step.ranks, step.outputs, step.shared);
    each([&](int r, RankOnGpu& rank, const ExchangeView& v) {
      expect_received(shape, v.rank[r], received[r], r);
      expect_grouped(v, received[r]);
      EXPECT_EQ(rank.y.host(), bits(y[r])) << "y of rank " << r << " in step " << seed;
    });
    if (testing::Test::HasFailure()) return;
  }
}

const std::vector<ExchangeShape> kShapes = {{1, 5, 6, 128, 8}, {2, 40, 6, 5120, 384}, {4, 24, 6, 256, 16},
                                            {8, 9, 2, 128, 8}, {3, 1030, 4, 384, 12}, {2, 5, 32, 8192, 64}};

class ExchangeOnGpu : public testing::TestWithParam<Way> {};

TEST_P(ExchangeOnGpu, AllRanksOnOne) {
  if (!unavailable_reason().empty()) GTEST_SKIP() << unavailable_reason();
  for (const ExchangeShape& shape : kShapes)
    for (const int blocks : {2, 3}) {
      SCOPED_TRACE(testing::Message() << shape.ranks << " ranks, " << shape.stride << " places, " << shape.d
                                      << " channels");
      expect_exchange(shape, std::vector<int>(shape.ranks, 0), GetParam(), blocks);
      if (HasFailure()) return;
    }
}

TEST_P(ExchangeOnGpu, OnAll) {
  if (!unavailable_reason().empty()) GTEST_SKIP() << unavailable_reason();
  if (device_count() < 2) GTEST_SKIP() << "there is one GPU, and this needs two that reach each other's memory";
  for (const ExchangeShape& shape : kShapes) {
    SCOPED_TRACE(testing::Message() << shape.ranks << " ranks, " << shape.stride << " places, " << shape.d
                                    << " channels");
    std::vector<int> devices;
    for (int r = 0; r < shape.ranks; ++r) devices.push_back(r % device_count());
    expect_exchange(shape, devices, GetParam(), 12);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, ExchangeOnGpu, testing::Values(Way::push, Way::apart, Way::copy), [](const auto& way) {
  return way.param == Way::push ? "push" : way.param == Way::apart ? "apart" : "copy";
});

TEST(ExchangeFailure, ImpossibleOptionsAreRefused) {
  for (const double patience : {0.0, -1.0, 1e9, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THROW(Exchange({.shape = kFour, .devices = {0, 0, 0, 0}, .patience = patience}), Error) << patience;
  EXPECT_THROW(Exchange({.shape = kFour, .devices = {0, 0, 0}}), Error);
}

// A rank that never sends: the others say so in the time that they were given, and later steps do not wait again.
TEST(ExchangeFailure, ARankThatDoesNotSendIsNamed) {
  if (!unavailable_reason().empty()) GTEST_SKIP() << unavailable_reason();
  HADAL_CUDA(cudaSetDevice(0));
  const Step step = random_step(kFour, 3);
  const Exchange exchange({.shape = kFour, .devices = {0, 0, 0, 0}, .patience = 0.05});
  std::mt19937 random(1);
  RankOnGpu rank = upload(step, 0, random);
  const ExchangeView view = exchange.view(0, kFour.stride, step.ranks[0].tokens);
  for (int repeat = 0; repeat < 50; ++repeat) {
    dispatch_send(view, {rank.x.get(), rank.ids.get(), rank.weights.get()}, 2, rank.stream);
    dispatch_receive(view, rank.stream);
    combine(view, rank.combine_rows(), 2, rank.stream);
  }
  const auto begin = std::chrono::steady_clock::now();
  HADAL_CUDA(cudaStreamSynchronize(rank.stream));
  HADAL_CUDA(cudaStreamDestroy(rank.stream));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  try {
    exchange.check();
    FAIL() << "nothing was reported";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("rank 0 waited 0.05 s for rank"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("to dispatch step 1"), std::string::npos) << e.what();
  }
}
#endif

}  // namespace
}  // namespace hadal

// Experts of several ranks beside the same experts on one rank: dispatch, grouping, both products, combine.
#ifdef HADAL_HAVE_CUDA
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>

#include "ops/cuda/device.h"
#include "ops/experts/pack.h"
#include "parallel/device_exchange.h"
#include "parallel/test_support.h"

namespace hadal::cuda {
namespace {

constexpr int kD = 512, kWidth = 256, kExperts = 16, kTopK = 6, kTokens = 160;

// Random MXFP4 experts, packed for FP8 rows.
struct PackedExperts {
  explicit PackedExperts(std::mt19937& random) {
    constexpr size_t kMatrix = size_t{kWidth} * kD;
    for (int e = 0; e < kExperts; ++e) {
      std::vector<uint8_t> codes(3 * kMatrix / 2), exponents(3 * kMatrix / 32);
      for (uint8_t& c : codes) c = static_cast<uint8_t>(random());
      for (uint8_t& x : exponents) x = static_cast<uint8_t>(119 + random() % 3);
      const OnGpu<uint8_t> data(codes), scale(exponents);
      const auto weight = [&](int n, int k, size_t i) {
        return Weight{WeightFormat::mxfp4, n, k, data.get() + i * kMatrix / 2, scale.get() + i * kMatrix / 32};
      };
      const FeedForward published{weight(kWidth, kD, 0), weight(kWidth, kD, 1), weight(kD, kWidth, 2)};
      const PackedFeedForward size = packed_feed_forward(published, ExpertLayout::fp8_rows);
      const size_t gate_up = (size.gate_up + 255) / 256 * 256;
      memory.push_back(std::make_unique<OnGpu<uint8_t>>(std::vector<uint8_t>(gate_up + size.down)));
      uint8_t* at = memory.back()->get();
      pointers.push_back({at, at + gate_up});
      pack_feed_forward(published, ExpertLayout::fp8_rows, at, at + gate_up, nullptr);
      HADAL_CUDA(cudaDeviceSynchronize());
    }
  }
  std::vector<std::unique_ptr<OnGpu<uint8_t>>> memory;
  std::vector<PackedPointers> pointers;
};

// The experts of one rank, on rows at `places`.
struct RankExperts {
  RankExperts(const PackedExperts& all, int places, int first, int count)
      : slots(count),
        slot_of(slot_numbers(first, count)),
        weights({all.pointers.begin() + first, all.pointers.begin() + first + count}),
        block(std::vector<uint8_t>(row_plan_bytes(places, kTopK, count, kExperts, true))),
        plan(row_plan(block.get(), places, kTopK, count, kExperts, true)),
        x(std::vector<uint8_t>(fp8_codes(plan, kD), 0xff)),
        activated_codes(std::vector<uint8_t>(fp8_codes(plan, kWidth), 0xff)),
        x_scale(std::vector<uint16_t>(plan.row_capacity, 0x7fff)),
        activated_scale(std::vector<uint16_t>(plan.row_capacity, 0x7fff)),
        activated(std::vector<uint16_t>(static_cast<size_t>(plan.row_capacity) * kWidth, 0x7fff)),
        out(std::vector<uint16_t>(static_cast<size_t>(plan.row_capacity) * kD, 0x7fff)) {}
  static std::vector<int32_t> slot_numbers(int first, int count) {
    std::vector<int32_t> v(kExperts + 1, -1);
    for (int i = 0; i < count; ++i) v[first + i] = i;
    return v;
  }
  void group(const int32_t* ids, const float* routing_weights, int places, const RowsToRound& to_round,
             cudaStream_t stream) const {
    plan_rows(plan, ids, routing_weights, places, kTopK, slot_of.get(), slots, to_round, stream);
  }
  void run(cudaStream_t stream) const {
    GroupedArgs args;
    args.plan = plan;
    args.weights = weights.get();
    args.x = x.get();
    args.x_scale = x_scale.get();
    args.activated = activated.get();
    args.activated_codes = activated_codes.get();
    args.activated_scale = activated_scale.get();
    args.out = out.get();
    args.d = kD;
    args.width = kWidth;
    args.limit = 10;
    args.fp8 = true;
    grouped_feed_forward(args, 16, stream);  // few, so that all ranks find room at once
  }
  // The expert's output for a choice.
  std::vector<uint16_t> row(size_t choice) const {
    const int at = OnGpu<int>::read(plan.pair_row + choice, 1)[0];
    return OnGpu<uint16_t>::read(out.get() + static_cast<size_t>(at) * kD, kD);
  }

  int slots;
  OnGpu<int32_t> slot_of;
  OnGpu<PackedPointers> weights;
  OnGpu<uint8_t> block;
  RowPlan plan;
  OnGpu<uint8_t> x, activated_codes;
  OnGpu<uint16_t> x_scale, activated_scale, activated, out;
};

// Every expert's output of every token has the same bits as on one rank. y has one rounding more, of each rank's sum: it
// may differ by an ulp (2^-7) of those sums and of y itself.
TEST(ExchangeExperts, FourRanksAsOne) {
  if (!unavailable_reason().empty()) GTEST_SKIP() << unavailable_reason();
  if (!is_hopper(device_info(0))) GTEST_SKIP() << "not a Hopper GPU";
  HADAL_CUDA(cudaSetDevice(0));
  constexpr int kRanks = 4, kPlaces = kRanks * kTokens, kEach = kExperts / kRanks;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  const PackedExperts experts(random);
  std::vector<uint16_t> x(size_t{kPlaces} * kD), shared(x.size());
  for (uint16_t& v : x) v = to_bf16(normal(random));
  for (uint16_t& v : shared) v = to_bf16(normal(random));
  std::vector<int32_t> ids;
  for (int t = 0; t < kPlaces; ++t) {
    std::vector<int32_t> all(kExperts);
    for (int e = 0; e < kExperts; ++e) all[e] = e;
    std::shuffle(all.begin(), all.end(), random);
    std::sort(all.begin(), all.begin() + kTopK);
    ids.insert(ids.end(), all.begin(), all.begin() + kTopK);
  }
  std::vector<float> weights(ids.size());
  for (float& w : weights) w = 0.1f + 0.4f * static_cast<float>(random() % 1000) / 1000;
  const OnGpu<uint16_t> x_on_gpu(x), shared_on_gpu(shared), y_one(std::vector<uint16_t>(x.size(), 0x7fff)),
      y_four(std::vector<uint16_t>(x.size(), 0x7fff));
  const OnGpu<int32_t> ids_on_gpu(ids);
  const OnGpu<float> weights_on_gpu(weights);

  const RankExperts one(experts, kPlaces, 0, kExperts);
  one.group(ids_on_gpu.get(), weights_on_gpu.get(), kPlaces, {x_on_gpu.get(), kD, one.x.get(), one.x_scale.get(), {}},
            nullptr);
  one.run(nullptr);
  combine_rows(one.plan.pair_row, one.out.get(), shared_on_gpu.get(), y_one.get(), kPlaces, kTopK, kD, nullptr);
  HADAL_CUDA(cudaDeviceSynchronize());

  const ExchangeShape shape{kRanks, kTokens, kTopK, kD, kExperts};
  const Exchange exchange({.shape = shape, .devices = {0, 0, 0, 0}, .patience = 3});
  std::vector<std::unique_ptr<RankExperts>> ranks;
  std::vector<cudaStream_t> streams(kRanks);
  for (int r = 0; r < kRanks; ++r) {
    ranks.push_back(std::make_unique<RankExperts>(experts, kPlaces, r * kEach, kEach));
    HADAL_CUDA(cudaStreamCreateWithFlags(&streams[r], cudaStreamNonBlocking));
  }
  HADAL_CUDA(cudaDeviceSynchronize());
  for (int r = 0; r < kRanks; ++r) {
    const size_t first = size_t{kTokens} * r;
    dispatch_send(exchange.view(r, kTokens, kTokens),
                  {x_on_gpu.get() + first * kD, ids_on_gpu.get() + first * kTopK, weights_on_gpu.get() + first * kTopK},
                  2, streams[r]);
  }
  for (int r = 0; r < kRanks; ++r) {
    const ExchangeView view = exchange.view(r, kTokens, kTokens);
    const RankMemory& own = view.rank[r];
    dispatch_receive(view, streams[r]);
    ranks[r]->group(own.ids, own.weights, kPlaces, {}, streams[r]);
    place_rows(view, ranks[r]->plan, ranks[r]->x.get(), ranks[r]->x_scale.get(), streams[r]);
    ranks[r]->run(streams[r]);
    const size_t first = size_t{kTokens} * r * kD;
    combine(view, {ranks[r]->out.get(), ranks[r]->plan.pair_row, shared_on_gpu.get() + first, y_four.get() + first}, 2,
            streams[r]);
  }
  for (const cudaStream_t stream : streams) {
    HADAL_CUDA(cudaStreamSynchronize(stream));
    HADAL_CUDA(cudaStreamDestroy(stream));
  }
  exchange.check();

  const auto have = y_four.host(), want = y_one.host();
  for (int t = 0; t < kPlaces; ++t) {
    std::vector<double> room(kD);
    for (int r = 0; r < kRanks; ++r) {
      std::vector<double> sum(kD);
      for (int k = 0; k < kTopK; ++k) {
        const size_t choice = static_cast<size_t>(t) * kTopK + k;
        if (ids[choice] / kEach != r) continue;
        const auto row = ranks[r]->row(choice);
        ASSERT_EQ(row, one.row(choice)) << "token " << t << ", expert " << ids[choice];
        for (int c = 0; c < kD; ++c) sum[c] += from_bf16(row[c]);
      }
      for (int c = 0; c < kD; ++c) room[c] += std::fabs(sum[c]);
    }
    for (int c = 0; c < kD; ++c) {
      const double y = from_bf16(want[static_cast<size_t>(t) * kD + c]);
      ASSERT_NEAR(from_bf16(have[static_cast<size_t>(t) * kD + c]), y, (room[c] + std::fabs(y)) * 0x1p-7 + 1e-4);
    }
  }
}

}  // namespace
}  // namespace hadal::cuda
#endif

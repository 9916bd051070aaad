// A row has the same bits alone and in any batch (design decision 6): operators that have kernels for few and for many rows.
// Needs a GPU; skipped without one.
#ifdef HADAL_HAVE_CUDA
#include <gtest/gtest.h>

#include <functional>

#include "ops/cuda/selfcheck.h"
#include "ops/operators.h"
#include "ops/testing/backend.h"
#include "ops/testing/step.h"

namespace hadal {
namespace {

using testing::Backend;
using testing::Random;

constexpr int kMost = 300;

// `run(rows)` computes that many of the same rows and returns what came out, one tensor after the other.
using Outcome = std::vector<std::pair<std::string, testing::Output>>;
void expect_rows_alike(CudaContext& context, const std::function<Outcome(Backend&, int)>& run) {
  Outcome all;
  for (const int rows : {kMost, 1, 2, 7, 8, 9, 16, 17, 33, 64, 65, 128, 129, 131, 256, kMost}) {
    Backend backend(cuda_operators(), context);
    const Outcome some = run(backend, rows);
    EXPECT_EQ(backend.damage(), "");
    if (all.empty()) all = some;
    for (size_t i = 0; i < some.size(); ++i) {
      const testing::Output &a = all[i].second, &b = some[i].second;
      const bool integers = !b.i32.empty();
      const size_t bytes = 4 * (integers ? b.i32.size() : b.f32.size());
      EXPECT_EQ(std::memcmp(integers ? static_cast<const void*>(a.i32.data()) : a.f32.data(),
                            integers ? static_cast<const void*>(b.i32.data()) : b.f32.data(), bytes),
                0)
          << some[i].first << ": " << rows << " rows differ from " << kMost;
    }
    context.reset_step();
  }
}

class CudaRows : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cuda::unavailable_reason().empty()) GTEST_SKIP() << cuda::unavailable_reason();
    context = std::make_unique<CudaContext>(Numerics::bf16);
  }
  std::unique_ptr<CudaContext> context;
};

std::vector<float> first(const std::vector<float>& v, int64_t count) { return {v.begin(), v.begin() + count}; }

TEST_F(CudaRows, HyperConnection) {
  constexpr int kCopies = 4, kD = 5120, kMixes = 24;
  Random random(1);
  const std::vector<float> h = random.normals(int64_t{kMost} * kCopies * kD), y = random.normals(int64_t{kMost} * kD),
                           pre = random.uniforms(kMost * kCopies, 0.1, 1.2),
                           post = random.uniforms(kMost * kCopies, 0, 2),
                           comb = random.uniforms(kMost * kCopies * kCopies, 0.02, 0.6),
                           fn = random.normals(int64_t{kMixes} * kCopies * kD, 1.5 / std::sqrt(kCopies * kD)),
                           base = random.uniforms(kMixes, -2, 2), scale = {0.5f, 1, 1.5f};
  const std::vector<uint16_t> norm = testing::random_norm(random, kD);
  expect_rows_alike(*context, [&](Backend& b, int rows) -> Outcome {
    const HyperConnectionWeights mix{b.array(fn), b.array(base), b.array(scale)};
    HyperConnectionArgs a;
    a.rows = rows;
    a.d = kD;
    a.in = {b.activations(first(h, int64_t{rows} * kCopies * kD), rows, kCopies * kD),
            b.f32(first(pre, rows * kCopies), rows, kCopies), b.f32(first(post, rows * kCopies), rows, kCopies),
            b.f32(first(comb, rows * kCopies * kCopies), rows, kCopies * kCopies)};
    a.y = b.activations(first(y, int64_t{rows} * kD), rows, kD);
    a.out = {a.in.h, b.output(rows, kCopies, DType::f32), b.output(rows, kCopies, DType::f32),
             b.output(rows, kCopies * kCopies, DType::f32)};
    a.mix = &mix;
    a.norm = b.array(norm);
    a.x = b.output_activations(rows, kD);
    cuda::hyper_connection(b.context(), a);
    return {{"h", b.download(a.out.h)},
            {"x", b.download(a.x)},
            {"pre", b.download(a.out.pre)},
            {"post", b.download(a.out.post)},
            {"comb", b.download(a.out.comb)}};
  });
}

TEST_F(CudaRows, Router) {
  constexpr int kExperts = 384, kD = 5120, kTopk = 6;
  Random random(2);
  const std::vector<float> x = random.normals(int64_t{kMost} * kD), bias = random.normals(kExperts, 0.3);
  const testing::HostWeight gate =
      testing::bf16_weight(random.normals(int64_t{kExperts} * kD, 1.5 / std::sqrt(kD)), kExperts, kD);
  expect_rows_alike(*context, [&](Backend& b, int rows) -> Outcome {
    RouterArgs a;
    a.rows = rows;
    a.topk = kTopk;
    a.x = b.activations(first(x, int64_t{rows} * kD), rows, kD);
    a.gate = b.weight(gate);
    a.bias = b.array(bias);
    a.ids = b.output(rows, kTopk, DType::i32);
    a.weights = b.output(rows, kTopk, DType::f32);
    a.scores = b.output(rows, kExperts, DType::f32);
    cuda::router(b.context(), a);
    return {{"ids", b.download(a.ids)}, {"weights", b.download(a.weights)}, {"scores", b.download(a.scores)}};
  });
}

// Rows of one request, whose first completes a pending group.
TEST_F(CudaRows, Compressor) {
  constexpr int kD = 5120, kHead = 512, kIndex = 128, kPage = 64;
  Random random(4);
  const std::vector<float> x = random.normals(int64_t{kMost} * kD), pending = random.normals(2 * kHead);
  const auto matrix = [&](int n, int k) { return testing::random_weight(random, WeightFormat::bf16, n, k); };
  const testing::HostWeight wkv = matrix(kHead, kD), wgate = matrix(kHead, kD), wk = matrix(kIndex, kHead);
  const std::vector<uint16_t> norm = testing::random_norm(random, kHead), k_norm = testing::random_norm(random, kIndex);
  const auto entry_bytes = static_cast<int>(row_bytes(RowFormat::fp4_e4m3_16, kHead));
  const auto key_bytes = static_cast<int>(row_bytes(RowFormat::fp4_ue8m0_32, kIndex));
  expect_rows_alike(*context, [&](Backend& b, int rows) -> Outcome {
    const testing::HostStep host = testing::make_step(random, {{1, rows}}, 2 * kPage);
    const testing::DeviceStep step(b, host);
    CompressorArgs a;
    a.x = b.activations(first(x, int64_t{rows} * kD), rows, kD);
    a.rows = &step.all;
    a.segments = &step.segments;
    a.ratio = 2;
    a.head_dim = kHead;
    a.index_dim = kIndex;
    a.rope = {b.array(testing::inverse_frequencies(64, 160000)), 64};
    a.wkv = b.weight(wkv);
    a.wgate = b.weight(wgate);
    a.norm = b.array(norm);
    a.wk = b.weight(wk);
    a.k_norm = b.array(k_norm);
    std::vector<float> slots;
    for (int s = 0; s < host.slots; ++s) slots.insert(slots.end(), pending.begin(), pending.end());
    a.pending = b.array(slots);
    a.ab = b.output(rows, 2 * kHead, DType::f32);
    const Tensor entries = b.output(int64_t{host.pages} * kPage, entry_bytes, DType::u8),
                 keys = b.output(int64_t{host.pages} * kPage, key_bytes, DType::u8);
    a.entries = {entries.u8(), entry_bytes, kPage};
    a.keys = {keys.u8(), key_bytes, kPage};
    cuda::compressor(b.context(), a);
    // Cached rows in the order of groups: pages lie anywhere.
    const auto by_group = [&](const testing::Output& pool) {
      testing::Output out{(rows + 1) / 2, pool.cols, {}, {}, {}};
      for (int g = 0; g < out.rows; ++g) {
        const uint8_t* row = pool.u(host.physical(0, 2, g));
        out.i32.insert(out.i32.end(), row, row + pool.cols);
      }
      return out;
    };
    return {{"ab", b.download(a.ab)}, {"entries", by_group(b.download(entries))}, {"keys", by_group(b.download(keys))}};
  });
}

TEST_F(CudaRows, Head) {
  constexpr int kVocab = 9088, kD = 1024;
  Random random(3);
  const std::vector<float> x = random.normals(int64_t{kMost} * kD);
  const testing::HostWeight head = testing::random_weight(random, WeightFormat::bf16, kVocab, kD);
  expect_rows_alike(*context, [&](Backend& b, int rows) -> Outcome {
    HeadArgs a{rows, b.activations(first(x, int64_t{rows} * kD), rows, kD), b.weight(head),
               b.output(rows, kVocab, DType::f32)};
    cuda::head(b.context(), a);
    return {{"logits", b.download(a.logits)}};
  });
}

}  // namespace
}  // namespace hadal
#endif

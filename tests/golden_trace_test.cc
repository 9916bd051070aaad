// Intermediate values of a 40-token prompt against an independent implementation: rounded values, selections, expert ids and
// Engram rows bit for bit, other values to 2e-5 of their largest.
#include <fmt/format.h>

#include <map>
#include <set>

#include "golden.h"
#include "models/deepseek_v41/engram_hash.h"
#include "models/deepseek_v41/rope.h"

namespace hadal {
namespace {

// What an observer saw, copied to the host, as fp32 or as raw ints and bytes.
struct Seen {
  std::vector<float> f32;
  std::vector<int32_t> i32;
  std::vector<uint8_t> u8;
  int64_t rows = 0, cols = 0;
};

class Recorder {
 public:
  explicit Recorder(Context& context) : context_(context) {}

  deepseek_v41::Observer observer() {
    return [this](std::string_view what, int layer, const Tensor& t) {
      Seen s;
      s.rows = t.rows;
      s.cols = t.cols;
      const auto n = static_cast<size_t>(t.rows * t.cols);
      switch (t.type) {
        case DType::f32:
          s.f32.resize(n);
          context_.download(s.f32.data(), t.data, n * 4);
          break;
        case DType::i32:
          s.i32.resize(n);
          context_.download(s.i32.data(), t.data, n * 4);
          break;
        case DType::u8:
          s.u8.resize(n);
          context_.download(s.u8.data(), t.data, n);
          break;
        case DType::bf16: fail(ErrorKind::internal, "bf16 values are not recorded");
      }
      seen_[{std::string(what), layer}] = std::move(s);
    };
  }

  const Seen& at(const std::string& what, int layer) const { return seen_.at({what, layer}); }
  bool has(const std::string& what, int layer) const { return seen_.count({what, layer}) > 0; }

 private:
  Context& context_;
  std::map<std::pair<std::string, int>, Seen> seen_;
};

std::vector<float> unpacked(const Seen& s, RowFormat format, int dim) {
  std::vector<float> values(static_cast<size_t>(s.rows) * static_cast<size_t>(dim));
  for (int64_t r = 0; r < s.rows; ++r)
    unpack_row(format, &s.u8[static_cast<size_t>(r * s.cols)], dim, &values[static_cast<size_t>(r * dim)]);
  return values;
}

// Rows 0 .. groups of an owner's pool, in group order.
std::vector<float> pool_rows(Context& context, const PagedRows& pool, std::span<const int32_t> pages, int64_t groups,
                             RowFormat format, int dim) {
  std::vector<float> values(static_cast<size_t>(groups) * static_cast<size_t>(dim));
  std::vector<uint8_t> row(static_cast<size_t>(pool.row_bytes));
  for (int64_t g = 0; g < groups; ++g) {
    context.download(row.data(), pool.rows + PagedRows::physical(pages.data(), pool.page_rows, g) * pool.row_bytes,
                     row.size());
    unpack_row(format, row.data(), dim, &values[static_cast<size_t>(g * dim)]);
  }
  return values;
}

void expect_close(const std::vector<float>& got, const std::vector<float>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  const float scale = largest(want);
  for (size_t i = 0; i < got.size(); ++i) ASSERT_LE(std::fabs(got[i] - want[i]), 2e-5f * scale) << what << " at " << i;
}

// Rounded values whose inputs were not chosen to keep away from rounding boundaries: at most one in a thousand may lie on
// the neighbouring e4m3 value (a step is at most 2^-3 of the value).
void expect_same_but_flips(const std::vector<float>& got, const std::vector<float>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  size_t flips = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i]) continue;
    ++flips;
    ASSERT_LE(std::fabs(got[i] - want[i]), 0.125f * std::max(std::fabs(got[i]), std::fabs(want[i])))
        << what << " at " << i;
  }
  EXPECT_LE(flips, got.size() / 1000) << what;
}

class GoldenTrace : public testing::TestWithParam<std::tuple<std::string, Backend>> {};

TEST_P(GoldenTrace, FortyTokens) {
  const auto& [set, backend] = GetParam();
  GoldenModel golden(set, backend, Numerics::fp32);
  const V41Config& c = golden.model.config();
  const GoldenFile expected(golden.directory / "trace_n40.safetensors");
  const std::vector<int32_t> ids = GoldenFile(golden.directory / "logits.safetensors").i32("n40.ids");
  const auto n = static_cast<int64_t>(ids.size());

  SingleRequest request(golden.model, n);
  Recorder seen(*golden.context);
  SingleRequest::PromptOptions options;
  options.logits = LogitsWanted::all;  // so that every row reaches the final norm
  options.observe = seen.observer();
  request.prefill(ids, options);
  const CachePools& pools = request.state().pools();

  for (int l = 0; l < c.layers(); ++l) {
    const std::string p = fmt::format("layers.{}.", l);
    for (const char* name : {"attn_in", "attn_pre", "attn_post", "attn_comb", "attn_out", "router_scores", "moe_out",
                             "pre_mix", "h_out", "engram_gate", "engram_out"})
      if (expected.has(p + name)) expect_close(seen.at(name, l).f32, expected.f32(p + name), p + name);

    EXPECT_EQ(unpacked(seen.at("window_kv", l), RowFormat::fp8_ue8m0_32, c.head_dim), expected.f32(p + "window_kv"))
        << p;

    const int ratio = c.ratio(l);
    if (c.is_kv_source(l)) {
      const int owner = pools.layout().owner_index(l);
      EXPECT_EQ(pool_rows(*golden.context, pools.entries(owner), request.state().pages(), n / ratio,
                          RowFormat::fp4_e4m3_16, c.head_dim),
                expected.f32(p + "compressed_kv"))
          << p;
      EXPECT_EQ(pool_rows(*golden.context, pools.keys(owner), request.state().pages(), n / ratio,
                          RowFormat::fp4_ue8m0_32, c.index_head_dim),
                expected.f32(p + "index_k"))
          << p;
      std::vector<float> latent;  // of the rows that complete a group
      for (int64_t r = ratio - 1; r < n; r += ratio) {
        const auto* row = &seen.at("latent", l).f32[static_cast<size_t>(r * c.head_dim)];
        latent.insert(latent.end(), row, row + c.head_dim);
      }
      expect_close(latent, expected.f32(p + "latent"), p + "latent");
    }
    if (c.is_index_source(l)) {
      EXPECT_EQ(seen.at("index_q", l).f32, expected.f32(p + "index_q")) << p;
      const int64_t groups = n / ratio;
      const std::vector<uint8_t> selected = expected.u8(p + "selected");
      const Seen& rows = seen.at("selected", l);
      const std::vector<float> scores = expected.f32(p + "index_scores");
      const float scale = [&] {
        float m = 0;
        for (const float s : scores)
          if (std::isfinite(s)) m = std::max(m, std::fabs(s));
        return m;
      }();
      for (int64_t r = 0; r < n; ++r) {
        std::vector<uint8_t> got(static_cast<size_t>(groups), 0);
        for (int i = 0; i < seen.at("selected_count", l).i32[static_cast<size_t>(r)]; ++i)
          got[static_cast<size_t>(rows.i32[static_cast<size_t>(r * rows.cols + i)])] =
              1;  // first pages: physical = group
        ASSERT_EQ(got, std::vector<uint8_t>(selected.begin() + r * groups, selected.begin() + (r + 1) * groups))
            << p << "row " << r;
        for (int64_t g = 0; g < groups; ++g) {
          const float want = scores[static_cast<size_t>(r * groups + g)];
          const float have = seen.at("index_scores", l).f32[static_cast<size_t>(r * groups + g)];
          if (std::isinf(want))
            ASSERT_EQ(have, want) << p << "row " << r << " group " << g;
          else
            ASSERT_NEAR(have, want, 2e-5f * scale) << p << "row " << r << " group " << g;
        }
      }
    }
    if (l == c.candidate_source_layer_id) {
      const std::vector<uint8_t> want = expected.u8(p + "candidate_blocks");
      const auto blocks = static_cast<int64_t>(want.size()) / n;
      const Seen& rows = seen.at("candidate_blocks", l);
      for (int64_t r = 0; r < n; ++r) {
        const int count = seen.at("candidate_count", l).i32[static_cast<size_t>(r)];
        std::vector<uint8_t> got(static_cast<size_t>(blocks), 0);
        if (count < 0) std::fill_n(got.begin(), r / c.candidate_block_size + 1, 1);
        for (int i = 0; i < count; ++i) got[static_cast<size_t>(rows.i32[static_cast<size_t>(r * rows.cols + i)])] = 1;
        ASSERT_EQ(got, std::vector<uint8_t>(want.begin() + r * blocks, want.begin() + (r + 1) * blocks))
            << p << "row " << r;
      }
    }
    const int k = c.num_experts_per_tok;
    const std::vector<int32_t> expert_ids = expected.i32(p + "expert_ids");
    const std::vector<float> expert_weights = expected.f32(p + "expert_weights");
    for (int64_t r = 0; r < n; ++r) {
      std::map<int32_t, float> got, want;
      for (int i = 0; i < k; ++i) {
        const auto at = static_cast<size_t>(r * k + i);
        got[seen.at("expert_ids", l).i32[at]] = seen.at("expert_weights", l).f32[at];
        want[expert_ids[at]] = expert_weights[at];
      }
      for (const auto& [id, weight] : want) {
        ASSERT_TRUE(got.count(id)) << p << "row " << r << " expert " << id;
        ASSERT_NEAR(got[id], weight, 2e-5f) << p << "row " << r;
      }
    }
  }
  expect_close(seen.at("final_norm", c.layers()).f32, expected.f32("final_norm"), "final_norm");
}

TEST_P(GoldenTrace, DraftStep) {
  const auto& [set, backend] = GetParam();
  GoldenModel golden(set, backend, Numerics::fp32);
  const V41Config& c = golden.model.config();
  const GoldenFile expected(golden.directory / "dspark.safetensors");
  const GoldenFile prompts(golden.directory / "logits.safetensors");
  int cases = 0;
  for (const int n : {40, 300})
    for (int position = 0; position < n - 1; ++position) {
      const std::string p = fmt::format("n{}.p{}.", n, position);
      if (!expected.has(p + "anchor")) continue;
      ++cases;
      std::vector<int32_t> ids = prompts.i32(fmt::format("n{}.ids", n));
      ids.resize(static_cast<size_t>(position) + 1);
      SingleRequest request(golden.model, n);
      Recorder seen(*golden.context);
      SingleRequest::PromptOptions options;
      options.chunk = 1000;
      options.observe = seen.observer();
      request.prefill(ids, options);
      expect_close(seen.at("main_hidden", c.layers()).f32, expected.f32(p + "main_hidden"), p + "main_hidden");
      expect_close(seen.at("main_x", c.layers()).f32, expected.f32(p + "quant.main_x"), p + "main_x");
      for (int s = 0; s < c.draft_stages(); ++s)
        expect_same_but_flips(unpacked(seen.at("ring_kv", s), RowFormat::fp8_ue8m0_32, c.head_dim),
                              expected.f32(fmt::format("{}quant.stage{}.ring_kv", p, s)), p);

      golden.context->reset_step();
      RequestState* state = &request.state();
      const int32_t anchor = expected.i32(p + "anchor").at(0);
      const deepseek_v41::Drafts drafts = golden.model.draft({&state, 1}, {&anchor, 1}, seen.observer());
      for (int s = 0; s < c.draft_stages(); ++s)
        expect_close(seen.at("draft_h_out", s).f32, expected.f32(fmt::format("{}quant.stage{}.h_out", p, s)),
                     p + "h_out");
      std::vector<float> base(static_cast<size_t>(drafts.base.rows * drafts.base.cols));
      golden.context->download(base.data(), drafts.base.data, base.size() * 4);
      expect_close(base, expected.f32(p + "quant.base_logits"), p + "base_logits");

      const std::vector<int32_t> draft_ids = expected.i32(p + "quant.draft_ids");
      const std::vector<float> confidence = expected.f32(p + "quant.confidence");
      std::vector<float> logits;
      int32_t previous = anchor;
      for (int i = 0; i < c.dspark_block_size; ++i) {
        const deepseek_v41::Model::DraftLogits row{golden.context->tensor(1, c.vocab_size, DType::f32),
                                                   golden.context->tensor(1, 1, DType::f32)};
        golden.model.draft_logits(drafts, i, previous, row);
        std::vector<float> values(static_cast<size_t>(c.vocab_size));
        float probability = 0;
        golden.context->download(values.data(), row.logits.data, values.size() * 4);
        golden.context->download(&probability, row.probability.data, 4);
        logits.insert(logits.end(), values.begin(), values.end());
        EXPECT_NEAR(probability, confidence[static_cast<size_t>(i)], 2e-5f) << p << i;
        previous = static_cast<int32_t>(std::max_element(values.begin(), values.end()) - values.begin());
        EXPECT_EQ(previous, draft_ids[static_cast<size_t>(i)]) << p << i;
      }
      expect_close(logits, expected.f32(p + "quant.draft_logits"), p + "draft_logits");
      EXPECT_EQ(request.state().length(), position + 1) << "a draft step leaves the state alone";
    }
  EXPECT_EQ(cases, 3);
}

TEST(GoldenEngram, RowsAndDeadPositions) {
  for (const std::string set : {"v41-a", "v41-c"}) {
    const Checkpoint checkpoint = Checkpoint::open(golden_directory(set));
    const V41Config& c = checkpoint.config();
    const deepseek_v41::EngramHash hash(c, checkpoint.engram_token_map());
    const GoldenFile expected(golden_directory(set) / "trace_n40.safetensors");
    std::vector<int32_t> ids = GoldenFile(golden_directory(set) / "logits.safetensors").i32("n40.ids");
    const std::vector<uint8_t> dead = expected.u8("engram_dead.mask");
    for (const bool with_dead : {false, true}) {
      for (size_t i = 0; with_dead && i < ids.size(); ++i)
        if (dead[i] != 0) ids[i] = -1;
      for (size_t e = 0; e < c.engram_layer_ids.size(); ++e) {
        const int l = c.engram_layer_ids[e];
        const std::string name =
            with_dead ? fmt::format("engram_dead.layers.{}.rows", l) : fmt::format("layers.{}.engram_rows", l);
        const std::vector<int32_t> want = expected.i32(name);
        std::vector<uint32_t> row(static_cast<size_t>(hash.columns()));
        for (size_t p = 0; p < ids.size(); ++p) {
          hash.rows(static_cast<int>(e), ids, static_cast<int64_t>(p), -1, row.data());
          for (size_t k = 0; k < row.size(); ++k)
            ASSERT_EQ(static_cast<int32_t>(row[k]), want[p * row.size() + k]) << name << " position " << p;
        }
      }
    }
  }
}

TEST(GoldenRope, InverseFrequenciesHaveTheSameBits) {
  for (const std::string set : {"v41-a", "v41-c"}) {
    const Checkpoint checkpoint = Checkpoint::open(golden_directory(set));
    const V41Config& c = checkpoint.config();
    const GoldenFile expected(golden_directory(set) / "logits.safetensors");
    EXPECT_EQ(deepseek_v41::inverse_frequencies(c.rope_theta, c.qk_rope_head_dim), expected.f32("inv_freq_main"));
    EXPECT_EQ(deepseek_v41::yarn_inverse_frequencies(c.compress_rope_theta, c.qk_rope_head_dim, c.rope_scaling),
              expected.f32("inv_freq_compress"));
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTrace,
                         testing::Combine(testing::Values("v41-a", "v41-c"),
                                          testing::Values(Backend::reference, Backend::cpu)),
                         [](const auto& parameter) {
                           std::string name = std::get<0>(parameter.param) + "_" +
                                              std::string(to_string(std::get<1>(parameter.param)));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace hadal

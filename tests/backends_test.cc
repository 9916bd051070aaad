// Backends against each other over the whole model. How far two correct implementations may be apart is measured, not set:
// it is what one rounding step at the very start does to one of them.
#include <fmt/format.h>

#include "checkpoint/json.h"
#include "golden.h"
#include "ops/cpu/context.h"
#include "text/tokenizer.h"

namespace hadal {
namespace {

constexpr int kThreads = 0;  // all: results do not depend on it

// The CPU backend with every embedding moved by one bf16 step in each channel. One channel alone is a noisy yardstick: on
// the embedded model with `official` rounding, channels 0, 1, 50 and 100 gave mean KLs of 5.2e-3, 9.9e-3, 10.3e-3 and
// 8.8e-3, all of them together 11.0e-3 (`bf16`: 1.9e-3, 1.9e-3, 2.0e-3, 3.0e-3, together 2.8e-3).
class NudgedContext final : public CpuContext {
 public:
  NudgedContext(Numerics numerics, const Checkpoint& checkpoint)
      : CpuContext(numerics, kThreads), embed_(checkpoint.tensor("embed.weight").data) {}

  static const Operators& operators() {
    static const Operators nudged = [] {
      Operators o = cpu_operators();
      o.load_weight = [](Context& context, Weight& w) { static_cast<NudgedContext&>(context).load(w); };
      return o;
    }();
    return nudged;
  }

 private:
  void load(Weight& w) {
    if (w.data != embed_) return cpu_operators().load_weight(*this, w);
    const auto* published = static_cast<const uint16_t*>(w.data);
    moved_.assign(published, published + static_cast<size_t>(w.n) * static_cast<size_t>(w.k));
    for (uint16_t& value : moved_) value ^= 1;
    w.data = moved_.data();
  }

  const void* embed_;
  std::vector<uint16_t> moved_;
};

GoldenModel nudged_model(const std::string& set, Numerics numerics) {
  return {set, [&](const Checkpoint& c) { return std::make_unique<NudgedContext>(numerics, c); },
          NudgedContext::operators()};
}

// The first 2000 ids of the held-out text for the embedded model.
std::vector<int32_t> text_of(const std::string& set) {
  if (set != "hadal-tiny") return golden_ids(set);
  const std::filesystem::path directory = model_directory(set);
  std::vector<text::TokenId> ids =
      text::Tokenizer::load(directory).encode_with_special(read_text_file(directory / "eval" / "heldout.txt"));
  ids.resize(2000);
  return {ids.begin(), ids.end()};
}

std::vector<float> logits_with(const std::string& set, Numerics numerics, Isa isa, std::span<const int32_t> ids) {
  GoldenModel golden(
      set, [&](const Checkpoint&) { return std::make_unique<CpuContext>(numerics, kThreads, isa); }, cpu_operators());
  return golden.logits(ids, 512);
}

// Plain loops take long over this one.
bool is_large(const std::string& set) { return set == "synthetic"; }

double mean_kl(const std::vector<float>& p, const std::vector<float>& q, size_t vocab) {
  EXPECT_EQ(p.size(), q.size());
  double sum = 0;
  for (size_t at = 0; at < p.size(); at += vocab) sum += kl_divergence(&p[at], &q[at], vocab);
  const size_t rows = p.size() / vocab;
  return sum / static_cast<double>(rows);
}

std::string name_of(const std::string& set) {
  std::string name = set;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// ---- the mean KL of two implementations -----------------------------------------------------------------------------
using Case = std::tuple<std::string, Numerics>;
class Backends : public testing::TestWithParam<Case> {};

TEST_P(Backends, CudaIsAsNearToTheCpuAsARoundingStep) {
  if (const std::string reason = unavailable_reason(Backend::cuda); !reason.empty()) GTEST_SKIP() << reason;
  const auto& [set, numerics] = GetParam();
  if (set == std::string("v41-a") && numerics == Numerics::fp8)
    GTEST_SKIP() << "v41-a: a grouped linear (wo_a) in fp8 numerics needs 64 outputs a group on a GPU, it has 32";
  const std::vector<int32_t> ids = text_of(set);
  GoldenModel cpu(set, Backend::cpu, numerics, kThreads), gpu(set, Backend::cuda, numerics);
  const auto vocab = static_cast<size_t>(cpu.model.config().vocab_size);
  const std::vector<float> want = cpu.logits(ids, 512), got = gpu.logits(ids, 512);
  const double step = mean_kl(want, nudged_model(set, numerics).logits(ids, 512), vocab);
  const double kl = mean_kl(want, got, vocab);
  fmt::print("mean KL {:.3e}, a rounding step makes {:.3e}", kl, step);
  // Another order of the CPU's sums alone: a sharper yardstick, from few flipped roundings and so too noisy for a bound.
  if (!is_large(set))
    fmt::print(", the CPU's plain loops {:.3e}", mean_kl(want, logits_with(set, numerics, Isa::scalar, ids), vocab));
  fmt::print("\n");
  EXPECT_LE(kl, 2 * step);
  EXPECT_EQ(gpu.logits(ids, 333), got) << "chunks of 333";
}

// The yardstick holds for implementations that are known to be right: the instruction sets of this machine.
TEST_P(Backends, InstructionSetsAreAsNearAsARoundingStep) {
  const auto& [set, numerics] = GetParam();
  if (is_large(set) || supported_isas().size() < 2) GTEST_SKIP() << "slow, or only one instruction set";
  const std::vector<int32_t> ids = text_of(set);
  GoldenModel cpu(set, Backend::cpu, numerics, kThreads);
  const auto vocab = static_cast<size_t>(cpu.model.config().vocab_size);
  const std::vector<float> want = cpu.logits(ids, 512);
  const double step = mean_kl(want, nudged_model(set, numerics).logits(ids, 512), vocab);
  for (const Isa isa : supported_isas()) {
    const double kl = mean_kl(want, logits_with(set, numerics, isa, ids), vocab);
    fmt::print("{}: mean KL {:.3e}, a rounding step makes {:.3e}\n", to_string(isa), kl, step);
    EXPECT_LE(kl, 2 * step) << to_string(isa);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Backends,
                         testing::Combine(testing::Values("v41-a", "v41-c", "hadal-tiny", "synthetic"),
                                          testing::Values(Numerics::bf16, Numerics::official, Numerics::fp8)),
                         [](const auto& parameter) {
                           return fmt::format("{}_{}", name_of(std::get<0>(parameter.param)),
                                              to_string(std::get<1>(parameter.param)));
                         });

// ---- greedy text ----------------------------------------------------------------------------------------------------
// The recorded answers of the embedded model, teacher-forced: the GPU's most likely token is the CPU's wherever the
// CPU's lead is more than a rounding step can move.
TEST(BackendsGreedy, CudaPicksTheTokensOfTheCpu) {
  if (const std::string reason = unavailable_reason(Backend::cuda); !reason.empty()) GTEST_SKIP() << reason;
  const std::string set = "hadal-tiny";
  GoldenModel cpu(set, Backend::cpu, Numerics::bf16, kThreads), gpu(set, Backend::cuda, Numerics::bf16);
  GoldenModel nudged = nudged_model(set, Numerics::bf16);
  const auto vocab = static_cast<size_t>(cpu.model.config().vocab_size);
  const std::filesystem::path path = model_directory(set) / "eval" / "reference.json";
  const json::value reference = parse_json(read_text_file(path), path.string());
  int tokens = 0, other = 0;
  for (const json::value& prompt : reference.at("prompts").as_array()) {
    std::vector<int32_t> ids;
    for (const char* part : {"ids", "greedy"})
      for (const json::value& id : prompt.at(part).as_array()) ids.push_back(static_cast<int32_t>(id.as_int64()));
    const size_t begin = prompt.at("ids").as_array().size() - 1;
    const std::vector<float> want = cpu.logits(ids, 512), got = gpu.logits(ids, 512), moved = nudged.logits(ids, 512);
    float step = 0;
    for (size_t i = begin * vocab; i < want.size(); ++i) step = std::max(step, std::fabs(want[i] - moved[i]));
    for (size_t row = begin; row + 1 < ids.size(); ++row, ++tokens) {
      const auto top = [&](const std::vector<float>& logits) {
        const auto at = logits.begin() + static_cast<std::ptrdiff_t>(row * vocab);
        return static_cast<size_t>(std::max_element(at, at + static_cast<std::ptrdiff_t>(vocab)) - at);
      };
      const size_t a = top(want), b = top(got);
      if (a == b) continue;
      ++other;
      EXPECT_LE(want[row * vocab + a] - want[row * vocab + b], 2 * step)
          << prompt.at("name").as_string().c_str() << ", token " << row - begin;
    }
  }
  fmt::print("{} of {} tokens differ\n", other, tokens);
}

}  // namespace
}  // namespace hadal

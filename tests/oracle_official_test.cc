// Numerics::official against logits that are not ours: a float64 transcription of the specification that rounds where the
// published code rounds (tools/oracle/official_fp64.py, tests/goldens/official/README.md).
#include <fmt/format.h>

#include "golden.h"

namespace hadal {
namespace {

struct Distance {
  double mean_kl = 0;
  double worst_kl = 0;
  int rows = 0;
  int equal = 0;  // rows whose logits agree to fp32 rounding: nothing before them flipped
};

Distance distance(const std::string& set, Backend backend, std::initializer_list<int> lengths) {
  GoldenModel golden(set, backend, Numerics::official);
  const GoldenFile expected(golden_directory("official") / (set + ".safetensors"));
  const auto vocab = static_cast<size_t>(golden.model.config().vocab_size);
  Distance d;
  for (const int n : lengths) {
    const std::vector<float> want = expected.f32(fmt::format("n{}.logits_official", n));
    const std::vector<float> got = golden.logits(expected.i32(fmt::format("n{}.ids", n)), 512);
    EXPECT_EQ(got.size(), want.size());
    if (got.size() != want.size()) return d;
    const float scale = largest(want);
    for (size_t row = 0; row < static_cast<size_t>(n); ++row, ++d.rows) {
      const double kl = kl_divergence(&want[row * vocab], &got[row * vocab], vocab);
      d.worst_kl = std::isnan(kl) ? INFINITY : std::max(d.worst_kl, kl);
      d.mean_kl += kl;
      float worst = 0;
      for (size_t i = row * vocab; i < (row + 1) * vocab; ++i)
        worst = std::max(worst, std::fabs(got[i] - want[i]) / scale);
      d.equal += worst <= 1e-6f;
    }
  }
  d.mean_kl /= d.rows;
  fmt::print("{} {}: mean KL {:.3e}, worst {:.3e}, {} of {} rows equal\n", set, to_string(backend), d.mean_kl,
             d.worst_kl, d.equal, d.rows);
  return d;
}

// The reference computes in double as the transcription does, so nothing flips: in the dense configuration every row is
// the same to the fp32 rounding of its logits. A missing or misplaced rounding point changes the rows of the first prompt.
TEST(OfficialOracle, ReferenceRoundsWhereTheTranscriptionRounds) {
  const Distance d = distance("v41-c", Backend::reference, {1, 3, 7, 16, 17, 40});
  EXPECT_EQ(d.equal, d.rows);
}

// Fast operators sum in fp32, so that roundings flip. The transcription with fp32 sums differs from itself with fp64 sums
// by a mean KL of 6.4e-4 (worst row 5.2e-3); two such implementations differ from each other by at most twice the mean,
// since the errors of each are independent and KL is quadratic in them.
TEST(OfficialOracle, CpuWithinTheDistanceOfTwoSummationOrders) {
  const Distance d = distance("v41-c", Backend::cpu, {1, 3, 7, 16, 17, 40, 129});
  EXPECT_LE(d.mean_kl, 2 * 6.4e-4);
}

// In v41-a experts and entries are chosen, and one flipped rounding changes a choice (specification 8.2): only rows before
// the first flip can be asked for. In the reference that is most of them: the transcription with fp32 sums keeps 74%.
TEST(OfficialOracle, ReferenceWithChoices) {
  const Distance d = distance("v41-a", Backend::reference, {1, 3, 7, 17, 40});
  EXPECT_GE(d.equal, d.rows * 74 / 100);
}

}  // namespace
}  // namespace hadal

#include "ops/cache_commit/cases.h"

#include <memory>

#include "ops/testing/backend.h"
#include "ops/testing/compare.h"

namespace hadal::testing {
namespace {

class Test final : public OperatorCase {
 public:
  Test(const CacheCommitCase& c, uint64_t seed) : OperatorCase(c.name, seed), c_(c) {}

  Prepared prepare(Backend& backend) const override {
    Random random = this->random();
    const HostStep host = make_step(random, c_.segments);
    const auto step = std::make_shared<DeviceStep>(backend, host);
    const RowFormat format = RowFormat::fp8_ue8m0_32;
    const auto bytes = static_cast<int64_t>(row_bytes(format, c_.head_dim));
    const int rows = host.kept.rows(), slots = host.slots * c_.window, wide = 2 * c_.head_dim;

    CacheCommitArgs args;
    args.in = &step->kept;
    args.segments = &step->segments;
    args.accepted = backend.array(c_.accepted);
    args.latent = backend.u8(random_packed_rows(random, format, c_.head_dim, rows), rows, bytes);
    const Tensor ring{backend.pool(random_packed_rows(random, format, c_.head_dim, slots)), DType::u8, slots, bytes};
    args.ring = {ring.u8(), static_cast<int>(bytes), c_.window};
    Tensor pending;
    if (c_.pending) {
      args.ab = backend.f32(random.normals(int64_t{rows} * wide), rows, wide);
      pending = backend.f32(random.normals(int64_t{host.slots} * wide), host.slots, wide);
      args.pending = pending.f32();
    }
    return {[&backend, args, step] { backend.operators().cache_commit(backend.context(), args); },
            [&backend, ring, pending](Outputs& out) {
              out["ring"] = backend.download(ring);
              if (pending) out["pending"] = backend.download(pending);
            }};
  }

  void compare(Numerics, const Outputs& expected, const Outputs& actual, Report& report) const override {
    compare_exactly(report, "ring", expected.at("ring"), actual.at("ring"));
    if (c_.pending) compare_exactly(report, "pending", expected.at("pending"), actual.at("pending"));
  }

 private:
  CacheCommitCase c_;
};

}  // namespace

Cases cache_commit_cases(uint64_t seed) {
  Cases cases;
  for (const auto& c : cache_commit_list()) cases.push_back(std::make_unique<Test>(c, seed));
  return cases;
}

}  // namespace hadal::testing

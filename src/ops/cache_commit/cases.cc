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

    const auto layer = [&](const RowSet& in) {
      CommittedLayer l;
      l.in = &in;
      l.latent = backend.u8(random_packed_rows(random, format, c_.head_dim, in.rows), in.rows, bytes);
      l.ring = {backend.pool(random_packed_rows(random, format, c_.head_dim, slots)), static_cast<int>(bytes),
                c_.window};
      return l;
    };
    const auto layers = std::make_shared<std::vector<CommittedLayer>>();
    layers->push_back(layer(step->kept));
    Tensor pending;
    if (c_.pending) {
      layers->back().ab = backend.f32(random.normals(int64_t{rows} * wide), rows, wide);
      pending = backend.f32(random.normals(int64_t{host.slots} * wide), host.slots, wide);
      layers->back().pending = pending.f32();
    }
    layers->push_back(layer(step->all));  // an encoder layer sees every row
    const CacheCommitArgs args{&step->segments, backend.array(c_.accepted), *layers};
    const auto ring = [layers, slots, bytes](int of) {
      return Tensor{(*layers)[of].ring.base, DType::u8, slots, bytes};
    };
    return {[&backend, args, step, layers] { backend.operators().cache_commit(backend.context(), args); },
            [&backend, ring, pending](Outputs& out) {
              out["ring"] = backend.download(ring(0));
              out["ring of all rows"] = backend.download(ring(1));
              if (pending) out["pending"] = backend.download(pending);
            }};
  }

  void compare(Numerics, const Outputs& expected, const Outputs& actual, Report& report) const override {
    for (const char* name : {"ring", "ring of all rows"})
      compare_exactly(report, name, expected.at(name), actual.at(name));
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

#include "ops/cache_commit/cases.h"

#include <memory>
#include <string>

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
    for (int i = 0; i < c_.others; ++i) layers->push_back(layer(step->all));
    const CacheCommitArgs args{&step->segments, backend.array(c_.accepted), *layers};
    return {[&backend, args, step, layers] { backend.operators().cache_commit(backend.context(), args); },
            [&backend, layers, slots, bytes, pending](Outputs& out) {
              for (size_t i = 0; i < layers->size(); ++i)
                out[ring(i)] = backend.download({(*layers)[i].ring.base, DType::u8, slots, bytes});
              if (pending) out["pending"] = backend.download(pending);
            }};
  }

  void compare(Numerics, const Outputs& expected, const Outputs& actual, Report& report) const override {
    for (int i = 0; i <= c_.others; ++i) compare_exactly(report, ring(i), expected.at(ring(i)), actual.at(ring(i)));
    if (c_.pending) compare_exactly(report, "pending", expected.at("pending"), actual.at("pending"));
  }

 private:
  static std::string ring(size_t layer) { return "ring of layer " + std::to_string(layer); }

  CacheCommitCase c_;
};

}  // namespace

Cases cache_commit_cases(uint64_t seed) {
  Cases cases;
  for (const auto& c : cache_commit_list()) cases.push_back(std::make_unique<Test>(c, seed));
  return cases;
}

}  // namespace hadal::testing

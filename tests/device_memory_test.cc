// The model and the state treat device memory as out of reach, and the operators the checkpoint's: what a GPU punishes,
// found without one. Device memory is pages that fault outside operators and copies; the mapped files fault inside operators.
#include <fmt/format.h>
#include <sys/mman.h>

#include "golden.h"
#include "ops/cpu/context.h"
#include "ops/cuda/packing.h"

namespace hadal {
namespace {

constexpr size_t kPage = 4096;
size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

class FarContext final : public CpuContext {
 public:
  FarContext(Numerics numerics, const Checkpoint& checkpoint)
      : CpuContext(numerics, 2), permanent_(kPermanent, "weights and caches"), step_(kStep, "step memory") {
    for (const SafetensorsFile& shard : checkpoint.shards()) files_.push_back(shard.image());
  }
  ~FarContext() override { protect_files(PROT_READ); }

  void* allocate_step(size_t bytes) override { return step_.take(bytes); }
  void reset_step() override { step_.used = 0; }
  size_t mark_step() override { return step_.used; }
  void release_step(size_t mark) override { step_.used = mark; }
  void* allocate_cache(size_t bytes) override { return permanent_.take(bytes); }
  const void* place_weight(const void* host, size_t bytes) override {
    void* device = permanent_.take(bytes);
    copy_to_device(device, host, bytes);
    return device;
  }
  const void* upload(const void* host, size_t bytes) override {
    void* device = allocate_step(bytes);
    copy_to_device(device, host, bytes);
    return device;
  }
  void download(void* host, const void* device, size_t bytes) override { copy(host, device, bytes, device); }
  void copy_to_device(void* device, const void* host, size_t bytes) override { copy(device, host, bytes, device); }
  void copy_on_device(void* to, const void* from, size_t bytes) override { copy(to, from, bytes, to); }
  using CpuContext::upload;

  void enter_operator() {
    protect_files(PROT_NONE);
    open(PROT_READ | PROT_WRITE);
    inside_ = true;
  }
  void leave_operator() {
    inside_ = false;
    open(PROT_NONE);
    protect_files(PROT_READ);
  }

  void load(Weight& w) {
    const size_t count = static_cast<size_t>(w.n) * static_cast<size_t>(w.k);
    const size_t blocks = (static_cast<size_t>(w.k) + 31) / 32, n = static_cast<size_t>(w.n);
    const bool fp8 = w.format == WeightFormat::fp8_block32, fp4 = w.format == WeightFormat::mxfp4;
    w.data = place_weight(w.data, fp8                              ? count
                                  : fp4                            ? count / 2
                                  : w.format == WeightFormat::bf16 ? 2 * count
                                                                   : 4 * count);
    if (w.scale != nullptr)
      w.scale = static_cast<const uint8_t*>(place_weight(w.scale, (fp8 ? (n + 31) / 32 : n) * blocks));
  }
  void load(EngramTable& t) {
    const auto count = static_cast<size_t>(t.table_rows) * static_cast<size_t>(t.dim);
    t.codes = static_cast<const uint8_t*>(place_weight(t.codes, count));
    t.scales = static_cast<const uint8_t*>(place_weight(t.scales, count / 32));
  }

 private:
  static constexpr size_t kPermanent = size_t{512} << 20, kStep = size_t{512} << 20;

  struct Region {
    Region(size_t size, const char* name) : bytes(size), what(name) {
      void* p = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (p == MAP_FAILED) fail(ErrorKind::out_of_memory, "no address space for {}", what);
      base = static_cast<std::byte*>(p);
    }
    ~Region() { munmap(base, bytes); }
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;
    void* take(size_t n) {
      std::byte* p = base + used;
      used += round_up(std::max<size_t>(n, 1), 256);
      HADAL_CHECK(used <= bytes);
      return p;
    }
    size_t bytes;
    const char* what;
    std::byte* base = nullptr;
    size_t used = 0;
  };

  void open(int protection) {
    for (const Region* region : {&permanent_, &step_})
      HADAL_CHECK(mprotect(region->base, region->bytes, protection) == 0);
  }
  void protect_files(int protection) {
    for (const auto& image : files_)
      HADAL_CHECK(mprotect(const_cast<std::byte*>(image.data()), round_up(image.size(), kPage), protection) == 0);
  }
  bool is_device(const void* p) const {
    const auto* at = static_cast<const std::byte*>(p);
    for (const Region* r : {&permanent_, &step_})
      if (at >= r->base && at < r->base + r->bytes) return true;
    return false;
  }
  void copy(void* to, const void* from, size_t bytes, const void* device) {
    if (bytes == 0) return;
    HADAL_CHECK(is_device(device));
    open(PROT_READ | PROT_WRITE);
    std::memmove(to, from, bytes);
    if (!inside_) open(PROT_NONE);
  }

  Region permanent_, step_;
  bool inside_ = false;  // an operator, which may upload too
  std::vector<std::span<const std::byte>> files_;
};

template <auto Operator, typename Args>
void far(Context& context, const Args& args) {
  auto& far_context = static_cast<FarContext&>(context);
  far_context.enter_operator();
  Operator(context, args);
  far_context.leave_operator();
}

const Operators& far_operators() {
#define HADAL_FAR(op, Args) .op = far<cpu::op, Args>,
  static const Operators operators = {
      .backend = "far",
      HADAL_OPERATORS(HADAL_FAR).load_weight = [](Context& c, Weight& w) { static_cast<FarContext&>(c).load(w); },
      .load_experts =
          [](Context& c, std::span<FeedForward> experts) {
            for (FeedForward& e : experts)
              for (Weight* w : {&e.w1, &e.w3, &e.w2}) static_cast<FarContext&>(c).load(*w);
          },
      .load_table = [](Context& c, EngramTable& t) { static_cast<FarContext&>(c).load(t); }};
#undef HADAL_FAR
  return operators;
}

TEST(DeviceMemory, NobodyReachesAcross) {
  for (const std::string set : {"v41-a", "v41-c", "hadal-tiny"}) {
    const std::vector<int32_t> ids = golden_ids(set);
    const auto run = [&](GoldenModel& golden) {
      SingleRequest request(golden.model, 400);
      SingleRequest::PromptOptions options;
      options.chunk = 70;
      std::vector<float> all = request.prefill(std::span(ids).first(201), options);
      Context& context = *golden.context;
      const Snapshot saved = request.state().snapshot();
      for (const int32_t id : {3, 5}) {
        const std::vector<float> row = request.decode(id);
        all.insert(all.end(), row.begin(), row.end());
      }
      request.state().restore(saved);
      options.mode = PrefillMode::bounded;
      const std::vector<float> second = request.prefill(std::span(ids).subspan(201), options);
      all.insert(all.end(), second.begin(), second.end());
      context.reset_step();
      RequestState* state = &request.state();
      const int32_t anchor = 7;
      const deepseek_v41::Drafts drafts = golden.model.draft({&state, 1}, {&anchor, 1});
      const deepseek_v41::Model::DraftLogits draft{context.tensor(1, drafts.base.cols, DType::f32),
                                                   context.tensor(1, 1, DType::f32)};
      golden.model.draft_logits(drafts, 1, 9, draft);
      const size_t before = all.size();
      all.resize(before + static_cast<size_t>(draft.logits.cols));
      context.download(&all[before], draft.logits.data, static_cast<size_t>(draft.logits.cols) * sizeof(float));
      return all;
    };
    GoldenModel near(set, Backend::cpu, Numerics::bf16);
    GoldenModel distant(
        set, [](const Checkpoint& c) { return std::make_unique<FarContext>(Numerics::bf16, c); }, far_operators());
    EXPECT_EQ(run(near), run(distant)) << set;
  }
}

// Traces see the same values through a device's memory.
TEST(DeviceMemory, ObserversToo) {
  GoldenModel distant(
      "v41-a", [](const Checkpoint& c) { return std::make_unique<FarContext>(Numerics::bf16, c); }, far_operators());
  SingleRequest request(distant.model, 64);
  SingleRequest::PromptOptions options;
  int seen = 0;
  options.observe = [&](std::string_view, int, const Tensor&) { ++seen; };
  const std::vector<int32_t> ids = golden_ids("v41-a");
  request.prefill(std::span(ids).first(40), options);
  EXPECT_GT(seen, 100);
}

TEST(DeviceMemory, WeightsThatDoNotFitAreRefusedBeforeLoading) {
  static Operators operators = cpu_operators();
  operators.weight_room = [](Context&) { return size_t{1} << 20; };
  operators.load_weight = [](Context&, Weight&) { FAIL() << "loaded"; };
  try {
    GoldenModel golden(
        "v41-a", [](const Checkpoint&) { return make_context(Backend::cpu, Numerics::bf16, 1); }, operators);
    FAIL() << "5 MB in 1 MB";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::out_of_memory);
    EXPECT_NE(std::string(e.what()).find("Engram tables"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("--device cpu"), std::string::npos) << e.what();
  }
}

TEST(DeviceMemory, GroupsThatTheBackendCannotPackAreRefusedBeforeLoading) {
  static Operators operators = cpu_operators();
  static std::vector<std::string> seen;
  seen.clear();
  // As the cuda backend would, were this little weight one that it packs.
  operators.check_groups = [](Context&, std::string_view name, const Weight& w, int groups) {
    seen.emplace_back(name);
    EXPECT_TRUE(w.data != nullptr && w.format == WeightFormat::fp8_block32) << name;
    if (name == "mtp.0.attn.wo_a") cuda::check_groups(cuda::Packing::bits16, name, w, groups);
  };
  operators.load_weight = [](Context&, Weight&) { FAIL() << "loaded"; };
  try {
    GoldenModel golden(
        "v41-a", [](const Checkpoint&) { return make_context(Backend::cpu, Numerics::bf16, 1); }, operators);
    FAIL() << "groups of 32 outputs";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::unsupported);
    EXPECT_NE(
        std::string(e.what()).find("mtp.0.attn.wo_a: o_lora_rank, the outputs of each of its 4 groups (o_groups), "
                                   "is 32"),
        std::string::npos)
        << e.what();
  }
  const V41Config config = V41Config::load(golden_directory("v41-a") / "config.json");
  ASSERT_EQ(static_cast<int>(seen.size()), config.layers() + 1) << "all layers, and the first draft stage";
  for (int l = 0; l < config.layers(); ++l)
    EXPECT_EQ(seen[static_cast<size_t>(l)], fmt::format("layers.{}.attn.wo_a", l));
}

}  // namespace
}  // namespace hadal

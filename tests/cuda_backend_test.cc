// The CUDA backend as a whole: where tables lie, what is refused, and what happens when the device fails.
#ifdef HADAL_HAVE_CUDA
#include <fmt/format.h>

#include <thread>

#include "engine/operator_watch.h"
#include "engine_support.h"
#include "golden.h"
#include "ops/cuda/context.h"

namespace hadal {
namespace {

std::string gpu_missing() { return unavailable_reason(Backend::cuda); }

std::string error_of(ErrorKind kind, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(CudaBackend, WithoutADeviceTheMessageSaysWhatIsMissing) {
  if (gpu_missing().empty()) GTEST_SKIP() << "there is a GPU";
  const std::string message = error_of(ErrorKind::unsupported, [] { make_context(Backend::cuda, Numerics::bf16, 1); });
  EXPECT_NE(message.find(gpu_missing()), std::string::npos) << message;
  EXPECT_NE(message.find("--device cpu"), std::string::npos) << message;
}

TEST(CudaBackend, CardsThatAreTooOldAreRefused) {
  cuda::DeviceInfo card;
  card.name = "Tesla T4";
  card.sm_major = 7;
  card.sm_minor = 5;
  const std::string message = error_of(ErrorKind::unsupported, [&] { cuda::check_capability(card); });
  for (const char* part : {"Tesla T4", "7.5", "8.0", "--device cpu"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
  for (const auto& [major, minor, hopper] : {std::tuple{8, 0, false}, {8, 9, false}, {9, 0, true}, {12, 0, false}}) {
    card.sm_major = major;
    card.sm_minor = minor;
    EXPECT_NO_THROW(cuda::check_capability(card));
    EXPECT_EQ(cuda::is_hopper(card), hopper) << major << "." << minor;
  }
}

TEST(CudaBackend, PlacesOfEngramTables) {
  EXPECT_EQ(parse_table_place("auto"), TablePlace::automatic);
  EXPECT_EQ(parse_table_place("gpu"), TablePlace::device);
  EXPECT_EQ(parse_table_place("host"), TablePlace::host);
  EXPECT_NE(error_of(ErrorKind::invalid_argument, [] { parse_table_place("disk"); }).find("'disk'"), std::string::npos);
}

// Rows come over the bus, beside the layers in front of the first that needs them: eager steps, graphs and all chunkings.
TEST(CudaBackend, EngramTablesInHostMemoryGiveTheSameBits) {
  if (!gpu_missing().empty()) GTEST_SKIP() << gpu_missing();
  for (const std::string set : {"v41-a", "synthetic"}) {
    const std::vector<int32_t> ids = golden_ids(set);
    std::vector<std::vector<float>> want;
    for (const TablePlace place : {TablePlace::device, TablePlace::host}) {
      GoldenModel golden(
          set,
          [&](const Checkpoint&) {
            return make_context(Backend::cuda, Numerics::bf16, 1, {true, place});
          },
          operators_of(Backend::cuda));
      ASSERT_EQ(golden.model.host_table_bytes() > 0, place == TablePlace::host) << set;
      std::vector<std::vector<float>> got;
      for (const int chunk : {150, 64, 1}) got.push_back(golden.logits(std::span(ids).first(150), chunk));
      EXPECT_GT(golden.model.replays(), 100) << "the last one decodes";
      if (want.empty()) want = got;
      EXPECT_EQ(got, want) << set;
    }
  }
}

TEST(CudaBackend, WeightsThatDoNotFitAreRefusedWithTheNumbers) {
  if (!gpu_missing().empty()) GTEST_SKIP() << gpu_missing();
  const auto load = [](size_t weights, TablePlace place) {
    constexpr size_t kStep = size_t{1} << 20;
    GoldenModel(
        "v41-a",
        [&](const Checkpoint&) {
          return std::make_unique<CudaContext>(
              cuda::ContextOptions{.memory_budget = kStep + weights, .step_bytes = kStep, .tables = place});
        },
        operators_of(Backend::cuda));
  };
  const std::string message =
      error_of(ErrorKind::out_of_memory, [&] { load(size_t{64} << 10, TablePlace::automatic); });
  for (const char* part : {"the weights have", "Engram tables", "the device has room for", "--device cpu"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
}

// Steps that outgrow what is left say what holds the memory.
TEST(CudaBackend, MemoryThatRunsOutIsReportedByUse) {
  if (!gpu_missing().empty()) GTEST_SKIP() << gpu_missing();
  CudaContext context(cuda::ContextOptions{.memory_budget = size_t{8} << 20, .step_bytes = size_t{1} << 20});
  context.allocate_cache(size_t{4} << 20);
  const std::string message = error_of(ErrorKind::out_of_memory, [&] { context.allocate_step(size_t{4} << 20); });
  for (const char* part : {"step memory", "0.01 GiB", "caches"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
}

// Only addresses and sizes change: the graph is updated. Another kind of work: a graph of its own.
TEST(CudaBackend, RecordingsAreUpdatedRatherThanMadeAnew) {
  if (!gpu_missing().empty()) GTEST_SKIP() << gpu_missing();
  CudaContext context(cuda::ContextOptions{});
  constexpr int kWidth = 64, kCopies = 2;
  std::vector<uint16_t> embed(size_t{100} * kWidth);
  for (size_t i = 0; i < embed.size(); ++i) embed[i] = static_cast<uint16_t>(i);
  EmbeddingArgs args;
  args.embed = {WeightFormat::bf16, 100, kWidth, context.place_weight(embed.data(), embed.size() * 2)};
  const auto prepare = [&](const std::vector<int32_t>& tokens) {
    args.tokens = context.upload(tokens);
    args.h = context.activations(static_cast<int64_t>(tokens.size()), kCopies * kWidth);
    args.pre = context.tensor(static_cast<int64_t>(tokens.size()), kCopies, DType::f32);
  };
  const auto expect_rows = [&](const std::vector<int32_t>& tokens) {
    std::vector<uint16_t> h(tokens.size() * kCopies * kWidth);
    context.download(h.data(), args.h.data, h.size() * 2);
    for (size_t i = 0; i < h.size(); ++i)
      ASSERT_EQ(h[i], embed[static_cast<size_t>(tokens[i / (kCopies * kWidth)]) * kWidth + i % kWidth]) << i;
  };
  const auto give = [&] { operators_of(Backend::cuda).embedding(context, args); };

  prepare({3, 1, 4});
  std::unique_ptr<Recording> recording = context.record(give, nullptr);
  const Recording* const first = recording.get();
  context.replay(*recording);
  expect_rows({3, 1, 4});

  prepare({1, 5, 9, 2, 6, 5, 35});
  recording = context.record(give, std::move(recording));
  EXPECT_EQ(recording.get(), first) << "made anew";
  context.replay(*recording);
  expect_rows({1, 5, 9, 2, 6, 5, 35});

  prepare({8, 97});
  recording = context.record(
      [&] {
        give();
        give();
      },
      std::move(recording));
  context.replay(*recording);
  expect_rows({8, 97});
}

// Makes the router pick an expert that does not exist, once it is told to.
class BadRouter final : public OperatorWatch {
 public:
  void after(OperatorId op, Context& context, const void* args) override {
    if (op != OperatorId::router || !bad) return;
    const auto& router = *static_cast<const RouterArgs*>(args);
    const std::vector<int32_t> ids(static_cast<size_t>(router.rows * router.topk), 0x3fffffff);
    context.copy_to_device(router.ids.data, ids.data(), ids.size() * sizeof(int32_t));
  }
  std::atomic<bool> bad = false;
};

// In a process of its own, because the device is lost to it afterwards. Ends with status 0 when all went as it should.
void fail_in_mid_run() {
  BadRouter router;
  watch_operators(&router);
  EngineOptions options = options_for("v41-c");
  options.backend = "cuda";
  options.cuda_graphs = false;
  int wrong = 0;
  {
    Engine engine(options);
    const auto run = [&] {
      Collector collector;
      engine.submit(request_of(ids_from("v41-c", 0, 20)), collector.handler());
      return Answer(collector.wait());
    };
    wrong += run().reason != FinishReason::length;
    router.bad = true;
    const Answer failed = run();
    wrong += failed.reason != FinishReason::error || failed.error.find("cudaError") == std::string::npos;
    router.bad = false;
    const Answer after = run();  // the device stays lost: an error again, and no hang
    wrong += after.reason != FinishReason::error;
    fmt::print(stderr, "first error: {}\n", failed.error);
  }
  std::exit(wrong);
}

TEST(CudaBackendDeathTest, AnErrorOfTheDeviceEndsTheRequestAndTheProcessExits) {
  if (!gpu_missing().empty()) GTEST_SKIP() << gpu_missing();
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(fail_in_mid_run(), testing::ExitedWithCode(0), "first error: .*cudaErrorIllegalAddress");
}

}  // namespace
}  // namespace hadal
#endif

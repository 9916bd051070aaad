// The small operators on one GPU at the release's shapes, whole operators through their public functions: hyper_connection,
// router, compressor, Engram's gate, head, tap. First that a row has the same bits in batches of several sizes and in a
// second run, then times: graphs of calls that rotate among weights (few rows) or stream inputs past L2 (many).
// Values are held against float64 by hadal_ops_test.
#include <memory>
#include <numeric>
#include <string>

#include "bench.cuh"
#include "ops/cuda/bf16_linear.h"
#include "ops/cuda/context.h"
#include "ops/cuda/linear.h"
#include "ops/cuda/linear_input.h"
#include "ops/operators.h"

namespace hadal::bench {
namespace {

constexpr int kD = 5120, kCopies = 4, kMixes = 24;

__global__ void fill_f32_kernel(float* out, size_t count, uint64_t seed, float mean, float scale) {
  for (size_t i = blockIdx.x * size_t{256} + threadIdx.x; i < count; i += size_t{256} * gridDim.x)
    out[i] = mean + gaussian(seed, i) * scale;
}

struct F32 : DeviceArray<float> {
  F32(size_t count, uint64_t seed, float mean, float scale) : DeviceArray(count) {
    fill_f32_kernel<<<1024, 256>>>(get(), count, seed, mean, scale);
    HADAL_CUDA_LAUNCHED("fill_f32_kernel");
  }
};
struct Bf16 : DeviceArray<uint16_t> {
  Bf16(size_t count, uint64_t seed, float scale) : DeviceArray(count) { fill_bf16(get(), count, seed, scale); }
};

template <typename T>
Tensor tensor(const DeviceArray<T>& array, int64_t rows, int64_t cols, DType type) {
  return {array.get(), type, rows, cols};
}

Time time_calls(CudaContext& context, int inner, const std::function<void(int)>& call, double warm_ms = 100,
                int replays = 15) {
  call(0);  // what is made once
  context.wait();
  const auto graph = context.record(
      [&] {
        for (int i = 0; i < inner; ++i) call(i);
      },
      nullptr);
  return time_replays(
      context.stream(), inner, [&] { context.replay(*graph); }, warm_ms, replays);
}

// ---- hyper_connection --------------------------------------------------------------------------------------------
enum class Wanted { x, both, rounded };
struct HyperConnection {
  HyperConnection(int row_count, int weight_sets, uint64_t seed, Wanted outputs)
      : rows(row_count),
        wanted(outputs),
        sets(weight_sets),
        h(size_t{1} * rows * kCopies * kD, seed, 1),
        y(size_t{1} * rows * kD, seed + 1, 1),
        x(size_t{1} * rows * kD),
        rounded(cuda::q4_bytes(rows, kD)),
        norm(kD, seed + 2, 1),
        coefficients{{F32(size_t{1} * rows * 4, seed + 3, 0.5f, 0.1f), F32(size_t{1} * rows * 4, seed + 4, 0.8f, 0.2f),
                      F32(size_t{1} * rows * 16, seed + 5, 0.25f, 0.05f)},
                     {F32(size_t{1} * rows * 4, seed + 6, 0.5f, 0.1f), F32(size_t{1} * rows * 4, seed + 7, 0.8f, 0.2f),
                      F32(size_t{1} * rows * 16, seed + 8, 0.25f, 0.05f)}},
        fn(size_t{1} * sets * kMixes * kCopies * kD, seed + 9, 0, 1 / std::sqrt(kCopies * kD)),
        base(kMixes, seed + 10, 0, 0.6f),
        scale(3, seed + 11, 0.75f, 0.1f) {}

  // Coefficients alternate between two places, as in the model; h is updated in place.
  void run(CudaContext& context, int i) {
    HyperConnectionWeights mix{fn.get() + size_t{1} * (i % sets) * kMixes * kCopies * kD, base.get(), scale.get()};
    HyperConnectionArgs a;
    a.rows = rows;
    a.d = kD;
    a.in = streams(i % 2);
    a.out = streams(1 - i % 2);
    a.y = tensor(y, rows, kD, DType::bf16);
    a.mix = &mix;
    a.norm = norm.get();
    if (wanted != Wanted::rounded) a.x = tensor(x, rows, kD, DType::bf16);
    if (wanted != Wanted::x) a.x_rounded = q4();
    cuda::hyper_connection(context, a);
  }
  Tensor q4() { return tensor(rounded, rows, kD, DType::u8); }
  Streams streams(int which) {
    F32* c = coefficients[which];
    return {tensor(h, rows, kCopies * kD, DType::bf16), tensor(c[0], rows, 4, DType::f32),
            tensor(c[1], rows, 4, DType::f32), tensor(c[2], rows, 16, DType::f32)};
  }

  int rows;
  Wanted wanted;
  int sets;
  Bf16 h, y;
  DeviceArray<uint16_t> x;
  DeviceArray<uint8_t> rounded;
  Bf16 norm;
  F32 coefficients[2][3];
  F32 fn, base, scale;
};

template <typename T>
size_t different(const std::vector<T>& a, const std::vector<T>& b, size_t count) {
  size_t n = 0;
  for (size_t i = 0; i < count; ++i) n += std::memcmp(&a[i], &b[i], sizeof(T)) != 0;
  return n;
}

void check_hyper_connection(CudaContext& context) {
  constexpr int kRows = 700, kSteps = 3;
  const auto after = [&](int rows, Wanted wanted = Wanted::both) {
    auto c = std::make_unique<HyperConnection>(rows, 2, 77, wanted);
    c->x.poison();
    c->rounded.poison();
    HADAL_CUDA(cudaDeviceSynchronize());  // the context's stream does not wait for what filled the inputs
    for (int i = 0; i < kSteps; ++i) c->run(context, i);
    context.wait();
    return c;
  };
  const auto all = after(kRows);
  for (const int rows : {1, 7, 9, 32, 128, 129, 640, kRows}) {
    const auto few = after(rows);
    const auto last = [&](HyperConnection& c, int i) { return c.coefficients[kSteps % 2][i].host(); };
    size_t n = different(all->h.host(), few->h.host(), size_t{1} * rows * kCopies * kD) +
               different(all->x.host(), few->x.host(), size_t{1} * rows * kD);
    for (int i = 0; i < 3; ++i) n += different(last(*all, i), last(*few, i), size_t{1} * rows * (i < 2 ? 4 : 16));
    // Q4 of x by a pass over it, and without x beside it.
    const auto alone = after(rows, Wanted::rounded), plain = after(rows, Wanted::x);
    DeviceArray<uint8_t> apart(cuda::q4_bytes(rows, kD));
    apart.poison();
    cuda::quantise_rows(context, plain->x.get(), kD, nullptr, cuda::fp8_rows(tensor(apart, rows, kD, DType::u8)));
    context.wait();
    n += different(plain->x.host(), few->x.host(), size_t{1} * rows * kD) +
         different(plain->h.host(), few->h.host(), size_t{1} * rows * kCopies * kD) +
         different(apart.host(), few->rounded.host(), apart.bytes()) +
         different(apart.host(), alone->rounded.host(), apart.bytes());
    expect(n == 0, "hyper_connection, %d of %d rows: %zu values differ", rows, kRows, n);
  }
}

void time_hyper_connection(CudaContext& context, int rows, Wanted wanted) {
  const int sets = rows > 1024 ? 2 : 40;
  HyperConnection c(rows, sets, 5, wanted);
  const double x_bytes = (wanted != Wanted::rounded ? 2 : 0) + (wanted != Wanted::x ? 1 + 4.0 / 128 : 0);
  const double bytes = rows * kD * (2 * (2.0 * kCopies + 1) + x_bytes) + 4.0 * kMixes * kCopies * kD;
  constexpr const char* kNames[] = {"", ", x and its Q4", ", Q4 of x alone"};
  report("hyper_connection", ("rows=" + std::to_string(rows) + kNames[static_cast<int>(wanted)]).c_str(),
         time_calls(context, rows > 1024 ? 4 : 40, [&](int i) { c.run(context, i); }), 0, bytes, bytes / 4.3e9);
}

// ---- router ------------------------------------------------------------------------------------------------------
struct Router {
  static constexpr int kExperts = 384, kTopk = 6;
  Router(int row_count, int weight_sets, uint64_t seed)
      : rows(row_count),
        sets(weight_sets),
        x(size_t{1} * rows * kD, seed, 1),
        gate(size_t{1} * sets * kExperts * kD, seed + 1, 1.5f / std::sqrt(kD)),
        bias(kExperts, seed + 2, 0, 0.3f),
        weights(size_t{1} * rows * kTopk),
        ids(size_t{1} * rows * kTopk),
        scores(size_t{1} * rows * kExperts) {}
  void run(CudaContext& context, int i, bool trace = false) {
    RouterArgs a;
    a.rows = rows;
    a.topk = kTopk;
    a.x = tensor(x, rows, kD, DType::bf16);
    a.gate = {WeightFormat::bf16, kExperts, kD, gate.get() + size_t{1} * (i % sets) * kExperts * kD};
    a.bias = bias.get();
    a.ids = tensor(ids, rows, kTopk, DType::i32);
    a.weights = tensor(weights, rows, kTopk, DType::f32);
    if (trace) a.scores = tensor(scores, rows, kExperts, DType::f32);
    cuda::router(context, a);
  }
  int rows, sets;
  Bf16 x, gate;
  F32 bias;
  DeviceArray<float> weights;
  DeviceArray<int32_t> ids;
  DeviceArray<float> scores;
};

void check_router(CudaContext& context) {
  constexpr int kRows = 700;
  const auto after = [&](int rows) {
    auto r = std::make_unique<Router>(rows, 1, 99);
    r->scores.poison();
    HADAL_CUDA(cudaDeviceSynchronize());
    r->run(context, 0, true);
    context.wait();
    return r;
  };
  const auto all = after(kRows);
  for (const int rows : {1, 7, 32, 128, 129, kRows}) {
    const auto few = after(rows);
    const size_t n = different(all->scores.host(), few->scores.host(), size_t{1} * rows * Router::kExperts) +
                     different(all->weights.host(), few->weights.host(), size_t{1} * rows * Router::kTopk) +
                     different(all->ids.host(), few->ids.host(), size_t{1} * rows * Router::kTopk);
    expect(n == 0, "router, %d of %d rows: %zu values differ", rows, kRows, n);
  }
}

void time_router(CudaContext& context, int rows) {
  const int sets = rows > 1024 ? 2 : 40;
  Router r(rows, sets, 3);
  const double flops = 2.0 * rows * Router::kExperts * kD, bytes = 2.0 * kD * (rows + Router::kExperts);
  report("router", ("rows=" + std::to_string(rows)).c_str(),
         time_calls(context, rows > 1024 ? 4 : 40, [&](int i) { r.run(context, i); }), flops, bytes,
         std::max(flops / 790e9, bytes / 4.3e9));
}

// ---- compressor --------------------------------------------------------------------------------------------------
// One segment from position 1, at ratio 2 with a pending first token; or every row a request's token at position 1.
struct Compressor {
  static constexpr int kHead = 512, kIndex = 128, kPage = 64, kEntryBytes = 288, kKeyBytes = 68;
  Compressor(int row_count, int segment_count, int weight_sets, int tokens_each)
      : ratio(tokens_each),
        rows(row_count),
        segments(segment_count),
        sets(weight_sets),
        pages((rows / segments + 2) / ratio / kPage + 1),
        x(size_t{1} * rows * kD, 1, 1),
        wkv(size_t{1} * sets * kHead * kD, 2, 1 / std::sqrt(kD)),
        wgate(size_t{1} * sets * kHead * kD, 3, 1 / std::sqrt(kD)),
        norm(kHead, 4, 1),
        wk(size_t{1} * sets * kIndex * kHead, 5, 1 / std::sqrt(kHead)),
        k_norm(kIndex, 6, 1),
        pending(size_t{2} * segments * kHead, 7, 0, 1),
        ab(size_t{2} * rows * kHead),
        entries(size_t{1} * segments * pages * kPage * kEntryBytes),
        keys(size_t{1} * segments * pages * kPage * kKeyBytes),
        position(each_row([&](int r) { return 1 + r % (rows / segments); })),
        segment(each_row([&](int r) { return r / (rows / segments); })),
        step_row(each_row([](int r) { return r; })),
        begin(numbers(segments + 1, rows / segments)),
        first(std::vector<int32_t>(segments, 1)),
        slot(numbers(segments, 1)),
        page(numbers(segments * pages, 1)),
        inv_freq(frequencies()),
        set{rows, position.get(), segment.get(), step_row.get(), begin.get()},
        requests{segments, first.get(), slot.get(), page.get(), pages} {}

  void run(CudaContext& context, int i) {
    CompressorArgs a;
    a.x = tensor(x, rows, kD, DType::bf16);
    a.rows = &set;
    a.segments = &requests;
    a.ratio = ratio;
    a.head_dim = kHead;
    a.index_dim = kIndex;
    a.rope = {inv_freq.get(), 64};
    a.wkv = {WeightFormat::bf16, kHead, kD, wkv.get() + size_t{1} * (i % sets) * kHead * kD};
    if (ratio == 2) a.wgate = {WeightFormat::bf16, kHead, kD, wgate.get() + size_t{1} * (i % sets) * kHead * kD};
    a.norm = norm.get();
    a.wk = {WeightFormat::bf16, kIndex, kHead, wk.get() + size_t{1} * (i % sets) * kIndex * kHead};
    a.k_norm = k_norm.get();
    a.pending = pending.get();
    if (ratio == 2) a.ab = tensor(ab, rows, 2 * kHead, DType::f32);
    a.entries = {entries.get(), kEntryBytes, kPage};
    a.keys = {keys.get(), kKeyBytes, kPage};
    cuda::compressor(context, a);
  }
  static std::vector<int32_t> numbers(int count, int step) {
    std::vector<int32_t> v;
    for (int i = 0; i < count; ++i) v.push_back(i * step);
    return v;
  }
  std::vector<int32_t> each_row(const std::function<int(int)>& of) const {
    std::vector<int32_t> v;
    for (int r = 0; r < rows; ++r) v.push_back(of(r));
    return v;
  }
  static std::vector<float> frequencies() {
    std::vector<float> v(32);
    for (int i = 0; i < 32; ++i) v[i] = std::pow(160000.0f, -static_cast<float>(i) / 32);
    return v;
  }

  int ratio, rows, segments, sets, pages;
  Bf16 x, wkv, wgate, norm, wk, k_norm;
  F32 pending;
  DeviceArray<float> ab;
  DeviceArray<uint8_t> entries, keys;
  DeviceArray<int32_t> position, segment, step_row, begin, first, slot, page;
  DeviceArray<float> inv_freq;
  RowSet set;
  Segments requests;
};

void check_compressor(CudaContext& context, int ratio) {
  constexpr int kRows = 2500;
  const auto after = [&](int rows) {
    auto c = std::make_unique<Compressor>(rows, 1, 1, ratio);
    c->ab.poison();
    c->entries.poison();
    c->keys.poison();
    c->run(context, 0);
    context.wait();
    return c;
  };
  const auto all = after(kRows);
  for (const int rows : {1, 7, 9, 32, 33, 65, 128, 129, 1023, 1025, kRows}) {
    const auto few = after(rows);
    const int groups = ratio == 2 ? (rows + 1) / 2 : rows + 1;
    const size_t n = different(all->ab.host(), few->ab.host(), size_t{2} * rows * Compressor::kHead) +
                     different(all->entries.host(), few->entries.host(), size_t{1} * groups * Compressor::kEntryBytes) +
                     different(all->keys.host(), few->keys.host(), size_t{1} * groups * Compressor::kKeyBytes);
    expect(n == 0, "compressor, ratio %d, %d of %d rows: %zu values differ", ratio, rows, kRows, n);
  }
}

void time_compressor(CudaContext& context, int rows, int ratio) {
  constexpr int kHead = Compressor::kHead;
  Compressor c(rows, rows > 128 ? 1 : rows, rows > 1024 ? 2 : 40, ratio);
  const double matrices = ratio, bytes = 2.0 * rows * kD + 2.0 * kHead * (matrices * kD + Compressor::kIndex) +
                                         (ratio == 2 ? 8.0 * rows * kHead : 0);
  const double flops = 2.0 * matrices * rows * kHead * kD;
  report(ratio == 2 ? "compressor" : "compressor, ratio 1", ("rows=" + std::to_string(rows)).c_str(),
         time_calls(context, rows > 1024 ? 4 : 40, [&](int i) { c.run(context, i); }), flops, bytes,
         std::max(flops / 790e9, bytes / 4.3e9));
}

// ---- linears with bf16 weights of few outputs -------------------------------------------------------------------------
// The head weights of the indexer: linear() for any shape beside the kernel that is taken.
constexpr int kOutputs = 32;

void check_projection(CudaContext& context) {
  constexpr int kRows = 2500;
  Bf16 x(size_t{1} * kRows * kD, 1, 1), w(size_t{1} * kOutputs * kD, 2, 1 / std::sqrt(kD));
  DeviceArray<uint16_t> y(size_t{1} * kRows * kOutputs);
  HADAL_CUDA(cudaDeviceSynchronize());
  const Weight weight{WeightFormat::bf16, kOutputs, kD, w.get()};
  const auto after = [&](const std::function<void()>& call, int rows) {
    y.poison();
    call();
    context.wait();
    return y.host(0, size_t{1} * rows * kOutputs);
  };
  const auto by = [&](int rows) {
    return after(
        [&] {
          cuda::bf16_linear(context, {x.get(), {w.get(), nullptr}, rows, kOutputs, kD, nullptr, y.get()});
        },
        rows);
  };
  const auto all = by(kRows), linear = after(
                                  [&] {
                                    cuda::linear(context, cuda::linear_args(tensor(x, kRows, kD, DType::bf16), weight,
                                                                            tensor(y, kRows, kOutputs, DType::bf16)));
                                  },
                                  kRows);
  std::vector<double> ours, theirs;
  for (const uint16_t v : all) ours.push_back(bf16_value(v));
  for (const uint16_t v : linear) theirs.push_back(bf16_value(v));
  // Sums in another order: one result in 64 may round to the other side (tolerance.h), by two roundings at most.
  const double error = error_norm(ours, theirs);
  const size_t flipped = different(all, linear, all.size());
  expect(error < 2 * kBf16Rounding && flipped <= all.size() / 64,
         "bf16_linear, beside linear(): %.2e, %zu of %zu values differ", error, flipped, all.size());
  for (const int rows : {1, 8, 9, 33, 129, 1024, 1025, kRows}) {
    const auto few = by(rows);
    const size_t n = different(all, few, few.size());
    expect(n == 0, "bf16_linear, %d of %d rows: %zu values differ", rows, kRows, n);
  }
}

void time_projection(CudaContext& context, int rows) {
  const int sets = rows > 1024 ? 2 : 40;
  Bf16 x(size_t{1} * rows * kD, 1, 1), w(size_t{1} * sets * kOutputs * kD, 2, 1 / std::sqrt(kD));
  DeviceArray<uint16_t> y(size_t{1} * rows * kOutputs);
  const auto weight = [&](int i) {
    return Weight{WeightFormat::bf16, kOutputs, kD, w.get() + size_t{1} * (i % sets) * kOutputs * kD};
  };
  const double flops = 2.0 * rows * kOutputs * kD, bytes = 2.0 * kD * (rows + kOutputs);
  const auto time = [&](const char* name, const std::function<void(int)>& call) {
    report(name, ("rows=" + std::to_string(rows)).c_str(), time_calls(context, rows > 1024 ? 4 : 40, call), flops,
           bytes, std::max(flops / 790e9, bytes / 4.3e9));
  };
  const Tensor in = tensor(x, rows, kD, DType::bf16), out = tensor(y, rows, kOutputs, DType::bf16);
  time("linear, 32 outputs", [&](int i) { cuda::linear(context, cuda::linear_args(in, weight(i), out)); });
  time("bf16_linear, 32 outputs", [&](int i) {
    const auto* data = static_cast<const uint16_t*>(weight(i).data);
    cuda::bf16_linear(context, {x.get(), {data, nullptr}, rows, kOutputs, kD, nullptr, y.get()});
  });
}

// ---- head --------------------------------------------------------------------------------------------------------
void run_head(CudaContext& context, const std::vector<int>& rows, bool check) {
  constexpr int kVocab = 129280, kRows = 150;
  Bf16 weight(size_t{1} * kVocab * kD, 1, 1.7f / std::sqrt(kD)), x(size_t{1} * kRows * kD, 2, 1);
  DeviceArray<float> logits(size_t{1} * kRows * kVocab);
  const auto run = [&](int count) {
    HeadArgs a{count,
               tensor(x, count, kD, DType::bf16),
               {WeightFormat::bf16, kVocab, kD, weight.get()},
               tensor(logits, count, kVocab, DType::f32)};
    cuda::head(context, a);
  };
  if (check) {
    run(kRows);
    context.wait();
    const auto all = logits.host();
    for (const int r : {1, 7, 32, 64, 128}) {
      logits.poison();
      run(r);
      context.wait();
      const size_t n = different(all, logits.host(0, size_t{1} * r * kVocab), size_t{1} * r * kVocab);
      expect(n == 0, "head, %d of %d rows: %zu values differ", r, kRows, n);
    }
  }
  for (const int r : rows) {
    if (r > kRows) continue;
    const double bytes = 2.0 * kVocab * kD + 2.0 * r * kD + 4.0 * r * kVocab;
    report("head", ("rows=" + std::to_string(r)).c_str(), time_calls(context, 2, [&](int) { run(r); }),
           2.0 * r * kVocab * kD, bytes, bytes / 4.3e9);
  }
}

// Arguments: an operator, and one number of rows; without rows all, and the checks.
int run(const std::string& only, int one) {
  const auto wanted = [&](const char* name) { return only.empty() || only == name; };
  const std::vector<int> rows = one > 0 ? std::vector<int>{one} : std::vector<int>{4096, 1, 32, 128};
  if (one == 0) copy_rate();
  CudaContext context(Numerics::bf16);
  if (wanted("hyper_connection")) {
    if (one == 0) check_hyper_connection(context);
    for (const int r : rows)
      for (const Wanted w : {Wanted::x, Wanted::both, Wanted::rounded}) time_hyper_connection(context, r, w);
  }
  if (wanted("router")) {
    if (one == 0) check_router(context);
    for (const int r : rows) time_router(context, r);
  }
  if (wanted("compressor")) {
    for (const int ratio : {2, 1}) {
      if (one == 0) check_compressor(context, ratio);
      for (const int r : rows) time_compressor(context, r, ratio);
    }
  }
  if (wanted("bf16_linear")) {
    if (one == 0) check_projection(context);
    for (const int r : rows) time_projection(context, r);
  }
  if (wanted("head")) run_head(context, rows, one == 0);
  return exit_code();
}

}  // namespace
}  // namespace hadal::bench

int main(int argc, char** argv) {
  return hadal::bench::run(argc > 1 ? argv[1] : "", argc > 2 ? std::atoi(argv[2]) : 0);
}

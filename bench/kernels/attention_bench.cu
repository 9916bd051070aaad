// Sparse attention on one GPU at the release's shapes: 64 heads of 512, window 128, 512 selected rows of 65,536.
// With an argument: only the cases whose names contain it, or the checks.
// Checks sampled rows against float64 from the packed rows, equal bits in a second run and for a row alone; then times.
#include <memory>
#include <numeric>
#include <utility>

#include "base/dtype.h"
#include "base/row_format.h"
#include "bench.cuh"
#include "ops/sparse_attention/kernels.h"

namespace hadal::bench {
namespace {

using namespace hadal::cuda;

constexpr int kHeads = 64, kDim = 512, kWindow = 128, kTopK = 512, kRope = 64;
constexpr int kWindowBytes = 528, kEntryBytes = 288, kPageRows = 64;

// Window rows: E4M3 codes of magnitude 2^-3 to 2^4 with scales 2^-7 to 2^-4. Entries: any E2M1 code, E4M3 scales near 1/8.
__global__ void fill_rows(uint8_t* out, size_t rows, int row_bytes, uint64_t seed) {
  for (size_t i = blockIdx.x * size_t{256} + threadIdx.x; i < rows * row_bytes; i += size_t{256} * gridDim.x) {
    const uint64_t u = mix(seed * 7919 + i);
    const int at = static_cast<int>(i % row_bytes);
    if (row_bytes == kWindowBytes)
      out[i] =
          at < kDim ? static_cast<uint8_t>((u & 0x80) | (0x20 + (u >> 8) % 0x30)) : static_cast<uint8_t>(120 + u % 3);
    else
      out[i] = at < kDim / 2 ? static_cast<uint8_t>(u) : static_cast<uint8_t>(0x1c + u % 12);
  }
}

constexpr const char* kKernels[] = {"by eight", "by four", "window", "shared", "packed"};

void* lasting() {
  static const auto memory = [] {
    const size_t bytes = few_attention_lasting_bytes(132);
    auto array = std::make_unique<DeviceArray<uint8_t>>(bytes);
    HADAL_CUDA(cudaMemset(array->get(), 0, bytes));
    return array;
  }();
  return memory->get();
}

// Queries in segments: `segments` requests with `rows` / `segments` rows each, from position 100,000 on. mixed: young
// requests too, and lists of all lengths.
struct Step {
  Step(int row_count, int segment_count, int entry_count, uint64_t seed, bool mixed = false)
      : rows(row_count),
        segments(segment_count),
        q(size_t{1} * rows * kHeads * kDim),
        o(size_t{1} * rows * kHeads * kDim),
        latent(size_t{1} * rows * kWindowBytes),
        ring(size_t{1} * segments * kWindow * kWindowBytes),
        sink(kHeads),
        inv_freq(kRope / 2) {
    fill_bf16(q.get(), size_t{1} * rows * kHeads * kDim, seed, 6.0f);
    fill_rows<<<512, 256>>>(latent.get(), rows, kWindowBytes, seed + 1);
    fill_rows<<<512, 256>>>(ring.get(), size_t{1} * segments * kWindow, kWindowBytes, seed + 2);
    const int each = rows / segments;
    std::vector<int32_t> position, segment, step_row(rows), begin, slot(segments), first(segments, 100000);
    for (int s = 0; mixed && s < segments; ++s) first[s] = s % 2 == 0 ? 37 * s : 100000 + s;
    for (int s = 0; s < segments; ++s) {
      begin.push_back(s * each);
      for (int r = 0; r < each; ++r) position.push_back(first[s] + r), segment.push_back(s);
    }
    begin.push_back(rows);
    std::iota(slot.begin(), slot.end(), 0);
    std::iota(step_row.begin(), step_row.end(), 0);
    std::vector<float> sinks(kHeads), freq(kRope / 2);
    for (int h = 0; h < kHeads; ++h) sinks[h] = gaussian(seed, h);
    for (int i = 0; i < kRope / 2; ++i) freq[i] = std::pow(160000.0f, -2.0f * static_cast<float>(i) / kRope);
    const auto keep = [&](const std::vector<int32_t>& v) {
      arrays.push_back(std::make_unique<DeviceArray<int32_t>>(v));
      return arrays.back()->get();
    };
    HADAL_CUDA(cudaMemcpy(sink.get(), sinks.data(), sinks.size() * 4, cudaMemcpyHostToDevice));
    HADAL_CUDA(cudaMemcpy(inv_freq.get(), freq.data(), freq.size() * 4, cudaMemcpyHostToDevice));
    p.in = p.out = {rows, keep(position), keep(segment), keep(step_row), keep(begin)};
    const int pages = entry_count / kPageRows;
    std::vector<int32_t> table;  // one pool for all, pages in order
    for (int s = 0; s < segments; ++s)
      for (int i = 0; i < pages; ++i) table.push_back(i);
    p.segments = {segments, keep(first), keep(slot), pages > 0 ? keep(table) : nullptr, pages};
    p.args.heads = kHeads;
    p.args.head_dim = kDim;
    p.args.scale = 1.0f / std::sqrt(512.0f);
    p.args.rope = {inv_freq.get(), kRope};
    p.args.sink = sink.get();
    p.args.q = {q.get(), DType::bf16, rows, kHeads * kDim};
    p.args.o = {o.get(), DType::bf16, rows, kHeads * kDim};
    p.args.latent = {latent.get(), DType::u8, rows, kWindowBytes};
    p.args.ring = {ring.get(), kWindowBytes, kWindow};
    if (entry_count > 0) {
      entries = std::make_unique<DeviceArray<uint8_t>>(size_t{1} * entry_count * kEntryBytes);
      fill_rows<<<2048, 256>>>(entries->get(), entry_count, kEntryBytes, 9);
      std::vector<int32_t> list;
      for (int r = 0; r < rows; ++r)  // one random row out of each 1/512th: ascending and different
        for (int k = 0; k < kTopK; ++k) {
          const int stride = entry_count / kTopK;
          list.push_back(k * stride + static_cast<int>(mix(seed * 31 + r * 1000 + k) % stride));
        }
      p.has_entries = true;
      p.entries = {entries->get(), kEntryBytes, kPageRows, pages};
      p.selection.rows = {keep(list), DType::i32, rows, kTopK};
      std::vector<int32_t> count(rows, kTopK);
      for (int r = 0; mixed && r < rows; ++r) count[r] = r < 3 ? r : static_cast<int>(mix(seed * 17 + r) % (kTopK + 1));
      p.selection.count = {keep(count), DType::i32, rows, 1};
    }
    use(attention_kernel_for(p, most_keys(), 132));
    HADAL_CUDA(cudaDeviceSynchronize());
  }
  int most_keys() const { return kWindow + (p.has_entries ? kTopK : 0); }
  void use(AttentionKernel chosen) {
    kernel = chosen;
    scratch = std::make_unique<DeviceArray<uint8_t>>(attention_scratch_bytes(p, kernel) + 256);
    scratch->poison();
  }
  void matrix(cudaStream_t s) { matrix_attention(p, kernel, most_keys(), scratch->get(), lasting(), 132, s); }
  // Its output as Q4 instead, where `q4` says so.
  void round_output(bool q4) {
    p.o_q4 = {};
    if (!q4) return;
    const int padded = (rows + 7) / 8 * 8;
    if (codes == nullptr) codes = std::make_unique<DeviceArray<uint8_t>>(size_t{1} * padded * kHeads * kDim);
    if (scales == nullptr) scales = std::make_unique<DeviceArray<float>>(size_t{1} * padded * kHeads * kDim / 128);
    codes->poison();
    scales->poison();
    p.o_q4 = {codes->get(), scales->get(), rows, padded, kHeads * kDim};
  }
  void general(cudaStream_t s) { general_attention(p, kWindow + kTopK, s); }

  int rows, segments;
  DeviceArray<uint16_t> q, o;
  DeviceArray<uint8_t> latent, ring;
  DeviceArray<float> sink, inv_freq;
  AttentionKernel kernel;
  std::unique_ptr<DeviceArray<uint8_t>> scratch;
  std::unique_ptr<DeviceArray<uint8_t>> entries, codes;
  std::unique_ptr<DeviceArray<float>> scales;
  std::vector<std::unique_ptr<DeviceArray<int32_t>>> arrays;
  AttentionProblem p;
};

// One query in float64 on the host (one segment).
std::vector<double> reference(Step& step, int r) {
  const auto q = step.q.host(size_t{1} * r * kHeads * kDim, size_t{1} * kHeads * kDim);
  const auto sink = step.sink.host();
  const auto freq = step.inv_freq.host();
  const int first = 100000, position = first + r;
  std::vector<std::vector<float>> keys;
  const auto add = [&](RowFormat format, const uint8_t* device, int bytes) {
    const auto row = read_device(device, bytes);
    keys.emplace_back(kDim);
    unpack_row(format, row.data(), kDim, keys.back().data());
  };
  for (int p = position - kWindow + 1; p <= position; ++p)
    add(RowFormat::fp8_ue8m0_32,
        p >= first ? step.latent.get() + size_t{1} * (p - first) * kWindowBytes
                   : step.ring.get() + p % kWindow * kWindowBytes,
        kWindowBytes);
  if (step.p.has_entries)
    for (const int32_t e : read_device(step.p.selection.rows.i32(r), kTopK))
      add(RowFormat::fp4_e4m3_16, step.entries->get() + size_t{1} * e * kEntryBytes, kEntryBytes);
  std::vector<double> out(size_t{1} * kHeads * kDim);
  for (int h = 0; h < kHeads; ++h) {
    std::vector<double> score;
    double top = -1e30, z = 0;
    for (const auto& k : keys) {
      double s = 0;
      for (int c = 0; c < kDim; ++c) s += bf16_value(q[h * kDim + c]) * static_cast<double>(k[c]);
      score.push_back(s * step.p.args.scale);
      top = std::max(top, score.back());
    }
    double* o = out.data() + h * kDim;
    for (size_t t = 0; t < keys.size(); ++t) {
      const double e = std::exp(score[t] - top);
      z += e;
      for (int c = 0; c < kDim; ++c) o[c] += e * keys[t][c];
    }
    z += std::exp(sink[h] - top);
    for (int c = 0; c < kDim; ++c) o[c] /= z;
    for (int i = 0; i < kRope / 2; ++i) {
      const double angle = static_cast<float>(position) * freq[i];
      double& a = o[kDim - kRope + 2 * i];
      double& b = o[kDim - kRope + 2 * i + 1];
      const double re = a * std::cos(angle) + b * std::sin(angle);
      b = b * std::cos(angle) - a * std::sin(angle);
      a = re;
    }
  }
  return out;
}

void run(Step& step, bool matrix) {
  step.o.poison();
  matrix ? step.matrix(nullptr) : step.general(nullptr);
  HADAL_CUDA(cudaDeviceSynchronize());
}

// Values of which Q4, as the kernel writes it, is not that of its bf16 output.
size_t wrong_q4(Step& step, const std::vector<uint16_t>& output) {
  step.round_output(true);
  run(step, true);
  const auto codes = step.codes->host();
  const auto scales = step.scales->host();
  const int padded = step.p.o_q4.padded;
  step.round_output(false);
  size_t wrong = 0;
  for (int row = 0; row < step.rows; ++row)
    for (int group = 0; group < kHeads * kDim / 128; ++group) {
      float want[128];
      for (int i = 0; i < 128; ++i) want[i] = bf16_value(output[size_t{1} * row * kHeads * kDim + group * 128 + i]);
      round_fp8_128(want, 128);
      const size_t at = size_t{1} * group * padded + row;
      for (int i = 0; i < 128; ++i)
        wrong += from_e4m3(codes[at * 128 + (((i >> 4) ^ (row & 7)) << 4) + i % 16]) * scales[at] != want[i];
    }
  return wrong;
}

// From float64: exponentials, sums of values and rotated values are rounded.
constexpr double kMostError = 3 * kBf16Rounding;

// All kernels give the same bits, every time.
void check_bits(const char* name, Step& step) {
  std::vector<uint16_t> first;
  for (const AttentionKernel kernel : {AttentionKernel::eight, AttentionKernel::four, AttentionKernel::window,
                                       AttentionKernel::shared, AttentionKernel::packed}) {
    if (kernel == AttentionKernel::window && !window_attention_takes(step.p)) continue;
    step.use(kernel);
    run(step, true);
    const auto once = step.o.host();
    run(step, true);
    const auto twice = step.o.host();
    if (first.empty()) first = once;
    size_t again = 0, otherwise = 0;
    for (size_t i = 0; i < first.size(); ++i) again += once[i] != twice[i], otherwise += once[i] != first[i];
    const char* called = kKernels[static_cast<int>(kernel)];
    expect(again + otherwise == 0, "%s, %s: of %zu values %zu differ in a second run, %zu from the first kernel", name,
           called, first.size(), again, otherwise);
    const size_t wrong = wrong_q4(step, once);
    expect(wrong == 0, "%s, %s: of Q4 %zu values differ", name, called, wrong);
  }
  if (step.p.has_entries) {  // entries that a call before has expanded
    step.use(AttentionKernel::shared);
    SharedEntries shared{step.scratch->get()};
    step.p.args.shared = &shared;
    run(step, true);
    run(step, true);
    const auto later = step.o.host();
    step.p.args.shared = nullptr;
    size_t otherwise = 0;
    for (size_t i = 0; i < first.size(); ++i) otherwise += later[i] != first[i];
    expect(otherwise == 0, "%s, shared, entries there: %zu values from the first kernel", name, otherwise);
  }
  run(step, false);  // in the order of the specification, one key after the other
  const auto general = step.o.host();
  std::vector<double> have, want;
  for (const uint16_t v : first) have.push_back(bf16_value(v));
  for (const uint16_t v : general) want.push_back(bf16_value(v));
  const double error = error_norm(have, want);
  expect(error < 2 * kMostError, "%s: %.2e from the general kernel", name, error);
}

void check(const char* name, Step& step) {
  check_bits(name, step);
  for (const bool matrix : {true, false}) {
    run(step, matrix);
    std::vector<double> have, want;
    for (const int r : {0, 1, 77, step.rows / 2, step.rows - 1}) {
      if (r >= step.rows) continue;
      const auto w = reference(step, r);
      want.insert(want.end(), w.begin(), w.end());
      for (const uint16_t v : step.o.host(size_t{1} * r * kHeads * kDim, size_t{1} * kHeads * kDim))
        have.push_back(bf16_value(v));
    }
    const double error = error_norm(have, want);
    expect(error < kMostError, "%s %s: error %.2e, first values %g %g, last %g %g", name, matrix ? "matrix" : "general",
           error, have[0], want[0], have.back(), want.back());
  }
}

const char* only = nullptr;  // part of the names of the cases that run; null: all, and the checks

// entries_there: of the kernel that shares rows, a layer whose entries were expanded for one before.
void time_case(const char* name, int rows, int segments, int entries, const AttentionKernel* kernel = nullptr,
               bool q4 = false, bool entries_there = false) {
  if (only != nullptr && std::strstr(name, only) == nullptr) return;
  std::vector<std::unique_ptr<Step>> steps;
  const int sets = rows >= 1024 ? 2 : 8;
  for (int i = 0; i < sets; ++i) steps.push_back(std::make_unique<Step>(rows, segments, entries, 40 + i));
  if (kernel != nullptr)
    for (auto& step : steps) step->use(*kernel);
  for (auto& step : steps) step->round_output(q4);
  std::vector<SharedEntries> shared(sets);
  for (int i = 0; entries_there && i < sets; ++i) {
    shared[i].memory = steps[i]->scratch->get();
    steps[i]->p.args.shared = &shared[i];
    run(*steps[i], true);
  }
  const double keys = kWindow + (entries ? kTopK : 0);
  const double flops = 4.0 * rows * kHeads * kDim * keys, bytes = (q4 ? 3.0 : 4.0) * rows * kHeads * kDim;
  const Time t = time_graph(sets, [&](cudaStream_t s, int i) { steps[i]->matrix(s); });
  report("sparse_attention", name, t, flops, bytes, std::max(flops / 790e9, bytes / 4.3e9));
}

int run() {
  lasting();
  if (only == nullptr || std::strcmp(only, "checks") == 0) {
    copy_rate();
    Step step(200, 1, 32768, 1);
    check("640 keys", step);
    Step window(200, 1, 0, 2);
    check("window", window);
    Step lists(200, 8, 32768, 3, true);
    check_bits("lists of all lengths", lists);
    Step windows(200, 8, 0, 4, true);
    check_bits("windows of all lengths", windows);
    Step chunk(2799, 3, 0, 5);  // 21 queries a multiprocessor: more than share rows
    check_bits("windows of long chunks", chunk);
  }
  time_case("T=4096 n=65536 keys=640", 4096, 1, 65536);
  time_case("T=4096 n=131072 keys=640", 4096, 1, 131072);
  const AttentionKernel packed = AttentionKernel::packed, shared = AttentionKernel::shared;
  time_case("T=4096 n=65536 keys=640 Q4", 4096, 1, 65536, nullptr, true);
  time_case("T=4096 n=131072 keys=640 Q4", 4096, 1, 131072, nullptr, true);
  time_case("T=4096 n=65536 keys=640 Q4, entries there", 4096, 1, 65536, nullptr, true, true);
  time_case("T=4096 n=131072 keys=640 Q4, entries there", 4096, 1, 131072, nullptr, true, true);
  time_case("T=256 n=65536 keys=640 Q4", 256, 1, 65536, nullptr, true);
  time_case("T=256 n=65536 keys=640 shared Q4, entries there", 256, 1, 65536, &shared, true, true);
  time_case("T=4096 window only Q4", 4096, 1, 0, nullptr, true);
  time_case("T=256 window only Q4", 256, 1, 0, nullptr, true);
  time_case("T=4096 n=65536 keys=640 packed", 4096, 1, 65536, &packed);
  time_case("T=4096 n=131072 keys=640 packed", 4096, 1, 131072, &packed);
  time_case("T=256 n=65536 keys=640", 256, 1, 65536);
  time_case("T=4096 window only", 4096, 1, 0);
  time_case("T=4096 window only shared", 4096, 1, 0, &shared);
  time_case("T=256 window only", 256, 1, 0);
  const std::vector<std::pair<int, AttentionKernel>> decode = {
      {1, AttentionKernel::eight},   {8, AttentionKernel::eight},   {16, AttentionKernel::eight},
      {16, AttentionKernel::four},   {32, AttentionKernel::four},   {64, AttentionKernel::four},
      {64, AttentionKernel::packed}, {128, AttentionKernel::packed}};
  for (const auto& [rows, kernel] : decode) {
    char name[64];
    std::snprintf(name, sizeof name, "decode B=%d %s", rows, kKernels[static_cast<int>(kernel)]);
    time_case(name, rows, rows, 65536, &kernel);
    std::snprintf(name, sizeof name, "decode B=%d %s Q4", rows, kKernels[static_cast<int>(kernel)]);
    time_case(name, rows, rows, 65536, &kernel, true);
  }
  for (const int rows : {1, 32, 128})
    for (const bool q4 : {false, true}) {
      char name[64];
      std::snprintf(name, sizeof name, "decode B=%d window only%s", rows, q4 ? " Q4" : "");
      time_case(name, rows, rows, 0, nullptr, q4);
    }
  return exit_code();
}

}  // namespace
}  // namespace hadal::bench

int main(int argc, char** argv) {
  if (argc > 1) hadal::bench::only = argv[1];
  return hadal::bench::run();
}

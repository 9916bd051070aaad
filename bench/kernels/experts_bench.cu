// Experts on one GPU at the release's shapes: 96 local experts of 384 (one of four ranks), 5120 -> 2304 -> 5120, top 6.
// First checks: sampled rows against float64 from the published bytes (FP8 rows: from the rounded rows, and their rounding
// itself), equal bits when run twice, equal bits for a row in a small and in a large batch. Then times.
//     experts_bench [check|time|prefill|decode|all] [bf16|fp8|both]      (time: prefill and decode)
#include <memory>
#include <numeric>
#include <string>

#include "bench.cuh"
#include "ops/cuda/codec.cuh"
#include "ops/experts/grouped.h"
#include "ops/experts/pack.h"

namespace hadal::bench {
namespace {

using namespace hadal::cuda;

constexpr int kD = 5120, kWidth = 2304, kExperts = 96, kTopK = 6;
constexpr float kLimit = 10.0f;

// Weights as published, with Gaussian codes and scales 2^-10 .. 2^-6.
__global__ void fill_codes(uint8_t* out, size_t count, uint64_t seed) {
  for (size_t i = blockIdx.x * size_t{256} + threadIdx.x; i < count; i += size_t{256} * gridDim.x) {
    uint8_t byte = 0;
    for (int h = 0; h < 2; ++h) {
      const float x = gaussian(seed, 2 * i + h) * 2.2f, a = fabsf(x);
      const int code = (a > .25f) + (a >= .75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.f);
      byte |= static_cast<uint8_t>((code | (x < 0 ? 8 : 0)) << (4 * h));
    }
    out[i] = byte;
  }
}
__global__ void fill_scales(uint8_t* out, size_t count, uint64_t seed, int low, int range) {
  for (size_t i = blockIdx.x * size_t{256} + threadIdx.x; i < count; i += size_t{256} * gridDim.x)
    out[i] = static_cast<uint8_t>(low + mix(seed ^ (i * 77)) % range);
}

__device__ double decode_weight(const uint8_t* data, const uint8_t* scale, int k, int row, int column) {
  const int c = (data[static_cast<size_t>(row) * (k / 2) + column / 2] >> (column % 2 * 4)) & 15;
  const double magnitude[8] = {0, .5, 1, 1.5, 2, 3, 4, 6};
  const double v = c & 8 ? -magnitude[c & 7] : magnitude[c & 7];
  return ldexp(v, scale[static_cast<size_t>(row) * (k / 32) + column / 32] - 127);
}

// out[row] = W[row] . x, float64, one warp each.
__global__ void reference_product(const uint8_t* data, const uint8_t* scale, int n, int k, const double* x,
                                  double* out) {
  const int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= n) return;
  double sum = 0;
  for (int c = lane; c < k; c += 32) sum += decode_weight(data, scale, k, row, c) * x[c];
  for (int o = 16; o; o /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, o);
  if (lane == 0) out[row] = sum;
}

// Experts as published and as packed.
struct Layer {
  Layer(int count, bool fp8_rows) : experts(count), fp8(fp8_rows) {
    const size_t matrix = static_cast<size_t>(kWidth) * kD;
    data_each = 3 * matrix / 2;
    scale_each = 3 * matrix / 32;
    data = std::make_unique<DeviceArray<uint8_t>>(data_each * experts);
    scale = std::make_unique<DeviceArray<uint8_t>>(scale_each * experts);
    fill_codes<<<4096, 256>>>(data->get(), data->bytes(), 11);
    fill_scales<<<1024, 256>>>(scale->get(), scale->bytes(), 12, 117, 5);
    const ExpertLayout layout = fp8 ? ExpertLayout::fp8_rows : ExpertLayout::bf16_rows;
    const PackedFeedForward size = packed_feed_forward(weights(0), layout);
    gate_up_bytes = (size.gate_up + 255) / 256 * 256;
    packed_each = gate_up_bytes + (size.down + 255) / 256 * 256;
    packed = std::make_unique<DeviceArray<uint8_t>>(packed_each * experts);
    std::vector<PackedPointers> host;
    for (int e = 0; e < experts; ++e) {
      uint8_t* at = packed->get() + packed_each * e;
      host.push_back({at, at + gate_up_bytes});
      pack_feed_forward(weights(e), layout, at, at + gate_up_bytes, nullptr);
    }
    pointers = std::make_unique<DeviceArray<PackedPointers>>(host);
    HADAL_CUDA(cudaDeviceSynchronize());
  }
  FeedForward weights(int e) const {
    const size_t matrix = data_each / 3, scales = scale_each / 3;
    const uint8_t* d = data->get() + data_each * e;
    const uint8_t* s = scale->get() + scale_each * e;
    const WeightFormat f = WeightFormat::mxfp4;
    return {{f, kWidth, kD, d, s},
            {f, kWidth, kD, d + matrix, s + scales},
            {f, kD, kWidth, d + 2 * matrix, s + 2 * scales}};
  }
  int experts;
  bool fp8;
  size_t data_each, scale_each, gate_up_bytes, packed_each;
  std::unique_ptr<DeviceArray<uint8_t>> data, scale, packed;
  std::unique_ptr<DeviceArray<PackedPointers>> pointers;
};

// Routing of `rows` tokens to kTopK different experts each, ascending in a row.
enum class Routing { even, uniform, skewed };
std::vector<int32_t> route(int rows, Routing routing, uint64_t seed) {
  std::vector<int32_t> ids;
  for (int r = 0; r < rows; ++r) {
    std::vector<int32_t> row;
    for (uint64_t k = 0; row.size() < kTopK; ++k) {
      const uint64_t u = mix(seed * 1315423911u + static_cast<uint64_t>(r) * 64 + k);
      int e = static_cast<int>(u % kExperts);
      if (routing == Routing::even) e = (r * kTopK + static_cast<int>(row.size())) % kExperts;
      if (routing == Routing::skewed && (u >> 40) % 8 == 0)
        e = static_cast<int>(u % 4);  // four experts near 4x the mean
      if (std::find(row.begin(), row.end(), e) == row.end()) row.push_back(e);
    }
    std::sort(row.begin(), row.end());
    ids.insert(ids.end(), row.begin(), row.end());
  }
  return ids;
}

// Grouped rows, bf16 one after the other or FP8 in tiles.
struct Rows {
  Rows(const RowPlan& plan, int channels, bool fp8_rows)
      : fp8(fp8_rows),
        width(channels),
        data(fp8_codes(plan, channels) * (fp8 ? 1 : 2)),
        scale(fp8 ? plan.row_capacity : 1) {}
  void poison() { data.poison(), scale.poison(); }
  std::vector<double> values(const TokenTile& where, int row) const {
    std::vector<double> v(width);
    if (fp8) {
      const Fp8Tile tile{where.row0, where.n, width / 128};
      const double s = bf16_value(scale.host(row, 1)[0]);
      row -= where.row0;
      for (int g = 0; g < width / 128; ++g) {
        const auto codes = data.host(tile.code(g, row), 128);
        for (int k = 0; k < 128; ++k) {
          const int i = k % 8, byte = k / 8 % 4 * 32 + i / 4 * 16 + k / 32 * 4 + i % 4;
          v[g * 128 + k] = s * cuda::from_e4m3(codes[(byte / 16 ^ row % 8) * 16 + byte % 16]);
        }
      }
    } else {
      const auto bytes = data.host(static_cast<size_t>(row) * width * 2, width * 2);
      for (int c = 0; c < width; ++c) v[c] = bf16_value(static_cast<uint16_t>(bytes[2 * c] | bytes[2 * c + 1] << 8));
    }
    return v;
  }
  bool fp8;
  int width;
  DeviceArray<uint8_t> data;
  DeviceArray<uint16_t> scale;
};

// Everything a run needs besides weights.
struct Step {
  Step(const Layer& layer, int row_count, int topk_count, const std::vector<int32_t>& host_ids, uint64_t seed)
      : rows(row_count),
        topk(topk_count),
        choices(rows * topk),
        x(static_cast<size_t>(rows) * kD),
        ids(host_ids),
        weights(choices),
        slots(kExperts),
        y(static_cast<size_t>(rows) * kD),
        block(row_plan_bytes(rows, topk, layer.experts, layer.experts, layer.fp8)),
        plan(row_plan(block.get(), rows, topk, layer.experts, layer.experts, layer.fp8)),
        x8(layer.fp8 ? plan : RowPlan{}, kD, true),
        shared_codes(layer.fp8 ? static_cast<size_t>(padded()) * kD : 1),
        shared_scale(layer.fp8 ? static_cast<size_t>(padded()) * kD / 128 : 1),
        activated(plan, kWidth, false),
        activated8(layer.fp8 ? plan : RowPlan{}, kWidth, true),
        few(layer.fp8 && few_experts_take(rows, topk, layer.experts, kD, kWidth)),
        few_activated(few ? static_cast<size_t>(few_expert_rows(rows, topk)) * kWidth : 1),
        few_out(few ? static_cast<size_t>(few_expert_rows(rows, topk)) * kD : 1),
        few_counters(std::vector<int>(kFewCounters)),
        out(static_cast<size_t>(plan.row_capacity) * kD) {
    fill_bf16(x.get(), static_cast<size_t>(rows) * kD, seed, 1.0f);
    std::vector<float> w(choices);
    for (int i = 0; i < choices; ++i) w[i] = 0.1f + 0.4f * static_cast<float>(mix(seed + i) % 1000) / 1000.0f;
    HADAL_CUDA(cudaMemcpy(weights.get(), w.data(), choices * sizeof(float), cudaMemcpyHostToDevice));
    std::vector<int32_t> slot(kExperts);
    std::iota(slot.begin(), slot.end(), 0);
    HADAL_CUDA(cudaMemcpy(slots.get(), slot.data(), kExperts * sizeof(int32_t), cudaMemcpyHostToDevice));
    args.plan = plan;
    args.weights = layer.pointers->get();
    args.x = x.get();
    if (layer.fp8) {
      args.x = x8.data.get();
      args.x_scale = x8.scale.get();
    }
    args.activated = reinterpret_cast<uint16_t*>(activated.data.get());
    args.activated_codes = activated8.data.get();
    args.activated_scale = activated8.scale.get();
    args.out = out.get();
    args.d = kD;
    args.width = kWidth;
    args.limit = kLimit;
    args.fp8 = layer.fp8;
    few_args.grouped = args;
    few_args.grouped.x = x.get();
    few_args.grouped.activated = few_activated.get();
    few_args.grouped.out = few_out.get();
    few_args.ids = ids.get();
    few_args.weights = weights.get();
    few_args.experts = layer.pointers->get();
    few_args.count = layer.experts;
    few_args.rows = rows;
    few_args.topk = topk;
    few_args.counters = few_counters.get();
  }
  int padded() const { return (rows + 7) / 8 * 8; }
  void group(cudaStream_t s, bool shared = false) {
    RowsToRound to_round;
    if (args.fp8) to_round = {x.get(), kD, x8.data.get(), x8.scale.get(), {}};
    if (args.fp8 && shared) to_round.shared = {shared_codes.get(), shared_scale.get(), rows, padded(), kD};
    plan_rows(plan, ids.get(), weights.get(), rows, topk, slots.get(), kExperts, to_round, s);
  }
  void feed_forward(cudaStream_t s) const { grouped_feed_forward(args, 132, s); }
  void combine(cudaStream_t s) const {
    combine_rows(plan.pair_row, few ? few_out.get() : out.get(), nullptr, y.get(), rows, topk, kD, s);
  }
  void all(cudaStream_t s) {
    if (few)
      few_experts(few_args, 132, s);
    else
      group(s), feed_forward(s);
    combine(s);
  }
  void poison() {
    activated.poison(), activated8.poison(), out.poison(), y.poison(), x8.poison();
    few_activated.poison(), few_out.poison();
  }

  int rows, topk, choices;
  DeviceArray<uint16_t> x;
  DeviceArray<int32_t> ids;
  DeviceArray<float> weights;
  DeviceArray<int32_t> slots;
  DeviceArray<uint16_t> y;
  DeviceArray<uint8_t> block;
  RowPlan plan;
  Rows x8;
  DeviceArray<uint8_t> shared_codes;  // Q4 of x
  DeviceArray<float> shared_scale;
  Rows activated, activated8;
  bool few;  // the kernel of few rows takes this step
  DeviceArray<uint16_t> few_activated, few_out;
  DeviceArray<int> few_counters;
  DeviceArray<uint16_t> out;
  GroupedArgs args;
  FewExpertsArgs few_args;
};

double silu(double x) { return x / (1 + std::exp(-x)); }
double round_bf16_host(double x) { return bf16_value(__bfloat16_as_ushort(__float2bfloat16(static_cast<float>(x)))); }

// Q5, and Q4 with group = 128 (docs/numerics.md), written plainly.
std::vector<double> round_fp8(std::vector<double> x, size_t group = kD) {
  for (size_t first = 0; first < x.size(); first += group) {
    const size_t end = std::min(first + group, x.size());
    double largest = 0;
    for (size_t i = first; i < end; ++i) largest = std::max(largest, std::fabs(x[i]));
    const uint8_t scale = cuda::q1_scale(static_cast<float>(largest));
    for (size_t i = first; i < end; ++i)
      x[i] = static_cast<double>(cuda::from_e4m3(cuda::q1_code(static_cast<float>(x[i]), scale))) *
             cuda::from_ue8m0(scale);
  }
  return x;
}

// Every row of x as the pass over it leaves it for the shared expert (fp8_rows.h).
void check_shared_rows(Step& step) {
  step.shared_codes.poison(), step.shared_scale.poison();
  step.group(nullptr, true);
  HADAL_CUDA(cudaDeviceSynchronize());
  const auto codes = step.shared_codes.host();
  const auto scales = step.shared_scale.host();
  const auto bits = step.x.host();
  size_t different = 0;
  for (int row = 0; row < step.rows; ++row) {
    std::vector<double> x(kD);
    for (int c = 0; c < kD; ++c) x[c] = bf16_value(bits[static_cast<size_t>(row) * kD + c]);
    x = round_fp8(x, 128);
    for (int c = 0; c < kD; ++c) {
      const size_t at = static_cast<size_t>(c / 128) * step.padded() + row;
      const int byte = c % 128;
      different +=
          !(x[c] == static_cast<double>(cuda::from_e4m3(codes[at * 128 + (byte / 16 ^ row % 8) * 16 + byte % 16])) *
                        scales[at]);
    }
  }
  expect(different == 0, "shared rows of %d: %zu rounded values differ", step.rows, different);
}

// Sampled rows against float64. The second product is checked from the kernel's own activations, so that each error
// stands alone.
void check_rows(const char* name, const Layer& layer, Step& step) {
  step.poison();
  step.all(nullptr);
  HADAL_CUDA(cudaDeviceSynchronize());
  const auto tokens = read_device(step.plan.row_token, step.plan.row_capacity);
  const auto factors = read_device(step.plan.row_weight, step.plan.row_capacity);
  const int tile_count = read_device(step.plan.tile_count, 1)[0];
  const auto tiles = read_device(step.plan.tiles, tile_count);
  DeviceArray<double> result(2 * kWidth + kD);
  std::vector<double> have1, want1, have2, want2;
  size_t rounded_differently = 0;
  const auto compare_rounded = [&](const std::vector<double>& have, const std::vector<double>& want) {
    for (size_t c = 0; c < want.size(); ++c) rounded_differently += !(have[c] == want[c]);
  };
  for (int i = 0; i < 24; ++i) {
    const TokenTile tile = tiles[mix(i) % tile_count];
    const int row = tile.row0 + static_cast<int>(i < 8 ? (i % 2 ? tile.n - 1 : 0) : mix(i + 99) % tile.n);
    const FeedForward w = layer.weights(tile.slot);
    const auto product = [&](const Weight& m, const std::vector<double>& x, double* out) {
      const DeviceArray<double> device(x);
      reference_product<<<(m.n + 7) / 8, 256>>>(static_cast<const uint8_t*>(m.data), m.scale, m.n, m.k, device.get(),
                                                out);
      HADAL_CUDA(cudaDeviceSynchronize());
    };
    std::vector<double> x;
    for (const uint16_t v : step.x.host(static_cast<size_t>(tokens[row]) * kD, kD)) x.push_back(bf16_value(v));
    if (layer.fp8) {
      x = round_fp8(x);
      if (factors[row] == 0) continue;  // rows that fill up a tile are not there
      compare_rounded(step.x8.values(tile, row), x);
    }
    const auto activated = step.activated.values(tile, row);
    std::vector<double> a_rounded = activated;
    if (layer.fp8) {
      a_rounded = round_fp8(activated);
      compare_rounded(step.activated8.values(tile, row), a_rounded);
    }
    product(w.w1, x, result.get());
    product(w.w3, x, result.get() + kWidth);
    product(w.w2, a_rounded, result.get() + 2 * kWidth);
    const std::vector<double> r = result.host();
    std::vector<double> a;
    for (int c = 0; c < kWidth; ++c) {
      const double gate = std::min<double>(round_bf16_host(r[c]), kLimit);
      const double up = std::clamp<double>(round_bf16_host(r[kWidth + c]), -kLimit, kLimit);
      a.push_back(factors[row] * silu(gate) * up);
    }
    want1.insert(want1.end(), a.begin(), a.end());
    have1.insert(have1.end(), activated.begin(), activated.end());
    const auto out = step.out.host(static_cast<size_t>(row) * kD, kD);
    for (int c = 0; c < kD; ++c) {
      want2.push_back(r[2 * kWidth + c]);
      have2.push_back(bf16_value(out[c]));
    }
  }
  double mean = 0, size = 0;  // of the error along the value: FP8 sums are cut off and so lean towards zero
  for (size_t i = 0; i < have2.size(); ++i) mean += (have2[i] - want2[i]) * want2[i], size += want2[i] * want2[i];
  // Of one rounding, and as much again for products of 8 bits, and for gate and up that round to the other side.
  const double error1 = error_norm(have1, want1), error2 = error_norm(have2, want2);
  expect(error1 < 2 * kBf16Rounding && error2 < 2 * kBf16Rounding,
         "%s: gate/up error %.2e, down error %.2e (lean %.1e), tiles %d, first values %g %g | %g %g", name, error1,
         error2, mean / size, tile_count, have1[0], want1[0], have2[0], want2[0]);
  if (layer.fp8) expect(rounded_differently == 0, "%s: %zu rounded values differ", name, rounded_differently);
  const auto first = step.y.host();
  step.poison();
  step.all(nullptr);
  HADAL_CUDA(cudaDeviceSynchronize());
  const auto second = step.y.host();
  size_t different = 0, nan = 0;
  for (size_t i = 0; i < first.size(); ++i) {
    different += first[i] != second[i];
    nan += (first[i] & 0x7fff) > 0x7f80;
  }
  expect(different + nan == 0, "%s: %zu of %zu values differ in a second run, %zu NaN", name, different, first.size(),
         nan);
}

// The first rows of a large batch, alone: equal bits wanted.
void check_batch(const Layer& layer, const Step& large, const std::vector<int32_t>& ids, uint64_t seed) {
  const auto big = large.y.host();
  for (const int rows : {1, 2, 7, 8, 9, 32, 128, 700}) {
    Step small(layer, rows, kTopK, {ids.begin(), ids.begin() + rows * kTopK}, seed);
    HADAL_CUDA(
        cudaMemcpy(small.weights.get(), large.weights.get(), rows * kTopK * sizeof(float), cudaMemcpyDeviceToDevice));
    small.all(nullptr);
    HADAL_CUDA(cudaDeviceSynchronize());
    const auto y = small.y.host();
    size_t different = 0;
    for (size_t i = 0; i < y.size(); ++i) different += y[i] != big[i];
    expect(different == 0, "batch of %d alone: %zu of %zu values differ", rows, different, y.size());
  }
}

void time_prefill(const Layer& layer, const char* name, const std::vector<int32_t>& ids) {
  const int rows = static_cast<int>(ids.size()) / kTopK;
  Step step(layer, rows, kTopK, ids, 5);
  const double flops = 6.0 * ids.size() * kD * kWidth;
  const Time both = time_graph(
      4, [&](cudaStream_t s, int) { step.group(s), step.feed_forward(s); }, 400);
  report(layer.fp8 ? "experts fp8" : "experts bf16", name, both, flops, 0, flops / (layer.fp8 ? 1450e9 : 790e9));
}
void time_prefill_parts(const Layer& layer, const std::vector<int32_t>& ids) {
  Step step(layer, static_cast<int>(ids.size()) / kTopK, kTopK, ids, 5);
  const Time plan = time_graph(
      8, [&](cudaStream_t s, int) { step.group(s); }, 20);
  report("plan", layer.fp8 ? "with rounding of rows" : "", plan, 0, 0, 0);
  if (layer.fp8) {
    const Time both = time_graph(
        8, [&](cudaStream_t s, int) { step.group(s, true); }, 20);
    report("plan", "with rounding for the shared expert too", both, 0, 0, 0);
    return;
  }
  const Time sum = time_graph(
      4, [&](cudaStream_t s, int) { step.combine(s); }, 50);
  const double bytes = 2.0 * (ids.size() + step.rows) * kD;
  report("combine", "", sum, 0, bytes, bytes / 4.25e9);
}

void time_decode(const Layer& layer, int rows) {
  constexpr int kSets = 8;  // other tokens, other experts each time
  std::vector<std::unique_ptr<Step>> steps;
  double touched = 0;
  for (int i = 0; i < kSets; ++i) {
    const auto ids = route(rows, Routing::uniform, 1000 + i);
    std::vector<bool> used(kExperts);
    for (const int e : ids) used[e] = true;
    touched += static_cast<double>(std::count(used.begin(), used.end(), true)) / kSets;
    steps.push_back(std::make_unique<Step>(layer, rows, kTopK, ids, 50 + i));
  }
  const double bytes = touched * 18800640.0;
  char name[64];
  std::snprintf(name, sizeof name, "decode B=%d (%.1f experts)", rows, touched);
  const Time all = time_graph(kSets, [&](cudaStream_t s, int i) { steps[i]->all(s); });
  report(layer.fp8 ? "experts+plan+combine fp8" : "experts+plan+combine bf16", name, all, 0, bytes, bytes / 4.3e9);
  const Time plan = time_graph(
      kSets, [&](cudaStream_t s, int i) { steps[i]->group(s), steps[i]->combine(s); }, 20);
  report("plan+combine", name, plan, 0, 0, 0);
}

void run(const std::string& what, bool fp8) {
  const Layer layer(kExperts, fp8);
  const auto uniform = route(4096, Routing::uniform, 1);
  if (what == "check" || what == "all") {
    Step step(layer, 4096, kTopK, uniform, 3);
    check_rows(fp8 ? "fp8" : "bf16", layer, step);
    check_batch(layer, step, uniform, 3);
    if (fp8) {
      check_shared_rows(step);
      Step few(layer, 131, kTopK, {uniform.begin(), uniform.begin() + 131 * kTopK}, 7);
      check_shared_rows(few);
    }
  }
  if (what != "check" && what != "decode") {
    time_prefill(layer, "R=24576 256 each", route(4096, Routing::even, 1));
    time_prefill(layer, "R=24576 uniform", uniform);
    time_prefill(layer, "R=24576 skewed", route(4096, Routing::skewed, 1));
    time_prefill_parts(layer, uniform);
  }
  if (what != "check" && what != "prefill")
    for (const int rows : {1, 2, 4, 8, 32, 128}) time_decode(layer, rows);
}

int run_all(const std::string& what, const std::string& numerics) {
  cudaDeviceProp device;
  HADAL_CUDA(cudaGetDeviceProperties(&device, 0));
  std::printf("# %s, %d multiprocessors\n# kernel,case,median ms,min,max,rate,bandwidth,floor ms,ratio\n", device.name,
              device.multiProcessorCount);
  if (what != "check") copy_rate();
  for (const bool fp8 : {false, true})
    if (numerics == "both" || numerics == (fp8 ? "fp8" : "bf16")) run(what, fp8);
  return exit_code();
}

}  // namespace
}  // namespace hadal::bench

int main(int argc, char** argv) {
  return hadal::bench::run_all(argc > 1 ? argv[1] : "all", argc > 2 ? argv[2] : "both");
}

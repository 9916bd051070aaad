// Experts on one GPU at the release's shapes: 96 local experts of 384 (one of four ranks), 5120 -> 2304 -> 5120, top 6.
// First checks: sampled rows against float64 from the published bytes, equal bits when run twice, equal bits for a row
// in a small and in a large batch. Then times.      experts_bench [check|time|all]
#include <memory>
#include <numeric>
#include <string>

#include "bench.cuh"
#include "ops/experts/grouped.h"
#include "ops/experts/pack.h"

namespace hadal::bench {
namespace {

using namespace hadal::cuda;

constexpr int kD = 5120, kWidth = 2304, kExperts = 96, kTopK = 6;
constexpr float kLimit = 10.0f;

// Weights as published, with Gaussian codes and scales 2^-10 .. 2^-6.
__global__ void fill_codes(uint8_t* out, size_t count, uint64_t seed, bool fp8) {
  for (size_t i = blockIdx.x * size_t{256} + threadIdx.x; i < count; i += size_t{256} * gridDim.x) {
    if (fp8) {
      const uint64_t u = mix(seed + i);
      out[i] = static_cast<uint8_t>((u & 0x80) | (0x20 + u % 0x38));  // magnitudes 2^-3 .. 2^4
    } else {
      uint8_t byte = 0;
      for (int h = 0; h < 2; ++h) {
        const float x = gaussian(seed, 2 * i + h) * 2.2f, a = fabsf(x);
        const int code = (a > .25f) + (a >= .75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.f);
        byte |= static_cast<uint8_t>((code | (x < 0 ? 8 : 0)) << (4 * h));
      }
      out[i] = byte;
    }
  }
}
__global__ void fill_scales(uint8_t* out, size_t count, uint64_t seed, int low, int range) {
  for (size_t i = blockIdx.x * size_t{256} + threadIdx.x; i < count; i += size_t{256} * gridDim.x)
    out[i] = static_cast<uint8_t>(low + mix(seed ^ (i * 77)) % range);
}

__host__ __device__ double decode_weight(const uint8_t* data, const uint8_t* scale, bool fp8, int k, int row,
                                         int column) {
  double v;
  int s;
  if (fp8) {
    const int c = data[static_cast<size_t>(row) * k + column], e = (c >> 3) & 15, m = c & 7;
    v = e ? ldexp(1 + m / 8.0, e - 7) : ldexp(m / 8.0, -6);
    if (c & 128) v = -v;
    s = scale[static_cast<size_t>(row / 32) * (k / 32) + column / 32];
  } else {
    const int c = (data[static_cast<size_t>(row) * (k / 2) + column / 2] >> (column % 2 * 4)) & 15;
    const double magnitude[8] = {0, .5, 1, 1.5, 2, 3, 4, 6};
    v = c & 8 ? -magnitude[c & 7] : magnitude[c & 7];
    s = scale[static_cast<size_t>(row) * (k / 32) + column / 32];
  }
  return ldexp(v, s - 127);
}

// out[sample][row] = W[row] . x[sample], float64, one warp each.
__global__ void reference_product(const uint8_t* data, const uint8_t* scale, bool fp8, int n, int k, const uint16_t* x,
                                  double* out) {
  const int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= n) return;
  double sum = 0;
  for (int c = lane; c < k; c += 32)
    sum += decode_weight(data, scale, fp8, k, row, c) * __uint_as_float(static_cast<uint32_t>(x[c]) << 16);
  for (int o = 16; o; o /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, o);
  if (lane == 0) out[row] = sum;
}

// Experts as published and as packed.
struct Layer {
  Layer(int count, bool fp8_weights) : experts(count), fp8(fp8_weights) {
    const size_t matrix = static_cast<size_t>(kWidth) * kD;
    data_each = 3 * matrix / (fp8 ? 1 : 2);
    scale_each = 3 * matrix / (fp8 ? 1024 : 32);
    data = std::make_unique<DeviceArray<uint8_t>>(data_each * experts);
    scale = std::make_unique<DeviceArray<uint8_t>>(scale_each * experts);
    fill_codes<<<4096, 256>>>(data->get(), data->bytes(), 11, fp8);
    fill_scales<<<1024, 256>>>(scale->get(), scale->bytes(), 12, fp8 ? 113 : 117, 5);
    const PackedFeedForward size = packed_feed_forward(weights(0));
    gate_up_bytes = (size.gate_up + 255) / 256 * 256;
    packed_each = gate_up_bytes + (size.down + 255) / 256 * 256;
    packed = std::make_unique<DeviceArray<uint8_t>>(packed_each * experts);
    std::vector<PackedPointers> host;
    for (int e = 0; e < experts; ++e) {
      uint8_t* at = packed->get() + packed_each * e;
      host.push_back({at, at + gate_up_bytes});
      pack_feed_forward(weights(e), at, at + gate_up_bytes, nullptr);
    }
    pointers = std::make_unique<DeviceArray<PackedPointers>>(host);
    HADAL_CUDA(cudaDeviceSynchronize());
  }
  FeedForward weights(int e) const {
    const size_t matrix = data_each / 3, scales = scale_each / 3;
    const uint8_t* d = data->get() + data_each * e;
    const uint8_t* s = scale->get() + scale_each * e;
    const WeightFormat f = fp8 ? WeightFormat::fp8_block32 : WeightFormat::mxfp4;
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
        block(row_plan_bytes(rows, topk, layer.experts, layer.experts)),
        plan(row_plan(block.get(), rows, topk, layer.experts, layer.experts)),
        activated(static_cast<size_t>(plan.row_capacity) * kWidth),
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
    args.activated = activated.get();
    args.out = out.get();
    args.d = kD;
    args.width = kWidth;
    args.limit = kLimit;
    args.fp8 = layer.fp8;
  }
  void group(cudaStream_t s) const {
    if (args.fp8)
      plan_all_rows(plan, rows, s);
    else
      plan_rows(plan, ids.get(), weights.get(), rows, topk, slots.get(), kExperts, s);
  }
  void feed_forward(cudaStream_t s) const { grouped_feed_forward(args, 132, s); }
  void combine(cudaStream_t s) const { combine_rows(plan.pair_row, out.get(), nullptr, y.get(), rows, topk, kD, s); }
  void all(cudaStream_t s) const { group(s), feed_forward(s), combine(s); }

  int rows, topk, choices;
  DeviceArray<uint16_t> x;
  DeviceArray<int32_t> ids;
  DeviceArray<float> weights;
  DeviceArray<int32_t> slots;
  DeviceArray<uint16_t> y;
  DeviceArray<uint8_t> block;
  RowPlan plan;
  DeviceArray<uint16_t> activated, out;
  GroupedArgs args;
};

double silu(double x) { return x / (1 + std::exp(-x)); }
double round_bf16_host(double x) { return bf16_value(__bfloat16_as_ushort(__float2bfloat16(static_cast<float>(x)))); }

// Sampled rows against float64. The second product is checked from the kernel's own activations, so that each error
// stands alone.
void check_rows(const char* name, const Layer& layer, Step& step) {
  step.activated.poison(), step.out.poison(), step.y.poison();
  step.all(nullptr);
  HADAL_CUDA(cudaDeviceSynchronize());
  const auto tokens = read_device(step.plan.row_token, step.plan.row_capacity);
  const auto factors = read_device(step.plan.row_weight, step.plan.row_capacity);
  const int tile_count = read_device(step.plan.tile_count, 1)[0];
  const auto tiles = read_device(step.plan.tiles, tile_count);
  DeviceArray<double> result(2 * kWidth + kD);
  std::vector<double> have1, want1, have2, want2;
  for (int i = 0; i < 24; ++i) {
    const TokenTile tile = tiles[mix(i) % tile_count];
    const int row = tile.row0 + static_cast<int>(i < 8 ? (i % 2 ? tile.n - 1 : 0) : mix(i + 99) % tile.n);
    const FeedForward w = layer.weights(tile.slot);
    const auto product = [&](const Weight& m, const uint16_t* x, double* out) {
      reference_product<<<(m.n + 7) / 8, 256>>>(static_cast<const uint8_t*>(m.data), m.scale, layer.fp8, m.n, m.k, x,
                                                out);
    };
    const uint16_t* x = step.x.get() + static_cast<size_t>(tokens[row]) * kD;
    product(w.w1, x, result.get());
    product(w.w3, x, result.get() + kWidth);
    product(w.w2, step.activated.get() + static_cast<size_t>(row) * kWidth, result.get() + 2 * kWidth);
    const std::vector<double> r = result.host();
    const auto activated = step.activated.host(static_cast<size_t>(row) * kWidth, kWidth);
    const auto out = step.out.host(static_cast<size_t>(row) * kD, kD);
    for (int c = 0; c < kWidth; ++c) {
      const double gate = std::min<double>(round_bf16_host(r[c]), kLimit);
      const double up = std::clamp<double>(round_bf16_host(r[kWidth + c]), -kLimit, kLimit);
      want1.push_back(factors[row] * silu(gate) * up);
      have1.push_back(bf16_value(activated[c]));
    }
    for (int c = 0; c < kD; ++c) {
      want2.push_back(r[2 * kWidth + c]);
      have2.push_back(bf16_value(out[c]));
    }
  }
  std::printf("check %s: gate/up error %.2e, down error %.2e, tiles %d, first values %g %g | %g %g\n", name,
              error_norm(have1, want1), error_norm(have2, want2), tile_count, have1[0], want1[0], have2[0], want2[0]);
  const auto first = step.y.host();
  step.activated.poison(), step.out.poison(), step.y.poison();
  step.all(nullptr);
  HADAL_CUDA(cudaDeviceSynchronize());
  const auto second = step.y.host();
  size_t different = 0, nan = 0;
  for (size_t i = 0; i < first.size(); ++i) {
    different += first[i] != second[i];
    nan += (first[i] & 0x7fff) > 0x7f80;
  }
  std::printf("check %s: %zu of %zu values differ in a second run, %zu NaN\n", name, different, first.size(), nan);
  std::fflush(stdout);
}

// The first rows of a large batch, alone: equal bits wanted.
void check_batch(const Layer& layer, const Step& large, const std::vector<int32_t>& ids, uint64_t seed) {
  const auto big = large.y.host();
  for (const int rows : {1, 7, 32, 128, 700}) {
    Step small(layer, rows, kTopK, {ids.begin(), ids.begin() + rows * kTopK}, seed);
    HADAL_CUDA(
        cudaMemcpy(small.weights.get(), large.weights.get(), rows * kTopK * sizeof(float), cudaMemcpyDeviceToDevice));
    small.all(nullptr);
    HADAL_CUDA(cudaDeviceSynchronize());
    const auto y = small.y.host();
    size_t different = 0;
    for (size_t i = 0; i < y.size(); ++i) different += y[i] != big[i];
    std::printf("check batch of %d alone: %zu of %zu values differ\n", rows, different, y.size());
  }
  std::fflush(stdout);
}

void time_prefill(const Layer& layer, const char* name, const std::vector<int32_t>& ids, int topk) {
  const int rows = static_cast<int>(ids.size()) / topk;
  Step step(layer, rows, topk, ids, 5);
  const double flops = 6.0 * ids.size() * kD * kWidth;
  step.group(nullptr);
  const Time both = time_graph(
      4, [&](cudaStream_t s, int) { step.group(s), step.feed_forward(s); }, 400);
  report("experts", name, both, flops, 0, flops / 790e9);
  if (layer.fp8) return;
  const Time plan = time_graph(
      8, [&](cudaStream_t s, int) { step.group(s); }, 20);
  report("plan", name, plan, 0, 0, 0);
  const Time sum = time_graph(
      4, [&](cudaStream_t s, int) { step.combine(s); }, 50);
  const double bytes = 2.0 * (ids.size() + rows) * kD;
  report("combine", name, sum, 0, bytes, bytes / 4.25e9);
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
  report("experts+plan+combine", name, all, 0, bytes, bytes / 4.3e9);
  const Time plan = time_graph(
      kSets, [&](cudaStream_t s, int i) { steps[i]->group(s), steps[i]->combine(s); }, 20);
  report("plan+combine", name, plan, 0, 0, 0);
}

int run(const std::string& what) {
  cudaDeviceProp device;
  HADAL_CUDA(cudaGetDeviceProperties(&device, 0));
  std::printf("# %s, %d multiprocessors\n# kernel,case,median ms,min,max,rate,bandwidth,floor ms,ratio\n", device.name,
              device.multiProcessorCount);
  copy_rate();
  const Layer layer(kExperts, false);
  const auto uniform = route(4096, Routing::uniform, 1);
  if (what != "time") {
    Step step(layer, 4096, kTopK, uniform, 3);
    check_rows("mxfp4", layer, step);
    check_batch(layer, step, uniform, 3);
  }
  if (what != "check") {
    time_prefill(layer, "R=24576 256 each", route(4096, Routing::even, 1), kTopK);
    time_prefill(layer, "R=24576 uniform", uniform, kTopK);
    time_prefill(layer, "R=24576 skewed", route(4096, Routing::skewed, 1), kTopK);
    for (const int rows : {1, 32, 128}) time_decode(layer, rows);
  }
  const Layer shared(1, true);
  const std::vector<int32_t> zeros(4096, 0);
  if (what != "time") {
    Step step(shared, 4096, 1, zeros, 3);
    for (uint8_t* p : {reinterpret_cast<uint8_t*>(step.plan.pair_row)}) HADAL_CUDA(cudaMemset(p, 0, 4096 * 4));
    check_rows("fp8", shared, step);
  }
  if (what != "check") time_prefill(shared, "shared expert fp8 weights, 4096 rows", zeros, 1);
  return 0;
}

}  // namespace
}  // namespace hadal::bench

int main(int argc, char** argv) { return hadal::bench::run(argc > 1 ? argv[1] : "all"); }

// FP8 dense projections on one GPU at the release's shapes, random codes and scales, rows quantised by Q4. First checks:
// sampled rows against float64 of the same operands, equal bits when run twice, and equal bits for a row among 1 to 4096.
// Then times of kernels, beside the rate of the matrix unit alone. bf16: the five of a layer in 16-bit products, few rows and
// every width of tiles, and that all give the same bits. input: the whole operator in front of attention. engram: that layer, with rows
// gathered as bf16 and as Q4. counters: each kernel of interest once, for a profiler.
//                                                    linear_bench [check|pair|time|few|all|bf16|input|engram|counters]
#include <memory>
#include <string>

#include "bench.cuh"
#include "ops/cuda/fold.h"
#include "ops/cuda/fp8_linear.cuh"
#include "ops/cuda/linear.h"
#include "ops/cuda/linear_input.h"
#include "ops/cuda/packed_linear.h"
#include "ops/operators.h"

namespace hadal::bench {
namespace {

using namespace hadal::cuda;

constexpr int kMost = 4096;

struct Shape {
  const char* name;
  int n, k, groups;
  double flops(int rows) const { return 2.0 * rows * n * k; }
  double bytes(int rows) const { return double(n) * k + double(rows) * (k * groups + 2.0 * n); }
};
constexpr Shape kShapes[] = {{"wq_a", 1280, 5120, 1},      {"wkv", 512, 5120, 1},         {"wq_b", 32768, 1280, 1},
                             {"wo_a", 8192, 4096, 8},      {"wo_b", 5120, 8192, 1},       {"shared w1", 2304, 5120, 1},
                             {"shared w2", 5120, 2304, 1}, {"engram wkv", 25600, 6144, 1}};
constexpr double kBurst = 1450e12, kMemory = 4.3e12;

__global__ void fill_codes(uint8_t* out, size_t count, uint64_t seed) {
  for (size_t i = blockIdx.x * size_t{256} + threadIdx.x; i < count; i += size_t{256} * gridDim.x)
    out[i] = cuda::to_e4m3(gaussian(seed, i) * 100);
}
__global__ void fill_scales(uint8_t* out, size_t count, uint64_t seed) {
  for (size_t i = blockIdx.x * size_t{256} + threadIdx.x; i < count; i += size_t{256} * gridDim.x)
    out[i] = static_cast<uint8_t>(113 + mix(seed + i) % 3);
}

// A weight folded in the published layout, and packed for the kernels; `copies` of it, so that they do not stay in L2.
struct Matrix {
  Matrix(CudaContext& context, const Shape& s, uint64_t seed, int count)
      : shape(s), data(size_t(s.n) * s.k), scale(size_t(s.n) * s.k / 1024) {
    fill_codes<<<4096, 256>>>(data.get(), data.bytes(), seed);
    fill_scales<<<512, 256>>>(scale.get(), scale.bytes(), seed);
    HADAL_CUDA(cudaDeviceSynchronize());
    weight = {WeightFormat::fp8_block32, s.n, s.k, data.get(), scale.get()};
    fold_weight(context, weight);
    for (int i = 0; i < count; ++i) {
      packed.push_back(std::make_unique<DeviceArray<uint8_t>>(packed_fp8_bytes(weight)));
      pack_fp8(context, weight, packed.back()->get());
    }
    context.wait();
  }
  Fp8Problem problem(const Fp8Rows& x, uint16_t* y, int copy = 0) const {
    Weight w = weight;
    w.packed = packed[copy % packed.size()]->get();
    Fp8Problem p;
    p.x = x;
    p.k = shape.k;
    p.n = shape.n;
    p.group_n = shape.n / shape.groups;
    p.y = y;
    p.y_stride = shape.n;
    locate_packed_fp8(w, p);
    return p;
  }
  Shape shape;
  DeviceArray<uint8_t> data, scale;
  Weight weight;
  std::vector<std::unique_ptr<DeviceArray<uint8_t>>> packed;
};

// Rows of x and their Q4, which live as long as the scratch.
struct Rows {
  Rows(CudaContext& context, Scratch& scratch, int rows, int columns, uint64_t seed)
      : x(scratch.get<uint16_t>(size_t(rows) * columns)), columns(columns) {
    fill_bf16(x, size_t(rows) * columns, seed, 1.0f);
    HADAL_CUDA(cudaDeviceSynchronize());
    fp8 = fp8_rows(scratch, rows, columns);
    quantise_rows(context, x, columns, nullptr, fp8);
  }
  uint16_t* x;
  int columns;
  Fp8Rows fp8;
};

// float64 of the operands as they are: one warp an output of row `row`.
__global__ void reference_kernel(Fp8Rows x, int row, const uint8_t* w, const uint8_t* scale, int n, int k, int group_n,
                                 double* out) {
  const int o = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (o >= n) return;
  double sum = 0;
  for (int c = lane; c < k; c += 32) {
    const int group = o / group_n * (k / 128) + c / 128;
    const double xv = double(cuda::from_e4m3(fp8_chunk(x, group, row, c % 128 / 16)[c % 16])) *
                      x.scales[int64_t(group) * x.padded + row];
    sum += xv * cuda::from_e4m3(w[int64_t(o) * k + c]) * cuda::from_ue8m0(scale[int64_t(o / 32) * (k / 32) + c / 32]);
  }
  for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  if (lane == 0) out[o] = sum;
}

using Launch = void (*)(const Fp8Problem&, int, cudaStream_t);
struct Variant {
  const char* name;
  Launch launch;
};
constexpr Variant kWide[] = {{"chosen", fp8_linear},
                             {"128 x 128", launch_fp8_wide<Fp8Wide<1, 128, 6, false>>},
                             {"128 x 160", launch_fp8_wide<Fp8Wide<1, 160, 5, false>>},
                             {"128 x 192", launch_fp8_wide<Fp8Wide<1, 192, 4, false>>},
                             {"256 x 128", launch_fp8_wide<Fp8Wide<2, 128, 4, false>>},
                             {"192 x 128", launch_fp8_wide<Fp8Wide<1, 128, 4, false, 3>>}};
constexpr Variant kNarrow[] = {{"chosen", fp8_linear}};

void check(CudaContext& context, const Shape& shape) {
  Scratch scratch(context);
  Matrix m(context, shape, 5, 1);
  Rows rows(context, scratch, kMost, shape.k * shape.groups, 9);
  DeviceArray<uint16_t> y(size_t(kMost) * shape.n), again(size_t(kMost) * shape.n);
  const auto run = [&](const Fp8Rows& x, DeviceArray<uint16_t>& out) {
    out.poison();
    fp8_linear(m.problem(x, out.get()), context.multiprocessors(), context.stream());
    context.wait();
    return out.host(0, size_t(x.rows) * shape.n);
  };
  const std::vector<uint16_t> want = run(rows.fp8, y);
  const bool same_again = run(rows.fp8, again) == want;
  expect(same_again, "%s, twice", shape.name);

  // Against float64.
  DeviceArray<double> reference(shape.n);
  std::vector<double> got, exact, rounded;
  for (const int row : {0, 77, 1234, 4095}) {
    reference_kernel<<<(shape.n + 7) / 8, 256>>>(rows.fp8, row, m.data.get(), m.scale.get(), shape.n, shape.k,
                                                 shape.n / shape.groups, reference.get());
    const std::vector<double> r = reference.host();
    for (int o = 0; o < shape.n; ++o) {
      exact.push_back(r[o]);
      rounded.push_back(bf16_value(cuda::to_bf16(float(r[o]))));
      got.push_back(bf16_value(want[size_t(row) * shape.n + o]));
    }
  }
  const double error = error_norm(got, exact), beyond = error_norm(got, rounded);
  expect(error < kBf16Rounding, "%s: from float64 %.2e, from its bf16 %.2e", shape.name, error, beyond);

  size_t differ = 0;
  for (const int count : {1, 5, 8, 16, 27, 32, 33, 64, 65, 100, 128, 129, 256, 300}) {
    Scratch inner(context);
    const Fp8Rows part = fp8_rows(inner, count, shape.k * shape.groups);
    quantise_rows(context, rows.x, rows.columns, nullptr, part);
    const std::vector<uint16_t> have = run(part, again);
    for (size_t i = 0; i < have.size(); ++i) differ += have[i] != want[i];
  }
  expect(differ == 0, "%s, batches of 1 to 300 rows: %zu values differ", shape.name, differ);
  for (const Variant& variant : kWide) {
    differ = 0;
    for (const int count : {kMost, 300, 129}) {
      Scratch inner(context);
      const Fp8Rows part = fp8_rows(inner, count, shape.k * shape.groups);
      quantise_rows(context, rows.x, rows.columns, nullptr, part);
      again.poison();
      variant.launch(m.problem(part, again.get()), context.multiprocessors(), context.stream());
      context.wait();
      const std::vector<uint16_t> have = again.host(0, size_t(count) * shape.n);
      for (size_t i = 0; i < have.size(); ++i) differ += have[i] != want[i];
    }
    expect(differ == 0, "%s [%s]: %zu values differ", shape.name, variant.name, differ);
  }
  // Q4 of the results in the epilogue against a pass over them.
  if (shape.groups > 1) {
    Scratch inner(context);
    for (const int count : {300, kMost}) {
      const Fp8Rows part = fp8_rows(inner, count, shape.k * shape.groups);
      quantise_rows(context, rows.x, rows.columns, nullptr, part);
      const Fp8Rows apart = fp8_rows(inner, count, shape.n), fused = fp8_rows(inner, count, shape.n);
      run(part, again);
      quantise_rows(context, again.get(), shape.n, nullptr, apart);
      Fp8Problem p = m.problem(part, nullptr);
      p.quantised = fused;
      fp8_linear(p, context.multiprocessors(), context.stream());
      context.wait();
      differ = 0;
      const auto a = read_device(apart.codes, size_t(apart.padded) * shape.n), b = read_device(fused.codes, a.size());
      const auto sa = read_device(apart.scales, size_t(apart.padded) * shape.n / 128),
                 sb = read_device(fused.scales, sa.size());
      for (int g = 0; g < shape.n / 128; ++g)
        for (int r = 0; r < count; ++r) {
          differ += sa[size_t(g) * apart.padded + r] != sb[size_t(g) * apart.padded + r];
          for (int c = 0; c < 128; ++c) {
            const size_t i = (size_t(g) * apart.padded + r) * 128 + c;
            differ += a[i] != b[i];
          }
        }
      expect(differ == 0, "%s, Q4 in the kernel, %d rows: %zu values differ", shape.name, count, differ);
    }
  }
}

// Two weights in one launch: the bits of two launches, for any number of rows; and the time of both ways.
void check_pair(CudaContext& context, const Shape& shape) {
  const Matrix first(context, shape, 5, 8), second(context, shape, 6, 8);
  for (const int rows : {9, 16, 32, 64, 100, 128, 129, 300, 1024, kMost}) {
    Scratch scratch(context);
    Rows x(context, scratch, rows, shape.k, 9);
    DeviceArray<uint16_t> y(size_t(rows) * shape.n), z(size_t(rows) * shape.n);
    const auto together = [&](cudaStream_t s, int i) {
      Fp8Problem p = first.problem(x.fp8, y.get(), i);
      const Fp8Problem q = second.problem(x.fp8, z.get(), i);
      p.second_weights = q.weights;
      p.second_scales = q.weight_scales;
      p.second_y = q.y;
      fp8_linear(p, context.multiprocessors(), s);
    };
    const auto apart = [&](cudaStream_t s, int i) {
      fp8_linear(first.problem(x.fp8, y.get(), i), context.multiprocessors(), s);
      fp8_linear(second.problem(x.fp8, z.get(), i), context.multiprocessors(), s);
    };
    std::vector<std::vector<uint16_t>> results;
    std::vector<double> ms[2];
    for (int way = 0; way < 2; ++way) {
      y.poison();
      z.poison();
      HADAL_CUDA(cudaDeviceSynchronize());
      way == 0 ? apart(context.stream(), 0) : together(context.stream(), 0);
      context.wait();
      results.push_back(y.host());
      results.push_back(z.host());
    }
    const bool equal = results[0] == results[2] && results[1] == results[3] && results[0] != results[1];
    expect(equal, "pair of %s x %d", shape.name, rows);
    if (rows != 16 && rows != 32 && rows != 128 && rows < 1024) continue;
    for (int round = 0; round < 3; ++round)
      for (int way = 0; way < 2; ++way)
        ms[way].push_back(
            time_graph(
                8, [&](cudaStream_t s, int i) { way == 0 ? apart(s, i) : together(s, i); }, rows > 1000 ? 40 : 5, 7)
                .median_ms);
    for (auto& m : ms) std::sort(m.begin(), m.end());
    std::printf("pair of %s x %d: %.4f ms apart, %.4f together\n", shape.name, rows, ms[0][1], ms[1][1]);
  }
}

// ---- the matrix unit alone: 8-bit products of operands that stay in shared memory
__global__ void __launch_bounds__(256, 1) products_kernel(const uint8_t* codes, int steps, float* out) {
  extern __shared__ __align__(1024) uint8_t bytes[];
  for (int i = threadIdx.x; i < 384 * 128 / 16; i += 256)
    reinterpret_cast<uint4*>(bytes)[i] = reinterpret_cast<const uint4*>(codes)[i];
  fence_async_shared();
  __syncthreads();
  float d[128];
  for (int i = 0; i < 128; ++i) d[i] = 0;
  const uint64_t a = k_major_descriptor(smem_address(bytes + threadIdx.x / 128 * 8192)),
                 b = k_major_descriptor(smem_address(bytes + 16384));
  for (int i = 0; i < steps; ++i) {
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < 4; ++j) Wgmma<256>::ss_e4m3(d, a + 2 * j, b + 2 * j, 1);
    wgmma_commit();
    wgmma_wait<0>();
  }
  float sum = 0;
  for (int i = 0; i < 128; ++i) sum += d[i];
  out[blockIdx.x * 256 + threadIdx.x] = sum;
}

void time_ceiling(int multiprocessors) {
  DeviceArray<uint8_t> codes(384 * 128);
  DeviceArray<float> out(256 * 1024);
  fill_codes<<<64, 256>>>(codes.get(), codes.bytes(), 3);
  HADAL_CUDA(cudaFuncSetAttribute(products_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 * 1024));
  constexpr int kSteps = 4096;
  const Time t = time_graph(1, [&](cudaStream_t s, int) {
    products_kernel<<<multiprocessors, 256, 64 * 1024, s>>>(codes.get(), kSteps, out.get());
  });
  report("ceiling", "e4m3 products alone", t, 2.0 * multiprocessors * kSteps * 128 * 256 * 128, 0, 0);
}

void time_shapes(CudaContext& context, int rows, const Variant* variants, size_t count, double warm_ms) {
  for (const Shape& shape : kShapes) {
    Scratch scratch(context);
    Matrix m(context, shape, 5, std::max(1, int(160e6 / (double(shape.n) * shape.k))));
    Rows x(context, scratch, rows, shape.k * shape.groups, 9);
    DeviceArray<uint16_t> y(size_t(rows) * shape.n);
    context.wait();
    for (size_t v = 0; v < count; ++v) {
      if (shape.n / shape.groups % 64 != 0) continue;
      const Time t = time_graph(
          rows > 1000 ? 4 : 16,
          [&](cudaStream_t s, int i) {
            variants[v].launch(m.problem(x.fp8, y.get(), i), context.multiprocessors(), s);
          },
          warm_ms, 9);
      const std::string name = std::string(shape.name) + " x " + std::to_string(rows) + " [" + variants[v].name + "]";
      report("fp8_linear", name.c_str(), t, shape.flops(rows), shape.bytes(rows),
             1e3 * std::max(shape.flops(rows) / kBurst, shape.bytes(rows) / kMemory));
    }
  }
}

void time_all(CudaContext& context, bool few_rows) {
  time_ceiling(context.multiprocessors());
  if (!few_rows) time_shapes(context, kMost, kWide, std::size(kWide), 150);
  time_shapes(context, 1, kNarrow, std::size(kNarrow), 10);
  time_shapes(context, 8, kNarrow, std::size(kNarrow), 10);
  time_shapes(context, 16, kNarrow, std::size(kNarrow), 10);
  time_shapes(context, 32, kNarrow, std::size(kNarrow), 10);
  time_shapes(context, 64, kNarrow, std::size(kNarrow), 10);
  time_shapes(context, 128, kNarrow, std::size(kNarrow), 10);
  time_ceiling(context.multiprocessors());
}

// ---- 16-bit products of packed weights: width 0 is the cost model's choice; gathered rows come by x_row
void sixteen_bits(CudaContext& context, const Shape& shape, bool once = false) {
  DeviceArray<uint8_t> data(size_t(shape.n) * shape.k), scale(size_t(shape.n) * shape.k / 1024);
  fill_codes<<<4096, 256>>>(data.get(), data.bytes(), 5);
  fill_scales<<<512, 256>>>(scale.get(), scale.bytes(), 5);
  HADAL_CUDA(cudaDeviceSynchronize());
  Weight weight{WeightFormat::fp8_block32, shape.n, shape.k, data.get(), scale.get()};
  std::vector<std::unique_ptr<DeviceArray<uint8_t>>> packed;
  for (int i = 0; i < std::max(1, int(160e6 / (double(shape.n) * shape.k))); ++i) {
    packed.push_back(std::make_unique<DeviceArray<uint8_t>>(packed_bytes(weight)));
    pack_linear(context, weight, packed.back()->get());
  }
  const int columns = shape.k * shape.groups;
  DeviceArray<uint16_t> x(size_t(kMost) * columns), y(size_t(kMost) * shape.n);
  fill_bf16(x.get(), size_t(kMost) * columns, 9, 1.0f);
  std::vector<int32_t> same(kMost);
  for (int i = 0; i < kMost; ++i) same[i] = i;
  DeviceArray<int32_t> x_row(same);
  HADAL_CUDA(cudaDeviceSynchronize());
  struct Way {
    int rows, width;
    bool gathered;
  };
  const auto run = [&](const Way& way, cudaStream_t stream, int copy) {
    weight.packed = packed[copy % packed.size()]->get();
    PackedProblem p{
        x.get(), columns, way.gathered ? x_row.get() : nullptr, way.rows, shape.k, shape.n, shape.n / shape.groups};
    p.y = y.get();
    p.y_stride = shape.n;
    p.width = way.width;
    locate_packed(weight, p);
    packed_linear(p, context.multiprocessors(), stream);
  };
  std::vector<Way> ways{{kMost, 0, false}, {kMost, 0, true}};
  for (const int width : packed_widths()) ways.push_back({kMost, width, false});
  for (const int rows : {1, 8, 16, 32, 64, 128}) ways.push_back({rows, 0, false});
  for (const int rows : {1, 128}) ways.push_back({rows, 0, true});
  std::vector<uint16_t> want;
  for (const Way& way : ways) {
    if (once && way.rows != kMost) continue;
    y.poison();
    run(way, context.stream(), 0);
    context.wait();
    const std::vector<uint16_t> have = y.host(0, size_t(way.rows) * shape.n);
    if (want.empty()) want = have;
    std::string name = std::string(shape.name) + " x " + std::to_string(way.rows);
    if (way.width > 0) name += ", width " + std::to_string(way.width);
    if (way.gathered) name += ", gathered";
    expect(std::equal(have.begin(), have.end(), want.begin()), "%s", name.c_str());
    if (once) continue;
    const bool many = way.rows == kMost;
    const Time t = time_graph(
        many ? 4 : 16, [&](cudaStream_t s, int i) { run(way, s, i); }, many ? 100 : 30, 9);
    report("16 bits", name.c_str(), t, shape.flops(way.rows), shape.bytes(way.rows),
           1e3 * std::max(shape.flops(way.rows) / 790e12, shape.bytes(way.rows) / kMemory));
  }
}

// ---- the operator in front of attention, its passes between the products included
void time_attention_input(CudaContext& context, int rows) {
  constexpr int kD = 5120, kHeads = 64, kHead = 512, kRope = 64, kLora = 1280, kSets = 4;
  Matrix wq_a(context, kShapes[0], 5, kSets), wkv(context, kShapes[1], 6, kSets), wq_b(context, kShapes[2], 7, kSets);
  DeviceArray<uint16_t> x(size_t(rows) * kD), norm(kLora), qr(size_t(rows) * kLora), q(size_t(rows) * kHeads * kHead);
  fill_bf16(x.get(), size_t(rows) * kD, 9, 1.0f);
  fill_bf16(norm.get(), kLora, 10, 1.0f);
  const int bytes = static_cast<int>(row_bytes(RowFormat::fp8_ue8m0_32, kHead));
  DeviceArray<uint8_t> latent(size_t(rows) * bytes);
  std::vector<int32_t> position(rows);
  for (int i = 0; i < rows; ++i) position[i] = 126976 + i;
  std::vector<float> frequency(kRope / 2);
  for (int i = 0; i < kRope / 2; ++i) frequency[i] = std::pow(160000.0f, -2.0f * static_cast<float>(i) / kRope);
  const DeviceArray<int32_t> positions(position);
  const DeviceArray<float> inv_freq(frequency);
  RowSet set;
  set.rows = rows;
  set.position = positions.get();
  HADAL_CUDA(cudaDeviceSynchronize());
  const auto weight = [](const Matrix& m, int i) {
    Weight w = m.weight;
    w.packed = m.packed[i % m.packed.size()]->get();
    return w;
  };
  const auto run = [&](int i) {
    AttentionInputArgs a;
    a.x = {x.get(), DType::bf16, rows, kD};
    a.in = a.out = &set;
    a.heads = kHeads;
    a.head_dim = kHead;
    a.rope = {inv_freq.get(), kRope};
    a.wkv = weight(wkv, i);
    a.kv_norm = norm.get();
    a.wq_a = weight(wq_a, i);
    a.q_norm = norm.get();
    a.wq_b = weight(wq_b, i);
    a.latent = {latent.get(), DType::u8, rows, bytes};
    a.qr = {qr.get(), DType::bf16, rows, kLora};
    a.q = {q.get(), DType::bf16, rows, int64_t{kHeads} * kHead};
    attention_input(context, a);
  };
  run(0);
  context.wait();
  const auto graph = context.record(
      [&] {
        for (int i = 0; i < 4; ++i) run(i);
      },
      nullptr);
  const double flops = kShapes[0].flops(rows) + kShapes[1].flops(rows) + kShapes[2].flops(rows);
  report("attention_input", ("rows=" + std::to_string(rows)).c_str(),
         time_replays(
             context.stream(), 4, [&] { context.replay(*graph); }, 100, 9),
         flops, 0, 1e3 * flops / kBurst);
}

// ---- the Engram layer: rows of a table past L2, gathered as bf16 and as Q4
struct EngramLayer {
  static constexpr int kColumns = 24, kDim = 256, kTableRows = 800000, kCopies = 4, kD = 5120, kSets = 2;
  EngramLayer(CudaContext& context, int rows)
      : context(context),
        rows(rows),
        wkv(context, kShapes[7], 5, kSets),
        codes(size_t(kTableRows) * kDim),
        scales(codes.bytes() / 32),
        index(random_index(rows)),
        norm(kCopies * kD),
        h(size_t(kSets) * rows * kCopies * kD),
        e(size_t(rows) * kColumns * kDim),
        e_fp8(q4_bytes(rows, kColumns * kDim)) {
    fill_codes<<<4096, 256>>>(codes.get(), codes.bytes(), 7);
    fill_scales<<<512, 256>>>(scales.get(), scales.bytes(), 8);
    fill_bf16(norm.get(), kCopies * kD, 10, 1.0f);
    reset();
  }
  static std::vector<uint32_t> random_index(int rows) {
    std::vector<uint32_t> index(size_t(rows) * kColumns);
    for (size_t i = 0; i < index.size(); ++i) index[i] = static_cast<uint32_t>(mix(i) % kTableRows);
    return index;
  }
  void reset() {
    fill_bf16(h.get(), h.bytes() / 2, 11, 1.0f);
    HADAL_CUDA(cudaDeviceSynchronize());
  }
  Tensor input(bool q4) {
    if (q4) return {e_fp8.get(), DType::u8, rows, kColumns * kDim};
    return {e.get(), DType::bf16, rows, kColumns * kDim};
  }
  void gather(bool q4) {
    engram_gather(context, {rows, kColumns, index.get(), {codes.get(), scales.get(), kTableRows, kDim}, input(q4)});
  }
  void apply(bool q4, int set) {
    EngramApplyArgs a;
    a.rows = rows;
    a.copies = kCopies;
    a.d = kD;
    a.e = input(q4);
    a.wkv = wkv.weight;
    a.wkv.packed = wkv.packed[set % kSets]->get();
    a.q_weight = a.k_weight = norm.get();
    a.h = {h.get() + size_t(set % kSets) * rows * kCopies * kD, DType::bf16, rows, kCopies * kD};
    engram_apply(context, a);
  }
  CudaContext& context;
  int rows;
  Matrix wkv;
  DeviceArray<uint8_t> codes, scales;
  DeviceArray<uint32_t> index;
  DeviceArray<uint16_t> norm, h, e;
  DeviceArray<uint8_t> e_fp8;
};

// `want` of the calls before: rows are the same however many there are.
void time_engram(CudaContext& context, int rows, std::vector<uint16_t>& want) {
  EngramLayer layer(context, rows);
  const Shape& s = kShapes[7];
  for (const bool q4 : {false, true}) {
    layer.reset();
    layer.gather(q4);
    layer.apply(q4, 0);
    context.wait();
    const std::vector<uint16_t> have = layer.h.host(0, size_t(rows) * EngramLayer::kCopies * EngramLayer::kD);
    if (want.empty()) want = have;
    const std::string name = "rows=" + std::to_string(rows) + (q4 ? ", Q4" : ", bf16");
    expect(std::equal(have.begin(), have.end(), want.begin()), "engram, %s", name.c_str());
    const auto time = [&](const char* what, double flops, double bytes, const std::function<void(int)>& body) {
      const auto graph = context.record(
          [&] {
            for (int i = 0; i < 4; ++i) body(i);
          },
          nullptr);
      report(what, name.c_str(),
             time_replays(
                 context.stream(), 4, [&] { context.replay(*graph); }, rows > 1000 ? 150 : 20, 9),
             flops, bytes, 1e3 * std::max(flops / kBurst, bytes / kMemory));
    };
    const double row_bytes = double(EngramLayer::kColumns) * EngramLayer::kDim;
    time("engram_gather", 0, rows * row_bytes * (1 + 1.0 / 32 + (q4 ? 1 + 1.0 / 32 : 2)),
         [&](int) { layer.gather(q4); });
    time("engram_apply", s.flops(rows),
         double(s.n) * s.k + rows * (row_bytes + 4.0 * EngramLayer::kCopies * EngramLayer::kD),
         [&](int i) { layer.apply(q4, i); });
  }
}

void run_counters(CudaContext& context) {
  for (const auto& [shape, rows] : {std::pair{0, 128}, {2, 128}, {3, 128}, {4, 128}, {5, kMost}, {6, kMost}}) {
    const Shape& s = kShapes[shape];
    Scratch scratch(context);
    Matrix m(context, s, 5, 1);
    Rows x(context, scratch, rows, s.k * s.groups, 9);
    DeviceArray<uint16_t> y(size_t(rows) * s.n);
    context.wait();
    fp8_linear(m.problem(x.fp8, y.get()), context.multiprocessors(), context.stream());
    context.wait();
  }
  sixteen_bits(context, kShapes[4], true);
  EngramLayer layer(context, kMost);
  layer.gather(true);
  layer.apply(true, 0);
  context.wait();
}

}  // namespace
}  // namespace hadal::bench

int main(int argc, char** argv) {
  using namespace hadal::bench;
  const std::string what = argc > 1 ? argv[1] : "all";
  hadal::CudaContext context(hadal::Numerics::fp8);
  if (what == "check" || what == "all")
    for (const auto& shape : kShapes) check(context, shape);
  if (what == "check" || what == "all" || what == "pair") check_pair(context, kShapes[5]);
  if (what == "bf16")
    for (int i = 0; i < 5; ++i) sixteen_bits(context, kShapes[i]);
  if (what == "input")
    for (const int rows : {4096, 1, 32, 128}) time_attention_input(context, rows);
  if (what == "engram") {
    std::vector<uint16_t> want;
    for (const int rows : {4096, 1, 128}) time_engram(context, rows, want);
  }
  if (what == "counters") run_counters(context);
  if (what == "time" || what == "few" || what == "all") time_all(context, what == "few");
  return exit_code();
}

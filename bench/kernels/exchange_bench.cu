// Exchange between expert-parallel ranks at the release's shapes (4,096 tokens a GPU, 5120 channels, top 6 of 384
// experts), on two GPUs.
//
// Each GPU does what one of n ranks does (n = 2: EP2; n = 4: EP4): it is rank 0, and the other one plays ranks 1 .. n -
// 1 for it, with a place of its own for each. A rank sends and receives as many bytes as with n GPUs behind a switch,
// all of them over the link between the two. First checks sampled tokens against the reference, then times, beside
// plain copies of the same bytes between the GPUs, and beside the routed experts of another batch.
//     exchange_bench [check|time|overlap|all]
#include <array>
#include <memory>
#include <numeric>
#include <string>

#include "base/dtype.h"
#include "bench.cuh"
#include "ops/experts/grouped.h"
#include "ops/experts/pack.h"
#include "parallel/device_exchange.h"

namespace hadal::bench {
namespace {

using namespace hadal::cuda;

constexpr int kD = 5120, kWidth = 2304, kTopK = 6, kExperts = 384, kLocal = 96, kGpus = 2;
constexpr size_t kRow = kD;

int g_devices = kGpus;
// The device of a side: on one GPU both are there, which checks, and times nothing of a link.
int device_of(int side) { return side % g_devices; }
// Of both sides together no more than there are: blocks of one would wait for those of the other.
int most_blocks() { return g_devices == kGpus ? 132 : 64; }
void on(int side) { HADAL_CUDA(cudaSetDevice(device_of(side))); }

std::vector<int32_t> route(int tokens, int experts, uint64_t seed) {
  std::vector<int32_t> ids;
  for (int t = 0; t < tokens; ++t) {
    std::vector<int32_t> row;
    for (uint64_t k = 0; row.size() < kTopK; ++k) {
      const auto e = static_cast<int32_t>(mix(seed * 1315423911u + static_cast<uint64_t>(t) * 64 + k) % experts);
      if (std::find(row.begin(), row.end(), e) == row.end()) row.push_back(e);
    }
    std::sort(row.begin(), row.end());
    ids.insert(ids.end(), row.begin(), row.end());
  }
  return ids;
}

// One GPU's side: its tokens, and the rows of the experts that it has as rank 0 and as the other one's ranks.
struct Side {
  Side(int gpu, const ExchangeShape& shape, const std::array<std::vector<int32_t>, kGpus>& routing)
      : x(shape.stride * kRow),
        ids(routing[gpu]),
        weights(routing[gpu].size()),
        shared(shape.stride * kRow),
        y(shape.stride * kRow),
        pair_row(rows_of_choices(gpu, shape, routing)),
        out((count + 1) * kRow) {
    fill_bf16(x.get(), shape.stride * kRow, 10 + gpu, 1.0f);
    fill_bf16(shared.get(), shape.stride * kRow, 20 + gpu, 1.0f);
    fill_bf16(out.get(), (count + 1) * kRow, 30 + gpu, 1.0f);
    std::vector<float> w(routing[gpu].size());
    for (size_t i = 0; i < w.size(); ++i) w[i] = 0.1f + 0.4f * static_cast<float>(mix(gpu * 99 + i) % 1000) / 1000.0f;
    HADAL_CUDA(cudaMemcpy(weights.get(), w.data(), weights.bytes(), cudaMemcpyHostToDevice));
    HADAL_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (auto& other : beside) HADAL_CUDA(cudaStreamCreateWithPriority(&other, cudaStreamNonBlocking, -5));
    HADAL_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    HADAL_CUDA(cudaDeviceSynchronize());
  }

  // Expert by expert, as a plan lays them out. Places of source r > 0 are the other GPU's tokens, for its rank n - r.
  std::vector<int32_t> rows_of_choices(int gpu, const ExchangeShape& shape,
                                       const std::array<std::vector<int32_t>, kGpus>& routing) {
    std::vector<int32_t> rows(static_cast<size_t>(shape.places()) * kTopK, -1);
    std::vector<std::pair<int32_t, size_t>> local;  // expert, choice
    for (int r = 0; r < shape.ranks; ++r) {
      const auto& from = routing[r == 0 ? gpu : 1 - gpu];
      for (size_t i = 0; i < from.size(); ++i)
        if (shape.rank_of(from[i]) == (shape.ranks - r) % shape.ranks)
          local.emplace_back(from[i], static_cast<size_t>(r) * shape.stride * kTopK + i);
    }
    std::sort(local.begin(), local.end());
    count = local.size();
    for (size_t i = 0; i < count; ++i) rows[local[i].second] = static_cast<int32_t>(i);
    return rows;
  }

  DispatchRows rows() const { return {x.get(), ids.get(), weights.get()}; }

  size_t count = 0;
  DeviceArray<uint16_t> x;
  DeviceArray<int32_t> ids;
  DeviceArray<float> weights;
  DeviceArray<uint16_t> shared, y;
  DeviceArray<int32_t> pair_row;
  DeviceArray<uint16_t> out;
  cudaStream_t stream = nullptr, beside[2] = {};
  cudaEvent_t event = nullptr;
};

// The exchange of `ranks` ranks, played by two GPUs.
struct Play {
  Play(int ranks, int tokens)
      : shape{ranks, tokens, kTopK, kD, kExperts},
        routing{route(tokens, kExperts, 1), route(tokens, kExperts, 2)},
        exchange({.shape = shape, .devices = devices(ranks), .patience = 2, .copy_engines = true}) {
    for (int g = 0; g < kGpus; ++g) {
      on(g);
      sides.push_back(std::make_unique<Side>(g, shape, routing));
      size_t rows = 0;
      for (int t = 0; t < tokens; ++t)
        for (int r = 1; r < ranks; ++r) rows += needs(g, t, r);
      remote_rows = std::max(remote_rows, rows);
    }
  }
  static std::vector<int> devices(int ranks) {
    std::vector<int> d;
    for (int r = 0; r < ranks; ++r) d.push_back(device_of(r));
    return d;
  }
  bool needs(int gpu, int token, int rank) const {
    bool any = false;
    for (int k = 0; k < kTopK; ++k) any |= shape.rank_of(routing[gpu][token * kTopK + k]) == rank;
    return any;
  }
  // Rank 0 on `gpu`. What it sends to rank r arrives as from source n - r.
  ExchangeView view(int gpu, bool staged = false) const {
    ExchangeView v =
        staged ? exchange.staged_view(gpu, shape.stride, shape.stride) : exchange.view(gpu, shape.stride, shape.stride);
    const RankMemory own = v.rank[gpu], other = v.rank[1 - gpu];
    v.me = 0;
    v.rank[0] = own;
    for (int r = 1; r < shape.ranks; ++r) {
      const size_t source = shape.ranks - r, first = source * shape.stride;
      v.rank[r] = {other.codes + first * kD,
                   other.scales + first,
                   other.ids + first * kTopK,
                   other.weights + first * kTopK,
                   other.partial + first * kD,
                   other.combined + source * v.chunk_capacity,
                   reinterpret_cast<ExchangeSignals*>(other.signals->dispatched + source)};
    }
    return v;
  }
  // As Exchange::copy, for these views.
  void copy(const ExchangeView& v, int gpu, ExchangePart part, cudaStream_t s) const {
    const size_t rows = shape.stride * kRow;
    for (int r = 1; r < shape.ranks; ++r)
      if (part == kDispatch)
        HADAL_CUDA(cudaMemcpyAsync(v.rank[r].codes, v.rank[0].codes, rows, cudaMemcpyDefault, s));
      else
        HADAL_CUDA(cudaMemcpyAsync(v.rank[r].partial, v.staging + r * rows, 2 * rows, cudaMemcpyDefault, s));
    announce(v, part, s);
  }
  void dispatch(int gpu, int blocks, bool staged, cudaStream_t s) const {
    const ExchangeView v = view(gpu, staged);
    dispatch_send(v, sides[gpu]->rows(), blocks, s);
    if (staged) copy(v, gpu, kDispatch, s);
    dispatch_receive(v, s);
  }
  void combine(int gpu, int blocks, bool staged, cudaStream_t s) const {
    const ExchangeView v = view(gpu, staged);
    const Side& side = *sides[gpu];
    const CombineRows rows{side.out.get(), side.pair_row.get(), side.shared.get(), side.y.get()};
    if (!staged) return cuda::combine(v, rows, blocks, s);
    combine_send(v, rows, blocks, s);
    copy(v, gpu, kCombine, s);
    combine_receive(v, rows, blocks, s);
  }
  void wait() const {
    for (int g = 0; g < kGpus; ++g) {
      on(g);
      HADAL_CUDA(cudaDeviceSynchronize());
    }
    exchange.check();
  }
  double dispatch_bytes() const { return remote_rows * (kD + 4.0); }
  double combine_bytes() const { return remote_rows * (2.0 * kD); }

  ExchangeShape shape;
  std::array<std::vector<int32_t>, kGpus> routing;
  Exchange exchange;
  std::vector<std::unique_ptr<Side>> sides;
  size_t remote_rows = 0;  // that a GPU sends over the link
};

// ---- check -----------------------------------------------------------------------------------------------------
constexpr int kSampled = 48;

size_t differences(const Play& play, int gpu) {
  const Side &side = *play.sides[gpu], &other = *play.sides[1 - gpu];
  const ExchangeView v = play.view(gpu);
  const int ranks = play.shape.ranks, stride = play.shape.stride;
  ExchangeShape few = play.shape;
  few.stride = kSampled;
  std::vector<reference::RankTokens> tokens(ranks);
  std::vector<std::vector<float>> outputs(ranks, std::vector<float>(static_cast<size_t>(few.places()) * kTopK * kD)),
      shared(ranks);
  std::vector<int> sampled;
  std::vector<uint16_t> have_y;
  const auto append = [](std::vector<float>& to, const std::vector<uint16_t>& bits) {
    for (const uint16_t b : bits) to.push_back(from_bf16(b));
  };
  tokens[0].tokens = kSampled;
  for (int i = 0; i < kSampled; ++i) {
    const int t = i == 0 ? 0 : i == 1 ? stride - 1 : static_cast<int>(mix(i) % stride);
    sampled.push_back(t);
    append(tokens[0].x, side.x.host(t * kRow, kRow));
    append(shared[0], side.shared.host(t * kRow, kRow));
    for (const uint16_t b : side.y.host(t * kRow, kRow)) have_y.push_back(b);
    for (int k = 0; k < kTopK; ++k) {
      const int32_t id = play.routing[gpu][t * kTopK + k];
      tokens[0].ids.push_back(id);
      tokens[0].weights.push_back(side.weights.host(t * kTopK + k, 1)[0]);
      const int rank = play.shape.rank_of(id);
      const Side& at = rank == 0 ? side : other;
      const int row = at.pair_row.host((static_cast<size_t>((ranks - rank) % ranks) * stride + t) * kTopK + k, 1)[0];
      std::vector<float> values;
      append(values, at.out.host(row * kRow, kRow));
      std::copy(values.begin(), values.end(), &outputs[rank][(static_cast<size_t>(i) * kTopK + k) * kD]);
    }
  }
  size_t wrong = 0;
  const auto want_y = reference::combine(few, tokens, outputs, shared)[0];
  for (size_t i = 0; i < want_y.size(); ++i) wrong += have_y[i] != to_bf16(want_y[i]);
  const auto received = reference::dispatch(few, tokens);
  for (int r = 0; r < ranks; ++r)
    for (int i = 0; i < kSampled; ++i) {
      const RankMemory& m = v.rank[r];
      const auto ids = read_device(m.ids + sampled[i] * kTopK, kTopK);
      const auto weights = read_device(m.weights + sampled[i] * kTopK, kTopK);
      for (int k = 0; k < kTopK; ++k)
        wrong += ids[k] != received[r].ids[i * kTopK + k] || weights[k] != received[r].weights[i * kTopK + k];
      if (!received[r].here[i]) continue;
      wrong += !(read_device(m.scales + sampled[i], 1)[0] == received[r].scales[i]);
      const auto codes = read_device(m.codes + sampled[i] * kRow, kRow);
      for (size_t b = 0; b < kRow; ++b) wrong += codes[b] != received[r].codes[i * kRow + b];
    }
  return wrong;
}

void check(const Play& play, bool staged, int blocks) {
  blocks = std::min(blocks, most_blocks());
  for (int g = 0; g < kGpus; ++g) {
    on(g);
    play.sides[g]->y.poison();
    const RankMemory own = play.view(g).rank[0];
    const size_t places = play.shape.places();
    HADAL_CUDA(cudaMemset(own.codes, 0xff, places * kD));
    HADAL_CUDA(cudaMemset(own.scales, 0xff, places * 4));
    HADAL_CUDA(cudaMemset(own.ids, 0xff, places * kTopK * 4));
    HADAL_CUDA(cudaMemset(own.partial, 0xff, places * kD * 2));
    HADAL_CUDA(cudaDeviceSynchronize());
  }
  for (int step = 0; step < 3; ++step)
    for (int g = 0; g < kGpus; ++g) {
      on(g);
      play.dispatch(g, blocks, staged, play.sides[g]->stream);
      play.combine(g, blocks, staged, play.sides[g]->stream);
    }
  play.wait();
  const size_t first = differences(play, 0), second = differences(play, 1);
  expect(first + second == 0,
         "of %d ranks, %s, %d blocks: %zu and %zu values of %d sampled tokens differ from the reference",
         play.shape.ranks, staged ? "copy engines" : "stores", blocks, first, second, kSampled);
}

// ---- time ------------------------------------------------------------------------------------------------------
// body(gpu, stream) `inner` times in a graph of each GPU; medians of the slower GPU, a call.
Time time_both(const Play& play, int inner, const std::function<void(int, cudaStream_t)>& body, double warm_ms = 20,
               int replays = 15) {
  cudaGraphExec_t run[kGpus];
  cudaEvent_t begin[kGpus], end[kGpus];
  for (int g = 0; g < kGpus; ++g) {
    on(g);
    const cudaStream_t s = play.sides[g]->stream;
    cudaGraph_t graph;
    HADAL_CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < inner; ++i) body(g, s);
    HADAL_CUDA(cudaStreamEndCapture(s, &graph));
    HADAL_CUDA(cudaGraphInstantiate(&run[g], graph, 0));
    HADAL_CUDA(cudaGraphDestroy(graph));
    HADAL_CUDA(cudaGraphUpload(run[g], s));
    HADAL_CUDA(cudaEventCreate(&begin[g]));
    HADAL_CUDA(cudaEventCreate(&end[g]));
  }
  const auto once = [&] {
    for (int g = 0; g < kGpus; ++g) {
      on(g);
      HADAL_CUDA(cudaEventRecord(begin[g], play.sides[g]->stream));
      HADAL_CUDA(cudaGraphLaunch(run[g], play.sides[g]->stream));
      HADAL_CUDA(cudaEventRecord(end[g], play.sides[g]->stream));
    }
    float worst = 0;
    for (int g = 0; g < kGpus; ++g) {
      float ms = 0;
      HADAL_CUDA(cudaEventSynchronize(end[g]));
      HADAL_CUDA(cudaEventElapsedTime(&ms, begin[g], end[g]));
      worst = std::max(worst, ms);
    }
    return static_cast<double>(worst);
  };
  for (double spent = 0; spent < warm_ms;) spent += once();
  std::vector<double> times;
  for (int i = 0; i < replays; ++i) times.push_back(once() / inner);
  std::sort(times.begin(), times.end());
  play.wait();
  for (int g = 0; g < kGpus; ++g) {
    HADAL_CUDA(cudaGraphExecDestroy(run[g]));
    HADAL_CUDA(cudaEventDestroy(begin[g]));
    HADAL_CUDA(cudaEventDestroy(end[g]));
  }
  return {times[times.size() / 2], times.front(), times.back()};
}

void line(const char* what, const char* shape, const Time& t, double bytes, double ceiling_ms) {
  std::printf("%s,%s,%.4f,%.4f,%.4f,%.0f GB/s,%.2f\n", what, shape, t.median_ms, t.min_ms, t.max_ms,
              bytes / t.median_ms * 1e-6, ceiling_ms > 0 ? t.median_ms / ceiling_ms : 0);
  std::fflush(stdout);
}

// Plain copies of as many bytes, both ways at once.
Time time_copy(const Play& play, double bytes) {
  return time_both(play, 8, [&](int g, cudaStream_t s) {
    const RankMemory other = play.view(1 - g).rank[0];
    HADAL_CUDA(
        cudaMemcpyAsync(other.partial, play.sides[g]->out.get(), static_cast<size_t>(bytes), cudaMemcpyDefault, s));
  });
}

void time_exchange(const Play& play) {
  char name[96];
  std::snprintf(name, sizeof name, "EP%d %d tokens %.3f remote ranks", play.shape.ranks, play.shape.stride,
                static_cast<double>(play.remote_rows) / play.shape.stride);
  const Time dispatch_copy = time_copy(play, play.dispatch_bytes()),
             combine_copy = time_copy(play, play.combine_bytes());
  line("ceiling copy dispatch bytes", name, dispatch_copy, play.dispatch_bytes(), 0);
  line("ceiling copy combine bytes", name, combine_copy, play.combine_bytes(), 0);
  for (const int blocks : {8, 12, 16, 32, 132}) {
    if (blocks > most_blocks()) continue;
    char what[96];
    std::snprintf(what, sizeof what, "dispatch, %d blocks", blocks);
    line(what, name, time_both(play, 8, [&](int g, cudaStream_t s) { play.dispatch(g, blocks, false, s); }),
         play.dispatch_bytes(), dispatch_copy.median_ms);
  }
  for (const int blocks : {8, 12, 16, 32, 132}) {
    if (blocks > most_blocks()) continue;
    char what[96];
    std::snprintf(what, sizeof what, "combine, %d blocks", blocks);
    line(what, name, time_both(play, 8, [&](int g, cudaStream_t s) { play.combine(g, blocks, false, s); }),
         play.combine_bytes(), combine_copy.median_ms);
  }
  line("dispatch, copy engines", name,
       time_both(play, 8, [&](int g, cudaStream_t s) { play.dispatch(g, most_blocks(), true, s); }),
       play.dispatch_bytes(), dispatch_copy.median_ms);
  line("combine, copy engines", name,
       time_both(play, 8, [&](int g, cudaStream_t s) { play.combine(g, most_blocks(), true, s); }),
       play.combine_bytes(), combine_copy.median_ms);
}

// ---- beside the experts -------------------------------------------------------------------------------------------
__global__ void fill_bytes(uint8_t* out, size_t count, uint64_t seed) {
  for (size_t i = blockIdx.x * size_t{256} + threadIdx.x; i < count; i += size_t{256} * gridDim.x)
    out[i] = static_cast<uint8_t>(mix(seed + i));
}
__global__ void fill_scales(uint8_t* out, size_t count, uint64_t seed) {
  for (size_t i = blockIdx.x * size_t{256} + threadIdx.x; i < count; i += size_t{256} * gridDim.x)
    out[i] = static_cast<uint8_t>(117 + mix(seed + i) % 5);
}

// The routed experts of a rank on FP8 rows (experts_bench has them in full): 96 of them, random codes.
struct Experts {
  explicit Experts(int tokens)
      : rows(tokens),
        codes(kEach * kLocal),
        pointers(pack()),
        x(tokens * kRow),
        ids(route(tokens, kLocal, 7)),
        weights(std::vector<float>(static_cast<size_t>(tokens) * kTopK, 0.25f)),
        slots(slot_numbers()),
        block(row_plan_bytes(tokens, kTopK, kLocal, kLocal, true)),
        plan(row_plan(block.get(), tokens, kTopK, kLocal, kLocal, true)),
        x8(fp8_codes(plan, kD)),
        activated8(fp8_codes(plan, kWidth)),
        x_scale(plan.row_capacity),
        activated_scale(plan.row_capacity),
        activated(static_cast<size_t>(plan.row_capacity) * kWidth),
        out(static_cast<size_t>(plan.row_capacity) * kD) {
    fill_bf16(x.get(), tokens * kRow, 3, 1.0f);
    args.plan = plan;
    args.weights = pointers.get();
    args.x = x8.get();
    args.x_scale = x_scale.get();
    args.activated = activated.get();
    args.activated_codes = activated8.get();
    args.activated_scale = activated_scale.get();
    args.out = out.get();
    args.d = kD;
    args.width = kWidth;
    args.limit = 10;
    args.fp8 = true;
    HADAL_CUDA(cudaDeviceSynchronize());
  }
  std::vector<PackedPointers> pack() {
    const size_t matrix = static_cast<size_t>(kWidth) * kD;
    const DeviceArray<uint8_t> data(3 * matrix / 2), scale(3 * matrix / 32);
    std::vector<PackedPointers> host;
    for (int e = 0; e < kLocal; ++e) {
      fill_bytes<<<1024, 256>>>(data.get(), data.bytes(), mix(e));
      fill_scales<<<256, 256>>>(scale.get(), scale.bytes(), mix(e + 1000));
      const auto weight = [&](int n, int k, int i) {
        return Weight{WeightFormat::mxfp4, n, k, data.get() + i * matrix / 2, scale.get() + i * matrix / 32};
      };
      const FeedForward published{weight(kWidth, kD, 0), weight(kWidth, kD, 1), weight(kD, kWidth, 2)};
      const PackedFeedForward size = packed_feed_forward(published, ExpertLayout::fp8_rows);
      const size_t gate_up = (size.gate_up + 255) / 256 * 256;
      HADAL_CUDA_CHECK(gate_up + size.down <= kEach);
      uint8_t* at = codes.get() + kEach * e;
      host.push_back({at, at + gate_up});
      pack_feed_forward(published, ExpertLayout::fp8_rows, at, at + gate_up, nullptr);
    }
    HADAL_CUDA(cudaDeviceSynchronize());
    return host;
  }
  static std::vector<int32_t> slot_numbers() {
    std::vector<int32_t> v(kLocal);
    std::iota(v.begin(), v.end(), 0);
    return v;
  }
  void run(int multiprocessors, cudaStream_t s) const {
    plan_rows(plan, ids.get(), weights.get(), rows, kTopK, slots.get(), kLocal,
              {x.get(), kD, x8.get(), x_scale.get(), {}}, s);
    grouped_feed_forward(args, multiprocessors, s);
  }

  static constexpr size_t kEach = size_t{20} << 20;
  int rows;
  DeviceArray<uint8_t> codes;
  DeviceArray<PackedPointers> pointers;
  DeviceArray<uint16_t> x;
  DeviceArray<int32_t> ids;
  DeviceArray<float> weights;
  DeviceArray<int32_t> slots;
  DeviceArray<uint8_t> block;
  RowPlan plan;
  DeviceArray<uint8_t> x8, activated8;
  DeviceArray<uint16_t> x_scale, activated_scale;
  DeviceArray<uint16_t> activated, out;
  GroupedArgs args;
};

struct Overlap {
  const char* name;
  int experts, dispatch, combine;  // blocks
  bool staged;
  bool at_once;  // dispatch of one batch and combine of another, on two streams
};

void time_overlap(int ranks, int tokens) {
  const Play play(ranks, tokens);
  std::vector<std::unique_ptr<Experts>> experts;
  for (int g = 0; g < kGpus; ++g) {
    on(g);
    experts.push_back(std::make_unique<Experts>(tokens));
  }
  char name[96];
  std::snprintf(name, sizeof name, "EP%d, batches of %d tokens", ranks, tokens);
  const auto fork = [&](int g, cudaStream_t from, cudaStream_t to) {
    HADAL_CUDA(cudaEventRecord(play.sides[g]->event, from));
    HADAL_CUDA(cudaStreamWaitEvent(to, play.sides[g]->event, 0));
  };
  // Beside what comes next in stream s, until join.
  const auto begin_exchange = [&](const Overlap& o, int g, cudaStream_t s) {
    const Side& side = *play.sides[g];
    fork(g, s, side.beside[0]);
    if (o.at_once) fork(g, s, side.beside[1]);
    play.combine(g, o.combine, o.staged, side.beside[o.at_once]);
    play.dispatch(g, o.dispatch, o.staged, side.beside[0]);
  };
  const auto join = [&](const Overlap& o, int g, cudaStream_t s) {
    fork(g, play.sides[g]->beside[0], s);
    if (o.at_once) fork(g, play.sides[g]->beside[1], s);
  };
  const Time alone = time_both(
      play, 4, [&](int g, cudaStream_t s) { experts[g]->run(132, s); }, 200, 11);
  line("experts alone", name, alone, 0, 0);
  const auto time_alone = [&](const Overlap& o) {
    return time_both(
        play, 4, [&](int g, cudaStream_t s) { begin_exchange(o, g, s), join(o, g, s); }, 10, 9);
  };
  const Time fastest = time_alone({"", 0, 132, 132, false, false});
  line("exchange alone, 132 blocks", name, fastest, 0, 0);
  std::printf(
      "# overlap,case,how,exchange alone so,experts alone so,both,min,max,hidden of this exchange,of the fastest\n");
  const Overlap overlaps[] = {
      {"132 behind 6 and 8 at once", 132, 6, 8, false, true},
      {"132 behind 8 and 12 at once", 132, 8, 12, false, true},
      {"132 behind 16 and 24 at once", 132, 16, 24, false, true},
      {"124 beside 8 one after the other", 124, 8, 8, false, false},
      {"copy engines 124 beside 8", 124, 8, 8, true, false},
  };
  for (const Overlap& o : overlaps) {
    const Time own = time_alone(o);
    const Time fewer = time_both(
        play, 4, [&](int g, cudaStream_t s) { experts[g]->run(o.experts, s); }, 50, 7);
    const Time both = time_both(
        play, 4,
        [&](int g, cudaStream_t s) {
          begin_exchange(o, g, s);
          experts[g]->run(o.experts, s);
          join(o, g, s);
        },
        100, 11);
    const double more = both.median_ms - alone.median_ms;
    std::printf("overlap,%s,%s,%.4f,%.4f,%.4f,%.4f,%.4f,%.0f%%,%.0f%%\n", name, o.name, own.median_ms, fewer.median_ms,
                both.median_ms, both.min_ms, both.max_ms, 100 * (1 - more / own.median_ms),
                100 * (1 - more / fastest.median_ms));
    std::fflush(stdout);
  }
}

int run_all(const std::string& what) {
  int gpus = 0;
  HADAL_CUDA(cudaGetDeviceCount(&gpus));
  g_devices = std::min(gpus, kGpus);
  if (g_devices < kGpus) std::printf("# both sides on one GPU: no link\n");
  std::printf("# what,case,median ms,min,max,rate one way,of the copy's time\n");
  for (const int ranks : {2, 4}) {
    if (what == "overlap") break;
    const Play play(ranks, 4096);
    for (const bool staged : {false, true}) check(play, staged, 16);
    check(play, false, 3);
    check(play, false, 132);
    if (what != "check") time_exchange(play);
  }
  if (g_devices == kGpus && (what == "overlap" || what == "all")) { time_overlap(4, 4096); }
  return exit_code();
}

}  // namespace
}  // namespace hadal::bench

int main(int argc, char** argv) { return hadal::bench::run_all(argc > 1 ? argv[1] : "all"); }

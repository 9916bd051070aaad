// Index scores and selection on one GPU at the release's shapes: 32 heads of 128, top 512, candidates 2048 blocks of 8.
// Checks: scores against float64 from the packed keys, the same bits from the kernels for many and for few rows and for
// candidate lists, selections against a sort on the host, a second run. Then times.
#include <memory>
#include <numeric>
#include <string>

#include "base/row_format.h"
#include "bench.cuh"
#include "ops/indexer/kernels.cuh"

namespace hadal::bench {
namespace {

using namespace hadal::cuda;

constexpr int kHeads = kInt8Heads, kDim = kInt8Dim, kTopK = 512, kBlocks = 2048, kBlock = 8, kKeyBytes = 68,
              kPageTokens = 128;

// Any codes; scales 2^-4 .. 2^-2, and for one key in `rare` scales far apart, which take the careful way.
__global__ void fill_keys(uint8_t* out, size_t rows, uint64_t seed, unsigned rare) {
  for (size_t i = blockIdx.x * size_t{256} + threadIdx.x; i < rows * kKeyBytes; i += size_t{256} * gridDim.x) {
    const uint64_t u = mix(seed * 7919 + i);
    const size_t row = i / kKeyBytes, at = i % kKeyBytes;
    const bool apart = mix(seed + row) % rare == 0;
    out[i] = static_cast<uint8_t>(at < 64 ? u : apart ? 110 + u % 16 : 123 + u % 3);
  }
}

struct Step {
  // `segments` requests with rows / segments rows each, ending at position `context`.
  Step(int row_count, int segment_count, int context, int row_ratio, CandidateUse use, uint64_t seed,
       unsigned rare = 1u << 30)
      : rows(row_count),
        ratio(row_ratio),
        groups(context / ratio),
        longest(use == CandidateUse::filter ? kBlocks * kBlock : groups),
        stride((longest + 255) / 256 * 256),
        chunk(std::min<int64_t>(rows, std::max<int64_t>(8, (int64_t{64} << 20) / stride / 8 * 8))),
        wide(use != CandidateUse::filter && rows >= 8 * segment_count),
        granule(wide && use != CandidateUse::publish ? 16 : 8),
        keys(size_t{1} * segment_count * groups * kKeyBytes),
        q(size_t{1} * rows * kHeads * kDim),
        projected(size_t{1} * rows * kHeads),
        codes(size_t{1} * (rows + kPaddingRows) * kInt8RowBytes),
        relative(size_t{1} * rows * kHeads),
        fold(size_t{1} * rows * kHeads),
        weights(size_t{1} * (rows + kPaddingRows) * kWeightStride),
        inv_freq(32),
        scores(chunk * stride),
        best(chunk * stride / 8),
        block_scores(chunk * (groups / kBlock + 1)),
        selected(size_t{1} * rows * kTopK),
        count(rows),
        candidates(size_t{1} * rows * kBlocks),
        candidate_count(rows),
        trace(rows <= 256 ? size_t{1} * rows * kHeads * kDim : 1) {
    fill_keys<<<2048, 256>>>(keys.get(), size_t{1} * segment_count * groups, seed, rare);
    fill_bf16(q.get(), size_t{1} * rows * kHeads * kDim, seed + 1, 1.0f);
    fill_bf16(projected.get(), size_t{1} * rows * kHeads, seed + 2, 1.0f);
    weights.poison();
    const int each = rows / segment_count, pages_each = context / kPageTokens;
    std::vector<int32_t> position, segment, step_row(rows), begin, slot(segment_count),
        first(segment_count, context - each);
    std::vector<int32_t> pages(size_t{1} * segment_count * pages_each);
    std::iota(pages.begin(), pages.end(), 0);
    for (size_t i = pages.size() - 1; i > 0; --i) std::swap(pages[i], pages[mix(seed + i) % (i + 1)]);
    for (int s = 0; s < segment_count; ++s) {
      begin.push_back(s * each);
      for (int r = 0; r < each; ++r) position.push_back(first[s] + r), segment.push_back(s);
    }
    begin.push_back(rows);
    std::iota(step_row.begin(), step_row.end(), 0);
    std::vector<float> freq(32);
    for (int i = 0; i < 32; ++i) freq[i] = std::pow(160000.0f, -2.0f * static_cast<float>(i) / 64);
    HADAL_CUDA(cudaMemcpy(inv_freq.get(), freq.data(), freq.size() * 4, cudaMemcpyHostToDevice));
    const auto keep = [&](const std::vector<int32_t>& v) {
      arrays.push_back(std::make_unique<DeviceArray<int32_t>>(v));
      return arrays.back()->get();
    };
    IndexLists lists{};
    lists.rows = {rows, keep(position), keep(segment), keep(step_row), keep(begin)};
    lists.segments = {segment_count, keep(first), keep(slot), keep(pages), pages_each};
    lists.keys = {keys.get(), kKeyBytes, kPageTokens / ratio};
    lists.ratio = ratio;
    lists.filter = use == CandidateUse::filter;
    lists.block_size = kBlock;
    lists.max_blocks = kBlocks;
    lists.candidate_blocks = candidates.get();
    lists.candidate_count = candidate_count.get();
    if (lists.filter) {  // one random block of every few, and the newest
      std::vector<int32_t> list;
      const int of = groups / kBlock / kBlocks;
      for (int r = 0; r < rows; ++r)
        for (int b = 0; b < kBlocks; ++b)
          list.push_back(b + 1 == kBlocks ? (position[r] / ratio) / kBlock
                                          : std::min<int>(b * of + static_cast<int>(mix(seed * 31 + r * 5000 + b) % of),
                                                          (position[r] / ratio) / kBlock));
      HADAL_CUDA(cudaMemcpy(candidates.get(), list.data(), list.size() * 4, cudaMemcpyHostToDevice));
      const std::vector<int32_t> counts(rows, kBlocks);
      HADAL_CUDA(cudaMemcpy(candidate_count.get(), counts.data(), counts.size() * 4, cudaMemcpyHostToDevice));
    }
    problem.lists = select.lists = lists;
    problem.heads = kHeads;
    problem.index_dim = kDim;
    problem.int8 = {codes.get(), weights.get(), relative.get(), fold.get()};
    problem.scores = scores.get();
    select.scores = scores.get();
    problem.stride = select.stride = stride;
    problem.best = best.get();
    select.best = best.get();
    problem.granule = select.granule = granule;
    problem.longest = static_cast<int>(longest);
    select.topk = kTopK;
    select.selected = selected.get();
    select.count = count.get();
    if (use == CandidateUse::publish) {
      select.candidate_blocks = candidates.get();
      select.candidate_count = candidate_count.get();
      select.block_scores = block_scores.get();
      select.block_stride = groups / kBlock;
    }
    HADAL_CUDA(cudaDeviceSynchronize());
  }

  void queries(cudaStream_t s) {
    launch_int8_queries(s, q.get(), projected.get(), rows, problem.lists.rows.position, {inv_freq.get(), 64},
                        problem.int8, trace.bytes() > 4 ? trace.get() : nullptr);
  }
  void chunks(cudaStream_t s, bool score, bool pick) {
    for (int64_t first = 0; first < rows; first += chunk) {
      problem.first_row = select.first_row = static_cast<int>(first);
      problem.row_count = select.row_count = static_cast<int>(std::min<int64_t>(chunk, rows - first));
      if (score) (wide ? launch_index_scores_wide : launch_index_scores_narrow)(s, problem);
      if (pick) launch_index_select(s, select);
    }
  }
  void all(cudaStream_t s) {
    queries(s);
    chunks(s, true, true);
  }

  int rows, ratio;
  int64_t groups, longest, stride, chunk;
  bool wide;
  int granule;
  DeviceArray<uint8_t> keys;
  DeviceArray<uint16_t> q, projected;
  DeviceArray<uint8_t> codes;
  DeviceArray<uint32_t> relative;
  DeviceArray<uint8_t> fold;
  DeviceArray<float> weights, inv_freq, scores, best, block_scores;
  DeviceArray<int32_t> selected, count, candidates, candidate_count;
  DeviceArray<float> trace;
  std::vector<std::unique_ptr<DeviceArray<int32_t>>> arrays;
  ScoreProblem problem{};
  SelectProblem select{};
};

float bf16_round(float x) {
  uint32_t u;
  std::memcpy(&u, &x, 4);
  return bf16_value(static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16));
}

// One request, few enough rows for one chunk.
void check(const char* name, int rows, int context, int ratio, CandidateUse use, unsigned rare) {
  Step step(rows, 1, context, ratio, use, 5, rare);
  step.selected.poison();
  step.scores.poison();
  step.all(nullptr);
  HADAL_CUDA(cudaDeviceSynchronize());
  const auto scores = step.scores.host();
  const auto queries = step.trace.host();
  const auto keys = step.keys.host();
  const auto pages = read_device(step.problem.lists.segments.page_table, step.problem.lists.segments.page_stride);
  const auto position = read_device(step.problem.lists.rows.position, rows);
  const auto projected = step.projected.host();
  const auto candidates = step.candidates.host();
  const int page_rows = kPageTokens / ratio;
  const auto physical = [&](int64_t g) { return int64_t{pages[g / page_rows]} * page_rows + g % page_rows; };
  const auto group = [&](int r, int64_t e) {
    return use == CandidateUse::filter ? int64_t{candidates[size_t{1} * r * kBlocks + e / kBlock]} * kBlock + e % kBlock
                                       : e;
  };
  const auto length = [&](int r) {
    return use == CandidateUse::filter ? int64_t{kBlocks} * kBlock : int64_t{(position[r] + 1) / ratio};
  };
  // Products are exact; the sum over the heads in fp32 is not: a rounding for each head, of what is summed, and two of its term.
  double worst = 0, norm = 0;
  int beyond = 0;
  for (int r = 0; r < rows; r += std::max(1, rows / 5))
    for (int64_t e = 0; e < length(r); e += 1 + static_cast<int64_t>(mix(e + r) % 37)) {
      const int64_t g = group(r, e);
      const float have = scores[r * step.stride + e];
      if (g >= (position[r] + 1) / ratio) {
        beyond += have != -INFINITY;
        continue;
      }
      float key[kDim];
      unpack_row(RowFormat::fp4_ue8m0_32, keys.data() + physical(g) * kKeyBytes, kDim, key);
      double want = 0, size = 0;
      for (int h = 0; h < kHeads; ++h) {
        double dot = 0;
        for (int c = 0; c < kDim; ++c)
          dot += static_cast<double>(queries[(size_t{1} * r * kHeads + h) * kDim + c]) * key[c];
        const float w = bf16_round(static_cast<float>(bf16_value(projected[r * kHeads + h]) / std::sqrt(4096.0)));
        want += w * std::max(dot, 0.0);
        size += std::fabs(w) * std::max(dot, 0.0);
      }
      beyond += !(std::fabs(have - want) <= (kHeads + 2) * 0x1p-24 * size);
      worst = std::max(worst, std::fabs(have - want));
      norm = std::max(norm, std::fabs(want));
    }
  // Selections from the device's own scores.
  const auto selected = step.selected.host();
  int wrong = 0;
  for (int r = 0; r < rows; r += std::max(1, rows / 9)) {
    std::vector<int32_t> order;
    for (int64_t e = 0; e < length(r); ++e)
      if (scores[r * step.stride + e] > -INFINITY) order.push_back(static_cast<int32_t>(e));
    const float* row = scores.data() + r * step.stride;
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return row[a] > row[b]; });
    order.resize(std::min<size_t>(order.size(), kTopK));
    std::sort(order.begin(), order.end());
    for (size_t i = 0; i < order.size(); ++i)
      wrong += selected[size_t{1} * r * kTopK + i] != physical(group(r, order[i]));
  }
  // Row by row, on the kernel for few rows.
  size_t differ = 0, again = 0;
  if (use != CandidateUse::filter) {
    Step alone(rows, 1, context, ratio, use, 5, rare);
    alone.wide = false;
    alone.problem.granule = alone.select.granule = 8;
    alone.all(nullptr);
    HADAL_CUDA(cudaDeviceSynchronize());
    const auto other = alone.scores.host();
    for (int r = 0; r < rows; ++r)
      for (int64_t e = 0; e < length(r); ++e)
        differ += std::memcmp(&scores[r * step.stride + e], &other[r * step.stride + e], 4) != 0;
    const auto chosen = alone.selected.host();
    for (size_t i = 0; i < chosen.size(); ++i) differ += chosen[i] != selected[i];
  } else {  // the same scores from the dense kernel
    Step dense(rows, 1, context, ratio, CandidateUse::none, 5, rare);
    dense.all(nullptr);
    HADAL_CUDA(cudaDeviceSynchronize());
    const auto other = dense.scores.host();
    for (int r = 0; r < rows; ++r)
      for (int64_t e = 0; e < length(r); ++e)
        if (group(r, e) < (position[r] + 1) / ratio)
          differ += std::memcmp(&scores[r * step.stride + e], &other[r * dense.stride + group(r, e)], 4) != 0;
  }
  step.all(nullptr);
  HADAL_CUDA(cudaDeviceSynchronize());
  const auto twice = step.scores.host();
  for (int r = 0; r < rows; ++r)
    for (int64_t e = 0; e < length(r); ++e)
      again += std::memcmp(&scores[r * step.stride + e], &twice[r * step.stride + e], 4) != 0;
  expect(beyond == 0, "%s: error %.2e of the largest score, %d scores beyond their bound", name, worst / norm, beyond);
  expect(wrong + differ + again == 0,
         "%s: %d selections wrong, %zu values differ from the other kernel, %zu in a second run", name, wrong, differ,
         again);
}

// Selection and candidate blocks of scores of all kinds, against sorts on the host.
void check_select(int granule, bool publish) {
  constexpr int kLongest = 131072, kPage = 128;
  const int lengths[] = {1, 7, 511, 513, 1100, 4097, 8192, 8193, 16384, 16391, 30000, 65536, 100003, 131072};
  constexpr int kKinds = 9;
  std::vector<int32_t> position, segment, step_row, begin = {0}, pages(kLongest / kPage);
  std::vector<float> scores, best;
  std::iota(pages.rbegin(), pages.rend(), 0);
  int rows = 0;
  for (const int length : lengths)
    for (int kind = 0; kind < kKinds; ++kind, ++rows) {
      position.push_back(length - 1), segment.push_back(0), step_row.push_back(rows);
      for (int e = 0; e < kLongest; ++e) {
        const uint64_t u = mix(rows * 1000003ull + e);
        const float normal = gaussian(rows + 7, e);
        const uint16_t bits = static_cast<uint16_t>(u >> 20);
        const float kinds[kKinds] = {normal,
                                     bf16_value(static_cast<uint16_t>(__builtin_bit_cast(uint32_t, normal) >> 16)),
                                     static_cast<float>(u % 5),
                                     0.25f,
                                     std::exp(6 * normal),
                                     (u % 3000 == 0   ? 1e38f
                                      : u % 3001 == 0 ? -1e38f
                                                      : normal),
                                     (u % 3000 == 0 ? INFINITY : normal),
                                     (e / 64 % 50 == 0 ? 100 + normal : 1000.0f + 1e-4f * static_cast<float>(e % 7)),
                                     (bits & 0x7f80) == 0x7f80 ? 0.0f : bf16_value(bits)};
        const float v = kinds[kind] + 0.0f;
        scores.push_back(e >= length ? NAN : v);
      }
      for (int b = 0; b < kLongest / granule; ++b) {
        float top = -INFINITY;
        for (int e = b * granule; e < (b + 1) * granule && e < length; ++e)
          top = std::fmax(top, scores[size_t{1} * rows * kLongest + e]);
        best.push_back(b * granule < length ? top : NAN);
      }
    }
  begin.push_back(rows);
  const std::vector<int32_t> zero = {0};
  DeviceArray<int32_t> d_position(position), d_segment(segment), d_step(step_row), d_begin(begin), d_pages(pages),
      d_zero(zero), selected(size_t{1} * rows * kTopK), count(rows), candidates(size_t{1} * rows * kBlocks),
      candidate_count(rows);
  DeviceArray<float> d_scores(scores), d_best(best);
  selected.poison(), count.poison(), candidates.poison(), candidate_count.poison();
  SelectProblem p{};
  p.lists.rows = {rows, d_position.get(), d_segment.get(), d_step.get(), d_begin.get()};
  p.lists.segments = {1, d_zero.get(), d_zero.get(), d_pages.get(), static_cast<int>(pages.size())};
  p.lists.keys = {nullptr, kKeyBytes, kPage};
  p.lists.ratio = 1, p.lists.block_size = kBlock, p.lists.max_blocks = kBlocks;
  p.row_count = rows, p.scores = d_scores.get(), p.stride = kLongest, p.best = d_best.get(), p.granule = granule;
  p.topk = kTopK, p.selected = selected.get(), p.count = count.get();
  if (publish) p.candidate_blocks = candidates.get(), p.candidate_count = candidate_count.get();
  launch_index_select(nullptr, p);
  HADAL_CUDA(cudaDeviceSynchronize());
  const auto have = selected.host(), counts = count.host(), blocks = candidates.host(),
             block_counts = candidate_count.host();
  const auto largest = [](const float* v, int n, int k) {
    std::vector<int32_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return v[a] > v[b]; });
    order.resize(std::min(n, k));
    std::sort(order.begin(), order.end());
    return order;
  };
  int wrong = 0, wrong_blocks = 0;
  for (int r = 0; r < rows; ++r) {
    const int length = position[r] + 1, n = (length + granule - 1) / granule;
    const auto want = largest(scores.data() + size_t{1} * r * kLongest, length, kTopK);
    bool bad = counts[r] != static_cast<int>(want.size());
    for (int i = 0; i < kTopK; ++i) {
      const int e = i < static_cast<int>(want.size()) ? want[i] : -1;
      bad |= have[size_t{1} * r * kTopK + i] != (e < 0 ? -1 : pages[e / kPage] * kPage + e % kPage);
    }
    wrong += bad;
    if (!publish) continue;
    bad = block_counts[r] != (n <= kBlocks ? -1 : kBlocks);
    if (n > kBlocks) {
      std::vector<float> top(best.begin() + size_t{1} * r * (kLongest / granule),
                             best.begin() + size_t{1} * r * (kLongest / granule) + n);
      top.back() = INFINITY;
      std::vector<float> before(top);
      for (float& v : before) v = std::min(v, 3.4e38f);  // the newest before infinite scores
      before.back() = INFINITY;
      const auto blocks_want = largest(before.data(), n, kBlocks);
      for (int i = 0; i < kBlocks; ++i) bad |= blocks[size_t{1} * r * kBlocks + i] != blocks_want[i];
    }
    wrong_blocks += bad;
  }
  expect(wrong + wrong_blocks == 0, "selection, granules of %d%s: %d of %d rows wrong, %d of their candidate blocks",
         granule, publish ? ", blocks" : "", wrong, rows, wrong_blocks);
}

void time_case(const char* name, int rows, int segments, int context, int ratio, CandidateUse use) {
  Step step(rows, segments, context, ratio, use, 11);
  const double keys = use == CandidateUse::filter ? kBlocks * kBlock : step.groups;
  const double flops = 2.0 * rows * keys * kHeads * kDim;
  const double bytes = segments * keys * kKeyBytes;
  const int inner = rows >= 1024 ? 1 : 4;
  step.queries(nullptr);
  const double floor = std::max(flops / 1450e9, bytes / 4.3e9);
  report("index_scores", name, time_graph(inner, [&](cudaStream_t s, int) { step.chunks(s, true, false); }), flops,
         bytes, floor);
  report("index_select", name, time_graph(inner, [&](cudaStream_t s, int) { step.chunks(s, false, true); }), 0,
         4.0 * rows * keys, 0);
  report("index_all", name, time_graph(inner, [&](cudaStream_t s, int) { step.all(s); }), flops, bytes, floor);
}

// Arguments: a part of the names of the cases to time, or "check scores" or "check selection"; without it everything.
int run(const std::string& only) {
  if (only.empty() || only == "check selection") {
    check_select(16, false);
    check_select(8, true);
  }
  if (only.empty() || only == "check scores") {
    check("dense", 103, 131072, 2, CandidateUse::none, 1u << 30);
    check("dense, careful keys", 64, 20000 / 128 * 128, 1, CandidateUse::none, 97);
    check("publish", 33, 65536, 1, CandidateUse::publish, 5000);
    check("filter", 40, 65536, 1, CandidateUse::filter, 5000);
    check("short", 21, 512, 2, CandidateUse::none, 50);
  }
  const auto time = [&](const std::string& name, int rows, int segments, int context, int ratio, CandidateUse use) {
    if (name.find(only) != std::string::npos) time_case(name.c_str(), rows, segments, context, ratio, use);
  };
  time("T=4096 n=65536", 4096, 1, 131072, 2, CandidateUse::none);
  time("T=4096 n=131072 publish", 4096, 1, 131072, 1, CandidateUse::publish);
  time("T=4096 16384 candidates", 4096, 1, 131072, 1, CandidateUse::filter);
  for (const int rows : {1, 32, 128}) {
    const std::string name = "decode B=" + std::to_string(rows);
    time(name + " n=65536", rows, rows, 131072, 2, CandidateUse::none);
    time(name + " n=131072 publish", rows, rows, 131072, 1, CandidateUse::publish);
    time(name + " 16384 candidates", rows, rows, 131072, 1, CandidateUse::filter);
  }
  return exit_code();
}

}  // namespace
}  // namespace hadal::bench

int main(int argc, char** argv) { return hadal::bench::run(argc > 1 ? argv[1] : ""); }

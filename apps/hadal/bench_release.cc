// hadal bench kernel on a GPU: every operator at the sizes of a configuration, as a step of the model calls it.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "bench.h"
#include "bench_steps.h"
#include "ops/testing/runner.h"

namespace hadal {
namespace {

using deepseek_v41::Cost;

// Up to so many rows are as many requests that decode; more are a chunk of one prompt.
constexpr int kMostDecoding = 128;

// ---- other kernels for the same job -------------------------------------------------------------------------------------
// Lines of a CSV file with the columns kernel, shape, peer and median_ms, among others. Fields may be quoted.
class Peers {
 public:
  struct Best {
    std::string names;
    double ms = 0;
  };

  explicit Peers(const std::string& path) {
    if (path.empty()) return;
    std::ifstream file(path);
    if (!file) fail(ErrorKind::io, "cannot open {}", path);
    std::string line;
    std::vector<std::string> header;
    for (int number = 1; std::getline(file, line); ++number) {
      const std::vector<std::string> fields = split(line);
      if (header.empty()) {
        header = fields;
        continue;
      }
      const auto field = [&](const char* name) {
        const auto at = static_cast<size_t>(std::find(header.begin(), header.end(), name) - header.begin());
        if (at >= fields.size()) fail(ErrorKind::invalid_data, "{}:{}: no column {}", path, number, name);
        return fields[at];
      };
      double ms = 0;
      std::istringstream text(field("median_ms"));
      if (!(text >> ms) || !(ms > 0)) continue;
      Best& best = times_[field("kernel") + ": " + field("shape")];
      if (best.ms == 0 || ms < best.ms) best = {field("peer"), ms};
    }
    if (times_.empty()) fail(ErrorKind::invalid_data, "{} has no line with a median_ms", path);
  }

  // The fastest of each part, one after the other; nothing when a part is missing.
  Best best(const std::vector<std::string>& parts) const {
    Best sum;
    for (const std::string& part : parts) {
      const auto found = times_.lower_bound(part);  // the shape may go on, as in "B=32 (84 experts)"
      if (found == times_.end() || !found->first.starts_with(part)) return {};
      sum.names += fmt::format("{}{} ({})", sum.names.empty() ? "" : " + ", found->second.names, found->first);
      sum.ms += found->second.ms;
    }
    return sum;
  }

 private:
  static std::vector<std::string> split(const std::string& line) {
    std::vector<std::string> fields(1);
    bool quoted = false;
    for (const char c : line) {
      if (c == '"')
        quoted = !quoted;
      else if (c == ',' && !quoted)
        fields.emplace_back();
      else if (c != '\r')
        fields.back() += c;
    }
    return fields;
  }

  std::map<std::string, Best> times_;
};

// ---- what a call is -------------------------------------------------------------------------------------------------------
struct Call {
  std::string name, shape;
  std::vector<std::string> peers;  // "kernel: beginning of the shape" of each part
};

const char* operator_name(OperatorId op) {
#define HADAL_NAME(op, Args) #op,
  static constexpr const char* names[] = {HADAL_OPERATORS(HADAL_NAME)};
#undef HADAL_NAME
  return names[static_cast<size_t>(op)];
}

void call_again(const Operators& operators, OperatorId op, Context& context, const void* args) {
  switch (op) {
#define HADAL_CALL(op, Args) \
  case OperatorId::op: return operators.op(context, *static_cast<const Args*>(args));
    HADAL_OPERATORS(HADAL_CALL)
#undef HADAL_CALL
  }
}

Call describe(OperatorId op, const void* args, int rows, int64_t context) {
  Call call{operator_name(op), fmt::format("{} rows", rows), {}};
  const auto peer = [&]<typename... T>(fmt::format_string<T...> text, T&&... values) {
    call.peers.push_back(fmt::format(text, std::forward<T>(values)...));
  };
  const bool prefill = rows > kMostDecoding;
  switch (op) {
    case OperatorId::hyper_connection: {
      const auto& a = *static_cast<const HyperConnectionArgs*>(args);
      call.shape += fmt::format(", {} x {}", a.copies, a.d);
      if (!a.y) call.shape += ", without y";
      if (a.mix == nullptr) call.shape += a.norm == nullptr ? ", y alone" : ", no mixing";
      if (a.x_rounded) call.shape += a.x ? ", x + Q4" : ", Q4";
      if (a.mix != nullptr && a.y) peer("mhc: B={} {}x{}", rows, a.copies, a.d);
      break;
    }
    case OperatorId::compressor:
      call.shape += fmt::format(", ratio {}", static_cast<const CompressorArgs*>(args)->ratio);
      break;
    case OperatorId::attention_input: {
      const auto& a = *static_cast<const AttentionInputArgs*>(args);
      for (const auto& [name, w] : {std::pair{"wq_a", &a.wq_a}, {"wq_b", &a.wq_b}, {"wkv", &a.wkv}})
        peer("proj: {} {}->{} M={}", name, w->k, w->n, rows);
      break;
    }
    case OperatorId::attention_output: {
      const auto& a = *static_cast<const AttentionOutputArgs*>(args);
      peer("proj: wo_a {}x({}->{}) M={}", a.groups, a.wo_a.k, a.wo_a.n / a.groups, rows);
      peer("proj: wo_b {}->{} M={}", a.wo_b.k, a.wo_b.n, rows);
      break;
    }
    case OperatorId::indexer: {
      const auto& a = *static_cast<const IndexerArgs*>(args);
      const int64_t entries = context / a.ratio;
      if (a.use == CandidateUse::filter) {
        call.shape += fmt::format(", {} candidates", a.candidate_topk_blocks * a.candidate_block_size);
        break;
      }
      call.shape += fmt::format(", {} entries{}", entries, a.use == CandidateUse::publish ? ", publish" : "");
      prefill ? peer("indexer: T={} n={}", rows, entries) : peer("indexer_decode: B={} n={}", rows, entries);
      peer("topk512: rows={} n={}", rows, entries);
      break;
    }
    case OperatorId::sparse_attention: {
      const auto& a = *static_cast<const SparseAttentionArgs*>(args);
      const int64_t keys = a.ring.window + (a.selection != nullptr ? a.selection->rows.cols : 0);
      call.shape += fmt::format(", {} keys", keys);
      if (a.selection == nullptr) {
        peer("sparse_attn: T={} n=- keys={}", rows, keys);
        break;
      }
      const int64_t page_rows = a.entries->page_rows, entries = context / (128 / page_rows);
      call.shape += fmt::format(" of {}", entries);
      prefill ? peer("sparse_attn: T={} n={} keys={}", rows, entries, keys)
              : peer("attn_decode: B={} keys={}", rows, keys);
      break;
    }
    case OperatorId::router: {
      const auto& a = *static_cast<const RouterArgs*>(args);
      peer("gate: B={} {}->{} top{}", rows, a.gate.k, a.gate.n, a.topk);
      break;
    }
    case OperatorId::experts: {
      const auto& a = *static_cast<const ExpertsArgs*>(args);
      int local = 0;
      for (int e = 0; e < a.experts->count(); ++e) local += a.experts->is_local(e) ? 1 : 0;
      call.shape += fmt::format(", top-{} of {}, shared expert", a.topk, local);
      prefill ? peer("moe: R={} {} each", rows * a.topk, rows * a.topk / local) : peer("moe_decode: B={} (", rows);
      for (const char* part : {"w13", "w2"}) {
        const auto& w = part[1] == '1' ? a.shared.w1 : a.shared.w2;
        peer("proj: shared {} {}->{} M={}", part, w.k, part[1] == '1' ? 2 * w.n : w.n, rows);
      }
      break;
    }
    case OperatorId::head: {
      const auto& a = *static_cast<const HeadArgs*>(args);
      peer("head: B={} {}->{}", rows, a.head.k, a.head.n);
      break;
    }
    case OperatorId::engram_gather: {
      const auto& a = *static_cast<const EngramGatherArgs*>(args);
      call.shape += fmt::format(", {} x {}", a.columns, a.table.dim);
      peer("engram_gather: B={} {} rows x {}", rows, a.columns, a.table.dim);
      break;
    }
    default: break;
  }
  return call;
}

// ---- the measurement ------------------------------------------------------------------------------------------------------
struct Result {
  Call call;
  Cost cost;
  double cold = 0, warm = 0, floor = 0;  // seconds
};

class Measure {
 public:
  Measure(const ReleaseBench& o, StepBench& bench, std::function<void(const Result&)> measured)
      : o_(o),
        bench_(bench),
        measured_(std::move(measured)),
        operators_(operators_of(parse_backend(o.device))),
        memory_(static_cast<std::byte*>(bench.context().allocate_cache(2 * kFlush))) {}

  void step(std::span<const SegmentRequest> requests, const std::function<void()>& propose, int rows) {
    bench_.visit_step(requests, propose, [&](OperatorId op, const void* args, const Cost* cost) {
      if (cost == nullptr || (!o_.op.empty() && o_.op != operator_name(op))) return;
      Result r{describe(op, args, rows, o_.context), *cost};
      if (!seen_.insert(r.call.name + r.call.shape).second) return;
      time(op, args, r);
      r.floor = bench_.roof().seconds(*cost);
      measured_(results.emplace_back(std::move(r)));
    });
  }

  std::vector<Result> results;

 private:
  static constexpr size_t kFlush = size_t{192} << 20;

  // Between marks, after other memory went through the caches and again right after it.
  void time(OperatorId op, const void* args, Result& r) {
    Context& context = bench_.context();
    if (!marks_) marks_ = context.time_marks();
    std::vector<double> cold, warm;
    call_again(operators_, op, context, args);
    for (int i = 0; i < o_.repeats; ++i) {
      context.copy_on_device(memory_ + kFlush, memory_, kFlush);
      for (int j = 0; j < 2; ++j) {
        marks_->mark();
        call_again(operators_, op, context, args);
      }
      marks_->mark();
      const std::vector<double> seconds = marks_->seconds();
      cold.push_back(seconds[0]);
      warm.push_back(seconds[1]);
    }
    r.cold = median_of(cold);
    r.warm = median_of(warm);
  }

  const ReleaseBench& o_;
  StepBench& bench_;
  std::function<void(const Result&)> measured_;
  const Operators& operators_;
  std::byte* memory_;
  std::unique_ptr<TimeMarks> marks_;
  std::set<std::string> seen_;
};

// Largest error over its tolerance of an operator's cases against the reference, on the device and in the numerics of the
// measurement.
json::value error_of(const ReleaseBench& o, const std::string& op) {
  if (!o.check) return nullptr;
  const Backend backend = parse_backend(o.device);
  testing::Device device;
  device.operators = &operators_of(backend);
  device.context = [&](Numerics numerics) { return make_context(backend, numerics, 0); };
  device.modes = {parse_numerics(o.numerics)};
  double worst = 0;
  for (const testing::OperatorCases& entry : testing::operator_cases())
    if (op == entry.op)
      for (const testing::CaseResult& run : run_cases(entry.make(1), device)) {
        if (!run.passed) fail(ErrorKind::internal, "{}, {}: {}", op, run.name, run.message);
        worst = std::max(worst, run.worst);
      }
  return worst;
}

void print_header(const ReleaseBench& o, const StepBench& bench) {
  fmt::print(
      "{}\nmedians of {}, launches included; cold: after other memory went through the caches\n\n"
      "{:<18} {:<42} {:>10} {:>10} {:>10} {:>6} {:>10} {:>10} {:>10}  {}\n",
      bench.describe(), o.repeats, "operator", "shape", "cold us", "warm us", "floor us", "share", "GB", "GFLOP",
      "peer us", "peer");
}

void print_row(const Result& r, const Peers& peers) {
  const Peers::Best peer = peers.best(r.call.peers);
  fmt::print("{:<18} {:<42} {:>10.1f} {:>10.1f} {:>10.2f} {:>5.0f}% {:>10.4g} {:>10.4g} {:>10} {}\n", r.call.name,
             r.call.shape, 1e6 * r.cold, 1e6 * r.warm, 1e6 * r.floor, 100 * r.floor / r.cold, 1e-9 * r.cost.bytes,
             1e-9 * (r.cost.flops + r.cost.flops8), peer.ms > 0 ? fmt::format("{:.1f}", 1e3 * peer.ms) : "-",
             peer.names);
  std::fflush(stdout);  // also into a file or a pipe: what comes next may take long
}

void print_json(const ReleaseBench& o, const StepBench& bench, const std::vector<Result>& results, const Peers& peers,
                const std::map<std::string, json::value>& errors) {
  json::array list;
  for (const Result& r : results) {
    const Peers::Best peer = peers.best(r.call.peers);
    list.push_back(json::object{{"name", r.call.name},
                                {"shape", r.call.shape},
                                {"ms", 1e3 * r.cold},
                                {"burst_ms", 1e3 * r.warm},
                                {"floor_ms", 1e3 * r.floor},
                                {"bytes", r.cost.bytes},
                                {"flops", r.cost.flops + r.cost.flops8},
                                {"peer", peer.ms > 0 ? json::value(peer.names) : json::value(nullptr)},
                                {"peer_ms", peer.ms > 0 ? json::value(peer.ms) : json::value(nullptr)},
                                {"error", errors.at(r.call.name)}});
  }
  std::puts(json::serialize(json::object{{"card", bench.device_name()},
                                         {"mode", "kernels"},
                                         {"config", o.config},
                                         {"rank", o.rank},
                                         {"context", o.context},
                                         {"numerics", o.numerics},
                                         {"kernels", list}})
                .c_str());
}

}  // namespace

void run_release_bench(const ReleaseBench& o) {
  const Peers peers(o.peers);
  const std::vector<int> all = o.rows.empty() ? std::vector<int>{1, 32, 128, 4096} : o.rows;
  const int most = *std::max_element(all.begin(), all.end());
  int requests = 1;
  for (const int rows : all)
    if (rows <= kMostDecoding) requests = std::max(requests, rows);
  if (most > kMostDecoding && o.context < most)
    fail(ErrorKind::invalid_argument, "{} rows of one prompt do not fit a context of {}", most, o.context);
  StepBenchOptions steps;
  steps.config = o.config;
  steps.rank = o.rank;
  steps.device = o.device;
  steps.numerics = o.numerics;
  steps.layers = o.layers;
  steps.engram_rows = 1600000;  // rows of random tables are alike
  StepBench bench(steps);
  bench.expect_context(o.context);
  const int page_tokens = bench.model().cache_layout().page_tokens;
  const auto pages = static_cast<int>(requests * ((o.context + page_tokens - 1) / page_tokens));
  const auto pools = bench.make_pools(requests, pages);
  bench.expect_rows(most);
  bool any = false;
  Measure measure(o, bench, [&](const Result& r) {
    if (o.json) return;
    if (!std::exchange(any, true)) print_header(o, bench);
    print_row(r, peers);
  });
  for (const int rows : all) {
    const int count = rows <= kMostDecoding ? rows : 1, each = rows / count;
    const std::vector<int32_t> before = bench.random_tokens(o.context - each);
    std::deque<RequestState> states;
    std::vector<SegmentRequest> segments;
    for (int i = 0; i < count; ++i) {
      RequestState& state = states.emplace_back(*pools);
      if (!before.empty()) {
        state.propose(before);
        state.commit(o.context - each);
      }
      segments.push_back({&state, rows <= kMostDecoding ? LogitsWanted::all : LogitsWanted::last});
    }
    measure.step(
        segments,
        [&] {
          for (RequestState& state : states) state.propose(bench.random_tokens(each));
        },
        rows);
  }
  if (measure.results.empty()) fail(ErrorKind::invalid_argument, "no operator of a step is called '{}'", o.op);
  // After all that is timed: each makes a context of its own.
  std::map<std::string, json::value> errors;
  for (const Result& r : measure.results)
    if (!errors.contains(r.call.name)) errors[r.call.name] = error_of(o, r.call.name);
  if (o.json) print_json(o, bench, measure.results, peers, errors);
}

}  // namespace hadal

#include "serve/metrics.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>

namespace hadal::serve {

void Histogram::observe(double value) {
  const auto bucket = static_cast<size_t>(std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin());
  counts_[bucket].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

namespace {

// Lines of one histogram, without HELP and TYPE.
template <typename Bounds, typename Counts>
void write_histogram(const std::string& name, const std::string& labels, const Bounds& bounds, const Counts& counts,
                     double sum, std::string& out) {
  int64_t below = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    below += counts[i];
    const std::string bound = i < bounds.size() ? fmt::format("{}", bounds[i]) : "+Inf";
    out += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", name, labels, bound, below);
  }
  out += fmt::format("{}_sum{{{}}} {}\n{}_count{{{}}} {}\n", name, labels, sum, name, labels, below);
}

}  // namespace

void Histogram::write(const std::string& name, const std::string& labels, std::string& out) const {
  write_histogram(name, labels, bounds_, counts_, sum_.load(std::memory_order_relaxed), out);
}

namespace {

class Text {
 public:
  explicit Text(const std::string& model) : labels_("model_name=\"") {
    for (const char c : model) {
      if (c == '\\' || c == '"') labels_ += '\\';
      labels_ += c;
    }
    labels_ += '"';
  }

  void head(const char* name, const char* type, const char* help) {
    out_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  template <typename T>
  void value(const char* name, T v, const std::string& more = {}) {
    out_ += fmt::format("{}{{{}{}{}}} {}\n", name, labels_, more.empty() ? "" : ",", more, v);
  }
  template <typename T>
  void gauge(const char* name, const char* help, T v) {
    head(name, "gauge", help);
    value(name, v);
  }
  template <typename T>
  void counter(const char* name, const char* help, T v) {
    head(name, "counter", help);
    value(name, v);
  }
  void histogram(const char* name, const char* help, const Histogram& h) {
    head(name, "histogram", help);
    h.write(name, labels_, out_);
  }
  template <const auto& Bounds>
  void histogram(const char* name, const Counted<Bounds>& h, const std::string& more = {}) {
    const std::string labels = more.empty() ? labels_ : labels_ + "," + more;
    write_histogram(name, labels, h.bounds, h.counts, h.sum, out_);
  }
  void by_position(const char* name, const char* help, const std::vector<int64_t>& counts) {
    head(name, "counter", help);
    for (size_t i = 0; i < counts.size(); ++i) value(name, counts[i], fmt::format("position=\"{}\"", i));
  }
  std::string take() { return std::move(out_); }

 private:
  std::string labels_, out_;
};

struct Process {
  double cpu_seconds = 0;
  int64_t resident_bytes = 0, descriptors = 0;
};

Process this_process() {
  Process p;
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  p.cpu_seconds = static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  int64_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  p.resident_bytes = resident * ::sysconf(_SC_PAGESIZE);
  std::error_code ignored;
  const std::filesystem::directory_iterator open("/proc/self/fd", ignored);
  p.descriptors = std::distance(begin(open), end(open));
  return p;
}

int64_t sum(const std::vector<int64_t>& v) {
  int64_t total = 0;
  for (const int64_t x : v) total += x;
  return total;
}

}  // namespace

std::string Metrics::text(const View& v) const {
  const EngineStats& e = v.engine;
  Text t(v.model);
  // Names that dashboards for vLLM read.
  t.gauge("vllm:num_requests_running", "Requests in the running batch.", e.running);
  t.gauge("vllm:num_requests_waiting", "Requests that wait to run.", e.waiting);
  t.gauge("vllm:kv_cache_usage_perc", "Share of the cache in use, 0 to 1.",
          e.cache_tokens > 0
              ? static_cast<double>(e.cache_tokens - e.free_cache_tokens) / static_cast<double>(e.cache_tokens)
              : 0.0);
  t.counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", prefix_queries.load());
  t.counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", cached_tokens.load());
  t.counter("vllm:num_preemptions_total", "Requests that gave up their memory for others.", e.preemptions);
  t.counter("vllm:prompt_tokens_total", "Prompt tokens computed.", e.prompt_tokens);
  t.counter("vllm:generation_tokens_total", "Tokens generated.", e.generated_tokens);
  t.histogram("vllm:time_to_first_token_seconds", "From the request to its first token.", first_token);
  t.histogram("vllm:inter_token_latency_seconds", "Between two tokens, or groups of accepted drafts, of one answer.",
              inter_token);
  t.histogram("vllm:request_time_per_output_token_seconds", "Mean time per token after the first of one answer.",
              per_output_token);
  t.histogram("vllm:e2e_request_latency_seconds", "From the request to the end of its answer.", end_to_end);
  t.histogram("vllm:request_queue_time_seconds", "Waiting to run.", queue);
  t.histogram("vllm:request_prefill_time_seconds", "From the start of running to the first token.", prefill);
  t.histogram("vllm:request_decode_time_seconds", "From the first token to the last.", decode);
  t.histogram("vllm:request_inference_time_seconds", "Running.", inference);
  t.histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", prompt_tokens);
  t.histogram("vllm:request_generation_tokens", "Tokens of an answer.", generation_tokens);
  t.head("vllm:request_success_total", "counter", "Answers, by how they ended.");
  static constexpr const char* kNames[] = {"stop", "length", "tool_calls", "abort", "error"};
  for (size_t i = 0; i < kOutcomes; ++i)
    t.value("vllm:request_success_total", finished[i].load(), fmt::format("finished_reason=\"{}\"", kNames[i]));
  t.counter("vllm:spec_decode_num_drafts_total", "Steps of one request that verified drafts.",
            e.drafted.empty() ? 0 : e.drafted[0]);
  t.counter("vllm:spec_decode_num_draft_tokens_total", "Tokens drafted.", sum(e.drafted));
  t.counter("vllm:spec_decode_num_accepted_tokens_total", "Drafted tokens that were right.", sum(e.accepted));
  t.by_position("vllm:spec_decode_num_accepted_tokens_per_pos_total",
                "Drafted tokens that were right, by position in the draft.", e.accepted);
  t.head("vllm:iteration_tokens_total", "histogram", "Tokens of one step.");
  t.histogram("vllm:iteration_tokens_total", e.tokens_of_steps);
  t.head("vllm:cache_config_info", "gauge", "The cache's size, in its labels.");
  t.value("vllm:cache_config_info", 1,
          fmt::format("cache_tokens=\"{}\",max_model_len=\"{}\"", e.cache_tokens, v.context_length));

  t.head("hadal_build_info", "gauge", "Version, and the backend with its instruction set, in its labels.");
  t.value("hadal_build_info", 1, fmt::format("version=\"{}\",backend=\"{}\"", HADAL_VERSION, v.backend));
  t.by_position("hadal_drafted_tokens_total", "Tokens drafted, by position in the draft.", e.drafted);
  t.counter("hadal_recomputed_prompt_tokens_total", "Tokens of cached prefixes that ran again from a snapshot.",
            recomputed_tokens.load());
  t.counter("hadal_prefix_cache_lookups_total", "Requests that looked for a cached prefix.", e.prefix_queries);
  t.counter("hadal_prefix_cache_found_total", "Requests that continued from a cached prefix.", e.prefix_hits);
  t.gauge("hadal_prefix_cache_snapshots", "Snapshots of prefixes.", e.snapshots);
  t.counter("hadal_prefix_cache_evictions_total", "Snapshots that made room.", e.evictions);
  t.gauge("hadal_prefix_cache_disk_files", "Files of the prefix cache on disk.", e.disk.entries);
  t.gauge("hadal_prefix_cache_disk_bytes", "Bytes of them.", e.disk.bytes);
  t.counter("hadal_prefix_cache_disk_found_total", "Requests that continued from a prefix on disk.", e.disk.hits);
  t.counter("hadal_prefix_cache_disk_tokens_total", "Prompt tokens read from the disk.", e.disk.hit_tokens);
  t.counter("hadal_prefix_cache_disk_written_total", "States of prefixes written.", e.disk.written);
  t.counter("hadal_prefix_cache_disk_evictions_total", "Files that made room.", e.disk.evicted);
  t.counter("hadal_prefix_cache_disk_damaged_total", "Files that were damaged or not the cache's, and not used.",
            e.disk.damaged);
  t.counter("hadal_prefix_cache_disk_failed_total", "States that the system refused to write.", e.disk.failed);
  t.counter("hadal_prefix_cache_disk_dropped_total", "States that came faster than the disk writes.", e.disk.dropped);
  t.gauge("hadal_cache_tokens", "Tokens that the cache holds at most.", e.cache_tokens);
  t.gauge("hadal_cache_free_tokens", "Tokens of the cache that running requests have not reserved.",
          e.free_cache_tokens);
  t.gauge("hadal_cache_unused_tokens", "Tokens of the cache that nobody holds, the prefix cache included.",
          e.unused_cache_tokens);
  t.head("hadal_memory_bytes", "gauge", "Memory by tier: what there is of it.");
  t.value("hadal_memory_bytes", e.weight_bytes, "tier=\"weights\"");
  t.value("hadal_memory_bytes", e.engram_bytes, "tier=\"engram\"");
  t.value("hadal_memory_bytes", e.cache_bytes, "tier=\"cache\"");
  t.value("hadal_memory_bytes", e.snapshot_limit_bytes, "tier=\"snapshots\"");
  t.head("hadal_memory_used_bytes", "gauge", "Memory by tier: what is used, for the tiers that fill up.");
  t.value("hadal_memory_used_bytes", e.used_cache_bytes, "tier=\"cache\"");
  t.value("hadal_memory_used_bytes", e.snapshot_bytes, "tier=\"snapshots\"");
  t.head("hadal_cuda_graphs", "gauge", "CUDA graphs: recorded at the start, and steps recorded since then.");
  t.value("hadal_cuda_graphs", e.graphs_at_start, "recorded=\"start\"");
  t.value("hadal_cuda_graphs", e.graphs_since, "recorded=\"later\"");
  t.counter("hadal_cuda_graph_replays_total", "CUDA graphs replayed.", e.graph_replays);
  t.head("hadal_step_seconds", "histogram", "Time of one step of the engine, by what was in it.");
  t.histogram("hadal_step_seconds", e.decode_steps, "kind=\"decode\"");
  t.histogram("hadal_step_seconds", e.prefill_steps, "kind=\"prefill\"");
  t.histogram("hadal_step_seconds", e.mixed_steps, "kind=\"mixed\"");
  t.head("hadal_stage_seconds_total", "counter", "Time in steps, by stage.");
  t.value("hadal_stage_seconds_total", e.model_seconds - e.draft_seconds, "stage=\"model\"");
  t.value("hadal_stage_seconds_total", e.draft_seconds, "stage=\"draft\"");
  t.value("hadal_stage_seconds_total", e.sample_seconds, "stage=\"sample\"");
  t.value("hadal_stage_seconds_total", std::max(0.0, e.step_seconds - e.model_seconds - e.sample_seconds),
          "stage=\"other\"");
  t.gauge("hadal_http_connections", "Open connections.", v.http.connections);
  t.gauge("hadal_http_requests_in_flight", "Requests without a complete answer.", v.http.exchanges);
  t.counter("hadal_http_connections_total", "Connections accepted.", v.http.connections_total);
  t.counter("hadal_http_connections_refused_total", "Connections over the limit.", v.http.refused_connections);
  t.counter("hadal_http_slow_clients_dropped_total", "Connections dropped because the client did not read.",
            v.http.slow_clients_dropped);
  t.counter("hadal_http_aborted_requests_total", "Requests whose client went before the end of the answer.",
            v.http.aborted_exchanges);
  t.counter("hadal_http_refused_requests_total", "Requests answered with a status from 400 to 499.", refused.load());
  t.counter("hadal_http_over_quota_requests_total", "Requests that were refused because of their key's quota.",
            over_quota.load());
  // What Prometheus' own clients say about their process.
  const Process p = this_process();
  t.counter("process_cpu_seconds_total", "CPU time of the process.", p.cpu_seconds);
  t.gauge("process_resident_memory_bytes", "Memory of the process that is in RAM, mapped weights included.",
          p.resident_bytes);
  t.gauge("process_open_fds", "Open file descriptors.", p.descriptors);
  return t.take();
}

}  // namespace hadal::serve

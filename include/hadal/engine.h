// The engine: many requests at once over one model.
#pragma once

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hadal/request.h"

namespace hadal {

struct EngineOptions {
  std::filesystem::path model;
  std::string backend = "cpu";        // cpu, cuda, cuda:portable, reference
  std::string numerics = "bf16";      // bf16, fp32, official, fp8
  std::string prefill = "exact";      // full, exact, bounded
  int threads = 0;                    // CPU threads, 0: all
  std::string isa;                    // CPU instruction set, avx512 or amx say; empty: this CPU's best. One a process
  bool reload = false;                // read the checkpoint from the disk again, into huge pages (Checkpoint::reload)
  bool cuda_graphs = true;            // replay decode steps as CUDA graphs; the tokens are the same
  std::string engram_place = "auto";  // of Engram tables with a GPU: gpu, host (pinned; the GPU reads rows there), auto
  int max_requests = 16;              // running at once; others wait
  int max_waiting = 1024;             // more are refused
  int64_t cache_tokens = 0;    // tokens of all running requests; 0: max_requests x 4096, less when memory is short
  int step_tokens = 512;       // rows of a step: decode rows first, then prompts in chunks
  double batch_window_ms = 0;  // an idle engine waits so long for company before it starts; not when priority > 0
  bool prefix_cache = true;    // prompts continue from what earlier requests have run; pages that nobody needs hold it
  int64_t prefix_cache_mib = 512;  // host memory for its snapshots (one of the release: 2.9 MB)
  // A folder where prefixes outlive the process (docs/prefix-cache.md); empty: none. One process at a time. What it holds of
  // other checkpoints, modes and programs is not used, but counts in the bytes that it may hold.
  std::filesystem::path prefix_cache_dir;
  int64_t prefix_cache_disk_bytes = int64_t{16} << 30;
  // Most drafted tokens a step, 0: none. -1: as many as give the most tokens a second; tried are every number, and as many as
  // keep the product of the draft module's own confidences above `draft_confidence`.
  int speculate = 0;
  double draft_confidence = 0.5;
  // Drafts from elsewhere than the model's draft module: given prompt and answer so far, up to `most` tokens that may follow.
  // Wrong ones cost time and never change a token. Called from the engine's thread.
  std::function<std::vector<int32_t>(std::span<const int32_t> tokens, int most)> drafter;
  static constexpr int most_drafts = 16;  // a step, of a drafter
};

// A histogram: Bounds are upper ends, inclusive; one more count is for what is above.
template <const auto& Bounds>
struct Counted {
  static constexpr const auto& bounds = Bounds;
  std::array<int64_t, Bounds.size() + 1> counts{};
  double sum = 0;

  void add(double value) {
    ++counts[static_cast<size_t>(std::lower_bound(Bounds.begin(), Bounds.end(), value) - Bounds.begin())];
    sum += value;
  }
};
inline constexpr std::array<double, 14> kStepSeconds{0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05,
                                                     0.1,    0.2,   0.5,   1,     2,    5,    10};
inline constexpr std::array<double, 13> kStepTokens{1, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192};

// Bytes that an engine plans with at its start. Its caches are allocated then and do not grow while it serves.
struct MemoryPlan {
  int64_t free = 0;         // of the device before its caches; on a CPU what the machine or the control group can give
  int64_t host_tables = 0;  // Engram tables that the device reads in pinned host memory
  int64_t weights = 0;      // of files that a CPU reads in place, and that should stay in memory
  int64_t cache = 0;        // pages of cache_tokens: compressed rows and index keys
  int64_t windows = 0;      // rings of max_requests
  int64_t snapshots = 0;    // most that the prefix cache takes of the host's memory
  int64_t cache_tokens = 0;
  // Of a device, measured at the start by running the largest steps and recording decode steps.
  int64_t steps = 0;                    // memory of a running step
  int64_t graphs = 0, graph_bytes = 0;  // CUDA graphs
  double warm_up_seconds = 0;
};
// "cache 512.0 MB for 131072 tokens, ..."
std::string to_string(const MemoryPlan& plan);

struct EngineStats {
  int waiting = 0, running = 0;     // samples
  int64_t cache_tokens = 0;         // room in the pages
  int64_t free_cache_tokens = 0;    // not reserved by running requests
  int64_t unused_cache_tokens = 0;  // held by nobody, the prefix cache included
  int64_t steps = 0, prompt_tokens = 0, generated_tokens = 0;
  // CUDA graphs: steps and commits that were replayed; recorded at the start, and since then.
  int64_t graph_replays = 0, graphs_at_start = 0, graphs_since = 0;
  std::vector<int64_t> drafted, accepted;  // by draft position
  int64_t preemptions = 0;
  int64_t prefix_queries = 0, prefix_hits = 0;
  int64_t prefix_query_tokens = 0, prefix_hit_tokens = 0;  // prompt tokens that were looked up, that need not be run
  int64_t snapshots = 0, snapshot_bytes = 0, evictions = 0;
  struct Disk {                        // of the prefix cache
    int64_t entries = 0, bytes = 0;    // files
    int64_t hits = 0, hit_tokens = 0;  // prompts that went on from it, and where
    int64_t written = 0, evicted = 0;  // states; files
    int64_t damaged = 0;               // files that were not what they should be, and were removed
    int64_t failed = 0, dropped = 0;   // states that the system refused to write; that came too fast or are too large
  } disk;
  double step_seconds = 0;                                         // in the model and around it, all steps
  double model_seconds = 0;                                        // in the model alone, drafting included
  double draft_seconds = 0;                                        // in the draft module
  double sample_seconds = 0;                                       // in the choice of tokens
  Counted<kStepSeconds> decode_steps, prefill_steps, mixed_steps;  // only decoding, only prompts, both
  Counted<kStepTokens> tokens_of_steps;                            // rows that went through the model
  // Memory by tier, in bytes. The cache's pools are allocated once.
  int64_t weight_bytes = 0, engram_bytes = 0;  // of the checkpoint: read all the time; tables of which rows are read
  int64_t cache_bytes = 0, used_cache_bytes = 0;
  int64_t snapshot_limit_bytes = 0;
};

class Engine {
 public:
  // Loads the model and starts the engine's thread. Throws hadal::Error.
  explicit Engine(const EngineOptions& options);
  // Cancels what still runs and waits for the step in flight.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Thread-safe. Throws invalid_argument for a request that is wrong, out_of_memory for one that can never fit (with the
  // numbers), busy when the queue is full. Otherwise the handler gets events until one has finished = true.
  RequestId submit(Request request, EventHandler handler);

  // Thread-safe; false when the id is unknown or has finished. The handler still gets its last event. `sample`: only that one
  // of Request::n, -1: all. The others go on, also when it was the one that ran the prompt.
  bool cancel(RequestId id, int sample = -1);

  EngineStats stats() const;
  const MemoryPlan& memory_plan() const;
  // Forgets all prefixes in memory, not those on disk; returns when it is done.
  void clear_prefix_cache();
  std::string backend() const;  // "cpu (avx512, 16 threads)"
  int64_t context_length() const;
  int vocab_size() const;
  int32_t eos_token() const;

 private:
  class Loop;  // src/engine/loop.h
  std::unique_ptr<Loop> loop_;
};

}  // namespace hadal

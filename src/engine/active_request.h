// A request inside the engine: what was submitted, and each of its samples.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "engine/disk_cache.h"
#include "engine/token_chooser.h"
#include "hadal/request.h"
#include "state/request_state.h"

namespace hadal {

using Clock = std::chrono::steady_clock;

inline double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

// Shared by the samples of a request.
struct Submission {
  Submission(Request asked, EventHandler told)
      : request(std::move(asked)),
        handler(std::move(told)),
        samples(static_cast<size_t>(request.n)),
        unfinished(request.n) {}

  struct Sample {
    std::atomic<bool> cancelled{false};
    bool finished = false;  // guarded by the loop's mutex
  };
  RequestId id = 0;
  const Request request;
  const EventHandler handler;
  const Clock::time_point submitted = Clock::now();
  std::vector<Sample> samples;

  void cancel() {
    for (Sample& s : samples) s.cancelled = true;
  }

  // The engine's thread only:
  int unfinished;         // samples that have not had their last event
  int prompt_sample = 0;  // runs the prompt; the others start from what it leaves in the prefix cache
  bool prompt_ran = false;
};

struct ActiveRequest {
  ActiveRequest(std::shared_ptr<Submission> submitted, int sample_number, int32_t eos, int64_t context)
      : submission(std::move(submitted)), sample(sample_number), chooser(submission->request, sample, eos, context) {
    usage.prompt_tokens = prompt_size();
  }

  const std::shared_ptr<Submission> submission;
  const int sample;
  TokenChooser chooser;
  Usage usage;
  int64_t reserved_pages = 0;
  bool started = false;                   // has run before, and may have been preempted since
  bool looked_up = false;                 // on disk, before it starts
  std::shared_ptr<DiskCache::Load> load;  // what is read from there

  // While it runs:
  std::unique_ptr<RequestState> state;
  int64_t branch = 0;            // keep a snapshot of this prefix of the prompt; 0: of none
  std::vector<int32_t> resumed;  // after a preemption: the tokens of the lost state, which are run again
  std::vector<int32_t> pending;  // the last sampled token, then drafts to verify

  const Request& request() const { return submission->request; }
  bool cancelled() const { return submission->samples[static_cast<size_t>(sample)].cancelled; }
  bool runs_prompt() const { return sample == submission->prompt_sample; }
  int64_t prompt_size() const { return static_cast<int64_t>(request().prompt.size()); }
  // What must be in the state before decoding begins or goes on.
  std::span<const int32_t> input() const {
    return resumed.empty() ? std::span<const int32_t>(request().prompt) : resumed;
  }
  int64_t input_size() const { return static_cast<int64_t>(input().size()); }
  bool decoding() const { return state->length() >= input_size(); }
  // The next place in the input where a chunk must end.
  int64_t chunk_end() const { return branch > state->length() ? branch : input_size(); }
};

}  // namespace hadal

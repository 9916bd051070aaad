// One request over one model, for the tools that run a prompt by themselves.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "models/deepseek_v41/model.h"

namespace hadal {

class SingleRequest {
 public:
  // Room for `capacity` tokens.
  SingleRequest(deepseek_v41::Model& model, int64_t capacity);

  struct PromptOptions {
    PrefillMode mode = PrefillMode::exact;
    int chunk = 512;
    int bounded_rows = 0;  // 0: the window
    LogitsWanted logits = LogitsWanted::last;
    std::function<void(int64_t done)> progress;  // after each chunk
    deepseek_v41::Observer observe;
  };

  // Appends the ids and returns the wanted logits [rows, vocab]. Throws invalid_argument for an empty prompt, an id out of
  // range or a prompt beyond the capacity.
  std::vector<float> prefill(std::span<const int32_t> ids, const PromptOptions& options);
  std::vector<float> decode(int32_t id) { return run({&id, 1}, LogitsWanted::last, {}); }

  // Runs rows of which some may turn out wrong: `accept` gets the logits of all of them [rows, vocab] and returns how many
  // become part of the state.
  using Accept = std::function<int32_t(std::span<const float> logits)>;
  void verify(std::span<const int32_t> ids, const Accept& accept) { run(ids, LogitsWanted::all, {}, accept); }

  RequestState& state() { return *state_; }
  deepseek_v41::Model& model() { return model_; }

 private:
  std::vector<float> run(std::span<const int32_t> ids, LogitsWanted wanted, const deepseek_v41::Observer& observe,
                         const Accept& accept = {});

  deepseek_v41::Model& model_;
  int64_t capacity_;
  std::unique_ptr<CachePools> pools_;
  std::unique_ptr<RequestState> state_;
};

// Throws invalid_argument naming the position, the id and the range.
void check_ids(std::span<const int32_t> ids, int vocab_size);

}  // namespace hadal

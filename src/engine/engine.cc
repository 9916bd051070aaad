#include "hadal/engine.h"

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "base/error.h"
#include "base/log.h"
#include "engine/backend.h"
#include "engine/open_checkpoint.h"
#include "engine/scheduler.h"
#include "engine/single_request.h"
#include "models/deepseek_v41/model.h"

namespace hadal {
namespace {

PrefillMode parse_prefill(std::string_view name) {
  for (const PrefillMode m : {PrefillMode::full, PrefillMode::exact, PrefillMode::bounded})
    if (name == to_string(m)) return m;
  fail(ErrorKind::invalid_argument, "unknown prefill mode '{}', expected full, exact or bounded", name);
}

double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

void check_option(bool ok, const char* name, double value, const char* range) {
  if (!ok) fail(ErrorKind::invalid_argument, "{} is {}, expected {}", name, value, range);
}

}  // namespace

class Engine::Loop {
 public:
  explicit Loop(const EngineOptions& o)
      : options_(checked(o)),
        mode_(parse_prefill(o.prefill)),
        checkpoint_(open_checkpoint(o.model)),
        context_(make_context(parse_backend(o.backend), parse_numerics(o.numerics), o.threads)),
        model_(checkpoint_, *context_, operators_of(parse_backend(o.backend))),
        pools_(*context_, model_.cache_layout(), o.max_requests, pages()),
        scheduler_(pools_, config().max_position_embeddings, o.step_tokens) {
    const int block = config().draft_stages() > 0 ? config().dspark_block_size : 0;
    if (options_.speculate > block)
      fail(ErrorKind::invalid_argument, "speculate is {}, the model drafts {} tokens a step", options_.speculate, block);
    draft_rows_ = block;
    stats_.drafted.assign(static_cast<size_t>(block), 0);
    stats_.accepted.assign(static_cast<size_t>(block), 0);
    stats_.cache_tokens = scheduler_.total_pages() * pools_.layout().page_tokens;
    thread_ = std::thread([this] { run(); });
  }

  ~Loop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  const V41Config& config() const { return model_.config(); }

  RequestId submit(Request request, EventHandler handler) {
    validate(request.sampling);
    if (request.prompt.empty()) fail(ErrorKind::invalid_argument, "the prompt is empty; give at least one token");
    check_ids(request.prompt, config().vocab_size);
    check_ids(request.stop_tokens, config().vocab_size);
    for (const auto& [token, bias] : request.sampling.logit_bias) check_ids({&token, 1}, config().vocab_size);
    check_option(request.max_tokens >= 1, "max_tokens", static_cast<double>(request.max_tokens), "1 or more");
    check_option(request.min_tokens >= 0 && request.min_tokens <= request.max_tokens, "min_tokens",
                 static_cast<double>(request.min_tokens), "0 to max_tokens");
    if (request.n != 1) fail(ErrorKind::unsupported, "n is {}, only 1 is implemented", request.n);
    if (request.constraint) fail(ErrorKind::unsupported, "constrained decoding is not implemented");
    check_option(request.logprobs >= -1 && request.logprobs <= 20, "logprobs", request.logprobs, "-1 (none) to 20");
    check_option(request.deadline_seconds >= 0, "deadline_seconds", request.deadline_seconds, "0 (none) or more");
    check_option(request.speculate >= -1 && request.speculate <= draft_rows_, "speculate", request.speculate,
                 "-1 (as the engine is set) to the model's draft length");
    const auto prompt = static_cast<int64_t>(request.prompt.size());
    if (prompt >= config().max_position_embeddings)
      fail(ErrorKind::invalid_argument, "the prompt has {} tokens, the model's context is {}", prompt,
           config().max_position_embeddings);
    auto r = std::make_shared<ActiveRequest>();
    r->reserved_pages = scheduler_.pages_needed(request, draft_rows_);
    r->history = TokenHistory(request.prompt);
    r->request = std::move(request);
    r->handler = std::move(handler);
    r->submitted = Clock::now();
    r->usage.prompt_tokens = prompt;
    const std::lock_guard lock(mutex_);
    if (static_cast<int>(arrivals_.size()) + stats_.waiting >= options_.max_waiting)
      fail(ErrorKind::busy, "the queue is full: {} requests wait, the limit is {}", stats_.waiting,
           options_.max_waiting);
    r->id = ++last_id_;
    known_[r->id] = r;
    arrivals_.push_back(r);
    wake_.notify_all();
    return r->id;
  }

  bool cancel(RequestId id) {
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(id);
    if (found == known_.end()) return false;
    found->second->cancelled = true;
    wake_.notify_all();
    return true;
  }

  EngineStats stats() const {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

 private:
  static const EngineOptions& checked(const EngineOptions& o) {
    check_option(o.max_requests >= 1 && o.max_requests <= 65536, "max_requests", o.max_requests, "1 to 65536");
    check_option(o.max_waiting >= 0, "max_waiting", o.max_waiting, "0 or more");
    check_option(o.step_tokens >= 1, "step_tokens", o.step_tokens, "1 or more");
    check_option(o.cache_tokens >= 0, "cache_tokens", static_cast<double>(o.cache_tokens), "0 (automatic) or more");
    check_option(o.speculate >= -1, "speculate", o.speculate, "-1 (automatic), 0 (off) or more");
    return o;
  }

  int pages() const {
    const CacheLayout layout = model_.cache_layout();
    const int64_t tokens = options_.cache_tokens > 0 ? options_.cache_tokens : int64_t{4096} * options_.max_requests;
    return static_cast<int>((tokens + layout.page_tokens - 1) / layout.page_tokens) + options_.max_requests;
  }

  void run() {
    while (true) {
      {
        std::unique_lock lock(mutex_);
        publish_counts();
        wake_.wait(lock, [this] { return stopping_ || !arrivals_.empty() || !waiting_.empty() || !running_.empty(); });
        if (stopping_) break;
        waiting_.splice(waiting_.end(), arrivals_);
      }
      end_unwanted();
      scheduler_.admit(waiting_, running_);
      if (running_.empty()) continue;
      const Clock::time_point start = Clock::now();
      try {
        step();
      } catch (const std::exception& error) {
        // The state of the requests in this step is unknown; the engine itself goes on.
        log::error("step failed: {}", error.what());
        while (!running_.empty()) finish(running_.begin(), FinishReason::error, error.what());
      }
      const std::lock_guard lock(mutex_);
      stats_.step_seconds += seconds(Clock::now() - start);
    }
    waiting_.splice(waiting_.end(), arrivals_);
    while (!waiting_.empty()) finish_waiting(waiting_.begin(), FinishReason::cancelled);
    while (!running_.empty()) finish(running_.begin(), FinishReason::cancelled, "");
  }

  using List = std::list<std::shared_ptr<ActiveRequest>>;

  void publish_counts() {
    stats_.waiting = static_cast<int>(waiting_.size() + arrivals_.size());
    stats_.running = static_cast<int>(running_.size());
    stats_.free_cache_tokens = scheduler_.free_pages() * pools_.layout().page_tokens;
  }

  void end_unwanted() {
    const Clock::time_point now = Clock::now();
    const auto reason = [&](const ActiveRequest& r) {
      if (r.cancelled) return FinishReason::cancelled;
      if (r.request.deadline_seconds > 0 && seconds(now - r.submitted) > r.request.deadline_seconds)
        return FinishReason::deadline;
      return FinishReason::stop;  // none
    };
    for (auto i = waiting_.begin(); i != waiting_.end();) {
      const auto next = std::next(i);
      if (const FinishReason why = reason(**i); why != FinishReason::stop) finish_waiting(i, why);
      i = next;
    }
    for (auto i = running_.begin(); i != running_.end();) {
      const auto next = std::next(i);
      if (const FinishReason why = reason(**i); why != FinishReason::stop) finish(i, why, "");
      i = next;
    }
  }

  void finish(List::iterator i, FinishReason reason, const std::string& error, std::vector<GeneratedToken> tokens = {}) {
    const std::shared_ptr<ActiveRequest> r = *i;
    running_.erase(i);
    scheduler_.release(*r);
    last_event(*r, reason, error, std::move(tokens));
  }

  void finish_waiting(List::iterator i, FinishReason reason) {
    const std::shared_ptr<ActiveRequest> r = *i;
    waiting_.erase(i);
    last_event(*r, reason, "", {});
  }

  void last_event(ActiveRequest& r, FinishReason reason, const std::string& error, std::vector<GeneratedToken> tokens) {
    r.usage.generated_tokens = r.generated;
    r.usage.total_seconds = seconds(Clock::now() - r.submitted);
    {
      const std::lock_guard lock(mutex_);
      known_.erase(r.id);
      publish_counts();
    }
    r.handler({r.id, 0, std::move(tokens), true, reason, error, r.usage});
  }

  void step() {
    context_->reset_step();
    const std::vector<PlannedRows> planned = scheduler_.plan(running_);
    std::vector<SegmentRequest> segments;
    for (const PlannedRows& rows : planned) {
      ActiveRequest& r = *rows.request;
      if (rows.decode) {
        r.state->propose(r.pending);
        segments.push_back({r.state.get(), LogitsWanted::all});
        continue;
      }
      if (r.prefilled == 0) r.state->begin_prompt(r.prompt_size(), mode_, config().sliding_window);
      r.state->propose(std::span(r.request.prompt).subspan(static_cast<size_t>(r.prefilled), static_cast<size_t>(rows.count)));
      const bool last = r.prefilled + rows.count == r.prompt_size();
      segments.push_back({r.state.get(), last ? LogitsWanted::last : LogitsWanted::none});
    }
    const Clock::time_point start = Clock::now();
    StepPlan plan(*context_, model_.step_shape(), segments);
    const deepseek_v41::Step result = model_.forward(plan);
    std::vector<float> logits(static_cast<size_t>(result.logits.rows * result.logits.cols));
    if (!logits.empty()) context_->download(logits.data(), result.logits.data, logits.size() * sizeof(float));
    const double model_seconds = seconds(Clock::now() - start);

    const auto vocab = static_cast<size_t>(config().vocab_size);
    std::vector<int32_t> accepted;
    std::vector<Chosen> chosen(planned.size());
    size_t row = 0;
    for (size_t s = 0; s < planned.size(); ++s) {
      ActiveRequest& r = *planned[s].request;
      if (planned[s].decode) {
        chosen[s] = choose(r, r.pending, &logits[row * vocab]);
        row += r.pending.size();
        accepted.push_back(static_cast<int32_t>(chosen[s].tokens.size()));
        continue;
      }
      accepted.push_back(static_cast<int32_t>(planned[s].count));
      if (segments[s].logits == LogitsWanted::none) continue;
      chosen[s] = choose(r, {}, &logits[row * vocab]);
      ++row;
    }
    model_.commit(plan, result, accepted);

    std::vector<ActiveRequest*> decoding;
    {
      const std::lock_guard lock(mutex_);
      ++stats_.steps;
      stats_.model_seconds += model_seconds;
    }
    for (size_t s = 0; s < planned.size(); ++s) {
      ActiveRequest& r = *planned[s].request;
      if (!planned[s].decode) {
        r.prefilled += planned[s].count;
        const std::lock_guard lock(mutex_);
        stats_.prompt_tokens += planned[s].count;
      }
      if (chosen[s].tokens.empty()) continue;
      if (deliver(r, std::move(chosen[s]))) decoding.push_back(&r);
    }
    draft(decoding);
  }

  struct Chosen {
    std::vector<GeneratedToken> tokens;
    bool stop = false;  // the last token ends the answer and is not part of it
  };

  // Samples row after row while the drafts are right: proposed[0] is known, proposed[1..] are drafts. One token when there
  // was no draft (then `proposed` is the known token, or empty after a prompt).
  Chosen choose(ActiveRequest& r, std::span<const int32_t> proposed, float* logits) {
    const auto vocab = static_cast<size_t>(config().vocab_size);
    Chosen chosen;
    for (size_t i = 0; i == 0 || i < proposed.size(); ++i) {
      const std::span<float> row(logits + i * vocab, vocab);
      const int64_t position = r.prompt_size() + r.generated;
      const int32_t token = sample_row(r.request, r.history, row, position, r.generated);
      GeneratedToken made{token, 0, {}};
      if (r.request.logprobs >= 0) made = with_logprobs(row, token, r.request.logprobs);
      r.history.push(token);
      ++r.generated;
      chosen.tokens.push_back(std::move(made));
      chosen.stop = ends(r.request, token);
      if (chosen.stop || r.generated == r.request.max_tokens || position + 1 >= config().max_position_embeddings) break;
      if (i + 1 >= proposed.size() || proposed[i + 1] != token) break;
    }
    return chosen;
  }

  bool ends(const Request& request, int32_t token) const {
    if (token == config().eos_token_id && !request.ignore_eos) return true;
    return std::find(request.stop_tokens.begin(), request.stop_tokens.end(), token) != request.stop_tokens.end();
  }

  int32_t sample_row(const Request& request, const TokenHistory& history, std::span<const float> logits, int64_t position,
                     int64_t generated) const {
    const bool hold = generated < request.min_tokens;
    if (!hold && !has_penalties(request.sampling)) return sample(logits, request.sampling, position);
    std::vector<float> changed(logits.begin(), logits.end());
    apply_penalties(changed, request.sampling, history);
    if (hold) {
      constexpr float never = -std::numeric_limits<float>::infinity();
      if (!request.ignore_eos) changed[static_cast<size_t>(config().eos_token_id)] = never;
      for (const int32_t t : request.stop_tokens) changed[static_cast<size_t>(t)] = never;
    }
    return sample(changed, request.sampling, position);
  }

  // Hands the tokens over; false when the request has finished.
  bool deliver(ActiveRequest& r, Chosen chosen) {
    if (r.usage.first_token_seconds == 0) r.usage.first_token_seconds = seconds(Clock::now() - r.submitted);
    const auto drafted = static_cast<int64_t>(r.pending.empty() ? 0 : r.pending.size() - 1);
    const auto right = static_cast<int64_t>(chosen.tokens.size()) - 1;
    r.usage.drafted_tokens += drafted;
    r.usage.accepted_drafts += std::min(drafted, right);
    {
      const std::lock_guard lock(mutex_);
      stats_.generated_tokens += static_cast<int64_t>(chosen.tokens.size());
      for (int64_t i = 0; i < drafted; ++i) {
        ++stats_.drafted[static_cast<size_t>(i)];
        if (i < right) ++stats_.accepted[static_cast<size_t>(i)];
      }
    }
    const int32_t last = chosen.tokens.back().token;
    if (chosen.stop) {
      chosen.tokens.pop_back();
      --r.generated;
    }
    const bool full = r.generated >= r.request.max_tokens ||
                      r.prompt_size() + r.generated >= config().max_position_embeddings;
    if (chosen.stop || full) {
      const auto i = std::find_if(running_.begin(), running_.end(), [&](const auto& other) { return other.get() == &r; });
      finish(i, chosen.stop ? FinishReason::stop : FinishReason::length, "", std::move(chosen.tokens));
      return false;
    }
    r.pending = {last};
    r.handler({r.id, 0, std::move(chosen.tokens), false, FinishReason::stop, "", {}});
    return true;
  }

  int most_drafts(const ActiveRequest& r) const {
    int most = r.request.speculate >= 0 ? r.request.speculate : options_.speculate;
    if (most < 0) most = draft_rows_;
    // No more than can still be wanted: the step gives one token beyond the drafts.
    return static_cast<int>(std::min<int64_t>(most, r.request.max_tokens - r.generated - 1));
  }

  // Appends drafts to what the next step verifies.
  void draft(const std::vector<ActiveRequest*>& decoding) {
    std::vector<RequestState*> states;
    std::vector<int32_t> anchors;
    std::vector<ActiveRequest*> drafting;
    for (ActiveRequest* r : decoding) {
      if (most_drafts(*r) <= 0) continue;
      drafting.push_back(r);
      states.push_back(r->state.get());
      anchors.push_back(r->pending[0]);
    }
    if (drafting.empty()) return;
    const deepseek_v41::Drafts drafts = model_.draft(states, anchors);
    std::vector<float> logits(static_cast<size_t>(config().vocab_size));
    for (size_t s = 0; s < drafting.size(); ++s) {
      ActiveRequest& r = *drafting[s];
      TokenHistory history = r.history;
      const bool automatic = r.request.speculate < 0 && options_.speculate < 0;
      double confidence = 1;
      for (int i = 0; i < most_drafts(r); ++i) {
        const auto row = model_.draft_logits(drafts, static_cast<int>(s) * drafts.block + i, r.pending.back());
        if (automatic) {
          float probability = 0;
          context_->download(&probability, row.probability.data, sizeof probability);
          confidence *= probability;
          if (confidence < options_.draft_confidence) break;
        }
        context_->download(logits.data(), row.logits.data, logits.size() * sizeof(float));
        const int64_t generated = r.generated + i;
        const int32_t token = sample_row(r.request, history, logits, r.prompt_size() + generated, generated);
        if (ends(r.request, token)) break;  // the target says it itself
        r.pending.push_back(token);
        history.push(token);
      }
    }
  }

  const EngineOptions options_;
  const PrefillMode mode_;
  Checkpoint checkpoint_;
  std::unique_ptr<Context> context_;
  deepseek_v41::Model model_;
  CachePools pools_;
  Scheduler scheduler_;
  int draft_rows_ = 0;

  List waiting_, running_;  // the engine's thread only

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  List arrivals_;
  std::unordered_map<RequestId, std::shared_ptr<ActiveRequest>> known_;
  EngineStats stats_;
  RequestId last_id_ = 0;
  bool stopping_ = false;

  std::thread thread_;
};

Engine::Engine(const EngineOptions& options) : loop_(std::make_unique<Loop>(options)) {}
Engine::~Engine() = default;
RequestId Engine::submit(Request request, EventHandler handler) {
  return loop_->submit(std::move(request), std::move(handler));
}
bool Engine::cancel(RequestId id) { return loop_->cancel(id); }
EngineStats Engine::stats() const { return loop_->stats(); }
int64_t Engine::context_length() const { return loop_->config().max_position_embeddings; }
int Engine::vocab_size() const { return loop_->config().vocab_size; }
int32_t Engine::eos_token() const { return loop_->config().eos_token_id; }

}  // namespace hadal

#include "engine/loop.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/backend.h"
#include "engine/cache_identity.h"
#include "engine/memory_plan.h"
#include "engine/open_checkpoint.h"
#include "engine/single_request.h"
#include "engine/warm_up.h"

namespace hadal {
namespace {

void check_option(bool ok, const char* name, double value, const char* range) {
  if (!ok) fail(ErrorKind::invalid_argument, "{} is {}, expected {}", name, value, range);
}

// The logits of a prompt's last token are needed, so that one is always run; after a preemption the next token is known.
std::span<const int32_t> reusable(const ActiveRequest& r) {
  const auto input = r.input();
  return r.pending.empty() ? input.first(input.size() - 1) : input;
}

// Snapshots save work and nothing else: when a device fails to give one, the request goes its way without.
template <typename F>
void try_to_keep(const F& keep) {
  try {
    keep();
  } catch (const std::exception& error) { log::error("a snapshot was not kept: {}", error.what()); }
}

int64_t length_of(const PrefixCache::Match& match) { return match.snapshot == nullptr ? 0 : match.snapshot->length(); }

}  // namespace

EngineOptions Engine::Loop::checked(const EngineOptions& o) {
  check_option(o.max_requests >= 1 && o.max_requests <= 65536, "max_requests", o.max_requests, "1 to 65536");
  check_option(o.max_waiting >= 0, "max_waiting", o.max_waiting, "0 or more");
  check_option(o.step_tokens >= 1, "step_tokens", o.step_tokens, "1 or more");
  check_option(o.cache_tokens >= 0 && o.cache_tokens <= int64_t{1} << 40, "cache_tokens",
               static_cast<double>(o.cache_tokens), "0 (automatic) to 2^40");
  check_option(o.prefix_cache_mib >= 0, "prefix_cache_mib", static_cast<double>(o.prefix_cache_mib), "0 or more");
  check_option(o.prefix_cache_disk_bytes >= 0, "prefix_cache_disk_bytes",
               static_cast<double>(o.prefix_cache_disk_bytes), "0 or more");
  if (!o.prefix_cache_dir.empty() && !o.prefix_cache)
    fail(ErrorKind::invalid_argument, "prefix_cache_dir is {}, but the prefix cache is off",
         o.prefix_cache_dir.string());
  check_option(o.batch_window_ms >= 0 && o.batch_window_ms <= 10000, "batch_window_ms", o.batch_window_ms,
               "0 to 10000");
  check_option(o.speculate >= -1, "speculate", o.speculate, "-1 (automatic), 0 (off) or more");
  use_isa(parse_backend(o.backend), o.isa);
  return o;
}

Engine::Loop::Loop(const EngineOptions& o)
    : options_(checked(o)),
      mode_(parse_prefill_mode(o.prefill)),
      checkpoint_(open_checkpoint(o.model, o.reload, on_gpu(parse_backend(o.backend)))),
      context_(make_context(parse_backend(o.backend), parse_numerics(o.numerics), o.threads,
                            {o.cuda_graphs, parse_table_place(o.engram_place)})),
      model_(checkpoint_, *context_, operators_of(parse_backend(o.backend))),
      draft_rows_(o.drafter                     ? EngineOptions::most_drafts
                  : config().draft_stages() > 0 ? config().dspark_block_size
                                                : 0),
      plan_(plan_memory(model_.cache_layout(), o, draft_rows_, *context_, checkpoint_)),
      pools_(*context_, model_.cache_layout(), o.max_requests,
             static_cast<int>(plan_.cache / model_.cache_layout().bytes_per_page())),
      cache_(pools_, static_cast<size_t>(o.prefix_cache_mib) << 20),
      scheduler_(pools_, config().max_position_embeddings, o.step_tokens) {
  plan_.host_tables = model_.host_table_bytes();
  const int block = draft_rows_;
  if (options_.speculate > block)
    fail(ErrorKind::invalid_argument, "speculate is {}, {} {} tokens a step", options_.speculate,
         options_.drafter ? "a drafter may give" : "the model drafts", block);
  for (int batch = 1; batch / 2 < options_.max_requests; batch *= 2) guards_.emplace_back(block);
  stats_.drafted.assign(static_cast<size_t>(block), 0);
  stats_.accepted.assign(static_cast<size_t>(block), 0);
  stats_.cache_tokens = scheduler_.total_pages() * pools_.layout().page_tokens;
  if (free_device_memory(*context_)) warm_up(model_, pools_, options_, block, plan_);
  publish_memory();
  if (!options_.prefix_cache_dir.empty())
    disk_ = std::make_unique<DiskCache>(
        pools_, options_.prefix_cache_dir,
        cache_identity(checkpoint_, parse_backend(o.backend), *context_, pools_.layout(), mode_),
        options_.prefix_cache_disk_bytes, [this] {
          const std::lock_guard lock(mutex_);
          wake_.notify_all();
        });
  if (parse_backend(o.backend) == Backend::cpu)
    checkpoint_.map_ahead(/*count=*/true, [](const HugePages& pages) {
      if (pages.matter()) pages.few() ? log::warn("{}", to_string(pages)) : log::info("{}", to_string(pages));
    });
  thread_ = std::thread([this] { run(); });
}

Engine::Loop::~Loop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Engine::Loop::check(const Request& r) const {
  validate(r.sampling);
  if (r.prompt.empty()) fail(ErrorKind::invalid_argument, "the prompt is empty; give at least one token");
  check_ids(r.prompt, config().vocab_size);
  check_ids(r.stop_tokens, config().vocab_size);
  for (const auto& [token, bias] : r.sampling.logit_bias) check_ids({&token, 1}, config().vocab_size);
  check_option(r.max_tokens >= 1, "max_tokens", static_cast<double>(r.max_tokens), "1 or more");
  check_option(r.min_tokens >= 0 && r.min_tokens <= r.max_tokens, "min_tokens", static_cast<double>(r.min_tokens),
               "0 to max_tokens");
  check_option(r.n >= 1 && r.n <= 1024, "n", r.n, "1 to 1024");
  if (r.constraint && r.ignore_eos)
    fail(ErrorKind::invalid_argument, "ignore_eos contradicts a constraint, whose text ends with end of sequence");
  check_option(r.logprobs >= -1 && r.logprobs <= 20, "logprobs", r.logprobs, "-1 (none) to 20");
  check_option(r.deadline_seconds >= 0, "deadline_seconds", r.deadline_seconds, "0 (none) or more");
  check_option(r.speculate >= -1 && r.speculate <= draft_rows_, "speculate", r.speculate,
               "-1 (as the engine is set) to the model's draft length");
  const auto prompt = static_cast<int64_t>(r.prompt.size());
  if (prompt >= config().max_position_embeddings)
    fail(ErrorKind::invalid_argument, "the prompt has {} tokens, the model's context is {}", prompt,
         config().max_position_embeddings);
}

RequestId Engine::Loop::submit(Request request, EventHandler handler) {
  check(request);
  const int64_t pages = scheduler_.pages_needed(request, draft_rows_);
  auto submission = std::make_shared<Submission>(std::move(request), std::move(handler));
  Requests samples;
  for (int i = 0; i < submission->request.n; ++i) {
    samples.push_back(
        std::make_shared<ActiveRequest>(submission, i, config().eos_token_id, config().max_position_embeddings));
    samples.back()->reserved_pages = pages;
  }
  const std::lock_guard lock(mutex_);
  const int waiting = stats_.waiting + static_cast<int>(arrivals_.size());
  if (waiting >= options_.max_waiting)
    fail(ErrorKind::busy, "the queue is full: {} requests wait, the limit is {}", waiting, options_.max_waiting);
  submission->id = ++last_id_;
  known_[submission->id] = submission;
  arrivals_.insert(arrivals_.end(), samples.begin(), samples.end());
  wake_.notify_all();
  return submission->id;
}

bool Engine::Loop::cancel(RequestId id, int sample) {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(id);
  if (found == known_.end() || sample >= found->second->request.n) return false;
  Submission& s = *found->second;
  if (sample < 0)
    s.cancel();
  else if (s.samples[static_cast<size_t>(sample)].finished)
    return false;
  else
    s.samples[static_cast<size_t>(sample)].cancelled = true;
  wake_.notify_all();
  return true;
}

EngineStats Engine::Loop::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.waiting += static_cast<int>(arrivals_.size());
  if (disk_) {
    const DiskCache::Stats d = disk_->stats();
    stats.disk = {d.entries, d.bytes,  stats.disk.hits, stats.disk.hit_tokens, d.written, d.evicted,
                  d.damaged, d.failed, d.dropped};
  }
  return stats;
}

void Engine::Loop::clear_prefix_cache() {
  std::unique_lock lock(mutex_);
  clear_cache_ = true;
  wake_.notify_all();
  wake_.wait(lock, [this] { return !clear_cache_ || stopping_; });
}

void Engine::Loop::publish_counts() {
  stats_.waiting = static_cast<int>(scheduler_.waiting().size());
  stats_.running = static_cast<int>(scheduler_.running().size());
  const int64_t page_tokens = pools_.layout().page_tokens;
  stats_.free_cache_tokens = scheduler_.free_pages() * page_tokens;
  stats_.unused_cache_tokens = pools_.free_pages() * page_tokens;
  const auto slots = static_cast<int64_t>(options_.max_requests) - pools_.free_slots();
  stats_.used_cache_bytes = (scheduler_.total_pages() - pools_.free_pages()) * pools_.layout().bytes_per_page() +
                            slots * pools_.layout().bytes_per_slot();
  stats_.snapshots = cache_.stats().snapshots;
  stats_.snapshot_bytes = static_cast<int64_t>(cache_.stats().bytes);
  stats_.evictions = cache_.stats().evictions;
}

void Engine::Loop::publish_memory() {
  for (const SafetensorsFile& shard : checkpoint_.shards())
    for (const TensorView& tensor : shard.tensors())
      (tensor.name.find(".engram.embed") != std::string_view::npos ? stats_.engram_bytes : stats_.weight_bytes) +=
          static_cast<int64_t>(tensor.bytes);
  stats_.cache_bytes = plan_.cache + plan_.windows;
  stats_.snapshot_limit_bytes = plan_.snapshots;
  stats_.graphs_at_start = plan_.graphs;
}

void Engine::Loop::count_step(double seconds) {
  bool decode = false, prefill = false;
  int64_t tokens = 0;
  for (const PlannedRows& rows : planned_) {
    (rows.decode ? decode : prefill) = true;
    tokens += rows.count;
  }
  (!prefill ? stats_.decode_steps : decode ? stats_.mixed_steps : stats_.prefill_steps).add(seconds);
  stats_.tokens_of_steps.add(static_cast<double>(tokens));
  stats_.step_seconds += seconds;
  stats_.model_seconds += model_seconds_;
  stats_.draft_seconds += draft_seconds_;
  stats_.sample_seconds += sample_seconds_;
  stats_.graph_replays = model_.replays();
  stats_.graphs_since = model_.recorded();
}

void Engine::Loop::run() {
  while (take_arrivals()) {
    const Clock::time_point start = Clock::now();
    end_unwanted();
    admit(true);
    if (scheduler_.running().empty()) {
      wait_for_disk();
      continue;
    }
    model_seconds_ = sample_seconds_ = 0;
    try {
      step();
    } catch (const std::exception& error) {
      // The state of the requests in this step is unknown; the others and the engine itself go on.
      log::error("step failed: {}", error.what());
      draft_seconds_ = 0;
      for (const PlannedRows& rows : planned_)
        if (rows.request->state) finish(rows.request, FinishReason::error, error.what());
    }
    {
      const std::lock_guard lock(mutex_);
      count_step(seconds(Clock::now() - start));
    }
    planned_.clear();
  }
  for (const Scheduler::List* list : {&scheduler_.waiting(), &scheduler_.running()})
    while (!list->empty()) finish(list->front(), FinishReason::cancelled);
}

void Engine::Loop::enqueue_arrivals() {
  for (auto& r : arrivals_) scheduler_.add(std::move(r));
  arrivals_.clear();
  publish_counts();
}

void Engine::Loop::plan_ahead() {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || clear_cache_) return;
    enqueue_arrivals();
  }
  admit(false);
}

bool Engine::Loop::take_arrivals() {
  std::unique_lock lock(mutex_);
  const auto something = [this] { return stopping_ || clear_cache_ || !arrivals_.empty(); };
  enqueue_arrivals();
  if (scheduler_.running().empty()) {
    if (scheduler_.waiting().empty()) wake_.wait(lock, something);
    enqueue_arrivals();
    // An idle engine waits a moment for company, unless somebody is in a hurry.
    const auto hurry = [this] {
      return std::any_of(scheduler_.waiting().begin(), scheduler_.waiting().end(),
                         [](const auto& r) { return r->request().priority > 0 || r->started || r->cancelled(); });
    };
    while (!scheduler_.waiting().empty() && !stopping_ && !clear_cache_ && !hurry()) {
      const auto end = scheduler_.waiting().front()->submission->submitted +
                       std::chrono::duration_cast<Clock::duration>(
                           std::chrono::duration<double, std::milli>(options_.batch_window_ms));
      if (Clock::now() >= end || wake_.wait_until(lock, end) == std::cv_status::timeout) break;
      enqueue_arrivals();
    }
    enqueue_arrivals();
  }
  if (std::exchange(clear_cache_, false)) {
    cache_.clear();
    publish_counts();
    wake_.notify_all();
  }
  enqueue_arrivals();
  return !stopping_;
}

void Engine::Loop::end_unwanted() {
  const Clock::time_point now = Clock::now();
  for (const Scheduler::List* list : {&scheduler_.waiting(), &scheduler_.running()})
    for (auto i = list->begin(); i != list->end();) {
      const std::shared_ptr<ActiveRequest> r = *i++;
      const Submission& s = *r->submission;
      if (r->cancelled())
        finish(r, FinishReason::cancelled);
      else if (s.request.deadline_seconds > 0 && seconds(now - s.submitted) > s.request.deadline_seconds)
        finish(r, FinishReason::deadline);
    }
}

void Engine::Loop::admit(bool may_preempt) {
  while (ActiveRequest* const r = scheduler_.next()) {
    if (!looked_up(*r)) return;
    while (!scheduler_.fits(*r)) {
      ActiveRequest* const victim = may_preempt ? scheduler_.victim(*r) : nullptr;
      if (victim == nullptr) return;
      preempt(*victim);
    }
    try {
      start(*r);
    } catch (const std::exception& error) {
      log::error("a request could not start: {}", error.what());
      const auto& running = scheduler_.running();
      finish(*std::find_if(running.begin(), running.end(), [&](const auto& other) { return other.get() == r; }),
             FinishReason::error, error.what());
    }
  }
  // Without a cache, snapshots serve those that wait to go on.
  if (!options_.prefix_cache && scheduler_.waiting().empty()) cache_.clear();
}

// A bounded prompt is cut where its own end says, so only a state that was cut there too, or one from before the cut, is the
// one that a cold run would have.
bool Engine::Loop::usable(const ActiveRequest& r, int64_t length, int64_t floor) const {
  if (mode_ != PrefillMode::bounded) return true;
  const int64_t cut = std::max<int64_t>(0, r.prompt_size() - config().sliding_window);
  return length < cut || floor == cut;
}

PrefixCache::Match Engine::Loop::find_prefix(const ActiveRequest& r) {
  return cache_.find(reusable(r), [&](const Snapshot& s) { return usable(r, s.length(), s.floor()); });
}

bool Engine::Loop::looked_up(ActiveRequest& r) {
  if (!disk_ || r.started || !r.runs_prompt()) return true;
  if (r.load && !r.load->done()) return false;
  if (std::exchange(r.looked_up, true) && (!r.load || r.load->whole())) return true;
  // For the first time, or again because something was damaged.
  DiskCache::Match found =
      disk_->find(reusable(r), [&](int64_t length, int64_t floor) { return usable(r, length, floor); });
  r.load = nullptr;
  if (found.length > length_of(find_prefix(r))) r.load = disk_->load(reusable(r), std::move(found));
  return r.load == nullptr;
}

// Nothing runs, and perhaps the next one waits for the disk.
void Engine::Loop::wait_for_disk() {
  const ActiveRequest* const r = scheduler_.next();
  if (r == nullptr || !r->load) return;
  std::unique_lock lock(mutex_);
  if (!r->load->done() && !stopping_ && arrivals_.empty()) wake_.wait_for(lock, std::chrono::milliseconds(100));
}

void Engine::Loop::start(ActiveRequest& r) {
  scheduler_.start(r);
  const bool own = r.started || !r.runs_prompt();  // what it left itself, or the sample that ran the prompt
  PrefixCache::Match match;
  if (options_.prefix_cache || own) match = find_prefix(r);
  if (const auto load = std::exchange(r.load, nullptr); load && load->length() > length_of(match)) {
    // What memory has is shared, as long as there is room for both while one becomes the other.
    std::optional<Snapshot> near;
    if (match.snapshot != nullptr) near = *match.snapshot;
    if (!cache_.make_room(disk_->pages_of(*load))) {
      near.reset();
      cache_.make_room(disk_->pages_of(*load));
    }
    const Snapshot restored = disk_->take(*load, near ? &*near : nullptr);
    r.state->restore(restored);
    cache_.insert(restored);
    r.usage.disk_tokens = restored.length();
    match.tokens = std::max(match.tokens, restored.length());
  } else if (match.snapshot != nullptr) {
    r.state->restore(*match.snapshot);
  }
  if (std::exchange(r.started, true)) return;

  r.usage.queue_seconds = seconds(Clock::now() - r.submission->submitted);
  if (!options_.prefix_cache || !r.runs_prompt()) return;
  const int64_t length = r.state->length();
  if (length > 0) {
    r.usage.cached_tokens = match.tokens;
    r.usage.recomputed_tokens = match.tokens - length;
  }
  // The second request that comes to a branch keeps a snapshot there, unless one is near.
  const int64_t window = config().sliding_window;
  if (match.tokens - length >= window && r.prompt_size() - match.tokens > window) r.branch = match.tokens;
  const std::lock_guard lock(mutex_);
  stats_.prefix_query_tokens += r.prompt_size();
  stats_.prefix_hit_tokens += length;
  ++stats_.prefix_queries;
  stats_.prefix_hits += length > 0;
  stats_.disk.hits += r.usage.disk_tokens > 0;
  stats_.disk.hit_tokens += r.usage.disk_tokens;
}

void Engine::Loop::keep(Snapshot snapshot) {
  if (disk_) disk_->store(snapshot);
  cache_.insert(std::move(snapshot));
}

void Engine::Loop::preempt(ActiveRequest& r) {
  if (r.decoding()) {
    const auto tokens = r.state->tokens();
    r.resumed.assign(tokens.begin(), tokens.end());
    r.pending.resize(1);  // drafts can be made again
    try_to_keep([&] { cache_.insert(r.state->snapshot()); });
  }
  scheduler_.suspend(r);
  const std::lock_guard lock(mutex_);
  ++stats_.preemptions;
}

// By value: the scheduler forgets the request on the way.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
void Engine::Loop::finish(std::shared_ptr<ActiveRequest> r, FinishReason reason, const std::string& error,
                          std::vector<GeneratedToken> tokens) {
  Submission& s = *r->submission;
  // An answer is kept for the next turn, also one that was stopped from outside.
  if (options_.prefix_cache && reason != FinishReason::error && r->state && r->state->proposed() == 0 &&
      !r->pending.empty() && r->decoding() && !cache_.contains(r->state->tokens(), r->state->floor()))
    try_to_keep([&] { keep(r->state->snapshot()); });
  scheduler_.remove(*r);
  r->usage.generated_tokens = r->chooser.generated();
  r->usage.total_seconds = seconds(Clock::now() - s.submitted);
  const bool last = --s.unfinished == 0;
  {
    const std::lock_guard lock(mutex_);
    s.samples[static_cast<size_t>(r->sample)].finished = true;
    if (last) known_.erase(s.id);
    publish_counts();
  }
  emit(s, {s.id, r->sample, std::move(tokens), true, reason, error, r->usage});
  if (last || s.prompt_ran || !r->runs_prompt()) return;
  // It was to run the prompt, which another one does now; if it cannot be run, it cannot be run for any.
  const auto next = [&] {
    const auto& waiting = scheduler_.waiting();
    return *std::find_if(waiting.begin(), waiting.end(), [&](const auto& o) { return o->submission.get() == &s; });
  };
  s.prompt_sample = next()->sample;
  if (reason == FinishReason::error) finish(next(), reason, error);
}

void Engine::Loop::emit(Submission& submission, const Event& event) {
  try {
    submission.handler(event);
  } catch (const std::exception& error) {
    log::error("the handler of request {} failed, the request is cancelled: {}", submission.id, error.what());
    submission.cancel();
  }
}

}  // namespace hadal

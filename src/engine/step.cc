// One step of the engine: rows in, tokens out.
#include <algorithm>
#include <bit>

#include "base/error.h"
#include "engine/loop.h"

namespace hadal {

void Engine::Loop::step() {
  const Clock::time_point start = Clock::now();
  context_->reset_step();
  planned_ = scheduler_.plan();
  std::vector<SegmentRequest> segments;
  for (const PlannedRows& rows : planned_) {
    ActiveRequest& r = *rows.request;
    const bool last = r.state->length() + rows.count == r.input_size();
    propose(rows);
    LogitsWanted wanted = LogitsWanted::none;
    if (rows.decode) wanted = LogitsWanted::all;
    // After a preemption the token behind the input is known.
    else if (last && r.pending.empty())
      wanted = LogitsWanted::last;
    segments.push_back({r.state.get(), wanted});
  }
  const Clock::time_point model_start = Clock::now();
  StepPlan plan(*context_, model_.step_shape(), segments);
  const deepseek_v41::Step result = model_.forward(plan);
  const Clock::time_point ahead_start = Clock::now();
  plan_ahead();
  const Clock::time_point ahead_end = Clock::now();
  context_->wait();
  // Without what is planned ahead, which costs time where no device works meanwhile.
  model_seconds_ = seconds(Clock::now() - ahead_end + (ahead_start - model_start));

  const Clock::time_point sample_start = Clock::now();
  std::vector<int64_t> wanted;  // rows of logits of each segment
  for (size_t s = 0; s < planned_.size(); ++s)
    wanted.push_back(segments[s].logits == LogitsWanted::none ? 0
                     : planned_[s].decode ? static_cast<int64_t>(planned_[s].request->pending.size())
                                          : 1);
  std::vector<Chosen> chosen = choose(result.logits, wanted);
  std::vector<int32_t> accepted;
  int64_t prompt_tokens = 0;
  for (size_t s = 0; s < planned_.size(); ++s) {
    accepted.push_back(planned_[s].decode ? chosen[s].rows : static_cast<int32_t>(planned_[s].count));
    if (!planned_[s].decode) prompt_tokens += planned_[s].count;
  }
  sample_seconds_ = seconds(Clock::now() - sample_start);
  keep_prompts(plan, result);
  model_.commit(plan, result, accepted);
  keep_branches();
  {
    const std::lock_guard lock(mutex_);
    ++stats_.steps;
    stats_.prompt_tokens += prompt_tokens;
  }
  Requests decoding;
  for (size_t s = 0; s < planned_.size(); ++s) {
    if (segments[s].logits == LogitsWanted::none) continue;
    if (deliver(planned_[s].request, std::move(chosen[s]))) decoding.push_back(planned_[s].request);
  }
  observe_step(seconds(Clock::now() - start), accepted);
  make_drafts(decoding);
}

void Engine::Loop::propose(const PlannedRows& rows) {
  ActiveRequest& r = *rows.request;
  RequestState& state = *r.state;
  cache_.make_room(state.pages_to_propose(rows.count));
  if (rows.decode) {
    state.propose(r.pending);
    return;
  }
  // Where decoder layers may leave out rows of what comes before: the last token's own row is run like a decoded one, so
  // that the state in front of it can be kept. A bounded prompt's cut belongs to the request, whatever is kept.
  const int64_t at = state.length();
  int64_t end = r.branch > at ? r.branch : r.input_size() - 1;
  if (mode_ == PrefillMode::bounded) end = r.prompt_size();
  if (end > at) state.begin_prompt(end, mode_, config().sliding_window);
  state.propose(r.input().subspan(static_cast<size_t>(at), static_cast<size_t>(rows.count)));
}

// Choices that depend on nothing but the logits are made where these lie; the logits of the others come to the host.
std::vector<Engine::Loop::Chosen> Engine::Loop::choose(const Tensor& logits, std::span<const int64_t> wanted) {
  std::vector<SampleRow> plain;
  int32_t row = 0;
  for (size_t s = 0; s < planned_.size(); row += static_cast<int32_t>(wanted[s++])) {
    const TokenChooser& chooser = planned_[s].request->chooser;
    if (!chooser.plain(wanted[s])) continue;
    for (int32_t i = 0; i < wanted[s]; ++i) {
      plain.push_back(chooser.sample_row(i));
      plain.back().logits_row = row + i;
    }
  }
  const std::vector<int32_t> tokens = model_.sample(logits, plain);

  std::vector<Chosen> chosen(planned_.size());
  std::span<const int32_t> left = tokens;
  std::vector<float> host;
  row = 0;
  for (size_t s = 0; s < planned_.size(); row += static_cast<int32_t>(wanted[s++])) {
    if (wanted[s] == 0) continue;
    ActiveRequest& r = *planned_[s].request;
    std::span<const int32_t> sampled;
    if (r.chooser.plain(wanted[s])) {
      sampled = left.first(static_cast<size_t>(wanted[s]));
      left = left.subspan(sampled.size());
    }
    host.clear();
    if (std::find(sampled.begin(), sampled.end(), -1) != sampled.end()) sampled = {};  // the logits tell what is wrong
    if (sampled.empty()) {
      host.resize(static_cast<size_t>(wanted[s] * logits.cols));
      context_->download(host.data(), logits.f32(row), host.size() * sizeof(float));
    }
    try {
      verify(r.chooser, planned_[s].decode ? r.pending : std::vector<int32_t>{}, sampled, host,
             static_cast<size_t>(logits.cols), chosen[s]);
    } catch (const std::exception& error) { chosen[s].error = error.what(); }
  }
  return chosen;
}

// Prompts that end in this step are kept in front of their last token: whoever sends one again needs that row's logits.
void Engine::Loop::keep_prompts(StepPlan& plan, const deepseek_v41::Step& result) {
  std::vector<int32_t> before(planned_.size(), 0);
  std::vector<const RequestState*> kept;
  for (size_t s = 0; s < planned_.size(); ++s) {
    const ActiveRequest& r = *planned_[s].request;
    const int64_t length = r.prompt_size() - 1;
    const bool ends = !planned_[s].decode && r.pending.empty() && r.state->length() + r.state->proposed() == length + 1;
    if (!ends || length == 0 || !(options_.prefix_cache || (r.request().n > 1 && r.runs_prompt()))) continue;
    if (cache_.contains(r.input().first(static_cast<size_t>(length)), r.state->floor())) continue;
    before[s] = static_cast<int32_t>(planned_[s].count - 1);
    kept.push_back(r.state.get());
  }
  if (kept.empty()) return;
  model_.write_rings(plan, result, before);
  for (const RequestState* state : kept) keep(state->snapshot(state->length() + state->proposed() - 1));
}

void Engine::Loop::keep_branches() {
  for (const PlannedRows& rows : planned_) {
    ActiveRequest& r = *rows.request;
    if (r.branch == 0 || r.state->length() != r.branch) continue;
    keep(r.state->snapshot());
    r.branch = 0;
  }
}

bool Engine::Loop::deliver(const std::shared_ptr<ActiveRequest>& request, Chosen chosen) {
  ActiveRequest& r = *request;
  if (!chosen.error.empty()) {
    finish(request, FinishReason::error, chosen.error, std::move(chosen.tokens));
    return false;
  }
  if (r.runs_prompt()) r.submission->prompt_ran = true;
  if (r.usage.first_token_seconds == 0) r.usage.first_token_seconds = seconds(Clock::now() - r.submission->submitted);
  const auto drafted = static_cast<int64_t>(r.pending.empty() ? 0 : r.pending.size() - 1);
  const int64_t right = chosen.rows - 1;
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
  if (chosen.stop || r.chooser.full()) {
    finish(request, chosen.stop ? FinishReason::stop : FinishReason::length, {}, std::move(chosen.tokens));
    return false;
  }
  r.pending = {chosen.tokens.back().token};
  emit(*r.submission, {r.submission->id, r.sample, std::move(chosen.tokens), false, FinishReason::stop, "", {}});
  return true;
}

int Engine::Loop::most_drafts(const ActiveRequest& r) const {
  int most = r.request().speculate >= 0 ? r.request().speculate : options_.speculate;
  if (most < 0) most = std::min(draft_choice_, draft_rows_);
  // No more than can still be wanted: the step gives one token beyond the drafts.
  return static_cast<int>(std::min<int64_t>(most, r.request().max_tokens - r.chooser.generated() - 1));
}

// Appends drafts to what the next step verifies.
void Engine::Loop::make_drafts(const Requests& decoding) {
  const Clock::time_point start = Clock::now();
  draft_choice_ = 0;
  if (std::any_of(decoding.begin(), decoding.end(), [this](const auto& r) { return guarded(*r); }))
    draft_choice_ = guards_[std::bit_width(decoding.size()) - 1].choose();
  std::vector<DraftOrder> orders;
  int64_t pages = 0;
  for (const auto& r : decoding) {
    const int most = most_drafts(*r);
    if (most <= 0) continue;
    if (options_.drafter) {
      std::vector<int32_t> tokens(r->state->tokens().begin(), r->state->tokens().end());
      tokens.push_back(r->pending.front());
      for (const int32_t t : options_.drafter(tokens, most)) {
        if (t < 0 || t >= config().vocab_size || static_cast<int>(r->pending.size()) > most) break;
        r->pending.push_back(t);
      }
      continue;
    }
    pages += r->state->pages_to_propose(draft_rows_);
    orders.push_back({r->state.get(), &r->chooser, most,
                      guarded(*r) && draft_choice_ > draft_rows_ ? options_.draft_confidence : 0, &r->pending});
  }
  cache_.make_room(pages);
  draft(model_, orders);
  draft_seconds_ = seconds(Clock::now() - start);
  model_seconds_ += draft_seconds_;
}

// Only steps that nothing but guarded requests took part in tell what drafts cost.
void Engine::Loop::observe_step(double step_seconds, const std::vector<int32_t>& accepted) {
  int64_t tokens = 0;
  for (size_t s = 0; s < planned_.size(); ++s) {
    if (!planned_[s].decode || !guarded(*planned_[s].request)) return;
    tokens += accepted[s];
  }
  const double each = static_cast<double>(tokens) / static_cast<double>(planned_.size());
  guards_[std::bit_width(planned_.size()) - 1].observe(draft_choice_, step_seconds + draft_seconds_, each);
}

}  // namespace hadal

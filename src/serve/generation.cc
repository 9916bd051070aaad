#include "serve/generation.h"

#include "base/log.h"

namespace hadal::serve {

using text::OutputEvent;

namespace {

double seconds(std::chrono::steady_clock::duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

void Generation::start(const std::shared_ptr<Engine>& engine, const text::Tokenizer& tokenizer, Metrics& metrics,
                       bool log, Plan plan, std::shared_ptr<Exchange> exchange, std::unique_ptr<AnswerSink> sink) {
  const std::shared_ptr<Generation> self(
      new Generation(engine, tokenizer, metrics, log, plan, std::move(exchange), std::move(sink)));
  self->submit(*engine, std::move(plan.requests));
}

Generation::Generation(const std::shared_ptr<Engine>& engine, const text::Tokenizer& tokenizer, Metrics& metrics,
                       bool log, Plan& plan, std::shared_ptr<Exchange> exchange, std::unique_ptr<AnswerSink> sink)
    : engine_(engine),
      metrics_(metrics),
      log_(log),
      request_id_(std::move(plan.request_id)),
      endpoint_(std::move(plan.endpoint)),
      charge_(std::move(plan.charge)),
      trace_(std::move(plan.trace)),
      exchange_(std::move(exchange)),
      sink_(std::move(sink)) {
  for (const Request& r : plan.requests) {
    Part part;
    part.first_choice = static_cast<int>(choices_.size());
    part.choices = part.running = part.open = r.n;
    running_ += r.n;
    totals_.prompt_tokens += static_cast<int64_t>(r.prompt.size());
    parts_.push_back(part);
    for (int i = 0; i < r.n; ++i) choices_.push_back({TextStream(tokenizer, plan.text), false, {}});
  }
}

void Generation::submit(Engine& engine, std::vector<Request> requests) {
  // Everything below runs on the strand once the engine knows the requests, so ids are known by then.
  std::vector<RequestId> ids;
  try {
    for (size_t i = 0; i < requests.size(); ++i)
      ids.push_back(engine.submit(std::move(requests[i]), [self = shared_from_this(), i](const Event& event) {
        self->exchange_->post([self, i, event, at = Clock::now()] { self->on_event(i, event, at); });
      }));
  } catch (...) {
    for (const RequestId id : ids) engine.cancel(id);
    exchange_->post([self = shared_from_this()] { self->failed_ = true; });
    throw;
  }
  exchange_->post([self = shared_from_this(), ids = std::move(ids)] {
    for (size_t i = 0; i < ids.size(); ++i) self->parts_[i].id = ids[i];
    self->begin();
  });
  exchange_->on_abort([self = shared_from_this()] { self->abort(); });
}

void Generation::begin() {
  if (std::exchange(begun_, true)) return;
  if (!aborted_ && !failed_) sink_->begin();
}

void Generation::on_event(size_t part_index, const Event& event, Clock::time_point at) {
  if (failed_) return;
  begin();
  Part& part = parts_[part_index];
  part.id = event.request;
  const int choice = part.first_choice + event.sample;
  Choice& c = choices_[static_cast<size_t>(choice)];
  if (!event.tokens.empty()) {
    if (c.last) metrics_.inter_token.observe(seconds(at - *c.last));
    c.last = at;
    if (trace_) traced_.steps.push_back({choice, at, static_cast<int64_t>(event.tokens.size())});
    if (!aborted_ && !c.ended) take_tokens(part, choice, event);
  }
  if (event.finished) last_event(part, event, choice);
}

void Generation::take_tokens(Part& part, int choice, const Event& event) {
  Choice& c = choices_[static_cast<size_t>(choice)];
  std::vector<OutputEvent> events;
  size_t used = 0;
  bool open = true;
  while (open && used < event.tokens.size()) open = c.text.push(event.tokens[used++].token, events);
  sink_->add(choice, events, std::span(event.tokens).first(used));
  if (open) return;
  end_choice(part, choice, FinishReason::stop);
  if (!event.finished) cancel(part, event.sample);  // the others go on
}

void Generation::end_choice(Part& part, int choice, FinishReason reason) {
  Choice& c = choices_[static_cast<size_t>(choice)];
  if (std::exchange(c.ended, true)) return;
  std::vector<OutputEvent> events;
  c.text.finish(events);
  if (!events.empty()) sink_->add(choice, events, {});
  // The text layer holds text back at the end, and it may complete a stop string.
  ChoiceEnd end;
  if (c.text.stop() != nullptr) end.stop = *c.text.stop();
  end.reason = end.stop || reason == FinishReason::stop ? FinishReason::stop : FinishReason::length;
  end.calls = c.text.calls();
  end.tokens = c.text.tokens();
  end.reasoning_tokens = c.text.reasoning_tokens();
  totals_.tokens += end.tokens;
  totals_.reasoning_tokens += end.reasoning_tokens;
  --part.open;
  const Metrics::Outcome outcome = end.reason == FinishReason::length ? Metrics::length
                                   : end.calls > 0                    ? Metrics::tool_calls
                                                                      : Metrics::stop;
  ++metrics_.finished[outcome];
  outcome_ = outcome == Metrics::length ? "length" : outcome == Metrics::tool_calls ? "tool_calls" : "stop";
  sink_->end_choice(choice, end);
}

void Generation::last_event(Part& part, const Event& event, int choice) {
  const Choice& c = choices_[static_cast<size_t>(choice)];
  const Usage& u = event.usage;
  if (event.sample == 0) {
    totals_.cached_tokens += u.cached_tokens;
    metrics_.prefix_queries += u.prompt_tokens;
    metrics_.cached_tokens += u.cached_tokens;
    metrics_.recomputed_tokens += u.recomputed_tokens;
    metrics_.prompt_tokens.observe(static_cast<double>(u.prompt_tokens));
    metrics_.queue.observe(u.queue_seconds);
    if (first_token_seconds_ == 0) {
      queue_seconds_ = u.queue_seconds;
      first_token_seconds_ = u.first_token_seconds;
    }
    if (charge_) charge_->use(u.prompt_tokens);
  }
  if (charge_) charge_->use(c.text.tokens());
  totals_.drafted += u.drafted_tokens;
  totals_.accepted += u.accepted_drafts;
  metrics_.generation_tokens.observe(static_cast<double>(u.generated_tokens));
  metrics_.end_to_end.observe(u.total_seconds);
  if (u.first_token_seconds > 0) {
    metrics_.first_token.observe(u.first_token_seconds);
    metrics_.prefill.observe(u.first_token_seconds - u.queue_seconds);
    metrics_.decode.observe(u.total_seconds - u.first_token_seconds);
    metrics_.inference.observe(u.total_seconds - u.queue_seconds);
    if (u.generated_tokens > 1)
      metrics_.per_output_token.observe((u.total_seconds - u.first_token_seconds) /
                                        static_cast<double>(u.generated_tokens - 1));
  }
  if (!c.ended) {
    if (aborted_) {
      ++metrics_.finished[Metrics::abort];
      outcome_ = "abort";
    } else if (event.reason == FinishReason::error) {
      ++metrics_.finished[Metrics::error];
      outcome_ = "error";
      fail(ApiError(500, "generation failed: " + event.error));
    } else if (event.reason == FinishReason::cancelled) {
      ++metrics_.finished[Metrics::abort];
      outcome_ = "abort";
      fail(ApiError(503, "the server is shutting down"));
    } else {
      end_choice(part, choice, event.reason == FinishReason::stop ? FinishReason::stop : FinishReason::length);
    }
  }
  --part.running;
  if (--running_ > 0) return;
  charge_.reset();  // before the client knows that it may ask again
  if (!aborted_ && !failed_) sink_->finish(totals_);
  report();
}

void Generation::report() {
  const Clock::time_point now = Clock::now();
  if (log_)
    log::info(
        "request={} endpoint={} outcome={} prompt_tokens={} cached_tokens={} tokens={} queue_s={:.4f} "
        "first_token_s={:.4f} total_s={:.4f}",
        request_id_, endpoint_, outcome_, totals_.prompt_tokens, totals_.cached_tokens, totals_.tokens, queue_seconds_,
        first_token_seconds_, seconds(now - start_));
  if (!trace_) return;
  traced_.id = request_id_;
  traced_.endpoint = endpoint_;
  traced_.outcome = outcome_;
  traced_.choices = static_cast<int>(choices_.size());
  traced_.start = start_;
  traced_.end = now;
  traced_.queue_seconds = queue_seconds_;
  traced_.first_token_seconds = first_token_seconds_;
  traced_.prompt_tokens = totals_.prompt_tokens;
  traced_.cached_tokens = totals_.cached_tokens;
  traced_.tokens = totals_.tokens;
  traced_.drafted = totals_.drafted;
  traced_.accepted = totals_.accepted;
  trace_->write(traced_);
}

void Generation::abort() {
  aborted_ = true;
  outcome_ = "abort";
  for (const Part& part : parts_) cancel(part);
}

void Generation::cancel(const Part& part, int sample) {
  if (part.running == 0) return;
  if (const std::shared_ptr<Engine> engine = engine_.lock()) engine->cancel(part.id, sample);
}

void Generation::fail(const ApiError& error) {
  if (std::exchange(failed_, true)) return;
  sink_->fail(error);
  for (const Part& part : parts_) cancel(part);
}

}  // namespace hadal::serve

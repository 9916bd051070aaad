#include "serve/answer.h"

#include "serve/service.h"

namespace hadal::serve {

using text::OutputEvent;

void Answer::add(std::span<const OutputEvent> events, std::span<const GeneratedToken> generated, bool keep_tokens) {
  for (const OutputEvent& event : events) {
    switch (event.kind) {
      case OutputEvent::reasoning: reasoning += event.text; break;
      case OutputEvent::content: content += event.text; break;
      case OutputEvent::call_begin: calls.push_back({new_id("call_"), event.text, {}}); break;
      case OutputEvent::call_arguments: calls.back().arguments += event.text; break;
      case OutputEvent::call_end: break;
    }
  }
  if (keep_tokens) tokens.insert(tokens.end(), generated.begin(), generated.end());
}

void CollectingSink::finish(const Totals& totals) {
  HttpResponse r;
  r.body = body(answers_, totals);
  exchange_->respond(std::move(r));
}

void EventStream::begin() {
  HttpResponse head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};  // proxies must not hold events back
  exchange_->begin_stream(std::move(head));
}

void EventStream::send(std::string_view name, std::string_view data) {
  if (!name.empty()) (out_ += "event: ").append(name) += '\n';
  (out_ += "data: ").append(data) += "\n\n";
}

}  // namespace hadal::serve

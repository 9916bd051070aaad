// A client's request while the engine works on it: tokens come in on the engine's thread, text goes out on the connection's
// strand, and the engine is told when the client goes.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hadal/engine.h"
#include "serve/api_error.h"
#include "serve/api_keys.h"
#include "serve/http.h"
#include "serve/metrics.h"
#include "serve/text_stream.h"
#include "serve/trace.h"

namespace hadal::serve {

// How one choice ended.
struct ChoiceEnd {
  FinishReason reason = FinishReason::stop;  // stop or length
  std::optional<std::string> stop;           // the stop string that was found
  int calls = 0;                             // tool calls in it
  int64_t tokens = 0, reasoning_tokens = 0;
};

struct Totals {
  int64_t prompt_tokens = 0, cached_tokens = 0, tokens = 0, reasoning_tokens = 0;
  int64_t drafted = 0, accepted = 0;
};

// Turns what is generated into a protocol's answer. All calls come on the connection's strand.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  // The engine has taken the request.
  virtual void begin() {}
  // `events` are in order; `tokens` are those that came since the last call for this choice, whose text may still be held back.
  virtual void add(int choice, std::span<const text::OutputEvent> events, std::span<const GeneratedToken> tokens) = 0;
  virtual void end_choice(int choice, const ChoiceEnd& end) = 0;
  // Every choice has ended.
  virtual void finish(const Totals& totals) = 0;
  // Instead of finish(): the engine failed, or the server ends.
  virtual void fail(const ApiError& error) = 0;
};

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  struct Plan {
    std::vector<Request> requests;  // choices are numbered request by request
    TextOptions text;
    std::string request_id, endpoint;       // for the log and the trace
    std::unique_ptr<Quota::Charge> charge;  // nullptr: the key has no quota
    std::shared_ptr<Trace> trace;           // nullptr: none
  };

  // Hands the requests to the engine. Throws what Engine::submit throws; then the sink was not called. When the engine is
  // destroyed first, its last events still arrive here.
  static void start(const std::shared_ptr<Engine>& engine, const text::Tokenizer& tokenizer, Metrics& metrics, bool log,
                    Plan plan, std::shared_ptr<Exchange> exchange, std::unique_ptr<AnswerSink> sink);

 private:
  using Clock = std::chrono::steady_clock;
  struct Choice {
    TextStream text;
    bool ended = false;
    std::optional<Clock::time_point> last;  // tokens came
  };
  struct Part {  // one request of the engine
    RequestId id = 0;
    int first_choice = 0, choices = 0;
    int running = 0;  // samples without a last event
    int open = 0;     // choices without an end
  };

  Generation(const std::shared_ptr<Engine>& engine, const text::Tokenizer& tokenizer, Metrics& metrics, bool log,
             Plan& plan, std::shared_ptr<Exchange> exchange, std::unique_ptr<AnswerSink> sink);
  void submit(Engine& engine, std::vector<Request> requests);
  void begin();
  void on_event(size_t part, const Event& event, Clock::time_point at);
  void take_tokens(Part& part, int choice, const Event& event);
  void end_choice(Part& part, int choice, FinishReason reason);
  void last_event(Part& part, const Event& event, int choice);
  void abort();
  void cancel(const Part& part, int sample = -1);  // of the part's; -1: all
  void fail(const ApiError& error);
  void report();  // to log and trace

  const std::weak_ptr<Engine> engine_;
  Metrics& metrics_;
  const bool log_;
  const std::string request_id_, endpoint_;
  std::unique_ptr<Quota::Charge> charge_;
  const std::shared_ptr<Trace> trace_;
  Trace::Request traced_;
  const std::shared_ptr<Exchange> exchange_;
  const std::unique_ptr<AnswerSink> sink_;
  std::vector<Part> parts_;
  std::vector<Choice> choices_;
  Totals totals_;
  bool begun_ = false, aborted_ = false, failed_ = false;
  int running_ = 0;  // samples of all parts
  double queue_seconds_ = 0, first_token_seconds_ = 0;
  const Clock::time_point start_ = Clock::now();
  const char* outcome_ = "stop";
};

}  // namespace hadal::serve

#include "engine/generation.h"

#include <algorithm>
#include <charconv>
#include <chrono>

#include "base/error.h"

namespace hadal {
namespace {

constexpr double kConfidence = 0.5;  // as EngineOptions::draft_confidence

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

int Generation::most_drafts(const deepseek_v41::Model& model) {
  return model.config().draft_stages() > 0 ? model.config().dspark_block_size : 0;
}

Generation::Generation(SingleRequest& single, const Request& request, int64_t context, std::vector<float> logits)
    : single_(single),
      request_(request),
      chooser_(request, 0, single.model().config().eos_token_id, context),
      context_(context),
      logits_(std::move(logits)),
      guard_(most_drafts(single.model())) {
  stats_.drafted.assign(static_cast<size_t>(most_drafts(single.model())), 0);
  stats_.accepted = stats_.drafted;
}

std::vector<int32_t> Generation::next() {
  Verified got;
  const auto vocab = static_cast<size_t>(single_.model().config().vocab_size);
  if (pending_.empty()) {
    verify(chooser_, {}, {}, logits_, vocab, got);
  } else {
    if (stopped_ || chooser_.full()) return {};
    const bool automatic = request_.speculate < 0;
    const int choice = automatic ? guard_.choose() : request_.speculate;
    const double start = seconds_now();
    const int64_t room = std::min(request_.max_tokens - chooser_.generated(), context_ - chooser_.position());
    const DraftOrder order{&single_.state(), &chooser_,
                           static_cast<int>(std::min<int64_t>({choice, guard_.most(), room - 1})),
                           choice > guard_.most() ? kConfidence : 0, &pending_};
    if (order.most > 0) {
      single_.model().context().reset_step();
      draft(single_.model(), {&order, 1});
    }
    single_.verify(pending_, [&](std::span<const float> logits) {
      verify(chooser_, pending_, {}, logits, vocab, got);
      return got.rows;
    });
    if (automatic) guard_.observe(choice, seconds_now() - start, got.rows);
    ++stats_.steps;
    for (size_t i = 0; i + 1 < pending_.size(); ++i) {
      ++stats_.drafted[i];
      if (static_cast<int32_t>(i) + 1 < got.rows) ++stats_.accepted[i];
    }
  }
  stopped_ = got.stop;
  std::vector<int32_t> tokens;
  tokens.reserve(got.tokens.size());
  for (const GeneratedToken& t : got.tokens) tokens.push_back(t.token);
  if (!tokens.empty()) pending_ = {tokens.back()};
  return tokens;
}

int parse_speculate(std::string_view text, const deepseek_v41::Model& model) {
  const int most = Generation::most_drafts(model), value = parse_speculate(text);
  if (value > most)
    fail(ErrorKind::invalid_argument,
         "--speculate is '{}', expected off, auto, or 0 to {} tokens, which the model drafts", text, most);
  return most > 0 ? value : 0;
}

int parse_speculate(std::string_view text) {
  if (text == "off") return 0;
  if (text == "auto") return -1;
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0)
    fail(ErrorKind::invalid_argument, "--speculate is '{}', expected off, auto, or a number of tokens", text);
  return value;
}

}  // namespace hadal

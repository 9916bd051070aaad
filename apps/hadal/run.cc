// hadal run: one prompt, one answer.
#include <fmt/ranges.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/progress.h"
#include "commands.h"
#include "engine/cache_identity.h"
#include "engine/disk_cache.h"
#include "engine/generation.h"
#include "model_options.h"
#include "text/detokenizer.h"
#include "text/output_parser.h"
#include "text/prompt_v41.h"
#include "text/stop_matcher.h"

namespace hadal {
namespace {

struct RunOptions {
  ModelOptions model;
  PrefillOptions prefill;
  PrefixCacheDiskOptions disk;
  SamplingOptions sampling;
  std::string prompt, prompt_file, ids, ids_file, system;
  std::string speculate = "auto";
  bool chat = false, raw = false, thinking = false, json = false, ignore_eos = false;
  int effort = 75;
  int max_tokens = 256;
  std::vector<std::string> stops;
};

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::vector<int32_t> render(const RunOptions& o, const text::Tokenizer& tokenizer, const std::string& prompt,
                            text::OutputParser::Start& start) {
  start = {};
  if (!o.chat) {
    // As the official tokenizer does, nothing is added to a raw prompt but BOS, which its encoding writes as text.
    std::vector<int32_t> ids{tokenizer.control(text::v41::bos)};
    const std::vector<text::TokenId> body = tokenizer.encode_with_special(prompt);
    const bool has_bos = !body.empty() && body.front() == ids.front();
    ids.insert(ids.end(), body.begin() + (has_bos ? 1 : 0), body.end());
    return ids;
  }
  std::vector<text::ChatMessage> messages;
  if (!o.system.empty()) {
    messages.emplace_back().role = text::Role::system;
    messages.back().content = o.system;
  }
  messages.emplace_back().content = prompt;
  text::PromptOptions options;
  options.thinking = o.thinking;
  options.effort = o.effort;
  const text::Prompt rendered = text::encode_prompt_v41(messages, options);
  start = text::OutputParser::start_of(rendered);
  return tokenizer.encode(rendered);
}

// Text of the answer as it comes; for chats the reasoning is shown between its marks.
class Writer {
 public:
  Writer(const RunOptions& o, const text::Tokenizer* tokenizer, const text::OutputParser::Start& start)
      : options_(o), stops_(o.stops), tokenizer_(tokenizer), parser_(start, plain_calls()) {
    if (tokenizer_ != nullptr) detokenizer_.emplace(*tokenizer_);
  }

  // False when the answer is over.
  bool push(int32_t id) {
    ids_.push_back(id);
    if (tokenizer_ == nullptr) {
      if (!options_.json) emit(fmt::format("{}{}", ids_.size() == 1 ? "" : ",", id));
      return true;
    }
    std::vector<text::TokenPiece> pieces;
    detokenizer_->push(id, pieces);
    return show(pieces);
  }

  void finish() {
    if (tokenizer_ != nullptr && !stops_.stopped()) {
      std::vector<text::TokenPiece> pieces;
      detokenizer_->finish(pieces);
      show(pieces);
      if (options_.chat) {
        std::vector<text::OutputEvent> events;
        parser_.finish(events);
        show(events);
      }
      emit(stops_.finish());
    }
    if (!options_.json) std::fputc('\n', stdout);
    std::fflush(stdout);  // before what standard error says
  }

  const std::string& text() const { return text_; }
  const std::string& reasoning() const { return reasoning_; }
  bool stopped() const { return stops_.stopped(); }
  const std::vector<int32_t>& ids() const { return ids_; }

 private:
  // No tools were offered, so markup of calls would be text that the model explains.
  static text::OutputParser::Options plain_calls() {
    text::OutputParser::Options options;
    options.parse_calls = false;
    return options;
  }

  bool show(const std::vector<text::TokenPiece>& pieces) {
    for (const text::TokenPiece& piece : pieces) {
      if (!options_.chat) {
        emit(stops_.push(piece.text));
        continue;
      }
      std::vector<text::OutputEvent> events;
      parser_.feed(piece, events);
      show(events);
    }
    return !stops_.stopped();
  }

  void show(const std::vector<text::OutputEvent>& events) {
    for (const text::OutputEvent& event : events) {
      const bool thought = event.kind == text::OutputEvent::reasoning;
      if (thought != thinking_ && !options_.json) write(thought ? "<think>\n" : "\n</think>\n\n");
      thinking_ = thought;
      if (thought) {
        reasoning_ += event.text;
        if (!options_.json) write(event.text);
      } else {
        emit(stops_.push(event.text));
      }
    }
  }

  void emit(const std::string& text) {
    text_ += text;
    if (!options_.json) write(text);
  }
  static void write(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  const RunOptions& options_;
  text::StopMatcher stops_;
  const text::Tokenizer* tokenizer_;
  std::optional<text::Detokenizer> detokenizer_;
  text::OutputParser parser_;
  bool thinking_ = false;
  std::string text_, reasoning_;
  std::vector<int32_t> ids_;
};

volatile std::sig_atomic_t interrupted = 0;

void print_drafts(const Generation::Stats& stats, int64_t tokens) {
  if (stats.drafted.empty() || stats.drafted[0] == 0) return;
  std::string shares;
  for (size_t i = 0; i < stats.drafted.size() && stats.drafted[i] > 0; ++i)
    shares +=
        fmt::format(" {:.0f}%", 100.0 * static_cast<double>(stats.accepted[i]) / static_cast<double>(stats.drafted[i]));
  fmt::print(stderr, "hadal: {:.2f} tokens a step with drafts, of which by position{} were right\n",
             static_cast<double>(tokens - 1) / static_cast<double>(stats.steps), shares);
}

// Appends the prompt, from the longest prefix that the disk has; keeps the state in front of its last token there. Returns
// the logits of that token, and how many tokens came from the disk.
std::pair<std::vector<float>, int64_t> prefill(SingleRequest& request, const std::vector<int32_t>& ids,
                                               SingleRequest::PromptOptions options, DiskCache* disk) {
  if (disk == nullptr || ids.size() < 2) return {request.prefill(ids, options), 0};
  const auto before = std::span(ids).first(ids.size() - 1);
  if (const auto found = disk->restore(before, [](int64_t, int64_t) { return true; })) request.state().restore(*found);
  const int64_t cached = request.state().length();
  if (cached < std::ssize(before)) {
    if (options.progress) options.progress(cached);
    options.progress = [cached, all = options.progress](int64_t done) { all(cached + done); };
    options.logits = LogitsWanted::none;
    request.prefill(before.subspan(static_cast<size_t>(cached)), options);
    disk->store(request.state().snapshot());
  }
  options.logits = LogitsWanted::last;
  options.progress = nullptr;
  return {request.prefill(std::span(ids).last(1), options), cached};
}

void run(const RunOptions& o) {
  validate(o.sampling);
  const int given = !o.prompt.empty() + !o.prompt_file.empty() + !o.ids.empty() + !o.ids_file.empty();
  if (given != 1)
    fail(ErrorKind::invalid_argument,
         "give the prompt once: -p TEXT, --prompt-file FILE (- for standard input), --ids or --ids-file");
  const bool by_ids = !o.ids.empty() || !o.ids_file.empty();
  if (by_ids && o.chat) fail(ErrorKind::invalid_argument, "--chat needs a prompt of text, not of ids");
  if (by_ids && !o.stops.empty()) fail(ErrorKind::invalid_argument, "--stop needs a prompt of text, not of ids");
  if (!o.chat && (!o.system.empty() || o.thinking))
    fail(ErrorKind::invalid_argument, "{} needs --chat", o.thinking ? "--think" : "--system");
  for (const std::string& stop : o.stops)
    if (stop.empty()) fail(ErrorKind::invalid_argument, "--stop is empty; give the text that ends the answer");

  const Clock::time_point load_start = Clock::now();
  LoadedModel loaded(o.model);
  std::optional<text::Tokenizer> tokenizer;
  text::OutputParser::Start start;
  std::vector<int32_t> ids;
  if (by_ids) {
    ids = o.ids_file.empty() ? parse_ids(o.ids, "--ids") : read_ids(o.ids_file);
  } else {
    tokenizer.emplace(loaded.tokenizer());
    ids = render(o, *tokenizer, o.prompt_file.empty() ? o.prompt : read_text(o.prompt_file), start);
  }
  const double load_seconds = seconds_since(load_start);
  std::signal(SIGINT, [](int) { interrupted = 1; });
  const SingleRequest::PromptOptions prompt_options = o.prefill.prompt();
  fmt::print(stderr, "hadal: {}, prefill {}, temperature {}, seed {}, {} prompt tokens, loaded in {:.2f} s\n",
             loaded.describe(), to_string(prompt_options.mode), o.sampling.temperature, o.sampling.seed, ids.size(),
             load_seconds);

  Request asked;
  asked.sampling = o.sampling;
  asked.speculate = parse_speculate(o.speculate, *loaded.model);
  const V41Config& config = loaded.model->config();
  const int64_t capacity = std::min(static_cast<int64_t>(ids.size()) + o.max_tokens, config.max_position_embeddings);
  SingleRequest request(*loaded.model, capacity);
  std::optional<DiskCache> disk;
  if (!o.disk.directory.empty()) {
    if (prompt_options.mode == PrefillMode::bounded)
      fail(ErrorKind::invalid_argument, "--prefix-cache-dir needs --prefill exact or full, got bounded");
    CachePools& pools = request.state().pools();
    disk.emplace(
        pools, o.disk.directory,
        cache_identity(loaded.checkpoint, loaded.backend, *loaded.context, pools.layout(), prompt_options.mode),
        o.disk.limit(), [] {});
  }
  Writer writer(o, tokenizer ? &*tokenizer : nullptr, start);
  const Clock::time_point prefill_start = Clock::now();
  Progress progress("prefill", ids.size(), "tokens");
  SingleRequest::PromptOptions prompt = prompt_options;
  prompt.progress = [&, before = int64_t{0}](int64_t done) mutable {
    progress.advance(static_cast<uint64_t>(done - std::exchange(before, done)));
    if (interrupted != 0) throw Interrupted{fmt::format("interrupted after {} of {} prompt tokens", done, ids.size())};
  };
  auto [logits, cached] = prefill(request, ids, prompt, disk ? &*disk : nullptr);
  progress.finish();
  const double prefill_seconds = seconds_since(prefill_start);
  loaded.say_huge_pages();

  const Clock::time_point decode_start = Clock::now();
  asked.prompt = ids;
  asked.max_tokens = o.max_tokens;
  asked.ignore_eos = o.ignore_eos;
  Generation answer(request, asked, capacity, std::move(logits));
  const char* finish = nullptr;
  while (finish == nullptr) {
    const std::vector<int32_t> next = answer.next();
    if (next.empty()) finish = "length";
    for (const int32_t id : next)
      if (finish == nullptr && !writer.push(id)) finish = "stop";
    if (answer.stopped()) finish = "stop";
    if (interrupted != 0 && finish == nullptr) finish = "interrupted";
  }
  writer.finish();
  if (disk && request.state().length() > std::ssize(ids)) disk->store(request.state().snapshot());
  const double decode_seconds = seconds_since(decode_start);
  const size_t made = writer.ids().size();
  if (o.json) {
    std::string list;
    for (const int32_t id : writer.ids()) list += fmt::format("{}{}", list.empty() ? "" : ",", id);
    std::string answer_text, reasoning;
    text::append_json_string(writer.text(), answer_text);
    text::append_json_string(writer.reasoning(), reasoning);
    fmt::print(
        "{{\"text\":{},\"reasoning\":{},\"ids\":[{}],\"finish_reason\":\"{}\",\"prompt_tokens\":{},"
        "\"cached_tokens\":{},\"completion_tokens\":{},\"load_s\":{:.4f},\"prefill_s\":{:.4f},\"decode_s\":{:.4f},"
        "\"decode_steps\":{},"
        "\"drafted\":[{}],\"accepted\":[{}]}}\n",
        answer_text, reasoning, list, finish, ids.size(), cached, made, load_seconds, prefill_seconds, decode_seconds,
        answer.stats().steps, fmt::join(answer.stats().drafted, ","), fmt::join(answer.stats().accepted, ","));
  }
  loaded.say_huge_pages();
  if (cached > 0) fmt::print(stderr, "hadal: {} of {} prompt tokens came from the disk\n", cached, ids.size());
  fmt::print(stderr, "hadal: first token after {:.3f} s ({:.1f} prompt tokens/s), {} tokens at {:.1f} tokens/s, {}\n",
             prefill_seconds, static_cast<double>(ids.size()) / prefill_seconds, made,
             decode_seconds > 0 ? static_cast<double>(made) / decode_seconds : 0.0, finish);
  print_drafts(answer.stats(), static_cast<int64_t>(made));
  if (interrupted != 0) throw Interrupted{fmt::format("interrupted after {} tokens of the answer", made)};
}

}  // namespace

void add_run(CLI::App& app) {
  auto o = std::make_shared<RunOptions>();
  CLI::App* c = app.add_subcommand("run", "Continue a prompt, or answer it with --chat");
  o->model.add_to(*c, false);
  c->add_option("-p,--prompt", o->prompt, "The prompt");
  c->add_option("--prompt-file", o->prompt_file, "Read the prompt from a file; - for standard input");
  c->add_option("--ids", o->ids, "Prompt as token ids: 0,17,4242; the answer is printed as ids");
  c->add_option("--ids-file", o->ids_file, "File of token ids (text or int32 .npy; - for standard input)");
  CLI::Option* chat = c->add_flag("--chat", o->chat, "The prompt is a user's message in the model's chat format");
  c->add_flag("--raw", o->raw, "The prompt is text to continue (default)")->excludes(chat);
  c->add_option("--system", o->system, "With --chat: the system message");
  c->add_flag("--think", o->thinking, "With --chat: let the model reason first");
  c->add_option("--effort", o->effort, "With --think: reasoning effort")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  c->add_option("-n,--max-tokens", o->max_tokens, "Most tokens to generate")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  c->add_option("--temperature", o->sampling.temperature, "0 = always the most likely token")->capture_default_str();
  c->add_option("--top-p", o->sampling.top_p, "Keep the most likely tokens that hold this probability")
      ->capture_default_str();
  c->add_option("--top-k", o->sampling.top_k, "Keep this many of the most likely tokens; 0 = all")
      ->capture_default_str();
  c->add_option("--min-p", o->sampling.min_p, "Drop tokens below this share of the most likely one")
      ->capture_default_str();
  c->add_option("--seed", o->sampling.seed, "The same seed gives the same tokens")->capture_default_str();
  c->add_option("--stop", o->stops, "Text that ends the answer; may be given several times")->expected(1)->take_all();
  c->add_flag("--ignore-eos", o->ignore_eos, "Do not stop at the end-of-sequence token");
  c->add_option("--speculate", o->speculate,
                "Drafts that one step verifies: off, auto (as many as pay), or a number; the tokens are the same")
      ->capture_default_str();
  c->add_flag("--json", o->json, "Print one JSON object at the end instead of streaming");
  o->prefill.add_to(*c);
  o->disk.add_to(*c);
  c->callback([o] { run(*o); });
}

}  // namespace hadal

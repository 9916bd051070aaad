// hadal chat: a conversation on the terminal, or of lines from a pipe.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "answer_writer.h"
#include "base/error.h"
#include "base/progress.h"
#include "commands.h"
#include "conversation.h"
#include "engine/generation.h"
#include "line_reader.h"
#include "model_options.h"
#include "prompt_cache.h"

namespace hadal {
namespace {

using text::ChatMessage;
using text::Role;
using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct ChatOptions {
  ModelOptions model;
  PrefillOptions prefill;
  std::string load, tools, history, system;
  std::string speculate = "auto";
  int64_t context = 16384;
  std::vector<std::pair<std::string, CLI::Option*>> settings;  // by the names of chat_settings()
  CLI::Option* system_option = nullptr;
};

constexpr const char* kHelp = R"(/help                this list
/reset               forget the conversation (the system message stays)
/system [TEXT]       show or replace the system message; - removes it
/think [on|off|N]    reason before the answer, with effort N (1 to 100)
/retry               answer the last question again, with the next seed
/undo                take back the last question and its answer
/set [NAME [VALUE]]  show or change a setting (temperature, top-p, seed, ...)
/save [FILE]         write the conversation to a file
/load FILE           go on with a saved conversation
/show                show the conversation
/quit                end; so does Ctrl-D
A line of """ begins a message of several lines, another one ends it. A message that begins with a slash begins with two.
Ctrl-C stops the answer; what was written so far stays in the conversation.
)";

class Chat {
 public:
  explicit Chat(const ChatOptions& o)
      : reader_(o.history),
        loaded_(o.model),
        tokenizer_(loaded_.tokenizer()),
        speculate_(parse_speculate(o.speculate, *loaded_.model)),
        cache_(*loaded_.model, std::min(o.context, loaded_.model->config().max_position_embeddings),
               o.prefill.prompt()) {
    if (!o.load.empty()) load(o.load);
    // What the command line says counts more than what the file says.
    for (const auto& [name, option] : o.settings)
      if (option->count() > 0) change(talk_.settings, name, name == "think" ? "on" : option->results().back());
    if (o.system_option->count() > 0) talk_.system = o.system;
    if (!o.tools.empty()) talk_.tools = load_tools(o.tools);
    fmt::print(stderr, "hadal: {}, context {} tokens, prefill {}{}\n", loaded_.describe(), cache_.context(),
               to_string(o.prefill.prompt().mode), reader_.terminal() ? "; /help lists the commands" : "");
  }

  void run() {
    // A conversation that was saved while a tool was to answer goes on there.
    if (!talk_.open_calls().empty()) guarded([&] { return answer_and_tools(); });
    bool leaving = false;
    for (std::string line; !done_;) {
      const LineReader::Result result = reader_.read("> ", line);
      if (result == LineReader::Result::end) break;
      if (result == LineReader::Result::interrupted) {
        if (std::exchange(leaving, true)) break;
        fmt::print(stderr, "hadal: Ctrl-C again, Ctrl-D or /quit ends the chat\n");
        continue;
      }
      leaving = false;
      guarded([&] { return take(line); });
    }
  }

 private:
  // A mistake ends what was asked for, not the chat.
  template <typename F>
  void guarded(F action) {
    try {
      action();
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::internal) throw;
      fmt::print(stderr, "hadal: error: {}\n", error.what());
    } catch (const Interrupted& interrupted) { say(interrupted.message); }
  }

  void take(const std::string& line) {
    if (line == "\"\"\"") return take_block();
    if (line.starts_with("//")) return ask(line.substr(1));
    if (line.starts_with("/")) return command(line);
    if (line.find_first_not_of(" \t") != std::string::npos) ask(line);
  }

  void take_block() {
    std::string message, line;
    for (;;) {
      const LineReader::Result result = reader_.read("| ", line);
      if (result == LineReader::Result::interrupted) return;
      if (result == LineReader::Result::end || line == "\"\"\"") break;
      message += (message.empty() ? "" : "\n") + line;
    }
    if (!message.empty()) ask(message);
  }

  void command(const std::string& line) {
    const size_t blank = std::min(line.find(' '), line.size());
    const std::string name = line.substr(0, blank);
    const size_t begin = std::min(line.find_first_not_of(' ', blank), line.size());
    const std::string rest = line.substr(begin, line.find_last_not_of(' ') + 1 - begin);
    if (name == "/help") {
      fmt::print("{}", kHelp);
    } else if (name == "/quit" || name == "/exit") {
      done_ = true;
    } else if (name == "/reset") {
      talk_.messages.clear();
      say("the conversation is empty");
    } else if (name == "/system") {
      if (!rest.empty()) talk_.system = rest == "-" ? "" : rest;
      say(talk_.system.empty() ? "no system message" : "system message: " + talk_.system);
    } else if (name == "/think") {
      think(rest);
    } else if (name == "/set") {
      set(rest);
    } else if (name == "/save") {
      if (rest.empty() && file_.empty()) fail(ErrorKind::invalid_argument, "/save needs the name of a file");
      if (!rest.empty()) file_ = rest;
      talk_.save(file_);
      say(fmt::format("{} messages saved to {}", talk_.messages.size(), file_));
    } else if (name == "/load") {
      if (rest.empty()) fail(ErrorKind::invalid_argument, "/load needs the name of a file");
      load(rest);
      if (!talk_.open_calls().empty()) answer_and_tools();
    } else if (name == "/retry") {
      retry();
    } else if (name == "/undo") {
      say(talk_.drop_turn() ? fmt::format("{} messages are left", talk_.messages.size())
                            : "there is no question to take back");
    } else if (name == "/show") {
      show();
    } else {
      fail(ErrorKind::invalid_argument, "there is no command {}; /help lists them", name);
    }
  }

  void say(const std::string& message) { fmt::print(stderr, "hadal: {}\n", message); }

  void think(const std::string& what) {
    ChatSettings changed = talk_.settings;
    if (what.empty()) {
      changed.thinking = !changed.thinking;
    } else if (what == "on" || what == "off") {
      change(changed, "think", what);
    } else {
      change(changed, "effort", what);
      changed.thinking = true;
    }
    talk_.settings = changed;
    say(changed.thinking ? fmt::format("thinks first, effort {}", changed.effort) : "answers without thinking");
  }

  void set(const std::string& what) {
    const size_t blank = what.find(' ');
    const std::string name = what.substr(0, blank);
    if (blank != std::string::npos) change(talk_.settings, name, what.substr(what.find_first_not_of(' ', blank)));
    bool shown = false;
    for (const ChatSetting& setting : chat_settings()) {
      if (!name.empty() && name != setting.name) continue;
      say(fmt::format("{:<12}{:<10}{}", setting.name, setting.get(talk_.settings), setting.what));
      shown = true;
    }
    if (!shown) fail(ErrorKind::invalid_argument, "there is no setting '{}'; /set shows all", name);
  }

  void load(const std::string& file) {
    Conversation read = Conversation::load(file);
    if (read.tools.empty()) read.tools = talk_.tools;
    talk_ = std::move(read);
    file_ = file;
    say(fmt::format("{} messages loaded from {}", talk_.messages.size(), file));
  }

  void show() {
    if (!talk_.system.empty()) fmt::print("[system] {}\n", talk_.system);
    for (const ChatMessage& m : talk_.messages) {
      const char* who = m.role == Role::user     ? "user"
                        : m.role == Role::tool   ? "tool"
                        : m.role == Role::system ? "system"
                                                 : "assistant";
      fmt::print("[{}] {}\n", who, m.content);
      for (const text::ToolCall& call : m.tool_calls)
        fmt::print("[call {}] {} {}\n", call.id, call.name, call.arguments);
    }
    std::fflush(stdout);
  }

  void ask(const std::string& message) {
    if (!talk_.open_calls().empty())
      fail(ErrorKind::invalid_argument, "a tool's result is still open; /undo takes the question back");
    const size_t before = talk_.messages.size();
    talk_.messages.emplace_back().content = message;
    take_back_if_unanswered(before);
  }

  void retry() {
    if (!talk_.drop_answer()) fail(ErrorKind::invalid_argument, "there is no question to answer again");
    if (talk_.settings.sampling.temperature > 0) {
      ++talk_.settings.sampling.seed;
      say(fmt::format("seed {}", talk_.settings.sampling.seed));
    }
    take_back_if_unanswered(talk_.messages.size() - 1);
  }

  // A question without any answer would run into the next one.
  void take_back_if_unanswered(size_t before) {
    try {
      answer_and_tools();
    } catch (...) {
      if (talk_.messages.size() == before + 1) talk_.messages.pop_back();
      throw;
    }
  }

  void answer_and_tools() {
    for (;;) {
      for (const text::ToolCall& call : talk_.open_calls()) {
        ChatMessage result;
        result.role = Role::tool;
        result.tool_call_id = call.id;
        fmt::print(stderr, "hadal: result of {}({})?\n", call.name, call.arguments);
        if (reader_.read(call.name + "= ", result.content) != LineReader::Result::line) {
          say("the result stays open; /retry and /undo go back");
          return;
        }
        talk_.messages.push_back(std::move(result));
      }
      if (!answer()) return;
    }
  }

  // True when the answer calls tools.
  bool answer() {
    const text::Prompt prompt = talk_.prompt();
    const std::vector<int32_t> ids = tokenizer_.encode(prompt);
    if (static_cast<int64_t>(ids.size()) >= cache_.context()) context_full(static_cast<int64_t>(ids.size()));
    LineReader::clear_interrupt();

    const Clock::time_point prefill_start = Clock::now();
    PromptCache::Prompt read;
    {
      Progress progress("prefill", ids.size(), "tokens");
      read = cache_.prefill(ids, [&, before = int64_t{0}](int64_t done) mutable {
        progress.advance(static_cast<uint64_t>(done - std::exchange(before, done)));
        if (LineReader::interrupted()) throw Interrupted{"interrupted before the answer began"};
      });
    }
    const double prefill_seconds = seconds_since(prefill_start);
    loaded_.say_huge_pages();

    const Clock::time_point decode_start = Clock::now();
    AnswerWriter writer(tokenizer_, text::OutputParser::start_of(prompt), talk_.tools,
                        reader_.terminal() && ::isatty(STDOUT_FILENO) != 0);
    const auto [made, finish] = generate(ids, std::move(read.logits), writer);
    const double decode_seconds = seconds_since(decode_start);
    ChatMessage message = writer.finish(calls_made());
    const bool calls = !message.tool_calls.empty() && std::string_view(finish) == "stop";
    if (!calls) message.tool_calls.clear();
    talk_.messages.push_back(std::move(message));
    fmt::print(stderr,
               "hadal: prompt {} tokens: {} cached, {} computed in {:.3f} s; answer {} tokens at {:.1f} tokens/s, {}\n",
               ids.size(), read.cached, read.computed, prefill_seconds, made,
               decode_seconds > 0 ? static_cast<double>(made) / decode_seconds : 0.0, finish);
    loaded_.say_huge_pages();
    if (std::string_view(finish) == "context full")
      say(fmt::format("the answer was cut off at {} tokens; {}", cache_.context(), remedy()));
    return calls;
  }

  std::pair<int, const char*> generate(const std::vector<int32_t>& ids, std::vector<float> logits,
                                       AnswerWriter& writer) {
    Request asked;
    asked.prompt = ids;
    asked.sampling = talk_.settings.sampling;
    asked.max_tokens = talk_.settings.max_tokens;
    asked.speculate = speculate_;
    Generation answer(cache_.request(), asked, cache_.context(), std::move(logits));
    for (int n = 0;;) {
      const std::vector<int32_t> next = answer.next();
      for (const int32_t id : next) writer.push(id);
      n += static_cast<int>(next.size());
      if (answer.stopped()) return {n, "stop"};
      if (LineReader::interrupted()) return {n, "interrupted"};
      if (next.empty()) return {n, n == talk_.settings.max_tokens ? "length" : "context full"};
    }
  }

  int calls_made() const {
    size_t n = 0;
    for (const ChatMessage& m : talk_.messages) n += m.tool_calls.size();
    return static_cast<int>(n);
  }

  std::string remedy() const {
    const int64_t most = loaded_.model->config().max_position_embeddings;
    std::string text = "/undo and /reset make room";
    if (most > cache_.context())
      text += fmt::format(", or /save, and start again with --load and a larger --context (the model takes {})", most);
    return text;
  }

  [[noreturn]] void context_full(int64_t tokens) {
    fail(ErrorKind::invalid_argument,
         "the conversation has {} tokens and leaves no room for an answer in a context of {}; {}", tokens,
         cache_.context(), remedy());
  }

  LineReader reader_;
  LoadedModel loaded_;
  text::Tokenizer tokenizer_;
  int speculate_;
  PromptCache cache_;
  Conversation talk_;
  std::string file_;  // of the last /load or /save
  bool done_ = false;
};

}  // namespace

void add_chat(CLI::App& app) {
  auto o = std::make_shared<ChatOptions>();
  CLI::App* c = app.add_subcommand("chat", "Talk with a model; /help there lists the commands");
  o->model.add_to(*c, false);
  o->system_option = c->add_option("--system", o->system, "The system message");
  c->add_option("--load", o->load, "Go on with a saved conversation; other options count more than what it says");
  c->add_option("--tools", o->tools,
                "File with a list of function objects that the model may call; you give the results");
  c->add_option("--context", o->context, "Most tokens of the conversation; at most the model's context")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 30))
      ->capture_default_str();
  c->add_option("--speculate", o->speculate,
                "Drafts that one step verifies: off, auto (as many as pay), or a number; the tokens are the same")
      ->capture_default_str();
  c->add_option("--history", o->history, "File that keeps the lines you typed from one chat to the next");
  const ChatSettings defaults;
  for (const ChatSetting& setting : chat_settings()) {
    const std::string name = setting.name;
    const std::string flags = (name == "max-tokens" ? "-n,--" : "--") + name;
    std::string what = setting.what;
    what[0] = static_cast<char>(std::toupper(what[0]));
    // The text goes into description(): add_option would take a string for the variable to fill.
    CLI::Option* option =
        name == "think"
            ? c->add_flag(flags)->description("Reason before the answer")
            : c->add_option(flags)->description(what)->type_name("VALUE")->default_str(setting.get(defaults));
    o->settings.emplace_back(name, option);
  }
  o->prefill.add_to(*c);
  c->callback([o] { Chat(*o).run(); });
}

}  // namespace hadal

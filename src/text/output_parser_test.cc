#include "text/output_parser.h"

#include "text/prompt_v41.h"
#include "text/test_support.h"

namespace hadal::text {

std::ostream& operator<<(std::ostream& out, const OutputEvent& e) {
  return out << "{kind " << e.kind << " call " << e.call << " \"" << e.text << "\"" << (e.complete ? "" : " cut off")
             << "}";
}
bool operator==(const OutputEvent& a, const OutputEvent& b) {
  return a.kind == b.kind && a.call == b.call && a.text == b.text && a.complete == b.complete;
}

namespace {

using Events = std::vector<OutputEvent>;

// Feeds `output` in the given pieces; every piece's events arrive in a vector of their own, as in a server.
class Feeder {
 public:
  explicit Feeder(OutputParser::Start start, const OutputParser::Options& options = {}) : parser_(start, options) {}
  void text(std::string_view piece) {
    Events now;
    parser_.feed_text(piece, now);
    add(now);
  }
  void token(const TokenPiece& piece) {
    Events now;
    parser_.feed(piece, now);
    add(now);
  }
  Events finish() {
    Events now;
    parser_.finish(now);
    add(now);
    return std::move(all_);
  }

 private:
  void add(Events& now) {
    for (OutputEvent& e : now) {
      EXPECT_EQ(valid_utf8_prefix(e.text), e.text.size());
      const bool joins = e.kind != OutputEvent::call_begin && e.kind != OutputEvent::call_end;
      if (joins && !all_.empty() && all_.back().kind == e.kind && all_.back().call == e.call)
        all_.back().text += e.text;
      else
        all_.push_back(std::move(e));
    }
  }
  OutputParser parser_;
  Events all_;
};

struct Result {
  std::string reasoning, content;
  std::vector<std::pair<std::string, std::string>> calls;
  bool complete = true;
};

Result result_of(const Events& events) {
  Result r;
  for (const OutputEvent& e : events) {
    switch (e.kind) {
      case OutputEvent::reasoning: r.reasoning += e.text; break;
      case OutputEvent::content: r.content += e.text; break;
      case OutputEvent::call_begin: r.calls.emplace_back(e.text, ""); break;
      case OutputEvent::call_arguments: r.calls.at(static_cast<std::size_t>(e.call)).second += e.text; break;
      case OutputEvent::call_end: r.complete &= e.complete; break;
    }
  }
  return r;
}

const OutputParser::Start kThinking{true, false, true}, kChat{false, false, true}, kCalls{false, true, true};

Events parse_whole(std::string_view output, OutputParser::Start start, const OutputParser::Options& options = {}) {
  Feeder feeder(start, options);
  feeder.text(output);
  return feeder.finish();
}

Result parse(std::string_view output, OutputParser::Start start = kThinking) {
  return result_of(parse_whole(output, start));
}

Events parse_bytes(std::string_view output, OutputParser::Start start) {
  Feeder feeder(start);
  for (std::size_t i = 0; i < output.size(); ++i) feeder.text(output.substr(i, 1));
  return feeder.finish();
}

Events parse_tokens(std::string_view output, OutputParser::Start start) {
  Feeder feeder(start);
  Detokenizer detokenizer(small_tokenizer());
  std::vector<TokenPiece> pieces;
  for (const TokenId id : small_tokenizer().encode_with_special(output)) detokenizer.push(id, pieces);
  detokenizer.finish(pieces);
  for (const TokenPiece& piece : pieces) feeder.token(piece);
  return feeder.finish();
}

// Row 1 and 74 of the field reports: the result must be the same for every split.
void expect_same_for_all_splits(std::string_view output, OutputParser::Start start) {
  const Events whole = parse_whole(output, start);
  EXPECT_EQ(parse_bytes(output, start), whole) << output;
  EXPECT_EQ(parse_tokens(output, start), whole) << output;
  for (std::size_t cut = 1; cut < output.size(); ++cut) {
    Feeder feeder(start);
    feeder.text(output.substr(0, cut));
    feeder.text(output.substr(cut));
    const Events events = feeder.finish();
    ASSERT_EQ(events, whole) << output << "\ncut at " << cut;
  }
}

OutputParser::Start start_of(const Json& row) {
  return {*row.find("thinking")->as_bool(), *row.find("in_calls")->as_bool(), true};
}

// Goldens made with the official parser (tools/oracle-text/make_outputs.py).
TEST(OutputParser, EqualsTheOfficialParser) {
  for (const Json& row : read_json_lines("outputs.jsonl")) {
    const std::string output = string_at(row, "output");
    const Result r = parse(output, start_of(row));
    EXPECT_EQ(r.reasoning, string_at(row, "reasoning")) << output;
    EXPECT_EQ(r.content, string_at(row, "content")) << output;
    std::vector<std::pair<std::string, std::string>> calls;
    for (const Json& call : *row.find("calls")->as_array())
      calls.emplace_back(*(*call.as_array())[0].as_string(), *(*call.as_array())[1].as_string());
    EXPECT_EQ(r.calls, calls) << output;
  }
}

TEST(OutputParser, SameForEverySplit) {
  for (const Json& row : read_json_lines("outputs.jsonl"))
    expect_same_for_all_splits(string_at(row, "output"), start_of(row));
}

// Random damage to real outputs: nothing may depend on the split, and arguments stay JSON objects.
TEST(OutputParser, DamagedOutputs) {
  static const std::vector<Json> rows = read_json_lines("outputs.jsonl");
  static const std::vector<std::string> scraps = {"<",
                                                  ">",
                                                  "/",
                                                  "\n",
                                                  "\"",
                                                  " ",
                                                  "｜DSML｜",
                                                  "</｜DSML｜ parameter>",
                                                  "<｜DSML｜ calls>\n",
                                                  "</｜DSML｜ invoke>",
                                                  "</think>",
                                                  "<think>",
                                                  "<｜User｜>",
                                                  "<｜end▁of▁sentence｜>",
                                                  "｜",
                                                  "x",
                                                  "<｜DSML｜ invoke name=\"g\">\n",
                                                  "</｜DSML｜ calls",
                                                  "string=",
                                                  "<｜DSML｜ parameter name=\"p\" string=\"false\">",
                                                  "<｜DSML｜ parameter>",
                                                  "<｜DSML｜foo>",
                                                  "\xF0\x9F"};
  property("damage", [] {
    const Json& row = rows[*rc::gen::inRange<std::size_t>(0, rows.size())];
    std::string output = string_at(row, "output");
    const int damages = *rc::gen::inRange(1, 5);
    for (int i = 0; i < damages; ++i) {
      const auto at = *rc::gen::inRange<std::size_t>(0, output.size() + 1);
      switch (*rc::gen::inRange(0, 3)) {
        case 0: output.insert(at, *rc::gen::elementOf(scraps)); break;
        case 1: output.erase(at, *rc::gen::inRange<std::size_t>(1, 30)); break;
        default: output.resize(at);
      }
    }
    const OutputParser::Start start = start_of(row);
    const Events whole = parse_whole(output, start);
    RC_ASSERT(parse_bytes(output, start) == whole);
    RC_ASSERT(parse_tokens(output, start) == whole);
    for (int i = 0; i < 20; ++i) {
      Feeder feeder(start);
      for (std::size_t at = 0; at < output.size();) {
        const auto n = *rc::gen::inRange<std::size_t>(1, 20);
        feeder.text(std::string_view(output).substr(at, n));
        at += n;
      }
      RC_ASSERT(feeder.finish() == whole);
    }
    int begun = 0, done = 0;
    for (const OutputEvent& e : whole) {
      begun += e.kind == OutputEvent::call_begin;
      done += e.kind == OutputEvent::call_end;
    }
    RC_ASSERT(begun == done);
    for (const auto& [name, arguments] : result_of(whole).calls) {
      RC_ASSERT(!name.empty());
      const auto parsed = Json::try_parse(arguments);
      RC_ASSERT(parsed.has_value());
      RC_ASSERT(parsed->as_object() != nullptr);
    }
  });
}

std::string parameter(const std::string& name, const std::string& value, bool text = true) {
  return "<｜DSML｜ parameter name=\"" + name + "\" string=\"" + (text ? "true" : "false") + "\">" + value +
         "</｜DSML｜ parameter>\n";
}
std::string invoke(const std::string& name, const std::string& parameters) {
  return "<｜DSML｜ invoke name=\"" + name + "\">\n" + parameters + "</｜DSML｜ invoke>\n";
}
std::string block(const std::string& invokes) { return "\n\n<｜DSML｜ calls>\n" + invokes + "</｜DSML｜ calls>"; }

std::string arguments_of(const std::string& output) {
  expect_same_for_all_splits(output, kThinking);
  const Result r = parse(output);
  return r.calls.size() == 1 ? r.calls[0].second : "calls: " + std::to_string(r.calls.size());
}

// What a history renders must read back as it was.
TEST(OutputParser, ReadsWhatTheEncoderWrites) {
  property("calls round trip", [] {
    ChatMessage answer;
    answer.role = Role::assistant;
    answer.content = *rc::gen::suchThat(any_text(), [](const std::string& s) {
      return !s.starts_with("\n") && !s.ends_with("\n") && s.find("think>") == s.npos && s.find("<｜User") == s.npos &&
             s.find("｜DSML｜") == s.npos;
    });
    Json::Object members;
    const std::string text =
        *rc::gen::suchThat(any_text(), [](const std::string& s) { return s.find("｜") == s.npos; });
    members.emplace_back("text", Json(text));
    members.emplace_back("list", Json(Json::Array{Json(1), Json(text), Json(true), Json()}));
    answer.tool_calls = {{"1", "f", Json(members).dump()}, {"2", "g", "{}"}};
    PromptOptions options;
    options.thinking = false;
    options.generate = false;
    const Prompt prompt = encode_prompt_v41({answer}, options);
    const std::string all = prompt.to_string();
    const std::string opening = "<｜Assistant｜></think>";
    const std::string output = all.substr(all.find(opening) + opening.size());
    const Result r = result_of(parse_tokens(output, kChat));
    RC_ASSERT(r.content == answer.content);
    RC_ASSERT(r.calls.size() == 2u);
    RC_ASSERT(r.calls[0].second == Json(members).dump());
    RC_ASSERT(r.calls[1].second == "{}");
  });
}

// Rows 2 and 5: the value is exactly the text, also when it ends in '>' or shares letters with the markup.
TEST(OutputParser, ValuesAreExact) {
  EXPECT_EQ(arguments_of("r</think>" + block(invoke("bash", parameter("c", "make 2>&1")))), R"({"c": "make 2>&1"})");
  EXPECT_EQ(arguments_of("r</think>" + block(invoke("bash", parameter("c", "find /tmp")))), R"({"c": "find /tmp"})");
  EXPECT_EQ(arguments_of("r</think>" + block(invoke("f", parameter("c", "\n a </b> \"\\ </｜DSML｜ other>\n")))),
            R"({"c": "\n a </b> \"\\ </｜DSML｜ other>\n"})");
  EXPECT_EQ(arguments_of("r</think>" + block(invoke("f", parameter("c", "")))), R"({"c": ""})");
  EXPECT_EQ(arguments_of("r</think>" + block(invoke("f", parameter("c", "<think>x</think><｜User｜>")))),
            R"({"c": "<think>x</think><｜User｜>"})");
}

// Rows 7 and 8: string="false" gives JSON types, string="true" text; what is not JSON becomes a string.
TEST(OutputParser, TypedValues) {
  const auto value = [](const std::string& text, bool is_text) {
    const std::string all = arguments_of("r</think>" + block(invoke("f", parameter("v", text, is_text))));
    return all.substr(6, all.size() - 7);
  };
  for (const char* json :
       {"true", "null", "-1.5e3", "[1,  2]", R"({"a": [{}]})", "\"s\"", "123456789012345678901234567890"})
    EXPECT_EQ(value(json, false), json);
  EXPECT_EQ(value("true", true), "\"true\"");
  EXPECT_EQ(value("12", true), "\"12\"");
  EXPECT_EQ(value(" 5\n", false), "5");
  EXPECT_EQ(value("hello", false), "\"hello\"");
  EXPECT_EQ(value("[1, 2", false), "\"[1, 2\"");
  EXPECT_EQ(value("NaN", false), "\"NaN\"");
  EXPECT_EQ(value("", false), "\"\"");
}

// Rows 10 and 11: a model that saw wrapped arguments wraps its own.
TEST(OutputParser, WrappedArguments) {
  const auto call = [](const std::string& parameters) { return "r</think>" + block(invoke("f", parameters)); };
  EXPECT_EQ(arguments_of(call(parameter("arguments", R"({"a": 1})", false))), R"({"a": 1})");
  EXPECT_EQ(arguments_of(call(parameter("arguments", R"({"a": 1})", true))), R"({"a": 1})");
  EXPECT_EQ(arguments_of(call(parameter("arguments", "text", true))), R"({"arguments": "text"})");
  EXPECT_EQ(arguments_of(call(parameter("arguments", "[1]", false))), R"({"arguments": [1]})");
  EXPECT_EQ(arguments_of(call(parameter("arguments", "{}", false) + parameter("b", "x"))),
            R"({"arguments": {}, "b": "x"})");
  OutputParser::Options options;
  options.tools = {Json::parse(R"({"name": "f", "parameters": {"properties": {"arguments": {}}}})")};
  const Result r = result_of(parse_whole(call(parameter("arguments", "{}", false)), kThinking, options));
  EXPECT_EQ(r.calls.at(0).second, R"({"arguments": {}})");
}

// Rows 3 and 4: malformed closers lose nothing and leak nothing.
TEST(OutputParser, MalformedClosers) {
  const std::string want = R"({"a": "1", "b": 2})";
  const std::string good = block(invoke("f", parameter("a", "1") + parameter("b", "2", false)));
  const auto without = [&](const std::string& part, const std::string& instead = "") {
    std::string text = good;
    for (std::size_t at; (at = text.find(part)) != std::string::npos && part != instead;)
      text.replace(at, part.size(), instead);
    return "r</think>c" + text;
  };
  EXPECT_EQ(arguments_of(without("｜DSML｜ ", "｜DSML｜")), want);  // V4 spelling
  EXPECT_EQ(arguments_of(without("</｜DSML｜ invoke>\n")), want);
  EXPECT_EQ(arguments_of(without("</｜DSML｜ calls>")), want);
  EXPECT_EQ(arguments_of(without("\n\n<｜DSML｜ calls>\n")), want);
  EXPECT_EQ(arguments_of(without(" calls>", " tool_calls>")), want);
  EXPECT_EQ(arguments_of("r</think>c" +
                         block(invoke("f", "<｜DSML｜ parameter name=\"a\" string=\"true\">1</｜DSML｜ parameter\n"))),
            R"({"a": "1"})");
  EXPECT_EQ(
      arguments_of(
          "r</think>c" +
          block(
              "<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\" string=\"true\">1\n</｜DSML｜ invoke>\n")),
      R"({"a": "1\n"})");
  for (const std::string stray : {"</｜DSML｜ invoke>", "</｜DSML｜ parameter>", "</｜DSML｜ calls>", "</think>"}) {
    EXPECT_EQ(parse("r</think>a" + stray + "b").content, "ab");
    expect_same_for_all_splits("r</think>a" + stray + "b", kThinking);
  }
  // Text beside the calls is kept.
  const Result r =
      parse("r</think>c" + block(invoke("f", "") + "between" + invoke("g", "")) + "after" + block(invoke("h", "")));
  EXPECT_EQ(r.content, "cbetweenafter");
  EXPECT_EQ(r.calls.size(), 3u);
}

// The model may write about the format.
TEST(OutputParser, MarkupAsText) {
  for (const std::string text :
       {"use a \"<｜DSML｜ calls>\" block", "the ｜DSML｜ mark", "<｜DSML｜ unknown>",
        "<｜DSML｜ invoke> without a name", "<｜DSML｜ parameter name=\"a\" string=\"true\"> alone", "a < b </ c <",
        "x <think> y"}) {
    EXPECT_EQ(parse("r</think>" + text).content, text);
    expect_same_for_all_splits("r</think>" + text, kThinking);
    expect_same_for_all_splits(text, kThinking);
  }
  EXPECT_EQ(result_of(parse_whole("a" + block(invoke("f", "")), kChat, {false, {}})).content,
            "a" + block(invoke("f", "")));
}

// An output that is cut off never shows part of a tag, and what was complete stays.
TEST(OutputParser, CutOffAnywhere) {
  const std::string output =
      "r</think>content" + block(invoke("f", parameter("a", "x y") + parameter("b", "[1, 2]", false)));
  for (std::size_t n = 0; n <= output.size(); ++n) {
    const std::string cut = output.substr(0, n);
    expect_same_for_all_splits(cut, kThinking);
    // The model cannot stop inside a control token.
    bool inside = false;
    for (const std::string_view name : {v41::dsml, v41::think_close})
      for (std::size_t k = 1; k < name.size(); ++k) inside |= cut.ends_with(name.substr(0, k)) && output[n - 1] != '<';
    if (inside) continue;
    const Result r = parse(cut);
    // The two line breaks before the block, and a last '<', may still be text.
    EXPECT_TRUE(std::string("content\n\n<").starts_with(r.content)) << r.content;
    for (const auto& call : r.calls) EXPECT_TRUE(Json::try_parse(call.second)) << call.second;
  }
  const Result r = parse(output.substr(0, output.find(" y</")));
  EXPECT_EQ(r.calls[0].second, R"({"a": "x"})");
  EXPECT_FALSE(r.complete);
  EXPECT_TRUE(parse(output).complete);
}

// Row 6: control tokens that are no markup do not appear in text, whole or in part.
TEST(OutputParser, StrayControlTokens) {
  EXPECT_EQ(parse("r<｜begin▁of▁sentence｜></think>a<｜User｜>b<｜end▁of▁sentence｜>ignored").content, "ab");
  EXPECT_EQ(parse("r<｜begin▁of▁sentence｜></think>a").reasoning, "r");
  EXPECT_EQ(parse("r</think><｜ref｜>cat<｜/ref｜>").content, "<｜ref｜>cat<｜/ref｜>");
  expect_same_for_all_splits("r<｜begin▁of▁sentence｜></think>a<｜User｜>b<｜ref｜>c<｜end▁of▁sentence｜>x", kThinking);
}

// With tokens, only tokens are markup; with plain text the spelling decides.
TEST(OutputParser, TokensDecideWhatIsMarkup) {
  Feeder feeder(kThinking);
  feeder.token({"say </think> or <｜DSML｜ calls>", false});
  feeder.token({"</think>", true});
  feeder.token({"done", false});
  const Result r = result_of(feeder.finish());
  EXPECT_EQ(r.reasoning, "say </think> or <｜DSML｜ calls>");
  EXPECT_EQ(r.content, "done");
}

// Rows 14, 15 and 17: the start state follows the prompt; reasoning ends at </think> though no <think> was seen; calls
// and text are both possible afterwards.
TEST(OutputParser, StartFollowsThePrompt) {
  ChatMessage user;
  user.content = "<think>";
  PromptOptions options;
  const auto start = [&](const std::vector<ChatMessage>& messages) {
    return OutputParser::start_of(encode_prompt_v41(messages, options));
  };
  EXPECT_TRUE(start({user}).reasoning);
  EXPECT_TRUE(start({user}).fresh);
  ChatMessage prefix;
  prefix.role = Role::assistant;
  prefix.prefix = true;
  prefix.reasoning = "so far";
  EXPECT_TRUE(start({user, prefix}).reasoning);
  EXPECT_FALSE(start({user, prefix}).fresh);
  prefix.content = "answer";
  EXPECT_FALSE(start({user, prefix}).reasoning);
  EXPECT_FALSE(start({user, prefix}).fresh);
  options.thinking = false;
  EXPECT_FALSE(start({user}).reasoning);
  EXPECT_TRUE(start({user}).fresh);
  options.open_calls = true;
  EXPECT_TRUE(start({user}).calls);
  Prompt raw;
  raw.add_text("Once upon a time");
  EXPECT_FALSE(OutputParser::start_of(raw).reasoning);

  EXPECT_EQ(parse("thoughts</think>answer").reasoning, "thoughts");
  EXPECT_EQ(parse("answer", kChat).content, "answer");
  EXPECT_EQ(parse("<think>t</think>a", kChat).reasoning, "t");
  EXPECT_EQ(parse("\n\nx\n", {true, false, false}).reasoning, "\n\nx\n");
  EXPECT_EQ(parse(invoke("f", "") + "</｜DSML｜ calls>", kCalls).calls.size(), 1u);
  // Calls that begin inside the reasoning end it.
  const Result r = parse("t" + block(invoke("f", "")) + "</think>late");
  EXPECT_EQ(r.reasoning, "t");
  EXPECT_EQ(r.calls.size(), 1u);
  EXPECT_EQ(r.content, "late");
}

}  // namespace
}  // namespace hadal::text

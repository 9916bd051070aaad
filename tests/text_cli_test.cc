// Commands that speak text, with the embedded model: hadal chat as a program at the end of a pipe, hadal verify, hadal run --chat.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace hadal {
namespace {

namespace fs = std::filesystem;

const fs::path kTiny = fs::path(HADAL_SOURCE_DIR) / "models/hadal-tiny";

std::string content(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

class TextCommands : public testing::Test {
 protected:
  TextCommands() : folder_(fs::temp_directory_path() / fmt::format("hadal-text-{}", ::getpid())) {
    fs::create_directories(folder_);
  }
  ~TextCommands() override { fs::remove_all(folder_); }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }

  struct Result {
    int status = -1;
    std::string out, err;
    // (cached, computed) prompt tokens of each answer.
    std::vector<std::pair<int, int>> prompts() const {
      std::vector<std::pair<int, int>> found;
      const std::regex line("(\\d+) cached, (\\d+) computed");
      for (std::sregex_iterator i(err.begin(), err.end(), line), end; i != end; ++i)
        found.emplace_back(std::stoi((*i)[1]), std::stoi((*i)[2]));
      return found;
    }
  };

  // Runs the binary; `while_running` may watch the output file and send signals.
  Result hadal(const std::vector<std::string>& arguments, const std::string& input = "",
               const std::function<void(pid_t, const fs::path& out)>& while_running = {}) {
    std::ofstream(file("in")) << input;
    std::ofstream(file("out")).close();
    const pid_t child = ::fork();
    if (child == 0) {
      std::vector<std::string> words{HADAL_BINARY};
      words.insert(words.end(), arguments.begin(), arguments.end());
      std::vector<char*> argv;
      for (std::string& word : words) argv.push_back(word.data());
      argv.push_back(nullptr);
      ::dup2(::open(file("in").c_str(), O_RDONLY), STDIN_FILENO);
      ::dup2(::open(file("out").c_str(), O_WRONLY | O_TRUNC), STDOUT_FILENO);
      ::dup2(::open(file("err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
      ::execv(HADAL_BINARY, argv.data());
      ::_exit(127);
    }
    if (while_running) while_running(child, file("out"));
    int status = 0;
    ::waitpid(child, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), content(file("out")),
            content(file("err"))};
  }

  Result chat(const std::string& input, std::vector<std::string> more = {"--temperature", "0"}) {
    std::vector<std::string> arguments{"chat", kTiny.string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Result r = hadal(arguments, input);
    EXPECT_EQ(r.status, 0) << r.err;
    return r;
  }

  // A copy of the embedded model in which files may be changed.
  fs::path copy_of_tiny() {
    const fs::path copy = folder_ / "model";
    fs::remove_all(copy);
    fs::create_directories(copy);
    for (const auto& entry : fs::directory_iterator(kTiny))
      if (entry.is_regular_file()) fs::copy_file(entry.path(), copy / entry.path().filename());
    for (const auto& entry : fs::directory_iterator(copy)) fs::permissions(entry.path(), fs::perms::owner_all);
    return copy;
  }

  fs::path folder_;
};

TEST_F(TextCommands, RunAnswersInTheChatFormat) {
  const std::vector<std::string> sum{"run", kTiny.string(), "--chat", "-p", "What is 12 + 7?", "--temperature", "0"};
  const Result a = hadal(sum), b = hadal(sum);
  ASSERT_EQ(a.status, 0) << a.err;
  EXPECT_NE(a.out.find("19"), std::string::npos) << a.out;
  EXPECT_EQ(a.out, b.out);
  const Result chatted = chat("What is 12 + 7?\n");
  EXPECT_EQ(chatted.out, a.out) << "chat and run give the same answer";
  const Result thought =
      hadal({"run", kTiny.string(), "--chat", "--think", "-p", "What is 12 + 7?", "--temperature", "0"});
  EXPECT_TRUE(thought.out.starts_with("<think>\n")) << thought.out;
  EXPECT_EQ(chat("What is 12 + 7?\n", {"--temperature", "0", "--think"}).out, thought.out);
}

TEST_F(TextCommands, LaterTurnsComputeOnlyWhatIsNew) {
  for (const bool think : {false, true}) {
    std::vector<std::string> options{"--temperature", "0", "--system", "You are a helpful assistant."};
    if (think) options.emplace_back("--think");
    const Result talk =
        chat("My name is Kate.\nWhat is the capital of France?\nWhat is 3 plus 4?\n/save " + file("talk.json") + "\n",
             options);
    const auto prompts = talk.prompts();
    ASSERT_EQ(prompts.size(), 3u) << talk.err;
    EXPECT_EQ(prompts[0].first, 0);
    for (size_t i : {1u, 2u}) {
      EXPECT_GT(prompts[i].first, prompts[i - 1].first) << talk.err;
      EXPECT_GE(prompts[i].first, prompts[i - 1].first + prompts[i - 1].second - 1)
          << "all of the last prompt but its think token";
      EXPECT_LT(prompts[i].second, 60) << talk.err;
    }
    // The same conversation in a fresh program: the last answer from nothing, and from what a second turn leaves.
    const Result fresh = chat("/retry\n/retry\n", {"--temperature", "0", "--load", file("talk.json")});
    ASSERT_EQ(fresh.prompts().size(), 2u) << fresh.err;
    EXPECT_EQ(fresh.prompts()[0].first, 0);
    EXPECT_EQ(fresh.prompts()[0].second, prompts[2].first + prompts[2].second);
    EXPECT_EQ(fresh.prompts()[1].second, 1) << "the prompt is the same but for its last token's logits";
    const std::string answer = fresh.out.substr(0, fresh.out.size() / 2);
    EXPECT_EQ(fresh.out, answer + answer);
    EXPECT_TRUE(talk.out.ends_with(answer)) << talk.out << "\n---\n" << answer;
  }
}

TEST_F(TextCommands, SeedsAndRetries) {
  const std::string script = "Tell me a story about a fox.\n/retry\n";
  const std::vector<std::string> options{"--seed", "5", "-n", "40"};
  const Result a = chat(script, options), b = chat(script, options), c = chat(script, {"--seed", "6", "-n", "40"});
  EXPECT_EQ(a.out, b.out);
  EXPECT_NE(a.out, c.out);
  EXPECT_NE(a.err.find("seed 6"), std::string::npos) << a.err;
  // The retry with seed 6 is the first answer of a chat with seed 6.
  const std::string second = a.out.substr(a.out.size() / 4);
  EXPECT_NE(second.find(c.out.substr(0, 60)), std::string::npos) << a.out << "\n---\n" << c.out;
}

TEST_F(TextCommands, ResetUndoSystemAndSettings) {
  const Result r = chat(
      "What is 3 plus 4?\nWhat is 5 plus 6?\n/undo\n/reset\nWhat is 3 plus 4?\n/system Be brief.\n/set temperature "
      "0.5\n/think 30\n/show\n"
      "/save " +
      file("talk.json") + "\n");
  EXPECT_NE(r.err.find("2 messages are left"), std::string::npos) << r.err;
  const std::string first = r.out.substr(0, r.out.find('\n') + 1);
  EXPECT_GE(count(r.out, first), 2u) << "the answer after /reset is the first answer: " << r.out;
  const std::string saved = content(file("talk.json"));
  for (const char* part : {"\"temperature\": \"0.5\"", "\"effort\": \"30\"", "\"think\": \"on\"",
                           "\"system\": \"Be brief.\"", "{\"role\": \"user\", \"content\": \"What is 3 plus 4?\"}"})
    EXPECT_NE(saved.find(part), std::string::npos) << part << "\n" << saved;
  EXPECT_EQ(count(saved, "\"role\""), 2u);
  // What was loaded and saved again is the same file; flags count more than what it says.
  chat("/save " + file("again.json") + "\n", {"--load", file("talk.json")});
  EXPECT_EQ(content(file("again.json")), saved);
  const Result other = chat("/set temperature\n/set effort\n", {"--load", file("talk.json"), "--temperature", "0.25"});
  EXPECT_NE(other.err.find("temperature 0.25"), std::string::npos) << other.err;
  EXPECT_NE(other.err.find("effort      30"), std::string::npos) << other.err;
}

TEST_F(TextCommands, MistakesDoNotEndTheChat) {
  std::ofstream(file("bad.json"))
      << "{\"format\": \"hadal-chat\", \"version\": 1, \"messages\": [{\"role\": \"king\"}]}";
  const Result r =
      chat("/frobnicate\n/set temperature warm\n/set top-p 0\n/set colour red\n/retry\n/load /nowhere/x.json\n/load " +
           file("bad.json") +
           "\n/save\n/save /nowhere/x.json\n\n   \n//what is 1 plus 2?\n\"\"\"\nWhat is\n2 plus 3?\n\"\"\"\n");
  for (const char* part :
       {"there is no command /frobnicate", "temperature: 'warm' is not a number", "top_p is 0",
        "there is no setting 'colour'", "there is no question to answer again", "cannot open /nowhere/x.json",
        "\"role\" is \"king\"", "/save needs the name of a file", "cannot create a file beside /nowhere/x.json"})
    EXPECT_NE(r.err.find(part), std::string::npos) << part << "\n" << r.err;
  EXPECT_EQ(r.prompts().size(), 2u) << "the two questions were answered: " << r.err;
}

TEST_F(TextCommands, ContextFull) {
  const Result r = chat(
      "What is the capital of France?\nTell me a long story about a fox.\nWhat is the capital of Spain, and who lives "
      "there?\n/undo\nWhy?\n",
      {"--temperature", "0", "--context", "40"});
  EXPECT_NE(r.err.find("context full"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("the answer was cut off at 40 tokens; /undo and /reset make room"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("leaves no room for an answer in a context of 40"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("larger --context (the model takes 8192)"), std::string::npos) << r.err;
  EXPECT_EQ(r.prompts().size(), 3u) << r.err;
}

TEST_F(TextCommands, ToolsAreCalledAndAnswered) {
  std::ofstream(file("tools.json"))
      << R"([{"type": "function", "function": {"name": "get_weather", "description": "The weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "The city"}}, "required": ["city"]}}}])";
  const Result r = chat("What is the weather in Paris?\nSunny, 21 degrees\n/save " + file("talk.json") + "\n",
                        {"--temperature", "0", "--tools", file("tools.json")});
  EXPECT_NE(r.out.find("[call] get_weather {"), std::string::npos) << r.out << r.err;
  EXPECT_NE(r.err.find("result of get_weather("), std::string::npos) << r.err;
  const std::string saved = content(file("talk.json"));
  EXPECT_NE(saved.find("\"tool_call_id\": \"call_1\"}"), std::string::npos) << saved;
  ASSERT_EQ(r.prompts().size(), 2u) << r.err;
  EXPECT_GE(r.prompts()[1].first, r.prompts()[0].second - 1) << "the result continues the state";
  // Ended while the call was open: a chat that loads it goes on there.
  const Result open = chat("What is the weather in Paris?\n", {"--temperature", "0", "--tools", file("tools.json")});
  EXPECT_EQ(open.prompts().size(), 1u) << open.err;
}

TEST_F(TextCommands, InterruptStopsTheAnswerOnly) {
  // Any token is as likely as any other: the first answer is as long as it may be, which is seconds.
  const Result r = hadal({"chat", kTiny.string(), "--seed", "1", "--temperature", "100", "-n", "4000"},
                         "Tell me a long story about a fox.\n/set temperature 0\nWhat is 3 plus 4?\n",
                         [](pid_t child, const fs::path& out) {
                           for (int i = 0; i < 6000 && fs::file_size(out) == 0; ++i) ::usleep(5000);
                           ::kill(child, SIGINT);
                         });
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.err.find(", interrupted"), std::string::npos) << r.err;
  EXPECT_EQ(r.prompts().size(), 2u) << r.err;
}

TEST_F(TextCommands, VerifyKnowsTheEmbeddedModel) {
  for (const std::string numerics : {"bf16", "fp32", "official", "fp8"}) {
    const Result r = hadal({"verify", kTiny.string(), "--numerics", numerics});
    EXPECT_EQ(r.status, 0) << r.out << r.err;
    EXPECT_EQ(count(r.out, "FAIL"), 0u) << r.out;
    EXPECT_GT(count(r.out, "pass"), 10u) << r.out;
  }
}

TEST_F(TextCommands, VerifyFindsOneFlippedByte) {
  const fs::path copy = copy_of_tiny();
  const fs::path shard = copy / "model-00002-of-00004.safetensors";
  std::fstream bytes(shard, std::ios::in | std::ios::out | std::ios::binary);
  const auto at = static_cast<std::streamoff>(fs::file_size(shard) / 2);
  bytes.seekg(at);
  const auto byte = static_cast<char>(bytes.get() ^ 0x10);
  bytes.seekp(at);
  bytes.put(byte);
  bytes.close();
  const Result r = hadal({"verify", copy.string()});
  EXPECT_EQ(r.status, 1) << r.out << r.err;
  EXPECT_NE(r.out.find("FAIL  file: model-00002-of-00004.safetensors"), std::string::npos) << r.out;
}

TEST_F(TextCommands, VerifyOfAnUnknownCheckpoint) {
  const fs::path copy = copy_of_tiny();
  fs::remove(copy / "verify.json");
  const Result r = hadal({"verify", copy.string()});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.out.find("is not known"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("pass  English"), std::string::npos) << r.out;
  const Result json = hadal({"verify", copy.string(), "--json"});
  EXPECT_NE(json.out.find("\"known\": false"), std::string::npos) << json.out;
  EXPECT_NE(json.out.find("\"passed\": true"), std::string::npos) << json.out;
}

TEST_F(TextCommands, TheEngramMapComesFromTheTokenizerWhenItIsNotThere) {
  const fs::path copy = copy_of_tiny();
  fs::remove(copy / "engram_token_map.npy");
  const std::vector<std::string> rest{"--chat", "-p", "What is the capital of France?", "--temperature", "0"};
  std::vector<std::string> with{"run", kTiny.string()}, without{"run", copy.string()};
  with.insert(with.end(), rest.begin(), rest.end());
  without.insert(without.end(), rest.begin(), rest.end());
  const Result r = hadal(without);
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.out, hadal(with).out);
}

}  // namespace
}  // namespace hadal

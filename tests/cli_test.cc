// The command line as a user meets it: what works, and one message and exit status for each mistake.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/cpu_features.h"
#include "base/npy.h"
#include "checkpoint/json.h"
#include "golden.h"

namespace hadal {
namespace {

namespace fs = std::filesystem;

struct Result {
  int status = -1;
  std::string out, err;
};

Result hadal(const std::string& arguments) {
  const fs::path err = fs::temp_directory_path() / fmt::format("hadal-cli-{}.err", ::getpid());
  const std::string command = fmt::format("'{}' {} 2>'{}'", HADAL_BINARY, arguments, err.string());
  Result r;
  FILE* pipe = ::popen(command.c_str(), "r");
  std::array<char, 4096> buffer;
  size_t n = 0;
  while ((n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0) r.out.append(buffer.data(), n);
  const int status = ::pclose(pipe);
  r.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  std::ifstream file(err);
  r.err.assign(std::istreambuf_iterator<char>(file), {});
  fs::remove(err);
  return r;
}

std::string golden(const std::string& set) { return "'" + golden_directory(set).string() + "'"; }

class Scratch {
 public:
  Scratch() : path_(fs::temp_directory_path() / fmt::format("hadal-cli-{}", ::getpid())) {
    fs::create_directories(path_);
  }
  ~Scratch() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

// Ctrl-C while the prompt runs: the status that a shell gives, and how far it came.
TEST(CommandLine, InterruptedPromptsSaySo) {
  const Scratch scratch;
  const std::string ids = scratch / "ids.txt", err = scratch / "err.txt", model = golden_directory("v41-c").string();
  {
    std::ofstream list(ids);
    for (int i = 0; i < 200000; ++i) list << i % 250 << ' ';
  }
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
    ::execl(HADAL_BINARY, HADAL_BINARY, "run", model.c_str(), "--ids-file", ids.c_str(), "--chunk", "16", "--threads",
            "1", nullptr);
    ::_exit(127);
  }
  const auto said = [&] {
    std::ifstream file(err);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  int status = 0;
  for (int i = 0; i < 2000 && ::waitpid(child, &status, WNOHANG) == 0; ++i) {
    if (said().find("loaded in") != std::string::npos) ::kill(child, SIGINT);
    ::usleep(30000);
  }
  ASSERT_TRUE(WIFEXITED(status)) << said();
  EXPECT_EQ(WEXITSTATUS(status), 130) << said();
  EXPECT_NE(said().find("hadal: interrupted after "), std::string::npos) << said();
  EXPECT_NE(said().find(" of 200000 prompt tokens"), std::string::npos) << said();
}

// The second run of a prompt goes on from what the first left on disk, with the same answer.
TEST(CommandLine, PrefixesOnDisk) {
  const Scratch scratch;
  const std::string cache = scratch / "cache";
  const std::string command =
      fmt::format("run {} --ids 1,2,3,4,5,6,7,8,9,10,11,12 -n 20 --ignore-eos --json --threads 1", golden("v41-c"));
  const auto text = [](const Result& r, const std::string& member) {
    EXPECT_EQ(r.status, 0) << r.err;
    const json::value value = parse_json(r.out, "answer");
    return json::serialize(value.at(member));
  };
  const Result alone = hadal(command);
  for (const std::string cached : {"0", "11", "11"}) {
    const Result r = hadal(fmt::format("{} --prefix-cache-dir '{}' --prefix-cache-disk-size 10M", command, cache));
    EXPECT_EQ(text(r, "ids"), text(alone, "ids"));
    EXPECT_EQ(text(r, "cached_tokens"), cached);
  }
  const Result wrong = hadal(fmt::format("{} --prefix-cache-dir '{}' --prefill bounded", command, cache));
  EXPECT_EQ(wrong.status, 2);
  EXPECT_NE(wrong.err.find("--prefill exact or full"), std::string::npos) << wrong.err;
  EXPECT_EQ(hadal(fmt::format("{} --prefix-cache-dir /proc/nothing", command)).status, 4);
  for (const char* size : {"-5", "-5G", "many", "99999999999999T", "1"}) {
    const Result r = hadal(fmt::format("{} --prefix-cache-dir '{}' --prefix-cache-disk-size {}", command, cache, size));
    EXPECT_EQ(r.status, 2) << size << ": " << r.err;
  }
}

TEST(CommandLine, LogitsAreWhatTheModelSays) {
  const Scratch scratch;
  const std::string out = scratch / "logits.npy";
  const std::vector<int32_t> ids = GoldenFile(golden_directory("v41-c") / "logits.safetensors").i32("n17.ids");
  std::string list;
  for (const int32_t id : ids) list += fmt::format("{}{}", list.empty() ? "" : ",", id);
  for (const std::string backend : {"cpu", "reference"}) {
    const Result r = hadal(fmt::format("logits {} --ids {} --all --numerics fp32 --chunk 5 --backend {} --out '{}'",
                                       golden("v41-c"), list, backend, out));
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.err.find("numerics fp32"), std::string::npos) << "the resolved configuration is printed: " << r.err;
    const NpyArray<float> got = read_npy_f32(out);
    EXPECT_EQ(got.shape, (std::vector<int64_t>{17, 256}));
    const std::vector<float> want = GoldenFile(golden_directory("v41-c") / "logits.safetensors").f32("n17.logits_fp32");
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got.data[i], want[i], 1e-4f * largest(want));
  }
}

// The instruction set is what was asked for, in every command that runs a model, and each computes the same model.
TEST(CommandLine, InstructionSets) {
  const Scratch scratch;
  const std::vector<float> want = GoldenFile(golden_directory("v41-c") / "logits.safetensors").f32("n17.logits_fp32");
  for (const Isa isa : supported_isas()) {
    const std::string name(to_string(isa)), out = scratch / name,
                                            says = fmt::format("backend cpu ({}, 1 threads)", name);
    std::string list;
    for (const int32_t id : GoldenFile(golden_directory("v41-c") / "logits.safetensors").i32("n17.ids"))
      list += fmt::format("{}{}", list.empty() ? "" : ",", id);
    const Result logits = hadal(fmt::format("logits {} --ids {} --all --numerics fp32 --isa {} --threads 1 --out '{}'",
                                            golden("v41-c"), list, name, out));
    ASSERT_EQ(logits.status, 0) << logits.err;
    EXPECT_NE(logits.err.find(says), std::string::npos) << logits.err;
    const NpyArray<float> got = read_npy_f32(out);
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got.data[i], want[i], 1e-4f * largest(want)) << name;
    const Result run =
        hadal(fmt::format("run {} --ids 1,2 --max-tokens 2 --isa {} --threads 1", golden("v41-a"), name));
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_NE(run.err.find(says), std::string::npos) << run.err;
    const Result check = hadal(fmt::format("selftest --op router --seed 1 --threads 1 --isa {}", name));
    EXPECT_EQ(check.status, 0) << check.err;
  }
}

TEST(CommandLine, RunIsReproducible) {
  const std::string base = fmt::format("run {} --ids 0,17,42 --max-tokens 12 --ignore-eos --seed 7 ", golden("v41-a"));
  const Result a = hadal(base), b = hadal(base + "--threads 1 --chunk 1 --prefill full"),
               c = hadal(base + "--temperature 0");
  ASSERT_EQ(a.status, 0) << a.err;
  EXPECT_EQ(a.out, b.out) << "threads, chunks and the prefill mode do not change the tokens";
  EXPECT_NE(a.out, c.out);
  EXPECT_EQ(std::count(a.out.begin(), a.out.end(), ','), 11);
}

// Every stage of a step is there, with time and a floor. Times of a machine that others use bear no comparison.
TEST(CommandLine, BenchSplitsStepsIntoStages) {
  for (const std::string bench : {"prefill --context 200 --tokens 64 --prefill exact", "decode --context 100 --batch 3",
                                  "stage --context 200 --tokens 64", "stage --context 100 --batch 3"}) {
    const Result r = hadal(fmt::format("bench {} {} --threads 1 --steps 2 --warm-up 1 --json", bench, golden("v41-a")));
    ASSERT_EQ(r.status, 0) << r.err;
    const json::value result = parse_json(r.out, "bench");
    const json::object& stages = result.at("stages").as_object();
    EXPECT_EQ(stages.size(), 11);
    for (const auto& [name, stage] : stages) {
      EXPECT_GT(stage.at("ms").as_double(), 0) << name;
      if (name == "gaps") continue;
      EXPECT_GT(stage.at("floor_ms").as_double(), 0) << name;
    }
    const double tokens = bench.find("--batch") == std::string::npos ? 64 : 3;
    EXPECT_EQ(static_cast<double>(result.at("tokens_per_step").as_int64()), tokens);
    EXPECT_NEAR(result.at("tokens_per_s_per_gpu").as_double() * result.at("step_ms").at("median").as_double() * 1e-3,
                tokens, 1e-6);
  }
}

TEST(CommandLine, BenchStageDrawsThem) {
  const std::string file = fmt::format("{}/stages-{}.svg", testing::TempDir(), ::getpid());
  const Result r =
      hadal(fmt::format("bench stage {} --tokens 64 --threads 1 --steps 2 --plot '{}'", golden("v41-a"), file));
  ASSERT_EQ(r.status, 0) << r.err;
  std::ifstream in(file);
  const std::string svg((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::filesystem::remove(file);
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n")) << svg;
  for (const char* part : {">experts<", ">sparse attention<", ">between operators<", "64 tokens of a prompt of 64"})
    EXPECT_NE(svg.find(part), std::string::npos) << part;
}

struct Mistake {
  const char* arguments;  // {} stands for a golden checkpoint
  int status;
  const char* message;  // must be part of standard error
};

class Mistakes : public testing::TestWithParam<Mistake> {};

TEST_P(Mistakes, AreToldApart) {
  const Mistake& m = GetParam();
  const Result r = hadal(fmt::format(fmt::runtime(m.arguments), golden("v41-a")));
  EXPECT_EQ(r.status, m.status) << m.arguments << "\n" << r.err;
  EXPECT_NE(r.err.find(m.message), std::string::npos) << m.arguments << "\n" << r.err;
  EXPECT_TRUE(r.out.empty()) << r.out;
}

INSTANTIATE_TEST_SUITE_P(
    All, Mistakes,
    testing::Values(
        Mistake{"run {} --ids 0,1 --tuning /nonexistent", 4, "cannot read the tuning file /nonexistent"},
        Mistake{"run {0} --ids 0,1 --tuning {0}/config.json", 3, "expected hadal-tuning 1"},
        Mistake{"tune --config {} --rows 128", 2, "--rows"},
        Mistake{"tune --config {} --numerics fp32", 2, "--numerics"},
        Mistake{"bench stage {} --plot /nonexistent/stages.svg", 4, "/nonexistent/stages.svg"},
        Mistake{"bench stage {} --tokens 64 --context 63", 2, "cannot end with a chunk of 64"},
        Mistake{"bench stage {} --batch 1 --context 99999999", 2, "grows to"},
        Mistake{"logits {} --ids 0,512 --out /dev/null", 2, "token id 512 at position 1 is out of range"},
        Mistake{"logits {} --ids 0,-3 --out /dev/null", 2, "'-3' is not a token id"},
        Mistake{"logits {} --ids 0,99999999999 --out /dev/null", 2, "is not a token id"},
        Mistake{"logits {} --ids , --out /dev/null", 2, "the prompt is empty"},
        Mistake{"logits {} --out /dev/null", 2, "either --ids or --ids-file"},
        Mistake{"logits {} --ids 1 --ids-file x --out /dev/null", 2, "either --ids or --ids-file"},
        Mistake{"logits {} --ids-file /nowhere/ids --out /dev/null", 4, "/nowhere/ids"},
        Mistake{"logits {} --ids 1 --out /nowhere/x.npy", 4, "/nowhere/x.npy"},
        Mistake{"logits {} --ids 1", 2, "--out"},
        Mistake{"logits {} --ids 1 --out /dev/null --numerics fp16", 2, "unknown numerics 'fp16'"},
        Mistake{"logits {} --ids 1 --out /dev/null --backend gpu", 2, "unknown backend 'gpu'"},
        Mistake{"logits {} --ids 1 --out /dev/null --isa sse", 2, "unknown instruction set 'sse'"},
        Mistake{"logits {} --ids 1 --out /dev/null --isa scalar --device cuda", 2, "the backend is cuda"},
        Mistake{"bench decode {} --isa scalar --device cuda", 2, "the backend is cuda"},
        Mistake{"selftest --isa scalar --device reference", 2, "the backend is reference"},
        Mistake{"serve --isa sse", 2, "unknown instruction set 'sse'"},
        Mistake{"logits {} --ids 1 --out /dev/null --prefill fast", 2, "unknown prefill mode 'fast'"},
        Mistake{"logits {} --ids 1 --out /dev/null --prefill bounded --all", 2, "--all needs every row"},
        Mistake{"logits {} --ids 1 --out /dev/null --bounded-rows 9", 2, "--bounded-rows 9 needs --prefill bounded"},
        Mistake{"logits {} --ids 1 --out /dev/null --prefill bounded --bounded-rows 3", 2, "less than the window of 8"},
        Mistake{"logits {} --ids 1 --out /dev/null --chunk 0", 2, "--chunk"},
        Mistake{"logits {} --ids 1 --out /dev/null --threads -1", 2, "--threads"},
        Mistake{"logits {} --ids 1 --out /dev/null --frobnicate", 2, "--frobnicate"},
        Mistake{"logits /nowhere --ids 1 --out /dev/null", 4, "/nowhere"},
        Mistake{"run {} --ids 1 --temperature -1", 2, "temperature is -1"},
        Mistake{"run {} --ids 1 --top-p 0", 2, "top_p is 0"}, Mistake{"run {} --ids 1 --min-p 2", 2, "min_p is 2"},
        Mistake{"run {} --ids 1 --top-k -5", 2, "top_k is -5"},
        Mistake{"run {} --ids 1 --chat", 2, "--chat needs a prompt of text"},
        Mistake{"run {} --ids 1 --stop x", 2, "--stop needs a prompt of text"},
        Mistake{"run {} -p hello", 3, "no tokenizer.json"},
        Mistake{"run {} -p hello --think", 2, "--think needs --chat"},
        Mistake{"run {} -p hello --prompt-file x", 2, "give the prompt once"},
        Mistake{"run {}", 2, "give the prompt once"},
        Mistake{"bench prefill {} --context 100 --tokens 64 --cached 9", 2, "do not make a context of 100"},
        Mistake{"bench decode {} --emulate-rank ep4", 2, "shape a --config"},
        Mistake{"bench decode {} --context 10000000 --steps 1", 2, "the model takes"},
        Mistake{"bench decode --config nowhere", 2, "there is no configuration 'nowhere'"},
        Mistake{"bench decode --config v41-flash --emulate-rank 4", 2, "expected ep and a number"},
        Mistake{"bench decode --config v41-flash --device cpu --emulate-rank ep7", 2,
                "cannot be divided among 7 ranks"},
        Mistake{"bench decode --config v41-flash --device cpu", 6, "makes no random weights"},
        Mistake{"bench", 2, "hadal bench --help lists them"}, Mistake{"bench speed", 2, "no command \"bench speed\""},
        Mistake{"bench prefill {} --context 50 --tokens 64", 2, "take fewer --tokens"},
        Mistake{"bench decode {} --batch 65536 --context 1000000 --steps 1", 5, "take a smaller --batch"},
        Mistake{"bench roof --repeats 0", 2, "0 not in range 1 to"},
        Mistake{"bench roof --threads 1000000000000", 2, "not in range 1 to 4096"},
        Mistake{"bench kernel --op router,", 2, "no operator is called 'router,'; --op takes one of embedding, "},
        Mistake{"bench kernel --device cuda --op linear", 2, "no operator is called 'linear'"},
        Mistake{"bench kernel --rows 0", 2, "--rows: Value 0 not in range"},
        Mistake{"bench kernel --rows 1000000000000", 2, "not in range 1 to 65536"},
        Mistake{"bench kernel --op router --rows 8", 2, "router has cases of its own"},
        Mistake{"bench kernel --context 5", 2, "--context is for the release cases on a GPU"},
        Mistake{"bench kernel --device cuda --cases tests --check", 2, "--check is for the release cases"},
        Mistake{"bench kernel --device cuda --cases tests --rows 8", 2, "leave --rows out"},
        Mistake{"bench serve http://127.0.0.1:8x", 2, "'http://127.0.0.1:8x' is no URL"},
        Mistake{"bench serve server:80", 2, "'server:80' is no URL"},
        Mistake{"bench serve http://127.0.0.1:1 --rate nan", 2, "nan not in range 0 to 1000000"},
        Mistake{"bench serve-offline {} --temperature nan", 2, "nan not in range 0 to 100"},
        Mistake{"bench serve-offline {} --requests 1048576 --prompt-tokens 1048576", 5, "ask for fewer"},
        Mistake{"bench serve-offline {} --prompt-tokens 1000000 --requests 2 --rate 100", 2, "all 2 requests at 100"},
        Mistake{"bench serve-offline {} --cache-tokens 9000000000000000000", 2, "0 (automatic) to 2^40"}));

TEST(CommandLine, PromptBeyondTheContext) {
  const Scratch scratch;
  // The golden checkpoint with a context of 16 tokens.
  fs::copy(golden_directory("v41-c"), scratch / "model");
  std::ifstream in(golden_directory("v41-c") / "config.json");
  std::string config(std::istreambuf_iterator<char>(in), {});
  const std::string field = "\"max_position_embeddings\": 1048576";
  ASSERT_NE(config.find(field), std::string::npos);
  config.replace(config.find(field), field.size(), "\"max_position_embeddings\": 16");
  fs::permissions(scratch / "model/config.json", fs::perms::owner_all);
  std::ofstream(scratch / "model/config.json") << config;
  const Result r = hadal(
      fmt::format("logits '{}' --ids 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16 --out /dev/null", scratch / "model"));
  EXPECT_EQ(r.status, 2);
  EXPECT_NE(r.err.find("the prompt ends at 17 tokens, the model's context is 16"), std::string::npos) << r.err;
}

}  // namespace
}  // namespace hadal

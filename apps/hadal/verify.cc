// hadal verify: whether this machine computes what a checkpoint is known to say.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/progress.h"
#include "commands.h"
#include "engine/sampler.h"
#include "model_options.h"
#include "text/json.h"
#include "text/prompt_v41.h"
#include "verify_record.h"

namespace hadal {
namespace {

struct VerifyOptions {
  ModelOptions model;
  bool record = false, json = false;
};

struct Check {
  std::string name;
  bool passed = false;
  std::string detail;
};

constexpr int kAnswerTokens = 24;

// What --record asks. Wide bars and blocks are part of the control tokens' spelling.
constexpr std::pair<const char*, const char*> kPrompts[] = {
    {"story", "<｜begin▁of▁sentence｜>Once upon a time"},
    {"fact", "<｜begin▁of▁sentence｜>The capital of France is"},
    {"question", "<｜begin▁of▁sentence｜><｜User｜>What is the capital of Japan?<｜Assistant｜></think>"},
    {"sum", "<｜begin▁of▁sentence｜><｜User｜>What is 12 plus 7?<｜Assistant｜></think>"},
    {"sum, with reasoning",
     "<｜begin▁of▁sentence｜><｜System｜>Reasoning Effort: 75 (range 1-100, the higher the value, the more thorough "
     "the "
     "reasoning)\n\n<｜User｜>What is 12 plus 7?<｜Assistant｜><think>"},
    {"second turn",
     "<｜begin▁of▁sentence｜><｜System｜>You are a helpful assistant.<｜User｜>My name is "
     "Kate.<｜Assistant｜></think>Nice to meet "
     "you, Kate.<｜end▁of▁sentence｜><｜User｜>What is my name?<｜Assistant｜></think>"},
    {"long",
     "<｜begin▁of▁sentence｜>Tom had a red ball. He went to the park with his dog. The dog saw a cat and ran after it. "
     "Tom "
     "called the dog, but the dog did not come back. Tom looked behind the big tree, and he looked under the bench. "
     "Then he "
     "heard a sound from the pond. The dog was in the water, and the cat sat on a stone. Tom laughed. He took the dog "
     "home and "
     "dried it with a towel. In the evening his mother asked what had happened. Tom told her that"},
};

constexpr const char* kEnglish =
    "The sun rises in the east and sets in the west. When it rains, the streets are wet, and people carry umbrellas.";
// A model that has learnt English is far above this; random weights are at zero.
constexpr double kBetterThanUniform = 1.0;

// How far sums in another order may move a log-likelihood or a logit. A damaged kernel or weight moves them by whole nats.
// A mode whose own roundings move a prompt further than that, from fp32, has it on an edge where a rounding may decide.
constexpr double kRoundings = 0.5;
double tolerance(const VerifyPrompt& prompt, const std::string& numerics) {
  if (numerics == "fp32") return 0.005;
  const auto exact = prompt.scores.find("fp32");
  if (exact == prompt.scores.end()) return kRoundings;
  return std::max(kRoundings, std::abs(prompt.scores.at(numerics).log_likelihood - exact->second.log_likelihood));
}

struct Scored {
  VerifyScore score;
  bool finite = true;
};

// The answer's likelihood after the prompt, in one pass over both.
Scored score(LoadedModel& loaded, const std::vector<int32_t>& prompt, const std::vector<int32_t>& answer) {
  std::vector<int32_t> ids = prompt;
  ids.insert(ids.end(), answer.begin(), answer.end() - 1);
  SingleRequest request(*loaded.model, static_cast<int64_t>(ids.size()));
  SingleRequest::PromptOptions options;
  options.logits = LogitsWanted::all;
  const std::vector<float> logits = request.prefill(ids, options);
  const auto vocab = static_cast<size_t>(loaded.model->config().vocab_size);
  Scored result;
  for (const float v : logits) result.finite &= std::isfinite(v);
  if (!result.finite) return result;
  for (size_t i = 0; i < answer.size(); ++i) {
    const float* row = &logits[(prompt.size() - 1 + i) * vocab];
    const double top = *std::max_element(row, row + vocab);
    const double chosen = row[answer[i]];
    double total = 0;
    for (size_t v = 0; v < vocab; ++v) total += std::exp(static_cast<double>(row[v]) - top);
    result.score.log_likelihood += chosen - top - std::log(total);
    result.score.gap = std::max(result.score.gap, top - chosen);
  }
  return result;
}

std::vector<int32_t> greedy(LoadedModel& loaded, const std::vector<int32_t>& prompt) {
  SingleRequest request(*loaded.model, static_cast<int64_t>(prompt.size()) + kAnswerTokens);
  std::vector<float> logits = request.prefill(prompt, {});
  std::vector<int32_t> answer;
  for (;;) {
    answer.push_back(arg_max(logits));
    if (answer.back() == loaded.model->config().eos_token_id || answer.size() == kAnswerTokens) return answer;
    logits = request.decode(answer.back());
  }
}

// The files whose bytes decide the answers.
std::vector<std::filesystem::path> files_of(const LoadedModel& loaded) {
  std::vector<std::filesystem::path> files;
  for (const SafetensorsFile& shard : loaded.checkpoint.shards()) files.push_back(shard.path());
  for (const char* name : {"config.json", "tokenizer.json", "engram_token_map.npy"})
    if (std::filesystem::exists(loaded.directory / name)) files.push_back(loaded.directory / name);
  return files;
}

void record(const VerifyOptions& o) {
  VerifyRecord record;
  ModelOptions options = o.model;
  for (const char* numerics : {"fp32", "bf16", "official", "fp8"}) {
    options.numerics = numerics;
    LoadedModel loaded(options);
    if (record.prompts.empty()) {
      const text::Tokenizer tokenizer = loaded.tokenizer();
      record.identity = checkpoint_identity(loaded.checkpoint);
      for (const auto& file : files_of(loaded)) record.files[file.filename().string()] = file_hash(file);
      for (const auto& [name, text] : kPrompts) {
        VerifyPrompt prompt{name, text, tokenizer.encode_with_special(text), {}, {}};
        prompt.answer = greedy(loaded, prompt.ids);
        record.prompts.push_back(std::move(prompt));
      }
    }
    for (VerifyPrompt& prompt : record.prompts) {
      const Scored scored = score(loaded, prompt.ids, prompt.answer);
      if (!scored.finite) fail(ErrorKind::invalid_data, "prompt \"{}\" gives logits that are not finite", prompt.name);
      prompt.scores[numerics] = scored.score;
    }
  }
  const std::filesystem::path file = find_model(o.model.path) / kVerifyFile;
  write_verify_record(record, file);
  fmt::print("{} prompts recorded in {}\n", record.prompts.size(), file.string());
}

Check compare(LoadedModel& loaded, const VerifyPrompt& prompt) {
  Check check{"prompt: " + prompt.name, false, ""};
  const std::string numerics(to_string(loaded.context->numerics()));
  const auto want = prompt.scores.find(numerics);
  if (want == prompt.scores.end()) {
    check.detail = "nothing is recorded for numerics " + numerics;
    return check;
  }
  const Scored have = score(loaded, prompt.ids, prompt.answer);
  if (!have.finite) {
    check.detail = "logits are not finite";
    return check;
  }
  const double limit = tolerance(prompt, numerics);
  const auto near = [&](const VerifyScore& other, double distance) {
    return std::abs(have.score.log_likelihood - other.log_likelihood) <= distance &&
           std::abs(have.score.gap - other.gap) <= distance;
  };
  // Where roundings moved what was recorded, others may leave it where fp32 has it.
  const auto exact = prompt.scores.find("fp32");
  check.passed = near(want->second, limit) ||
                 (numerics != "fp32" && exact != prompt.scores.end() && near(exact->second, kRoundings));
  check.detail =
      fmt::format("log-likelihood {:.4f}, recorded {:.4f} ({} tokens, tolerance {:.3g}){}", have.score.log_likelihood,
                  want->second.log_likelihood, prompt.answer.size(), limit,
                  have.score.gap == 0 ? ", greedy" : fmt::format(", {:.4f} below the likeliest", have.score.gap));
  return check;
}

std::vector<Check> known_checks(LoadedModel& loaded, const VerifyRecord& record, const std::string& identity) {
  std::vector<Check> checks;
  checks.push_back(
      {"checkpoint", identity == record.identity,
       identity == record.identity ? identity : fmt::format("{}, recorded {}", identity, record.identity)});
  for (const auto& [name, hash] : record.files) {
    const std::string have = file_hash(loaded.directory / name);
    checks.push_back({"file: " + name, have == hash, have == hash ? hash : fmt::format("{}, recorded {}", have, hash)});
  }
  std::optional<text::Tokenizer> tokenizer;
  if (std::filesystem::exists(loaded.directory / "tokenizer.json")) tokenizer.emplace(loaded.tokenizer());
  size_t same = 0;
  for (const VerifyPrompt& prompt : record.prompts)
    same += tokenizer && tokenizer->encode_with_special(prompt.text) == prompt.ids;
  if (tokenizer)
    checks.push_back({"tokenizer", same == record.prompts.size(),
                      fmt::format("{} of {} prompts have the recorded ids", same, record.prompts.size())});
  Progress progress("verify", record.prompts.size(), "prompts");
  for (const VerifyPrompt& prompt : record.prompts) {
    checks.push_back(compare(loaded, prompt));
    progress.advance(1);
  }
  progress.finish();
  return checks;
}

std::vector<Check> general_checks(LoadedModel& loaded) {
  std::vector<Check> checks;
  if (!std::filesystem::exists(loaded.directory / "tokenizer.json")) {
    const Scored scored = score(loaded, {0, 1, 2, 3}, {4, 5, 6, 7});
    checks.push_back(
        {"finite", scored.finite, "logits of eight token ids (there is no tokenizer.json to read text with)"});
    return checks;
  }
  const text::Tokenizer tokenizer = loaded.tokenizer();
  const std::vector<int32_t> ids = tokenizer.encode(kEnglish);
  const Scored scored = score(loaded, {tokenizer.control(text::v41::bos)}, ids);
  checks.push_back({"finite", scored.finite, fmt::format("logits of {} tokens", ids.size())});
  const double mean = scored.score.log_likelihood / static_cast<double>(ids.size());
  const double uniform = -std::log(static_cast<double>(loaded.model->config().vocab_size));
  checks.push_back({"English", scored.finite && mean >= uniform + kBetterThanUniform,
                    fmt::format("{:.3f} nats a token, {:.3f} by chance, at least {} better expected", mean, uniform,
                                kBetterThanUniform)});
  return checks;
}

void verify(const VerifyOptions& o) {
  if (o.record) return record(o);
  LoadedModel loaded(o.model);
  fmt::print(stderr, "hadal: {}\n", loaded.describe());
  const std::string identity = checkpoint_identity(loaded.checkpoint);
  const std::filesystem::path file = loaded.directory / kVerifyFile;
  const bool known = std::filesystem::exists(file);
  const std::vector<Check> checks =
      known ? known_checks(loaded, read_verify_record(file), identity) : general_checks(loaded);
  const auto failed = std::count_if(checks.begin(), checks.end(), [](const Check& c) { return !c.passed; });
  if (o.json) {
    text::Json::Array list;
    for (const Check& c : checks)
      list.emplace_back(text::Json::Object{{"check", c.name}, {"passed", c.passed}, {"detail", c.detail}});
    fmt::print("{}\n", text::Json(text::Json::Object{{"model", loaded.directory.string()},
                                                     {"identity", identity},
                                                     {"known", known},
                                                     {"backend", std::string(to_string(loaded.backend))},
                                                     {"numerics", std::string(to_string(loaded.context->numerics()))},
                                                     {"checks", std::move(list)},
                                                     {"passed", failed == 0}})
                           .dump());
  } else {
    for (const Check& c : checks) fmt::print("{}  {:<34}  {}\n", c.passed ? "pass" : "FAIL", c.name, c.detail);
    if (!known)
      fmt::print("Checkpoint {} is not known: there is no {} beside it, so only general checks were made.\n", identity,
                 kVerifyFile);
  }
  std::fflush(stdout);
  if (failed > 0)
    fail(ErrorKind::internal, "{} of {} checks failed for {}", failed, checks.size(), loaded.directory.string());
}

}  // namespace

void add_verify(CLI::App& app) {
  auto o = std::make_shared<VerifyOptions>();
  CLI::App* c = app.add_subcommand("verify", "Check that a checkpoint gives the answers it is known for");
  o->model.add_to(*c, false);
  c->add_flag("--record", o->record, "Write the answers of this build to verify.json beside the weights instead");
  c->add_flag("--json", o->json, "Print one JSON object");
  c->callback([o] { verify(*o); });
}

}  // namespace hadal

// hadal perplexity: how well a model predicts a text.
#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/progress.h"
#include "commands.h"
#include "model_options.h"
#include "text/json.h"
#include "text/prompt_v41.h"

namespace hadal {
namespace {

struct PerplexityOptions {
  ModelOptions model;
  std::string file;
  int window = 0;
  int chunk = 512;
  bool json = false;
};

// -log p of every id but the first, in nats.
double negative_log_likelihood(LoadedModel& loaded, std::span<const int32_t> ids, int chunk) {
  SingleRequest request(*loaded.model, static_cast<int64_t>(ids.size()));
  SingleRequest::PromptOptions options;
  options.chunk = chunk;
  options.logits = LogitsWanted::all;
  const std::vector<float> logits = request.prefill(ids, options);
  const auto vocab = static_cast<size_t>(loaded.model->config().vocab_size);
  double sum = 0;
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    const float* row = &logits[i * vocab];
    const double top = *std::max_element(row, row + vocab);
    double total = 0;
    for (size_t v = 0; v < vocab; ++v) total += std::exp(static_cast<double>(row[v]) - top);
    sum += top + std::log(total) - static_cast<double>(row[ids[i + 1]]);
  }
  return sum;
}

void run_perplexity(const PerplexityOptions& o) {
  LoadedModel loaded(o.model);
  const text::Tokenizer tokenizer = loaded.tokenizer();
  const std::vector<text::TokenId> ids = tokenizer.encode_with_special(read_text(o.file));
  const text::TokenId bos = tokenizer.control(text::v41::bos);

  // Pieces that are each predicted from their own beginning.
  std::vector<std::vector<int32_t>> pieces;
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool begins = o.window > 0 ? i % static_cast<size_t>(o.window) == 0 : i == 0 || ids[i] == bos;
    if (begins) pieces.emplace_back();
    if (begins && o.window == 0 && ids[i] != bos) pieces.back().push_back(bos);
    pieces.back().push_back(ids[i]);
  }
  size_t longest = 0;
  for (const auto& piece : pieces) longest = std::max(longest, piece.size());
  if (ids.size() < 2) fail(ErrorKind::invalid_data, "{} has {} tokens, at least 2 are needed", o.file, ids.size());
  fmt::print(stderr, "hadal: {}, {} tokens in {} {}, the longest has {}\n", loaded.describe(), ids.size(),
             pieces.size(), o.window > 0 ? "windows" : "documents", longest);

  Progress progress("perplexity", ids.size(), "tokens");
  double sum = 0;
  size_t predicted = 0;
  for (const auto& piece : pieces) {
    if (piece.size() > 1) {
      sum += negative_log_likelihood(loaded, piece, o.chunk);
      predicted += piece.size() - 1;
    }
    progress.advance(piece.size());
  }
  progress.finish();
  const double mean = sum / static_cast<double>(predicted);
  if (o.json) {
    std::string file;
    text::append_json_string(o.file, file);
    fmt::print("{{\"file\":{},\"pieces\":{},\"tokens\":{},\"nll\":{:.9g},\"perplexity\":{:.9g},\"numerics\":\"{}\"}}\n",
               file, pieces.size(), predicted, sum, std::exp(mean), to_string(loaded.context->numerics()));
  } else {
    fmt::print("perplexity {:.6f} ({:.6f} nats a token, {} tokens, numerics {})\n", std::exp(mean), mean, predicted,
               to_string(loaded.context->numerics()));
  }
}

}  // namespace

void add_perplexity(CLI::App& app) {
  auto o = std::make_shared<PerplexityOptions>();
  CLI::App* c = app.add_subcommand("perplexity", "How well a model predicts a text");
  o->model.add_to(*c, true);
  c->add_option("FILE", o->file, "Text; control tokens written out are recognised (- for standard input)")->required();
  c->add_option("--window", o->window,
                "Cut the text into windows of this many tokens; 0 = at every beginning-of-sequence token")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  c->add_option("--chunk", o->chunk, "Tokens in one step")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  c->add_flag("--json", o->json, "Print one JSON object");
  c->callback([o] { run_perplexity(*o); });
}

}  // namespace hadal

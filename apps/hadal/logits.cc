// hadal logits: the logits of a prompt as an array, for comparison with other implementations.
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/npy.h"
#include "base/progress.h"
#include "commands.h"
#include "model_options.h"

namespace hadal {
namespace {

struct LogitsOptions {
  ModelOptions model;
  PrefillOptions prefill;
  std::string ids, ids_file, out;
  bool all = false;
};

void run_logits(const LogitsOptions& o) {
  if (o.ids.empty() == o.ids_file.empty())
    fail(ErrorKind::invalid_argument, "give the prompt as either --ids or --ids-file");
  const std::vector<int32_t> ids = o.ids_file.empty() ? parse_ids(o.ids, "--ids") : read_ids(o.ids_file);
  SingleRequest::PromptOptions prompt = o.prefill.prompt();
  if (o.all) {
    if (prompt.mode == PrefillMode::bounded)
      fail(ErrorKind::invalid_argument, "--all needs every row, and --prefill bounded does not compute them; use full");
    prompt.logits = LogitsWanted::all;
  }
  LoadedModel loaded(o.model);
  fmt::print(stderr, "hadal: {}, prefill {}, {} tokens in chunks of {}\n", loaded.describe(),
             o.all ? "full (all rows are wanted)" : to_string(prompt.mode), ids.size(), prompt.chunk);
  SingleRequest request(*loaded.model, static_cast<int64_t>(ids.size()));
  Progress progress("prefill", ids.size(), "tokens");
  prompt.progress = [&, before = int64_t{0}](int64_t done) mutable {
    progress.advance(static_cast<uint64_t>(done - std::exchange(before, done)));
  };
  const std::vector<float> logits = request.prefill(ids, prompt);
  progress.finish();
  const auto vocab = static_cast<int64_t>(loaded.model->config().vocab_size);
  const auto rows = static_cast<int64_t>(logits.size()) / vocab;
  write_npy(o.out, logits, rows, vocab);
  fmt::print(stderr, "hadal: wrote float32 [{}, {}] to {}\n", rows, vocab, o.out);
}

}  // namespace

void add_logits(CLI::App& app) {
  auto o = std::make_shared<LogitsOptions>();
  CLI::App* command = app.add_subcommand("logits", "Write the logits of a prompt of token ids to a .npy file");
  o->model.add_to(*command, true);
  command->add_option("--ids", o->ids, "Prompt as token ids: 0,17,4242");
  command->add_option("--ids-file", o->ids_file, "File of token ids (text or int32 .npy; - for standard input)");
  command->add_option("--out", o->out, "File to write: float32 [rows, vocab]")->required();
  command->add_flag("--all", o->all, "Logits of every position, not of the last one only");
  o->prefill.add_to(*command);
  command->callback([o] { run_logits(*o); });
}

}  // namespace hadal

// hadal tokenize: text to token ids and back.
#include <cstdio>
#include <memory>
#include <string>

#include "base/error.h"
#include "commands.h"
#include "model_options.h"
#include "text/json.h"
#include "text/tokenizer.h"

namespace hadal {
namespace {

struct TokenizeOptions {
  std::string model = ".";
  std::string text, file, decode;
  bool special = false, json = false;
};

void print_ids(const text::Tokenizer& tokenizer, const std::vector<text::TokenId>& ids, bool json) {
  std::string out;
  for (const text::TokenId id : ids) {
    // A token may be a part of a character; its bytes then show as U+FFFD, and \x escapes would not be JSON.
    std::string piece;
    text::append_replacing_invalid(tokenizer.token_bytes(id), piece);
    if (!json) out += fmt::format("{:>7}{} ", id, tokenizer.is_control(id) ? "*" : " ");
    if (json) out += out.empty() ? "" : ", ";
    text::append_json_string(piece, out);
    if (!json) out += '\n';
  }
  if (json)
    fmt::print("{{\"count\": {}, \"ids\": [{}], \"pieces\": [{}]}}\n", ids.size(), fmt::join(ids, ", "), out);
  else
    fmt::print("{}{} tokens\n", out, ids.size());
}

void run_tokenize(const TokenizeOptions& options, bool have_text, bool have_file, bool have_decode) {
  if (have_text + have_file + have_decode != 1)
    fail(ErrorKind::invalid_argument, "tokenize needs exactly one of --text, --file and --decode");
  const text::Tokenizer tokenizer = text::Tokenizer::load(options.model);
  if (have_decode) {
    const std::string decoded = tokenizer.decode(parse_ids(options.decode, "--decode"));
    if (!options.json) {
      fmt::print("{}\n", decoded);
      return;
    }
    std::string literal;
    text::append_json_string(decoded, literal);
    fmt::print("{{\"text\": {}}}\n", literal);
    return;
  }
  const std::string input = have_text ? options.text : read_text(options.file);
  print_ids(tokenizer, options.special ? tokenizer.encode_with_special(input) : tokenizer.encode(input), options.json);
}

}  // namespace

void add_tokenize(CLI::App& app) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* command = app.add_subcommand("tokenize", "Show the tokens of a text, or the text of tokens");
  command->add_option("MODEL", options->model, "A checkpoint folder or its tokenizer.json (default: this folder)");
  CLI::Option* text = command->add_option("--text", options->text, "The text");
  CLI::Option* file = command->add_option("--file", options->file, "A file with the text; - is standard input");
  CLI::Option* decode = command->add_option("--decode", options->decode, "Token ids, separated by commas or blanks");
  command->add_flag("--special", options->special, "Let the text spell control tokens (marked * in the output)");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->callback([=] { run_tokenize(*options, text->count() > 0, file->count() > 0, decode->count() > 0); });
}

}  // namespace hadal

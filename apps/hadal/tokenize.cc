// hadal tokenize: text to token ids and back.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>

#include "base/error.h"
#include "commands.h"
#include "text/json.h"
#include "text/tokenizer.h"

namespace hadal {
namespace {

struct TokenizeOptions {
  std::string model = ".";
  std::string text, file, decode;
  bool special = false, json = false;
};

std::string read_input(const std::string& path) {
  std::ifstream file;
  if (path != "-") {
    file.open(path, std::ios::binary);
    if (!file) fail(ErrorKind::io, "cannot open {}: {}", path, std::strerror(errno));
  }
  std::istream& in = path == "-" ? std::cin : file;
  std::string content;
  char buffer[1 << 16];
  while (in.read(buffer, sizeof buffer), in.gcount() > 0) content.append(buffer, static_cast<std::size_t>(in.gcount()));
  if (in.bad()) fail(ErrorKind::io, "cannot read {}", path);
  return content;
}

std::vector<text::TokenId> parse_ids(const std::string& list) {
  std::vector<text::TokenId> ids;
  const std::string separators = ", []\n\t";
  for (std::size_t i = 0; (i = list.find_first_not_of(separators, i)) != std::string::npos;) {
    const std::size_t end = std::min(list.find_first_of(separators, i), list.size());
    const std::string word = list.substr(i, end - i);
    if (word.size() > 9 || word.find_first_not_of("0123456789") != std::string::npos)
      fail(ErrorKind::invalid_argument, "--decode: \"{}\" is not a token id", word);
    ids.push_back(std::stoi(word));
    i = end;
  }
  return ids;
}

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
    const std::string decoded = tokenizer.decode(parse_ids(options.decode));
    if (!options.json) {
      fmt::print("{}\n", decoded);
      return;
    }
    std::string literal;
    text::append_json_string(decoded, literal);
    fmt::print("{{\"text\": {}}}\n", literal);
    return;
  }
  const std::string input = have_text ? options.text : read_input(options.file);
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

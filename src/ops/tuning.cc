#include "ops/tuning.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

#include "base/error.h"

namespace hadal {
namespace {

namespace fs = std::filesystem;

// Of this process: what use_tuning was told, and what the file of that name holds.
struct Source {
  std::string where = "auto";
  Tuning given;
};
Source& source() {
  static Source source;
  return source;
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) fail(ErrorKind::io, "cannot read the tuning file {}", path.string());
  return text;
}

}  // namespace

const Tuning::Choice* Tuning::find(const TunedShape& shape) const {
  const auto same = [&](const TunedShape& s) { return s.kernel == shape.kernel && s.n == shape.n && s.k == shape.k; };
  const auto above = choices_.lower_bound(shape);
  if (above != choices_.end() && same(above->first)) return &above->second;
  if (above != choices_.begin() && same(std::prev(above)->first)) return &std::prev(above)->second;
  return nullptr;
}

std::string Tuning::text() const {
  std::string out = fmt::format("hadal-tuning 1\ncard {}\n", card);
  for (const auto& [shape, choice] : choices_)
    out += fmt::format("{} {} {} {} {} {:.4f}\n", shape.kernel, shape.n, shape.k, shape.rows, choice.name, choice.ms);
  return out;
}

Tuning Tuning::parse(std::string_view text, const std::string& path) {
  Tuning tuning;
  std::istringstream lines{std::string(text)};
  std::string line;
  const auto refuse = [&](int number, const char* expected) {
    fail(ErrorKind::invalid_data, "{}, line {}: '{}', expected {}; write the file again with hadal tune", path, number,
         line, expected);
  };
  for (int number = 1; std::getline(lines, line); ++number) {
    if (number == 1) {
      if (line != "hadal-tuning 1") refuse(number, "hadal-tuning 1");
    } else if (number == 2) {
      if (!line.starts_with("card ") || line.size() == 5) refuse(number, "card NAME");
      tuning.card = line.substr(5);
    } else if (!line.empty()) {
      std::istringstream words(line);
      TunedShape shape;
      Choice choice;
      std::string rest;
      if (!(words >> shape.kernel >> shape.n >> shape.k >> shape.rows >> choice.name >> choice.ms) || words >> rest ||
          shape.n < 1 || shape.k < 1 || shape.rows < 1)
        refuse(number, "KERNEL n k rows CHOICE ms");
      tuning.set(shape, std::move(choice));
    }
  }
  if (tuning.card.empty()) {
    line.clear();
    refuse(1, "hadal-tuning 1 and card NAME");
  }
  return tuning;
}

void use_tuning(const std::string& where) {
  source() = {where, where == "auto" || where == "off" ? Tuning{} : Tuning::parse(read(where), where)};
}

fs::path tuning_file_of(const std::string& card) {
  std::string name = card;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '-');
  return fs::path("tuning") / (name + ".txt");
}

Tuning load_tuning(const std::string& card) {
  const auto& [where, given] = source();
  if (where == "off") return {};
  if (where != "auto") {
    if (given.card != card)
      fail(ErrorKind::invalid_argument,
           "{} was measured on '{}', this card is '{}'; measure it with hadal tune, or give --tuning off", where,
           given.card, card);
    return given;
  }
  std::error_code ignored;
  const fs::path binary = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const fs::path& folder : {binary, binary / "../share/hadal", binary / "../.."}) {
    const fs::path path = folder / tuning_file_of(card);
    if (!fs::exists(path, ignored)) continue;
    Tuning tuning = Tuning::parse(read(path), path.string());
    if (tuning.card == card) return tuning;
  }
  return {};
}

}  // namespace hadal

// Which of its tiles a matrix kernel takes on a card. All candidates of a kernel give the same bits, so a choice is about
// time and nothing else. `hadal tune` measures them and writes a file for the card; the kernels' own cost models decide where
// there is no file, or for a shape that was not measured. Nothing is measured while a model runs.
//
// The file, one line each: "hadal-tuning 1", "card NAME", then "KERNEL n k rows CHOICE ms" (ms is for people).
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace hadal {

// y[rows, n] = x[rows, k] w[n, k]^T, by a kernel with several tiles.
struct TunedShape {
  std::string kernel;
  int n = 0;
  int k = 0;
  int rows = 0;
  auto operator<=>(const TunedShape&) const = default;
};

class Tuning {
 public:
  struct Choice {
    std::string name;
    double ms = 0;
  };

  std::string card;
  void set(const TunedShape& shape, Choice choice) { choices_[shape] = std::move(choice); }
  // What was measured for the fewest rows that are not below `shape.rows`, or else for the most rows; null = nothing was.
  const Choice* find(const TunedShape& shape) const;
  const std::map<TunedShape, Choice>& choices() const { return choices_; }

  std::string text() const;
  // Throws invalid_data with the line that cannot be read.
  static Tuning parse(std::string_view text, const std::string& path);

 private:
  std::map<TunedShape, Choice> choices_;
};

// Where this process looks: "auto" (tuning/NAME-OF-CARD.txt beside the binary, under share/hadal or in the source tree),
// "off", or a file, which is read now: throws io or invalid_data. To be called before the first context.
void use_tuning(const std::string& where);
// The choices for a card; empty when there is no file for it. Throws invalid_argument when a file was named that is for
// another card.
Tuning load_tuning(const std::string& card);
// tuning/NVIDIA-H200.txt
std::filesystem::path tuning_file_of(const std::string& card);

}  // namespace hadal

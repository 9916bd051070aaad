// Encodes the strings of a file and prints ids and speed; compare.py reads both.
// Usage: hadal_text_bench TOKENIZER.json STRINGS OUT REPEAT plain|special
//   STRINGS: 32-bit little-endian length and bytes, repeated. OUT: 32-bit count and ids, repeated.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "text/tokenizer.h"

int main(int argc, char** argv) try {
  // Processor time: the comparison holds on a busy machine as well.
  const auto seconds = [](std::clock_t since) { return static_cast<double>(std::clock() - since) / CLOCKS_PER_SEC; };
  if (argc != 6) {
    std::fprintf(stderr, "usage: %s TOKENIZER.json STRINGS OUT REPEAT plain|special\n", argv[0]);
    return 2;
  }
  const bool special = std::strcmp(argv[5], "special") == 0;
  const auto load_start = std::clock();
  const auto tokenizer = hadal::text::Tokenizer::load(argv[1]);
  const double load = seconds(load_start);
  const auto encode = [&](std::string_view s) {
    return special ? tokenizer.encode_with_special(s) : tokenizer.encode(s);
  };
  std::ifstream in(argv[2], std::ios::binary);
  const std::string blob((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::vector<std::string_view> strings;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i + 4 <= blob.size();) {
    std::uint32_t n;
    blob.copy(reinterpret_cast<char*>(&n), 4, i);
    strings.push_back(std::string_view(blob).substr(i + 4, n));
    bytes += n;
    i += 4 + n;
  }
  std::ofstream out(argv[3], std::ios::binary);
  for (const auto s : strings) {
    const auto ids = encode(s);
    const auto n = static_cast<std::uint32_t>(ids.size());
    out.write(reinterpret_cast<const char*>(&n), 4);
    out.write(reinterpret_cast<const char*>(ids.data()), static_cast<std::streamsize>(ids.size() * 4));
  }
  const int repeat = std::atoi(argv[4]);
  double best = 1e30;
  std::size_t tokens = 0;
  for (int r = 0; r < repeat; ++r) {
    const auto start = std::clock();
    tokens = 0;
    for (const auto s : strings) tokens += encode(s).size();
    best = std::min(best, seconds(start));
  }
  std::printf("{\"load_ms\": %.1f, \"seconds\": %.6f, \"bytes\": %zu, \"tokens\": %zu}\n", load * 1e3, best, bytes,
              tokens);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}

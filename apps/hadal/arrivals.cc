#include "arrivals.h"

#include <algorithm>
#include <fstream>

#include "base/error.h"
#include "text/json.h"

namespace hadal {
namespace {

using text::Json;

constexpr int64_t kBlock = 512;
// Ids that every vocabulary of a byte-level BPE has: plain text of a few letters each.
constexpr int32_t kFirstId = 512, kIds = 4096;

uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

std::vector<Arrival> read_arrivals(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) fail(ErrorKind::io, "cannot open {}", file.string());
  std::vector<Arrival> arrivals;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::optional<Json> json = Json::try_parse(line);
    const auto bad = [&](const char* what) {
      fail(ErrorKind::invalid_data, "{}, line {}: {}", file.string(), number, what);
    };
    if (!json || json->as_object() == nullptr) bad("no JSON object");
    Arrival a;
    const Json* time = json->find("timestamp");
    if (time == nullptr || time->as_number() == nullptr) bad("no \"timestamp\" in milliseconds");
    a.seconds = std::strtod(time->as_number()->text.c_str(), nullptr) / 1000;
    if (!(a.seconds >= 0 && a.seconds < 1e9)) bad("\"timestamp\" is not from 0 to 1e12 milliseconds");
    for (const auto& [name, value] :
         {std::pair{"input_length", &a.prompt_tokens}, std::pair{"output_length", &a.max_tokens}})
      if (const Json* found = json->find(name)) {
        *value = found->as_integer().value_or(0);
        if (*value < 1 || *value > 1 << 24) bad("a length that is not from 1 to 2^24 tokens");
      }
    if (const Json* blocks = json->find("hash_ids")) {
      if (blocks->as_array() == nullptr) bad("\"hash_ids\" is no list");
      for (const Json& id : *blocks->as_array()) {
        if (!id.as_integer()) bad("\"hash_ids\" holds something else than integers");
        a.blocks.push_back(static_cast<uint64_t>(*id.as_integer()));
      }
    }
    arrivals.push_back(std::move(a));
  }
  if (arrivals.empty()) fail(ErrorKind::invalid_data, "{} has no requests", file.string());
  std::stable_sort(arrivals.begin(), arrivals.end(),
                   [](const Arrival& a, const Arrival& b) { return a.seconds < b.seconds; });
  return arrivals;
}

std::vector<int32_t> prompt_of(const Arrival& arrival, uint64_t number) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < arrival.prompt_tokens; ++i) {
    const auto block = static_cast<size_t>(i / kBlock);
    const uint64_t name = block < arrival.blocks.size() ? mixed(arrival.blocks[block]) : mixed(~(number << 20 | block));
    ids.push_back(kFirstId + static_cast<int32_t>(mixed(name ^ static_cast<uint64_t>(i % kBlock)) % kIds));
  }
  return ids;
}

}  // namespace hadal

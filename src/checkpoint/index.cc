#include "checkpoint/index.h"

#include "base/error.h"
#include "checkpoint/json.h"

namespace hadal {
namespace {

std::unordered_map<std::string, std::string> string_map(const json::value& value, const std::string& path) {
  if (!value.is_object()) fail(ErrorKind::invalid_data, "{} is {}, expected an object", path, show(value));
  std::unordered_map<std::string, std::string> map;
  map.reserve(value.get_object().size());
  for (const auto& m : value.get_object()) {
    const std::string name(m.key().data(), m.key().size());
    if (!m.value().is_string())
      fail(ErrorKind::invalid_data, "{}.{} is {}, expected a string", path, name, show(m.value()));
    map.emplace(name, std::string(m.value().get_string().data(), m.value().get_string().size()));
  }
  return map;
}

}  // namespace

CheckpointIndex CheckpointIndex::parse(std::string_view text, std::string_view what) {
  const json::value root = parse_json(text, what);
  JsonFields top(root, std::string(what), "");
  CheckpointIndex index;
  index.weight_map = string_map(top.get("weight_map"), top.path("weight_map"));
  if (index.weight_map.empty()) fail(ErrorKind::invalid_data, "{} is empty", top.path("weight_map"));
  for (const auto& [name, file] : index.weight_map)
    if (file.empty() || file.find('/') != std::string::npos || file.find('\0') != std::string::npos || file[0] == '.')
      fail(ErrorKind::invalid_data, "{}.{} is \"{}\", expected the name of a file beside the index",
           top.path("weight_map"), name, file);
  if (top.has("metadata")) {
    JsonFields metadata = top.object("metadata");
    if (metadata.has("total_size"))
      index.total_size = metadata.integer("total_size", 0, std::numeric_limits<int64_t>::max());
    if (metadata.has("checksums")) index.checksums = string_map(metadata.get("checksums"), metadata.path("checksums"));
  }
  return index;
}

CheckpointIndex CheckpointIndex::load(const std::filesystem::path& file) {
  return parse(read_text_file(file, size_t{256} << 20), file.string());
}

}  // namespace hadal

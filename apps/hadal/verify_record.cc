#include "verify_record.h"

#include <xxhash.h>

#include <algorithm>
#include <fstream>
#include <memory>

#include "base/error.h"
#include "model_options.h"
#include "text/json.h"

namespace hadal {
namespace {

using text::Json;

const Json& member(const Json& object, const std::string& key) {
  if (const Json* value = object.find(key)) return *value;
  fail(ErrorKind::invalid_data, "\"{}\" is missing", key);
}

std::string string_at(const Json& object, const std::string& key) {
  if (const std::string* s = member(object, key).as_string()) return *s;
  fail(ErrorKind::invalid_data, "\"{}\" is not a string", key);
}

double number_at(const Json& object, const std::string& key) {
  if (const Json::Number* n = member(object, key).as_number()) return std::stod(n->text);
  fail(ErrorKind::invalid_data, "\"{}\" is not a number", key);
}

std::vector<int32_t> ids_at(const Json& object, const std::string& key) {
  std::vector<int32_t> ids;
  if (const Json::Array* list = member(object, key).as_array())
    for (const Json& id : *list)
      if (const auto n = id.as_integer()) ids.push_back(static_cast<int32_t>(*n));
  if (ids.empty()) fail(ErrorKind::invalid_data, "\"{}\" is not a list of token ids", key);
  return ids;
}

Json to_json(const std::vector<int32_t>& ids) {
  Json::Array list;
  for (const int32_t id : ids) list.emplace_back(id);
  return list;
}

Json to_json(double value) { return Json::Number{text::python_float_repr(value), false}; }

}  // namespace

std::string checkpoint_identity(const Checkpoint& checkpoint) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  XXH3_128bits_reset(state.get());
  const auto add = [&](const void* data, size_t bytes) { XXH3_128bits_update(state.get(), data, bytes); };
  const std::string config = read_text((checkpoint.directory() / "config.json").string());
  add(config.data(), config.size());

  std::vector<const TensorView*> tensors;
  for (const SafetensorsFile& shard : checkpoint.shards())
    for (const TensorView& t : shard.tensors()) tensors.push_back(&t);
  std::sort(tensors.begin(), tensors.end(), [](const TensorView* a, const TensorView* b) { return a->name < b->name; });
  for (const TensorView* t : tensors) {
    add(t->name.data(), t->name.size());
    add(&t->type, sizeof t->type);
    add(t->shape.data(), t->shape.size() * sizeof t->shape[0]);
    const size_t sample = std::min<size_t>(t->bytes, 64);
    for (const size_t at : {size_t{0}, (t->bytes - sample) / 2, t->bytes - sample}) add(t->data + at, sample);
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string file_hash(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) fail(ErrorKind::io, "cannot open {}", file.string());
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  std::vector<char> buffer(1 << 20);
  while (in) {
    in.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    XXH3_64bits_update(state.get(), buffer.data(), static_cast<size_t>(in.gcount()));
  }
  if (in.bad()) fail(ErrorKind::io, "cannot read {}", file.string());
  return fmt::format("{:016x}", XXH3_64bits_digest(state.get()));
}

VerifyRecord read_verify_record(const std::filesystem::path& file) {
  const std::string content = read_text(file.string());
  try {
    const Json root = Json::parse(content);
    VerifyRecord record;
    record.identity = string_at(root, "identity");
    const Json& files = member(root, "files");
    if (files.as_object() != nullptr)
      for (const auto& entry : *files.as_object()) record.files[entry.first] = string_at(files, entry.first);
    const Json::Array* prompts = member(root, "prompts").as_array();
    if (prompts == nullptr || prompts->empty()) fail(ErrorKind::invalid_data, "\"prompts\" is not a filled list");
    for (const Json& p : *prompts) {
      VerifyPrompt prompt{string_at(p, "name"), string_at(p, "text"), ids_at(p, "ids"), ids_at(p, "answer"), {}};
      const Json& scores = member(p, "scores");
      if (scores.as_object() != nullptr)
        for (const auto& [numerics, score] : *scores.as_object())
          prompt.scores[numerics] = {number_at(score, "log_likelihood"), number_at(score, "gap")};
      record.prompts.push_back(std::move(prompt));
    }
    return record;
  } catch (const Error& error) { throw Error(ErrorKind::invalid_data, file.string() + ": " + error.what()); }
}

void write_verify_record(const VerifyRecord& record, const std::filesystem::path& file) {
  Json::Object files;
  for (const auto& [name, hash] : record.files) files.emplace_back(name, hash);
  std::string out = "{\"identity\": " + Json(record.identity).dump() +
                    ",\n\"files\": " + Json(std::move(files)).dump() + ",\n\"prompts\": [";
  for (size_t i = 0; i < record.prompts.size(); ++i) {
    const VerifyPrompt& p = record.prompts[i];
    Json::Object scores;
    for (const auto& [numerics, score] : p.scores)
      scores.emplace_back(numerics,
                          Json::Object{{"log_likelihood", to_json(score.log_likelihood)}, {"gap", to_json(score.gap)}});
    const Json prompt = Json::Object{{"name", p.name},
                                     {"text", p.text},
                                     {"ids", to_json(p.ids)},
                                     {"answer", to_json(p.answer)},
                                     {"scores", std::move(scores)}};
    out += (i == 0 ? "\n" : ",\n") + prompt.dump();
  }
  out += "\n]}\n";
  std::ofstream stream(file, std::ios::binary);
  stream << out;
  stream.flush();
  if (!stream) fail(ErrorKind::io, "cannot write {}", file.string());
}

}  // namespace hadal

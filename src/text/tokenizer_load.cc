// Reading of tokenizer.json.
#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <system_error>

#include "base/error.h"
#include "text/tokenizer.h"

namespace hadal::text {
namespace {

// The byte alphabet of GPT-2: printable bytes stand for themselves, the other 68 for U+0100 and up.
std::array<std::int16_t, 0x144> alphabet_to_byte() {
  std::array<std::int16_t, 0x144> map;
  map.fill(-1);
  std::int16_t extra = 0x100;
  for (std::int16_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    map[printable ? b : extra++] = b;
  }
  return map;
}

// False when `spelling` has a character outside the alphabet: then it is no byte-level token.
bool spelling_to_bytes(std::string_view spelling, std::string& bytes) {
  static const auto map = alphabet_to_byte();
  bytes.clear();
  const char* p = spelling.data();
  const char* const end = p + spelling.size();
  while (p < end) {
    const std::uint32_t cp = decode_valid(p);
    if (cp >= map.size() || map[cp] < 0) return false;
    bytes += static_cast<char>(map[cp]);
  }
  return true;
}

const Json& member(const Json& object, std::string_view key) {
  if (const Json* value = object.find(key)) return *value;
  fail(ErrorKind::invalid_data, "\"{}\" is missing", key);
}

bool flag_of(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value && value->as_bool() && *value->as_bool();
}

std::string type_of(const Json* object) {
  const Json* type = object ? object->find("type") : nullptr;
  return type && type->as_string() ? *type->as_string() : "absent";
}

// A setting that would change tokens must have the value that this reader implements.
void expect_off(const Json& model, std::string_view key) {
  const Json* value = model.find(key);
  if (!value || value->is_null()) return;
  if (const bool* on = value->as_bool(); on && !*on) return;
  if (const std::string* text = value->as_string(); text && text->empty()) return;
  fail(ErrorKind::unsupported, "model.{} is {}; only its default is supported", key, value->dump());
}

void check_normalizer(const Json* normalizer) {
  if (!normalizer || normalizer->is_null()) return;
  const Json* steps = normalizer->find("normalizers");
  if (type_of(normalizer) == "Sequence" && steps && steps->as_array() && steps->as_array()->empty()) return;
  fail(ErrorKind::unsupported, "normalizer {} is not supported (the DeepSeek family from V3 on has none)",
       type_of(normalizer));
}

void check_model(const Json& root, const Json& model) {
  check_normalizer(root.find("normalizer"));
  if (type_of(&model) != "BPE") fail(ErrorKind::unsupported, "model type is {}, expected BPE", type_of(&model));
  for (const char* key :
       {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges"})
    expect_off(model, key);
  if (type_of(root.find("decoder")) != "ByteLevel")
    fail(ErrorKind::unsupported, "decoder is {}, expected ByteLevel", type_of(root.find("decoder")));
}

TokenId id_of(const Json& value, std::string_view token) {
  const auto id = value.as_integer();
  if (!id || *id < 0 || *id >= 1 << 18)
    fail(ErrorKind::invalid_data, "token \"{}\" has id {}, expected 0 to {}", token, value.dump(), (1 << 18) - 1);
  return static_cast<TokenId>(*id);
}

std::vector<Bpe::Merge> read_merges(const Json& model) {
  const Json::Array* list = member(model, "merges").as_array();
  if (!list) fail(ErrorKind::invalid_data, "model.merges is not a list");
  std::vector<Bpe::Merge> merges(list->size());
  for (std::size_t i = 0; i < list->size(); ++i) {
    // Older files write "left right", newer ones ["left", "right"].
    std::string_view left, right;
    if (const std::string* joined = (*list)[i].as_string()) {
      const std::size_t blank = joined->find(' ');
      if (blank != std::string::npos) {
        left = std::string_view(*joined).substr(0, blank);
        right = std::string_view(*joined).substr(blank + 1);
      }
    } else if (const Json::Array* pair = (*list)[i].as_array();
               pair && pair->size() == 2 && (*pair)[0].as_string() && (*pair)[1].as_string()) {
      left = *(*pair)[0].as_string();
      right = *(*pair)[1].as_string();
    }
    if (left.empty() || right.empty() || !spelling_to_bytes(left, merges[i].left) ||
        !spelling_to_bytes(right, merges[i].right))
      fail(ErrorKind::invalid_data, "merge {} is {}, expected two byte-level tokens", i, (*list)[i].dump());
  }
  return merges;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(ErrorKind::io, "cannot open {}: {}", path.string(), std::generic_category().message(errno));
  std::string content(static_cast<std::size_t>(std::filesystem::file_size(path)), '\0');
  file.read(content.data(), static_cast<std::streamsize>(content.size()));
  if (!file) fail(ErrorKind::io, "cannot read {}", path.string());
  return content;
}

}  // namespace

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::exists(path, error)) fail(ErrorKind::io, "{}: no such file or folder", path.string());
  const fs::path file = fs::is_directory(path, error) ? path / "tokenizer.json" : path;
  if (!fs::is_regular_file(file, error)) fail(ErrorKind::io, "{}: the folder has no tokenizer.json", path.string());
  return from_json(read_file(file), file.string());
}

Tokenizer Tokenizer::from_json(std::string_view json, const std::string& name) {
  try {
    if (valid_utf8_prefix(json) != json.size())
      fail(ErrorKind::invalid_data, "not UTF-8 at byte {}", valid_utf8_prefix(json));
    const Json root = Json::parse(json);
    const Json& model = member(root, "model");
    check_model(root, model);
    const PreTokenizer pre = recognise_pretokenizer(root.find("pre_tokenizer") ? *root.find("pre_tokenizer") : Json());

    const Json::Object* vocab = member(model, "vocab").as_object();
    if (!vocab || vocab->empty()) fail(ErrorKind::invalid_data, "model.vocab is not a filled object");
    std::vector<std::string> bytes;     // of every id
    std::vector<std::string> ordinary;  // of the ids that text can become
    bytes.reserve(vocab->size() + 2048);
    ordinary.reserve(vocab->size());
    const auto grow = [](std::vector<std::string>& list, TokenId id) {
      if (static_cast<std::size_t>(id) >= list.size()) list.resize(static_cast<std::size_t>(id) + 1);
    };
    std::string decoded;
    for (const auto& [token, value] : *vocab) {
      const TokenId id = id_of(value, token);
      grow(bytes, id);
      grow(ordinary, id);
      if (!bytes[id].empty()) fail(ErrorKind::invalid_data, "id {} is given to two tokens", id);
      const bool byte_level = spelling_to_bytes(token, decoded);
      bytes[id] = byte_level ? decoded : token;
      if (byte_level) ordinary[id] = decoded;
    }
    Tokenizer result(Bpe(std::move(ordinary), read_merges(model)), pre);

    const Json* added = root.find("added_tokens");
    if (added && !added->is_null() && !added->as_array()) fail(ErrorKind::invalid_data, "added_tokens is not a list");
    if (added && added->as_array()) {
      for (const Json& token : *added->as_array()) {
        const std::string* content = member(token, "content").as_string();
        if (!content || content->empty()) fail(ErrorKind::invalid_data, "an added token has no content");
        for (const char* key : {"lstrip", "rstrip", "single_word"})
          if (flag_of(token, key))
            fail(ErrorKind::unsupported, "added token \"{}\" has {} set, which is not supported", *content, key);
        const TokenId id = id_of(member(token, "id"), *content);
        grow(bytes, id);
        if (static_cast<std::size_t>(id) >= result.flags_.size())
          result.flags_.resize(static_cast<std::size_t>(id) + 1);
        bytes[id] = *content;
        result.flags_[id] = static_cast<std::uint8_t>(kControl | (flag_of(token, "special") ? kSpecial : 0));
        result.controls_[*content] = id;
        result.passes_[flag_of(token, "normalized") ? 1 : 0].names.emplace_back(*content, id);
      }
    }
    for (ControlSet& set : result.passes_) set.prepare();
    result.bytes_ = std::move(bytes);
    result.flags_.resize(result.bytes_.size());
    return result;
  } catch (const Error& error) { throw Error(error.kind(), name + ": " + error.what()); }
}

}  // namespace hadal::text

#include "text/pretokenizer.h"

#include <array>

#include "base/error.h"

namespace hadal::text {
namespace {

// The files spell the kana ranges either with escapes or with the characters themselves; JSON reading has made
// both the same by now.
constexpr std::array<std::string_view, 3> kDeepSeekV3 = {
    R"(\p{N}{1,3})",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^)"
    "\r\n"
    R"(\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[)"
    "\r\n"
    R"(]*|\s*[)"
    "\r\n"
    R"(]+|\s+(?!\S)|\s+)",
};

// In a regular expression the escapes \r and \n are the characters: files spell them either way.
std::string with_line_breaks(std::string pattern) {
  for (const auto& [escape, character] : {std::pair{"\\r", "\r"}, std::pair{"\\n", "\n"}})
    for (std::size_t at = 0; (at = pattern.find(escape, at)) != std::string::npos; ++at)
      pattern.replace(at, 2, character);
  return pattern;
}

std::string text_of(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value && value->as_string() ? *value->as_string() : std::string();
}

bool flag_of(const Json& object, std::string_view key, bool otherwise) {
  const Json* value = object.find(key);
  return value && value->as_bool() ? *value->as_bool() : otherwise;
}

}  // namespace

PreTokenizer recognise_pretokenizer(const Json& pre_tokenizer) {
  const Json* steps_json = pre_tokenizer.find("pretokenizers");
  if (text_of(pre_tokenizer, "type") != "Sequence" || !steps_json || !steps_json->as_array())
    fail(ErrorKind::unsupported, "tokenizer.json: pre_tokenizer is {}, expected a Sequence (DeepSeek V3, V4, V4.1)",
         pre_tokenizer.is_null() ? "absent" : text_of(pre_tokenizer, "type"));
  const Json::Array& steps = *steps_json->as_array();
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::string type = text_of(steps[i], "type");
    if (type == "Split") {
      const Json* pattern = steps[i].find("pattern");
      const std::string regex = pattern ? text_of(*pattern, "Regex") : std::string();
      if (i >= kDeepSeekV3.size() || with_line_breaks(regex) != kDeepSeekV3[i])
        fail(ErrorKind::unsupported,
             "tokenizer.json: split pattern {} is {}, which this version does not know (it knows DeepSeek V3, R1, "
             "V3.1, V3.2, V4 and V4.1)",
             i + 1, regex.empty() ? "not a regular expression" : Json(regex).dump());
      if (text_of(steps[i], "behavior") != "Isolated" || flag_of(steps[i], "invert", false))
        fail(ErrorKind::unsupported, "tokenizer.json: split {} has behavior \"{}\", expected Isolated, not inverted",
             i + 1, text_of(steps[i], "behavior"));
    } else if (type == "ByteLevel") {
      if (i != kDeepSeekV3.size() || flag_of(steps[i], "add_prefix_space", true) ||
          flag_of(steps[i], "use_regex", true))
        fail(ErrorKind::unsupported,
             "tokenizer.json: ByteLevel must follow the three splits with add_prefix_space and use_regex false");
    } else {
      fail(ErrorKind::unsupported, "tokenizer.json: pre-tokenizer step {} is \"{}\", expected Split or ByteLevel",
           i + 1, type);
    }
  }
  if (steps.size() != kDeepSeekV3.size() + 1)
    fail(ErrorKind::unsupported, "tokenizer.json: {} pre-tokenizer steps, expected 4 (DeepSeek V3, V4, V4.1)",
         steps.size());
  return PreTokenizer::deepseek_v3;
}

}  // namespace hadal::text

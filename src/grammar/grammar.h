// Constrained output: what `response_format` and `tool_choice` of a request allow, as a Constraint for the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/tools.h"
#include "grammar/vocabulary.h"
#include "hadal/constraint.h"
#include "text/json.h"

namespace hadal::grammar {

// Compiles grammars for one vocabulary and keeps the last ones, so that requests with the same schema share their automaton.
// Thread-safe. The results are initial states; clone them. They allow end of sequence exactly where the text is complete, and
// nothing else behind it.
class Grammars {
 public:
  explicit Grammars(std::shared_ptr<const Vocabulary> vocabulary);
  ~Grammars();
  Grammars(const Grammars&) = delete;
  Grammars& operator=(const Grammars&) = delete;

  // Any JSON object.
  std::shared_ptr<const Constraint> json_object();

  // A value that is valid against a JSON schema: schema.h says which keywords there are and how the text is laid out. Throws
  // Error(invalid_argument) that names place, keyword and remedy for what is not supported, and for a schema that no text
  // satisfies or that is too large.
  std::shared_ptr<const Constraint> json_schema(const text::Json& schema);
  std::shared_ptr<const Constraint> json_schema_text(std::string_view schema);  // also when it is not JSON

  // tools.h. Throws Error(unsupported) when the vocabulary has no token for the markup.
  std::shared_ptr<const Constraint> tool_calls(const std::vector<Tool>& tools, const ToolChoice& choice,
                                               const text::Json* answer = nullptr);

  // Any text up to the end-of-thinking token, then `answer`. For a prompt that ends inside the reasoning. Throws
  // Error(unsupported) when the vocabulary has no such token.
  std::shared_ptr<const Constraint> after_reasoning(std::shared_ptr<const Constraint> answer) const;

  const Vocabulary& vocabulary() const { return *vocabulary_; }

 private:
  class Cache;
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::unique_ptr<Cache> cache_;
};

}  // namespace hadal::grammar

#include "text/detokenizer.h"

namespace hadal::text {

void Detokenizer::push(TokenId id, std::vector<TokenPiece>& out) {
  const std::string& bytes = tokenizer_.token_bytes(id);
  if (tokenizer_.is_control(id)) {
    finish(out);
    out.push_back({bytes, true});
    return;
  }
  std::string text;
  bytes_.append(bytes, text);
  if (!text.empty()) out.push_back({std::move(text), false});
}

void Detokenizer::finish(std::vector<TokenPiece>& out) {
  std::string text;
  bytes_.finish(text);
  if (!text.empty()) out.push_back({std::move(text), false});
}

}  // namespace hadal::text

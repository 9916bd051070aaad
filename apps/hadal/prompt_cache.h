// One request that is kept from prompt to prompt: of a new prompt, only what the last one does not share is computed.
#pragma once

#include <vector>

#include "engine/single_request.h"

namespace hadal {

class PromptCache {
 public:
  // Room for `context` tokens.
  PromptCache(deepseek_v41::Model& model, int64_t context, SingleRequest::PromptOptions options);

  struct Prompt {
    std::vector<float> logits;  // of the last token
    int64_t cached = 0, computed = 0;
  };
  // Makes the state that of exactly these tokens. When `progress` throws, the next prompt starts from the last mark.
  Prompt prefill(std::span<const int32_t> ids, const std::function<void(int64_t done)>& progress);
  SingleRequest& request() { return request_; }

  int64_t length() { return request_.state().length(); }
  int64_t context() const { return context_; }

 private:
  void go_back(int64_t longest);

  int64_t context_;
  SingleRequest::PromptOptions options_;
  SingleRequest request_;
  Snapshot empty_;
  // In front of the last token of earlier prompts, each a prefix of the state. The last token is <think> or </think>, and a
  // later prompt may have the other one at that place.
  std::vector<Snapshot> marks_;
};

}  // namespace hadal

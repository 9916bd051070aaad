// Answers of /v1/responses that a later request may continue.
#pragma once

#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/chat.h"

namespace hadal::serve {

struct StoredResponse {
  std::vector<text::ChatMessage> messages;  // the conversation up to and with the answer, without instructions
  std::string body;                         // the answer as it was sent
};

// Bounded in entries and in bytes; the one unused for longest goes first. Thread-safe.
class ResponseStore {
 public:
  ResponseStore(size_t entries, size_t bytes) : max_entries_(entries), max_bytes_(bytes) {}
  void put(const std::string& id, StoredResponse response);
  std::optional<StoredResponse> get(const std::string& id);
  bool erase(const std::string& id);
  size_t size() const;

 private:
  struct Entry {
    std::string id;
    StoredResponse response;
    size_t bytes;
  };
  void drop(std::list<Entry>::iterator entry);

  const size_t max_entries_, max_bytes_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // latest first
  std::unordered_map<std::string, std::list<Entry>::iterator> places_;
  size_t bytes_ = 0;
};

}  // namespace hadal::serve

#include "serve/response_store.h"

namespace hadal::serve {
namespace {

size_t size_of(const StoredResponse& r) {
  size_t bytes = sizeof r + r.body.size();
  for (const text::ChatMessage& m : r.messages) {
    bytes += sizeof m + m.content.size() + m.reasoning.size() + m.tool_call_id.size();
    for (const text::ToolCall& c : m.tool_calls) bytes += sizeof c + c.id.size() + c.name.size() + c.arguments.size();
  }
  return bytes;
}

}  // namespace

void ResponseStore::put(const std::string& id, StoredResponse response) {
  const std::lock_guard lock(mutex_);
  if (const auto found = places_.find(id); found != places_.end()) drop(found->second);
  const size_t bytes = size_of(response);
  if (bytes > max_bytes_ || max_entries_ == 0) return;
  while (entries_.size() >= max_entries_ || bytes_ + bytes > max_bytes_) drop(std::prev(entries_.end()));
  entries_.push_front({id, std::move(response), bytes});
  places_[id] = entries_.begin();
  bytes_ += bytes;
}

std::optional<StoredResponse> ResponseStore::get(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = places_.find(id);
  if (found == places_.end()) return std::nullopt;
  entries_.splice(entries_.begin(), entries_, found->second);
  return entries_.front().response;
}

bool ResponseStore::erase(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = places_.find(id);
  if (found == places_.end()) return false;
  drop(found->second);
  return true;
}

size_t ResponseStore::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

void ResponseStore::drop(std::list<Entry>::iterator entry) {
  bytes_ -= entry->bytes;
  places_.erase(entry->id);
  entries_.erase(entry);
}

}  // namespace hadal::serve

#include "serve/api_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace hadal::serve {
namespace {

// Takes the same time for every key of a length, whatever it shares with the right one.
bool equal_in_constant_time(std::string_view a, std::string_view b) {
  unsigned difference = a.size() != b.size();
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i < b.size() ? i : 0]);
  return b.empty() ? a.empty() : difference == 0;
}

}  // namespace

double Quota::Bucket::wait(double amount) const {
  const double missing = std::min(amount, limit) - level;
  return limit == 0 || missing < 1e-6 ? 0 : missing / limit * 60;  // no refusal for a rounding
}

void Quota::refill(Clock::time_point now) {
  const double minutes = std::chrono::duration<double, std::ratio<60>>(now - filled_).count();
  if (minutes <= 0) return;
  for (Bucket* b : {&requests_, &tokens_}) b->level = std::min(b->limit, b->level + minutes * b->limit);
  filled_ = now;
}

std::unique_ptr<Quota::Charge> Quota::charge(int64_t tokens, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  refill(now);
  const double for_request = requests_.wait(1), for_tokens = tokens_.wait(static_cast<double>(tokens));
  if (const double wait = std::max(for_request, for_tokens); wait > 0) {
    const int seconds = std::max(1, static_cast<int>(std::ceil(wait - 1e-3)));  // 0 would mean: not said
    ApiError error(
        429,
        for_request >= for_tokens
            ? fmt::format("this key may make {} requests a minute; the next one in {} s", requests_.limit, seconds)
            : fmt::format("this key may use {} tokens a minute, {} are left, and this request may take {} "
                          "(prompt and most tokens of the answer); it can be made in {} s",
                          tokens_.limit, std::floor(std::max(0.0, tokens_.level)), tokens, seconds),
        {}, "rate_limit_exceeded");
    error.retry_after = seconds;
    throw error;
  }
  requests_.level -= 1;
  tokens_.level -= static_cast<double>(tokens);
  return std::make_unique<Charge>(shared_from_this(), tokens);
}

Quota::Charge::~Charge() {
  const std::lock_guard lock(quota_->mutex_);
  const auto give_back = [](Bucket& b, double amount) { b.level = std::min(b.limit, b.level + amount); };
  if (used_ == 0) give_back(quota_->requests_, 1);
  give_back(quota_->tokens_, static_cast<double>(tokens_ - used_));
}

ApiKeys::ApiKeys(const std::vector<ApiKey>& keys) {
  for (const ApiKey& key : keys) {
    const bool limited = key.requests_per_minute > 0 || key.tokens_per_minute > 0;
    entries_.push_back({key.key, limited ? std::make_shared<Quota>(key) : nullptr});
  }
}

std::shared_ptr<Quota> ApiKeys::check(const HttpRequest& request) const {
  if (entries_.empty()) return nullptr;
  std::string_view given = request.header("x-api-key");
  const std::string_view header = request.header("authorization");
  if (constexpr std::string_view bearer = "Bearer "; given.empty() && header.size() > bearer.size()) {
    const auto same = [](char a, char b) { return (a | 32) == (b | 32); };
    if (std::equal(bearer.begin(), bearer.end(), header.begin(), same)) given = header.substr(bearer.size());
  }
  const Entry* found = nullptr;
  for (const Entry& entry : entries_)
    if (equal_in_constant_time(given, entry.key)) found = &entry;
  if (found != nullptr) return found->quota;
  throw ApiError(401,
                 header.empty() && given.empty()
                     ? "no API key was given; send it as \"Authorization: Bearer KEY\" or \"x-api-key: KEY\""
                     : "the API key is not one of this server's",
                 {}, "invalid_api_key");
}

}  // namespace hadal::serve

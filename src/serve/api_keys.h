// Who may ask, and how much.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "serve/api_error.h"
#include "serve/http.h"

namespace hadal::serve {

struct ApiKey {
  std::string key;
  // 0: no limit. A key that was not used for a while may use a minute's worth at once.
  int64_t requests_per_minute = 0, tokens_per_minute = 0;
};

// What a key may still ask for. Thread-safe.
class Quota : public std::enable_shared_from_this<Quota> {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Quota(const ApiKey& key) : requests_(key.requests_per_minute), tokens_(key.tokens_per_minute) {}

  // One request's part of the quota. What it did not use goes back when this is destroyed; a request that used nothing
  // does not count at all.
  class Charge {
   public:
    Charge(std::shared_ptr<Quota> quota, int64_t tokens) : quota_(std::move(quota)), tokens_(tokens) {}
    ~Charge();
    Charge(const Charge&) = delete;
    Charge& operator=(const Charge&) = delete;
    void use(int64_t tokens) { used_ += tokens; }

   private:
    const std::shared_ptr<Quota> quota_;
    const int64_t tokens_;
    int64_t used_ = 0;
  };
  // For a request of at most so many tokens, prompt and answer together; one that is larger than a minute's worth waits
  // for all of it. Throws ApiError(429) with the time after which it would have been taken.
  std::unique_ptr<Charge> charge(int64_t tokens, Clock::time_point now = Clock::now());

 private:
  // Fills up evenly. Below zero after a request that is larger than a minute's worth.
  struct Bucket {
    explicit Bucket(int64_t per_minute) : limit(static_cast<double>(per_minute)), level(limit) {}
    double limit, level;
    // Seconds until it holds that much.
    double wait(double amount) const;
  };
  void refill(Clock::time_point now);

  std::mutex mutex_;
  Bucket requests_, tokens_;
  Clock::time_point filled_ = Clock::now();
};

// The keys of a server. Thread-safe.
class ApiKeys {
 public:
  explicit ApiKeys(const std::vector<ApiKey>& keys);
  // The quota of the key that the request carries (Authorization: Bearer, or x-api-key), nullptr when it has none. Without
  // keys everybody may ask. Keys are compared in constant time. Throws ApiError(401).
  std::shared_ptr<Quota> check(const HttpRequest& request) const;

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<Quota> quota;
  };
  std::vector<Entry> entries_;
};

}  // namespace hadal::serve

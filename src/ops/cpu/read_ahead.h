// Memory is asked early for what a step reads next, by threads that wait and by operators that read little.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace hadal::cpu {

using Bytes = std::span<const std::byte>;

// A model reads its weights in the same order in every step, so what followed a weight last time is expected to follow it
// again. A wrong guess costs a read that nobody needed, never a result.
//
// Workers take the parts of a loop in turn, more or less: worker w asks for parts w, w + workers, .., so that they come to
// lie in its own caches. Cores need not share any: on a virtual machine they may be of two dies.
class ReadAhead {
 public:
  static constexpr int kMostParts = 64;

  explicit ReadAhead(int workers) : workers_(static_cast<size_t>(workers)) {}

  // Called by one thread. `parts` are read from here on, in this order; what followed them last time is expected next.
  void reading(std::span<const Bytes> parts);
  // What comes next is known. At most kMostParts are looked at.
  void expect(std::span<const Bytes> parts);

  // Called by that worker. Asks for a little of what it reads next; false when enough is on its way.
  bool ask(int worker);
  // The next bytes for the caller to ask for: up to `bytes`, of one part. Empty when none are left.
  Bytes take(int worker, int64_t bytes);

 private:
  struct Parts {
    std::vector<Bytes> parts;
    const Parts* next = nullptr;
  };
  struct alignas(64) Worker {
    uint32_t turn = 0;  // of expect()
    int part = 0;
    int64_t at = 0;     // in the part
    int64_t asked = 0;  // in all
  };
  struct Part {
    std::atomic<const std::byte*> data{nullptr};
    std::atomic<int64_t> bytes{0};
  };

  Worker& worker_now(int worker);

  std::unordered_map<const std::byte*, Parts> known_;  // by where the first part lies
  Parts* last_ = nullptr;
  std::vector<Worker> workers_;

  // A worker that reads these while they change asks for the wrong bytes, and no more.
  std::array<Part, kMostParts> parts_;
  std::atomic<int> count_{0};
  alignas(64) std::atomic<uint32_t> turn_{0};
};

}  // namespace hadal::cpu

// XXH3 of 64 bits over a stream, as 16 hexadecimal digits: finds damaged files; not a defence against forged
// ones.
#pragma once

#include <fmt/format.h>
#include <xxhash.h>

#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <string>

namespace hadal {

class Checksum {
 public:
  Checksum() : state_(XXH3_createState()) {
    if (!state_) throw std::bad_alloc();
    XXH3_64bits_reset(state_.get());
  }
  void add(std::span<const std::byte> bytes) { XXH3_64bits_update(state_.get(), bytes.data(), bytes.size()); }
  std::string hex() const { return fmt::format("{:016x}", XXH3_64bits_digest(state_.get())); }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

}  // namespace hadal

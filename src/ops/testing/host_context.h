// The simplest context: host memory, nothing else. The reference runs in it.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "ops/context.h"

namespace hadal::testing {

class HostContext final : public Context {
 public:
  using Context::Context;
  using Context::upload;

  DType activation_type() const override { return DType::f32; }
  void* allocate_step(size_t bytes) override { return allocate(step_, bytes); }
  void reset_step() override { step_.clear(); }
  size_t mark_step() override { return step_.size(); }
  void release_step(size_t mark) override { step_.resize(mark); }
  void* allocate_cache(size_t bytes) override {
    void* data = allocate(cache_, bytes);
    std::memset(data, 0, bytes);
    return data;
  }
  const void* place_weight(const void* host, size_t) override { return host; }
  const void* upload(const void* host, size_t bytes) override {
    void* data = allocate_step(bytes);
    if (bytes > 0) std::memcpy(data, host, bytes);
    return data;
  }
  void download(void* host, const void* device, size_t bytes) override { copy(host, device, bytes); }
  void copy_to_device(void* device, const void* host, size_t bytes) override { copy(device, host, bytes); }
  void copy_on_device(void* to, const void* from, size_t bytes) override { copy(to, from, bytes); }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  using Blocks = std::vector<std::unique_ptr<void, Free>>;

  // One block per allocation, so that a sanitizer sees every overrun.
  static void* allocate(Blocks& blocks, size_t bytes) {
    blocks.emplace_back(std::aligned_alloc(256, std::max<size_t>((bytes + 255) / 256, 1) * 256));
    return blocks.back().get();
  }
  static void copy(void* to, const void* from, size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

  Blocks step_, cache_;
};

}  // namespace hadal::testing

#include "ops/cpu/context.h"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <new>

#include "base/error.h"

namespace hadal {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr int64_t kMostAskedWaiting = 512 << 10;  // half of a second-level cache of Zen 4; 4 MB: no difference

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

// Threads of all nodes read all of it, so where memory has several nodes its pages go round them.
void interleave(void* p, size_t bytes) {
  static const std::vector<unsigned long> nodes = [] {
    std::vector<unsigned long> mask(1024 / (8 * sizeof(unsigned long)));
    if (syscall(SYS_get_mempolicy, nullptr, mask.data(), 1024UL, 0UL, MPOL_F_MEMS_ALLOWED) != 0) mask.clear();
    return mask;
  }();
  int count = 0;
  for (const unsigned long word : nodes) count += std::popcount(word);
  if (count > 1) syscall(SYS_mbind, p, bytes, MPOL_INTERLEAVE, nodes.data(), 1024UL, 0UL);
}

// Zeroed pages. Huge pages where the system gives them: cache rows and activations are touched all over.
std::byte* map_pages(size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) fail(ErrorKind::out_of_memory, "the system gave no {:.1f} MB", static_cast<double>(bytes) / 1e6);
  madvise(p, bytes, MADV_HUGEPAGE);
  interleave(p, bytes);
  return static_cast<std::byte*>(p);
}

}  // namespace

Arena::~Arena() {
  for (const auto& chunk : chunks_) munmap(chunk.data, chunk.size);
}

void* Arena::allocate(size_t bytes) {
  bytes = round_up(std::max<size_t>(bytes, 1), kAlignment);
  // Chunks double, so that their number stays small.
  while (chunk_ < chunks_.size() && used_ + bytes > chunks_[chunk_].size) {
    ++chunk_;
    used_ = 0;
  }
  if (chunk_ == chunks_.size()) {
    const size_t last = chunks_.empty() ? kHugePage : chunks_.back().size;
    const size_t size = round_up(std::max(bytes, 2 * last), kHugePage);
    chunks_.push_back({map_pages(size), size});
  }
  std::byte* p = chunks_[chunk_].data + used_;
  used_ += bytes;
  return p;
}

size_t Arena::capacity() const {
  size_t sum = 0;
  for (const auto& chunk : chunks_) sum += chunk.size;
  return sum;
}

CpuContext::CpuContext(Numerics numerics, int threads, Isa isa)
    : Context(numerics),
      read_ahead_(threads > 0 ? threads : usable_cpus()),
      pool_(threads, {[](void* ahead, int worker) {
                        return static_cast<cpu::ReadAhead*>(ahead)->reader(worker).ask(kMostAskedWaiting);
                      },
                      &read_ahead_}),
      isa_(isa) {
  if (!cpu_supports(isa)) fail(ErrorKind::unsupported, "this CPU has no {}", to_string(isa));
}

std::string CpuContext::device_name() const { return fmt::format("{}, {} threads", to_string(isa_), pool_.size()); }

CpuContext::~CpuContext() {
  for (const auto& cache : caches_) munmap(cache.data, cache.size);
}

void* CpuContext::allocate_cache(size_t bytes) {
  const size_t size = round_up(std::max<size_t>(bytes, 1), 4096);
  void* p = map_pages(size);
  caches_.push_back({p, size});
  return p;
}

const void* CpuContext::upload(const void* host, size_t bytes) {
  void* p = allocate_step(bytes);
  if (bytes > 0) std::memcpy(p, host, bytes);
  return p;
}

void CpuContext::download(void* host, const void* device, size_t bytes) {
  if (bytes > 0) std::memcpy(host, device, bytes);
}

void CpuContext::copy_to_device(void* device, const void* host, size_t bytes) {
  if (bytes > 0) std::memcpy(device, host, bytes);
}

void CpuContext::copy_on_device(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memmove(to, from, bytes);
}

CpuContext& cpu_context(Context& context) {
  auto* cpu = dynamic_cast<CpuContext*>(&context);
  HADAL_CHECK(cpu != nullptr);
  return *cpu;
}

}  // namespace hadal

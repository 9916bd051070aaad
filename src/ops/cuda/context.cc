#ifdef HADAL_HAVE_CUDA
#include "ops/cuda/context.h"

#include <algorithm>

#include "base/error.h"
#include "ops/cuda/errors.h"

namespace hadal::cuda {
namespace {

constexpr size_t kAlignment = 256;
constexpr const char* kStep = "step memory";

size_t align(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
double gib(size_t bytes) { return static_cast<double>(bytes) / (1024.0 * 1024 * 1024); }

}  // namespace

CudaContext::CudaContext(const ContextOptions& options) : Context(options.numerics) {
  if (options.numerics == Numerics::fp32)
    fail(ErrorKind::unsupported, "numerics fp32 is for comparisons on the CPU; the CUDA backend computes in bf16 or official");
  device_ = device_info(options.device);
  if (device_.sm_major != 9 || device_.sm_minor != 0)
    fail(ErrorKind::unsupported, "device {} ({}) has compute capability {}.{}; the CUDA backend is built for 9.0 (Hopper: H100, H200)",
         device_.ordinal, device_.name, device_.sm_major, device_.sm_minor);
  HADAL_CUDA(cudaSetDevice(device_.ordinal));
  constexpr size_t kReserve = size_t{1} << 30;  // for the CUDA libraries and other users of the card
  budget_ = options.memory_budget != 0 ? options.memory_budget
                                       : device_.memory_free - std::min(device_.memory_free / 2, kReserve);
  HADAL_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  HADAL_CUDA(cudaMallocHost(reinterpret_cast<void**>(&staging_), kStagingPart * kStagingParts));
  for (cudaEvent_t& event : staging_done_) HADAL_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  const size_t first = align(std::max(options.step_bytes, kAlignment));
  blocks_.push_back({take(kStep, first), first});
}

CudaContext::~CudaContext() {
  // Errors are not reported here: a destructor may run because of one.
  (void)cudaSetDevice(device_.ordinal);
  (void)cudaStreamSynchronize(stream_);
  for (const Block& block : blocks_) (void)cudaFree(block.data);
  for (void* memory : owned_) (void)cudaFree(memory);
  for (cudaEvent_t event : staging_done_) (void)cudaEventDestroy(event);
  (void)cudaFreeHost(staging_);
  (void)cudaStreamDestroy(stream_);
}

CudaContext& CudaContext::of(Context& context) {
  auto* cuda = dynamic_cast<CudaContext*>(&context);
  if (cuda == nullptr) fail(ErrorKind::internal, "a CUDA operator was given a context of another backend");
  HADAL_CUDA(cudaSetDevice(cuda->device_.ordinal));
  return *cuda;
}

void CudaContext::wait() { HADAL_CUDA(cudaStreamSynchronize(stream_)); }

void* CudaContext::take(const std::string& purpose, size_t bytes) {
  if (bytes > budget_ - std::min(budget_, allocated_)) {
    std::string use;
    for (const auto& [name, size] : by_purpose_) use += fmt::format(", {} {:.2f}", name, gib(size));
    fail(ErrorKind::out_of_memory, "device {}: {:.2f} GiB more for {} do not fit in the memory budget of {:.2f} GiB (in use: {:.2f} GiB{})",
         device_.ordinal, gib(bytes), purpose, gib(budget_), gib(allocated_), use);
  }
  void* memory = nullptr;
  HADAL_CUDA(cudaMalloc(&memory, bytes));
  allocated_ += bytes;
  by_purpose_[purpose] += bytes;
  return memory;
}

void CudaContext::give_back(const std::string& purpose, Block block) {
  HADAL_CUDA(cudaFree(block.data));
  allocated_ -= block.bytes;
  by_purpose_[purpose] -= block.bytes;
}

void* CudaContext::allocate(const std::string& purpose, size_t bytes, bool zeroed) {
  const size_t size = align(std::max<size_t>(bytes, 1));
  void* memory = take(purpose, size);
  owned_.push_back(memory);
  if (zeroed) HADAL_CUDA(cudaMemsetAsync(memory, 0, size, stream_));
  return memory;
}

void* CudaContext::allocate_step(size_t bytes) {
  const size_t size = align(std::max<size_t>(bytes, 1));
  while (used_ + size > blocks_[block_].bytes) {
    if (block_ + 1 == blocks_.size()) {
      // A longer step than any before. Half of what exists on top, so that few steps grow.
      size_t total = 0;
      for (const Block& block : blocks_) total += block.bytes;
      const size_t fresh = std::max(size, align(total / 2));
      blocks_.push_back({take(kStep, fresh), fresh});
    }
    ++block_;
    used_ = 0;
  }
  void* memory = static_cast<char*>(blocks_[block_].data) + used_;
  used_ += size;
  return memory;
}

void CudaContext::reset_step() {
  block_ = 0;
  used_ = 0;
  if (blocks_.size() == 1) return;
  size_t total = 0;
  for (const Block& block : blocks_) total += block.bytes;
  wait();  // kernels of the step may still read it
  while (!blocks_.empty()) {
    const Block last = blocks_.back();
    blocks_.pop_back();
    give_back(kStep, last);
  }
  blocks_.push_back({take(kStep, total), total});
}

void CudaContext::release_step(size_t mark) {
  block_ = mark >> kMarkShift;
  used_ = mark & ((size_t{1} << kMarkShift) - 1);
}

const void* CudaContext::place_weight(const void* host, size_t bytes) {
  const size_t size = align(std::max<size_t>(bytes, 1));
  if (slabs_.empty() || slab_used_ + size > slabs_.back().bytes) {
    const size_t last = slabs_.empty() ? 0 : slabs_.back().bytes;
    const size_t next = std::max(size, std::clamp(2 * last, kFirstSlab, kLastSlab));
    slabs_.push_back({allocate("weights", next), next});
    slab_used_ = 0;
  }
  void* device = static_cast<char*>(slabs_.back().data) + slab_used_;
  slab_used_ += size;
  copy_to_device(device, host, bytes);
  return device;
}

bool CudaContext::is_placed(const void* device) const {
  const auto* p = static_cast<const char*>(device);
  return std::any_of(slabs_.begin(), slabs_.end(), [&](const Block& slab) {
    return p >= static_cast<const char*>(slab.data) && p < static_cast<const char*>(slab.data) + slab.bytes;
  });
}

void CudaContext::copy_to_device(void* device, const void* host, size_t bytes) {
  if (bytes == 0) return;
  if (bytes > kStagingPart) {
    // From pageable memory the runtime stages the copy itself and returns when `host` has been read.
    HADAL_CUDA(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_));
    return;
  }
  if (staging_used_ + bytes > kStagingPart) {
    HADAL_CUDA(cudaEventRecord(staging_done_[staging_part_], stream_));
    staging_part_ = (staging_part_ + 1) % kStagingParts;
    staging_used_ = 0;
    HADAL_CUDA(cudaEventSynchronize(staging_done_[staging_part_]));
  }
  char* part = staging_ + static_cast<size_t>(staging_part_) * kStagingPart + staging_used_;
  std::memcpy(part, host, bytes);
  HADAL_CUDA(cudaMemcpyAsync(device, part, bytes, cudaMemcpyHostToDevice, stream_));
  staging_used_ += align(bytes);
}

const void* CudaContext::upload(const void* host, size_t bytes) {
  void* device = allocate_step(bytes);
  copy_to_device(device, host, bytes);
  return device;
}

void CudaContext::download(void* host, const void* device, size_t bytes) {
  HADAL_CUDA(cudaSetDevice(device_.ordinal));
  if (bytes != 0) HADAL_CUDA(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_));
  wait();
}

void CudaContext::copy_on_device(void* to, const void* from, size_t bytes) {
  if (bytes != 0) HADAL_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_));
}

}  // namespace hadal::cuda
#endif

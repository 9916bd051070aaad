#ifdef HADAL_HAVE_CUDA
#include "ops/cuda/context.h"

#include <algorithm>

#include "base/error.h"
#include "ops/cuda/errors.h"
#include "ops/cuda/launch.h"

namespace hadal::cuda {
namespace {

constexpr size_t kAlignment = 256;
constexpr const char* kStep = "step memory";

size_t align(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
double gib(size_t bytes) { return static_cast<double>(bytes) / (1024.0 * 1024 * 1024); }

// Events on the context's stream.
class EventMarks final : public TimeMarks {
 public:
  explicit EventMarks(cudaStream_t stream) : stream_(stream) {}
  ~EventMarks() override {
    for (cudaEvent_t event : events_) (void)cudaEventDestroy(event);
  }
  void mark() override {
    if (used_ == events_.size()) {
      events_.push_back(nullptr);
      HADAL_CUDA(cudaEventCreate(&events_.back()));
    }
    HADAL_CUDA(cudaEventRecord(events_[used_++], stream_));
  }
  std::vector<double> seconds() override {
    std::vector<double> spans;
    if (used_ > 0) HADAL_CUDA(cudaEventSynchronize(events_[used_ - 1]));
    for (size_t i = 1; i < used_; ++i) {
      float ms = 0;
      HADAL_CUDA(cudaEventElapsedTime(&ms, events_[i - 1], events_[i]));
      spans.push_back(1e-3 * static_cast<double>(ms));
    }
    used_ = 0;
    return spans;
  }

 private:
  cudaStream_t stream_;
  std::vector<cudaEvent_t> events_;
  size_t used_ = 0;
};

class Graph final : public Recording {
 public:
  ~Graph() override {
    if (exec != nullptr) (void)cudaGraphExecDestroy(exec);
  }
  cudaGraphExec_t exec = nullptr;
};

}  // namespace

CudaContext::CudaContext(const ContextOptions& options)
    : Context(options.numerics), tables_(options.tables), graphs_(options.graphs) {
  if (options.numerics == Numerics::fp32)
    fail(ErrorKind::unsupported,
         "numerics fp32 is for comparisons on the CPU; the CUDA backend computes in bf16, official or fp8");
  device_ = device_info(options.device);
  check_capability(device_);
  portable_ = options.portable || !is_hopper(device_);
  tuning_ = load_tuning(device_.name);
  HADAL_CUDA(cudaSetDevice(device_.ordinal));
  constexpr size_t kReserve = size_t{1} << 30;  // for the CUDA libraries and other users of the card
  budget_ = options.memory_budget != 0 ? options.memory_budget
                                       : device_.memory_free - std::min(device_.memory_free / 2, kReserve);
  for (cudaStream_t* stream : {&stream_, &side_stream_, &aside_stream_})
    HADAL_CUDA(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
  for (cudaEvent_t* event : {&forked_, &joined_, &aside_done_})
    HADAL_CUDA(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  HADAL_CUDA(cudaMallocHost(reinterpret_cast<void**>(&staging_), kStagingPart * kStagingParts));
  for (cudaEvent_t& event : staging_done_) HADAL_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  const size_t first = align(std::max(options.step_bytes, kAlignment));
  blocks_.push_back({take(kStep, first), first});
}

CudaContext::~CudaContext() {
  // Errors are not reported here: a destructor may run because of one.
  (void)cudaSetDevice(device_.ordinal);
  for (cudaStream_t stream : {aside_stream_, side_stream_, stream_}) (void)cudaStreamSynchronize(stream);
  for (const Block& block : blocks_) (void)cudaFree(block.data);
  for (void* memory : owned_) (void)cudaFree(memory);
  for (void* memory : owned_host_) (void)cudaFreeHost(memory);
  for (cudaEvent_t event : staging_done_) (void)cudaEventDestroy(event);
  (void)cudaFreeHost(staging_);
  for (cudaEvent_t event : {forked_, joined_, aside_done_}) (void)cudaEventDestroy(event);
  for (cudaStream_t stream : {aside_stream_, side_stream_, stream_}) (void)cudaStreamDestroy(stream);
}

CudaContext& CudaContext::of(Context& context) {
  auto* cuda = dynamic_cast<CudaContext*>(&context);
  if (cuda == nullptr) fail(ErrorKind::internal, "a CUDA operator was given a context of another backend");
  HADAL_CUDA(cudaSetDevice(cuda->device_.ordinal));
  launches_early = !cuda->portable_;
  return *cuda;
}

std::unique_ptr<TimeMarks> CudaContext::time_marks() { return std::make_unique<EventMarks>(stream_); }

void CudaContext::wait() { HADAL_CUDA(cudaStreamSynchronize(stream_)); }

std::unique_ptr<Recording> CudaContext::record(const std::function<void()>& work, std::unique_ptr<Recording> old) {
  HADAL_CHECK(!recording_);
  // Relaxed: what is recorded may be the first to need a kernel or more step memory.
  HADAL_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed));
  recording_ = true;
  cudaGraph_t graph = nullptr;
  try {
    work();
  } catch (...) {
    recording_ = false;
    if (cudaStreamEndCapture(stream_, &graph) == cudaSuccess && graph != nullptr) (void)cudaGraphDestroy(graph);
    (void)cudaGetLastError();
    throw;
  }
  recording_ = false;
  HADAL_CUDA(cudaStreamEndCapture(stream_, &graph));
  const std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, decltype(&cudaGraphDestroy)> owner(graph, cudaGraphDestroy);
  if (auto* reused = dynamic_cast<Graph*>(old.get())) {
    cudaGraphExecUpdateResultInfo info{};
    if (cudaGraphExecUpdate(reused->exec, graph, &info) == cudaSuccess) return old;
    (void)cudaGetLastError();  // another topology
  }
  auto recording = std::make_unique<Graph>();
  HADAL_CUDA(cudaGraphInstantiate(&recording->exec, graph, 0));
  HADAL_CUDA(cudaGraphUpload(recording->exec, stream_));
  return recording;
}

void CudaContext::replay(Recording& recording) {
  HADAL_CUDA(cudaSetDevice(device_.ordinal));
  HADAL_CUDA(cudaGraphLaunch(dynamic_cast<Graph&>(recording).exec, stream_));
}

void CudaContext::aside(const std::function<void()>& work) {
  HADAL_CHECK(!branched_ && !aside_);
  HADAL_CUDA(cudaEventRecord(aside_done_, stream_));
  HADAL_CUDA(cudaStreamWaitEvent(aside_stream_, aside_done_));
  std::swap(stream_, aside_stream_);
  aside_ = true;
  try {
    work();
  } catch (...) {
    std::swap(stream_, aside_stream_);
    throw;
  }
  std::swap(stream_, aside_stream_);
  HADAL_CUDA(cudaEventRecord(aside_done_, aside_stream_));
}

void CudaContext::join_aside() {
  if (!aside_) return;
  HADAL_CUDA(cudaStreamWaitEvent(stream_, aside_done_));
  aside_ = false;
}

Branch::Branch(CudaContext& context, int rows) : context_(context), open_(rows <= kMostRows), aside_(open_) {
  if (!open_) return;
  HADAL_CHECK(!context.branched_);
  HADAL_CUDA(cudaEventRecord(context.forked_, context.stream_));
  HADAL_CUDA(cudaStreamWaitEvent(context.side_stream_, context.forked_));
  std::swap(context.stream_, context.side_stream_);
  context.branched_ = true;
}

void Branch::rest() {
  if (aside_) std::swap(context_.stream_, context_.side_stream_);
  aside_ = false;
}

void Branch::join() {
  rest();
  if (!open_) return;
  open_ = false;
  context_.branched_ = false;
  HADAL_CUDA(cudaEventRecord(context_.joined_, context_.side_stream_));
  HADAL_CUDA(cudaStreamWaitEvent(context_.stream_, context_.joined_));
}

// After an exception; what was given stays in order all the same.
Branch::~Branch() {
  try {
    join();
  } catch (const Error&) {  // the exception under way says more
  }
}

const void* CudaContext::constant(const std::string& name, const void* of, const std::function<const void*()>& make) {
  const void*& made = constants_[{name, of}];
  if (made == nullptr) made = make();
  return made;
}

size_t CudaContext::memory_in_use() const {
  HADAL_CUDA(cudaSetDevice(device_.ordinal));
  size_t free = 0, total = 0;
  HADAL_CUDA(cudaMemGetInfo(&free, &total));
  return total - free;
}

void* CudaContext::take(const std::string& purpose, size_t bytes) {
  if (bytes > budget_ - std::min(budget_, allocated_)) {
    std::string use;
    for (const auto& [name, size] : by_purpose_) use += fmt::format(", {} {:.2f}", name, gib(size));
    fail(ErrorKind::out_of_memory,
         "device {}: {:.2f} GiB more for {} do not fit in the memory budget of {:.2f} GiB (in use: {:.2f} GiB{})",
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
  // Zeroed now, and not with every replay of what is being recorded.
  const cudaStream_t stream = recording_ ? cudaStreamLegacy : stream_;
  if (zeroed) HADAL_CUDA(cudaMemsetAsync(memory, 0, size, stream));
  if (recording_) HADAL_CUDA(cudaStreamSynchronize(stream));
  return memory;
}

void* CudaContext::lasting(const std::string& name, size_t bytes) {
  void*& memory = lasting_[name];
  if (memory == nullptr) memory = allocate("workspace", bytes, true);
  return memory;
}

void* CudaContext::allocate_step(size_t bytes) {
  const size_t size = align(std::max<size_t>(bytes, 1));
  while (used_ + size > blocks_[block_].bytes) {
    if (block_ + 1 == blocks_.size()) {
      // A longer step than any before. Half of what exists on top, so that few steps grow.
      size_t total = 0;
      for (size_t i = fixed_blocks_; i < blocks_.size(); ++i) total += blocks_[i].bytes;
      const size_t fresh = std::max(size, align(total / 2));
      blocks_.push_back({take(kStep, fresh), fresh});
    }
    ++block_;
    used_ = 0;
  }
  highest_block_ = std::max(highest_block_, block_);
  void* memory = static_cast<char*>(blocks_[block_].data) + used_;
  used_ += size;
  return memory;
}

void CudaContext::reset_step() {
  join_aside();  // what a step that failed has left there still writes
  block_ = highest_block_ = 0;
  used_ = 0;
  if (blocks_.size() <= fixed_blocks_ + 1) return;
  ++epoch_;
  size_t total = 0;
  wait();  // kernels of the step may still read it
  while (blocks_.size() > fixed_blocks_) {
    const Block last = blocks_.back();
    blocks_.pop_back();
    give_back(kStep, last);
    total += last.bytes;
  }
  blocks_.push_back({take(kStep, total), total});
}

void CudaContext::fix_step_memory() {
  reset_step();
  HADAL_CHECK(blocks_.size() == 1);
  fixed_blocks_ = 1;
}

void CudaContext::release_step(size_t mark) {
  if (branched_) return;
  block_ = mark >> kMarkShift;
  used_ = mark & ((size_t{1} << kMarkShift) - 1);
}

void* CudaContext::weight_memory(size_t bytes) {
  const size_t size = align(std::max<size_t>(bytes, 1));
  if (slabs_.empty() || slab_used_ + size > slabs_.back().bytes) {
    const size_t last = slabs_.empty() ? 0 : slabs_.back().bytes;
    const size_t next = std::max(size, std::clamp(2 * last, kFirstSlab, kLastSlab));
    slabs_.push_back({allocate("weights", next), next});
    slab_used_ = 0;
  }
  void* device = static_cast<char*>(slabs_.back().data) + slab_used_;
  slab_used_ += size;
  return device;
}

const void* CudaContext::place_weight(const void* host, size_t bytes) {
  void* device = weight_memory(bytes);
  copy_to_device(device, host, bytes);
  return device;
}

void* CudaContext::allocate_host(size_t bytes) {
  void* memory = nullptr;
  HADAL_CUDA(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault));
  owned_host_.push_back(memory);
  return memory;
}

bool CudaContext::is_placed(const void* device) const {
  const auto* p = static_cast<const char*>(device);
  return std::any_of(slabs_.begin(), slabs_.end(), [&](const Block& slab) {
    return p >= static_cast<const char*>(slab.data) && p < static_cast<const char*>(slab.data) + slab.bytes;
  });
}

void CudaContext::copy_to_device(void* device, const void* host, size_t bytes) {
  HADAL_CHECK(!recording_);
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

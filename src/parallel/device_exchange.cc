#ifdef HADAL_HAVE_CUDA
#include "parallel/device_exchange.h"

#include <cuda_runtime_api.h>

#include "base/error.h"
#include "ops/cuda/device.h"
#include "ops/cuda/errors.h"

namespace hadal::cuda {
namespace {

class OnDevice {  // for its life
 public:
  explicit OnDevice(int device) {
    HADAL_CUDA(cudaGetDevice(&before_));
    HADAL_CUDA(cudaSetDevice(device));
  }
  ~OnDevice() { (void)cudaSetDevice(before_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
};

void reach(int from, int to) {
  if (from == to) return;
  int can = 0;
  HADAL_CUDA(cudaDeviceCanAccessPeer(&can, from, to));
  if (can == 0)
    fail(ErrorKind::unsupported,
         "GPU {} cannot reach the memory of GPU {}: ranks need GPUs of one host that NVLink or PCIe peer access "
         "connects "
         "(nvidia-smi topo -p2p rw)",
         from, to);
  const OnDevice on(from);
  const cudaError_t status = cudaDeviceEnablePeerAccess(to, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled)
    (void)cudaGetLastError();
  else
    HADAL_CUDA(status);
}

}  // namespace

Exchange::Exchange(const ExchangeOptions& options) : options_(options) {
  const ExchangeShape& shape = options_.shape;
  check_shape(shape);
  if (static_cast<int>(options_.devices.size()) != shape.ranks)
    fail(ErrorKind::invalid_argument, "exchange between {} ranks: {} devices are named", shape.ranks,
         options_.devices.size());
  if (!(options_.patience > 0 && options_.patience <= 3600))
    fail(ErrorKind::invalid_argument, "exchange between ranks: a patience of more than 0 and at most 3,600 s, not {}",
         options_.patience);
  for (const int device : options_.devices)
    if (!is_hopper(device_info(device)))
      fail(ErrorKind::unsupported, "exchange between ranks: GPU {} is not a Hopper GPU", device);
  for (const int from : options_.devices)
    for (const int to : options_.devices) reach(from, to);
  const auto places = static_cast<size_t>(shape.places());
  for (int r = 0; r < shape.ranks; ++r) {
    const OnDevice on(options_.devices[r]);
    const auto take = [&](auto*& array, size_t count, bool zeroed = false) {
      void* data = nullptr;
      HADAL_CUDA(cudaMalloc(&data, count * sizeof(*array)));
      owned_.emplace_back(data, Free{options_.devices[r]});
      if (zeroed) HADAL_CUDA(cudaMemset(data, 0, count * sizeof(*array)));
      array = static_cast<std::remove_reference_t<decltype(array)>>(data);
    };
    RankMemory& m = memory_[r];
    take(m.codes, places * shape.d);
    take(m.scales, places);
    take(m.ids, places * shape.topk);
    take(m.weights, places * shape.topk);
    take(m.partial, places * shape.d);
    take(m.combined, static_cast<size_t>(shape.ranks) * chunk_capacity(shape), true);
    take(m.signals, 1, true);
    if (options_.copy_engines) take(staging_[r], places * shape.d);
    load_exchange_kernels();
    HADAL_CUDA(cudaDeviceSynchronize());
  }
  void* failures = nullptr;
  HADAL_CUDA(cudaHostAlloc(&failures, kMaxRanks * sizeof(ExchangeFailure), cudaHostAllocPortable));
  owned_.emplace_back(failures, Free{-1});
  failures_ = static_cast<ExchangeFailure*>(failures);
  for (int r = 0; r < kMaxRanks; ++r) failures_[r] = {};
}

void Exchange::Free::operator()(void* data) const {
  if (device < 0) {
    (void)cudaFreeHost(data);
  } else {
    const OnDevice on(device);
    (void)cudaFree(data);
  }
}

ExchangeView Exchange::view(int rank, int stride, int tokens) const {
  HADAL_CHECK(rank >= 0 && rank < options_.shape.ranks);
  HADAL_CHECK(stride >= 1 && stride <= options_.shape.stride && tokens >= 0 && tokens <= stride);
  ExchangeView view;
  for (int r = 0; r < options_.shape.ranks; ++r) view.rank[r] = memory_[r];
  view.shape = options_.shape;
  view.shape.stride = stride;
  view.me = rank;
  view.tokens = tokens;
  view.chunk_capacity = chunk_capacity(options_.shape);
  view.patience_ns = static_cast<uint64_t>(options_.patience * 1e9);
  view.failure = failures_ + rank;
  return view;
}

ExchangeView Exchange::staged_view(int rank, int stride, int tokens) const {
  HADAL_CHECK(options_.copy_engines);
  ExchangeView staged = view(rank, stride, tokens);
  staged.staging = staging_[rank];
  return staged;
}

void Exchange::copy(const ExchangeView& staged, ExchangePart part, cudaStream_t stream) const {
  const ExchangeShape& shape = staged.shape;
  const auto rows = static_cast<size_t>(shape.stride);
  for (int i = 1; i < shape.ranks; ++i) {
    const int to = (staged.me + i) % shape.ranks;
    if (part == kDispatch) {
      if (staged.tokens == 0) continue;
      const size_t at = staged.me * rows * shape.d;
      HADAL_CUDA(cudaMemcpyAsync(memory_[to].codes + at, memory_[staged.me].codes + at,
                                 static_cast<size_t>(staged.tokens) * shape.d, cudaMemcpyDefault, stream));
    } else {
      HADAL_CUDA(cudaMemcpyAsync(memory_[to].partial + staged.me * rows * shape.d, staged.staging + to * rows * shape.d,
                                 rows * shape.d * sizeof(uint16_t), cudaMemcpyDefault, stream));
    }
  }
  announce(staged, part, stream);
}

void Exchange::check() const {
  for (int r = 0; r < options_.shape.ranks; ++r) {
    const volatile ExchangeFailure& f = failures_[r];
    if (f.happened == 0) continue;
    const int part = f.part, source = f.source;
    const uint32_t step = f.step, seen = f.seen;
    fail(ErrorKind::internal,
         "rank {} waited {} s for rank {} to {} step {}, and it is at step {}: the other rank has failed, or is slower "
         "than the exchange's patience",
         r, options_.patience, source, part == kDispatch ? "dispatch" : "combine", step, seen);
  }
}

}  // namespace hadal::cuda
#endif

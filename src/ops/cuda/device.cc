#ifdef HADAL_HAVE_CUDA
#include "ops/cuda/device.h"

#include "base/error.h"
#include "ops/cuda/errors.h"

namespace hadal::cuda {
namespace {

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

}  // namespace

std::string unavailable_reason() {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
    return "no CUDA driver found (libcuda.so.1): this machine has no NVIDIA driver installed";
  int runtime = 0;
  HADAL_CUDA(cudaRuntimeGetVersion(&runtime));
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  (void)cudaGetLastError();
  if (status == cudaErrorInsufficientDriver)
    return fmt::format("the NVIDIA driver supports CUDA {}, this program needs {}: update the driver",
                       version_text(driver), version_text(runtime));
  if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0))
    return "the NVIDIA driver is installed, but no GPU is visible (see CUDA_VISIBLE_DEVICES)";
  if (status != cudaSuccess)
    return fmt::format("CUDA does not start: {} ({})", cudaGetErrorString(status), cudaGetErrorName(status));
  return {};
}

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    (void)cudaGetLastError();
    return 0;
  }
  return count;
}

DeviceInfo device_info(int ordinal) {
  if (const std::string reason = unavailable_reason(); !reason.empty())
    fail(ErrorKind::unsupported, "{}; use --device cpu", reason);
  const int count = device_count();
  if (ordinal < 0 || ordinal >= count)
    fail(ErrorKind::invalid_argument, "there is no CUDA device {}: this machine has {} (0 to {})", ordinal, count,
         count - 1);

  cudaDeviceProp prop{};
  HADAL_CUDA(cudaGetDeviceProperties(&prop, ordinal));
  DeviceInfo info;
  info.ordinal = ordinal;
  info.name = prop.name;
  info.pci = fmt::format("{:04x}:{:02x}:{:02x}.0", prop.pciDomainID, prop.pciBusID, prop.pciDeviceID);
  info.sm_major = prop.major;
  info.sm_minor = prop.minor;
  info.multiprocessors = prop.multiProcessorCount;
  info.l2_bytes = static_cast<size_t>(prop.l2CacheSize);
  info.shared_per_block = prop.sharedMemPerBlockOptin;
  int previous = 0;
  HADAL_CUDA(cudaGetDevice(&previous));
  HADAL_CUDA(cudaSetDevice(ordinal));
  HADAL_CUDA(cudaMemGetInfo(&info.memory_free, &info.memory_total));
  HADAL_CUDA(cudaSetDevice(previous));
  HADAL_CUDA(cudaDriverGetVersion(&info.driver_version));
  HADAL_CUDA(cudaRuntimeGetVersion(&info.runtime_version));
  return info;
}

void check_capability(const DeviceInfo& d) {
  if (d.sm_major >= 8) return;
  fail(ErrorKind::unsupported,
       "device {} ({}) has compute capability {}.{}; needed is 8.0 or newer (fast: 9.0, as H100 and H200 have); use "
       "--device cpu",
       d.ordinal, d.name, d.sm_major, d.sm_minor);
}

bool is_hopper(const DeviceInfo& d) { return d.sm_major == 9 && d.sm_minor == 0; }

}  // namespace hadal::cuda
#endif

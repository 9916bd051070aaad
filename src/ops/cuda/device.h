// The CUDA devices of this machine. Works, and says so, on a machine without driver or GPU.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace hadal::cuda {

struct DeviceInfo {
  int ordinal = 0;
  std::string name;
  std::string pci;   // 0000:1b:00.0
  int sm_major = 0;  // compute capability
  int sm_minor = 0;
  int multiprocessors = 0;
  size_t memory_total = 0;
  size_t memory_free = 0;  // at the time of the query
  size_t l2_bytes = 0;
  size_t shared_per_block = 0;  // with opt-in
  int driver_version = 0;       // CUDA version the driver supports: 13000 = 13.0; 0 without driver
  int runtime_version = 0;      // CUDA version this binary was built with
};

// Empty when the CUDA backend can run here; otherwise why not, as a sentence for the user.
std::string unavailable_reason();

int device_count();                   // 0 without driver or GPU
DeviceInfo device_info(int ordinal);  // throws when there is no such device

// Throws unsupported, with what the card has and what is needed, when not even the portable kernels run there.
void check_capability(const DeviceInfo& device);
bool is_hopper(const DeviceInfo& device);  // compute capability 9.0: H100, H200

}  // namespace hadal::cuda

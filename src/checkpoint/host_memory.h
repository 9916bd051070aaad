// What this machine, and the control group that the process runs in, has to offer.
#pragma once

#include <cstdint>

namespace hadal {

struct HostMemory {
  int64_t total = 0;          // bytes of RAM
  int64_t available = 0;      // MemAvailable: what can be used without swapping, page cache included
  int64_t cgroup_limit = -1;  // memory limit of the control group (the smallest of its parents'), -1 when there is none
  int64_t cgroup_used = 0;    // of that, in use and not reclaimable page cache
  int cpus = 1;               // that this process may run on

  // The smaller of `available` and what the control group leaves.
  int64_t usable() const;
};

HostMemory read_host_memory();

}  // namespace hadal

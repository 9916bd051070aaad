#include "checkpoint/host_memory.h"

#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace hadal {
namespace {

namespace fs = std::filesystem;

// The first integer of a file, or `otherwise` when there is none ("max").
int64_t read_integer(const fs::path& path, int64_t otherwise) {
  std::ifstream in(path);
  int64_t value = 0;
  return in >> value ? value : otherwise;
}

int64_t read_field(const fs::path& path, const std::string& name) {
  std::ifstream in(path);
  for (std::string key; in >> key; in.ignore(256, '\n')) {
    int64_t value = 0;
    if (key == name && in >> value) return value;
  }
  return 0;
}

// Version 2 hierarchy, walked up to its root; version 1 as containers see it, at its mount point.
void read_cgroup(HostMemory& host) {
  const fs::path root = "/sys/fs/cgroup";
  std::string own;
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("0::/")) own = line.substr(4);
  const auto apply = [&](int64_t limit, int64_t used) {
    if (limit < 0 || limit >= host.total ||
        (host.cgroup_limit >= 0 && limit - used >= host.cgroup_limit - host.cgroup_used))
      return;
    host.cgroup_limit = limit;
    host.cgroup_used = used;
  };
  for (fs::path path = root / own;; path = path.parent_path()) {
    const int64_t file_pages = read_field(path / "memory.stat", "inactive_file");
    apply(read_integer(path / "memory.max", -1),
          std::max<int64_t>(0, read_integer(path / "memory.current", 0) - file_pages));
    if (path == root || path.string().size() <= root.string().size()) break;
  }
  const fs::path v1 = root / "memory";
  const int64_t file_pages = read_field(v1 / "memory.stat", "total_inactive_file");
  apply(read_integer(v1 / "memory.limit_in_bytes", -1),
        std::max<int64_t>(0, read_integer(v1 / "memory.usage_in_bytes", 0) - file_pages));
}

}  // namespace

int64_t HostMemory::usable() const {
  return cgroup_limit < 0 ? available : std::min(available, std::max<int64_t>(0, cgroup_limit - cgroup_used));
}

HostMemory read_host_memory() {
  HostMemory host;
  host.total = read_field("/proc/meminfo", "MemTotal:") * 1024;
  host.available = read_field("/proc/meminfo", "MemAvailable:") * 1024;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) host.cpus = std::max(1, CPU_COUNT(&set));
  read_cgroup(host);
  return host;
}

}  // namespace hadal

#include "tern/kernels/base/cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <vector>

namespace tern::kernels {
namespace {

/// The number of cores in the calling thread's affinity mask. Kernels built for more than 1,024 CPUs need larger masks.
int cores_of_mask() {
  for (size_t sets = 1; sets <= 64; sets *= 2) {
    std::vector<cpu_set_t> mask(sets);
    if (sched_getaffinity(0, sets * sizeof(cpu_set_t), mask.data()) == 0)
      return CPU_COUNT_S(sets * sizeof(cpu_set_t), mask.data());
  }
  return 1;
}

/// Returns whether `name` is in the comma-separated list.
bool lists(const std::string& list, const std::string& name) {
  return ("," + list + ",").find("," + name + ",") != std::string::npos;
}

double read_number(const std::string& path) {
  double value = -1;
  std::ifstream(path) >> value;
  return value;
}

/// Quota / period of one folder; 0: no limit or no such folder.
double quota_of(const std::string& folder, bool unified) {
  double quota = -1, period = 0;
  if (unified) {
    std::ifstream file(folder + "/cpu.max");
    std::string text;
    if (file >> text >> period && text != "max") quota = std::strtod(text.c_str(), nullptr);
  } else {
    quota = read_number(folder + "/cpu.cfs_quota_us");
    period = read_number(folder + "/cpu.cfs_period_us");
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

/// The smallest quota of a group and its ancestors. A container may see the host's path, of which only the root exists.
double min_quota(const std::string& root, std::string group, bool unified) {
  double smallest = 0;
  while (true) {
    while (!group.empty() && group.back() == '/') group.pop_back();
    const double quota = quota_of(root + group, unified);
    if (quota > 0 && (smallest == 0 || quota < smallest)) smallest = quota;
    if (group.empty()) return smallest;
    const size_t slash = group.rfind('/');
    group.erase(slash == std::string::npos ? 0 : slash);
  }
}

}  // namespace

int quota_cores(const std::string& membership, const std::string& root) {
  double smallest = 0;
  const auto take = [&](double quota) {
    if (quota > 0 && (smallest == 0 || quota < smallest)) smallest = quota;
  };
  std::ifstream file(membership);
  // Format: number:controllers:path. Version 2 has the single line "0::path".
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
    if (controllers.empty()) {
      take(min_quota(root, group, true));
      take(min_quota(root + "/unified", group, true));
    } else if (lists(controllers, "cpu")) {
      take(min_quota(root + "/" + controllers, group, false));
      take(min_quota(root + "/cpu", group, false));
    }
  }
  return static_cast<int>(std::min(std::ceil(smallest), 1e6));
}

int available_cores() {
  int cores = cores_of_mask();
  const int quota = quota_cores("/proc/self/cgroup", "/sys/fs/cgroup");
  if (quota > 0) cores = std::min(cores, quota);
  return std::max(cores, 1);
}

}  // namespace tern::kernels

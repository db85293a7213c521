#pragma once
// The number of cores that this process may use.

#include <string>

namespace tern::kernels {

/// The number of cores in the calling thread's affinity mask, which its new threads inherit, limited by the CPU quota
/// of its control group and that group's ancestors (containers, services). At least 1.
int available_cores();

/// The smallest quota of a control group and its ancestors in cores, rounded up; 0: no limit. membership: a file like
/// /proc/self/cgroup; root: the mount point of the groups. Supports both versions of control groups.
int quota_cores(const std::string& membership, const std::string& root);

}  // namespace tern::kernels

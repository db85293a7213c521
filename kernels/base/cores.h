#pragma once
// How many cores this process may use.

#include <string>

namespace tern::kernels {

/// Cores in the affinity mask of the calling thread, which the threads that it makes inherit, cut down to the CPU quota
/// of its control group and of those above it (containers, services). At least 1.
int available_cores();

/// The least quota of a group and those above it in cores, rounded up; 0: without limit. membership: a file like
/// /proc/self/cgroup; root: where groups are mounted. Reads both versions of control groups.
int quota_cores(const std::string& membership, const std::string& root);

}  // namespace tern::kernels

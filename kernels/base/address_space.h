#pragma once

#include <sys/resource.h>

#include <cstdint>

namespace tern::kernels {

/// The limit of the process's address space (ulimit -v) in bytes; INT64_MAX without one.
inline int64_t address_space_limit() {
  rlimit limit{};
  const bool limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return limited ? static_cast<int64_t>(limit.rlim_cur) : INT64_MAX;
}

}  // namespace tern::kernels

#pragma once
// Kernels, copies and fills with their names and times, from NVIDIA's CUPTI. The library is loaded on first use;
// programs run without it.

#include <functional>
#include <memory>

#include "tern/core/profiler_device.h"
#include "tern/kernels/cuda/support/library.h"

namespace tern::cuda {

kernels::cuda::SharedLibrary& cupti_library();

/// `synchronize` waits for all work on the device. Returns null when CUPTI is missing, has another major version than
/// the headers of the build, or is in use by another tool (Nsight Systems); use make_mark_profiler then. One at a time.
std::shared_ptr<DeviceProfiler> make_cupti_profiler(std::function<void()> synchronize);

}  // namespace tern::cuda

#pragma once
// Kernels, copies and fills with their names and times, from NVIDIA's CUPTI. The library is looked for when it is
// needed: a program runs without it.

#include <functional>
#include <memory>

#include "tern/core/profiler_device.h"
#include "tern/kernels/cuda/support/library.h"

namespace tern::cuda {

kernels::cuda::SharedLibrary& cupti_library();

/// `synchronize` waits for all work on the device. Null when CUPTI is not there, is of another major version than the
/// headers of the build, or serves another tool already (Nsight Systems): then events are what is left
/// (make_mark_profiler). One at a time.
std::shared_ptr<DeviceProfiler> make_cupti_profiler(std::function<void()> synchronize);

}  // namespace tern::cuda

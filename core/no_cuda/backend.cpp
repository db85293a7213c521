// The functions of core/cuda in a program without CUDA: no device can be used, so most of them are never called.

#include "tern/core/device/backend.h"

#include "tern/core/memory/memory_source.h"
#include "tern/core/no_cuda/no_cuda.h"
#include "tern/core/profiler/device_profiler.h"

namespace tern::cuda {

bool in_this_program() { return false; }

std::string device_problem(int) { return kNoCuda; }
DeviceProperties device_properties(int) { fail_without_cuda(__func__); }
int listed_device_count() { return 0; }
int suitable_device_count() { return 0; }
DeviceProperties listed_device(int) { fail_without_cuda(__func__); }
std::string built_architectures() { return ""; }
std::string driver_version() { return "none"; }
std::string runtime_version() { return "none"; }
std::vector<kernels::cuda::LibraryInfo> libraries() { return {}; }

void* current_stream(int) { fail_without_cuda(__func__); }
void set_current_stream(int, void*) { fail_without_cuda(__func__); }
void* create_stream(int) { fail_without_cuda(__func__); }
void destroy_stream(int, void*) noexcept {}
void synchronize_stream(int, void*) { fail_without_cuda(__func__); }
void synchronize_device(int) { fail_without_cuda(__func__); }

void* create_event(int, bool) { fail_without_cuda(__func__); }
void destroy_event(void*) noexcept {}
void record_event(void*, void*) { fail_without_cuda(__func__); }
bool event_done(void*) { fail_without_cuda(__func__); }
void synchronize_event(void*) { fail_without_cuda(__func__); }
void wait_event(void*, void*) { fail_without_cuda(__func__); }
double seconds_between(void*, void*) { fail_without_cuda(__func__); }
void order_streams(int, void*, int, void*) { fail_without_cuda(__func__); }

void begin_capture(int, void*) { fail_without_cuda(__func__); }
void* end_capture(int, void*, int64_t&) { fail_without_cuda(__func__); }
bool is_capturing(void*) { return false; }
void abandon_capture(int, void*) noexcept {}
void launch_graph(void*, void*) { fail_without_cuda(__func__); }
void destroy_graph(void*) noexcept {}

void copy_async(int, void*, const void*, int64_t, void*) { fail_without_cuda(__func__); }
void copy_from_host(int, void*, const void*, int64_t, void*) { fail_without_cuda(__func__); }
void copy_to_host(int, void*, const void*, int64_t, void*) { fail_without_cuda(__func__); }

detail::MemorySource memory_source(int) { fail_without_cuda(__func__); }
detail::MemorySource pinned_memory_source() { fail_without_cuda(__func__); }

void nvtx_push(const char*) {}
void nvtx_pop() {}
std::shared_ptr<DeviceProfiler> make_cupti_profiler(std::function<void()>) { return nullptr; }

}  // namespace tern::cuda

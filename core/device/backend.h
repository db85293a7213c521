#pragma once
// The CUDA functions that core uses, in plain C++: code outside core/cuda needs no CUDA header. Defined in
// core/cuda/*.cpp; a program without CUDA is linked with core/no_cuda instead, where no device is usable and every
// function that needs one throws. Errors of the driver become tern::Error, OutOfMemoryError or DeviceError with CUDA's
// message.

#include <cstdint>
#include <string>
#include <vector>

#include "tern/kernels/cuda/support/library.h"
#include "tern/kernels/kernel.h"

namespace tern::cuda {

/// True when this program is built with CUDA.
bool in_this_program();

// --- devices ---

struct DeviceProperties {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  int64_t total_bytes = 0;
};

/// Why a device of this number cannot be used, with what to do; empty when it can. Initialises this device only: the
/// process then has a context on it, hundreds of MB of its memory.
std::string device_problem(int index);
DeviceProperties device_properties(int index);
/// Devices that the driver lists, usable or not, with their properties; unknown fields are zero. Initialises none.
int listed_device_count();
/// The number of listed devices whose properties suit the kernels.
int suitable_device_count();
DeviceProperties listed_device(int index);
/// Architectures that the kernels are compiled for, in the format of CMAKE_CUDA_ARCHITECTURES: "80,90a-real".
std::string built_architectures();
/// True when kernels compiled for `architectures` run on a device of this compute capability: machine code on its major
/// version from its minor version on ("80-real"), an architecture with a letter only on exactly that one ("90a-real"),
/// intermediate code on everything newer ("80", "80-virtual"). True when the list has other words.
bool architectures_serve(const std::string& architectures, int major, int minor);
/// For example "13.0": the newest CUDA version of the driver, and that of the runtime; "none" without a driver.
std::string driver_version();
std::string runtime_version();

// --- NVIDIA's libraries, all loaded on first use ---

/// Searches for each library that core and the kernels can use, for `tern info`.
std::vector<kernels::cuda::LibraryInfo> libraries();

// --- streams and events; handles are cudaStream_t and cudaEvent_t ---

/// The calling thread's stream on this device; also makes the device current for the thread.
void* current_stream(int index);
void set_current_stream(int index, void* stream);  // null: the device's default
void* create_stream(int index);
void destroy_stream(int index, void* stream) noexcept;
void synchronize_stream(int index, void* stream);
void synchronize_device(int index);

void* create_event(int index, bool timing);
void destroy_event(void* event) noexcept;
void record_event(void* event, void* stream);
bool event_done(void* event);
void synchronize_event(void* event);
void wait_event(void* stream, void* event);
double seconds_between(void* start, void* end);
/// Work queued on `later` after this call runs after work queued on `first` before it.
void order_streams(int first_index, void* first, int later_index, void* later);

// --- ranges of the calling thread in NVTX, for Nsight Systems and other tools; without a tool they do nothing ---

void nvtx_push(const char* name);
void nvtx_pop();

// --- graphs; a graph is a cudaGraphExec_t ---

void begin_capture(int index, void* stream);
/// The graph of the work queued on the stream since begin_capture(), and the number of its nodes.
void* end_capture(int index, void* stream, int64_t& nodes);
/// True when work queued on the stream is recorded instead of run.
bool is_capturing(void* stream);
/// Ends a capture that failed.
void abandon_capture(int index, void* stream) noexcept;
void launch_graph(void* graph, void* stream);
void destroy_graph(void* graph) noexcept;

// --- copies ---

/// Queues a copy of device memory, or of pinned host memory, on the stream of `index`.
void copy_async(int index, void* to, const void* from, int64_t bytes, void* stream);
/// From pageable host memory, staged through pinned memory: `from` may be changed after the return.
void copy_from_host(int index, void* to, const void* from, int64_t bytes, void* stream);
/// To pageable host memory. Waits for the stream.
void copy_to_host(int index, void* to, const void* from, int64_t bytes, void* stream);

}  // namespace tern::cuda

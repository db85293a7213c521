#pragma once
// What core asks of CUDA, in plain C++: no CUDA header above this line of the house. Defined in core/cuda/*.cpp; a
// program without CUDA is linked with core/no_cuda instead, where no device can be used and everything that needs one
// throws. Errors of the driver are tern::Error, OutOfMemoryError or DeviceError with CUDA's own words.

#include <cstdint>
#include <string>
#include <vector>

#include "tern/kernels/kernel.h"

namespace tern::cuda {

/// Whether this program has CUDA at all.
bool in_this_program();

// --- devices ---

struct DeviceProperties {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  int64_t total_bytes = 0;
};

/// Why a device of this number cannot be used, with what to do; empty when it can. Starts the device, and no other:
/// this process then has a context on it, hundreds of MB of its memory.
std::string device_problem(int index);
DeviceProperties device_properties(int index);
/// Devices that the driver names, usable or not, and what it said of each; fields that it did not tell are zero. Starts
/// none.
int listed_device_count();
/// Those of them whose properties suit the kernels.
int suitable_device_count();
DeviceProperties listed_device(int index);
/// Architectures that the kernels are compiled for, as CMAKE_CUDA_ARCHITECTURES has them: "80,90a-real".
std::string built_architectures();
/// Whether kernels compiled for `architectures` run on a device of this compute capability: machine code runs on its
/// own major version from its minor version on ("80-real"), an architecture with a letter on itself alone ("90a-real"),
/// intermediate code on everything newer ("80", "80-virtual"). True when the list has other words.
bool architectures_serve(const std::string& architectures, int major, int minor);
/// "13.0" of the driver (the newest CUDA that it runs) and of the runtime built in; "none" without a driver.
std::string driver_version();
std::string runtime_version();

// --- NVIDIA's libraries, all loaded when needed ---

struct LibraryReport {
  std::string name;           // "cuBLASLt"
  std::string path, version;  // of what was found
  std::string reason;         // why it was not; empty when it was
};
/// Looks for each library that the program can use.
std::vector<LibraryReport> libraries();

// --- streams and events; handles are cudaStream_t and cudaEvent_t ---

/// The queue of the calling thread on this device, and the device made current for the thread.
void* current_stream(int index);
void set_current_stream(int index, void* stream);  // null: the device's own
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
/// What is queued on `later` from now on runs after what is queued on `first` now.
void order_streams(int first_index, void* first, int later_index, void* later);

// --- graphs; a graph is a cudaGraphExec_t ---

void begin_capture(int index, void* stream);
/// The graph of what was queued on the stream since begin_capture(), and the number of its nodes.
void* end_capture(int index, void* stream, int64_t& nodes);
/// Whether what is queued on the stream is recorded instead.
bool is_capturing(void* stream);
/// Ends a capture that failed.
void abandon_capture(int index, void* stream) noexcept;
void launch_graph(void* graph, void* stream);
void destroy_graph(void* graph) noexcept;

// --- copies ---

/// Queues a copy of device memory, or of pinned host memory, on the stream of `index`.
void copy_async(int index, void* to, const void* from, int64_t bytes, void* stream);
/// From pageable host memory: staged through pinned memory, so that `from` may be changed on return.
void copy_from_host(int index, void* to, const void* from, int64_t bytes, void* stream);
/// To pageable host memory. Waits for the stream.
void copy_to_host(int index, void* to, const void* from, int64_t bytes, void* stream);

}  // namespace tern::cuda

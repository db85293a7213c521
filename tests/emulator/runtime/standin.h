#pragma once
// The tests' interface to the stand-in CUDA runtime. libtern_standin defines the functions of NVIDIA's runtime API that
// Tern uses, so that host code written for CUDA runs without a GPU: tests/emulator/simt runs kernels, this
// library does the rest. It is stricter than a GPU and runs work as late as possible:
//   * A stream is a queue; its work runs only when the host waits for it, in an order chosen by set_order(). A missing
//     wait gives wrong values.
//   * New device memory contains 0xff bytes (NaN); freed memory is not accessible.
//   * A kernel that breaks a rule or accesses unallocated memory gives a sticky error: device_error().
//
// The environment configures a whole program, the functions below a test:
//   TERN_STANDIN_DEVICES=2            number of devices (default 1); 0: no device
//   TERN_STANDIN_STATE=no-driver      or old-driver, busy, ok (the default)
//   TERN_STANDIN_MEMORY=64M           memory of each device, bytes or with K, M, G (default 8G)
//   TERN_STANDIN_CAPABILITY=8.0       compute capability (default 9.0)
//   TERN_STANDIN_ORDER=forward        or reverse, or random:SEED
//   TERN_STANDIN_PROTECT=1            an access of device memory by host code ends the program with a message
//   TERN_STANDIN_FAIL=cudaMalloc:3:2,cudaStreamSynchronize:1:700
//                                     FUNCTION:N:ERROR: the N-th call of the function returns this error number
// A malformed variable ends the program with a message when the library is loaded.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace tern::standin {

// --- the devices ---

enum class DriverState { kOk, kNone, kOld, kBusy };  // kOld: for CUDA 12.2

struct DeviceConfig {
  int devices = 1;
  DriverState driver = DriverState::kOk;
  size_t memory_bytes = size_t{8} << 30;  // per device
  int capability_major = 9, capability_minor = 0;
  int multiprocessors = 132;
  std::string name = "stand-in";
  int patience_ms = 60'000;  // a longer wait for another host thread or process is a device error
};

/// Restores the initial state of a process: no queues, memory, handles, errors, faults or counters, and the
/// configuration from the environment. Earlier handles and pointers must not be used. Not during queued work.
void reset();
/// reset(), then sets the devices.
void configure(const DeviceConfig& config);
DeviceConfig configuration();

/// The choice among operations that can run when the host waits.
///   kForward  only those that the wait needs; other streams do not advance
///   kReverse  all operations of other streams first, newest stream first
///   kRandom   any operation of any stream, by seed, until the wait has ended
struct Order {
  enum Kind { kForward, kReverse, kRandom } kind = kForward;
  uint64_t seed = 0;
};
void set_order(Order order);
inline constexpr Order kOrders[] = {
    {Order::kForward, 0}, {Order::kReverse, 0}, {Order::kRandom, 1}, {Order::kRandom, 2}};

/// Makes device memory inaccessible to the host except while the device works: an access by host code ends the program
/// with a message that describes the allocation.
void set_protection(bool on);

// --- errors ---

/// The text of the sticky error, e.g. "kernel fill (copy.cu:12): ..."; "" when there is none.
std::string device_error();

// --- faults ---

/// The n-th call from now (1: the next) of the function, from the runtime or another library here, has no effect and
/// returns `error`: a cudaError_t or the library's status. Errors that are sticky on a GPU (illegal address, launch
/// failure, ...) are sticky here.
void fail_call(const std::string& function, int n, int error);
void clear_faults();
/// Acts as if a kernel had caused `error`: all later calls return it until cudaDeviceReset() or reset().
void set_device_error(cudaError_t error, const std::string& text);

// --- counters ---

struct Counters {
  uint64_t kernel_launches = 0;  // by the host; those inside a graph count when captured, not when replayed
  uint64_t graph_launches = 0;
  uint64_t host_synchronizations = 0;  // calls that block the host
  uint64_t memory_calls = 0;           // calls that allocate or free device or pinned memory
  uint64_t copies_to_device = 0, copies_to_host = 0, copies_on_device = 0;
  uint64_t bytes_to_device = 0, bytes_to_host = 0, bytes_on_device = 0;
  std::map<std::string, uint64_t> kernels_by_name;  // kernels, by the function that calls launch()
  std::map<std::string, uint64_t> calls;            // all API calls, by function
};
Counters counters();
void reset_counters();

/// Devices on which this process has a context, which takes hundreds of MB of a GPU's memory: those that a thread
/// selected; device 0 if a thread selected none and made a call that needs a device. cudaDeviceReset() ends one.
std::set<int> contexts();

/// Device memory in use on all devices, in bytes.
size_t used_memory();

}  // namespace tern::standin

#pragma once
// The stand-in CUDA runtime, as tests see it. libtern_standin defines the functions of NVIDIA's runtime API that Tern
// uses, so that host code written for CUDA runs with no GPU: kernels run in the emulator (tests/simt), everything else
// here. It is stricter than a GPU and as late as it may be:
//   * A stream is a queue; nothing runs before the host waits for it, in an order chosen by set_order(). A missing wait
//     shows as wrong values.
//   * Fresh device memory is full of 0xff bytes (NaN); freed memory can no longer be touched.
//   * A kernel that breaks a rule, or touches memory that is not allocated, gives a sticky error: device_error().
//
// A whole program is configured by its environment, a test by the functions below:
//   TERN_STANDIN_DEVICES=2            number of devices (default 1); 0: no device
//   TERN_STANDIN_STATE=no-driver      or old-driver, busy, ok (the default)
//   TERN_STANDIN_MEMORY=64M           memory of each device, bytes or with K, M, G (default 8G)
//   TERN_STANDIN_CAPABILITY=8.0       compute capability (default 9.0)
//   TERN_STANDIN_ORDER=forward        or reverse, or random:SEED
//   TERN_STANDIN_PROTECT=1            host code that touches device memory is stopped with a message
//   TERN_STANDIN_FAIL=cudaMalloc:3:2,cudaStreamSynchronize:1:700
//                                     FUNCTION:N:ERROR, the N-th call of the function returns the error number
// A malformed variable ends the program with a message when the library is loaded.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace tern::standin {

// --- the devices ---

enum class DriverState { kOk, kNone, kOld, kBusy };  // kOld: of CUDA 12.2

struct DeviceConfig {
  int devices = 1;
  DriverState driver = DriverState::kOk;
  size_t memory_bytes = size_t{8} << 30;  // of each device
  int capability_major = 9, capability_minor = 0;
  int multiprocessors = 132;
  std::string name = "stand-in";
  int patience_ms = 60'000;  // a wait for another host thread or process that is longer is an error of the device
};

/// Back to a fresh process: all queues, memory, handles, errors, faults and counters are gone; the configuration is
/// that of the environment. Handles and pointers from before must not be used. Not during queued work.
void reset();
/// reset(), then the devices are as given.
void configure(const DeviceConfig& config);
DeviceConfig configuration();

/// Which of the ready operations runs when the host waits.
///   kForward  only what the wait needs: other streams stay behind
///   kReverse  everything that other streams have first, newest stream first
///   kRandom   any ready operation of any stream, by seed, until the wait is over
struct Order {
  enum Kind { kForward, kReverse, kRandom } kind = kForward;
  uint64_t seed = 0;
};
void set_order(Order order);
inline constexpr Order kOrders[] = {
    {Order::kForward, 0}, {Order::kReverse, 0}, {Order::kRandom, 1}, {Order::kRandom, 2}};

/// Device memory is out of the host's reach except while the device works: an access by host code ends the program with
/// a message that names the allocation.
void set_protection(bool on);

// --- what went wrong ---

/// The text of the sticky error, e.g. "kernel fill (copy.cu:12): ..."; "" when there is none.
std::string device_error();

// --- faults ---

/// The n-th call from now (1: the next) of the function, of the runtime or of another library here, does nothing and
/// returns `error`: a cudaError_t or the library's own status. Errors that stay on a GPU (illegal address, launch
/// failure, ...) stay here.
void fail_call(const std::string& function, int n, int error);
void clear_faults();
/// As if the device had met `error` in a kernel: all later calls return it until cudaDeviceReset() or reset().
void set_device_error(cudaError_t error, const std::string& text);

// --- counters ---

struct Counters {
  uint64_t kernel_launches = 0;  // by the host; those inside a graph count when captured, not when replayed
  uint64_t graph_launches = 0;
  uint64_t host_synchronizations = 0;  // calls that block the host
  uint64_t memory_calls = 0;           // that allocate or free device or pinned memory
  uint64_t copies_to_device = 0, copies_to_host = 0, copies_on_device = 0;
  uint64_t bytes_to_device = 0, bytes_to_host = 0, bytes_on_device = 0;
  std::map<std::string, uint64_t> kernels_by_name;  // kernels: of the function that calls launch()
  std::map<std::string, uint64_t> calls;            // of every function, by name
};
Counters counters();
void reset_counters();

/// Devices on which this process has a context, which takes hundreds of MB of a GPU's memory: those that a thread
/// chose, and device 0 for a thread that chose none and made a call that needs a device. cudaDeviceReset() ends one.
std::set<int> contexts();

/// Device memory in use, bytes, all devices.
size_t used_memory();

}  // namespace tern::standin

// Devices: their number, the current one, their properties.

#include <algorithm>
#include <cstdio>

#include "tern/tests/emulator/runtime/state.h"

namespace tern::standin {
namespace {

thread_local int the_device = 0;

bool exists(const State& s, int device) { return device >= 0 && device < s.config.devices; }

}  // namespace

int current_device() { return the_device; }
void set_current_device(int device) { the_device = device; }

std::set<int> contexts() {
  return locked([](State& s) { return s.contexts; });
}

void note_context(State& s, std::string_view function) {
  // Functions that CUDA's manual lists as device and error management create none; others create the thread's device's.
  constexpr std::string_view kStartsNone[] = {"cudaGetDevice", "cudaGetDeviceProperties", "cudaSetDevice",
                                              "cudaDeviceGetAttribute"};
  if (std::ranges::find(kStartsNone, function) == std::end(kStartsNone)) s.contexts.insert(the_device);
}

}  // namespace tern::standin

using namespace tern::standin;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  return api("cudaGetDeviceCount", false, [&](State& s) {
    if (!count) return cudaErrorInvalidValue;
    *count = s.config.devices;
    return s.config.devices > 0 ? cudaSuccess : cudaErrorNoDevice;
  });
}

cudaError_t cudaSetDevice(int device) {
  return api("cudaSetDevice", [&](State& s) {
    if (!exists(s, device)) return cudaErrorInvalidDevice;
    the_device = device;
    s.contexts.insert(device);
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return api("cudaGetDevice", [&](State&) {
    *device = the_device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return api("cudaGetDeviceProperties", [&](State& s) {
    if (!exists(s, device)) return cudaErrorInvalidDevice;
    *properties = {};
    std::snprintf(properties->name, sizeof properties->name, "%s", s.config.name.c_str());
    properties->totalGlobalMem = s.config.memory_bytes;
    properties->multiProcessorCount = s.config.multiprocessors;
    properties->major = s.config.capability_major;
    properties->minor = s.config.capability_minor;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
  return api("cudaDeviceGetAttribute", [&](State& s) {
    if (!exists(s, device)) return cudaErrorInvalidDevice;
    const std::map<cudaDeviceAttr, int> values = {{cudaDevAttrComputeCapabilityMajor, s.config.capability_major},
                                                  {cudaDevAttrComputeCapabilityMinor, s.config.capability_minor},
                                                  {cudaDevAttrMultiProcessorCount, s.config.multiprocessors}};
    const auto found = values.find(which);
    if (found == values.end()) return cudaErrorNotSupported;  // by the stand-in
    *value = found->second;
    return cudaSuccess;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  return api("cudaDriverGetVersion", false, [&](State& s) {
    *version = s.config.driver == DriverState::kOld ? 12020 : CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return api("cudaDeviceSynchronize", [](State& s) {
    if (const cudaError_t error = forbid_any_capture(s)) return error;
    ++s.counters.host_synchronizations;
    wait_for_device(s, the_device);
    return after_wait(s);
  });
}

// Works also after a sticky error, which it clears.
cudaError_t cudaDeviceReset() {
  return api("cudaDeviceReset", false, [](State& s) {
    wait_for_device(s, -1);
    clear_devices(s);
    cudaGetLastError();
    return cudaSuccess;
  });
}

}  // extern "C"

// Devices: their number, the current one, their properties.

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tern/tests/emulator/runtime/state.h"

namespace tern::standin {
namespace {

thread_local int the_device = 0;

int attribute(const State& s, cudaDeviceAttr attribute) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      return s.config.capability_major;
    case cudaDevAttrComputeCapabilityMinor:
      return s.config.capability_minor;
    case cudaDevAttrMultiProcessorCount:
      return s.config.multiprocessors;
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
      return 1024;
    case cudaDevAttrMaxBlockDimZ:
      return 64;
    case cudaDevAttrMaxGridDimX:
      return 0x7fffffff;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      return 65535;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return 2048;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      return 32;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return 48 * 1024;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return 227 * 1024;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return 228 * 1024;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      return 65536;
    case cudaDevAttrWarpSize:
      return 32;
    case cudaDevAttrL2CacheSize:
      return 50 << 20;
    case cudaDevAttrTextureAlignment:
      return 512;
    case cudaDevAttrAsyncEngineCount:
      return 3;
    case cudaDevAttrClockRate:
      return 1'980'000;
    case cudaDevAttrMemoryClockRate:
      return 2'619'000;
    case cudaDevAttrGlobalMemoryBusWidth:
      return 5120;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrCanMapHostMemory:
      return 1;
    default:
      return 0;
  }
}

void fill_properties(const State& s, cudaDeviceProp& p, int device) {
  const auto get = [&](cudaDeviceAttr a) { return attribute(s, a); };
  p = {};
  std::snprintf(p.name, sizeof p.name, "%s", s.config.name.c_str());
  p.totalGlobalMem = s.config.memory_bytes;
  p.sharedMemPerBlock = get(cudaDevAttrMaxSharedMemoryPerBlock);
  p.sharedMemPerBlockOptin = get(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  p.sharedMemPerMultiprocessor = get(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  p.regsPerBlock = p.regsPerMultiprocessor = get(cudaDevAttrMaxRegistersPerBlock);
  p.warpSize = get(cudaDevAttrWarpSize);
  p.maxThreadsPerBlock = get(cudaDevAttrMaxThreadsPerBlock);
  p.maxThreadsDim[0] = get(cudaDevAttrMaxBlockDimX);
  p.maxThreadsDim[1] = get(cudaDevAttrMaxBlockDimY);
  p.maxThreadsDim[2] = get(cudaDevAttrMaxBlockDimZ);
  p.maxGridSize[0] = get(cudaDevAttrMaxGridDimX);
  p.maxGridSize[1] = get(cudaDevAttrMaxGridDimY);
  p.maxGridSize[2] = get(cudaDevAttrMaxGridDimZ);
  p.maxThreadsPerMultiProcessor = get(cudaDevAttrMaxThreadsPerMultiProcessor);
  p.maxBlocksPerMultiProcessor = get(cudaDevAttrMaxBlocksPerMultiprocessor);
  p.multiProcessorCount = get(cudaDevAttrMultiProcessorCount);
  p.major = s.config.capability_major;
  p.minor = s.config.capability_minor;
  p.textureAlignment = get(cudaDevAttrTextureAlignment);
  p.l2CacheSize = get(cudaDevAttrL2CacheSize);
  p.asyncEngineCount = get(cudaDevAttrAsyncEngineCount);
  p.memoryBusWidth = get(cudaDevAttrGlobalMemoryBusWidth);
  p.unifiedAddressing = p.concurrentKernels = p.streamPrioritiesSupported = 1;
  p.memoryPoolsSupported = p.hostRegisterSupported = p.canMapHostMemory = 1;
  p.pciBusID = device + 1;
}

bool exists(const State& s, int device) { return device >= 0 && device < s.config.devices; }

}  // namespace

int current_device() { return the_device; }
void set_current_device(int device) { the_device = device; }

std::set<int> contexts() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return s.contexts;
}

void note_context(State& s, std::string_view function) {
  // Functions that CUDA's manual lists as device and error management create none; others create the thread's device's.
  constexpr std::string_view kStartsNone[] = {"cudaGetDevice",           "cudaGetDeviceProperties", "cudaSetDevice",
                                              "cudaDeviceGetAttribute",  "cudaDeviceGetPCIBusId",   "cudaInitDevice",
                                              "cudaDeviceCanAccessPeer", "cudaSetDeviceFlags"};
  if (std::ranges::find(kStartsNone, function) == std::end(kStartsNone)) s.contexts.insert(the_device);
}

}  // namespace tern::standin

using namespace tern::standin;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  return api(
      "cudaGetDeviceCount",
      [&](State& s) {
        if (!count) return cudaErrorInvalidValue;
        *count = s.config.devices;
        return s.config.devices > 0 ? cudaSuccess : cudaErrorNoDevice;
      },
      false);
}

cudaError_t cudaSetDevice(int device) {
  return api("cudaSetDevice", [&](State& s) {
    if (!exists(s, device)) return cudaErrorInvalidDevice;
    the_device = device;
    s.contexts.insert(device);
    return cudaSuccess;
  });
}

cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  return api("cudaInitDevice", [&](State& s) {
    if (!exists(s, device)) return cudaErrorInvalidDevice;
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
    fill_properties(s, *properties, device);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
  return api("cudaDeviceGetAttribute", [&](State& s) {
    if (!exists(s, device)) return cudaErrorInvalidDevice;
    *value = attribute(s, which);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  return api("cudaDeviceGetPCIBusId", [&](State& s) {
    if (!exists(s, device)) return cudaErrorInvalidDevice;
    if (length < 13) return cudaErrorInvalidValue;
    std::snprintf(id, length, "0000:%02x:00.0", device + 1);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return api("cudaDeviceGetStreamPriorityRange", [&](State&) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return api("cudaDeviceCanAccessPeer", [&](State& s) {
    if (!exists(s, device) || !exists(s, peer)) return cudaErrorInvalidDevice;
    *can = device != peer;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return api("cudaDeviceEnablePeerAccess", [&](State& s) {
    if (flags != 0) return cudaErrorInvalidValue;
    return exists(s, peer) && peer != the_device ? cudaSuccess : cudaErrorInvalidDevice;
  });
}

cudaError_t cudaSetDeviceFlags(unsigned) {
  return api("cudaSetDeviceFlags", [](State&) { return cudaSuccess; });
}

cudaError_t cudaProfilerStart() {
  return api("cudaProfilerStart", [](State&) { return cudaSuccess; });
}
cudaError_t cudaProfilerStop() {
  return api("cudaProfilerStop", [](State&) { return cudaSuccess; });
}

// There is no driver behind this library, so no driver function is found.
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  return api(
      "cudaGetDriverEntryPointByVersion",
      [&](State&) {
        *function = nullptr;
        if (result) *result = cudaDriverEntryPointSymbolNotFound;
        return cudaSuccess;
      },
      false);
}

cudaError_t cudaDriverGetVersion(int* version) {
  return api(
      "cudaDriverGetVersion",
      [&](State& s) {
        *version = s.config.driver == DriverState::kOld ? 12020 : CUDART_VERSION;
        return cudaSuccess;
      },
      false);
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  return api(
      "cudaRuntimeGetVersion",
      [&](State&) {
        *version = CUDART_VERSION;
        return cudaSuccess;
      },
      false);
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
  return api(
      "cudaDeviceReset",
      [](State& s) {
        wait_for_device(s, -1);
        clear_devices(s);
        cudaGetLastError();
        return cudaSuccess;
      },
      false);
}

}  // extern "C"

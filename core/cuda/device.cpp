#include <cuda_runtime_api.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <sstream>

#include "tern/core/cuda/current_device.h"
#include "tern/core/device/backend.h"
#include "tern/kernels/base/check.h"
#include "tern/kernels/cuda/support/check.h"

namespace tern::cuda {
namespace {

// The lowest major compute capability that the kernels support.
constexpr int kMinMajor = 8;

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string explain(cudaError_t error) {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  const std::string said = std::string(cudaGetErrorName(error)) + ": " + cudaGetErrorString(error);
  switch (error) {
    case cudaErrorInsufficientDriver:
      return driver == 0 ? "there is no NVIDIA driver; install one, or use --device cpu"
                         : "the NVIDIA driver runs CUDA " + version_text(driver) + ", this build needs CUDA " +
                               version_text(CUDART_VERSION) + "; update the driver, or use --device cpu";
    case cudaErrorNoDevice:
      return "the driver sees no GPU (is CUDA_VISIBLE_DEVICES set to hide it?); use --device cpu";
    case cudaErrorDevicesUnavailable:
      return "the GPU is busy or in exclusive use by another process (" + said + "); free it, or use --device cpu";
    default:
      return said + "; use --device cpu";
  }
}

/// A device that the driver lists.
struct Listed {
  DeviceProperties properties;
  bool suitable = false;  // by its properties
  std::string problem;    // why it is unsuitable or cannot be initialised
  std::once_flag started;
};

struct Listing {
  std::deque<Listed> devices;
  std::string problem;  // why the list is empty
};

Listed& list(Listing& listing, int index) {
  Listed& listed = listing.devices.emplace_back();
  cudaDeviceProp p{};
  if (const cudaError_t error = cudaGetDeviceProperties(&p, index); error != cudaSuccess) {
    cudaGetLastError();
    listed.problem = explain(error);
    return listed;
  }
  listed.properties = {p.name, p.major, p.minor, p.multiProcessorCount, static_cast<int64_t>(p.totalGlobalMem)};
  const std::string capability =
      std::string(p.name) + " has compute capability " + std::to_string(p.major) + "." + std::to_string(p.minor);
  if (p.major < kMinMajor)
    listed.problem =
        capability + ", Tern's kernels need " + std::to_string(kMinMajor) + ".0 (Ampere) or newer; use --device cpu";
  else if (!architectures_serve(built_architectures(), p.major, p.minor))
    listed.problem = capability + ", this build has kernels for " + built_architectures() +
                     "; build with -DCMAKE_CUDA_ARCHITECTURES=" + std::to_string(p.major * 10 + p.minor) +
                     ", or use --device cpu";
  listed.suitable = listed.problem.empty();
  return listed;
}

/// The driver's list at the first call. Initialises no device.
Listing& listing() {
  static Listing& result = []() -> Listing& {
    static Listing l;
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) {
      cudaGetLastError();
      l.problem = explain(error);
      return l;
    }
    for (int i = 0; i < count; ++i) list(l, i);
    if (count == 0) l.problem = explain(cudaErrorNoDevice);
    return l;
  }();
  return result;
}

int count_of(const Listing& l) { return static_cast<int>(l.devices.size()); }

/// Initialises the device once, which creates a context of this process.
void start(Listed& listed, int index) {
  std::call_once(listed.started, [&] {
    if (!listed.suitable) return;
    const DeviceScope scope(index);
    cudaError_t error = scope.error();
    if (error == cudaSuccess) error = cudaFree(nullptr);  // creates the context
    if (error == cudaSuccess) return;
    cudaGetLastError();
    listed.problem = explain(error);
  });
}

}  // namespace

bool in_this_program() { return true; }

std::string device_problem(int index) {
  Listing& l = listing();
  if (!l.problem.empty()) return l.problem;
  if (index >= count_of(l))
    return "this machine has " + std::to_string(count_of(l)) + (count_of(l) == 1 ? " GPU" : " GPUs") +
           ", numbered from 0; use cuda:0";
  Listed& listed = l.devices[static_cast<size_t>(index)];
  start(listed, index);
  return listed.problem;
}

DeviceProperties device_properties(int index) {
  const std::string problem = device_problem(index);
  TERN_CHECK(problem.empty(), "device cuda:", index, ": ", problem);
  return listed_device(index);
}

int listed_device_count() { return count_of(listing()); }

int suitable_device_count() {
  int count = 0;
  for (const Listed& listed : listing().devices) count += listed.suitable;
  return count;
}

DeviceProperties listed_device(int index) {
  TERN_CHECK(index >= 0 && index < listed_device_count(), "device cuda:", index, ": the driver names ",
             listed_device_count());
  return listing().devices[static_cast<size_t>(index)].properties;
}

std::string built_architectures() { return TERN_CUDA_ARCHITECTURES; }

bool architectures_serve(const std::string& architectures, int major, int minor) {
  std::istringstream list(architectures);
  for (std::string entry; std::getline(list, entry, ',');) {
    const size_t digits = std::min(entry.find_first_not_of("0123456789"), entry.size());
    if (digits < 2 || digits > 3) return true;  // "native", "all"
    const int of_major = std::stoi(entry.substr(0, digits - 1)), of_minor = entry[digits - 1] - '0';
    const bool same = major == of_major && minor == of_minor;
    const bool specific = digits < entry.size() && entry[digits] != '-';
    const bool machine_code = !entry.ends_with("-virtual"), intermediate_code = !entry.ends_with("-real");
    const bool newer = major > of_major || (major == of_major && minor >= of_minor);
    if (same) return true;
    if (specific || !newer) continue;
    if (intermediate_code || (machine_code && major == of_major)) return true;
  }
  return false;
}

std::string driver_version() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0) return "none";
  return version_text(version);
}

std::string runtime_version() { return version_text(CUDART_VERSION); }

}  // namespace tern::cuda

#include <cuda_runtime_api.h>

#include <algorithm>
#include <sstream>

#include "tern/core/check.h"
#include "tern/core/cuda/backend.h"
#include "tern/kernels/cuda/support/check.h"

namespace tern::cuda {
namespace {

// The oldest device that the kernels are written for.
constexpr int kLeastMajor = 8;

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// What the driver said when it was first asked.
struct Probe {
  int count = 0;
  std::string problem;
  std::vector<std::string> device_problems;
  std::vector<DeviceProperties> properties;
};

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

/// Makes sure that the device can be started at all and that it runs these kernels.
std::string problem_of(int index, DeviceProperties& properties) {
  cudaDeviceProp p{};
  cudaError_t error = cudaGetDeviceProperties(&p, index);
  if (error == cudaSuccess) {
    properties = {p.name, p.major, p.minor, p.multiProcessorCount, static_cast<int64_t>(p.totalGlobalMem)};
    if (p.major < kLeastMajor)
      return std::string(p.name) + " has compute capability " + std::to_string(p.major) + "." +
             std::to_string(p.minor) + ", Tern's kernels need " + std::to_string(kLeastMajor) +
             ".0 (Ampere) or newer; use --device cpu";
    if (!architectures_serve(built_architectures(), p.major, p.minor))
      return std::string(p.name) + " has compute capability " + std::to_string(p.major) + "." +
             std::to_string(p.minor) + ", this build has kernels for " + built_architectures() +
             "; build with -DCMAKE_CUDA_ARCHITECTURES=" + std::to_string(p.major * 10 + p.minor) +
             ", or use --device cpu";
    error = cudaSetDevice(index);
  }
  if (error == cudaSuccess) error = cudaFree(nullptr);  // creates the context
  if (error == cudaSuccess) return "";
  cudaGetLastError();
  return explain(error);
}

const Probe& probe() {
  static const Probe result = [] {
    Probe p;
    const cudaError_t error = cudaGetDeviceCount(&p.count);
    if (error != cudaSuccess) {
      cudaGetLastError();
      p.count = 0;
      p.problem = explain(error);
      return p;
    }
    p.properties.resize(static_cast<size_t>(p.count));
    for (int i = 0; i < p.count; ++i) p.device_problems.push_back(problem_of(i, p.properties[static_cast<size_t>(i)]));
    if (p.count == 0) p.problem = explain(cudaErrorNoDevice);
    return p;
  }();
  return result;
}

}  // namespace

bool in_this_program() { return true; }

int device_count() {
  int usable = 0;
  for (const std::string& problem : probe().device_problems) usable += problem.empty();
  return usable;
}

std::string device_problem(int index) {
  const Probe& p = probe();
  if (!p.problem.empty()) return p.problem;
  if (index >= p.count)
    return "this machine has " + std::to_string(p.count) + (p.count == 1 ? " GPU" : " GPUs") +
           ", numbered from 0; use cuda:0";
  return p.device_problems[static_cast<size_t>(index)];
}

DeviceProperties device_properties(int index) {
  const std::string problem = device_problem(index);
  TERN_CHECK(problem.empty(), "device cuda:", index, ": ", problem);
  return probe().properties[static_cast<size_t>(index)];
}

int listed_device_count() { return probe().count; }

DeviceProperties listed_device(int index) {
  TERN_CHECK(index >= 0 && index < probe().count, "device cuda:", index, ": the driver names ", probe().count);
  return probe().properties[static_cast<size_t>(index)];
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

#include "tern/core/cuda/current_device.h"

#include <array>
#include <atomic>

#include "tern/kernels/kernel.h"

namespace tern::cuda {
namespace {

thread_local int current_device = -1;  // as last set by this thread; -1: unknown
std::array<std::atomic<bool>, kernels::kMaxDevices> started = {};
std::atomic<int> first_started = -1;

bool is_started(int index) {
  return index >= 0 && index < kernels::kMaxDevices && started[static_cast<size_t>(index)].load();
}

/// The runtime's current device of this thread.
int actual_device() {
  int index = -1;
  return cudaGetDevice(&index) == cudaSuccess ? index : -1;
}

}  // namespace

cudaError_t set_device(int index) noexcept {
  if (current_device == index) return cudaSuccess;
  if (const cudaError_t error = cudaSetDevice(index); error != cudaSuccess) return error;
  current_device = index;
  if (index < kernels::kMaxDevices) started[static_cast<size_t>(index)] = true;
  int none = -1;
  first_started.compare_exchange_strong(none, index);
  return cudaSuccess;
}

void adopt_device() noexcept {
  if (current_device >= 0) return;
  if (const int actual = actual_device(); is_started(actual))
    current_device = actual;
  else if (const int first = first_started; first >= 0)
    set_device(first);
}

DeviceScope::DeviceScope(int index) noexcept : error_(cudaSuccess) {
  const int actual = actual_device();  // other code of the program may have changed it
  if (actual == index && current_device == index) return;
  if (actual != index && is_started(actual)) previous_ = actual;
  current_device = -1;
  error_ = set_device(index);
}

DeviceScope::~DeviceScope() {
  if (previous_ >= 0) set_device(previous_);
}

}  // namespace tern::cuda

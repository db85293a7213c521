#pragma once
// Copies of kernel-test arrays in the stand-in's device memory.

#include <cuda_runtime_api.h>

#include <stdexcept>

#include "tern/kernels/base/check.h"
#include "tern/tests/kernels/kernel_test.h"

namespace tern::kernels {

inline void cuda_call(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorName(error));
}

/// Device memory, freed by the destructor.
class DeviceMemory {
 public:
  explicit DeviceMemory(int64_t bytes) { cuda_call(cudaMalloc(&data_, static_cast<size_t>(bytes > 0 ? bytes : 1))); }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  void* get() const { return data_; }

 private:
  void* data_ = nullptr;
};

/// Workspace for one call at a time, followed by inaccessible memory; 0 bytes: more than any call needs. The whole
/// program uses one allocation: filling tens of MiB for every call would take most of the time.
inline void* workspace_of(int64_t bytes) {
  constexpr int64_t kBytes = int64_t{34} << 20;
  static const DeviceMemory& memory = *new DeviceMemory(kBytes);
  EXPECT_LE(bytes, kBytes);
  return static_cast<char*>(memory.get()) + (bytes > 0 ? kBytes - bytes : 0);
}

/// A copy of an Array's memory on the device with the same alignment up to 16 bytes. The constructor copies the array's
/// content to the device; download() copies it back.
class OnDevice {
 public:
  explicit OnDevice(Array& array) : array_(array), memory_(static_cast<int64_t>(array.bytes().size()) + 512) {
    // The first element of a whole tensor is placed at the start of an allocation.
    const int64_t first = static_cast<const char*>(array.cview().data) - array.bytes().data();
    const auto shift = reinterpret_cast<uintptr_t>(array.cview().data) % 16;
    start_ = static_cast<char*>(memory_.get()) + 256 - first % 256 + shift;
    upload();
  }
  void upload() { cuda_call(cudaMemcpy(start_, array_.bytes().data(), array_.bytes().size(), cudaMemcpyHostToDevice)); }
  void download() {
    cuda_call(
        cudaMemcpy(const_cast<char*>(array_.bytes().data()), start_, array_.bytes().size(), cudaMemcpyDeviceToHost));
  }
  /// The device view that corresponds to a view of the array.
  template <class Void>
  BasicView<Void> moved(BasicView<Void> view) const {
    view.data = start_ + (static_cast<const char*>(static_cast<const void*>(view.data)) - array_.bytes().data());
    return view;
  }
  View view() { return moved(array_.view()); }

 private:
  Array& array_;
  DeviceMemory memory_;
  char* start_ = nullptr;
};

/// The message of the Error that f throws; "" and a test failure if it throws none.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace tern::kernels

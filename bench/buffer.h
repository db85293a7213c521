#pragma once
// Device buffers for benchmarks of kernels, filled with random numbers: zeros would run faster.

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "tern/bench/setting.h"
#include "tern/core/tensor.h"
#include "tern/kernels/copy.h"

namespace tern::bench {

/// A contiguous tensor; copies share its memory. Floating values are normal with the given deviation, integers uniform
/// in [0, high). Each buffer has different numbers; the n-th buffer has the same numbers on every device.
class Buffer {
 public:
  /// Number of buffers made so far, and a list to which new ones are appended, if not null.
  static inline uint64_t made = 0;
  static inline std::vector<Tensor>* noted = nullptr;

  Buffer(DType dtype, const Shape& shape, int64_t high = 2, double deviation = 1) {
    ++made;
    if (is_floating(dtype)) {
      tensor_ = empty(shape, {.dtype = dtype, .device = place()});
      kernels::fill_normal(stream(), {1, made}, 0.0, deviation, tensor_.view());
      note();
      return;
    }
    std::minstd_rand generator(static_cast<uint32_t>(made));
    std::uniform_int_distribution<int64_t> uniform(0, high - 1);
    std::vector<int64_t> values(static_cast<size_t>(shape.numel()));
    for (int64_t& value : values) value = uniform(generator);
    tensor_ = from_vector(values, shape, {.dtype = dtype, .device = place()});
    note();
  }
  Buffer(const std::vector<int32_t>& values)
      : tensor_(from_vector(values, {static_cast<int64_t>(values.size())}, {.dtype = int32, .device = place()})) {}

  double bytes() const { return static_cast<double>(tensor_.numel() * size_of(tensor_.dtype())); }
  const Tensor& tensor() const { return tensor_; }
  kernels::View view() const { return tensor_.view(); }
  void* data() const { return tensor_.view().data; }

 private:
  void note() const {
    if (noted) noted->push_back(tensor_);
  }
  Tensor tensor_;
};

/// Scratch memory of the given number of bytes, initially zero.
class Scratch {
 public:
  explicit Scratch(int64_t bytes) : tensor_(zeros({(bytes + 7) / 8}, {.dtype = int64, .device = place()})) {}
  void* data() const { return tensor_.view().data; }

 private:
  Tensor tensor_;
};

}  // namespace tern::bench

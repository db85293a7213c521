#pragma once
// Memory for the kernel benchmarks, filled with random numbers: zeros would run faster.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <vector>

#include "tern/kernels/copy.h"

namespace tern::bench {

/// A contiguous tensor that owns its memory: floating values are standard normal, integers uniform in [0, high).
class Buffer {
 public:
  Buffer(DType dtype, std::initializer_list<int64_t> shape, int64_t high = 2)
      : dtype_(dtype), shape_(shape), bytes_(static_cast<size_t>(numel() * size_of(dtype))) {
    if (is_floating(dtype)) {
      kernels::fill_normal({}, {1, 0}, 0.0, 1.0, view());
      return;
    }
    std::minstd_rand generator(1);
    std::uniform_int_distribution<int64_t> uniform(0, high - 1);
    std::vector<int64_t> values(static_cast<size_t>(numel()));
    for (int64_t& value : values) value = uniform(generator);
    kernels::copy({}, contiguous(values.data(), DType::kInt64), view());
  }

  int64_t numel() const {
    int64_t n = 1;
    for (const int64_t size : shape_) n *= size;
    return n;
  }
  double bytes() const { return static_cast<double>(bytes_.size()); }
  kernels::View view() { return contiguous(bytes_.data(), dtype_); }

 private:
  kernels::View contiguous(void* data, DType dtype) const {
    int64_t strides[kMaxDims], step = 1;
    for (size_t d = shape_.size(); d-- > 0; step *= shape_[d]) strides[d] = step;
    return {data, dtype, static_cast<int>(shape_.size()), shape_.data(), strides};
  }

  DType dtype_;
  std::vector<int64_t> shape_;
  std::vector<char> bytes_;
};

}  // namespace tern::bench

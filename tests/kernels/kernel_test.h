#pragma once
// Helpers of the kernel tests: arrays of any dtype, shape and strides whose elements are accessed as double, rounding
// to storage types that is independent of the library, and a loop over CPU levels.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tern/kernels/kernel.h"
#include "tern/kernels/random.h"
#include "tern/tests/kernels/workspace.h"
#include "tern/tests/support/levels.h"
#include "tern/tests/support/sanitizer.h"
#include "tern/tests/support/seed.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace tern::kernels {

/// ThreadSanitizer makes a case about thirty times as slow, AddressSanitizer three times: tests then run fewer cases of
/// every kernel, dtype and schedule; their random choices are different in every run.
inline constexpr bool kFewCases = test::kSanitized;

using Shape = std::vector<int64_t>;

inline const std::vector<DType> kAllTypes = {float64, float32, bfloat16, float16, int64, int32, uint8, boolean};
inline const std::vector<DType> kFloatTypes = {float64, float32, bfloat16, float16};

/// v rounded to nearest even in a binary format of `digits` significant bits and smallest exponent `low`.
inline double round_to_format(double v, int digits, int low, double largest) {
  if (v == 0 || !std::isfinite(v)) return v;
  int exponent = 0;
  std::frexp(v, &exponent);
  const int unit = std::max(exponent - digits, low);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(v, -unit)), unit);
  return std::fabs(rounded) > largest ? std::copysign(INFINITY, v) : rounded;
}
/// The value that remains when v is stored in dtype.
inline double round_to(DType dtype, double v) {
  const auto integer = [&](double low, double high) {
    return std::isnan(v) ? 0.0 : std::trunc(std::min(std::max(v, low), high));
  };
  if (dtype == float64) return v;
  if (dtype == int64) return integer(-0x1p63, 0x1p63);
  if (dtype == int32) return integer(-0x1p31, 0x1p31 - 1);
  if (dtype == uint8) return integer(0, 255);
  if (dtype == boolean) return v != 0 ? 1 : 0;
  const double single = round_to_format(v, 24, -149, 0x1.fffffep127);
  if (dtype == bfloat16) return round_to_format(single, 8, -133, 0x1.fep127);
  return dtype == float16 ? round_to_format(single, 11, -24, 65504) : single;
}
/// Half the relative distance of neighbours: the error of rounding a result.
inline double epsilon_of(DType dtype) {
  if (dtype == float64) return 0x1p-53;
  if (dtype == float32) return 0x1p-24;
  if (dtype == bfloat16) return 0x1p-8;
  return dtype == float16 ? 0x1p-11 : 0;
}

enum class Order { kContiguous, kTransposed, kSliced, kPitched, kMisaligned };
inline const std::vector<Order> kAllOrders = {Order::kContiguous, Order::kTransposed, Order::kSliced, Order::kPitched,
                                              Order::kMisaligned};

/// An array and its memory. kTransposed: dimensions are stored in reverse order; kSliced: every second element of rows
/// with a gap; kPitched: rows with a gap, of which only the first is aligned; kMisaligned: contiguous from an address
/// that is aligned only to one element.
class Array {
 public:
  Array(DType dtype, const Shape& shape, Order order = Order::kContiguous) : dtype_(dtype), shape_(shape) {
    const int dims = static_cast<int>(shape.size());
    strides_.assign(dims, 1);
    int64_t step = order == Order::kSliced ? 2 : 1;
    for (int i = 0; i < dims; ++i) {
      const int d = order == Order::kTransposed ? i : dims - 1 - i;
      strides_[d] = step;
      step *= std::max<int64_t>(shape[d], 1);
      if ((order == Order::kSliced || order == Order::kPitched) && i == 0) step += 3;
    }
    const int64_t start = order == Order::kMisaligned ? 1 : 0;
    // 0x5a everywhere, so that writes outside the elements are detected; the elements themselves are garbage.
    memory_.assign((step + start + 1) * size_of(dtype) + 128, 0x5a);
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    data_ = memory_.data() + (64 - address % 64) % 64 + start * size_of(dtype);
    forget();
    end_where_elements_do();
  }
  Array(const Array&) = delete;
  Array(Array&& other) = default;
  /// Expects at least 64 bytes after the elements, and the bytes before them due to alignment, to be unchanged.
  /// With AddressSanitizer the array ends at its last element instead.
  ~Array() {
    if (memory_.empty()) return;  // moved from
    const auto touched = [](char c) { return c != 0x5a; };
    EXPECT_TRUE(std::none_of(memory_.data(), data_, touched)) << "memory before an array was written";
    EXPECT_TRUE(std::none_of(data_ + bytes_of_elements(), memory_.data() + memory_.size(), touched))
        << "memory after an array was written";
  }

  View view() { return View(data_, dtype_, static_cast<int>(shape_.size()), shape_.data(), strides_.data()); }
  ConstView cview() const {
    return ConstView(data_, dtype_, static_cast<int>(shape_.size()), shape_.data(), strides_.data());
  }
  /// Broadcasts to `shape`, aligned at the right.
  ConstView expand(const Shape& shape) const {
    std::vector<int64_t> strides(shape.size(), 0);
    const size_t shift = shape.size() - shape_.size();
    for (size_t d = 0; d < shape_.size(); ++d) strides[d + shift] = shape_[d] == 1 ? 0 : strides_[d];
    return ConstView(data_, dtype_, static_cast<int>(shape.size()), shape.data(), strides.data());
  }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t numel() const { return cview().numel(); }
  double at(int64_t index) const { return read(cview(), index); }
  void set(int64_t index, double value) { write(view(), index, value); }
  /// All elements.
  void set(const std::vector<double>& values) {
    for (int64_t i = 0; i < numel(); ++i) set(i, values.at(i));
  }
  void fill(double value) { set(std::vector<double>(numel(), value)); }
  std::vector<double> values() const {
    std::vector<double> result(numel());
    for (int64_t i = 0; i < numel(); ++i) result[i] = at(i);
    return result;
  }
  const std::vector<char>& bytes() const { return memory_; }
  /// Makes the elements garbage.
  void forget() { set_bytes(view(), static_cast<char>(garbage_byte)); }

  /// Offset of element `index` of a view, in row-major order.
  static int64_t offset(ConstView v, int64_t index) {
    int64_t offset = 0;
    for (int d = v.dims - 1; d >= 0; --d) {
      offset += index % v.shape[d] * v.strides[d];
      index /= v.shape[d];
    }
    return offset;
  }
  /// Sets all bytes of the elements.
  static void set_bytes(View v, char byte) {
    const int64_t count = v.numel(), size = size_of(v.dtype);
    if (v.is_contiguous()) {
      std::fill_n(v.as<char>(), count * size, byte);
      return;
    }
    for (int64_t i = 0; i < count; ++i) std::fill_n(v.as<char>() + offset(v, i) * size, size, byte);
  }
  static double read(ConstView v, int64_t index) {
    const int64_t o = offset(v, index);
    if (v.dtype == DType::kBool) return v.as<uint8_t>()[o];
    return dispatch_any(v.dtype, [&]<class T>() -> double {
      if constexpr (std::is_arithmetic_v<T>)
        return static_cast<double>(v.as<T>()[o]);
      else
        return static_cast<double>(static_cast<float>(v.as<T>()[o]));
    });
  }
  static void write(View v, int64_t index, double value) {
    const int64_t o = offset(v, index);
    const double rounded = round_to(v.dtype, value);
    if (v.dtype == DType::kBool) {
      v.as<uint8_t>()[o] = rounded != 0;
      return;
    }
    dispatch_any(v.dtype, [&]<class T>() {
      if constexpr (std::is_arithmetic_v<T>)
        v.as<T>()[o] = static_cast<T>(rounded);
      else
        v.as<T>()[o] = T(static_cast<float>(rounded));
    });
  }

 private:
  /// With AddressSanitizer even reads after the last element are errors.
  void end_where_elements_do() {
#ifdef __SANITIZE_ADDRESS__
    char* const end = data_ + bytes_of_elements();
    memory_.resize(end - memory_.data());  // the rest stays allocated until the memory is freed
    ASAN_POISON_MEMORY_REGION(end, memory_.capacity() - memory_.size());
#endif
  }

  /// From the first element to the end of the last.
  int64_t bytes_of_elements() const {
    const int64_t count = numel();
    return count == 0 ? 0 : (offset(cview(), count - 1) + 1) * size_of(dtype_);
  }

  DType dtype_;
  Shape shape_;
  std::vector<int64_t> strides_;
  std::vector<char> memory_;
  char* data_ = nullptr;
};

inline std::vector<double> values_of(ConstView v) {
  std::vector<double> result(v.numel());
  for (int64_t i = 0; i < v.numel(); ++i) result[i] = Array::read(v, i);
  return result;
}

/// Sets the elements to the bytes of an array's memory before it is used.
inline void mark(View v) { Array::set_bytes(v, 0x5a); }
/// Expects that nothing outside the views was written: without their elements, memory must be as initialised.
inline void expect_gaps_untouched(Array& y, const std::vector<View>& views) {
  for (const View& view : views) mark(view);
  const auto other = std::find_if(y.bytes().begin(), y.bytes().end(), [](char c) { return c != 0x5a; });
  ASSERT_TRUE(other == y.bytes().end()) << "memory outside the view was written";
}
inline void expect_gaps_untouched(Array& y) { expect_gaps_untouched(y, {y.view()}); }

/// The base of draws with a base: `draw_base` exists for as long as the tests run.
inline const uint64_t draw_base = 1'000'003;
/// A key with a part in memory, as in a captured step.
inline RandomKey key_with_base(uint64_t seed, uint64_t offset) { return {seed, offset, &draw_base}; }

/// Fills with uniform numbers in [low, high), rounded to the array's dtype.
inline void fill_with_random(Array& array, std::mt19937_64& random, double low, double high) {
  std::uniform_real_distribution<double> uniform(low, high);
  for (int64_t i = 0; i < array.numel(); ++i) array.set(i, uniform(random));
}
inline Array random_array(std::mt19937_64& random, DType dtype, const Shape& shape, double low, double high,
                          Order order = Order::kContiguous) {
  Array array(dtype, shape, order);
  fill_with_random(array, random, low, high);
  return array;
}

/// The base of tests of the CPU's kernels: random numbers; the number of threads is restored.
class OnCpu : public testing::Test {
 protected:
  void TearDown() override { set_num_threads(threads_before_); }
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  Array filled(DType dtype, const Shape& shape) { return random_array(random_, dtype, shape, -1, 1); }
  const int threads_before_ = num_threads();
  std::mt19937_64 random_ = fresh_random();
};

/// True when equal, both NaN, or within the tolerance; false when only one is NaN.
inline bool near(double got, double expected, double relative, double absolute) {
  if (std::isnan(expected)) return std::isnan(got);
  if (std::isinf(expected)) return got == expected;
  return std::fabs(got - expected) <= absolute + relative * std::fabs(expected);
}

/// Runs body at every CPU level that this machine and build support, then restores the level.
inline void for_each_level(const std::function<void()>& body) {
  const CpuLevel before = cpu_level();
  const std::vector<CpuLevel> levels = testable_levels();
  EXPECT_FALSE(levels.empty());
  for (const CpuLevel level : levels) {
    set_cpu_level(level);
    SCOPED_TRACE(std::string("CPU level ") + name_of(level));
    body();
  }
  set_cpu_level(before);
}

}  // namespace tern::kernels

#pragma once
// Elements of the recurrent kernels' views in the type that they compute in. Included only by
// kernels/cpu/recurrent/recurrent.cpp.

#include <cstring>

#include "tern/kernels/cpu/rows.h"
#include "tern/kernels/view.h"

namespace tern::kernels::TERN_CPU {
namespace {

[[maybe_unused, gnu::noinline]] void widen_row(DType dtype, const void* x, float* to, int64_t n) {
  dispatch_float(dtype, [&]<class T>() {
    if constexpr (kIsHalf<T>) widen_halves(static_cast<const T*>(x), to, n);
  });
}
[[maybe_unused, gnu::noinline]] void narrow_row(DType dtype, const float* from, void* x, int64_t n) {
  dispatch_float(dtype, [&]<class T>() {
    if constexpr (kIsHalf<T>) narrow_to_halves(from, static_cast<T*>(x), n);
  });
}

/// The elements of a view of dtype F, or where F is float of 16 bits, as numbers of F. The dtype is looked up at each
/// access, because an instance of the passes for each would take minutes to compile.
template <class F>
class Numbers {
 public:
  Numbers() = default;
  Numbers(const ConstView& x) : data_(static_cast<char*>(const_cast<void*>(x.data))), dtype_(x.dtype) {}  // NOLINT
  explicit operator bool() const { return data_ != nullptr; }
  bool is_wide() const { return sizeof(F) == 8 || dtype_ == DType::kFloat32; }

  /// n elements from `at` on: in place, or in the buffer.
  const F* load(int64_t at, int64_t n, F* buffer) const {
    if (is_wide()) return reinterpret_cast<const F*>(data_) + at;
    if constexpr (sizeof(F) == 4) widen_row(dtype_, data_ + 2 * at, buffer, n);
    return buffer;
  }
  /// The same where kCount numbers may be read, of which those from n on may be anything.
  template <int64_t kCount>
  const F* load_whole(int64_t at, int64_t n, F* buffer) const {
    if (n == kCount) return load(at, kCount, buffer);
    const F* const from = load(at, n, buffer);
    if (from != buffer) std::copy_n(from, n, buffer);
    return buffer;
  }
  /// A row, or 0 where the view is absent.
  void load_row(int64_t row, int64_t width, F* to) const {
    if (!data_) {
      std::fill_n(to, width, F(0));
    } else if (const F* const from = load(row * width, width, to); from != to) {
      std::copy_n(from, width, to);
    }
  }
  void store(const F* from, int64_t at, int64_t n) const {
    if (is_wide())
      std::copy_n(from, n, reinterpret_cast<F*>(data_) + at);
    else if constexpr (sizeof(F) == 4)
      narrow_row(dtype_, from, data_ + 2 * at, n);
  }
  /// The same of n numbers, of which there are mostly kCount: a constant, so that loops become vectors.
  template <int64_t kCount>
  void store_whole(const F* from, int64_t at, int64_t n) const {
    if (n == kCount)
      store(from, at, kCount);
    else
      store(from, at, n);
  }
  void store_row(const F* from, int64_t row, int64_t width) const {
    if (data_) store(from, row * width, width);
  }
  void copy_row(int64_t row, int64_t width, const Numbers& to, int64_t to_row) const {
    const int64_t bytes = width * size_of(dtype_);
    std::memcpy(to.data_ + to_row * bytes, data_ + row * bytes, static_cast<size_t>(bytes));
  }
  void clear_row(int64_t row, int64_t width) const {
    const int64_t bytes = width * size_of(dtype_);
    std::memset(data_ + row * bytes, 0, static_cast<size_t>(bytes));
  }

 private:
  char* data_ = nullptr;
  DType dtype_ = DType::kFloat32;
};

/// to = n numbers, of which there are mostly kCount.
template <int64_t kCount, class F>
void copy_whole(const F* from, int64_t n, F* to) {
  if (n == kCount)
    std::copy_n(from, kCount, to);
  else
    std::copy_n(from, n, to);
}

}  // namespace
}  // namespace tern::kernels::TERN_CPU

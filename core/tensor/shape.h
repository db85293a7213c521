#pragma once
// Shapes and strides: up to 8 dimensions, no heap memory.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <string>
#include <vector>

#include "tern/kernels/view.h"

namespace tern {

/// The sizes of a tensor's dimensions. Sizes are >= 0 and their product fits int64; both are checked, with an Error.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes);
  explicit Shape(const std::vector<int64_t>& sizes);
  Shape(const int64_t* sizes, int dims);

  int dims() const { return dims_; }
  int64_t operator[](int dim) const { return sizes_[dim]; }
  /// Size of dimension dim; a negative dim counts from the end. Throws Error when there is no such dimension.
  int64_t size(int dim) const { return sizes_[wrap(dim)]; }
  int64_t numel() const { return numel_; }
  const int64_t* data() const { return sizes_.data(); }
  const int64_t* begin() const { return sizes_.data(); }
  const int64_t* end() const { return sizes_.data() + dims_; }
  std::vector<int64_t> vec() const { return {begin(), end()}; }

  /// dim as an index from the front. Throws Error when there is no such dimension.
  int wrap(int dim) const;
  /// Copies with one dimension replaced, removed or inserted (before dim).
  Shape with(int dim, int64_t size) const;
  Shape without(int dim) const;
  Shape inserted(int dim, int64_t size) const;
  std::string str() const;

  friend bool operator==(const Shape& a, const Shape& b);

 private:
  std::array<int64_t, kMaxDims> sizes_{};
  int dims_ = 0;
  int64_t numel_ = 1;
};

/// Distances between neighbours along each dimension, in elements.
using Strides = std::array<int64_t, kMaxDims>;
Strides contiguous_strides(const Shape& shape);

/// Broadcasts as NumPy and PyTorch do. Throws Error naming `op` and both shapes when they do not fit.
Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b);
/// True when `from` broadcasts to exactly `to`.
bool broadcasts_to(const Shape& from, const Shape& to);

std::ostream& operator<<(std::ostream& out, const Shape& shape);

}  // namespace tern

#include "tern/core/tensor/shape.h"

#include <algorithm>
#include <ostream>
#include <sstream>

#include "tern/kernels/base/check.h"

namespace tern {

Shape::Shape(std::initializer_list<int64_t> sizes) : Shape(sizes.begin(), static_cast<int>(sizes.size())) {}

Shape::Shape(const std::vector<int64_t>& sizes) : Shape(sizes.data(), static_cast<int>(sizes.size())) {}

Shape::Shape(const int64_t* sizes, int dims) : dims_(dims) {
  TERN_CHECK(dims <= kMaxDims, "shape: at most ", kMaxDims, " dimensions, got ", dims);
  std::copy(sizes, sizes + dims, sizes_.begin());
  // Sizes of 0 count as 1 in the check: strides must fit 64 bits as well.
  int64_t product = 1;
  for (int d = 0; d < dims; ++d) {
    TERN_CHECK(sizes_[d] >= 0, "shape: sizes must be >= 0, got ", str());
    TERN_CHECK(!__builtin_mul_overflow(product, std::max<int64_t>(sizes_[d], 1), &product),
               "shape: the number of elements of ", str(), " does not fit 64 bits");
    numel_ *= sizes_[d] == 0 ? 0 : 1;
  }
  numel_ *= product;
}

int Shape::wrap(int dim) const {
  const int i = dim < 0 ? dim + dims_ : dim;
  TERN_CHECK(dims_ > 0, "dimension ", dim, " is out of range for shape [], which has no dimensions");
  TERN_CHECK(i >= 0 && i < dims_, "dimension ", dim, " is out of range for shape ", str(), ": expected ", -dims_,
             " to ", dims_ - 1);
  return i;
}

Shape Shape::with(int dim, int64_t size) const {
  std::vector<int64_t> sizes = vec();
  sizes[static_cast<size_t>(wrap(dim))] = size;
  return Shape(sizes);
}

Shape Shape::without(int dim) const {
  std::vector<int64_t> sizes = vec();
  sizes.erase(sizes.begin() + wrap(dim));
  return Shape(sizes);
}

Shape Shape::inserted(int dim, int64_t size) const {
  const int i = dim < 0 ? dim + dims_ + 1 : dim;
  TERN_CHECK(i >= 0 && i <= dims_, "dimension ", dim, " cannot be inserted into shape ", str());
  std::vector<int64_t> sizes = vec();
  sizes.insert(sizes.begin() + i, size);
  return Shape(sizes);
}

std::string Shape::str() const {
  std::ostringstream out;
  out << '[';
  for (int d = 0; d < dims_; ++d) out << (d ? ", " : "") << sizes_[d];
  out << ']';
  return out.str();
}

bool operator==(const Shape& a, const Shape& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

Strides contiguous_strides(const Shape& shape) {
  Strides strides{};
  int64_t step = 1;
  for (int d = shape.dims() - 1; d >= 0; --d) {
    strides[d] = step;
    step *= std::max<int64_t>(shape[d], 1);
  }
  return strides;
}

bool broadcasts_to(const Shape& from, const Shape& to) {
  const int shift = to.dims() - from.dims();
  if (shift < 0) return false;
  for (int d = 0; d < from.dims(); ++d)
    if (from[d] != 1 && from[d] != to[d + shift]) return false;
  return true;
}

Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b) {
  if (a == b) return a;
  const int dims = std::max(a.dims(), b.dims());
  int64_t sizes[kMaxDims];
  for (int d = 0; d < dims; ++d) {
    const int ia = d - (dims - a.dims()), ib = d - (dims - b.dims());
    const int64_t sa = ia < 0 ? 1 : a[ia], sb = ib < 0 ? 1 : b[ib];
    TERN_CHECK(sa == sb || sa == 1 || sb == 1, op, ": shapes ", a, " and ", b,
               " do not broadcast: sizes from the end must be equal or 1");
    sizes[d] = sa == 1 ? sb : sa;
  }
  return Shape(sizes, dims);
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.str(); }

}  // namespace tern

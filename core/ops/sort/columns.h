#pragma once
// What the ops that work along one dimension share: it is moved to the end.

#include <vector>

#include "tern/core/ops/sort/sort.h"

namespace tern::detail {

inline int64_t count_rows(const Tensor& x) { return x.const_view().rows(); }
inline int64_t count_cols(const Tensor& x) { return x.const_view().cols(); }
/// Throws Error where x has more columns than the sorting kernels take.
void check_columns(const char* op, const Tensor& x);

/// y[..., j] = x[..., index[..., j]], and x[..., index[..., j]] = y[..., j], other elements 0; `cols` elements per row.
/// No index repeats within a row; each is the gradient of the other.
Tensor take_columns(const Tensor& x, const Tensor& index);
Tensor scatter_columns(const Tensor& y, const Tensor& index, int64_t cols);

/// Moves dimension d of x to the end, contiguous, and moves it back in results.
class Along {
 public:
  Along(const Tensor& x, int dim) : scalar_(x.dim() == 0) {
    const Tensor whole = scalar_ ? x.reshape({1}) : x;
    dim_ = whole.shape().wrap(dim);
    last_ = whole.transpose(dim_, -1).contiguous();
  }
  const Tensor& last() const { return last_; }
  /// For a scalar x a result with other than one element keeps its dimension.
  Tensor back(const Tensor& y) const { return scalar_ && y.numel() == 1 ? y.reshape(Shape{}) : y.transpose(dim_, -1); }
  SortResult back(const std::vector<Tensor>& y) const { return {back(y[0]), back(y[1])}; }

 private:
  bool scalar_;
  int dim_ = 0;
  Tensor last_;
};

}  // namespace tern::detail

#include "tern/core/ops/dropout.h"

#include <cmath>
#include <vector>

#include "tern/core/autograd/function.h"
#include "tern/core/ops/pointwise.h"
#include "tern/kernels/norm.h"

namespace tern {
namespace {

struct DropoutOp final : Function<DropoutOp> {
  static constexpr const char* kName = "dropout";
  static constexpr bool kTwiceDifferentiable = true;
  kernels::Dropout dropout_;
  Saved row_keys_;
  bool by_row_ = false;
  Tensor forward(const Tensor& x, const kernels::Dropout& dropout, const Constant& row_keys) {
    dropout_ = dropout;
    row_keys_ = row_keys.tensor;
    by_row_ = row_keys.tensor.defined();
    const Tensor y = empty(x.shape(), x.options());
    kernels::dropout(current_stream(x.device()), x.view(), dropout, row_keys.tensor.view(), y.view());
    return y;
  }
  Grads backward(const Tensor& dy) override {
    const Tensor row_keys = by_row_ ? row_keys_.get() : Tensor();
    return {detail::dropout_of(dy.contiguous(), dropout_, row_keys)};
  }
};

}  // namespace

Tensor detail::dropout_of(const Tensor& x, const kernels::Dropout& dropout, const Tensor& row_keys) {
  return DropoutOp::apply(x, dropout, Constant{row_keys});
}

kernels::Dropout detail::draw(const DropoutOptions& options, const char* op, Device device) {
  TERN_CHECK(options.p >= 0 && options.p <= 1, op, ": the dropout probability must be in [0, 1], got ", options.p);
  if (options.p == 0) return {};
  Generator& generator = options.generator ? *options.generator : default_generator();
  return {options.p, generator.next(device)};
}

void detail::check_row_keys(const char* op, const Tensor& row_keys, int64_t rows, Device device) {
  TERN_CHECK(!row_keys.defined() || (row_keys.dtype() == DType::kInt64 && row_keys.numel() == rows &&
                                     row_keys.is_contiguous() && row_keys.device() == device),
             op, ": row_keys is ", row_keys.describe(), ", expected contiguous int64 [", rows, "] on ", device);
}

Tensor dropout(const Tensor& x, const DropoutOptions& options) {
  TERN_CHECK(is_floating(x.dtype()), "dropout: expected a floating tensor, got ", x.dtype());
  const kernels::Dropout dropout = detail::draw(options, "dropout", x.device());
  if (dropout.p == 0) return x;
  if (x.dim() == 0) return detail::dropout_of(x.reshape({1}), dropout, {}).reshape(Shape{});
  detail::check_row_keys("dropout", options.row_keys, x.view().rows(), x.device());
  return detail::dropout_of(x.contiguous(), dropout, options.row_keys);
}

Tensor feature_dropout(const Tensor& x, const DropoutOptions& options) {
  TERN_CHECK(x.dim() >= 2, "feature_dropout: expected [batch, channels, ...], got ", x.shape());
  if (options.p == 0) return x;
  std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
  sizes[0] = x.size(0);
  sizes[1] = x.size(1);
  return x * dropout(ones({x.size(0), x.size(1)}, x.options()), options).reshape(sizes);
}

Tensor alpha_dropout(const Tensor& x, const DropoutOptions& options) {
  constexpr double kLimit = -1.7580993408473766;  // of SELU at -infinity
  if (options.p == 0 || options.p == 1) return dropout(x, options);
  const Tensor kept = dropout(ones(x.shape(), x.options()), options) * (1 - options.p);
  const double scale = 1 / std::sqrt((kLimit * kLimit * options.p + 1) * (1 - options.p));
  return x * (kept * scale) + ((1.0 - kept) * (kLimit * scale) - kLimit * scale * options.p);
}

}  // namespace tern

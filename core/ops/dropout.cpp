#include "tern/core/ops/dropout.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tern/core/autograd/function.h"
#include "tern/core/ops/image/pool.h"
#include "tern/core/ops/indexing/rearrange.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/random.h"
#include "tern/core/ops/reduce/reduce.h"
#include "tern/core/tensor/tensor_impl.h"
#include "tern/kernels/norm.h"

namespace tern {
namespace {

struct DropoutOp final : TwiceDifferentiable<DropoutOp> {
  static constexpr const char* kName = "dropout";
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

Tensor drop_blocks(const char* op, int dims, const Tensor& x, int64_t block_size, const DropoutOptions& options) {
  TERN_CHECK(is_floating(x.dtype()) && x.dim() == dims + 2, op, ": x must be floating [batch, channels, ", dims,
             " spatial dimensions], got ", x.describe());
  TERN_CHECK(block_size >= 1, op, ": block_size must be at least 1, got ", block_size);
  TERN_CHECK(options.p >= 0 && options.p <= 1, op, ": p must be in [0, 1], got ", options.p);
  TERN_CHECK(!options.row_keys.defined(), op, ": row_keys are not taken");
  if (options.p == 0 || x.numel() == 0) return x;
  int64_t block = block_size;
  for (int d = 2; d < x.dim(); ++d) block = std::min(block, x.size(d));
  // Blocks lie within the image; each place is the first pixel of one with the probability `share`.
  double share = options.p;
  std::vector<int64_t> places = x.shape().vec(), padding;
  for (int d = 2; d < x.dim(); ++d) {
    const auto size = static_cast<double>(x.size(d)), starts = size - static_cast<double>(block) + 1;
    share *= size / (static_cast<double>(block) * starts);
    places[static_cast<size_t>(d)] -= block - 1;
    padding.insert(padding.end(), {block - 1, block - 1});
  }
  Generator& generator = options.generator ? *options.generator : default_generator();
  const Tensor starts = bernoulli(full(Shape(places), std::min(share, 1.0), {DType::kFloat32, x.device()}), generator);
  const Tensor dropped = (dims == 2 ? max_pool2d : max_pool3d)(pad(starts, padding), block, {.stride = 1});
  const Tensor kept = 1.0 - dropped;
  return x * (kept * (static_cast<double>(x.numel()) / (sum(kept) + 1e-6))).to(x.dtype());
}

}  // namespace

Tensor detail::dropout_of(const Tensor& x, const kernels::Dropout& dropout, const Tensor& row_keys) {
  return DropoutOp::apply(x, dropout, Constant{row_keys});
}

kernels::Dropout detail::draw(const DropoutOptions& options, const char* op, Device device) {
  TERN_CHECK(options.p >= 0 && options.p <= 1, op, ": the dropout probability must be in [0, 1], got ", options.p);
  if (options.p == 0) return {};
  TERN_CHECK(!active_trace(), op, ": a traced function must not draw random numbers, which would be the same in each ",
             "run of the graph; call eval() on the module first");
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
  // The masks belong to places of the shape, so they are drawn in its order.
  const Tensor y = detail::dropout_of(x.contiguous(), dropout, options.row_keys);
  return detail::has_channels_last(x) ? y.channels_last() : y;
}

Tensor feature_dropout(const Tensor& x, const DropoutOptions& options) {
  TERN_CHECK(x.dim() >= 2, "feature_dropout: expected [batch, channels, ...], got ", x.shape());
  if (options.p == 0) return x;
  std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
  sizes[0] = x.size(0);
  sizes[1] = x.size(1);
  return x * dropout(ones({x.size(0), x.size(1)}, x.options()), options).reshape(sizes);
}

Tensor stochastic_depth(const Tensor& x, StochasticDepthMode mode, const DropoutOptions& options) {
  TERN_CHECK(x.dim() > 0, "stochastic_depth: x must be [samples, ...], got ", x.shape());
  if (options.p == 0) return x;
  std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
  if (mode == StochasticDepthMode::kRow) sizes[0] = x.size(0);
  return x * dropout(ones({sizes[0], 1}, x.options()), options).reshape(sizes);
}

Tensor drop_block2d(const Tensor& x, int64_t block_size, const DropoutOptions& options) {
  return drop_blocks("drop_block2d", 2, x, block_size, options);
}
Tensor drop_block3d(const Tensor& x, int64_t block_size, const DropoutOptions& options) {
  return drop_blocks("drop_block3d", 3, x, block_size, options);
}

Tensor alpha_dropout(const Tensor& x, const DropoutOptions& options) {
  constexpr double kLimit = -1.7580993408473766;  // of SELU at -infinity
  if (options.p == 0 || options.p == 1) return dropout(x, options);
  const Tensor kept = dropout(ones(x.shape(), x.options()), options) * (1 - options.p);
  const double scale = 1 / std::sqrt((kLimit * kLimit * options.p + 1) * (1 - options.p));
  return x * (kept * scale) + ((1.0 - kept) * (kLimit * scale) - kLimit * scale * options.p);
}

}  // namespace tern

#include "tern/core/ops/norm/batch_norm.h"

#include <cmath>

#include "tern/core/autograd/checkpoint.h"
#include "tern/core/autograd/function.h"
#include "tern/core/ops/pointwise/function.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"
#include "tern/core/ops/reduce/run_reduction.h"
#include "tern/core/ops/tensor/in_place.h"
#include "tern/core/ops/workspace.h"
#include "tern/core/tensor/tensor_impl.h"
#include "tern/kernels/batch_norm.h"

namespace tern {
namespace {

using detail::accumulation_type;

/// x with its channels last, as the kernels' [rows, channels]; an absent view of an undefined tensor.
kernels::View matrix_of(const Tensor& x) {
  if (!x.defined()) return {};
  const int64_t channels = x.size(1), rows = channels == 0 ? 0 : x.numel() / channels;
  const int64_t sizes[] = {rows, channels}, steps[] = {channels, 1};
  return {x.raw_data(), x.dtype(), 2, sizes, steps};
}
Tensor last(const Tensor& x) { return !x.defined() ? x : x.dim() > 2 ? x.channels_last() : x.contiguous(); }
Tensor empty_last(const Tensor& x) {
  return x.dim() > 2 ? detail::empty_channels_last(x.shape(), x.options()) : empty(x.shape(), x.options());
}
std::vector<int> other_dims(const Tensor& x) {
  std::vector<int> dims = {0};
  for (int d = 2; d < x.dim(); ++d) dims.push_back(d);
  return dims;
}
/// [channels] as [1, channels, 1...], which broadcasts with x.
Tensor beside(const Tensor& numbers, const Tensor& x) {
  std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
  sizes[1] = numbers.numel();
  return numbers.reshape(sizes);
}
int64_t rows_of(const Tensor& x) { return x.numel() / x.size(1); }

/// The statistics of each channel, over all ranks.
struct Statistics {
  Tensor mean, squares;  // the latter: the sum of the squared differences from the mean
  Tensor count;          // of values, [1]; undefined without ranks
};

Statistics statistics_of(const Tensor& x, const BatchNormRanks* ranks) {
  const TensorOptions options{accumulation_type(x.dtype()), x.device()};
  const int64_t channels = x.size(1), rows = rows_of(x);
  // The own row is filled; the sum over the ranks then holds the row of each.
  const Shape shape = {ranks ? ranks->count : 1, 2 * channels + 1};
  Tensor parts = ranks ? zeros(shape, options) : empty(shape, options);
  Tensor own = parts[ranks ? ranks->rank : 0];
  if (rows > 0) {
    const Tensor mean = own.narrow(0, 0, channels), squares = own.narrow(0, channels, channels);
    const kernels::Stream stream = current_stream(x.device());
    const Workspace workspace(x.device(),
                              [&] { return kernels::batch_norm_workspace(stream, rows, channels, x.dtype()); });
    kernels::batch_norm_statistics(stream, matrix_of(x), mean.view(), squares.view(), workspace.data());
  }
  if (!ranks) return {own.narrow(0, 0, channels), own.narrow(0, channels, channels), {}};
  own.narrow(0, 2 * channels, 1).fill_(static_cast<double>(rows));
  ranks->sum(parts);
  const Tensor means = parts.narrow(1, 0, channels), squares = parts.narrow(1, channels, channels);
  const Tensor counts = parts.narrow(1, 2 * channels, 1), count = sum(counts, {0});
  TERN_CHECK(rows > 1 || count.to(DType::kFloat64).item<double>() > 1,
             "batch_norm: x has one value for each channel on all processes together, whose variance is 0");
  const Tensor mean = sum(means * counts, {0}) / count;
  return {mean, sum(squares + counts * square(means - mean), {0}), count};
}

struct BatchNorm final : TwiceDifferentiable<BatchNorm> {
  static constexpr const char* kName = "batch_norm";
  Saved x_, weight_, bias_;
  SavedOutput y_;
  Tensor mean_, rstd_, scale_;  // the latter: rstd times the weight
  Tensor count_;                // of values on all ranks, if there are several
  BatchNormOptions options_;
  DType weight_dtype_ = DType::kFloat32, bias_dtype_ = DType::kFloat32;
  bool of_batch_ = false;

  Tensor forward(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& residual,
                 const Constant& running_mean, const Constant& running_var, const BatchNormOptions& options) {
    options_ = options;
    of_batch_ = options.training || !running_mean.tensor.defined();
    if (weight.defined()) weight_dtype_ = weight.dtype();
    if (bias.defined()) bias_dtype_ = bias.dtype();
    const Tensor x = last(input);
    const DType wide = accumulation_type(x.dtype());
    if (of_batch_) {
      normalise_by_batch(x, weight, running_mean.tensor, running_var.tensor);
    } else {
      mean_ = running_mean.tensor.to(wide).clone();
      rstd_ = rsqrt(running_var.tensor.to(wide) + options.eps);
      scale_ = weight.defined() ? rstd_ * weight.to(wide) : rstd_;
    }
    const Tensor y = empty_last(x), shift = shift_of(bias, wide);
    kernels::batch_norm_apply(current_stream(x.device()), matrix_of(x), map_of(shift), matrix_of(last(residual)),
                              matrix_of(y));
    const bool bends = options.activation != ImageActivation::kNone;
    const bool by_result = bends && residual.defined();
    if (by_result) y_ = y;
    if (needs_grad(0) || needs_grad(1) || (bends && !by_result)) x_ = input;
    if (needs_grad(0) || (bends && !by_result)) weight_ = weight;
    if (bends && !by_result) bias_ = bias;
    return y;
  }

  Grads backward(const Tensor& dy) override {
    if (!grad_enabled()) return by_kernels(dy);
    TERN_CHECK(!count_.defined(), "batch_norm: no second derivative where several processes share a batch");
    return made_of_ops(dy);
  }

 private:
  void normalise_by_batch(const Tensor& x, const Tensor& weight, Tensor running_mean, Tensor running_var) {
    const Statistics batch = statistics_of(x, options_.ranks);
    mean_ = batch.mean;
    count_ = batch.count;
    scale_ = rstd_ = empty_like(mean_);
    if (weight.defined()) scale_ = empty_like(mean_);
    kernels::BatchNormRunning running;
    if (options_.training && running_mean.defined() && !detail::is_recomputing()) {
      for (const Tensor& numbers : {running_mean, running_var}) detail::check_distinct("batch_norm", numbers);
      running = {running_mean.view(), running_var.view(), options_.momentum};
    }
    kernels::batch_norm_numbers(current_stream(x.device()), mean_.view(), batch.squares.view(), count_of(x),
                                weight.view(), options_.eps, rstd_.view(),
                                weight.defined() ? scale_.view() : kernels::View(), running);
    if (!running.mean) return;
    running_mean.bump_version();
    running_var.bump_version();
  }

  kernels::BatchNormCount count_of(const Tensor& x) const { return {rows_of(x), count_.view()}; }
  static Tensor shift_of(const Tensor& bias, DType wide) { return bias.defined() ? bias.to(wide).contiguous() : bias; }
  kernels::BatchNormMap map_of(const Tensor& shift) const {
    return {mean_.view(), scale_.view(), shift.view(), options_.activation};
  }

  /// dy times the derivative of the activation at z, the result before it.
  Tensor before_activation(const Tensor& dy, const Tensor& z) const {
    return kernels::with_image_activation(options_.activation, [&](const auto& activation) {
      if constexpr (std::is_same_v<std::decay_t<decltype(activation)>, kernels::IdentityActivation>)
        return dy;
      else
        return detail::pointwise_derivative(detail::describe_pointwise(activation.op), 0, dy, {&z, 1});
    });
  }

  Grads made_of_ops(const Tensor& dy_in) {
    const Tensor x_in = x_.get_or_none(), weight = weight_.get_or_none(), bias = bias_.get_or_none();
    const DType wide = accumulation_type(dy_in.dtype());
    Tensor dy = dy_in.to(wide);
    const std::vector<int> dims = other_dims(dy);
    Grads grads(4);
    Tensor normal, rstd;
    if (x_in.defined()) {
      const Tensor x = x_in.to(wide);
      const Tensor centered = x - (of_batch_ ? mean(x, dims, true) : beside(mean_, x));
      rstd = of_batch_ ? rsqrt(mean(square(centered), dims, true) + options_.eps) : beside(rstd_, x);
      normal = centered * rstd;
    }
    if (y_.defined()) {
      dy = before_activation(dy, y_.get().to(wide));
    } else if (options_.activation != ImageActivation::kNone) {
      Tensor z = weight.defined() ? normal * beside(weight.to(wide), dy) : normal;
      if (bias.defined()) z = z + beside(bias.to(wide), dy);
      dy = before_activation(dy, z);
    }
    if (needs_grad(2)) grads[2] = sum(dy, dims).to(bias_dtype_);
    if (needs_grad(3)) grads[3] = dy.to(dy_in.dtype());
    if (needs_grad(1)) grads[1] = sum(dy * normal, dims).to(weight_dtype_);
    if (!needs_grad(0)) return grads;
    const Tensor g = weight.defined() ? dy * beside(weight.to(wide), dy) : dy;
    const Tensor dx = of_batch_ ? rstd * (g - mean(g, dims, true) - normal * mean(g * normal, dims, true)) : rstd * g;
    grads[0] = dx.to(x_in.dtype());
    return grads;
  }

  Grads by_kernels(const Tensor& dy_in) {
    const Tensor x_in = x_.get_or_none(), weight = weight_.get_or_none(), bias = bias_.get_or_none();
    const Tensor dy = last(dy_in), x = last(x_in), y = y_.get_or_none();
    const int64_t channels = dy.size(1), rows = rows_of(dy);
    const DType wide = accumulation_type(dy.dtype());
    const kernels::Stream stream = current_stream(dy.device());
    const Tensor shift = shift_of(bias, wide);
    kernels::BatchNormMap map = map_of(shift);
    Grads grads(4);
    // The gradient before the activation: computed again by the second pass where that is as cheap as reading it.
    Tensor g = dy;
    const bool bends = map.activation != ImageActivation::kNone;
    const bool again = map.activation == ImageActivation::kRelu && !y.defined();
    if (bends && !again) g = empty_last(dy);
    const bool sums_needed = bends || needs_grad(1) || needs_grad(2) || (needs_grad(0) && of_batch_);
    const TensorOptions numbers{wide, dy.device()};
    const Tensor sums = rows > 0 ? empty({2, channels}, numbers) : zeros({2, channels}, numbers);
    if (rows > 0 && sums_needed) {
      const Workspace workspace(dy.device(),
                                [&] { return kernels::batch_norm_workspace(stream, rows, channels, dy.dtype()); });
      // Without x only the sum of g is used.
      kernels::batch_norm_backward_sums(stream, matrix_of(dy), matrix_of(y), matrix_of(x.defined() ? x : dy), map,
                                        sums.view(), matrix_of(bends && !again ? g : Tensor()), workspace.data());
    }
    Tensor offset, slope, total = sums;
    if (needs_grad(1)) grads[1] = empty({channels}, {weight_dtype_, dy.device()});
    if (needs_grad(2)) grads[2] = empty({channels}, {bias_dtype_, dy.device()});
    if (needs_grad(0) && of_batch_) {
      offset = empty({channels}, numbers);
      slope = empty({channels}, numbers);
      if (count_.defined()) {
        total = sums.clone();  // the gradients of weight and bias are of this rank alone
        options_.ranks->sum(total);
      }
    }
    if (needs_grad(1) || needs_grad(2) || offset.defined())
      kernels::batch_norm_gradients(stream, sums.view(), total.view(), count_of(dy), rstd_.view(), scale_.view(),
                                    {grads[1].view(), grads[2].view(), offset.view(), slope.view()});
    if (needs_grad(3)) grads[3] = g;
    if (!needs_grad(0)) return grads;
    if (!again) map.activation = ImageActivation::kNone;
    grads[0] = empty_last(dy);
    kernels::batch_norm_backward_apply(stream, matrix_of(g), matrix_of(x), map, offset.view(), slope.view(),
                                       matrix_of(grads[0]));
    return grads;
  }
};

void check(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
           const Tensor& bias, const Tensor& residual) {
  detail::check_one_device("batch_norm", {&x, &running_mean, &running_var, &weight, &bias, &residual});
  TERN_CHECK(x.dim() >= 2 && is_floating(x.dtype()),
             "batch_norm: x must be floating [batch, channels] or [batch, channels, spatial...], got ", x.describe());
  TERN_CHECK(running_mean.defined() == running_var.defined(),
             "batch_norm: of running_mean and running_var one is undefined: give both or neither");
  const int64_t channels = x.size(1);
  const std::pair<const char*, const Tensor*> numbers[] = {
      {"running_mean", &running_mean}, {"running_var", &running_var}, {"weight", &weight}, {"bias", &bias}};
  for (const auto& [name, t] : numbers)
    TERN_CHECK(!t->defined() || (t->dim() == 1 && t->size(0) == channels && is_floating(t->dtype())),
               "batch_norm: ", name, " must be floating [", channels, "], the channels of x ", x.shape(), ", got ",
               t->describe());
  TERN_CHECK(!residual.defined() || (residual.shape() == x.shape() && residual.dtype() == x.dtype()),
             "batch_norm: residual must be like x, ", x.describe(), ", got ", residual.describe());
}

}  // namespace

Tensor activate(const Tensor& x, ImageActivation activation) {
  return kernels::with_image_activation(activation, [&](const auto& act) {
    if constexpr (std::is_same_v<std::decay_t<decltype(act)>, kernels::IdentityActivation>)
      return x;
    else
      return pointwise(act.op, x);
  });
}

Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                  const Tensor& bias, const BatchNormOptions& options, const Tensor& residual) {
  check(x, running_mean, running_var, weight, bias, residual);
  TERN_CHECK(options.eps >= 0 && std::isfinite(options.eps), "batch_norm: eps must be a finite number >= 0, got ",
             options.eps);
  TERN_CHECK(options.momentum >= 0 && options.momentum <= 1, "batch_norm: momentum must be in [0, 1], got ",
             options.momentum);
  BatchNormOptions used = options;
  if (options.ranks && (options.ranks->count == 1 || !options.training)) used.ranks = nullptr;
  const bool of_batch = options.training || !running_mean.defined();
  TERN_CHECK(!of_batch || used.ranks || x.numel() != x.size(1), "batch_norm: x ", x.shape(),
             " has one value for each channel, whose variance is 0: train with more, or use the running statistics "
             "(eval())");
  const bool nothing = x.size(1) == 0 || (x.numel() == 0 && !used.ranks);
  if (nothing) return x * 1.0;
  // The slope of an activation of a sum is found from the result only for ReLU.
  const bool apart = residual.defined() && used.activation != ImageActivation::kRelu;
  if (apart) used.activation = ImageActivation::kNone;
  const Tensor y = BatchNorm::apply(x, weight, bias, residual, Constant{running_mean}, Constant{running_var}, used);
  return apart ? activate(y, options.activation) : y;
}

}  // namespace tern

#include "tern/core/ops/norm/group_norm.h"

#include <cmath>

#include "tern/core/autograd/function.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/image/images.h"
#include "tern/core/ops/image/pool.h"
#include "tern/core/ops/indexing/rearrange.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"
#include "tern/core/ops/reduce/statistics.h"
#include "tern/core/ops/workspace.h"
#include "tern/core/tensor/tensor_impl.h"
#include "tern/kernels/group_norm.h"

namespace tern {
namespace {

/// x, contiguous or with its channels last, in its own memory.
kernels::View as_it_lies(const Tensor& x) {
  const Shape flat{x.numel()};
  return {x.raw_data(), x.dtype(), flat.dims(), flat.data(), contiguous_strides(flat).data()};
}

kernels::GroupNormShape group_shape(const Tensor& x, int64_t groups) {
  int64_t pixels = 1;
  for (int d = 2; d < x.dim(); ++d) pixels *= x.size(d);
  return {x.size(0), x.size(1), pixels, groups, detail::has_channels_last(x)};
}

struct GroupNorm final : TwiceDifferentiable<GroupNorm> {
  static constexpr const char* kName = "group_norm";
  Saved x_, weight_, mean_, rstd_;
  kernels::GroupNormShape shape_;
  double eps_ = 0;
  DType weight_dtype_ = DType::kFloat32, bias_dtype_ = DType::kFloat32;

  Tensor forward(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t groups, double eps) {
    shape_ = group_shape(x, groups);
    eps_ = eps;
    if (weight.defined()) weight_dtype_ = weight.dtype();
    if (bias.defined()) bias_dtype_ = bias.dtype();
    const TensorOptions statistics{x.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32, x.device()};
    const Tensor y = detail::empty_ordered_like(x, x.options());
    const Tensor mean = empty({x.size(0), groups}, statistics), rstd = empty({x.size(0), groups}, statistics);
    const kernels::Stream stream = current_stream(x.device());
    const Workspace workspace(x.device(), [&] { return kernels::group_norm_workspace(stream, shape_, x.dtype()); });
    kernels::group_norm_forward(stream, shape_, as_it_lies(x), weight.view(), bias.view(), eps, workspace.data(),
                                as_it_lies(y), mean.view(), rstd.view());
    x_ = x;
    weight_ = weight;
    mean_ = mean;
    rstd_ = rstd;
    return y;
  }

  Grads backward(const Tensor& dy) override { return grad_enabled() ? made_of_ops(dy) : by_kernel(dy); }

  /// With g = dy * weight and n the normalised x: dx = rstd * (g - mean(g) - n * mean(g * n)) in each group.
  Grads made_of_ops(const Tensor& dy) {
    const Tensor x = x_.get(), weight = weight_.get_or_none();
    const DType wide = x.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
    const std::vector<int64_t> sizes = {shape_.batch, shape_.groups, shape_.members(), shape_.pixels};
    const auto group_mean = [](const Tensor& t) { return mean(t, {2, 3}, true); };
    const Tensor values = x.to(wide).reshape(sizes), given = dy.to(wide).reshape(sizes);
    const Tensor centred = sub(values, group_mean(values));
    const Tensor scale = rsqrt(add(group_mean(square(centred)), eps_)), normed = mul(centred, scale);
    const Tensor g =
        weight.defined() ? mul(given, weight.to(wide).reshape({1, shape_.groups, shape_.members(), 1})) : given;
    Grads grads(3);
    if (needs_grad(0))
      grads[0] = mul(scale, sub(sub(g, group_mean(g)), mul(normed, group_mean(mul(g, normed)))))
                     .reshape(x.shape())
                     .to(x.dtype());
    const auto channel_sum = [&](const Tensor& t, DType dtype) { return sum(t, {0, 3}).flatten().to(dtype); };
    if (needs_grad(1)) grads[1] = channel_sum(mul(given, normed), weight_dtype_);
    if (needs_grad(2)) grads[2] = channel_sum(given, bias_dtype_);
    return grads;
  }

  Grads by_kernel(const Tensor& dy) {
    const Tensor x = x_.get(), weight = weight_.get_or_none(), mean = mean_.get(), rstd = rstd_.get();
    const Tensor given = shape_.channels_last ? dy.channels_last() : dy.contiguous();
    const kernels::Stream stream = current_stream(x.device());
    Grads grads(3);
    if (needs_grad(0)) grads[0] = detail::empty_ordered_like(x, x.options());
    if (needs_grad(1)) grads[1] = empty({x.size(1)}, {weight_dtype_, x.device()});
    if (needs_grad(2)) grads[2] = empty({x.size(1)}, {bias_dtype_, x.device()});
    const Workspace workspace(x.device(), [&] { return kernels::group_norm_workspace(stream, shape_, x.dtype()); });
    kernels::group_norm_backward(
        stream, shape_, as_it_lies(given), as_it_lies(x), weight.view(), mean.view(), rstd.view(), workspace.data(),
        grads[0].defined() ? as_it_lies(grads[0]) : kernels::View(), grads[1].view(), grads[2].view());
    return grads;
  }
};

void check_images(const char* op, const Tensor& x, int least, double eps) {
  TERN_CHECK(is_floating(x.dtype()) && x.dim() >= least, op, ": x must be floating [batch, channels, ",
             least > 2 ? "spatial...], got " : "...], got ", x.describe());
  TERN_CHECK(eps >= 0 && std::isfinite(eps), op, ": eps must be a finite number >= 0, got ", eps);
}

void check_channel_parameter(const char* op, const char* name, const Tensor& parameter, const Tensor& x) {
  if (!parameter.defined()) return;
  TERN_CHECK(parameter.dim() == 1 && parameter.size(0) == x.size(1), op, ": ", name, " must be [", x.size(1), "], got ",
             parameter.shape());
  TERN_CHECK(parameter.dtype() == x.dtype() || parameter.dtype() == DType::kFloat32, op, ": ", name, " must be ",
             x.dtype(), " or float32, got ", parameter.dtype());
}

Tensor normalised_groups(const char* op, const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias,
                         double eps) {
  check_channel_parameter(op, "weight", weight, x);
  check_channel_parameter(op, "bias", bias, x);
  const auto contiguous = [](const Tensor& t) { return t.defined() ? t.contiguous() : t; };
  return GroupNorm::apply(detail::has_channels_last(x) ? x : x.contiguous(), contiguous(weight), contiguous(bias),
                          groups, eps);
}

/// [channels] as [1, channels, 1, ...], to broadcast to x.
Tensor over_channels(const Tensor& parameter, const Tensor& x) {
  std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
  sizes[1] = x.size(1);
  return parameter.to(x.dtype()).reshape(sizes);
}

Tensor with_running_statistics(const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                               const Tensor& bias, double eps) {
  TERN_CHECK(mean.defined() && var.defined(),
             "instance_norm: without use_input_stats both running_mean and running_var are needed");
  const DType wide = x.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  const Tensor values = x.to(wide);
  Tensor y = mul(sub(values, over_channels(mean, values)), over_channels(rsqrt(add(var.to(wide), eps)), values));
  if (weight.defined()) y = mul(y, over_channels(weight, values));
  if (bias.defined()) y = add(y, over_channels(bias, values));
  return y.to(x.dtype());
}

/// Running statistics are a share of the new mean over the batch and the rest of the old value.
void update_running(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, double momentum) {
  const NoGrad off;
  const Tensor values = x.detach().to(x.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32).flatten(2);
  const auto update = [&](Tensor running, const Tensor& of_images) {
    if (!running.defined() || x.size(0) == 0) return;
    const Tensor now = mean(of_images, {0}).to(running.dtype());
    running.mul_(1 - momentum).add_(now, momentum);
  };
  update(running_mean, mean(values, {2}));
  if (running_var.defined()) update(running_var, var(values, {2}));
}

}  // namespace

Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias, double eps) {
  detail::check_one_device("group_norm", {&x, &weight, &bias});
  check_images("group_norm", x, 2, eps);
  TERN_CHECK(groups >= 1 && x.size(1) % groups == 0, "group_norm: groups (", groups,
             ") must be at least 1 and divide the channels (", x.size(1), ")");
  TERN_CHECK(x.numel() != groups, "group_norm: a group of ", x.shape(),
             " holds a single number, which is its own mean");
  return normalised_groups("group_norm", x, groups, weight, bias, eps);
}

Tensor instance_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                     const Tensor& bias, const InstanceNormOptions& options) {
  detail::check_one_device("instance_norm", {&x, &running_mean, &running_var, &weight, &bias});
  check_images("instance_norm", x, 3, options.eps);
  for (const Tensor* running : {&running_mean, &running_var})
    TERN_CHECK(!running->defined() || (running->shape() == Shape{x.size(1)} && is_floating(running->dtype())),
               "instance_norm: running statistics must be floating [", x.size(1), "], got ", running->describe());
  if (!options.use_input_stats) {
    check_channel_parameter("instance_norm", "weight", weight, x);
    check_channel_parameter("instance_norm", "bias", bias, x);
    return with_running_statistics(x, running_mean, running_var, weight, bias, options.eps);
  }
  TERN_CHECK(x.numel() == 0 || x.numel() > x.size(0) * x.size(1), "instance_norm: the images of ", x.shape(),
             " have one pixel, which is its own mean");
  const Tensor y = normalised_groups("instance_norm", x, std::max<int64_t>(x.size(1), 1), weight, bias, options.eps);
  if (running_mean.defined() || running_var.defined()) update_running(x, running_mean, running_var, options.momentum);
  return y;
}

Tensor local_response_norm(const Tensor& x, int64_t size, const LocalResponseNormOptions& options) {
  check_images("local_response_norm", x, 3, 0);
  TERN_CHECK(size >= 1, "local_response_norm: size must be at least 1, got ", size);
  if (x.numel() == 0) return x;
  // The windows lie along the channels: pooling of [batch, pixels, channels], whose "channels" are the pixels.
  const Tensor squares = pad(square(x).flatten(2), {0, 0, size / 2, (size - 1) / 2}).transpose(1, 2);
  const Tensor means = avg_pool1d(squares, size, {.stride = 1}).transpose(1, 2).reshape(x.shape());
  return div(x, pow(add(mul(means, options.alpha), options.k), options.beta));
}

}  // namespace tern

#include "tern/core/ops/norm/norm.h"

#include <cmath>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/function.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"
#include "tern/core/ops/workspace.h"
#include "tern/kernels/norm.h"

namespace tern {
namespace {

/// Outputs: the norm and, unless it equals x, the normalised tensor: with `gives_sum` for the caller, otherwise only
/// for the second derivative. Without kCentred it is RMS norm: the mean is not subtracted.
template <bool kCentred>
struct Norm final : TwiceDifferentiable<Norm<kCentred>> {
  static constexpr const char* kName = kCentred ? "layer_norm" : "rms_norm";
  using detail::Node::add_output, detail::Node::needs_grad, detail::Node::output_meta, detail::Node::recorded;
  Saved x_, weight_, mean_, rstd_, row_keys_;
  SavedOutput sum_;
  Tensor tickets_;  // for the CUDA backward kernel: zeros between its runs
  kernels::Dropout dropout_;
  double eps_ = 0;
  DType weight_dtype_ = DType::kFloat32, bias_dtype_ = DType::kFloat32;

  std::vector<Tensor> forward(const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,
                              double eps, const kernels::Dropout& dropout, const std::vector<Tensor>& row_keys,
                              bool gives_sum) {
    dropout_ = dropout;
    if (dropout.p > 0) row_keys_ = row_keys[0];
    eps_ = eps;
    if (weight.defined()) weight_dtype_ = weight.dtype();
    if (bias.defined()) bias_dtype_ = bias.dtype();
    const TensorOptions statistics{x.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32, x.device()};
    const int64_t rows = x.view().rows();
    const Tensor y = empty(x.shape(), x.options()), rstd = empty({rows}, statistics);
    const Tensor mean = kCentred ? empty({rows}, statistics) : Tensor();
    // Without residual and dropout the normalised tensor is x.
    const bool separate = residual.defined() || dropout.p > 0;
    const Tensor z = gives_sum || (separate && recorded()) ? empty(x.shape(), x.options()) : Tensor();
    if (recorded() && x.device().is_cuda())
      tickets_ = empty({kernels::kLayerNormTickets}, {.dtype = int32, .device = x.device()});
    kernels::layer_norm_forward(current_stream(x.device()), x.view(), residual.view(), weight.view(), bias.view(), eps,
                                dropout, row_keys[0].view(), z.view(), y.view(), mean.view(), rstd.view(),
                                tickets_.view().data);
    if (gives_sum || separate)
      sum_.save(z, 1);
    else
      x_ = x;
    mean_ = mean;
    rstd_ = rstd;
    weight_ = weight;
    return gives_sum ? std::vector<Tensor>{y, z} : std::vector<Tensor>{y};
  }

  Grads backward_all(const Grads& gradients) override {
    const Tensor z = sum_.defined() ? sum_.get() : x_.get(), weight = weight_.get_or_none();
    const Tensor dy = gradients[0].defined() ? gradients[0].contiguous() : zeros(z.shape(), z.options());
    const Tensor dsum = gradients.size() > 1 && gradients[1].defined() ? gradients[1].contiguous() : Tensor();
    const Tensor row_keys = row_keys_.get_or_none();
    return grad_enabled() ? made_of_ops(z, weight, dy, dsum, row_keys) : by_kernel(z, weight, dy, dsum, row_keys);
  }

  /// With g = dy * weight and n the normalised z: dz = rstd * (g - mean(g) - n * mean(g * n)) + dsum. RMS norm has no
  /// mean(g).
  Grads made_of_ops(const Tensor& z, const Tensor& weight, const Tensor& dy, const Tensor& dsum,
                    const Tensor& row_keys) {
    if (sum_.defined() && output_meta().size() == 1) add_output(z);
    const DType wide = z.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
    const auto row_mean = [](const Tensor& t) { return tern::mean(t, {-1}, true); };
    const Tensor values = z.to(wide), given = dy.to(wide);
    const Tensor centred = kCentred ? sub(values, row_mean(values)) : values;
    const Tensor scale = rsqrt(add(row_mean(square(centred)), eps_)), normed = mul(centred, scale);
    const Tensor g = weight.defined() ? mul(given, weight.to(wide)) : given;
    const Tensor direct = kCentred ? sub(g, row_mean(g)) : g;
    Tensor dz = mul(scale, sub(direct, mul(normed, row_mean(mul(g, normed)))));
    if (dsum.defined()) dz = add(dz, dsum.to(wide));
    dz = dz.to(z.dtype());

    Grads grads(4);
    const auto column_sum = [](const Tensor& t) { return sum(t.reshape({-1, t.size(-1)}), {0}); };
    if (needs_grad(0)) grads[0] = dropout_.p > 0 ? detail::dropout_of(dz.contiguous(), dropout_, row_keys) : dz;
    if (needs_grad(1)) grads[1] = dz;
    if (needs_grad(2)) grads[2] = column_sum(mul(given, normed));
    if (needs_grad(3)) grads[3] = column_sum(given);
    return grads;
  }

  Grads by_kernel(const Tensor& z, const Tensor& weight, const Tensor& dy, const Tensor& dsum, const Tensor& row_keys) {
    const Tensor mean = mean_.get_or_none(), rstd = rstd_.get();
    const kernels::Stream stream = current_stream(dy.device());
    const bool masked = dropout_.p > 0 && needs_grad(0);
    Grads grads(4);
    const Tensor dz = empty(dy.shape(), dy.options());
    const Tensor dx = masked ? empty(dy.shape(), dy.options()) : Tensor();
    if (needs_grad(2)) grads[2] = empty({dy.size(-1)}, {weight_dtype_, dy.device()});
    if (needs_grad(3)) grads[3] = empty({dy.size(-1)}, {bias_dtype_, dy.device()});
    const Workspace workspace(dy.device(), [&] {
      return kernels::layer_norm_backward_workspace(stream, dy.view().rows(), dy.size(-1), dy.dtype());
    });
    kernels::layer_norm_backward(stream, dy.view(), dsum.view(), z.view(), weight.view(), mean.view(), rstd.view(),
                                 dropout_, row_keys.view(), workspace.data(), tickets_.view().data, dz.view(),
                                 dx.view(), grads[2].view(), grads[3].view());
    if (needs_grad(0)) grads[0] = masked ? dx : dz;
    if (needs_grad(1)) grads[1] = dz;
    return grads;
  }
};

void check_affine(const char* op, const char* name, const Tensor& parameter, const Tensor& x) {
  TERN_CHECK(!parameter.defined() || (parameter.dim() == 1 && parameter.size(0) == x.size(-1)), op, ": ", name,
             " must be [", x.size(-1), "], got ", parameter.defined() ? parameter.shape() : Shape());
  TERN_CHECK(!parameter.defined() || parameter.dtype() == x.dtype() || parameter.dtype() == DType::kFloat32, op, ": ",
             name, " must be ", x.dtype(), " or float32, got ", parameter.defined() ? parameter.dtype() : x.dtype());
}

void check_rows(const char* op, const Tensor& x, double eps) {
  TERN_CHECK(is_floating(x.dtype()) && x.dim() >= 1, op, ": expected a floating tensor of at least one dimension, got ",
             x.describe());
  TERN_CHECK(x.size(-1) > 0, op, ": the normalised dimension of ", x.shape(), " is empty");
  TERN_CHECK(eps >= 0 && std::isfinite(eps), op, ": eps must be a finite number >= 0, got ", eps);
}

Tensor contiguous_or_none(const Tensor& t) { return t.defined() ? t.contiguous() : t; }

std::vector<Tensor> normalised(const Tensor& x_in, const Tensor& residual_in, const Tensor& weight, const Tensor& bias,
                               double eps, const DropoutOptions& options, bool gives_sum) {
  Tensor x = x_in, residual = residual_in;
  detail::check_one_device("layer_norm", {&x, &residual, &weight, &bias});
  detail::autocast_inputs("dropout_residual_layer_norm", {&x, &residual});
  check_rows("layer_norm", x, eps);
  check_affine("layer_norm", "weight", weight, x);
  check_affine("layer_norm", "bias", bias, x);
  TERN_CHECK(!residual.defined() || (residual.shape() == x.shape() && residual.dtype() == x.dtype()),
             "layer_norm: residual is ", residual.describe(), ", expected ", x.describe());
  detail::check_row_keys("layer_norm", options.row_keys, x.view().rows(), x.device());
  return Norm<true>::apply(x.contiguous(), contiguous_or_none(residual), contiguous_or_none(weight),
                           contiguous_or_none(bias), eps, detail::draw(options, "layer_norm", x.device()),
                           std::vector<Tensor>{options.row_keys}, gives_sum);
}

}  // namespace

Tensor dropout_residual_layer_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,
                                   double eps, const DropoutOptions& options) {
  return normalised(x, residual, weight, bias, eps, options, false)[0];
}

SumAndNorm dropout_residual_sum_layer_norm(const Tensor& x, const Tensor& residual, const Tensor& weight,
                                           const Tensor& bias, double eps, const DropoutOptions& options) {
  const std::vector<Tensor> outputs = normalised(x, residual, weight, bias, eps, options, true);
  return {outputs[1], outputs[0]};
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  return dropout_residual_layer_norm(x, {}, weight, bias, eps, {});
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, std::optional<double> eps) {
  detail::check_one_device("rms_norm", {&x, &weight});
  const double added = eps.value_or(x.dtype() == DType::kFloat64 ? 0x1p-52 : 0x1p-23);
  check_rows("rms_norm", x, added);
  check_affine("rms_norm", "weight", weight, x);
  return Norm<false>::apply(x.contiguous(), Tensor(), contiguous_or_none(weight), Tensor(), added, kernels::Dropout{},
                            std::vector<Tensor>{Tensor()}, false)[0];
}

}  // namespace tern

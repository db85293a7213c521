#include "tern/core/ops/residual_norm.h"

#include "tern/core/ops/linear_inputs.h"
#include "tern/core/ops/workspace.h"

namespace tern {
namespace {

using detail::bias_for, detail::contiguous_or_none;

/// The results' memory, and the kernels' view of them and of what they read.
struct End {
  Tensor sum, norm;
  kernels::ResidualNorm view;

  End(const Tensor& residual, const Tensor& weight, const Tensor& bias, double eps, bool gives_sum)
      : norm(empty(residual.shape(), residual.options())),
        view{.residual = residual.view(),
             .gamma = weight.view(),
             .beta = bias.view(),
             .eps = eps,
             .sum = {},
             .norm = {}} {
    if (gives_sum) sum = empty(residual.shape(), residual.options());
    view.sum = sum.view();
    view.norm = norm.view();
  }
  std::vector<Tensor> results() const { return sum.defined() ? std::vector{norm, sum} : std::vector{norm}; }
};

// Where nothing is recorded: backward would need what is not stored. x: [rows, in], the residual of any shape with as
// many rows; all contiguous.

struct LinearResidualNorm final : Function<LinearResidualNorm> {
  static constexpr const char* kName = "linear_residual_norm";

  std::vector<Tensor> forward(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& residual,
                              const Tensor& gamma, const Tensor& beta, double eps, bool gives_sum) {
    const Tensor used = detail::autocast_copy(weight, x.dtype());
    const End end(residual, gamma, beta, eps, gives_sum);
    const kernels::Stream stream = current_stream(x.device());
    const Workspace workspace(x.device(),
                              [&] { return kernels::linear_norm_workspace(stream, x.view(), used.view()); });
    kernels::linear_norm(stream, x.view(), used.view(), bias_for(x, weight, bias).view(), end.view, workspace.data());
    detail::count_product(x.size(0), weight.size(0), x.size(1), x.dtype());
    return end.results();
  }
};

struct FeedForwardResidualNorm final : Function<FeedForwardResidualNorm> {
  static constexpr const char* kName = "feed_forward_residual_norm";

  std::vector<Tensor> forward(const Tensor& x, const Tensor& weight1, const Tensor& bias1, Activation activation,
                              const Tensor& weight2, const Tensor& bias2, const Tensor& residual, const Tensor& gamma,
                              const Tensor& beta, double eps, bool gives_sum) {
    const Tensor first = detail::autocast_copy(weight1, x.dtype()), second = detail::autocast_copy(weight2, x.dtype());
    const End end(residual, gamma, beta, eps, gives_sum);
    const kernels::Stream stream = current_stream(x.device());
    const Workspace workspace(x.device(), [&] {
      return kernels::feed_forward_norm_workspace(stream, x.view(), first.view(), second.view());
    });
    kernels::feed_forward_norm(stream, x.view(), first.view(), bias_for(x, weight1, bias1).view(), activation,
                               second.view(), bias_for(x, weight2, bias2).view(), end.view, workspace.data());
    for (const Tensor& weight : {weight1, weight2})
      detail::count_product(x.size(0), weight.size(0), weight.size(1), x.dtype());
    return end.results();
  }
};

/// Whether `end` fits a result of this shape and dtype on this device as it stands; if not, the ops one by one convert
/// what can be converted and say what is wrong with the rest.
bool fits(const ResidualNorm& end, const Shape& shape, const Tensor& x) {
  const auto fits_norm = [&](const Tensor& t) {
    return !t.defined() || (t.shape() == Shape{shape.size(-1)} && t.device() == x.device() &&
                            (t.dtype() == x.dtype() || t.dtype() == float32));
  };
  return end.dropout.p == 0 && !end.dropout.row_keys.defined() && end.eps >= 0 && shape.size(-1) > 0 &&
         end.residual.defined() && end.residual.shape() == shape && end.residual.dtype() == x.dtype() &&
         end.residual.device() == x.device() && fits_norm(end.weight) && fits_norm(end.bias);
}

SumAndNorm norm_after(const Tensor& y, const ResidualNorm& end) {
  if (end.gives_sum)
    return dropout_residual_sum_layer_norm(y, end.residual, end.weight, end.bias, end.eps, end.dropout);
  return {{}, dropout_residual_layer_norm(y, end.residual, end.weight, end.bias, end.eps, end.dropout)};
}

SumAndNorm from(const std::vector<Tensor>& results) { return {results.size() > 1 ? results[1] : Tensor(), results[0]}; }

}  // namespace

SumAndNorm linear_residual_norm(const Tensor& input, const Tensor& weight_in, const Tensor& bias_in,
                                const ResidualNorm& end) {
  const Tensor* const inputs[] = {&input, &weight_in, &bias_in, &end.residual, &end.weight, &end.bias};
  if (!detail::wants_record(inputs, 6)) {
    Tensor x = input, weight = weight_in, bias = bias_in;
    detail::autocast_linear(x, weight, bias);
    detail::check_linear(x, weight, bias);
    x = detail::as_rows(x);
    if (fits(end, detail::linear_shape(input, weight), x) &&
        kernels::linear_norm_pays(current_stream(x.device()), x.view(), weight.view())) {
      return from(LinearResidualNorm::apply(x, weight.contiguous(), contiguous_or_none(bias), end.residual.contiguous(),
                                            contiguous_or_none(end.weight), contiguous_or_none(end.bias), end.eps,
                                            end.gives_sum));
    }
  }
  return norm_after(linear(input, weight_in, bias_in), end);
}

SumAndNorm feed_forward_residual_norm(const Tensor& input, const Tensor& weight1_in, const Tensor& bias1_in,
                                      Activation activation, const Tensor& weight2_in, const Tensor& bias2_in,
                                      const ResidualNorm& end) {
  const Tensor* const inputs[] = {&input,    &weight1_in,   &bias1_in,   &weight2_in,
                                  &bias2_in, &end.residual, &end.weight, &end.bias};
  if (!detail::wants_record(inputs, 8)) {
    Tensor x = input, weight1 = weight1_in, bias1 = bias1_in, weight2 = weight2_in, bias2 = bias2_in;
    detail::check_feed_forward(x, weight1, bias1, weight2, bias2);
    x = detail::as_rows(x);
    if (fits(end, detail::linear_shape(input, weight2), x) &&
        kernels::feed_forward_norm_pays(current_stream(x.device()), x.view(), weight1.view(), weight2.view())) {
      return from(FeedForwardResidualNorm::apply(x, weight1.contiguous(), contiguous_or_none(bias1), activation,
                                                 weight2.contiguous(), contiguous_or_none(bias2),
                                                 end.residual.contiguous(), contiguous_or_none(end.weight),
                                                 contiguous_or_none(end.bias), end.eps, end.gives_sum));
    }
  }
  return norm_after(feed_forward(input, weight1_in, bias1_in, activation, weight2_in, bias2_in), end);
}

}  // namespace tern

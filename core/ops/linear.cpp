#include "tern/core/ops/linear.h"

#include "tern/core/autocast.h"
#include "tern/core/autograd/function.h"
#include "tern/core/autograd/recomputation.h"
#include "tern/core/ops/linear_inputs.h"
#include "tern/core/ops/workspace.h"
#include "tern/core/profiler.h"
#include "tern/kernels/reduce.h"

namespace tern {

using detail::as_rows, detail::autocast_linear, detail::bias_for, detail::check_feed_forward, detail::check_linear,
    detail::contiguous_or_none, detail::count_product, detail::linear_shape;

namespace {

/// dpre weight, added to `sum` if that is defined.
Tensor input_gradient(const Tensor& dpre, const Tensor& weight, const Tensor& sum = {}) {
  const Tensor dx = sum.defined() ? sum : empty({dpre.size(0), weight.size(1)}, dpre.options());
  count_product(dx.size(0), dx.size(1), dpre.size(1), dpre.dtype());
  const kernels::Stream stream = current_stream(dpre.device());
  const Workspace workspace(kernels::gemm_workspace(stream, false, false, dpre.view(), weight.view(), dx.view()),
                            dpre.device());
  kernels::gemm(stream, false, false, 1, dpre.view(), weight.view(), sum.defined() ? 1 : 0, dx.view(),
                workspace.data());
  return dx;
}

/// dweight = dpre^T x and, when dbias is defined, the column sums of dpre.
void weight_gradients(const Tensor& dpre, const Tensor& x, const Tensor& dweight, const Tensor& dbias) {
  count_product(dweight.size(0), dweight.size(1), dpre.size(0), dpre.dtype());
  const kernels::Stream stream = current_stream(dpre.device());
  const Workspace workspace(kernels::linear_weight_backward_workspace(stream, dpre.view(), x.view(), dweight.view()),
                            dpre.device());
  kernels::linear_weight_backward(stream, dpre.view(), x.view(), dweight.view(), dbias.view(), workspace.data());
}

/// activation(x weight^T + bias); pre: where the pre-activation goes, or undefined.
Tensor linear_product(const Tensor& x, const Tensor& weight, const Tensor& bias, Activation activation,
                      const Tensor& pre) {
  const Tensor y = empty({x.size(0), weight.size(0)}, x.options());
  const kernels::Stream stream = current_stream(x.device());
  const Workspace workspace(kernels::linear_workspace(stream, x.view(), weight.view(), y.view()), x.device());
  kernels::linear_forward(stream, x.view(), weight.view(), bias.view(), activation, pre.view(), y.view(),
                          workspace.data());
  count_product(x.size(0), weight.size(0), x.size(1), x.dtype());
  return y;
}

struct Linear final : Function<Linear> {
  static constexpr const char* kName = "linear";
  Saved x_, weight_, pre_;
  Activation activation_ = Activation::kNone;
  DType weight_dtype_ = DType::kFloat32, bias_dtype_ = DType::kFloat32;
  bool on_gpu_ = false;

  /// On the CPU a product that adds costs more than a sum.
  bool adds_to_gradient() const override { return on_gpu_; }

  /// x: [rows, in], contiguous like weight.
  Tensor forward(const Tensor& x, const Tensor& weight, const Tensor& bias, Activation activation) {
    activation_ = activation;
    on_gpu_ = x.device().is_cuda();
    weight_dtype_ = weight.dtype();
    if (bias.defined()) bias_dtype_ = bias.dtype();
    const Tensor used = autocast_copy(weight, x.dtype());
    if (needs_grad(1)) x_ = x;
    if (needs_grad(0)) weight_ = used;
    Tensor pre;
    if (activation != Activation::kNone && recorded()) {
      pre = empty({x.size(0), weight.size(0)}, x.options());
      pre_ = pre;
    } else {
      detail::Recomputation::end_if_complete();
    }
    return linear_product(x, used, bias_for(x, weight, bias), activation, pre);
  }

  Grads backward(const Tensor& gradient) override {
    const Tensor dy = gradient.contiguous();
    const kernels::Stream stream = current_stream(dy.device());
    Grads grads(3);
    if (needs_grad(2)) grads[2] = empty({dy.size(1)}, {bias_dtype_, dy.device()});
    const bool active = activation_ != Activation::kNone;
    const Tensor dpre = active ? empty_like(dy) : dy;
    // The bias gradient comes with the weight's product; on the CPU an activation's pass over dy is the better place.
    const bool with_weight = needs_grad(1) && (!active || dy.device().is_cuda());
    if (active || (needs_grad(2) && !with_weight)) {
      const Workspace workspace(kernels::linear_activation_backward_workspace(stream, dy.view()), dy.device());
      kernels::linear_activation_backward(stream, dy.view(), active ? pre_.get().view() : kernels::View(), activation_,
                                          active ? dpre.view() : kernels::View(),
                                          with_weight ? kernels::View() : grads[2].view(), workspace.data());
    }
    if (needs_grad(0)) grads[0] = input_gradient(dpre, weight_.get(), take_sum());
    if (needs_grad(1)) {
      const Tensor x = x_.get();
      grads[1] = empty({dpre.size(1), x.size(1)}, {weight_dtype_, dy.device()});
      weight_gradients(dpre, x, grads[1], with_weight ? grads[2] : Tensor());
    }
    return grads;
  }
};

/// Two products with the rows of one weight; each writes its rows of the gradients.
struct LinearPair final : Function<LinearPair> {
  static constexpr const char* kName = "linear_pair";
  Saved first_, second_, weight_;
  int64_t cut_ = 0, rows_ = 0, in_ = 0;
  DType weight_dtype_ = DType::kFloat32, bias_dtype_ = DType::kFloat32;
  Device device_;

  std::vector<Tensor> forward(const Tensor& first, const Tensor& second, const Tensor& weight, const Tensor& bias,
                              int64_t cut) {
    cut_ = cut;
    rows_ = weight.size(0);
    in_ = weight.size(1);
    device_ = weight.device();
    weight_dtype_ = weight.dtype();
    if (bias.defined()) bias_dtype_ = bias.dtype();
    const Tensor used = autocast_copy(weight, first.dtype()), added = bias_for(first, weight, bias);
    if (needs_grad(2)) {
      first_ = first;
      second_ = second;
    }
    if (needs_grad(0) || needs_grad(1)) weight_ = used;
    const auto product = [&](const Tensor& x, int64_t begin, int64_t end) {
      return linear_product(x, used.slice(0, begin, end), added.defined() ? added.slice(0, begin, end) : added,
                            Activation::kNone, {});
    };
    return {product(first, 0, cut), product(second, cut, rows_)};
  }

  Grads backward_all(const Grads& gradients) override {
    Grads grads(4);
    if (needs_grad(2)) grads[2] = empty({rows_, in_}, {weight_dtype_, device_});
    if (needs_grad(3)) grads[3] = empty({rows_}, {bias_dtype_, device_});
    for (int i = 0; i < 2; ++i) {
      const int64_t begin = i == 0 ? 0 : cut_, end = i == 0 ? cut_ : rows_;
      const auto part = [&](const Tensor& x) { return x.defined() ? x.slice(0, begin, end) : x; };
      Tensor dweight = part(grads[2]), dbias = part(grads[3]);
      if (!gradients[static_cast<size_t>(i)].defined()) {
        if (dweight.defined()) dweight.zero_();
        if (dbias.defined()) dbias.zero_();
        continue;
      }
      const Tensor dy = gradients[static_cast<size_t>(i)].contiguous();
      if (needs_grad(i)) grads[static_cast<size_t>(i)] = input_gradient(dy, part(weight_.get()));
      if (dweight.defined()) {
        weight_gradients(dy, (i == 0 ? first_ : second_).get(), dweight, dbias);
      } else if (dbias.defined()) {
        const kernels::Stream stream = current_stream(device_);
        const Workspace workspace(kernels::linear_activation_backward_workspace(stream, dy.view()), device_);
        kernels::linear_activation_backward(stream, dy.view(), {}, Activation::kNone, {}, dbias.view(),
                                            workspace.data());
      }
    }
    return grads;
  }
};

/// Where nothing is recorded: backward would need the hidden rows.
struct FeedForward final : Function<FeedForward> {
  static constexpr const char* kName = "feed_forward";

  /// x: [rows, in], contiguous like the weights.
  Tensor forward(const Tensor& x, const Tensor& weight1, const Tensor& bias1, Activation activation,
                 const Tensor& weight2, const Tensor& bias2) {
    const Tensor first = autocast_copy(weight1, x.dtype()), second = autocast_copy(weight2, x.dtype());
    const Tensor y = empty({x.size(0), weight2.size(0)}, x.options());
    const kernels::Stream stream = current_stream(x.device());
    const Workspace workspace(kernels::feed_forward_workspace(stream, x.view(), first.view(), second.view(), y.view()),
                              x.device());
    kernels::feed_forward(stream, x.view(), first.view(), bias_for(x, weight1, bias1).view(), activation, second.view(),
                          bias_for(x, weight2, bias2).view(), y.view(), workspace.data());
    for (const Tensor& weight : {weight1, weight2}) count_product(x.size(0), weight.size(0), weight.size(1), x.dtype());
    return y;
  }
};

}  // namespace

Tensor linear(const Tensor& input, const Tensor& weight_in, const Tensor& bias_in, Activation activation) {
  Tensor x = input, weight = weight_in, bias = bias_in;
  autocast_linear(x, weight, bias);
  check_linear(x, weight, bias);
  return Linear::apply(as_rows(x), weight.contiguous(), contiguous_or_none(bias), activation)
      .reshape(linear_shape(x, weight));
}

Tensor feed_forward(const Tensor& input, const Tensor& weight1_in, const Tensor& bias1_in, Activation activation,
                    const Tensor& weight2_in, const Tensor& bias2_in) {
  const Tensor* const inputs[] = {&input, &weight1_in, &bias1_in, &weight2_in, &bias2_in};
  if (detail::wants_record(inputs, 5))
    return linear(linear(input, weight1_in, bias1_in, activation), weight2_in, bias2_in);
  Tensor x = input, weight1 = weight1_in, bias1 = bias1_in, weight2 = weight2_in, bias2 = bias2_in;
  check_feed_forward(x, weight1, bias1, weight2, bias2);
  return FeedForward::apply(as_rows(x), weight1.contiguous(), contiguous_or_none(bias1), activation,
                            weight2.contiguous(), contiguous_or_none(bias2))
      .reshape(linear_shape(x, weight2));
}

std::pair<Tensor, Tensor> linear_pair(const Tensor& first, const Tensor& second, const Tensor& weight_in,
                                      const Tensor& bias_in, int64_t cut) {
  Tensor x = first, y = second, weight = weight_in, bias = bias_in;
  autocast_linear(x, weight, bias);
  autocast_inputs("linear", {&y});
  check_linear(x, weight, bias);
  check_linear(y, weight, bias);
  TERN_CHECK(x.dim() == 2 && y.dim() == 2 && x.dtype() == y.dtype(), "linear_pair: the inputs must be [rows, ",
             weight.size(1), "] and of one dtype, got ", x.describe(), " and ", y.describe());
  TERN_CHECK(cut >= 0 && cut <= weight.size(0), "linear_pair: cut must be in [0, ", weight.size(0), "], got ", cut);
  const std::vector<Tensor> results =
      LinearPair::apply(x.contiguous(), y.contiguous(), weight.contiguous(), contiguous_or_none(bias), cut);
  return {results[0], results[1]};
}

}  // namespace tern

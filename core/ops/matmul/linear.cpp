#include "tern/core/ops/matmul/linear.h"

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/function.h"
#include "tern/core/autograd/recomputation.h"
#include "tern/core/ops/indexing/join.h"
#include "tern/core/ops/matmul/linear_inputs.h"
#include "tern/core/ops/matmul/linear_passes.h"
#include "tern/core/ops/matmul/matmul.h"
#include "tern/core/ops/pointwise/function.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"
#include "tern/core/ops/workspace.h"
#include "tern/core/profiler/profiler.h"

namespace tern {

using detail::as_rows, detail::autocast_linear, detail::bias_for, detail::check_linear, detail::contiguous_or_none,
    detail::count_product, detail::linear_activation_gradients, detail::linear_input_gradient, detail::linear_product,
    detail::linear_shape, detail::linear_weight_gradients;

namespace {

// The same gradients made of ops, for a second derivative. A weight of another type than dpre is autocast's: its own
// type is then that of the products.

Tensor recorded_input_gradient(const Tensor& dpre, const Tensor& weight) {
  return matmul(dpre.to(weight.dtype()), weight);
}
Tensor recorded_weight_gradient(const Tensor& dpre, const Tensor& x, DType dtype) {
  return matmul(dpre.to(dtype).t(), x.to(dtype));
}
Tensor recorded_bias_gradient(const Tensor& dpre, DType dtype) { return sum(dpre.to(dtype), {0}); }

/// dy * activation'(pre). relu's derivative reads only the sign of relu's result, which pre has too.
Tensor recorded_activation_gradient(const Tensor& dy, const Tensor& pre, Activation activation) {
  const Tensor saved[] = {pre};
  if (activation == Activation::kRelu)
    return detail::pointwise_derivative(detail::describe_pointwise(kernels::Relu{}), 0, dy, saved);
  return detail::pointwise_derivative(detail::describe_pointwise(kernels::Gelu{}), 0, dy, saved);
}

/// Output 0 is the result. What goes into the activation is output 1, which only the second derivative uses.
struct Linear final : TwiceDifferentiable<Linear> {
  static constexpr const char* kName = "linear";
  Saved x_, weight_, uncast_weight_;
  SavedOutput pre_;
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
    const Tensor used = detail::autocast_copy(weight, x.dtype());
    if (needs_grad(1)) x_ = x;
    if (needs_grad(0)) weight_ = used;
    if (needs_grad(0) && !same(used, weight)) uncast_weight_ = weight;
    Tensor pre;
    if (activation != Activation::kNone && recorded()) {
      pre = empty({x.size(0), weight.size(0)}, x.options());
      pre_.save(pre, 1);
    } else {
      detail::Recomputation::end_if_complete();
    }
    return linear_product(x, used, bias_for(x, weight, bias), activation, pre);
  }

  Grads backward_all(const Grads& gradients) override {
    const bool from_pre = gradients.size() > 1 && gradients[1].defined();
    return grad_enabled() || from_pre ? made_of_ops(gradients) : by_kernels(gradients[0].contiguous());
  }

  Grads made_of_ops(const Grads& gradients) {
    const bool active = activation_ != Activation::kNone;
    Tensor dpre = gradients[0];
    if (active && dpre.defined()) {
      const Tensor pre = pre_.get();
      if (output_meta().size() == 1) add_output(pre);
      dpre = recorded_activation_gradient(dpre, pre, activation_);
    }
    if (gradients.size() > 1 && gradients[1].defined()) dpre = dpre.defined() ? add(dpre, gradients[1]) : gradients[1];
    Grads grads(3);
    if (needs_grad(0)) {
      grads[0] = recorded_input_gradient(dpre, uncast_weight_.defined() ? uncast_weight_.get() : weight_.get());
      if (const Tensor others = take_sum(); others.defined()) grads[0] = add(others, grads[0].to(others.dtype()));
    }
    if (needs_grad(1)) grads[1] = recorded_weight_gradient(dpre, x_.get(), weight_dtype_);
    if (needs_grad(2)) grads[2] = recorded_bias_gradient(dpre, bias_dtype_);
    return grads;
  }

  Grads by_kernels(const Tensor& dy) {
    Grads grads(3);
    if (needs_grad(2)) grads[2] = empty({dy.size(1)}, {bias_dtype_, dy.device()});
    const bool active = activation_ != Activation::kNone;
    const Tensor dpre = active ? empty_like(dy) : dy;
    // The bias gradient comes with the weight's product; on the CPU an activation's pass over dy is the better place.
    const bool with_weight = needs_grad(1) && (!active || dy.device().is_cuda());
    if (active || (needs_grad(2) && !with_weight))
      linear_activation_gradients(dy, active ? pre_.get() : Tensor(), activation_, active ? dpre : Tensor(),
                                  with_weight ? Tensor() : grads[2]);
    if (needs_grad(0)) grads[0] = linear_input_gradient(dpre, weight_.get(), take_sum());
    if (needs_grad(1)) {
      const Tensor x = x_.get();
      grads[1] = empty({dpre.size(1), x.size(1)}, {weight_dtype_, dy.device()});
      linear_weight_gradients(dpre, x, grads[1], with_weight ? grads[2] : Tensor());
    }
    return grads;
  }
};

/// Two products with the rows of one weight; each writes its rows of the gradients.
struct LinearPair final : TwiceDifferentiable<LinearPair> {
  static constexpr const char* kName = "linear_pair";
  Saved first_, second_, weight_, uncast_weight_;
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
    const Tensor used = detail::autocast_copy(weight, first.dtype()), added = bias_for(first, weight, bias);
    if (needs_grad(2)) {
      first_ = first;
      second_ = second;
    }
    if (needs_grad(0) || needs_grad(1)) weight_ = used;
    if ((needs_grad(0) || needs_grad(1)) && !same(used, weight)) uncast_weight_ = weight;
    const auto product = [&](const Tensor& x, int64_t begin, int64_t end) {
      return linear_product(x, used.slice(0, begin, end), added.defined() ? added.slice(0, begin, end) : added,
                            Activation::kNone, {});
    };
    return {product(first, 0, cut), product(second, cut, rows_)};
  }

  Grads backward_all(const Grads& gradients) override {
    return grad_enabled() ? made_of_ops(gradients) : by_kernels(gradients);
  }

  Grads made_of_ops(const Grads& gradients) {
    Grads grads(4);
    std::vector<Tensor> dweight, dbias;
    for (size_t i = 0; i < 2; ++i) {
      const int64_t begin = i == 0 ? 0 : cut_, end = i == 0 ? cut_ : rows_;
      const Tensor& dy = gradients[i];
      if (needs_grad(static_cast<int>(i)) && dy.defined()) {
        const Tensor weight = uncast_weight_.defined() ? uncast_weight_.get() : weight_.get();
        grads[i] = recorded_input_gradient(dy, weight.slice(0, begin, end));
      }
      if (needs_grad(2)) {
        dweight.push_back(dy.defined() ? recorded_weight_gradient(dy, (i == 0 ? first_ : second_).get(), weight_dtype_)
                                       : zeros({end - begin, in_}, {weight_dtype_, device_}));
      }
      if (needs_grad(3)) {
        dbias.push_back(dy.defined() ? recorded_bias_gradient(dy, bias_dtype_)
                                     : zeros({end - begin}, {bias_dtype_, device_}));
      }
    }
    if (needs_grad(2)) grads[2] = cat(dweight);
    if (needs_grad(3)) grads[3] = cat(dbias);
    return grads;
  }

  Grads by_kernels(const Grads& gradients) {
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
      if (needs_grad(i)) grads[static_cast<size_t>(i)] = linear_input_gradient(dy, part(weight_.get()));
      if (dweight.defined())
        linear_weight_gradients(dy, (i == 0 ? first_ : second_).get(), dweight, dbias);
      else if (dbias.defined())
        linear_activation_gradients(dy, {}, Activation::kNone, {}, dbias);
    }
    return grads;
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

std::pair<Tensor, Tensor> linear_pair(const Tensor& first, const Tensor& second, const Tensor& weight_in,
                                      const Tensor& bias_in, int64_t cut) {
  Tensor x = first, y = second, weight = weight_in, bias = bias_in;
  autocast_linear(x, weight, bias);
  detail::autocast_inputs("linear", {&y});
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

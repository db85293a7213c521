// Gradients of gradients where an op's first gradient is a kernel's: against formulas written out, finite differences
// in fp64, and the first gradient that the kernel gives. (Every op by itself: ops_gradcheck_test.cpp.)

#include <algorithm>
#include <numbers>

#include "tern/core/autograd/autocast.h"
#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

class SecondDerivative : public DerivativeTest {
 protected:
  Tensor halves(const Shape& shape) {
    return (randn(shape, generator_, {.dtype = float64}) * 0.5).set_requires_grad(true);
  }
  Tensor single(const Shape& shape) { return randn(shape, generator_, {.requires_grad = true}); }
};

// How far two ways to one gradient may lie apart, of its norm: what some twenty roundings in a row make in the type of
// computation; where the result is 16-bit, a unit of it, since the two may be rounded to neighbours.
constexpr double kSingle = 20 * 0x1p-24, kDouble = 20 * 0x1p-53, kBfloat16 = 0x1p-7;
// The bounds of attention, where a score of ten makes ten times the rounding of its probability, and gradients are
// differences.
constexpr double kSingleAttention = 200 * 0x1p-24, kDoubleAttention = 500 * 0x1p-53;

/// The gradients of fn's projected result by the kernels, and by the ops that a second derivative goes through.
void expect_same_gradients(const TensorOp& fn, const Tensors& inputs, double tolerance) {
  const Tensor y = fn(inputs);
  Generator g = fresh_generator(7);
  const Tensor dy = randn(y.shape(), g, {.dtype = y.dtype()});
  const GradOptions by_kernel{.gradients = {dy}, .retain_graph = true, .allow_unused = true};
  const GradOptions by_ops{.gradients = {dy}, .create_graph = true, .allow_unused = true};
  Tensors wanted;
  for (const Tensor& x : inputs)
    if (x.defined() && x.requires_grad()) wanted.push_back(x);
  const Tensors want = grad({y}, wanted, by_kernel), got = grad({y}, wanted, by_ops);
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(want[i].defined(), got[i].defined()) << i;
    if (want[i].defined()) {
      EXPECT_EQ(got[i].dtype(), want[i].dtype());
      // Some are 0 but for rounding: of scores where a query sees one key.
      const double size = std::max(1.0, norm(want[i].to(float64)).item<double>());
      EXPECT_LE(norm(got[i].to(float64) - want[i].to(float64)).item<double>() / size, tolerance) << i;
    }
  }
}

TEST_F(SecondDerivative, FirstGradientsOfOpsAreThoseOfKernels) {
  for (const auto& [dtype, tolerance] : {std::pair(float32, kSingle), {float64, kDouble}}) {
    const auto draw = [&, dtype = dtype](const Shape& shape) {
      return randn(shape, generator_, {.dtype = dtype}).set_requires_grad(true);
    };
    for (const Activation activation : {Activation::kNone, Activation::kGelu, Activation::kRelu}) {
      const TensorOp layer = [&](const Tensors& in) { return linear(in[0], in[1], in[2], activation); };
      expect_same_gradients(layer, {draw({2, 5, 7}), draw({4, 7}), draw({4})}, tolerance);
      expect_same_gradients(layer, {draw({1, 7}), draw({4, 7}), Tensor()}, tolerance);
    }
    for (const double p : {0.0, 0.3, 1.0})
      for (const bool with_residual : {false, true})
        for (const bool with_sum : {false, true}) {
          // An eps of the size of the variance: a mistake in it shows, and it bounds how much rounding is enlarged.
          const TensorOp norm = [&](const Tensors& in) {
            const DropoutOptions drop{.p = p, .generator = same_draws()};
            const Tensor residual = with_residual ? in[1] : Tensor();
            if (!with_sum) return dropout_residual_layer_norm(in[0], residual, in[2], in[3], 0.1, drop);
            const SumAndNorm both = dropout_residual_sum_layer_norm(in[0], residual, in[2], in[3], 0.1, drop);
            return cat({both.sum, both.norm * 2});
          };
          // With p = 1 and no residual nothing is left of x.
          if (p == 1 && !with_residual) continue;
          expect_same_gradients(norm, {draw({3, 9}), draw({3, 9}), draw({9}), draw({9})}, tolerance);
        }
    const Tensor targets = from_vector<int64_t>({1, 0, -100, 4, 2}, {5});
    for (const double smoothing : {0.0, 0.2, 1.0}) {
      const TensorOp loss = [&](const Tensors& in) {
        return cross_entropy(in[0], targets, {.label_smoothing = smoothing, .row_weights = tensor({1, 2, 3, 0, 0.5})});
      };
      expect_same_gradients(loss, {draw({5, 6})}, tolerance);
    }
  }
}

/// bf16 against fp32, by the median over several draws: where a gradient happens to be a difference of large numbers,
/// its relative error says little.
TEST_F(SecondDerivative, SixteenBitsAndMixedPrecision) {
  const Tensor targets = from_vector<int64_t>({1, 0, 5, 4, 2}, {5});
  std::vector<std::vector<double>> errors(5);
  // Logits of moderate size: a loss near 0 has gradients that are differences of nearly equal numbers.
  const auto half = [&](const Shape& shape) { return (randn(shape, generator_) * 0.5).set_requires_grad(true); };
  for (int draw = 0; draw < 16; ++draw) {
    const Tensor w = half({6, 8}), b = half({6}), gamma = half({6}), beta = half({6}), x = single({5, 8});
    const auto penalty = [&](DType dtype) {
      const Autocast region(cpu, dtype);
      // The eps bounds by how much the norm enlarges rounding.
      const Tensor hidden = layer_norm(linear(x, w, b, Activation::kGelu), gamma, beta, 0.1);
      const Tensor loss = cross_entropy(linear(hidden, w.t().slice(0, 0, 7).contiguous()), targets);
      const Tensor first = grad({loss}, {x}, {.create_graph = true})[0];
      return grad({sum(square(first.to(float32)))}, {w, b, gamma, beta, x});
    };
    const Tensors want = penalty(float32), got = penalty(bfloat16);
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(got[i].dtype(), float32);
      const double error = relative_error(got[i].to_vector<double>(), want[i].to_vector<double>());
      ASSERT_TRUE(std::isfinite(error)) << i;
      errors[i].push_back(error);
    }
  }
  // Some twenty roundings to bf16 in a row, of 2^-8 at most and half of that on average, make 0.01; in one draw of
  // thirty they make 0.04, so in half of them in less than one run of 10^7. A term that is lost makes about 1.
  for (size_t i = 0; i < errors.size(); ++i) {
    std::sort(errors[i].begin(), errors[i].end());
    EXPECT_LE(errors[i][errors[i].size() / 2], 0.04) << i;
  }
  const Tensor x = single({5, 8});
  const TensorOp stored = [&](const Tensors& in) { return layer_norm(in[0], in[1], {}); };
  const Tensor x16 = x.detach().to(bfloat16).set_requires_grad(true);
  expect_same_gradients(stored, {x16, single({8})}, kBfloat16);
  const TensorOp attend = [&](const Tensors& in) { return self_attention(in[0], packed_layout({3, 2})); };
  expect_same_gradients(attend, {randn({5, 3, 2, 8}, generator_).to(bfloat16).set_requires_grad(true)}, kBfloat16);
}

/// |d f / d x|^2 of f(x) = sum_h v_h gelu(W x + b)_h, and its gradients, as loops.
struct PenaltyOfMlp {
  double value = 0;
  std::vector<double> dw, db, dv, dx;

  PenaltyOfMlp(const std::vector<double>& w, const std::vector<double>& b, const std::vector<double>& v,
               const std::vector<double>& x)
      : dw(w.size()), db(b.size()), dv(v.size()), dx(x.size()) {
    const size_t hidden = b.size(), in = x.size();
    std::vector<double> slope(hidden), bend(hidden), g(in), along(hidden);
    for (size_t h = 0; h < hidden; ++h) {
      double p = b[h];
      for (size_t i = 0; i < in; ++i) p += w[h * in + i] * x[i];
      const double density = std::exp(-p * p / 2) / std::sqrt(2 * std::numbers::pi);
      slope[h] = std::erfc(-p / std::numbers::sqrt2) / 2 + p * density;
      bend[h] = density * (2 - p * p);
    }
    for (size_t i = 0; i < in; ++i) {
      for (size_t h = 0; h < hidden; ++h) g[i] += w[h * in + i] * v[h] * slope[h];
      value += g[i] * g[i];
    }
    for (size_t h = 0; h < hidden; ++h) {
      for (size_t i = 0; i < in; ++i) along[h] += 2 * g[i] * w[h * in + i];
      dv[h] = along[h] * slope[h];
      db[h] = along[h] * v[h] * bend[h];
      for (size_t i = 0; i < in; ++i) {
        dw[h * in + i] = 2 * g[i] * v[h] * slope[h] + db[h] * x[i];
        dx[i] += db[h] * w[h * in + i];
      }
    }
  }
};

TEST_F(SecondDerivative, GradientPenaltyOfAnMlpIsTheFormula) {
  const Tensor w = normal({5, 3}), b = normal({5}), v = normal({1, 5}), x = normal({1, 3});
  const PenaltyOfMlp want(w.to_vector<double>(), b.to_vector<double>(), v.to_vector<double>(), x.to_vector<double>());
  const Tensor y = linear(linear(x, w, b, Activation::kGelu), v);
  const Tensor penalty = sum(square(grad({sum(y)}, {x}, {.create_graph = true})[0]));
  EXPECT_NEAR(penalty.item<double>(), want.value, 1e-12 * (1 + want.value));
  penalty.backward();
  expect_near(w.grad(), want.dw, 1e-11 * (1 + want.value));
  expect_near(b.grad(), want.db, 1e-11 * (1 + want.value));
  expect_near(v.grad(), want.dv, 1e-11 * (1 + want.value));
  expect_near(x.grad(), want.dx, 1e-11 * (1 + want.value));
}

TEST_F(SecondDerivative, LossAndPenaltyInOneBackward) {
  // The first layer's node gets the gradient of its result and that of its pre-activation at once.
  const auto total = [](const Tensors& in) {
    const Tensor y = linear(linear(in[0], in[1], in[2], Activation::kGelu), in[3]);
    const Tensor first = grad({sum(square(y))}, {in[0]}, {.create_graph = true})[0];
    return mean(y) + sum(square(first));
  };
  // Not so large that the rounding of the total shows in its differences.
  EXPECT_NO_THROW(gradcheck(total, {halves({2, 3}), halves({4, 3}), halves({4}), halves({2, 4})}));
}

TEST_F(SecondDerivative, FrozenInputsAndWeights) {
  const Tensor x = normal({3, 4}), w = normal({5, 4}), b = normal({5});
  for (const Activation activation : {Activation::kNone, Activation::kGelu}) {
    expect_derivatives([&](const Tensors& in) { return square(linear(in[0], w.detach(), b.detach(), activation)); },
                       {x});
    expect_derivatives([&](const Tensors& in) { return square(linear(x.detach(), in[0], {}, activation)); }, {w});
    expect_derivatives([&](const Tensors& in) { return square(linear(x.detach(), w.detach(), in[0], activation)); },
                       {b});
  }
  expect_derivatives([&](const Tensors& in) { return square(layer_norm(x.detach(), in[0], in[1])); },
                     {normal({4}), normal({4})});
}

/// A post-norm block of a transformer with its loss, and an eps that bounds what the norms divide by; in: x, w_qkv,
/// b_qkv, w_out, gamma, beta, w1, b1, w2.
Tensor block_loss(const Tensors& in, const SequenceLayout& layout, double dropout) {
  Generator g = fresh_generator(11);
  const int64_t width = in[0].size(1), heads = 2;
  const DropoutOptions drop{.p = dropout, .generator = &g};
  RowChain attention(in[0]);
  attention.linear(in[1], in[2]);
  attention.self_attention(heads, layout, {.dropout = dropout, .generator = &g});
  attention.linear(in[3]);
  const SumAndNorm middle =
      attention.add_norm({.residual = in[0], .weight = in[4], .bias = in[5], .eps = 0.1, .dropout = drop});
  RowChain feed_forward(middle.norm);
  feed_forward.linear(in[6], in[7], Activation::kGelu);
  feed_forward.linear(in[8]);
  const SumAndNorm end =
      feed_forward.add_norm({.residual = middle.sum, .weight = in[4], .bias = {}, .eps = 0.1, .dropout = drop});
  std::vector<int64_t> targets;
  for (int64_t i = 0; i < in[0].size(0); ++i) targets.push_back(i == 2 ? -100 : i % width);
  return cross_entropy(end.norm + end.sum, from_vector(targets, {in[0].size(0)}), {.label_smoothing = 0.1});
}

TEST_F(SecondDerivative, GradientPenaltyOfATransformerBlock) {
  const SequenceLayout layout = packed_layout({3, 1, 2});
  for (const double dropout : {0.0, 0.25}) {
    const TensorOp penalty = [&](const Tensors& in) {
      const GradMode on(true);
      const Tensor first = grad({block_loss(in, layout, dropout)}, {in[0]}, {.create_graph = true})[0];
      return sum(square(first)) * 10.0;
    };
    const Tensors inputs = {normal({6, 4}), halves({12, 4}), normal({12}), normal({4, 4}), normal({4}),
                            normal({4}),    normal({5, 4}),  normal({5}),  normal({4, 5})};
    EXPECT_NO_THROW(gradcheck(penalty, inputs, {.eps = 1e-5, .atol = 1e-6, .rtol = 1e-4}));
  }
}

TEST_F(SecondDerivative, Attention) {
  // One token follows the queries' sequences, one the keys'.
  SequenceLayout queries = packed_layout({3, 0, 2}), keys = packed_layout({2, 4, 3});
  queries.tokens = keys.tokens = -1;
  keys.key_mask = from_vector<uint8_t>({0, 0, 1, 1, 1, 1, 1, 1, 1, 0}, {10});  // the first sequence sees nothing
  queries.row_keys = from_vector<int64_t>({7, 70, 700, 7000, 70000, 5}, {6});
  for (const double p : {0.0, 0.4, 1.0})
    for (const bool causal : {false, true})
      for (const Shape& bias : {Shape{3, 4, 3, 4}, Shape{1, 1, 3, 4}, Shape{3, 1, 3, 4}, Shape{1, 4, 3, 4}}) {
        const TensorOp op = [&](const Tensors& in) {
          const AttentionOptions options{
              .causal = causal, .window = causal ? 1 : -1, .dropout = p, .generator = same_draws(), .bias = in[3]};
          return attention(in[0], in[1], in[2], queries, keys, options);
        };
        const Tensors inputs = {normal({6, 4, 2}), normal({10, 2, 2}), normal({10, 2, 2}), normal(bias)};
        if (p < 1) expect_same_gradients(op, inputs, kDoubleAttention);
        if (p != 0.4 || (!causal && bias.size(0) == 1)) continue;
        expect_derivatives(op, inputs);
      }
}

TEST_F(SecondDerivative, AttentionOverMoreKeysThanOneLook) {
  // 65 and 130 keys: the mask is read in several parts.
  const SequenceLayout layout = packed_layout({65, 130, 3});
  for (const double p : {0.0, 0.3}) {
    const auto options = [&](bool causal) {
      return AttentionOptions{.causal = causal, .window = causal ? 70 : -1, .dropout = p, .generator = same_draws()};
    };
    expect_same_gradients([&](const Tensors& in) { return self_attention(in[0], layout, options(true)); },
                          {single({198, 3, 2, 8})}, kSingleAttention);
    expect_same_gradients(
        [&](const Tensors& in) { return cross_attention(in[0], in[1], layout, layout, options(false)); },
        {single({198, 4, 8}), single({198, 2, 2, 8})}, kSingleAttention);
  }
}

TEST_F(SecondDerivative, Rotary) {
  const Tensor positions = from_vector<int64_t>({0, 7, 100000}, {3});
  for (const bool interleaved : {false, true})
    for (const int64_t rotary_dim : {0, 4}) {
      const RotaryOptions options{.rotary_dim = rotary_dim, .interleaved = interleaved};
      expect_derivatives([&](const Tensors& in) { return square(rotary(in[0].transpose(0, 1), positions, options)); },
                         {normal({2, 3, 6})});
    }
}

TEST_F(SecondDerivative, OfRowsThatAreLeftOutIsZero) {
  Tensor logits = from_vector<double>({1, 2, INFINITY, -INFINITY, 3, 0, 4, INFINITY}, {4, 2});
  logits.set_requires_grad(true);
  const Tensor targets = from_vector<int64_t>({1, -100, 0, 1}, {4});
  const Tensor loss = cross_entropy(logits, targets, {.row_weights = tensor({1, 1, 2, 0}, {.dtype = float64})});
  const Tensor first = grad({loss}, {logits}, {.create_graph = true})[0];
  const Tensor second = grad({sum(square(first))}, {logits})[0];
  for (const Tensor& g : {first, second}) {
    const std::vector<double> values = g.to_vector<double>();
    for (size_t i = 0; i < values.size(); ++i) {
      const bool left_out = i / 2 == 1 || i / 2 == 3;
      EXPECT_EQ(values[i] == 0, left_out) << i;
      EXPECT_TRUE(std::isfinite(values[i])) << i;
    }
  }
}

TEST_F(SecondDerivative, ThirdDerivatives) {
  // The gradient of the gradient of the gradient: gradcheck's second order of a function that is a gradient itself.
  const auto check = [&](const TensorOp& op, const Tensors& inputs) {
    const TensorOp slope = [&](const Tensors& in) {
      const GradMode on(true);
      const Tensor y = op(in);
      Generator g = fresh_generator(5);
      Tensor total = zeros({}, {.dtype = float64});
      for (const Tensor& first : grad({sum(mul(y, mul(y, y)))}, in, {.create_graph = true}))
        total = total + sum(mul(first, randn(first.shape(), g, {.dtype = float64})));
      return total;
    };
    EXPECT_NO_THROW(gradcheck(slope, inputs, {.eps = 1e-5, .atol = 1e-5, .second = true}));
  };
  check([](const Tensors& in) { return linear(in[0], in[1], in[2]); }, {normal({2, 2}), normal({3, 2}), normal({3})});
  check([](const Tensors& in) { return layer_norm(in[0], in[1], in[2], 0.1); },
        {normal({2, 3}), normal({3}), normal({3})});
  check([](const Tensors& in) { return embedding(in[0], from_vector<int64_t>({2, 0, 2}, {3})); }, {normal({4, 2})});
  check([](const Tensors& in) { return gather(in[0], 1, from_vector<int64_t>({2, 0, 2}, {1, 3})); }, {normal({1, 3})});
  check([](const Tensors& in) { return cross_entropy(in[0], from_vector<int64_t>({2, 0}, {2})); }, {normal({2, 3})});
  check([](const Tensors& in) { return in[0].split({1, 2})[1] * in[0].unbind(0)[0]; }, {normal({3, 2})});
  const SequenceLayout layout = packed_layout({2, 1});
  check([&](const Tensors& in) { return self_attention(in[0], layout); }, {normal({3, 3, 1, 2})});
}

}  // namespace
}  // namespace tern::test

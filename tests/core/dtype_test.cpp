// 16-bit storage against float64, and autocast.

#include "tern/core/allocator.h"
#include "tern/core/autocast.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/tests/core/core_test.h"

namespace tern {
namespace {

using test::expect_equal;
using test::expect_error;

/// The values that x has after rounding to dtype, as float64.
Tensor rounded(const Tensor& x, DType dtype) { return x.to(dtype).to(float64); }

using Op = std::function<Tensor(const std::vector<Tensor>&)>;

/// err(16 bits, fp64) <= 2 err(naive 16 bits, fp64) + 1e-5, where naive rounds the exact result of every step of
/// `steps` (each a function of the inputs and of the results before it) to 16 bits.
void check_16_bits(const char* name, const Op& op, const std::vector<Op>& steps, const std::vector<Tensor>& inputs) {
  for (DType dtype : {bfloat16, float16}) {
    std::vector<Tensor> low, exact;
    for (const Tensor& x : inputs) {
      low.push_back(x.to(dtype));
      exact.push_back(rounded(x, dtype));
    }
    std::vector<Tensor> naive = exact, right = exact;
    for (const Op& step : steps) {
      naive.push_back(rounded(step(naive), dtype));
      right.push_back(step(right));
    }
    const Tensor got = op(low);
    EXPECT_EQ(got.dtype(), dtype) << name;
    const auto error = [&](const Tensor& x) { return max(abs(x.to(float64) - right.back())).item<double>(); };
    EXPECT_LE(error(got), 2 * error(naive.back()) + 1e-5) << name << " " << dtype;
  }
}

TEST(SixteenBits, AgreeWithFloat64) {
  Generator g(1);
  const auto normal = [&](const Shape& s) { return randn(s, g, {.dtype = float64}); };
  const auto unary = [&](const char* name, Tensor (*op)(const Tensor&)) {
    const Op f = [op](const auto& in) { return op(in[0]); };
    check_16_bits(name, f, {f}, {normal({37, 19})});
  };
  unary("gelu", gelu);
  unary("tanh", tanh);
  unary("exp", exp);
  unary("sigmoid", sigmoid);
  unary("silu", silu);
  const Op product = [](const auto& in) { return matmul(in[0], in[1]); };
  check_16_bits("matmul", product, {product}, {normal({33, 65}), normal({65, 17})});
  const Op layer = [](const auto& in) { return linear(in[0], in[1], in[2], Activation::kGelu); };
  check_16_bits("linear", layer,
                {[](const auto& in) { return matmul(in[0], in[1].t()); }, [](const auto& in) { return in[3] + in[2]; },
                 [](const auto& in) { return gelu(in[4]); }},
                {normal({21, 40}), normal({9, 40}), normal({9})});
  const Op soft = [](const auto& in) { return softmax(in[0]); };
  check_16_bits("softmax", soft, {soft}, {normal({5, 131})});
  const Op normalise = [](const auto& in) { return layer_norm(in[0], in[1], in[2]); };
  check_16_bits("layer_norm", normalise, {normalise}, {normal({7, 130}), normal({130}), normal({130})});
  const Op total = [](const auto& in) { return sum(in[0], {0}); };
  check_16_bits("sum", total, {total}, {normal({501, 13})});
  const Op average = [](const auto& in) { return mean(in[0], {1}); };
  check_16_bits("mean", average, {average}, {normal({13, 501})});
  const Op attend = [](const auto& in) { return self_attention(in[0], packed_layout({17, 5, 30})); };
  check_16_bits("attention", attend, {attend}, {normal({52, 3, 2, 16})});
}

TEST(SixteenBits, GradientsAgreeWithFloat64) {
  Generator g(2);
  const Tensor x = randn({29, 24}, g, {.dtype = float64}), w = randn({16, 24}, g, {.dtype = float64}),
               v = randn({16}, g, {.dtype = float64});
  for (DType dtype : {bfloat16, float16}) {
    const auto gradients = [&](DType compute) {
      std::vector<Tensor> in = {rounded(x, dtype).to(compute), rounded(w, dtype).to(compute),
                                rounded(v, dtype).to(compute)};
      for (Tensor& t : in) t.set_requires_grad(true);
      const Tensor y = layer_norm(linear(in[0], in[1], in[2], Activation::kGelu), in[2], {});
      sum(square(softmax(y))).backward();
      return std::vector<Tensor>{in[0].grad(), in[1].grad(), in[2].grad()};
    };
    const std::vector<Tensor> low = gradients(dtype), exact = gradients(float64);
    for (size_t i = 0; i < low.size(); ++i) {
      EXPECT_EQ(low[i].dtype(), dtype);
      EXPECT_LE(test::relative_error(low[i].to_vector<double>(), exact[i].to_vector<double>()),
                dtype == bfloat16 ? 0.05 : 0.01);
    }
  }
}

TEST(SixteenBits, LossesAreFloat32) {
  const Tensor logits = ones({2, 3}, {.dtype = bfloat16, .requires_grad = true});
  const Tensor loss = cross_entropy(logits, zeros({2}, {.dtype = int64}));
  EXPECT_EQ(loss.dtype(), float32);
  EXPECT_NEAR(loss.item<double>(), std::log(3.0), 1e-6);
  loss.backward();
  EXPECT_EQ(logits.grad().dtype(), bfloat16);
}

TEST(Autocast, FollowsTheTable) {
  const Tensor f = ones({4, 4}), h = ones({4, 4}, {.dtype = bfloat16}), d = ones({4, 4}, {.dtype = float64}),
               i = ones({4, 4}, {.dtype = int64});
  const auto types = [&] {
    std::vector<DType> all;
    for (const Tensor& t : {matmul(f, f),
                            matmul(h, f),
                            linear(f, f),
                            exp(h),
                            log(h),
                            pow(h, 2),
                            rsqrt(h),
                            sum(h),
                            norm(h),
                            mse_loss(h, f),
                            add(h, f),
                            mul(h, h),
                            where(eq(h, f), h, f),
                            cat({h, f}),
                            gelu(h),
                            softmax(h),
                            layer_norm(h, {}, {}),
                            tanh(f),
                            matmul(d, d),
                            add(i, i),
                            sum(i)})
      all.push_back(t.dtype());
    return all;
  };
  const std::vector<DType> inside = autocast(cpu, bfloat16, types);
  EXPECT_EQ(inside, (std::vector<DType>{bfloat16, bfloat16, bfloat16, float32, float32,  float32, float32,
                                        float32,  float32,  float32,  float32, bfloat16, float32, float32,
                                        bfloat16, bfloat16, bfloat16, float32, float64,  int64,   int64}));
  EXPECT_FALSE(autocast_enabled(cpu));
  EXPECT_EQ(matmul(f, f).dtype(), float32);
  expect_error([&] { matmul(h, f); }, {"matmul", "bfloat16", "float32"});
  expect_error([] { Autocast(cpu, float64); }, {"autocast", "float64"});
  EXPECT_EQ(detail::cast_policy("nobody"), detail::CastPolicy::kAsIs);
}

/// The policy of every op by name, written down once more: a changed line must be a decision.
TEST(Autocast, TheWholeTable) {
  using P = detail::CastPolicy;
  const std::vector<std::pair<P, std::vector<const char*>>> expected = {
      {P::kLow, {"matmul", "linear", "attention"}},
      {P::kFp32,
       {"exp", "expm1", "log", "log1p", "pow", "pow_scalar", "square", "reciprocal", "rsqrt", "softplus", "sum",
        "cumsum", "norm", "mse_loss"}},
      {P::kWidest, {"addcmul", "dropout_residual_layer_norm"}},
      {P::kAsIs,
       {"add",       "sub",           "mul",       "div",    "maximum", "minimum", "where", "cat",        "lerp",
        "eq",        "neg",           "abs",       "sqrt",   "sigmoid", "tanh",    "relu",  "leaky_relu", "gelu",
        "gelu_tanh", "silu",          "erf",       "sin",    "cos",     "floor",   "clamp", "mean",       "max_min",
        "softmax",   "cross_entropy", "embedding", "gather", "dropout", "sort",    "topk"}}};
  for (const auto& [policy, ops] : expected)
    for (const char* op : ops) EXPECT_EQ(detail::cast_policy(op), policy) << op;
}

/// What each op gives for 16-bit inputs, with both types of region.
TEST(Autocast, ResultsByTheTable) {
  Generator g(3);
  const Tensor x = rand({6, 8}, g) + 0.5;
  const SequenceLayout layout = packed_layout({4, 2});
  using Unary = Tensor (*)(const Tensor&);
  const std::vector<Unary> in_fp32 = {exp, expm1, log, log1p, square, reciprocal, rsqrt, softplus, norm},
                           as_is = {neg, abs, sqrt, sigmoid, tanh, relu, gelu, silu, gelu_tanh, erf, sin, cos, floor};
  for (const DType low : {bfloat16, float16}) {
    const Tensor h = x.to(low), f = x;
    const Autocast region(cpu, low);
    for (size_t i = 0; i < in_fp32.size(); ++i) EXPECT_EQ(in_fp32[i](h).dtype(), float32) << i;
    for (size_t i = 0; i < as_is.size(); ++i) {
      EXPECT_EQ(as_is[i](h).dtype(), low) << i;
      EXPECT_EQ(as_is[i](f).dtype(), float32) << i;
    }
    for (const Tensor& y :
         {pow(h, h), pow(h, 2.0), sum(h), sum(h, {0}), mse_loss(h, h), 1.0 / h, add(h, f), mul(f, h), maximum(h, f),
          where(gt(h, h), h, f), cat({h, f}), stack({f, h}), dropout_residual_layer_norm(h, f, {}, {}, 1e-5),
          softmax(f), cross_entropy(h, zeros({6}, {.dtype = int64}))})
      EXPECT_EQ(y.dtype(), float32);
    for (const Tensor& y : {matmul(f, f.t()), matmul(h, f.t()), linear(f, f, rand({6}, g)),
                            attention(f.reshape({6, 1, 8}), h.reshape({6, 1, 8}), f.reshape({6, 1, 8}), layout, layout),
                            mean(h), add(h, h), mul(h, 3.0), div(h, 3.0), maximum(h, h), cat({h, h}), softmax(h),
                            log_softmax(h), layer_norm(h, rand({8}, g), {}), dropout(h, {.p = 0.5}),
                            mul(h, full({}, 2))})  // a number as a tensor does not widen, as in PyTorch
      EXPECT_EQ(y.dtype(), low);
  }
}

/// fp64, integers, explicit types and ops in place are left alone, and so is everything in a disabled region.
TEST(Autocast, WhatIsNeverCast) {
  Generator g(4);
  const Tensor d = rand({4, 4}, g, {.dtype = float64}), i = full({4, 4}, 3, {.dtype = int64}), f = rand({4, 4}, g);
  for (const DType low : {bfloat16, float16}) {
    const Autocast region(cpu, low);
    EXPECT_EQ(matmul(d, d).dtype(), float64);
    EXPECT_EQ(exp(d).dtype(), float64);
    EXPECT_EQ(sum(d).dtype(), float64);
    EXPECT_EQ(mse_loss(d, d).dtype(), float64);
    EXPECT_EQ(sum(i).dtype(), int64);
    EXPECT_EQ(square(i).dtype(), int64);
    EXPECT_EQ(i.to(float64).dtype(), float64);
    EXPECT_EQ(f.to(float16).dtype(), float16);
    EXPECT_EQ(f.to(bfloat16).dtype(), bfloat16);
    Tensor h = f.to(low), w = f.clone();
    h.add_(f);
    h.mul_(f);
    EXPECT_EQ(h.dtype(), low);
    w.add_(h);
    w.mul_(2);
    w.copy_(h);
    EXPECT_EQ(w.dtype(), float32);
    const Autocast off(cpu, float32);
    EXPECT_EQ(exp(h).dtype(), low);
    EXPECT_EQ(sum(h).dtype(), low);
    EXPECT_EQ(matmul(h, h).dtype(), low);
    EXPECT_EQ(matmul(f, f).dtype(), float32);
  }
  // A region for one kind of device does not touch the other.
  const Autocast other({DeviceType::kCUDA, 0}, bfloat16);
  EXPECT_EQ(matmul(f, f).dtype(), float32);
  EXPECT_TRUE(autocast_enabled({DeviceType::kCUDA, 0}));
}

/// The cached cast of a weight serves two backward passes of one region, and a region inside keeps it.
TEST(Autocast, ACachedWeightServesTwoBackwardPasses) {
  Generator g(5);
  const Tensor x = randn({3, 4}, g), start = randn({4, 4}, g);
  const auto gradient = [&](int passes) {
    Tensor w = start.clone().set_requires_grad(true);
    const Autocast region(cpu, bfloat16);
    for (int i = 0; i < passes; ++i) {
      sum(linear(x, w)).backward();
      const Autocast off(cpu, float32);
      EXPECT_EQ(linear(x, w).dtype(), float32);
    }
    return w.grad();
  };
  expect_equal(gradient(2), gradient(1) * 2);
}

TEST(Autocast, RegionsNest) {
  const Tensor f = ones({2, 2});
  const Autocast outer(cpu, bfloat16);
  EXPECT_EQ(matmul(f, f).dtype(), bfloat16);
  {
    const Autocast off(cpu, float32);
    EXPECT_EQ(matmul(f, f).dtype(), float32);
    const Autocast half(cpu, float16);
    EXPECT_EQ(matmul(f, f).dtype(), float16);
  }
  EXPECT_EQ(matmul(f, f).dtype(), bfloat16);
  try {
    const Autocast inner(cpu, float16);
    fail("leave");
  } catch (const Error&) {
  }
  EXPECT_EQ(autocast_active_dtype(cpu), bfloat16);
}

TEST(Autocast, CastsWeightsOnceAndNoticesUpdates) {
  Tensor w = ones({4, 4}, {.requires_grad = true});
  const Tensor x = ones({2, 4});
  const Autocast region(cpu, bfloat16);
  const int64_t before = allocator(cpu).statistics().allocations;
  const Tensor first = linear(x, w);
  const int64_t with_cast = allocator(cpu).statistics().allocations - before;
  const Tensor second = linear(x, w);
  EXPECT_LT(allocator(cpu).statistics().allocations - before - with_cast, with_cast);
  {
    NoGrad off;
    w.mul_(3);
  }
  EXPECT_EQ(linear(x, w)[0][0].item<double>(), 12);  // not the old weight
}

TEST(Autocast, GradientsHaveTheParametersDtype) {
  Generator g(4);
  const Tensor x = randn({6, 8}, g), w = randn({5, 8}, g), b = randn({5}, g);
  const auto gradients = [&](DType dtype, bool backward_inside) {
    std::vector<Tensor> leaves = {x.detach().clone(), w.detach().clone(), b.detach().clone()};
    for (Tensor& t : leaves) t.set_requires_grad(true);
    Tensor loss;
    {
      const Autocast region(cpu, dtype);
      // The weight is used twice, once through a view.
      const Tensor y = linear(leaves[0], leaves[1], leaves[2]), z = linear(y * 0.5, leaves[1].t());
      loss = mse_loss(z, x);
      EXPECT_EQ(loss.dtype(), float32);
      if (backward_inside) loss.backward();
    }
    if (!backward_inside) loss.backward();
    return std::vector<Tensor>{leaves[0].grad(), leaves[1].grad(), leaves[2].grad()};
  };
  const std::vector<Tensor> outside = gradients(bfloat16, false), inside = gradients(bfloat16, true),
                            full = gradients(float32, false);
  for (size_t i = 0; i < full.size(); ++i) {
    EXPECT_EQ(outside[i].dtype(), float32);
    expect_equal(inside[i], outside[i]);  // the region of the caller does not matter to backward
    EXPECT_LE(test::relative_error(outside[i].to_vector<double>(), full[i].to_vector<double>()), 0.05);
    EXPECT_NE(outside[i].to_vector<double>(), full[i].to_vector<double>());
  }
}

/// Each outermost region sees the weights as they are when it begins, however they were changed.
TEST(Autocast, CopiesOfWeightsAreRenewedByTheNextRegion) {
  Tensor w = ones({3, 4}, {.requires_grad = true}), b = zeros({3}, {.requires_grad = true});
  const Tensor x = ones({2, 4});
  const auto run = [&] { return autocast(cpu, bfloat16, [&] { return linear(x, w, b); }); };
  EXPECT_EQ(run()[0][0].item<double>(), 4);
  const auto copied = [&] { return detail::weight_copies().size(); };
  const size_t kept = copied();
  EXPECT_GE(kept, 2u);
  w.data<float>()[0] = 5;  // nothing counts this
  EXPECT_EQ(run()[0][0].item<double>(), 8);
  {
    NoGrad off;
    w.fill_(2);
    b.fill_(1);
  }
  EXPECT_EQ(run()[0][0].item<double>(), 9);
  EXPECT_EQ(autocast(cpu, float16, [&] { return linear(x, w, b); })[0][0].item<double>(), 9);
  EXPECT_EQ(copied(), kept);
  // Two regions before one backward: the first one's copy is still good, unless the weight changed.
  const Tensor first = sum(run()), second = sum(run());
  first.backward();
  second.backward();
  EXPECT_EQ(w.grad()[0][0].item<double>(), 4);
  const Tensor y = sum(autocast(cpu, bfloat16, [&] { return linear(ones({2, 4}, {.requires_grad = true}), w, b); }));
  {
    NoGrad off;
    w.fill_(3);
  }
  run();
  expect_error([&] { y.backward(); }, {"linear", "modified"});
}

/// The gradient of an fp32 weight is not rounded to 16 bits on the way.
TEST(Autocast, TheWeightsGradientIsFp32) {
  Tensor w = ones({1, 1}, {.requires_grad = true}), b = ones({1}, {.requires_grad = true});
  const Autocast region(cpu, bfloat16);
  const Tensor x = ones({257, 1});
  sum(linear(x, w, b)).backward();
  EXPECT_EQ(w.grad().item<double>(), 257);
  EXPECT_EQ(b.grad().item<double>(), 257);
}

}  // namespace
}  // namespace tern

// 16-bit storage against float64, within rounding bounds, and autocast.

#include "tern/core/autograd/autocast.h"
#include "tern/core/memory/allocator.h"
#include "tern/tests/core/rounding.h"

namespace tern::test {
namespace {

/// Results for 16-bit inputs are the exact result, rounded once, within the rounding errors of fp32 computation.
void check_16_bits(const char* name, const Tensors& inputs, const TensorOp& op,
                   const std::function<Rounded(const std::vector<Rounded>&)>& reference) {
  for (const DType dtype : {bfloat16, float16}) {
    SCOPED_TRACE(testing::Message() << name << " " << dtype);
    Tensors low;
    std::vector<Rounded> exact;
    for (const Tensor& x : inputs) exact.emplace_back(low.emplace_back(x.to(dtype)));
    const Tensor got = op(low);
    EXPECT_EQ(got.dtype(), dtype);
    expect_within(got, reference(exact).stored(dtype));
  }
}

/// 1000 ones of 16 bits: added in 16 bits they give 256 in bfloat16; threes in float16 are rounded from 2048 on.
TEST(SixteenBits, SumsOfManyNumbersGrow) {
  constexpr int64_t n = 1000;
  for (const DType dtype : {bfloat16, float16}) {
    SCOPED_TRACE(testing::Message() << dtype);
    const TensorOptions options{.dtype = dtype};
    const double each = dtype == bfloat16 ? 1 : 3, all = each * n;  // float16 has no odd number beyond 2048
    const Tensor values = full({n}, each, options), none = zeros({3}, options);
    Tensor index = ones({n}, {.dtype = int64});
    const std::vector<double> sums = {0, all, 0};
    const auto expect = [&](const char* name, const Tensor& got, const std::vector<double>& want) {
      EXPECT_EQ(got.dtype(), dtype) << name;
      EXPECT_EQ(got.to_vector<double>(), want) << name;
    };
    expect("scatter_add", scatter_add(none, 0, index, values), sums);
    expect("index_add", index_add(none, 0, index, values), sums);
    expect("index_put", index_put(none, {index}, values, true), sums);
    expect("put", put(none, index, values, true), sums);
    expect("scatter_reduce", scatter_reduce(none, 0, index, values, ScatterReduction::kSum), sums);
    expect("index_reduce", index_reduce(none, 0, index, values, ScatterReduction::kMean, false), {0, each, 0});
    expect("mean", scatter_reduce(none, 0, index, values * 64.0, ScatterReduction::kMean, false), {0, 64 * each, 0});
    const double factor = 1 + 0x1p-7;
    expect("product", scatter_reduce(none + 1.0, 0, index, values * (factor / each), ScatterReduction::kProd),
           {1, full({}, std::pow(factor, double(n)), options).item<double>(), 1});
    expect("scatter_add_", none.clone().scatter_add_(0, index, values), sums);
    expect("index_add_", none.clone().index_add_(0, index, values), sums);
    expect("index_put_", none.clone().index_put_({index}, values, true), sums);
    expect("histogram", histogram(values, from_vector<double>({0, 8, 9}, {3}, options), {.weights = values}).counts,
           {all, 0});
    expect("cumsum", cumsum(values, 0)[-1].reshape({1}), {all});

    // The gradient of x for a gradient of `each` in every element of the result.
    const auto gradient = [&](const char* name, const std::function<Tensor(const Tensor&)>& op,
                              const std::vector<double>& want, const Tensor& of = {}) {
      Tensor x = (of.defined() ? of : zeros({3}, options)).detach().clone().set_requires_grad(true);
      const Tensor y = op(x);
      y.backward(full(y.shape(), each, options));
      expect(name, x.grad(), want);
      Tensor once_more = x.detach().set_requires_grad(true);
      const Tensor again = op(once_more);
      const GradOptions recorded{.gradients = {full(again.shape(), each, options)}, .create_graph = true};
      expect(name, grad({again}, {once_more}, recorded)[0].detach(), want);
    };
    gradient(
        "gather", [&](const Tensor& x) { return gather(x, 0, index); }, sums);
    gradient(
        "index", [&](const Tensor& x) { return x.index({index}); }, sums);
    gradient(
        "take", [&](const Tensor& x) { return take(x, index); }, sums);
    gradient(
        "take_along_dim", [&](const Tensor& x) { return take_along_dim(x, index, 0); }, sums);
    gradient(
        "index_select", [&](const Tensor& x) { return index_select(x, 0, index); }, sums);
    gradient(
        "index_select of columns", [&](const Tensor& x) { return index_select(x, 1, index); }, sums,
        zeros({1, 3}, options));
    gradient(
        "embedding", [&](const Tensor& x) { return embedding(x, index); }, sums, zeros({3, 1}, options));
    gradient("repeat_interleave", [&](const Tensor& x) { return repeat_interleave(x, n); }, {all, all, all});
    gradient("repeat", [&](const Tensor& x) { return repeat(x, {n}); }, {all, all, all});
    gradient("expand", [&](const Tensor& x) { return x.expand({n, 3}) * 1.0; }, {all, all, all});
    std::vector<double> first(static_cast<size_t>(n), 0), windows;
    first[0] = all;
    gradient(
        "cummax", [](const Tensor& x) { return cummax(x, 0).values; }, first, from_vector<double>(first, {n}, options));
    const double edge = full({}, all + each, options).item<double>();
    gradient(
        "pad",
        [&](const Tensor& x) {
          return pad(x, {n, n}, PadMode::kReplicate);
        },
        {edge, each, edge}, zeros({1, 3}, options));
    for (int i = 0; i < 63; ++i) windows.push_back(each * std::min(i + 1, 63 - i));
    gradient(
        "unfold",
        [](const Tensor& x) {
          return unfold(x.reshape({1, 1, 1, 63}), {1, 32});
        },
        windows, zeros({63}, options));
  }
}

/// Pixels near a corner add up the gradients of several blocks: as in fp32, and rounded once.
TEST(SixteenBits, GradientsOfPaddingsAreRoundedOnce) {
  Generator g = fresh_generator();
  for (const DType dtype : {bfloat16, float16})
    for (const PadMode mode : {PadMode::kReflect, PadMode::kReplicate, PadMode::kCircular}) {
      const Tensor dy = randn({3, 2, 14, 20}, g).to(dtype);
      const auto gradient = [&](DType type) {
        const Tensor x = zeros({3, 2, 7, 9}, {.dtype = type}).set_requires_grad(true);
        pad(x, {5, 6, 4, 3}, mode).backward(dy.to(type));
        return x.grad();
      };
      expect_equal(gradient(dtype), gradient(float32).to(dtype));
    }
}

TEST(SixteenBits, AgreeWithFloat64) {
  Generator g = fresh_generator();
  const auto normal = [&](const Shape& s) { return randn(s, g, {.dtype = float64}); };
  for (const auto& [name, op] : {std::pair<const char*, Tensor (*)(const Tensor&)>{"gelu", tern::gelu},
                                 {"tanh", tanh},
                                 {"exp", exp},
                                 {"sigmoid", sigmoid},
                                 {"silu", silu}}) {
    const auto exact = [op = op](const auto& in) { return function_of(in[0], op(in[0].value), 0, 8); };
    check_16_bits(
        name, {normal({37, 19})}, [op = op](const auto& in) { return op(in[0]); }, exact);
  }
  const auto product = [](const auto& in) { return matmul(in[0], in[1]); };
  check_16_bits("matmul", {normal({33, 65}), normal({65, 17})}, product, product);
  check_16_bits(
      "linear", {normal({21, 40}), normal({9, 40}), normal({9})},
      [](const auto& in) { return linear(in[0], in[1], in[2], Activation::kGelu); },
      [](const auto& in) { return gelu(linear(in[0], in[1].value, in[2].value)); });
  const auto probabilities = [](const auto& in) { return softmax(in[0]); };
  check_16_bits("softmax", {normal({5, 131})}, probabilities, probabilities);
  check_16_bits(
      "layer_norm", {normal({7, 130}), normal({130}), normal({130})},
      [](const auto& in) { return layer_norm(in[0], in[1], in[2]); },
      [](const auto& in) { return RoundedNorm(in[0], 1e-5).result(in[1].value, in[2].value); });
  check_16_bits(
      "sum", {normal({501, 13})}, [](const auto& in) { return sum(in[0], {0}); },
      [](const auto& in) { return sum(in[0], 0); });
  check_16_bits(
      "mean", {normal({13, 501})}, [](const auto& in) { return mean(in[0], {1}, true); },
      [](const auto& in) { return mean(in[0]); });
  const std::vector<int64_t> lengths = {17, 5, 30};
  check_16_bits(
      "attention", {normal({52, 3, 2, 16})},
      [&](const auto& in) { return self_attention(in[0], packed_layout(lengths)); },
      [&](const auto& in) { return self_attention(in[0], lengths); });
}

/// The gradients of the inputs for a 16-bit dy, within the error of rounding the saved tensors and the result.
void check_gradients(const char* name, const TensorOp& op,
                     const std::function<std::vector<Rounded>(const Tensors&, const Rounded&, DType)>& want,
                     const Tensors& inputs, const Tensor& gradient) {
  for (const DType dtype : {bfloat16, float16}) {
    Tensors low;
    for (const Tensor& x : inputs) low.push_back(x.to(dtype).set_requires_grad(true));
    const Tensor dy = gradient.to(dtype);
    op(low).backward(dy);
    const std::vector<Rounded> expected = want(low, Rounded(dy), dtype);
    ASSERT_EQ(expected.size(), low.size());
    for (size_t i = 0; i < low.size(); ++i) {
      SCOPED_TRACE(testing::Message() << name << " " << dtype << " input " << i);
      EXPECT_EQ(low[i].grad().dtype(), dtype);
      expect_within(low[i].grad(), expected[i].stored(dtype));
    }
  }
}

/// The gradients of x, weight and bias, from the gradient of the pre-activation.
std::vector<Rounded> gradients_of_product(const Tensors& in, const Rounded& dpre) {
  const Rounded turned = dpre.map([](const Tensor& t) { return t.t(); });
  return {matmul(dpre, Rounded(in[1])), matmul(turned, Rounded(in[0])), sum(dpre, 0)};
}

TEST(SixteenBits, GradientsAgreeWithFloat64) {
  Generator g = fresh_generator();
  const auto normal = [&](const Shape& s) { return randn(s, g, {.dtype = float64}); };
  const Tensors layer = {normal({29, 24}), normal({16, 24}), normal({16})};
  check_gradients(
      "linear", [](const auto& in) { return linear(in[0], in[1], in[2]); },
      [](const auto& in, const Rounded& dy, DType) { return gradients_of_product(in, dy); }, layer, normal({29, 16}));
  check_gradients(
      "linear with gelu", [](const auto& in) { return linear(in[0], in[1], in[2], Activation::kGelu); },
      [](const auto& in, const Rounded& dy, DType dtype) {
        const Rounded pre = linear(Rounded(in[0]), in[1].detach(), in[2].detach()).stored(dtype);
        return gradients_of_product(in, (dy * gelu_slope(pre)).stored(dtype));
      },
      layer, normal({29, 16}));
  check_gradients(
      "softmax", [](const auto& in) { return softmax(in[0]); },
      [](const auto& in, const Rounded& dy, DType dtype) {
        const Rounded y = softmax(Rounded(in[0])).stored(dtype);
        return std::vector<Rounded>{y * (dy - sum(y * dy, -1, true))};
      },
      {normal({7, 19})}, normal({7, 19}));
  check_gradients(
      "layer_norm", [](const auto& in) { return layer_norm(in[0], in[1], in[2]); },
      [](const auto& in, const Rounded& dy, DType) {
        const RoundedNorm norm(Rounded(in[0]), 1e-5);
        const Rounded direct = dy * Rounded(in[1]), inner = direct - mean(direct) - norm.hat * mean(direct * norm.hat);
        return std::vector<Rounded>{norm.rstd * inner, sum(dy * norm.hat, 0), sum(dy, 0)};
      },
      {normal({11, 23}), normal({23}), normal({23})}, normal({11, 23}));
}

TEST(SixteenBits, LossesAreFloat32) {
  const Tensor logits = ones({2, 3}, {.dtype = bfloat16, .requires_grad = true});
  const Tensor loss = cross_entropy(logits, zeros({2}, {.dtype = int64}));
  EXPECT_EQ(loss.dtype(), float32);
  EXPECT_NEAR(loss.item<double>(), std::log(3.0), 2 * 0x1p-23);
  loss.backward();
  EXPECT_EQ(logits.grad().dtype(), bfloat16);
}

/// The policy of every op by name, repeated here so that a change of the table is deliberate.
TEST(Autocast, TheWholeTable) {
  using P = detail::CastPolicy;
  const std::vector<std::pair<P, std::vector<const char*>>> expected = {
      {P::kLow, {"matmul", "linear", "attention", "convolution", "recurrent"}},
      {P::kFp32, {"exp",      "expm1",      "log",   "log1p",  "log2", "log10",    "pow",  "pow_scalar",
                  "square",   "reciprocal", "rsqrt", "acos",   "asin", "cosh",     "sinh", "tan",
                  "softplus", "sum",        "prod",  "cumsum", "norm", "nll_loss", "loss"}},
      {P::kWidest, {"addcmul", "atan2", "dropout_residual_layer_norm"}},
      {P::kAsIs,
       {"add",       "sub",           "mul",       "div",    "maximum", "minimum", "where", "cat",        "lerp",
        "eq",        "neg",           "abs",       "sqrt",   "sigmoid", "tanh",    "relu",  "leaky_relu", "gelu",
        "gelu_tanh", "silu",          "erf",       "sin",    "cos",     "floor",   "clamp", "mean",       "max_min",
        "softmax",   "cross_entropy", "embedding", "gather", "dropout", "sort",    "topk"}}};
  for (const auto& [policy, ops] : expected)
    for (const char* op : ops) EXPECT_EQ(detail::cast_policy(op), policy) << op;
  EXPECT_EQ(detail::cast_policy("nobody"), P::kAsIs);
}

/// The result dtype of each op for 16-bit inputs, in both types of region.
TEST(Autocast, ResultsByTheTable) {
  Generator g = fresh_generator();
  const Tensor x = rand({6, 8}, g) + 0.5;
  const SequenceLayout layout = packed_layout({4, 2});
  using Unary = Tensor (*)(const Tensor&);
  const std::vector<Unary> in_fp32 = {exp, expm1, log, log1p, square, reciprocal, rsqrt, softplus, norm},
                           as_is = {neg,  abs,       sqrt, sigmoid, tanh, tern::relu, tern::gelu,
                                    silu, gelu_tanh, erf,  sin,     cos,  floor};
  for (const DType low : {bfloat16, float16}) {
    const Tensor h = x.to(low), f = x;
    const Autocast region(cpu, low);
    for (size_t i = 0; i < in_fp32.size(); ++i) EXPECT_EQ(in_fp32[i](h).dtype(), float32) << i;
    for (size_t i = 0; i < as_is.size(); ++i) {
      EXPECT_EQ(as_is[i](h).dtype(), low) << i;
      EXPECT_EQ(as_is[i](f).dtype(), float32) << i;
    }
    expect_dtype(
        float32,
        {pow(h, h), pow(h, 2.0), sum(h), sum(h, {0}), prod(h, {0}), mse_loss(h, h), mse_loss(h, f), l1_loss(h, f),
         kl_div(h, h), 1.0 / h, add(h, f), mul(f, h), maximum(h, f), where(gt(h, h), h, f), cat({h, f}), stack({f, h}),
         dropout_residual_layer_norm(h, f, {}, {}, 1e-5), softmax(f), cross_entropy(h, zeros({6}, {.dtype = int64}))});
    expect_dtype(low, {matmul(f, f.t()),
                       matmul(h, f.t()),
                       linear(f, f),
                       linear(f, f, rand({6}, g)),
                       attention(f.reshape({6, 1, 8}), h.reshape({6, 1, 8}), f.reshape({6, 1, 8}), layout, layout),
                       mean(h),
                       var(h),
                       logsumexp(h, {1}),
                       add(h, h),
                       mul(h, h),
                       mul(h, 3.0),
                       div(h, 3.0),
                       maximum(h, h),
                       cat({h, h}),
                       softmax(h),
                       log_softmax(h),
                       layer_norm(h, rand({8}, g), {}),
                       layer_norm(h, {}, {}),
                       rms_norm(h),
                       dropout(h, {.p = 0.5}),
                       mul(h, full({}, 2))});  // a number as a tensor does not widen, as in PyTorch
  }
}

/// fp64, integers, explicit types and in-place ops are not cast, and nothing is in a disabled region.
TEST(Autocast, WhatIsNeverCast) {
  Generator g = fresh_generator();
  const Tensor d = rand({4, 4}, g, {.dtype = float64}), i = full({4, 4}, 3, {.dtype = int64}), f = rand({4, 4}, g);
  for (const DType low : {bfloat16, float16}) {
    const Autocast region(cpu, low);
    expect_dtype(float64, {matmul(d, d), exp(d), sum(d), mse_loss(d, d), i.to(float64)});
    expect_dtype(int64, {sum(i), square(i), add(i, i)});
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
    expect_dtype(low, {exp(h), sum(h), matmul(h, h)});
    EXPECT_EQ(matmul(f, f).dtype(), float32);
  }
  EXPECT_FALSE(autocast_enabled(cpu));
  expect_error([&] { matmul(f.to(bfloat16), f); }, {"matmul", "bfloat16", "float32"});
  expect_error([] { Autocast(cpu, float64); }, {"autocast", "float64"});
  // A region for one device type does not affect the other.
  const Autocast other({DeviceType::kCUDA, 0}, bfloat16);
  EXPECT_EQ(matmul(f, f).dtype(), float32);
  EXPECT_TRUE(autocast_enabled({DeviceType::kCUDA, 0}));
}

/// The cached copy of a weight serves two backward passes of one region, and an inner region keeps it.
TEST(Autocast, ACachedWeightServesTwoBackwardPasses) {
  Generator g = fresh_generator();
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
  without_grad([&] { w.mul_(3); });
  EXPECT_EQ(linear(x, w)[0][0].item<double>(), 12);  // not the old weight
}

TEST(Autocast, GradientsHaveTheParametersDtype) {
  Generator g = fresh_generator();
  Tensor x, w, b;
  const auto gradients = [&](DType dtype, bool backward_inside) {
    Tensors leaves = {x.detach().clone(), w.detach().clone(), b.detach().clone()};
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
    return Tensors{leaves[0].grad(), leaves[1].grad(), leaves[2].grad()};
  };
  std::vector<std::vector<double>> errors(3);
  for (int draw = 0; draw < 15; ++draw) {
    x = randn({6, 8}, g);
    w = randn({5, 8}, g);
    b = randn({5}, g);
    const Tensors outside = gradients(bfloat16, false), inside = gradients(bfloat16, true),
                  full = gradients(float32, false);
    for (size_t i = 0; i < full.size(); ++i) {
      EXPECT_EQ(outside[i].dtype(), float32);
      expect_equal(inside[i], outside[i]);  // the caller's region has no effect on backward
      EXPECT_NE(outside[i].to_vector<double>(), full[i].to_vector<double>());
      const double error = relative_error(outside[i].to_vector<double>(), full[i].to_vector<double>());
      ASSERT_TRUE(std::isfinite(error)) << i;
      errors[i].push_back(error);
    }
  }
  // Eight successive roundings to bf16, of at most 2^-8 each, give 0.004 of the gradient's norm. One draw in fifty has
  // a gradient so small that they give 0.015; the median is smaller except in one run of 10^9.
  for (std::vector<double>& of_input : errors) {
    std::sort(of_input.begin(), of_input.end());
    EXPECT_LE(of_input[7], 0.015);
  }
}

/// Each outermost region uses the weights' values at its begin, however they were changed.
TEST(Autocast, CopiesOfWeightsAreRenewedByTheNextRegion) {
  Tensor w = ones({3, 4}, {.requires_grad = true}), b = zeros({3}, {.requires_grad = true});
  const Tensor x = ones({2, 4});
  const auto run = [&] { return autocast(cpu, bfloat16, [&] { return linear(x, w, b); }); };
  EXPECT_EQ(run()[0][0].item<double>(), 4);
  const auto copied = [&] { return detail::weight_copies().size(); };
  const size_t kept = copied();
  EXPECT_GE(kept, 2u);
  w.data<float>()[0] = 5;  // does not change the version
  EXPECT_EQ(run()[0][0].item<double>(), 8);
  without_grad([&] { w.fill_(2); });
  without_grad([&] { b.fill_(1); });
  EXPECT_EQ(run()[0][0].item<double>(), 9);
  EXPECT_EQ(autocast(cpu, float16, [&] { return linear(x, w, b); })[0][0].item<double>(), 9);
  EXPECT_EQ(copied(), kept);
  // Two regions before one backward: the first region's copy is still valid unless the weight changed.
  const Tensor first = sum(run()), second = sum(run());
  first.backward();
  second.backward();
  EXPECT_EQ(w.grad()[0][0].item<double>(), 4);
  const Tensor y = sum(autocast(cpu, bfloat16, [&] { return linear(ones({2, 4}, {.requires_grad = true}), w, b); }));
  without_grad([&] { w.fill_(3); });
  run();
  expect_error([&] { y.backward(); }, {"linear", "modified"});
}

/// The gradient of an fp32 weight is never rounded to 16 bits.
TEST(Autocast, TheWeightsGradientIsFp32) {
  Tensor w = ones({1, 1}, {.requires_grad = true}), b = ones({1}, {.requires_grad = true});
  const Autocast region(cpu, bfloat16);
  const Tensor x = ones({257, 1});
  sum(linear(x, w, b)).backward();
  EXPECT_EQ(w.grad().item<double>(), 257);
  EXPECT_EQ(b.grad().item<double>(), 257);
}

}  // namespace
}  // namespace tern::test

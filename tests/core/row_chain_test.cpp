// A chain has the bits of the ops that it stands for: at every CPU level, number of threads, dtype, and way in which
// the kernel cuts it into blocks.

#include "tern/core/ops/row_chain.h"

#include <cstdlib>

#include "tern/core/autograd/autocast.h"
#include "tern/core/ops/matmul/packed_linear.h"
#include "tern/tests/core/rounding.h"
#include "tern/tests/support/levels.h"

namespace tern::test {
namespace {

struct Layer {
  Tensor weight, bias;
  Activation activation = Activation::kNone;

  Layer(int64_t in, int64_t out, DType dtype, bool with_bias, Generator& generator)
      : weight((randn({out, in}, generator) * 0.3).to(dtype)) {
    if (with_bias) bias = randn({out}, generator).to(dtype);
  }
  Tensor of(const Tensor& x) const { return linear(x, weight, bias, activation); }
  void append_to(RowChain& chain) const { chain.linear(weight, bias, activation); }
};

/// Layers, self-attention behind the first of them if there are heads, and what may follow.
struct Steps {
  std::vector<Layer> layers;
  int64_t heads = 0;
  SequenceLayout layout = {};
  AttentionOptions attention = {};

  RowChain chain(const Tensor& x) const {
    RowChain chain(x);
    for (size_t i = 0; i < layers.size(); ++i) {
      layers[i].append_to(chain);
      if (i == 0 && heads > 0) chain.self_attention(heads, layout, attention);
    }
    return chain;
  }
  Tensor together(const Tensor& x) const { return chain(x).result(); }
  Tensor in_turn(Tensor x) const {
    for (size_t i = 0; i < layers.size(); ++i) {
      x = layers[i].of(x);
      if (i == 0 && heads > 0) x = self_attention(x.reshape({x.size(0), 3, heads, -1}), layout, attention);
    }
    return x;
  }
  SumAndNorm together(const Tensor& x, const AddNormOptions& end) const { return chain(x).add_norm(end); }
  SumAndNorm in_turn(const Tensor& x, const AddNormOptions& end) const {
    return dropout_residual_sum_layer_norm(in_turn(x), end.residual, end.weight, end.bias, end.eps, end.dropout);
  }
  std::vector<Tensor*> parameters() {
    std::vector<Tensor*> all;
    for (Layer& layer : layers) all.insert(all.end(), {&layer.weight, &layer.bias});
    return all;
  }
};

void expect_same(const SumAndNorm& got, const SumAndNorm& want, bool gives_sum) {
  expect_equal(got.norm, want.norm);
  ASSERT_EQ(got.sum.defined(), gives_sum);
  if (gives_sum) expect_equal(got.sum, want.sum);
}

AddNormOptions random_end(const Shape& shape, DType dtype, Generator& generator) {
  const int64_t out = shape.size(-1);
  return {.residual = randn(shape, generator).to(dtype),
          .weight = randn({out}, generator).to(dtype),
          .bias = randn({out}, generator).to(dtype),
          .eps = 1e-6};
}

/// Layers of these widths; the activation of all but the last is `activation`.
Steps layers_of(const std::vector<int64_t>& widths, Activation activation, Generator& generator, DType dtype = float32,
                bool biases = true) {
  Steps steps;
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    steps.layers.emplace_back(widths[i], widths[i + 1], dtype, biases, generator);
    if (i + 2 < widths.size()) steps.layers.back().activation = activation;
  }
  return steps;
}

class RowChainTest : public testing::Test {
 protected:
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  int64_t between(int64_t minimum, int64_t maximum) { return minimum + below(maximum - minimum + 1); }
  Activation any_activation() {
    constexpr Activation kActivations[] = {Activation::kNone, Activation::kGelu, Activation::kRelu};
    return kActivations[below(3)];
  }
  /// Calls check(dtype) at every CPU level until something failed.
  template <class Check>
  void at_every_level(const Check& check) {
    for (const kernels::CpuLevel level : testable_levels()) {
      kernels::set_cpu_level(level);
      for (const DType dtype : {float32, bfloat16, float16, float64}) {
        SCOPED_TRACE(std::string(kernels::name_of(level)));
        check(dtype);
        if (HasFailure()) return;
      }
    }
  }

  const RestoreKernels restore_;
  const uint64_t seed_ = fresh_seed();
  const testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
  Generator generator_{seed_};
  std::mt19937_64 random_{seed_};
};

TEST_F(RowChainTest, LayersAndNorms) {
  at_every_level([&](DType dtype) {
    // Few rows, blocks of 64, 128 and 256 rows, with a last one of any size.
    for (const int64_t rows :
         {1 + below(127), 128 + below(384), 512 + below(600), 1024 + below(100), 2048 + below(300)}) {
      std::vector<int64_t> widths;
      for (int64_t i = between(2, 4); i > 0; --i) widths.push_back(below(4) ? between(16, 150) : between(1, 15));
      Steps steps = layers_of(widths, any_activation(), generator_, dtype, below(3) > 0);
      if (below(3) == 0) steps.layers.back().activation = any_activation();
      const Tensor x = randn({rows, widths[0]}, generator_).to(dtype);
      SCOPED_TRACE(x.describe() + " to " + std::to_string(widths.back()) + " in " +
                   std::to_string(steps.layers.size()) + " layers");
      kernels::set_num_threads(static_cast<int>(between(1, 3)));
      expect_equal(steps.together(x), steps.in_turn(x));
      AddNormOptions end = random_end({rows, widths.back()}, dtype, generator_);
      end.gives_sum = below(2) == 0;
      if (below(4) == 0) end.weight = {};
      if (below(4) == 0) end.bias = {};
      if (below(3) == 0 && end.weight.defined()) end.weight = end.weight.to(float32);
      expect_same(steps.together(x, end), steps.in_turn(x, end), end.gives_sum);
      if (HasFailure()) return;
    }
  });
}

/// Weights that are packed once, stored as [out, in] or [in, out], for many numbers of rows. The products of fp32 at
/// level v3 are others than those of the op.
TEST_F(RowChainTest, PackedWeights) {
  const NoGrad off;
  at_every_level([&](DType dtype) {
    const bool same_bits = dtype != float32 || kernels::cpu_level() != kernels::CpuLevel::kV3;
    const auto expect = [&](const Tensor& got, const Tensor& want) {
      if (same_bits) return expect_equal(got, want);
      ASSERT_EQ(got.shape(), want.shape());
      EXPECT_LE(max(abs(got - want)).item<double>(), 1e-5 * max(abs(want)).item<double>());
    };
    for (const int64_t in : {between(16, 99), between(520, 1100)}) {
      Steps steps = layers_of({in, between(16, 150), between(16, 99)}, any_activation(), generator_, dtype);
      for (Layer& layer : steps.layers)
        if (below(2)) layer.weight = layer.weight.t().contiguous().t();
      std::vector<detail::PackedLinear> packed(steps.layers.size());
      const auto chain_of = [&](const Tensor& x) {
        RowChain chain(x);
        for (size_t i = 0; i < packed.size(); ++i)
          chain.linear(steps.layers[i].weight, steps.layers[i].bias, steps.layers[i].activation, &packed[i]);
        return chain;
      };
      for (const int64_t rows : {between(1, 127), between(128, 511), between(512, 2047), between(2048, 2500)}) {
        const Tensor x = randn({rows, steps.layers[0].weight.size(1)}, generator_).to(dtype);
        SCOPED_TRACE(x.describe());
        kernels::set_num_threads(static_cast<int>(between(1, 3)));
        for (int round = 0; round < 2; ++round) {
          expect(chain_of(x).result(), steps.in_turn(x));
          const AddNormOptions end = random_end({rows, steps.layers.back().weight.size(0)}, dtype, generator_);
          const SumAndNorm got = chain_of(x).add_norm(end), want = steps.in_turn(x, end);
          expect(got.sum, want.sum);
          expect(got.norm, want.norm);
          RowChain alone(x);
          alone.linear(steps.layers[0].weight, {}, Activation::kNone, &packed[0]);
          expect(alone.result(), linear(x, steps.layers[0].weight));
          steps.layers[1].weight.mul_(-2);  // its copy is out of date
        }
        const bool packs = kernels::linear_packing({}, dtype, rows, 16, 16) != 0;
        EXPECT_EQ(packed[0].find(rows, dtype, steps.layers[0].weight).defined(), packs);
      }
    }
  });
}

/// A copy is made of the weight as autocast casts it.
TEST_F(RowChainTest, PackedWeightsUnderAutocast) {
  const NoGrad off;
  const Steps steps = layers_of({40, 80, 24}, Activation::kGelu, generator_);
  const Tensor x = randn({700, 40}, generator_);
  std::vector<detail::PackedLinear> packed(2);
  for (int round = 0; round < 2; ++round)
    for (const DType dtype : {bfloat16, float16, float32}) {
      const Autocast region(cpu, dtype);
      RowChain chain(x);
      for (size_t i = 0; i < 2; ++i)
        chain.linear(steps.layers[i].weight, steps.layers[i].bias, steps.layers[i].activation, &packed[i]);
      expect_equal(chain.result(), steps.in_turn(x));
    }
}

/// Where a gradient is recorded, the layer is the op.
TEST_F(RowChainTest, PackedWeightsWithGradients) {
  Steps steps = layers_of({20, 24}, Activation::kNone, generator_);
  const Tensor x = randn({300, 20}, generator_), weight = steps.layers[0].weight.set_requires_grad(true);
  detail::PackedLinear packed;
  RowChain chain(x);
  chain.linear(weight, steps.layers[0].bias, Activation::kNone, &packed);
  sum(square(chain.result())).backward();
  const Tensor got = weight.grad().clone();
  steps.layers[0].weight.set_grad({});
  sum(square(linear(x, weight, steps.layers[0].bias))).backward();
  expect_equal(got, weight.grad());
}

TEST_F(RowChainTest, SelfAttention) {
  at_every_level([&](DType dtype) {
    // Many short sequences, some in a block each; sequences longer than a block of scores; few.
    for (const auto& [sequences, length] : {std::pair{between(40, 99), between(26, 39)},
                                            {17, between(65, 74)},
                                            {between(130, 149), between(8, 10)},
                                            {between(8, 15), between(128, 217)},
                                            {between(1, 3), between(1, 80)}}) {
      const int64_t heads = between(1, 3), head_dim = between(8, 37), in = between(16, 65), out = between(16, 40);
      Steps steps;
      steps.layers.emplace_back(in, 3 * heads * head_dim, dtype, below(3) > 0, generator_);
      if (below(2)) steps.layers.emplace_back(heads * head_dim, out, dtype, true, generator_);
      steps.heads = heads;
      Tensor mask;
      if (below(3) == 0) mask = gt(rand({sequences, length}, generator_), full({sequences, length}, 0.3));
      steps.layout = padded_layout(sequences, length, mask);
      steps.attention = {
          .scale = below(2) ? 0.0 : 0.3, .causal = below(3) == 0, .window = below(3) == 0 ? below(length) : -1};
      const Tensor x = randn({sequences * length, in}, generator_).to(dtype);
      SCOPED_TRACE(x.describe() + ", " + std::to_string(sequences) + " sequences, " + std::to_string(heads) +
                   " heads of " + std::to_string(head_dim));
      kernels::set_num_threads(static_cast<int>(between(1, 3)));
      expect_equal(steps.together(x), steps.in_turn(x));
      const AddNormOptions end =
          random_end({x.size(0), steps.layers.size() > 1 ? out : heads * head_dim}, dtype, generator_);
      expect_same(steps.together(x, end), steps.in_turn(x, end), true);
      if (HasFailure()) return;
    }
  });
}

/// Layers before the projection of an attention.
TEST_F(RowChainTest, AttentionInTheMiddle) {
  at_every_level([&](DType dtype) {
    const Layer first(20, 33, dtype, true, generator_), projection(33, 3 * 2 * 9, dtype, true, generator_),
        last(18, 25, dtype, true, generator_);
    const SequenceLayout layout = packed_layout(std::vector<int64_t>(50, 13));
    const Tensor x = randn({650, 20}, generator_).to(dtype);
    RowChain chain(x);
    first.append_to(chain);
    projection.append_to(chain);
    chain.self_attention(2, layout);
    last.append_to(chain);
    const Tensor qkv = projection.of(first.of(x)).reshape({650, 3, 2, 9});
    expect_equal(chain.result(), last.of(self_attention(qkv, layout)));
  });
}

/// Where products go by blocks, what is between the steps is not in memory.
TEST_F(RowChainTest, BlocksStayInCache) {
  const char* const limit = std::getenv("TERN_CPU_LEVEL");
  if (!kernels::has_cpu_level(kernels::CpuLevel::kV4) || (limit && std::string(limit) != "v4"))
    GTEST_SKIP() << "cpu: AVX-512, with which oneDNN has packed products";
  kernels::set_cpu_level(kernels::CpuLevel::kV4);
  kernels::set_num_threads(2);
  const int64_t rows = 40000, width = 64;
  const Tensor x = zeros({rows, width}), wide = zeros({4 * width, width}), narrow = zeros({width, 4 * width}),
               projection = zeros({3 * width, width});
  const SequenceLayout layout = packed_layout(std::vector<int64_t>(1000, 40));
  kernels::AttentionParams p;
  p.sequences = 1000;
  p.query_offsets = p.key_offsets = layout.offsets.data<int32_t>();
  p.max_query_length = p.max_key_length = 40;
  p.heads = p.kv_heads = 2;
  p.head_dim = 32;
  using kernels::LinearStep, kernels::RowStep;
  const kernels::AddNormStep end{x.view(), {}, {}, 1e-5, {}};
  const RowStep network[] = {LinearStep{wide.view(), {}}, LinearStep{narrow.view(), {}}, end};
  const RowStep attention[] = {LinearStep{projection.view(), {}}, kernels::SelfAttentionStep{p}};
  EXPECT_LT(kernels::row_chain_workspace({}, x.view(), network), rows * width * 4);
  EXPECT_LT(kernels::row_chain_workspace({}, x.view(), attention), rows * width * 4);
}

TEST_F(RowChainTest, FeedForwardAgainstDouble) {
  const int64_t n = 600, out = 47;
  const Steps steps = layers_of({33, 130, out}, Activation::kGelu, generator_);
  const Tensor x = randn({2, n, 33}, generator_);
  const AddNormOptions end = random_end({2, n, out}, float32, generator_);
  const Rounded hidden = gelu(linear(Rounded(x), steps.layers[0].weight, steps.layers[0].bias));
  const Rounded product = linear(hidden, steps.layers[1].weight, steps.layers[1].bias);
  const Rounded sum = product + Rounded(end.residual);
  const NoGrad off;
  expect_within(steps.together(x), product);
  const SumAndNorm got = steps.together(x, end);
  expect_within(got.sum, sum);
  expect_within(got.norm, RoundedNorm(sum, end.eps).result(end.weight, end.bias));
}

TEST_F(RowChainTest, AttentionAgainstDouble) {
  kernels::set_num_threads(2);
  const int64_t n = 40, length = 33, heads = 3, head_dim = 20, in = 50;
  Steps steps = layers_of({in, 3 * heads * head_dim}, Activation::kNone, generator_);
  steps.heads = heads;
  steps.layout = padded_layout(n, length);
  const Tensor x = randn({n * length, in}, generator_);
  const Rounded qkv = linear(Rounded(x), steps.layers[0].weight, steps.layers[0].bias);
  const auto cut = [&](const Tensor& t) { return t.reshape({n * length, 3, heads, head_dim}); };
  expect_within(steps.together(x), self_attention(qkv.map(cut), std::vector<int64_t>(n, length)));
}

TEST_F(RowChainTest, UnderAutocast) {
  const Steps steps = layers_of({40, 80, 24}, Activation::kGelu, generator_);
  Steps attention = layers_of({40, 96}, Activation::kNone, generator_);
  attention.heads = 2;
  attention.layout = padded_layout(50, 32);
  const Tensor x = randn({1600, 40}, generator_);
  for (const DType dtype : {bfloat16, float16}) {
    const Autocast region(cpu, dtype);
    for (const Steps* s : {&steps, static_cast<const Steps*>(&attention)}) {
      const Tensor got = s->together(x);
      EXPECT_EQ(got.dtype(), dtype);
      expect_equal(got, s->in_turn(x));
    }
    for (const DType residual : {dtype, float32}) {  // of two types the sum has the wider one
      AddNormOptions end = random_end({1600, 24}, float32, generator_);
      end.residual = end.residual.to(residual);
      const SumAndNorm got = steps.together(x, end);
      EXPECT_EQ(got.norm.dtype(), residual);
      expect_same(got, steps.in_turn(x, end), true);
    }
  }
}

TEST_F(RowChainTest, WithGradientsAndDropout) {
  Steps steps = layers_of({21, 54, 18}, Activation::kRelu, generator_);
  steps.layers[0].activation = Activation::kNone;  // a projection
  steps.heads = 2;
  steps.layers[1] = Layer(18, 18, float32, true, generator_);
  steps.layout = padded_layout(40, 5);
  const Tensor x = randn({200, 21}, generator_);
  const AddNormOptions end = random_end({200, 18}, float32, generator_);
  for (const double p : {0.0, 0.4}) {
    const auto with_draws = [&](Generator& draws) {
      std::pair<Steps, AddNormOptions> own(steps, end);
      own.first.attention = {.dropout = p, .generator = &draws};
      own.second.dropout = {.p = p, .generator = &draws};
      return own;
    };
    const auto gradients = [&](bool together) {
      Generator draws = fresh_generator(3);
      auto [own, own_end] = with_draws(draws);
      std::vector<Tensor*> wanting = own.parameters();
      wanting.insert(wanting.end(), {&own_end.residual, &own_end.weight});
      Tensors leaves;
      for (Tensor* t : wanting) leaves.push_back(*t = t->detach().clone().set_requires_grad(true));
      const SumAndNorm got = together ? own.together(x, own_end) : own.in_turn(x, own_end);
      sum(square(got.norm) + got.sum * 0.3).backward();
      for (Tensor& t : leaves) t = t.grad();
      return leaves;
    };
    expect_equal(gradients(true), gradients(false));
    // Without recording too, dropout draws what it draws.
    const NoGrad off;
    Generator draws1 = fresh_generator(4), draws2 = fresh_generator(4);
    const auto [steps1, end1] = with_draws(draws1);
    const auto [steps2, end2] = with_draws(draws2);
    expect_same(steps1.together(x, end1), steps2.in_turn(x, end2), true);
    EXPECT_EQ(draws1.offset(), draws2.offset());
  }
}

/// A gradient wanted by one of the steps' inputs alone is found; without recording the result has none.
TEST_F(RowChainTest, WhatIsRecorded) {
  const Steps steps = layers_of({21, 50, 18}, Activation::kGelu, generator_);
  const Tensor x = randn({200, 21}, generator_);
  const AddNormOptions end = random_end({200, 18}, float32, generator_);
  for (int which = 0; which < 7; ++which) {
    Steps own = steps;
    AddNormOptions own_end = end;
    Tensor own_x = x;
    Tensor* const inputs[] = {
        &own_x,          &own.layers[0].weight, &own.layers[0].bias, &own.layers[1].weight, &own_end.residual,
        &own_end.weight, &own_end.bias};
    Tensor leaf = *inputs[which] = inputs[which]->clone().set_requires_grad(true);
    const SumAndNorm got = own.together(own_x, own_end), want = own.in_turn(own_x, own_end);
    ASSERT_TRUE(got.norm.requires_grad()) << which;
    sum(got.norm * want.norm.detach()).backward();
    const Tensor gradient = leaf.grad();
    leaf.set_grad({});
    sum(want.norm * want.norm.detach()).backward();
    expect_equal(gradient, leaf.grad());
    const NoGrad off;
    EXPECT_FALSE(own.together(own_x, own_end).norm.requires_grad()) << which;
  }
}

TEST_F(RowChainTest, OtherFunctionsBetween) {
  const Steps steps = layers_of({20, 33, 17}, Activation::kNone, generator_);
  const Tensor x = randn({300, 20}, generator_);
  RowChain chain(x);
  steps.layers[0].append_to(chain);
  chain.apply([](const Tensor& rows) { return tanh(rows); });
  steps.layers[1].append_to(chain);
  expect_equal(chain.result(), steps.layers[1].of(tanh(steps.layers[0].of(x))));
  expect_equal(chain.result(), chain.result());
}

TEST_F(RowChainTest, ViewsAndEmptyShapes) {
  const Steps steps = layers_of({20, 33, 17}, Activation::kGelu, generator_);
  const Tensor x = randn({20, 1100}, generator_).t();
  AddNormOptions end = random_end({17, 1100}, float32, generator_);
  end.weight = end.bias = {};
  end.residual = end.residual.t();
  expect_same(steps.together(x, end), steps.in_turn(x.contiguous(), end), true);
  expect_equal(steps.together(x[0]), steps.in_turn(x[0]));
  expect_equal(RowChain(x).result(), x);
  end.residual = zeros({0, 17});
  EXPECT_EQ(steps.together(zeros({0, 20}), end).norm.shape(), (Shape{0, 17}));
  const Tensor bias = randn({3}, generator_);
  RowChain without_hidden(zeros({200, 4}));
  without_hidden.linear(zeros({0, 4}), {}, Activation::kGelu);
  without_hidden.linear(zeros({3, 0}), bias);
  expect_equal(without_hidden.result(), bias.expand({200, 3}));
}

TEST_F(RowChainTest, OtherLayouts) {
  Steps steps = layers_of({24, 72}, Activation::kNone, generator_);
  steps.heads = 3;
  const Tensor x = randn({24, 1300}, generator_).t();
  // Sequences of several lengths, empty ones, and tokens behind the last one.
  std::vector<int64_t> mixed(100, 13);  // as many tokens as if all were like the first
  for (size_t i = 10; i < 90; i += 2) {
    --mixed[i];
    ++mixed[i + 1];
  }
  for (const std::vector<int64_t>& lengths :
       {std::vector<int64_t>(100, 13), std::vector<int64_t>(99, 13), mixed, {1000, 300}, {0, 1300}, {}, {0, 0}}) {
    steps.layout = packed_layout(lengths);
    expect_equal(steps.together(x), steps.in_turn(x.contiguous()));
  }
  EXPECT_EQ(steps.together(zeros({0, 24})).shape(), (Shape{0, 24}));
  steps.layout = packed_layout(std::vector<int64_t>(100, 13));
  steps.attention.bias = randn({1, 3, 13, 13}, generator_);
  expect_equal(steps.together(x), steps.in_turn(x));
}

TEST_F(RowChainTest, BadLayers) {
  const Tensor x = zeros({200, 16}), weight = zeros({20, 16});
  const auto call = [&](const Tensor& w1, const Tensor& b1, const Tensor& w2, const Tensor& b2) {
    return [=] {
      RowChain chain(x);
      chain.linear(w1, b1, Activation::kGelu);
      chain.linear(w2, b2);
    };
  };
  const Tensor second = zeros({4, 20});
  expect_error(call(zeros({20, 15}), {}, second, {}), {"linear: x is [200, 16], expected [..., 15]"});
  expect_error(call(weight, zeros({4}), second, {}), {"linear: bias is [4], expected [20]"});
  expect_error(call(weight, {}, zeros({4, 6}), {}), {"linear: x is [200, 20], expected [..., 6]"});
  expect_error(call(weight, {}, zeros({20}), {}), {"weight must be [out, in], got [20]"});
  expect_error(call(weight, {}, second, zeros({5})), {"linear: bias is [5], expected [4]"});
  expect_error(call(weight, {}, second.to(float64), {}), {"x is float32 and weight float64"});
}

TEST_F(RowChainTest, BadNorms) {
  const Tensor x = zeros({200, 16}), weight = zeros({20, 16});
  const auto call = [&](auto change) {
    AddNormOptions end = {.residual = zeros({200, 20}), .weight = zeros({20}), .bias = zeros({20})};
    change(end);
    return [=] {
      RowChain chain(x);
      chain.linear(weight);
      chain.add_norm(end);
    };
  };
  call([](AddNormOptions&) {})();
  call([](AddNormOptions& end) { end.dropout.row_keys = zeros({200}, {.dtype = int64}); })();
  expect_error(call([](AddNormOptions& end) { end.dropout.row_keys = zeros({100}, {.dtype = int64}); }),
               {"layer_norm: row_keys is", "expected contiguous int64 [200]"});
  expect_error(call([](AddNormOptions& end) { end.residual = zeros({200, 19}); }), {"residual is", "[200, 19]"});
  expect_error(call([](AddNormOptions& end) { end.residual = zeros({100, 40}); }), {"residual is", "[100, 40]"});
  expect_error(call([](AddNormOptions& end) { end.residual = end.residual.to(int64); }), {"residual is"});
  expect_error(call([](AddNormOptions& end) { end.weight = zeros({21}); }), {"weight must be [20], got [21]"});
  expect_error(call([](AddNormOptions& end) { end.bias = zeros({20}).to(int32); }), {"bias must be float32", "int32"});
  expect_error(call([](AddNormOptions& end) { end.eps = -1; }), {"eps must be a finite number >= 0, got -1"});
  expect_error(call([](AddNormOptions& end) { end.dropout.p = 2; }), {"dropout"});
}

TEST_F(RowChainTest, BadAttention) {
  const auto call = [](const Tensor& x, const Tensor& weight, int64_t heads, const SequenceLayout& layout) {
    return [=] {
      RowChain chain(x);
      chain.linear(weight);
      chain.self_attention(heads, layout);
    };
  };
  const Tensor x = zeros({4, 5}), weight = zeros({12, 5});
  const SequenceLayout layout = packed_layout({4});
  call(x, weight, 2, layout)();
  expect_error(call(zeros({2, 2, 5}), weight, 2, layout),
               {"expected rows [tokens, 3 * heads * head_dim]", "[2, 2, 12]"});
  expect_error(call(x, zeros({13, 5}), 2, layout), {"[4, 13] and 2 heads"});
  expect_error(call(x, weight, 0, layout), {"0 heads"});
  expect_error(call(x, weight, -2, layout), {"-2 heads"});
  expect_error(call(zeros({3, 5}), weight, 2, layout), {"sequences end at token 4, there are 3 tokens"});
  expect_error(call(x, zeros({0, 5}), 2, layout), {"head_dim must be 1 to 256, got 0"});
  SequenceLayout late = packed_layout({2, 2});
  late.offsets = from_vector<int32_t>({1, 2, 4}, {3});
  const std::vector<std::string> parts = {"offsets run from 1 to 4", "expected from 0 to at most 4"};
  expect_error(call(x, weight, 2, late), parts);
  expect_error([&] { self_attention(zeros({4, 3, 1, 2}), late); }, parts);
}

}  // namespace
}  // namespace tern::test

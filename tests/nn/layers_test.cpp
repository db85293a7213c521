// Layers against their formulas in double precision and against the ops they are made of.

#include "tern/nn/nn.h"
#include "tern/tests/core/rounding.h"
#include "tern/tests/core/state.h"

namespace tern::test {
namespace {

/// Equal salts give equal numbers, others differ.
nn::Scope scope(uint64_t salt = 1, DType dtype = float32) {
  return nn::Scope({.dtype = dtype, .generator = fresh_generator(salt)});
}

TEST(Linear, AgainstItsFormula) {
  for (const bool bias : {true, false}) {
    const nn::Linear layer(scope(), 7, 5, {.bias = bias});
    EXPECT_EQ(layer.bias().has_value(), bias);
    const Tensor x = fresh_normal({3, 2, 7}, 2);
    const Rounded y = linear(Rounded(x), layer.weight().tensor(), bias ? layer.bias()->tensor() : Tensor());
    expect_within(layer.forward(x), y);
    expect_within(layer.forward(x, Activation::kRelu), relu(y));
  }
}

TEST(Linear, InitialisersAndErrors) {
  const nn::Linear linear(scope(), 3, 2, {.weight_init = nn::init::constant(2), .bias_init = nn::init::ones()});
  EXPECT_EQ(linear.forward(ones({1, 3})).to_vector<float>(), (std::vector<float>{7, 7}));
  expect_error([] { nn::Linear(scope(), -1, 2); }, {"-1"});
  EXPECT_NO_THROW(nn::Linear(scope(), 0, 2));
}

TEST(Embedding, RowsAndPadding) {
  nn::Embedding embedding(scope(), 5, 3, {.padding_index = 0});
  const Tensor ids = from_vector<int64_t>({0, 4, 1, 4}, {2, 2});
  const Tensor y = embedding.forward(ids);
  EXPECT_EQ(y.shape(), (Shape{2, 2, 3}));
  const auto w = embedding.weight().tensor().to_vector<float>(), rows = y.to_vector<float>();
  for (size_t j = 0; j < 3; ++j) {
    EXPECT_EQ(rows[j], 0);
    EXPECT_EQ(rows[3 + j], w[12 + j]);
    EXPECT_EQ(rows[6 + j], w[3 + j]);
  }
  sum(y).backward();
  EXPECT_EQ(embedding.weight().grad().to_vector<float>(),
            (std::vector<float>{0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 2, 2, 2}));
  expect_error([] { nn::Embedding(scope(), 5, 3, {.padding_index = 5}); }, {"below 5"});
  EXPECT_TRUE(embedding.weight().tensor().has_few_gradient_rows());
  EXPECT_FALSE(nn::Linear(scope(), 5, 3).weight().tensor().has_few_gradient_rows());
  EXPECT_THROW(embedding.forward(from_vector<int64_t>({5}, {1})), Error);
}

TEST(LayerNorm, AgainstItsFormula) {
  nn::LayerNorm norm(scope(), 5, {.eps = 0.1});
  const Tensor weight = fresh_normal({5}, 3), shift = fresh_normal({5}, 4);
  norm.load_state_dict({{"weight", weight}, {"bias", shift}});
  const Tensor x = fresh_normal({3, 5}, 5), residual = fresh_normal({3, 5}, 6);
  expect_within(norm.forward(x), RoundedNorm(Rounded(x), 0.1).result(weight, shift));
  expect_within(norm.forward(x, residual), RoundedNorm(Rounded(x) + Rounded(residual), 0.1).result(weight, shift));
}

TEST(LayerNorm, GivesTheSumThatItNormalisesToo) {
  Generator g = fresh_generator();
  const nn::LayerNorm norm(nn::Scope({.dtype = float64, .generator = g}), 9);
  const Tensor x = randn({4, 9}, g, {.dtype = float64}), residual = randn({4, 9}, g, {.dtype = float64});
  RowChain chain(x);
  const SumAndNorm both = norm.end(chain, residual, {}, true);
  EXPECT_FALSE(norm.end(chain, residual, {}, false).sum.defined());
  const Rounded sum = Rounded(x) + Rounded(residual);
  expect_within(both.sum, sum);
  expect_within(both.norm, RoundedNorm(sum, 1e-5).result({}, {}), 2);  // what is wanted is fp64 too
}

TEST(LayerNorm, OptionsAndErrors) {
  const nn::LayerNorm plain(scope(), 4, {.affine = false});
  EXPECT_TRUE(plain.parameters().empty());
  EXPECT_EQ(plain.forward(fresh_normal({2, 4}, 1)).to_vector<float>(),
            nn::LayerNorm(scope(), 4).forward(fresh_normal({2, 4}, 1)).to_vector<float>());  // times 1, plus 0
  expect_error([&] { plain.forward(ones({2, 3})); }, {"[2, 3]"});
  EXPECT_THROW(nn::LayerNorm(scope(), 0), Error);
  EXPECT_THROW(nn::LayerNorm(scope(), 4, {.eps = NAN}), Error);
}

TEST(Dropout, FollowsTheTrainingFlagAndTheGenerator) {
  nn::Dropout drop(scope(3), 0.25);
  const Tensor x = ones({100, 40});
  const auto first = drop.forward(x).to_vector<float>(), second = drop.forward(x).to_vector<float>();
  EXPECT_NE(first, second);
  nn::Dropout again(scope(3), 0.25);
  EXPECT_EQ(again.forward(x).to_vector<float>(), first);
  for (const float v : first) EXPECT_TRUE(v == 0 || v == 4.0f / 3) << v;
  drop.eval();
  EXPECT_TRUE(same(drop.forward(x), x));
  EXPECT_EQ(drop.options().p, 0);
  drop.train();
  EXPECT_EQ(drop.options().p, 0.25);
  const Tensor keys = from_vector<int64_t>({5, 9, 5}, {3});
  const auto rows = drop.forward(ones({3, 64}), keys);
  EXPECT_EQ(rows[0].to_vector<float>(), rows[2].to_vector<float>());
  EXPECT_NE(rows[0].to_vector<float>(), rows[1].to_vector<float>());
  EXPECT_THROW(nn::Dropout(scope(), 1.5), Error);
  EXPECT_THROW(nn::Dropout(scope(), NAN), Error);
}

TEST(Sequential, ModulesAndFunctions) {
  const nn::Sequential body(scope(), nn::make<nn::Linear>(4, 6), tern::gelu,
                            nn::make<nn::Linear>(6, 2, nn::LinearOptions{.bias = false}),
                            [](const Tensor& x) { return x * 2.0; });
  EXPECT_EQ(body.size(), 4);
  const StateView state = body.state_dict();
  ASSERT_EQ(names_of(state), (std::vector<std::string>{"0.weight", "0.bias", "2.weight"}));
  const Tensor x = fresh_normal({3, 4}, 9);
  const Tensor expected = linear(gelu(linear(x, state[0].tensor, state[1].tensor)), state[2].tensor) * 2.0;
  EXPECT_EQ(body.forward(x).to_vector<float>(), expected.to_vector<float>());
  EXPECT_TRUE(same(nn::Sequential(scope()).forward(x), x));
  EXPECT_THROW(nn::Sequential(scope(), std::function<Tensor(const Tensor&)>()), Error);
}

TEST(ModuleList, InPlace) {
  nn::ModuleList<nn::Linear> list(scope(), 2, 3, 3);
  list.emplace_back(3, 5);
  EXPECT_EQ(list.size(), 3);
  EXPECT_EQ(list[2].name(), "2");
  EXPECT_EQ(list.parameters()[4].name, "2.weight");
  Tensor x = ones({1, 3});
  for (const nn::Linear& layer : list) x = layer.forward(x);
  EXPECT_EQ(x.shape(), (Shape{1, 5}));
  expect_error([&] { list[3]; }, {"[0, 3)"});
  EXPECT_THROW(list[-1], Error);
}

/// Attention of one sequence from plain ops: softmax(q k^T / sqrt(d)) v per head.
Tensor composed(const StateView& state, const Tensor& x, const Tensor& memory, int64_t heads, int64_t keys_used,
                bool causal) {
  const int64_t width = x.size(1), size = width / heads, rows = x.size(0), keys = memory.size(0);
  const Tensor w = find(state, "qkv.weight"), b = find(state, "qkv.bias");
  const auto project = [&](const Tensor& input, int64_t part) {
    Tensor y = matmul(input, w.slice(0, part * width, (part + 1) * width).t());
    if (b.defined()) y = y + b.slice(0, part * width, (part + 1) * width);
    return y.reshape({input.size(0), heads, size}).transpose(0, 1);  // [heads, tokens, size]
  };
  Tensor scores = matmul(project(x, 0), project(memory, 1).t()) * (1 / std::sqrt(static_cast<double>(size)));
  std::vector<double> mask;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < keys; ++j) mask.push_back(j >= keys_used || (causal && j > i) ? -1e30 : 0);
  scores = scores + from_vector(mask, {1, rows, keys}).to(x.dtype());
  Tensor y = matmul(softmax(scores), project(memory, 2)).transpose(0, 1).reshape({rows, width});
  y = matmul(y, find(state, "out.weight").t());
  return b.defined() ? y + find(state, "out.bias") : y;
}

/// In fp64 on both sides. Of at most 100 roundings in a row, each of 2^-53 of numbers that are at most some ten times
/// as large as what they add up to: no mistake in a formula is as small as 1e-12 of the whole.
void expect_close(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape(), b.shape());
  EXPECT_LE(relative_error(a.to_vector<double>(), b.to_vector<double>()), 1e-12);
}

void randomise(nn::Module& module) {
  uint64_t salt = 100;
  StateView state;
  for (const NamedTensor& entry : module.state_dict())
    state.push_back({entry.name, fresh_normal(entry.tensor.shape(), salt++, entry.tensor.dtype()) * 0.5});
  module.load_state_dict(state);
}

TEST(MultiHeadAttention, ParametersAsInPyTorch) {
  const nn::MultiHeadAttention attention(scope(), 96, 4);
  const StateView state = attention.state_dict();
  ASSERT_EQ(state.size(), 4u);
  EXPECT_EQ(find(state, "qkv.weight").shape(), (Shape{288, 96}));
  EXPECT_EQ(find(state, "out.weight").shape(), (Shape{96, 96}));
  for (const float v : find(state, "qkv.bias").to_vector<float>()) EXPECT_EQ(v, 0);
  double largest = 0;
  for (const double v : find(state, "qkv.weight").to_vector<double>()) largest = std::max(largest, std::abs(v));
  // Of 27,648 uniform numbers none in the last 1/1000 of [0, bound]: one run in 10^12.
  const double bound = std::sqrt(6.0 / (288 + 96));
  EXPECT_LE(largest, bound * (1 + 0x1p-23));
  EXPECT_GE(largest, 0.999 * bound);
  EXPECT_THROW(nn::MultiHeadAttention(scope(), 10, 3), Error);
  EXPECT_THROW(nn::MultiHeadAttention(scope(), 0, 1), Error);
  EXPECT_THROW(nn::MultiHeadAttention(scope(), 4, 2, {.dropout = -0.1}), Error);
}

TEST(MultiHeadAttention, PaddedAndPackedAgreeWithComposed) {
  for (const bool causal : {false, true})
    for (const bool bias : {false, true}) {
      nn::MultiHeadAttention attention(scope(1, float64), 12, 3, {.bias = bias, .causal = causal});
      randomise(attention);
      const StateView state = attention.state_dict();
      const Tensor x = fresh_normal({2, 7, 12}, 8, float64);
      std::vector<uint8_t> mask(14, 1);
      for (size_t j = 4; j < 7; ++j) mask[7 + j] = 0;
      const Tensor y = attention.forward(x, from_vector(mask, {2, 7}));
      expect_close(y[0], composed(state, x[0], x[0], 3, 7, causal));
      expect_close(y[1].slice(0, 0, 4), composed(state, x[1], x[1], 3, 4, causal).slice(0, 0, 4));

      const Tensor tokens = cat({x[0], x[1].slice(0, 0, 4)});
      const Tensor packed = attention.forward(tokens, packed_layout({7, 4}));
      expect_close(packed.slice(0, 0, 7), y[0]);
      expect_close(packed.slice(0, 7, 11), y[1].slice(0, 0, 4));
    }
}

TEST(MultiHeadAttention, CrossAttentionAgreesWithComposed) {
  nn::MultiHeadAttention attention(scope(1, float64), 8, 2);
  randomise(attention);
  const Tensor x = fresh_normal({5, 8}, 8, float64), memory = fresh_normal({9, 8}, 9, float64);
  const Tensor y = attention.forward(x, packed_layout({2, 3}), memory, packed_layout({4, 5}));
  const StateView state = attention.state_dict();
  expect_close(y.slice(0, 0, 2), composed(state, x.slice(0, 0, 2), memory.slice(0, 0, 4), 2, 4, false));
  expect_close(y.slice(0, 2, 5), composed(state, x.slice(0, 2, 5), memory.slice(0, 4, 9), 2, 5, false));
  const Tensor self = attention.forward(x, packed_layout({2, 3}), x, packed_layout({2, 3}));
  expect_close(self, attention.forward(x, packed_layout({2, 3})));
  EXPECT_THROW(attention.forward(fresh_normal({5, 7}, 1, float64), packed_layout({5})), Error);
  EXPECT_THROW(attention.forward(x), Error);
}

TEST(MultiHeadAttention, GradientsAgreeWithComposed) {
  const auto gradients = [](bool fused, bool cross) {
    nn::MultiHeadAttention attention(scope(1, float64), 8, 2);
    randomise(attention);
    const Tensor x = fresh_normal({6, 8}, 8, float64), memory = cross ? fresh_normal({4, 8}, 9, float64) : x;
    const SequenceLayout layout = packed_layout({6});
    const Tensor y = !fused  ? composed(attention.state_dict(), x, memory, 2, memory.size(0), false)
                     : cross ? attention.forward(x, layout, memory, packed_layout({4}))
                             : attention.forward(x, layout);
    sum(y * fresh_normal({6, 8}, 10, float64)).backward();
    std::vector<Tensor> result;
    for (const NamedTensor& parameter : attention.parameters()) result.push_back(parameter.tensor.grad());
    return result;
  };
  for (const bool cross : {false, true}) {
    const auto fused = gradients(true, cross), expected = gradients(false, cross);
    ASSERT_EQ(fused.size(), 4u);
    for (size_t i = 0; i < fused.size(); ++i) {
      // The key bias's gradient is zero but for rounding: scores of one query all move alike.
      if (i == 1) {
        expect_close(fused[i].slice(0, 0, 8), expected[i].slice(0, 0, 8));
        expect_close(fused[i].slice(0, 16, 24), expected[i].slice(0, 16, 24));
        EXPECT_LE(norm(fused[i].slice(0, 8, 16)).item<double>(), 1e-12 * norm(expected[i]).item<double>());
      } else {
        expect_close(fused[i], expected[i]);
      }
    }
  }
}

TEST(MultiHeadAttention, DropoutOnlyInTraining) {
  nn::MultiHeadAttention attention(scope(), 8, 2, {.dropout = 0.5});
  const Tensor x = fresh_normal({1, 16, 8}, 3);
  EXPECT_NE(attention.forward(x).to_vector<float>(), attention.forward(x).to_vector<float>());
  attention.eval();
  EXPECT_EQ(attention.forward(x).to_vector<float>(), attention.forward(x).to_vector<float>());
}

}  // namespace
}  // namespace tern::test

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
    EXPECT_EQ(layer.bias().defined(), bias);
    const Tensor x = fresh_normal({3, 2, 7}, 2);
    const Rounded y = linear(Rounded(x), layer.weight().tensor(), layer.bias());
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

TEST(RMSNorm, AgainstItsFormulaAndErrors) {
  nn::RMSNorm norm(scope(1, float64), 5, {.eps = 0.1});
  const Tensor weight = fresh_normal({5}, 3, float64), x = fresh_normal({3, 5}, 5, float64);
  EXPECT_EQ(norm.state_dict()[0].tensor.to_vector<double>(), std::vector<double>(5, 1));
  norm.load_state_dict({{"weight", weight}});
  EXPECT_TRUE(same(norm.weight(), norm.state_dict()[0].tensor));
  const auto w = weight.to_vector<double>(), v = x.to_vector<double>(), y = norm.forward(x).to_vector<double>();
  for (size_t r = 0; r < 3; ++r) {
    double squares = 0;
    for (size_t c = 0; c < 5; ++c) squares += v[5 * r + c] * v[5 * r + c];
    for (size_t c = 0; c < 5; ++c) EXPECT_NEAR(y[5 * r + c], v[5 * r + c] / std::sqrt(squares / 5 + 0.1) * w[c], 1e-13);
  }
  // Without eps: that of the type which computes.
  const nn::RMSNorm plain(scope(), 4, {.affine = false});
  EXPECT_TRUE(plain.parameters().empty());
  EXPECT_FALSE(plain.weight().defined());
  for (const auto& [dtype, eps] : {std::pair{float32, 0x1p-23}, {bfloat16, 0x1p-23}, {float64, 0x1p-52}}) {
    const Tensor small = full({1, 4}, 0x1p-12, {.dtype = dtype});
    EXPECT_NEAR(plain.forward(small).to_vector<double>()[0], 0x1p-12 / std::sqrt(0x1p-24 + eps), 0.01) << dtype;
  }
  expect_error([&] { plain.forward(ones({2, 3})); }, {"nn::RMSNorm", "4", "[2, 3]"});
  expect_error([] { nn::RMSNorm(scope(), 0); }, {"> 0"});
  expect_error([] { nn::RMSNorm(scope(), 2, {.eps = NAN}); }, {"finite"});
  expect_error([] { rms_norm(ones({2, 3}), ones({2})); }, {"rms_norm: weight must be [3]"});
  expect_error([] { rms_norm(ones({2, 0})); }, {"rms_norm", "empty"});
}

TEST(LayerNorm, OptionsAndErrors) {
  const nn::LayerNorm plain(scope(), 4, {.affine = false});
  const nn::LayerNorm norm(scope(), 4);
  EXPECT_TRUE(same(norm.weight(), norm.parameters()[0].tensor));
  EXPECT_TRUE(same(norm.bias(), norm.parameters()[1].tensor));
  EXPECT_TRUE(plain.parameters().empty());
  EXPECT_FALSE(plain.weight().defined() || plain.bias().defined());
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

TEST(DropPath, DropsWholeSamples) {
  nn::DropPath drop(scope(3), 0.25);
  const Tensor x = fresh_normal({4000, 2, 3}, 4);
  const auto y = drop.forward(x).to_vector<float>(), values = x.to_vector<float>();
  int dropped = 0;
  for (size_t r = 0; r < 4000; ++r) {
    const bool zero = y[6 * r] == 0;
    dropped += zero;
    for (size_t i = 6 * r; i < 6 * r + 6; ++i) EXPECT_FLOAT_EQ(y[i], zero ? 0 : values[i] / 0.75f);
  }
  EXPECT_NEAR(dropped, 1000, 8 * std::sqrt(4000 * 0.25 * 0.75));  // of 8 deviations: one run in 10^15
  drop.eval();
  EXPECT_TRUE(same(drop.forward(x), x));
  expect_error([] { nn::DropPath(scope(), NAN); }, {"DropPath", "[0, 1]"});
  expect_error([] { nn::DropPath(scope(), 0.5).forward(ones({})); }, {"[samples, ...]"});
}

TEST(Activations, AreTheFunctions) {
  const Tensor x = fresh_normal({3, 4}, 9) * 3.0;
  const auto agrees = [&](const nn::Module& module, const Tensor& y, const Tensor& expected, const char* name) {
    EXPECT_EQ(module.type_name(), name);
    EXPECT_EQ(y.to_vector<float>(), expected.to_vector<float>()) << name;
  };
  const nn::Scope s = scope();
  const nn::ReLU relu(s);
  agrees(relu, relu.forward(x), tern::relu(x), "ReLU");
  const nn::LeakyReLU leaky(s, 0.3);
  agrees(leaky, leaky.forward(x), leaky_relu(x, 0.3), "LeakyReLU");
  agrees(leaky, nn::LeakyReLU(s).forward(x), leaky_relu(x), "LeakyReLU");
  const nn::Hardtanh hard(s, -0.5, 2);
  agrees(hard, hard.forward(x), clamp(x, -0.5, 2), "Hardtanh");
  const nn::Softmax soft(s, 0);
  agrees(soft, soft.forward(x), softmax(x, 0), "Softmax");
  const nn::Sequential chain(s, nn::make<nn::Linear>(4, 4), nn::make<nn::SiLU>(), nn::make<nn::ELU>(0.5));
  agrees(chain, chain.forward(x), elu(silu(linear(x, chain.parameters()[0].tensor, chain.parameters()[1].tensor)), 0.5),
         "Sequential");
  const nn::PReLU trained(s, 4, 0.1);
  agrees(trained, trained.forward(x), leaky_relu(x, 0.1f), "PReLU");
  EXPECT_EQ(trained.parameters()[0].tensor.shape(), Shape{4});
  expect_error([] { nn::PReLU(scope(), 0); }, {"nn::PReLU", ">= 1"});
}

TEST(GLU, AndGatedFeedForward) {
  const Tensor x = fresh_normal({3, 6}, 9, float64), a = x.slice(1, 0, 3), b = x.slice(1, 3);
  EXPECT_EQ(nn::GLU(scope()).forward(x).to_vector<double>(), (a * sigmoid(b)).to_vector<double>());
  EXPECT_EQ(nn::GLU(scope(), {.dim = 0, .gate = tern::relu}).forward(x.t()).to_vector<double>(),
            (a.t() * relu(b.t())).to_vector<double>());
  expect_error([&] { nn::GLU(scope()).forward(a); }, {"nn::GLU", "even", "[3, 3]"});
  nn::GatedFeedForward layer(scope(1, float64), 6, 5);
  const StateView state = layer.state_dict();
  ASSERT_EQ(names_of(state), (std::vector<std::string>{"gate_proj.weight", "up_proj.weight", "down_proj.weight"}));
  const Tensor hidden = silu(matmul(x, state[0].tensor.t())) * matmul(x, state[1].tensor.t());
  EXPECT_LE(
      relative_error(layer.forward(x).to_vector<double>(), matmul(hidden, state[2].tensor.t()).to_vector<double>()),
      1e-13);
}

TEST(Shapes, IdentityFlattenUnflatten) {
  const Tensor x = fresh_normal({2, 6, 5}, 1);
  EXPECT_TRUE(same(nn::Identity(scope()).forward(x), x));
  EXPECT_EQ(nn::Flatten(scope()).forward(x).shape(), (Shape{2, 30}));
  EXPECT_EQ(nn::Flatten(scope(), 0, 1).forward(x).shape(), (Shape{12, 5}));
  EXPECT_EQ(nn::Unflatten(scope(), 1, {3, 2}).forward(x).shape(), (Shape{2, 3, 2, 5}));
  EXPECT_EQ(nn::Unflatten(scope(), -2, {-1, 2}).forward(x).shape(), (Shape{2, 3, 2, 5}));
  expect_error([&] { nn::Unflatten(scope(), 1, {4, -1}).forward(x); }, {"dimension 1 of [2, 6, 5] has 6", "4 times"});
  expect_error([&] { nn::Unflatten(scope(), 0, {3}).forward(x); }, {"multiply to 3"});
  expect_error([] { nn::Unflatten(scope(), 0, {}); }, {"empty"});
}

TEST(Bilinear, AgainstItsFormula) {
  const nn::Bilinear layer(scope(1, float64), 3, 4, 5);
  const Tensor x1 = fresh_normal({2, 7, 3}, 1, float64), x2 = fresh_normal({2, 7, 4}, 2, float64);
  const auto w = layer.weight().tensor().to_vector<double>(), bias = layer.bias().to_vector<double>();
  EXPECT_FALSE(nn::Bilinear(scope(), 2, 2, 2, false).bias().defined());
  const auto a = x1.to_vector<double>(), b = x2.to_vector<double>(), y = layer.forward(x1, x2).to_vector<double>();
  for (size_t r = 0; r < 14; ++r)
    for (size_t o = 0; o < 5; ++o) {
      double expected = bias[o];
      for (size_t i = 0; i < 3; ++i)
        for (size_t j = 0; j < 4; ++j) expected += a[3 * r + i] * w[(o * 3 + i) * 4 + j] * b[4 * r + j];
      EXPECT_NEAR(y[5 * r + o], expected, 1e-13);
    }
  expect_error([&] { layer.forward(x1, x2.slice(1, 0, 3)); }, {"same leading dimensions", "[2, 3, 4]"});
}

/// Bags of ids by loops; the gradient of sum(result * factors).
struct BagReference {
  std::vector<double> result, gradient;
};
BagReference bags_by_loops(const std::vector<double>& table, const std::vector<std::vector<int64_t>>& bags,
                           nn::BagMode mode, int64_t padding, const std::vector<double>& weights,
                           const std::vector<double>& factors) {
  BagReference found{{}, std::vector<double>(table.size(), 0)};
  size_t first = 0;
  for (const std::vector<int64_t>& bag : bags) {
    double count = 0;
    for (const int64_t id : bag) count += id != padding;
    for (size_t c = 0; c < 3; ++c) {
      const double factor = factors[found.result.size()];
      double total = mode == nn::BagMode::kMax && count > 0 ? -INFINITY : 0;
      size_t best = 0;
      for (size_t i = 0; i < bag.size(); ++i) {
        if (bag[i] == padding) continue;
        const size_t at = static_cast<size_t>(bag[i]) * 3 + c;
        const double share = mode == nn::BagMode::kMean ? 1 / count : weights.empty() ? 1 : weights[first + i];
        if (mode == nn::BagMode::kMax) {
          if (table[at] > total) best = at;
          total = std::max(total, table[at]);
        } else {
          total += share * table[at];
          found.gradient[at] += share * factor;
        }
      }
      if (mode == nn::BagMode::kMax && count > 0) found.gradient[best] += factor;
      found.result.push_back(total);
    }
    first += bag.size();
  }
  return found;
}

TEST(EmbeddingBag, AgainstLoops) {
  const std::vector<std::vector<int64_t>> bags = {{1, 4, 4}, {}, {2}, {2, 2}, {0, 3, 2, 1, 4}};
  std::vector<int64_t> ids, starts;
  for (const auto& bag : bags) {
    starts.push_back(static_cast<int64_t>(ids.size()));
    ids.insert(ids.end(), bag.begin(), bag.end());
  }
  const auto n = static_cast<int64_t>(ids.size());
  const Tensor factors = fresh_normal({5, 3}, 3, float64), weights = fresh_normal({n}, 4, float64);
  for (const nn::BagMode mode : {nn::BagMode::kSum, nn::BagMode::kMean, nn::BagMode::kMax})
    for (const int64_t padding : {-1, 2})
      for (const bool weighted : {false, true}) {
        if (weighted && mode != nn::BagMode::kSum) continue;
        std::vector<int64_t> offsets = starts;
        if (padding < 0) offsets.push_back(n);
        nn::EmbeddingBag layer(scope(1, float64), 5, 3,
                               {.mode = mode, .padding_index = padding, .include_last_offset = padding < 0});
        const Tensor y =
            layer.forward(from_vector(ids, {n}), from_vector(offsets, {static_cast<int64_t>(offsets.size())}),
                          weighted ? weights : Tensor());
        sum(y * factors).backward();
        const BagReference expected =
            bags_by_loops(layer.weight().tensor().to_vector<double>(), bags, mode, padding,
                          weighted ? weights.to_vector<double>() : std::vector<double>(), factors.to_vector<double>());
        EXPECT_LE(relative_error(y.to_vector<double>(), expected.result), 1e-13);
        EXPECT_LE(relative_error(layer.weight().grad().to_vector<double>(), expected.gradient), 1e-13);
      }
}

TEST(EmbeddingBag, EqualLengthsAndErrors) {
  const nn::EmbeddingBag layer(scope(), 5, 3, {.mode = nn::BagMode::kSum});
  const Tensor ids = from_vector<int64_t>({1, 2, 3, 4, 0, 1}, {2, 3});
  EXPECT_EQ(layer.forward(ids).to_vector<float>(),
            layer.forward(ids.reshape({6}), from_vector<int64_t>({0, 3}, {2})).to_vector<float>());
  EXPECT_EQ(layer.forward(zeros({2, 0}, {.dtype = int64})).to_vector<float>(), std::vector<float>(6, 0));
  EXPECT_EQ(layer.forward(zeros({0}, {.dtype = int64}), zeros({2}, {.dtype = int64})).to_vector<float>(),
            std::vector<float>(6, 0));
  const auto with_offsets = [&](const std::vector<int64_t>& offsets) {
    layer.forward(ids.reshape({6}), from_vector(offsets, {static_cast<int64_t>(offsets.size())}));
  };
  for (const std::vector<int64_t>& bad : {std::vector<int64_t>{1, 2}, {0, 4, 3}, {0, 7}})
    expect_error([&] { with_offsets(bad); }, {"offsets must begin with 0", "6"});
  expect_error([&] { layer.forward(ids.reshape({6})); }, {"without offsets", "[6]"});
  expect_error([&] { layer.forward(ids, {}, ones({2})); }, {"sample_weights", "[2, 3]"});
  EXPECT_THROW(layer.forward(ids + 5.0), Error);
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
  EXPECT_TRUE(same(body.at<nn::Linear>(0).weight().tensor(), state[0].tensor));
  EXPECT_EQ(body[2].local_name(), "2");
  std::vector<std::string> names;
  for (const nn::Module& module : body) names.push_back(module.local_name());
  EXPECT_EQ(names, (std::vector<std::string>{"0", "2"}));
  expect_error([&] { body[4]; }, {"nn::Sequential: step 4 is outside [0, 4)"});
  expect_error([&] { body[-1]; }, {"step -1 is outside [0, 4)"});
  expect_error([&] { body[1]; }, {"step 1", "a function"});
  expect_error([&] { body.at<nn::LayerNorm>(0); }, {"step 0", "another class"});
  nn::Sequential changed(scope(), nn::make<nn::Linear>(2, 2));
  for (nn::Module& module : changed) module.freeze();
  EXPECT_FALSE(changed.at<nn::Linear>(0).weight().tensor().requires_grad());
  EXPECT_EQ(&changed[0], &changed.at<nn::Linear>(0));
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

TEST(Containers, ModuleDictParameterListParameterDict) {
  nn::ModuleDict<nn::Module> heads(scope());
  heads.emplace<nn::Linear>("start", 2, 3);
  EXPECT_EQ(heads.emplace<nn::LayerNorm>("norm", 2).name(), "norm");
  EXPECT_EQ(heads.keys(), (std::vector<std::string>{"start", "norm"}));
  EXPECT_EQ(names_of(heads.parameters()),
            (std::vector<std::string>{"start.weight", "start.bias", "norm.weight", "norm.bias"}));
  EXPECT_TRUE(heads.contains("norm") && !heads.contains("end") && heads["norm"].type_name() == "LayerNorm");
  expect_error([&] { heads["end"]; }, {"no module named 'end'"});
  expect_error([&] { heads.emplace<nn::Identity>("start"); }, {"already"});
  EXPECT_EQ(heads.size(), 2);

  nn::ParameterList list(scope());
  list.append({2}, nn::init::ones());
  EXPECT_EQ(list.append({3, 1}).name(), "1");
  EXPECT_EQ(names_of(list.parameters()), (std::vector<std::string>{"0", "1"}));
  EXPECT_EQ(list[0].tensor().to_vector<float>(), (std::vector<float>{1, 1}));
  expect_error([&] { list[2]; }, {"index 2", "[0, 2)"});

  nn::ParameterDict dict(scope());
  dict.emplace("scale", {2});
  dict.emplace("bias", {3}, nn::init::ones());
  EXPECT_EQ(dict.keys(), (std::vector<std::string>{"scale", "bias"}));
  EXPECT_TRUE(dict.contains("bias") && !dict.contains("x"));
  EXPECT_EQ(dict["bias"].shape(), Shape{3});
  expect_error([&] { dict["x"]; }, {"no parameter named 'x'"});
  expect_error([&] { dict.emplace("bias", {1}); }, {"already"});
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

TEST(PackedAttention, ParametersAsInPyTorch) {
  const nn::PackedAttention attention(scope(), 96, 4);
  const StateView state = attention.state_dict();
  ASSERT_EQ(state.size(), 4u);
  EXPECT_EQ(find(state, "qkv.weight").shape(), (Shape{288, 96}));
  EXPECT_EQ(find(state, "out.weight").shape(), (Shape{96, 96}));
  for (const float v : find(state, "qkv.bias").to_vector<float>()) EXPECT_EQ(v, 0);
  double largest = 0;
  for (const double v : find(state, "qkv.weight").to_vector<double>()) largest = std::max(largest, std::abs(v));
  // None of 27,648 uniform numbers is in the last 1/1000 of [0, bound]: one run in 10^12.
  const double bound = std::sqrt(6.0 / (288 + 96));
  EXPECT_LE(largest, bound * (1 + 0x1p-23));
  EXPECT_GE(largest, 0.999 * bound);
  EXPECT_THROW(nn::PackedAttention(scope(), 10, 3), Error);
  EXPECT_THROW(nn::PackedAttention(scope(), 0, 1), Error);
  EXPECT_THROW(nn::PackedAttention(scope(), 4, 2, {.dropout = -0.1}), Error);
}

TEST(PackedAttention, PaddedAndPackedAgreeWithComposed) {
  for (const bool causal : {false, true})
    for (const bool bias : {false, true}) {
      nn::PackedAttention attention(scope(1, float64), 12, 3, {.bias = bias, .causal = causal});
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

TEST(PackedAttention, CrossAttentionAgreesWithComposed) {
  nn::PackedAttention attention(scope(1, float64), 8, 2);
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

TEST(PackedAttention, GradientsAgreeWithComposed) {
  const auto gradients = [](bool fused, bool cross) {
    nn::PackedAttention attention(scope(1, float64), 8, 2);
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

TEST(PackedAttention, DropoutOnlyInTraining) {
  nn::PackedAttention attention(scope(), 8, 2, {.dropout = 0.5});
  const Tensor x = fresh_normal({1, 16, 8}, 3);
  EXPECT_NE(attention.forward(x).to_vector<float>(), attention.forward(x).to_vector<float>());
  attention.eval();
  EXPECT_EQ(attention.forward(x).to_vector<float>(), attention.forward(x).to_vector<float>());
}

}  // namespace
}  // namespace tern::test

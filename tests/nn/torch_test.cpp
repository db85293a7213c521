// Modules of PyTorch, whose weights are loaded by their names, against its numbers in float32 and float64; adapters of
// linear layers and convolutions; losses as modules.

#include "tern/core/ops/gradcheck.h"
#include "tern/nn/nn.h"
#include "tern/tests/core/golden.h"
#include "tern/tests/core/state.h"

namespace tern::test {
namespace {

using golden::Json;
using golden::optional;
using golden::Tensors;

/// Loads what `in` has of the module's state, all parameters among it, whose gradients are compared.
void load(nn::Module& module, Tensors& in) {
  StateView state;
  for (const NamedTensor& entry : module.state_dict()) {
    ASSERT_TRUE(in.contains(entry.name)) << entry.name;
    state.push_back({entry.name, in[entry.name].detach()});
  }
  module.load_state_dict(state);
  for (const NamedTensor& parameter : module.parameters()) in[parameter.name] = parameter.tensor;
}

Tensor run_attention(const nn::Scope& s, const Json& params, Tensors& in) {
  nn::MultiheadAttention module(s, params["embed"], params["heads"],
                                {.bias = params.value("bias", true),
                                 .kdim = params.value("kdim", -1),
                                 .vdim = params.value("vdim", -1),
                                 .batch_first = params.value("batch_first", false)});
  load(module, in);
  const std::string weights = params["weights"];
  const bool is_self = in.contains("x");
  const auto found = module.forward(in.at(is_self ? "x" : "q"), in.at(is_self ? "x" : "k"), in.at(is_self ? "x" : "v"),
                                    {optional(in, "key_padding_mask"), optional(in, "attn_mask")},
                                    weights == "none"      ? nn::AttentionWeights::kNone
                                    : weights == "average" ? nn::AttentionWeights::kAverage
                                                           : nn::AttentionWeights::kPerHead);
  return found.weights.defined() ? cat({found.output.flatten(), found.weights.flatten()}) : found.output.flatten();
}

Tensor run_transformer(const nn::Scope& s, bool encodes, const Json& params, Tensors& in) {
  const nn::TransformerLayerOptions options = {.feedforward = 11,
                                               .dropout = 0,
                                               .activation = params["activation"] == "gelu" ? gelu : relu,
                                               .norm_first = params["norm_first"]};
  const auto run = [&](auto& module) {
    load(module, in);
    if constexpr (requires { module.forward(Tensor(), Tensor()); })
      return module.forward(in.at("x"), in.at("memory"), {.attn_mask = in.at("causal").detach()});
    else
      return module.forward(in.at("x"), {.key_padding_mask = in.at("padding")});
  };
  const int64_t layers = params["layers"];
  if (encodes && layers == 0) {
    nn::TransformerEncoderLayer module(s, 8, 2, options);
    return run(module);
  }
  if (encodes) {
    nn::TransformerEncoder module(s, layers, 8, 2, options, true);
    return run(module);
  }
  if (layers == 0) {
    nn::TransformerDecoderLayer module(s, 8, 2, options);
    return run(module);
  }
  nn::TransformerDecoder module(s, layers, 8, 2, options, true);
  return run(module);
}

/// A convolution of 4 channels to 6 with a weight that is a function of parameters.
template <class Layer, class Options>
Tensor run_convolution(const nn::Scope& s, const std::string& op, const Json& params, Tensors& in) {
  Options options;
  options.groups = params["groups"];
  Layer layer(s, 4, 6, params["layer"].get<std::string>().ends_with("3d") ? 2 : 3, options);
  if (op == "weight_norm_conv")
    nn::weight_norm(layer, params["dim"].is_null() ? std::nullopt : std::optional<int>(params["dim"].get<int>()));
  else
    nn::spectral_norm(layer, {.power_iterations = 2});
  load(layer, in);
  layer.train(params["training"]);
  return layer.forward(in.at("x"));
}

Tensor run_convolution(const nn::Scope& s, const std::string& op, const Json& params, Tensors& in) {
  const std::string layer = params["layer"];
  const auto run = layer == "Conv1d"            ? run_convolution<nn::Conv1d, nn::ConvOptions>
                   : layer == "Conv2d"          ? run_convolution<nn::Conv2d, nn::ConvOptions>
                   : layer == "Conv3d"          ? run_convolution<nn::Conv3d, nn::ConvOptions>
                   : layer == "ConvTranspose1d" ? run_convolution<nn::ConvTranspose1d, nn::ConvTransposeOptions>
                   : layer == "ConvTranspose2d" ? run_convolution<nn::ConvTranspose2d, nn::ConvTransposeOptions>
                                                : run_convolution<nn::ConvTranspose3d, nn::ConvTransposeOptions>;
  return run(s, op, params, in);
}

Tensor run_module(const std::string& op, const Json& params, Tensors& in) {
  const nn::Scope s({.dtype = in.at("d_out").dtype(), .generator = fresh_generator()});
  if (op == "multihead_attention") return run_attention(s, params, in);
  if (op.starts_with("transformer")) return run_transformer(s, op == "transformer_encoder", params, in);
  if (op.ends_with("_conv")) return run_convolution(s, op, params, in);
  nn::Linear layer(s, 5, 3);
  if (op == "weight_norm")
    nn::weight_norm(layer, params["dim"].is_null() ? std::nullopt : std::optional<int>(params["dim"].get<int>()));
  else
    nn::spectral_norm(layer, {.power_iterations = 2});
  load(layer, in);
  if (op == "spectral_norm") layer.train(params["training"]);
  return layer.forward(in.at("x"));
}

TEST(GoldenModules, Float32) { golden::check("nn.json", "modules", float32, run_module, 210); }
TEST(GoldenModules, Float64) { golden::check("nn.json", "modules", float64, run_module, 210); }

nn::Scope scope(uint64_t salt) { return nn::Scope({.dtype = float64, .generator = fresh_generator(salt)}); }

/// In fp64 on both sides: no mistake in a formula is as small.
void expect_close(const Tensor& a, const Tensor& b) {
  EXPECT_LE(relative_error(a.to_vector<double>(), b.to_vector<double>()), 1e-12);
}

class Pair final : public nn::Module {
 public:
  explicit Pair(const nn::Scope& s) : Module(s), body_(sub("body"), 5, 4), head_(sub("head"), 4, 3) {}
  Tensor forward(const Tensor& x) const { return head_.forward(body_.forward(x, Activation::kGelu)); }
  nn::Linear body_, head_;
};

TEST(LoRA, AddsTrainsMergesAndSaves) {
  Pair net(scope(1));
  const Tensor x = fresh_normal({6, 5}, 2, float64), plain = net.forward(x);
  EXPECT_EQ(nn::add_lora(net, {.lora = {.rank = 2, .alpha = 6}, .target = "bo*", .trainable = {"head.bias"}}), 1);
  std::vector<std::string> trainable;
  for (const NamedTensor& entry : net.parameters())
    if (entry.tensor.requires_grad()) trainable.push_back(entry.name);
  EXPECT_EQ(trainable, (std::vector<std::string>{"body.lora.A", "body.lora.B", "head.bias"}));
  expect_close(net.forward(x), plain);  // B is zero

  StateView saved;
  for (const NamedTensor& entry : nn::lora_state(net))
    saved.push_back({entry.name, fresh_normal(entry.tensor.shape(), 3 + saved.size(), float64)});
  ASSERT_EQ(saved.size(), 2u);
  load_state(nn::lora_state(net), saved);
  const Tensor weight = net.body_.weight(), before = weight.detach().clone();
  const Tensor sum_of_both = before + matmul(saved[1].tensor, saved[0].tensor) * 3.0;
  const Tensor hidden = gelu(linear(x, sum_of_both, net.body_.bias()));
  const Tensor expected = net.head_.forward(hidden);
  expect_close(net.forward(x), expected);
  sum(net.forward(x)).backward();
  EXPECT_TRUE(net.body_.adapter()->parameters()[0].tensor.grad().defined());
  EXPECT_FALSE(weight.grad().defined());

  nn::merge_lora(net);
  expect_close(weight, sum_of_both);
  expect_close(net.forward(x), expected);
  expect_error([&] { nn::merge_lora(net); }, {"'body' is merged"});
  nn::unmerge_lora(net);
  EXPECT_EQ(weight.to_vector<double>(), before.to_vector<double>());  // the same bits
  expect_close(net.forward(x), expected);
  expect_error([&] { nn::unmerge_lora(net); }, {"'body' is not merged"});
  expect_error([&] { nn::add_lora(net, {.target = "x*"}); }, {"no linear layer matches 'x*'"});
  expect_error([&] { nn::add_lora(net); }, {"'body' has an adapter, 'lora'"});
  expect_error([&] { nn::add_lora(net, {.lora = {.rank = 0}, .target = "head"}); }, {"rank must be >= 1"});
}

TEST(LoRA, ChangesNothingOnAnError) {
  Pair net(scope(1));
  expect_error([&] { nn::merge_lora(net); }, {"nn::merge_lora", "add_lora()"});
  expect_error([&] { nn::unmerge_lora(net); }, {"nn::unmerge_lora", "add_lora()"});
  expect_error([&] { nn::add_lora(net, {.trainable = {"head.*", "top.*"}}); }, {"'top.*' of trainable"});
  expect_error([&] { nn::add_lora(net, {.lora = {.dropout = 2}}); }, {"dropout must be in [0, 1], got 2"});
  EXPECT_EQ(net.body_.adapter(), nullptr);
  for (const NamedTensor& entry : net.parameters()) EXPECT_TRUE(entry.tensor.requires_grad()) << entry.name;
}

TEST(LoRA, DropsInputsOfTheAdditionOnly) {
  nn::Linear layer(scope(1), 5, 4);
  const Tensor x = fresh_normal({6, 5}, 2, float64), plain = layer.forward(x);
  nn::add_lora(layer, {.lora = {.dropout = 1}});
  load_state(nn::lora_state(layer), {{"lora.A", ones({8, 5})}, {"lora.B", ones({4, 8})}});
  expect_close(layer.forward(x), plain);
}

TEST(LoRA, DropsInTrainingOnly) {
  nn::Linear layer(scope(1), 5, 4);
  nn::add_lora(layer, {.lora = {.dropout = 0.5}});
  EXPECT_EQ(nn::lora_state(layer).size(), 2u);
  load_state(nn::lora_state(layer), {{"lora.A", ones({8, 5})}, {"lora.B", ones({4, 8})}});
  const Tensor x = fresh_normal({6, 5}, 2, float64);
  EXPECT_NE(layer.forward(x).to_vector<double>(), layer.forward(x).to_vector<double>());
  layer.eval();
  EXPECT_EQ(layer.forward(x).to_vector<double>(), layer.forward(x).to_vector<double>());
}

TEST(Parametrizations, StartUnchangedIterateAndFold) {
  const Tensor x = fresh_normal({6, 5}, 2, float64);
  for (const std::optional<int> dim : {std::optional<int>(0), std::optional<int>(1), std::optional<int>()}) {
    nn::Linear layer(scope(1), 5, 4);
    const Tensor plain = layer.forward(x);
    nn::weight_norm(layer, dim);
    expect_close(layer.forward(x), plain);
    nn::remove_parametrization(layer);
    EXPECT_FALSE(layer.adapter());
    expect_close(layer.forward(x), plain);
  }
  nn::Linear layer(scope(1), 5, 4);
  const Tensor own = layer.weight().tensor().detach().clone();
  const nn::SpectralNorm& adapter = nn::spectral_norm(layer);
  for (int i = 0; i < 2000; ++i) layer.forward(x);  // the estimate converges in training
  const Tensor used = adapter.weight(layer.weight());
  // The largest singular value of the weight in use is 1: powers of its Gram matrix tend to a projection.
  Tensor power = matmul(used.detach(), used.detach().t());
  for (int i = 0; i < 12; ++i) power = matmul(power, power);
  EXPECT_NEAR(norm(power).item<double>(), 1, 1e-6);
  expect_close(used / norm(used), own / norm(own));
  layer.eval();
  const auto buffers = layer.buffers()[0].tensor.to_vector<double>();
  layer.forward(x);
  EXPECT_EQ(layer.buffers()[0].tensor.to_vector<double>(), buffers);
  nn::remove_parametrization(layer);
  expect_close(layer.weight(), used);
  expect_error([&] { nn::remove_parametrization(layer); }, {"has no weight_norm or spectral_norm"});
  expect_error([&] { nn::weight_norm(layer, 2); }, {"dim must be in [0, 2) or none, got 2"});
  expect_error([&] { nn::spectral_norm(layer, {.power_iterations = 0}); }, {"power_iterations must be in [1, 10000]"});
}

// The golden cases have the numbers; here is what a user does: the network is unchanged at first, g is learned, and the
// weight in use stays when the parametrization goes.
TEST(Parametrizations, OfConvolutions) {
  const Tensor x = fresh_normal({2, 3, 7}, 2, float64);
  nn::Conv1d conv(scope(1), 3, 4, 3, {.padding = 2, .dilation = 2});
  const Tensor plain = conv.forward(x);
  nn::weight_norm(conv);
  expect_close(conv.forward(x), plain);
  std::vector<std::string> names;
  for (const NamedTensor& entry : conv.state_dict()) names.push_back(entry.name);
  EXPECT_EQ(names, (std::vector<std::string>{"weight", "bias", "weight_norm.g"}));
  EXPECT_EQ(conv.parameters()[2].tensor.shape(), (Shape{4, 1, 1}));
  const auto run = [&](const std::vector<Tensor>& in) {
    const StateView given = {{"weight", in[1]}, {"weight_norm.g", in[2]}};
    return nn::functional_call(conv, given, [&] { return conv.forward(in[0]); });
  };
  std::vector<Tensor> leaves = {x, conv.weight(), conv.parameters()[2].tensor};
  for (Tensor& leaf : leaves) leaf = leaf.detach().clone().set_requires_grad(true);
  gradcheck(run, leaves, {.second = true});
  NoGrad off;
  conv.parameters()[2].tensor.mul_(2.0);
  const Tensor doubled = conv.forward(x);
  expect_close(doubled - conv.bias().unsqueeze(1), 2 * (plain - conv.bias().unsqueeze(1)));
  expect_error([&] { nn::spectral_norm(conv); }, {"nn::Conv1d: ", "has an adapter, 'weight_norm'"});
  nn::remove_parametrization(conv);
  EXPECT_FALSE(conv.adapter());
  expect_close(conv.forward(x), doubled);
  expect_error([&] { nn::remove_parametrization(conv); }, {"has no weight_norm or spectral_norm"});
  expect_error([&] { nn::weight_norm(conv, 3); }, {"dim must be in [0, 3) or none, got 3"});
}

// A later step of training changes the vectors of the earlier one.
TEST(Parametrizations, BackwardOfAnEarlierForwardReadsItsOwnVectors) {
  nn::Linear layer(scope(1), 5, 4);
  nn::spectral_norm(layer);
  const Tensor x = fresh_normal({6, 5}, 2, float64);
  const Tensor earlier = layer.forward(x);
  const Tensor u = layer.buffers()[0].tensor.clone(), v = layer.buffers()[1].tensor.clone();
  const Tensor w = layer.weight().tensor().detach().clone().set_requires_grad(true);
  const Tensor expected = linear(x, w / sum(u * matmul(w, v)), layer.bias());
  layer.forward(x);
  expect_close(earlier, expected);
  expect_close(grad({sum(earlier * earlier)}, {layer.weight()})[0], grad({sum(expected * expected)}, {w})[0]);
}

TEST(MultiheadAttention, FusedIsComposedAndErrors) {
  const nn::MultiheadAttention attention(scope(1), 8, 2, {.batch_first = true});
  const Tensor x = fresh_normal({2, 5, 8}, 2, float64), memory = fresh_normal({2, 3, 8}, 3, float64);
  const Tensor mask = nn::generate_square_subsequent_mask(5);
  EXPECT_EQ(mask[1].to_vector<double>(), (std::vector<double>{0, 0, -INFINITY, -INFINITY, -INFINITY}));
  for (const Tensor& keys : {x, memory}) {
    const nn::MultiheadAttentionMasks masks{.attn_mask = same(keys, x) ? mask : Tensor()};
    const auto composed = attention.forward(x, keys, keys, masks);
    const auto fused = attention.forward(x, keys, keys, masks, nn::AttentionWeights::kNone);
    expect_close(fused.output, composed.output);
    EXPECT_FALSE(fused.weights.defined());
    EXPECT_EQ(composed.weights.shape(), (Shape{2, 5, keys.size(1)}));
  }
  nn::MultiheadAttention drops(scope(1), 8, 2, {.dropout = 0.5});
  const auto twice = [&](nn::AttentionWeights w) {
    return std::pair(drops.forward(x, x, x, {}, w).output.to_vector<double>(),
                     drops.forward(x, x, x, {}, w).output.to_vector<double>());
  };
  for (const auto w : {nn::AttentionWeights::kNone, nn::AttentionWeights::kAverage}) {
    drops.train();
    EXPECT_NE(twice(w).first, twice(w).second);
    drops.eval();
    EXPECT_EQ(twice(w).first, twice(w).second);
  }
  expect_error([] { nn::MultiheadAttention(scope(1), 10, 3); }, {"positive multiple of heads"});
  expect_error([&] { attention.forward(x, memory, x); }, {"as many values as keys", "[2, 3, 8]"});
  expect_error([&] { attention.forward(x, x, x[0]); }, {"3 dimensions, or 2 without a batch"});
  expect_error(
      [&] {
        attention.forward(x, x, x, {.attn_mask = ones({5, 4})});
      },
      {"attn_mask must be [5, 5] or [4, 5, 5]"});
  expect_error([&] { attention.forward(x, x, x, {.key_padding_mask = ones({5})}); }, {"must be [2, 5], got [5]"});
  expect_error(
      [&] {
        attention.forward(x, x, x, {.attn_mask = zeros({5, 5}, {.dtype = int64})});
      },
      {"attn_mask must be bool or floating, got int64"});
}

/// The weights in a loss's options are its buffers, which a state replaces.
TEST(Losses, AreTheFunctions) {
  const nn::Scope s({.generator = Generator(fresh_seed())});
  const Tensor x = fresh_normal({3, 4}, 11), y = fresh_normal({3, 4}, 12), z = fresh_normal({3, 4}, 13);
  const Tensor classes = from_vector<int64_t>({0, 3, 2}, {3}), signs = tensor({1, -1, 1});
  const auto agrees = [](const Tensor& result, const Tensor& expected) {
    EXPECT_EQ(result.to_vector<float>(), expected.to_vector<float>());
  };
  nn::CrossEntropyLoss weighted(s, {.weight = tensor({1, 2, 3, 4}), .label_smoothing = 0.1});
  ASSERT_EQ(names_of(weighted.state_dict()), std::vector<std::string>{"weight"});
  for (const double factor : {1.0, 2.0}) {
    const Tensor weight = tensor({1, 2 * factor, 3, 4});
    weighted.load_state_dict({{"weight", weight}});
    agrees(weighted.forward(x, classes), cross_entropy(x, classes, {.weight = weight, .label_smoothing = 0.1}));
  }
  const Tensor labels = sigmoid(y), more = tensor({1, 5, 2, 3});
  agrees(nn::BCEWithLogitsLoss(s, {.pos_weight = more}).forward(x, labels),
         binary_cross_entropy_with_logits(x, labels, {.pos_weight = more}));
  agrees(nn::HuberLoss(s, 0.3, LossReduction::kNone).forward(x, y), huber_loss(x, y, 0.3, LossReduction::kNone));
  agrees(nn::MSELoss(s, LossReduction::kSum).forward(x, y), mse_loss(x, y, LossReduction::kSum));
  agrees(nn::CosineEmbeddingLoss(s, {.margin = 0.2}).forward(x, y, signs),
         cosine_embedding_loss(x, y, signs, {.margin = 0.2}));
  agrees(nn::MultiMarginLoss(s, {.p = 2}).forward(x, classes), multi_margin_loss(x, classes, {.p = 2}));
  agrees(nn::MultiLabelSoftMarginLoss(s, {.weight = more}).forward(x, labels),
         multilabel_soft_margin_loss(x, labels, {.weight = more}));
  const Tensor lists = from_vector<int64_t>({1, -1, 0, 0, 2, 3, 0, -1, -1, 0, 0, 0}, {3, 4});
  agrees(nn::MultiLabelMarginLoss(s).forward(x, lists), multilabel_margin_loss(x, lists));
  const Tensor scores = log_softmax(x), frames = from_vector<int64_t>({3}, {1}), words = from_vector<int64_t>({2}, {1});
  agrees(nn::CTCLoss(s, {.blank = 3}).forward(scores, words, frames.squeeze(0), ones({}, {.dtype = int64})),
         ctc_loss(scores, words, frames, ones({1}, {.dtype = int64}), {.blank = 3}));
  agrees(nn::TripletMarginLoss(s).forward(x, y, z), triplet_margin_loss(x, y, z));
  agrees(nn::TripletMarginWithDistanceLoss(s).forward(x, y, z), triplet_margin_with_distance_loss(x, y, z));
}

}  // namespace
}  // namespace tern::test

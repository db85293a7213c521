// An adapter in place of a Linear is used by whatever uses the layer: training, recomputation, inference, the encoder's
// short way to the first rows.

#include <cmath>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/ops.h"
#include "tern/models/encoder/encoder.h"
#include "tern/tests/core/core_test.h"
#include "tern/tests/core/tolerance.h"

namespace tern::models {
namespace {

using test::expect_equal;

/// LoRA: x weight^T + bias + scale * x (b a)^T.
class LowRank final : public nn::LinearAdapter {
 public:
  LowRank(const nn::Scope& s, const nn::Linear& linear, int64_t rank, double scale)
      : LinearAdapter(s),
        scale_(scale),
        a_(this, "a", {rank, linear.weight().shape()[1]}, nn::init::normal(0, 0.2)),
        b_(this, "b", {linear.weight().shape()[0], rank}, nn::init::normal(0, 0.2)) {}

  Tensor forward(const nn::Linear& linear, const Tensor& x, Activation activation) const override {
    const Tensor base = tern::linear(x, linear.weight(), linear.bias_or_none());
    const Tensor sum = base + tern::linear(tern::linear(x, a_), b_) * scale_;
    return activation == Activation::kGelu ? gelu(sum) : activation == Activation::kRelu ? relu(sum) : sum;
  }
  Tensor merged(const nn::Linear& linear) const { return linear.weight().tensor() + matmul(b_.tensor(), a_) * scale_; }

 private:
  double scale_;
  Parameter a_, b_;
};

/// Calls function(linear) for each of a module's layers.
template <class Function>
void for_each_linear(nn::Module& module, const Function& function) {
  if (auto* const linear = dynamic_cast<nn::Linear*>(&module)) return function(*linear);
  for (nn::Module* child : module.children()) for_each_linear(*child, function);
}

EncoderOptions options(bool norm_first) {
  EncoderOptions o{.width = 48, .heads = 3, .hidden = 80, .layers = 3, .initializer_range = 0.2};
  o.norm_first = norm_first;
  return o;
}

EncoderInput input_of(int64_t sequences, int64_t length) {
  return {{},
          {},
          arange(0, static_cast<double>(sequences * length), static_cast<double>(length), {.dtype = int64}),
          packed_layout(std::vector<int64_t>(static_cast<size_t>(sequences), length))};
}

TEST(LinearAdapter, CountsInEveryWayThroughTheEncoder) {
  Generator generator = test::fresh_generator();
  const EncoderInput input = input_of(60, 20);
  for (const bool norm_first : {true, false}) {
    SCOPED_TRACE(norm_first);
    Encoder encoder(nn::Scope({.dtype = float64, .generator = generator}), options(norm_first));
    Encoder merged(nn::Scope({.dtype = float64, .generator = generator}), options(norm_first));
    StateView weights = encoder.state_dict();
    int64_t adapters = 0;
    for_each_linear(encoder, [&](nn::Linear& linear) {
      const LowRank& adapter = linear.adapt<LowRank>("lora", 2, 0.7);
      ++adapters;
      const NoGrad off;
      for (NamedTensor& entry : weights)
        if (entry.name == linear.name() + ".weight") entry.tensor = adapter.merged(linear);
    });
    ASSERT_EQ(adapters, 12);
    merged.load_state_dict(weights);
    encoder.eval();
    merged.eval();
    const Tensor x = randn({1200, 48}, generator, {.dtype = float64});
    const auto [all, first] = std::pair(encoder.forward(x, input), encoder.forward_first(x, input));
    // In fp64 on both sides: no mistake in a formula is as small.
    EXPECT_LT(max(abs(all - merged.forward(x, input))).item<double>(), 1e-10);
    EXPECT_LT(max(abs(first - merged.forward_first(x, input))).item<double>(), 1e-10);
    encoder.set_recompute(2);
    expect_equal(encoder.forward(x, input), all);
    expect_equal(encoder.forward_first(x, input), first);
    const NoGrad off;
    expect_equal(encoder.forward(x, input), all);
    expect_equal(encoder.forward_first(x, input), first);
  }
}

TEST(LinearAdapter, ItsParametersAreTrained) {
  Generator generator = test::fresh_generator();
  Encoder encoder(nn::Scope({.dtype = float64, .generator = generator}), options(true));
  for_each_linear(encoder, [](nn::Linear& l) { l.adapt<LowRank>("lora", 2, 0.7); });
  const EncoderInput input = input_of(4, 5);
  const Tensor x = randn({20, 48}, generator, {.dtype = float64});
  for (const int64_t recompute : {0, 1, 2}) {
    encoder.zero_grad();
    encoder.set_recompute(recompute);
    generator.set_offset(1000);
    sum(square(encoder.forward(x, input))).backward();
    int64_t found = 0;
    for (const NamedTensor& entry : encoder.parameters()) {
      if (entry.name.find(".lora.") == std::string::npos) continue;
      ++found;
      ASSERT_TRUE(entry.tensor.grad().defined()) << entry.name;
      EXPECT_GT(max(abs(entry.tensor.grad())).item<double>(), 0) << entry.name;
    }
    EXPECT_EQ(found, 24);
  }
}

TEST(LinearAdapter, OneForEachLayer) {
  Generator generator = test::fresh_generator();
  nn::Linear linear(nn::Scope({.generator = generator}), 4, 3);
  linear.adapt<LowRank>("lora", 1, 1.0);
  test::expect_error([&] { linear.adapt<LowRank>("other", 1, 1.0); }, {"has an adapter, 'lora'"});
  EXPECT_EQ(linear.parameters().size(), 4u);
}

}  // namespace
}  // namespace tern::models

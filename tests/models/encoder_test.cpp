// The encoder: equal bits with other memory layouts, adapters in place of a Linear, and second derivatives.

#include "tern/models/encoder/encoder.h"

#include "tern/core/autograd/autocast.h"
#include "tern/tests/core/core_test.h"

namespace tern::models {
namespace {

using test::expect_equal;

EncoderOptions options(bool norm_first) {
  return {.width = 48, .heads = 3, .hidden = 80, .layers = 3, .initializer_range = 0.2, .norm_first = norm_first};
}

/// Packed sequences of these lengths, without tokens.
data::TokenInput input_of(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> first_rows;
  int64_t row = 0;
  for (const int64_t length : lengths) {
    first_rows.push_back(row);
    row += length;
  }
  return {{}, {}, from_vector(first_rows, {static_cast<int64_t>(lengths.size())}), packed_layout(lengths)};
}
/// Equal lengths, for which attention uses blocks.
data::TokenInput equal_sequences(int64_t sequences, int64_t length) {
  return input_of(std::vector<int64_t>(static_cast<size_t>(sequences), length));
}
data::TokenInput unequal_sequences() {
  std::vector<int64_t> lengths;
  for (int i = 0; i < 60; ++i) lengths.push_back(i % 2 ? 11 : 29);
  return input_of(lengths);
}

/// Inference uses other memory layouts than training.
TEST(Encoder, HasTheSameBitsWithoutGradients) {
  for (const bool norm_first : {true, false})
    for (const bool final_norm : {true, false}) {
      EncoderOptions encoder_options = options(norm_first);
      encoder_options.final_norm = final_norm;
      encoder_options.attention_output_dropout = final_norm;
      Generator generator = test::fresh_generator();
      Encoder encoder(nn::Scope({.generator = generator}), encoder_options);
      const Tensor x = randn({1200, 48}, generator);
      for (const data::TokenInput& input : {equal_sequences(60, 20), unequal_sequences()})
        for (const bool training : {false, true})
          for (const DType dtype : {float32, bfloat16}) {
            SCOPED_TRACE(testing::Message()
                         << "norm_first " << norm_first << ", training " << training << ", " << dtype);
            encoder.train(training);
            const Autocast region(cpu, dtype);
            const auto both = [&] {
              generator.set_offset(100);  // same dropout masks in each run
              const Tensor all = encoder.forward(x, input);
              return std::pair(all, encoder.forward_first(x, input));
            };
            const auto [all, first] = both();
            ASSERT_TRUE(all.requires_grad());
            encoder.set_recompute(2);
            const auto [all_in_parts, first_in_parts] = both();
            encoder.set_recompute(0);
            expect_equal(all_in_parts, all);
            expect_equal(first_in_parts, first);
            const NoGrad off;
            const auto [all_without, first_without] = both();
            expect_equal(all_without, all);
            expect_equal(first_without, first);
          }
    }
}

// --- An adapter is used by whatever uses the layer: training, recomputation, inference, the encoder's short way to the
// first rows.

/// LoRA: x weight^T + bias + scale * x (b a)^T.
class LowRank final : public nn::LinearAdapter {
 public:
  LowRank(const nn::Scope& s, const nn::Linear& linear, int64_t rank, double scale)
      : LinearAdapter(s),
        scale_(scale),
        a_(this, "a", {rank, linear.weight().shape()[1]}, nn::init::normal(0, 0.2)),
        b_(this, "b", {linear.weight().shape()[0], rank}, nn::init::normal(0, 0.2)) {}

  Tensor forward(const nn::Linear& linear, const Tensor& x, Activation activation) const override {
    const Tensor base = tern::linear(x, linear.weight(), linear.bias());
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

TEST(LinearAdapter, CountsInEveryWayThroughTheEncoder) {
  Generator generator = test::fresh_generator();
  const data::TokenInput input = equal_sequences(60, 20);
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
  const data::TokenInput input = equal_sequences(4, 5);
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
  nn::Linear linear(nn::Scope({.generator = test::fresh_generator()}), 4, 3);
  linear.adapt<LowRank>("lora", 1, 1.0);
  test::expect_error([&] { linear.adapt<LowRank>("other", 1, 1.0); }, {"has an adapter, 'lora'"});
  EXPECT_EQ(linear.parameters().size(), 4u);
}

// --- A gradient penalty, through fused attention, dropout and norms: its gradient with respect to the parameters,
// compared with finite differences in fp64.

/// Moves each parameter by `step` times its direction.
void move(const std::vector<NamedTensor>& parameters, const std::vector<Tensor>& directions, double step) {
  const NoGrad off;
  for (size_t i = 0; i < parameters.size(); ++i) Tensor(parameters[i].tensor).add_(directions[i], step);
}

TEST(GradientPenalty, ThroughTheEncoder) {
  const test::RestoreKernels restore;
  kernels::set_num_threads(1);
  const data::TokenInput input = input_of({3, 1, 5});
  for (const bool norm_first : {true, false})
    for (const bool first_rows : {false, true}) {
      SCOPED_TRACE(testing::Message() << "norm_first " << norm_first << ", first_rows " << first_rows);
      EncoderOptions options{.width = 6, .heads = 2, .hidden = 7, .layers = 2, .dropout = 0.2};
      options.attention_dropout = 0.3;
      options.initializer_range = 0.5;
      options.norm_eps = 0.1;  // bounds the third derivatives in the error of the finite difference
      options.norm_first = norm_first;
      Generator generator = test::fresh_generator();
      Encoder encoder(nn::Scope({.dtype = float64, .generator = generator}), options);
      const Tensor x = test::leaf({9, 6}, generator);
      const Tensor weights = randn({first_rows ? 3 : 9, 6}, generator, {.dtype = float64});
      const auto penalty = [&] {
        generator.set_offset(100);  // same dropout masks in each run
        const Tensor y = first_rows ? encoder.forward_first(x, input) : encoder.forward(x, input);
        return sum(square(grad({sum(mul(y, weights))}, {x}, {.create_graph = true})[0]));
      };
      const std::vector<NamedTensor> parameters = encoder.parameters();
      std::vector<Tensor> directions;
      for (const NamedTensor& p : parameters) directions.push_back(randn(p.tensor.shape(), generator, {float64}));

      penalty().backward();
      double slope = 0, size = 0;
      for (size_t i = 0; i < parameters.size(); ++i) {
        const Tensor g = parameters[i].tensor.grad();
        if (!g.defined()) continue;  // the last bias of a norm: no gradient depends on it
        slope += sum(mul(g, directions[i])).item<double>();
        size += sum(square(g)).item<double>();
      }
      constexpr double kStep = 1e-6;
      move(parameters, directions, kStep);
      const double above = penalty().item<double>();
      move(parameters, directions, -2 * kStep);
      const double below = penalty().item<double>();
      // Rounding changes the difference by about 2^-53 / kStep of the penalty, 1e-8 of a gradient of its size.
      EXPECT_LE(std::abs((above - below) / (2 * kStep) - slope), 1e-6 * (1 + std::sqrt(size)));
      EXPECT_GT(size, 1e-6);
    }
}

}  // namespace
}  // namespace tern::models

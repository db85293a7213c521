// A gradient penalty through the encoder with fused attention, dropout and norms: its gradient with respect to the
// parameters, compared with finite differences in fp64.

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/ops.h"
#include "tern/models/encoder/encoder.h"
#include "tern/tests/core/core_test.h"
#include "tern/tests/core/tolerance.h"

namespace tern::models {
namespace {

/// Moves each parameter by `step` times its direction.
void move(const std::vector<NamedTensor>& parameters, const std::vector<Tensor>& directions, double step) {
  const NoGrad off;
  for (size_t i = 0; i < parameters.size(); ++i) Tensor(parameters[i].tensor).add_(directions[i], step);
}

TEST(GradientPenalty, ThroughTheEncoder) {
  kernels::set_num_threads(1);
  const EncoderInput input{{}, {}, from_vector<int64_t>({0, 3, 4}, {3}), packed_layout({3, 1, 5})};
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

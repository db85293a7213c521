// Model-agnostic meta-learning (Finn et al., arXiv:1703.03400) of sine waves: initial weights from which a few steps of
// gradient descent on ten points fit a wave that was never seen.
#include <tern/tern.h>

#include <cstdio>
#include <numbers>

using namespace tern;

/// Points of a wave of random amplitude and phase, to learn from and to judge by.
struct Wave {
  Tensor x, y, other_x, other_y;  // [points, 1]
};

Wave draw(Generator& generator, int64_t others, Device device) {
  const Tensor amplitude = rand({}, generator) * 4.9 + 0.1, phase = rand({}, generator) * std::numbers::pi;
  const auto points = [&](int64_t count) { return rand({count, 1}, generator) * 10.0 - 5.0; };
  const auto wave = [&](const Tensor& x) { return amplitude * sin(x + phase); };
  const Tensor x = points(10), other_x = points(others);
  return {x.to(device), wave(x).to(device), other_x.to(device), wave(other_x).to(device)};
}

Tensor loss_with(const nn::Sequential& net, const StateView& weights, const Tensor& x, const Tensor& y) {
  return nn::functional_call(net, weights, [&] { return mse_loss(net.forward(x), y); });
}

/// The weights after some steps of gradient descent, as functions of the weights before.
StateView adapted(const nn::Sequential& net, const Wave& wave, int steps) {
  StateView fast = net.parameters();
  for (int step = 0; step < steps; ++step) {
    const Tensor loss = loss_with(net, fast, wave.x, wave.y);
    const auto slopes = grad({loss}, tensors_of(fast), {.create_graph = true});
    for (size_t i = 0; i < fast.size(); ++i) fast[i].tensor = fast[i].tensor - 0.02 * slopes[i];
  }
  return fast;
}

/// The mean error on new waves, before and after five steps.
std::pair<double, double> judge(const nn::Sequential& net) {
  Generator generator(7);
  double before = 0, after = 0;
  for (int i = 0; i < 50; ++i) {
    const Wave wave = draw(generator, 50, net.device());
    const StateView fast = adapted(net, wave, 5);
    const NoGrad off;
    before += loss_with(net, net.parameters(), wave.other_x, wave.other_y).item<double>() / 50;
    after += loss_with(net, fast, wave.other_x, wave.other_y).item<double>() / 50;
  }
  return {before, after};
}

int main() try {
  nn::Sequential net(nn::Scope({.device = best_device(), .generator = Generator(42)}), nn::make<nn::Linear>(1, 40),
                     tern::tanh, nn::make<nn::Linear>(40, 40), tern::tanh, nn::make<nn::Linear>(40, 1));
  std::printf("without training: error %.2f, after five steps %.2f\n", judge(net).first, judge(net).second);
  optim::Adam optimizer(net.parameters(), {.lr = 2e-3});
  Generator generator(1);
  for (int step = 0; step < 1500; ++step) {
    for (int i = 0; i < 4; ++i) {
      const Wave wave = draw(generator, 10, net.device());
      const StateView fast = adapted(net, wave, 2);
      // Through the steps of adapted(), by second derivatives.
      (loss_with(net, fast, wave.other_x, wave.other_y) / 4.0).backward();
    }
    optimizer.step({.max_norm = 10});
    optimizer.zero_grad();
  }
  const auto [before, after] = judge(net);
  std::printf("trained: error %.2f, after five steps %.2f\n", before, after);
  TERN_CHECK(after < 1 && after < before / 2, "meta_learning: the error after five steps is ", after);
  return 0;
} catch (const Error& error) {
  std::printf("%s\n", error.what());
  return 1;
}

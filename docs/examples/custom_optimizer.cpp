// An optimizer that is not the library's: the rule for one weight, and its options.
#include <tern/tern.h>

#include <array>
#include <cstdio>

using namespace tern;

// Signum (Bernstein et al., arXiv:1802.04434): the sign of an average of gradients.
struct SignumRule {
  static constexpr std::array state_names = {"momentum_buffer"};
  double lr = 1e-4, momentum = 0.9, weight_decay = 0;
  bool maximize = false;

  template <class F>
  struct Step {
    F keep, rate, momentum, rest;
  };
  template <class F>
  TERN_HD Step<F> prepare(int64_t) const {
    return {F(1 - lr * weight_decay), F(lr), F(momentum), F(1 - momentum)};
  }
  template <class F, class Is>
  TERN_HD static void update(const Step<F>& s, Is, F& weight, F gradient, F& average) {
    average = s.momentum * average + s.rest * gradient;
    weight = weight * s.keep - s.rate * kernels::math::sign(average);
  }
};

struct SignumOptions {
  static constexpr const char* kName = "signum";
  double lr = 1e-4, momentum = 0.9, weight_decay = 0;
  bool maximize = false, master_weights = true, kahan = false, capturable = false;
  SignumRule rule() const { return {lr, momentum, weight_decay, maximize}; }
};
using Signum = optim::RuleOptimizer<SignumOptions>;

int main() {
  constexpr int64_t kSteps = 300;
  Generator generator(1);
  const Tensor x = randn({64, 3}, generator);
  const Tensor y = matmul(x, from_vector<float>({1, -2, 0.5}, {3, 1})) + 0.25;

  nn::Linear model(nn::Scope({.generator = generator}), 3, 1);
  Signum optimizer(model.parameters(), {.lr = 0.05});
  const auto schedule = optim::linear_schedule({.total_steps = kSteps});
  double first = 0, last = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    schedule.apply(optimizer, step);
    const Tensor loss = mse_loss(model.forward(x), y);
    loss.backward();
    optimizer.step({.max_norm = 100, .skip_non_finite = true});  // clipping, skipping and 16-bit weights work as ever
    optimizer.zero_grad();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  std::printf("loss %.3f, then %.1e\n", first, last);
  return last < 1e-3 * first ? 0 : 1;
}

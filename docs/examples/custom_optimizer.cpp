// An optimizer that is not the library's: the rule for one weight, and its options.
#include <tern/tern.h>

#include <array>
#include <cstdio>

using namespace tern;

// Lion (Chen et al., arXiv:2302.06675): the sign of an average of gradients.
struct LionRule {
  static constexpr std::array state_names = {"exp_avg"};
  double lr = 1e-4, beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
  bool maximize = false;

  template <class F>
  struct Step {
    F keep, rate, beta1, rest1, beta2, rest2;
  };
  template <class F>
  TERN_HD Step<F> prepare(int64_t) const {
    return {F(1 - lr * weight_decay), F(lr), F(beta1), F(1 - beta1), F(beta2), F(1 - beta2)};
  }
  template <class F, class Is>
  TERN_HD static void update(const Step<F>& s, Is, F& weight, F gradient, F& average) {
    weight = weight * s.keep - s.rate * kernels::math::sign(s.beta1 * average + s.rest1 * gradient);
    average = s.beta2 * average + s.rest2 * gradient;
  }
};

struct LionOptions {
  static constexpr const char* kName = "lion";
  double lr = 1e-4, beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
  bool maximize = false, master_weights = true, kahan = false, capturable = false;
  LionRule rule() const { return {lr, beta1, beta2, weight_decay, maximize}; }
};
using Lion = optim::RuleOptimizer<LionOptions>;

int main() {
  constexpr int64_t kSteps = 300;
  Generator generator(1);
  const Tensor x = randn({64, 3}, generator);
  const Tensor y = matmul(x, from_vector<float>({1, -2, 0.5}, {3, 1})) + 0.25;

  nn::Linear model(nn::Scope({.generator = generator}), 3, 1);
  Lion optimizer(model.parameters(), {.lr = 0.05});
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

// A critic whose slope is held near 1 (Gulrajani et al., arXiv:1704.00028): a loss that contains a gradient.
#include <tern/tern.h>

#include <cstdio>

using namespace tern;

class Critic final : public nn::Module {
 public:
  explicit Critic(const nn::Scope& s) : Module(s), first_(sub("first"), 2, 32), second_(sub("second"), 32, 1) {}
  Tensor forward(const Tensor& x) const { return second_.forward(first_.forward(x, Activation::kGelu)); }

 private:
  nn::Linear first_, second_;
};

int main() {
  Generator generator(1);
  const Critic critic(nn::Scope({.generator = generator}));
  optim::AdamW optimizer(critic.parameters(), {.lr = 1e-2});
  double loss = 0;
  for (int step = 0; step < 200; ++step) {
    const Tensor x = randn({64, 2}, generator).set_requires_grad(true);
    const Tensor slope = grad({sum(critic.forward(x))}, {x}, {.create_graph = true})[0];
    const Tensor penalty = mean(square(sqrt(sum(square(slope), {1})) - 1.0));
    penalty.backward();
    optimizer.step();
    optimizer.zero_grad();
    loss = penalty.item<double>();
  }
  std::printf("the penalty is %.4f\n", loss);
  return loss < 0.1 ? 0 : 1;
}

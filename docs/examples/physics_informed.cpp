// A physics-informed network (Raissi et al., arXiv:1711.10561): u'' = -pi^2 sin(pi x) with u(0) = u(1) = 0, whose
// solution is sin(pi x). The loss has a second derivative in it, so that training takes third derivatives.

#include <tern/tern.h>

#include <cmath>
#include <cstdio>

using namespace tern;

class Solution final : public nn::Module {
 public:
  explicit Solution(const nn::Scope& s)
      : Module(s),
        layers_(sub("layers"), nn::make<nn::Linear>(1, 32), nn::make<nn::Tanh>(), nn::make<nn::Linear>(32, 32),
                nn::make<nn::Tanh>(), nn::make<nn::Linear>(32, 1)) {}
  Tensor forward(const Tensor& x) const { return layers_.forward(x); }

 private:
  nn::Sequential layers_;
};

// u''(x) + pi^2 sin(pi x), which is 0 for the solution.
Tensor residual(const Solution& u, const Tensor& x) {
  const Tensor first = grad({sum(u.forward(x))}, {x}, {.create_graph = true})[0];
  const Tensor second = grad({sum(first)}, {x}, {.create_graph = true})[0];
  return second + M_PI * M_PI * sin(M_PI * x);
}

int main() {
  Generator generator(42);
  Solution u(nn::Scope({.generator = generator}));
  optim::Adam optimizer(u.parameters(), {.lr = 5e-3});
  const Tensor ends = tensor({0, 1}).unsqueeze(1);
  for (int step = 0; step < 1000; ++step) {
    const Tensor x = rand({64, 1}, generator).set_requires_grad(true);
    const Tensor loss = mean(square(residual(u, x))) / 50 + mean(square(u.forward(ends))) * 10.0;
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
  }

  const NoGrad off;
  const Tensor x = linspace(0, 1, 101).unsqueeze(1);
  const double error = max(abs(u.forward(x) - sin(M_PI * x))).item<double>();
  std::printf("the largest error is %.4f\n", error);
  return error < 0.03 ? 0 : 1;
}

// Two custom ops, checked and used: a pointwise one and a structured one.
#include <tern/tern.h>

#include <cstdio>

using namespace tern;

// x + sin(a x)^2 / a (Ziyin et al., arXiv:2006.08195).
struct Snake {
  static constexpr const char* name = "snake";
  static constexpr auto saves = kernels::Saves::kInputs;  // what derivative() takes
  double a = 1;
  template <class F>
  TERN_HD F forward(F x) const {
    const F sine = kernels::math::sin(F(a) * x);
    return x + sine * sine / F(a);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return F(1) + kernels::math::sin(F(2 * a) * x);
  }
};

Tensor snake(const Tensor& x, double a = 1) { return pointwise(Snake{a}, x); }

// y = x / sqrt(|x|^2 + eps), row by row.
struct RowNormalize final : Function<RowNormalize> {
  static constexpr const char* kName = "row_normalize";
  Saved x_, norm_;
  Tensor forward(const Tensor& x, double eps) {
    TERN_CHECK(x.dim() == 2, "row_normalize: x must be [rows, columns], got ", x.shape());
    const Tensor norm = sqrt(sum(square(x), {1}, true) + eps);
    x_ = x;
    norm_ = norm;
    return x / norm;
  }
  Grads backward(const Tensor& dy) override {
    const Tensor norm = norm_.get(), y = x_.get() / norm;
    return {(dy - y * sum(dy * y, {1}, true)) / norm};
  }
};

Tensor row_normalize(const Tensor& x, double eps = 1e-12) { return RowNormalize::apply(x, eps); }

int main() {
  Generator generator(1);
  const Tensor x = randn({3, 5}, generator, {.dtype = float64, .requires_grad = true});

  // Against finite differences in fp64; an error names the element. Snake also by its second derivative.
  gradcheck([](const std::vector<Tensor>& in) { return snake(in[0], 1.5); }, {x}, {.second = true});
  gradcheck([](const std::vector<Tensor>& in) { return row_normalize(in[0]); }, {x});

  const Tensor low = x.detach().to(bfloat16);  // the same struct in another dtype
  std::printf("snake in bf16 gives %s\n", snake(low).describe().c_str());

  sum(square(row_normalize(x))).backward();  // rows of length 1 whatever x is: no gradient
  const double largest = max(abs(x.grad())).item<double>();
  std::printf("the gradient vanishes: %s\n", largest < 1e-9 ? "yes" : "no");
  return largest < 1e-9 ? 0 : 1;
}

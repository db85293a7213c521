// Clipping outside an optimizer, against loops.

#include "tern/optim/clip.h"

#include "tern/tests/core/rounding.h"
#include "tern/tests/optim/optim_test.h"

namespace tern::test {
namespace {

std::vector<NamedTensor> parameters_with(const std::vector<Tensor>& gradients) {
  std::vector<NamedTensor> parameters;
  for (const Tensor& gradient : gradients) {
    parameters.push_back({detail::concatenate("p", parameters.size()), leaf(zeros_like(gradient))});
    parameters.back().tensor.set_grad(gradient);
  }
  return parameters;
}

std::vector<double> all_gradients(const std::vector<NamedTensor>& parameters) {
  std::vector<double> values;
  for (const NamedTensor& parameter : parameters)
    for (const double v : parameter.tensor.grad().to_vector<double>()) values.push_back(v);
  return values;
}

std::vector<Tensor> random_gradients(DType dtype) {
  Generator generator = fresh_generator();
  std::vector<Tensor> gradients;
  for (const Shape& shape : {Shape{3, 5}, Shape{}, Shape{0, 4}, Shape{1031}})
    gradients.push_back(randn(shape, generator).to(dtype));
  gradients.push_back(randn({6, 4}, generator).to(dtype).t());  // not contiguous
  return gradients;
}

void expect_clipped(DType dtype, double type, double max_norm) {
  const auto parameters = parameters_with(random_gradients(dtype));
  const auto before = all_gradients(parameters);
  double norm = 0;
  for (const double g : before) norm = type == 2 ? norm + g * g : std::max(norm, std::abs(g));
  if (type == 2) norm = std::sqrt(norm);
  // A maximum is exact. The sum of squares has the type of computation and at least 16 parts; the root halves its
  // relative error.
  const auto terms = static_cast<int64_t>(before.size());
  const double of_norm = type == 2 ? sum_error(terms / 16 + 16, compute_unit(dtype)) / 2 : 0;
  EXPECT_NEAR(optim::clip_grad_norm(parameters, max_norm, {.norm_type = type}), norm, of_norm * norm);
  const double factor = std::min(1.0, max_norm / (norm + 1e-6));
  // The factor and the product are rounded to the type of computation, the result to that of the gradient.
  const double rounding = 1.01 * storage_unit(dtype) + of_norm + 3 * compute_unit(dtype);
  const double half_subnormal = dtype == float16 ? 0x1p-25 : 0;
  const auto after = all_gradients(parameters);
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_NEAR(after[i], before[i] * factor, rounding * std::abs(before[i] * factor) + half_subnormal);
  if (factor == 1) {
    EXPECT_EQ(after, before);
  }
}

TEST(ClipGradNorm, AgainstLoops) {
  for (const DType dtype : {float64, float32, bfloat16, float16})
    for (const double type : {2.0, double{INFINITY}})
      for (const double max_norm : {0.5, 1e4, 0.0}) {
        SCOPED_TRACE(testing::Message() << dtype << ", norm " << type << ", at most " << max_norm);
        expect_clipped(dtype, type, max_norm);
      }
}

TEST(ClipGradNorm, NothingToClip) {
  Tensor weight = ones({2});
  EXPECT_EQ(optim::clip_grad_norm({{"w", weight}}, 1), 0);
  EXPECT_EQ(optim::clip_grad_norm({}, 1), 0);
  EXPECT_NO_THROW(optim::clip_grad_value({{"w", weight}}, 1));
}

TEST(ClipGradNorm, NonFinite) {
  for (const double type : {2.0, double{INFINITY}})
    for (const double bad : {double{NAN}, double{INFINITY}}) {
      const auto parameters = parameters_with({ones({3}), full({2}, bad), ones({1})});
      const optim::ClipOptions strict = {.norm_type = type, .error_if_non_finite = true};
      expect_error([&] { optim::clip_grad_norm(parameters, 1, strict); }, {"norm"});
      EXPECT_EQ(parameters[0].tensor.grad().to_vector<double>(), (std::vector<double>{1, 1, 1}));
      EXPECT_FALSE(std::isfinite(optim::clip_grad_norm(parameters, 1, {.norm_type = type})));
    }
}

TEST(ClipGradNorm, BadArguments) {
  EXPECT_THROW(optim::clip_grad_norm({}, -1), Error);
  EXPECT_THROW(optim::clip_grad_norm({}, NAN), Error);
  EXPECT_THROW(optim::clip_grad_norm({}, 1, {.norm_type = 3}), Error);
  EXPECT_THROW(optim::clip_grad_norm({}, 1, {.norm_type = NAN}), Error);
  EXPECT_THROW(optim::clip_grad_value({}, -1), Error);
  EXPECT_THROW(optim::clip_grad_value({}, NAN), Error);
}

TEST(ClipGradValue, Limits) {
  const auto parameters = parameters_with({from_vector<float>({-3, -0.5f, 0, 0.5f, 3, 1}, {2, 3}).t()});
  optim::clip_grad_value(parameters, 1);
  EXPECT_EQ(all_gradients(parameters), (std::vector<double>{-1, 0.5, -0.5, 1, 0, 1}));
}

}  // namespace
}  // namespace tern::test

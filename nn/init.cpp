#include "tern/nn/init.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tern::nn::init {
namespace {

/// Random values are drawn in fp32 (fp64 for fp64 targets) and rounded once, into the target.
TensorOptions draw_options(const Tensor& target) {
  return {.dtype = target.dtype() == float64 ? float64 : float32, .device = target.device()};
}

void fill_uniform(Tensor& target, Generator& generator, double low, double high) {
  Tensor values = rand(target.shape(), generator, draw_options(target));
  values.mul_(high - low);
  values.add_(low);
  target.copy_(values);
}

void fill_normal(Tensor& target, Generator& generator, double mean, double std) {
  Tensor values = randn(target.shape(), generator, draw_options(target));
  values.mul_(std);
  values.add_(mean);
  target.copy_(values);
}

/// x with erf(x) = y for |y| < 1: Winitzki's approximation, refined by Halley's method.
double inverse_erf(double y) {
  constexpr double kA = 0.147;
  const double log_term = std::log1p(-y * y);
  const double half = 2 / (std::numbers::pi * kA) + log_term / 2;
  double x = std::copysign(std::sqrt(std::sqrt(half * half - log_term / kA) - half), y);
  for (int i = 0; i < 3; ++i) {
    const double step = (std::erf(x) - y) / (2 * std::numbers::inv_sqrtpi * std::exp(-x * x));
    x -= step / (1 + x * step);
  }
  return x;
}

double normal_cdf(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }

void fill_truncated_normal(Tensor& target, Generator& generator, double mean, double std, double low, double high) {
  const double first = normal_cdf((low - mean) / std), last = normal_cdf((high - mean) / std);
  std::vector<float> values = rand(target.shape(), generator).to_vector<float>();
  for (float& value : values) {
    const double u = value + 0x1p-25;  // the centre of rand's interval: never 0 or 1
    const double z = std::numbers::sqrt2 * inverse_erf(2 * (first + u * (last - first)) - 1);
    value = static_cast<float>(std::clamp(mean + std * z, low, high));
  }
  target.copy_(from_vector(values, target.shape()).to(target.device()));
}

/// Makes the rows of a [rows, cols] matrix orthonormal, rows <= cols. Gram-Schmidt with two passes per row keeps full
/// precision (Giraud et al., 2005).
void orthonormalize_rows(std::vector<double>& matrix, int64_t rows, int64_t cols) {
  const auto dot = [&](const double* a, const double* b) {
    double sum = 0;
    for (int64_t j = 0; j < cols; ++j) sum += a[j] * b[j];
    return sum;
  };
  for (int64_t i = 0; i < rows; ++i) {
    double* row = &matrix[static_cast<size_t>(i * cols)];
    for (int pass = 0; pass < 2; ++pass) {
      for (int64_t k = 0; k < i; ++k) {
        const double* other = &matrix[static_cast<size_t>(k * cols)];
        const double projection = dot(row, other);
        for (int64_t j = 0; j < cols; ++j) row[j] -= projection * other[j];
      }
    }
    const double length = std::sqrt(dot(row, row));
    for (int64_t j = 0; j < cols; ++j) row[j] /= length;
  }
}

void fill_orthogonal(Tensor& target, Generator& generator, double gain) {
  const Shape& shape = target.shape();
  TERN_CHECK(shape.dims() >= 2, "nn::init::orthogonal: needs at least two dimensions, got ", shape);
  if (shape.numel() == 0) return;
  const int64_t rows = shape[0], cols = shape.numel() / shape[0];
  const int64_t few = std::min(rows, cols), many = std::max(rows, cols);
  std::vector<double> matrix = randn({few, many}, generator, {.dtype = float64}).to_vector<double>();
  orthonormalize_rows(matrix, few, many);
  Tensor values = from_vector(matrix, {few, many});
  values.mul_(gain);
  target.copy_((rows <= cols ? values : values.t()).reshape(shape).to(target.device()));
}

double xavier_std(const Shape& shape, double gain) {
  const Fans fan = fans(shape);
  return gain * std::sqrt(2.0 / static_cast<double>(fan.in + fan.out));
}

double kaiming_std(const Shape& shape, const KaimingOptions& options) {
  const Fans fan = fans(shape);
  const int64_t units = options.mode == FanMode::kIn ? fan.in : fan.out;
  return gain(options.nonlinearity, options.slope) / std::sqrt(static_cast<double>(units));
}

/// Draws of mean 0 with the standard deviation that std_of gives for a tensor's shape.
template <class StdOf>
Initializer uniform_around_zero(const StdOf& std_of) {
  return [=](Tensor& target, Generator& generator) {
    if (target.numel() == 0) return;
    const double bound = std::sqrt(3.0) * std_of(target.shape());
    fill_uniform(target, generator, -bound, bound);
  };
}
template <class StdOf>
Initializer normal_around_zero(const StdOf& std_of) {
  return [=](Tensor& target, Generator& generator) {
    if (target.numel() > 0) fill_normal(target, generator, 0, std_of(target.shape()));
  };
}

}  // namespace

Initializer constant(double value) {
  return [=](Tensor& target, Generator&) { target.fill_(value); };
}
Initializer zeros() { return constant(0); }
Initializer ones() { return constant(1); }

Initializer uniform(double low, double high) {
  TERN_CHECK(low <= high && std::isfinite(high - low), "nn::init::uniform: needs finite low <= high, got ", low,
             " and ", high);
  return [=](Tensor& target, Generator& generator) { fill_uniform(target, generator, low, high); };
}

Initializer normal(double mean, double std) {
  TERN_CHECK(std::isfinite(mean) && std >= 0 && std::isfinite(std),
             "nn::init::normal: needs a finite mean and std >= 0, ", "got ", mean, " and ", std);
  return [=](Tensor& target, Generator& generator) { fill_normal(target, generator, mean, std); };
}

Initializer truncated_normal(double mean, double std, double low, double high) {
  TERN_CHECK(std::isfinite(mean) && std > 0 && std::isfinite(std) && low < high,
             "nn::init::truncated_normal: needs a finite mean, std > 0 and low < high, got mean ", mean, ", std ", std,
             ", low ", low, ", high ", high);
  TERN_CHECK(mean > low - 6 * std && mean < high + 6 * std, "nn::init::truncated_normal: [", low, ", ", high,
             "] is more than 6 std from the mean ", mean, ", where no values can be drawn");
  return [=](Tensor& target, Generator& generator) { fill_truncated_normal(target, generator, mean, std, low, high); };
}

Fans fans(const Shape& shape) {
  TERN_CHECK(shape.dims() >= 2, "nn::init: fan in and fan out need at least two dimensions, got ", shape);
  int64_t field = 1;
  for (int d = 2; d < shape.dims(); ++d) field *= shape[d];
  return {shape[1] * field, shape[0] * field};
}

double gain(Nonlinearity nonlinearity, double slope) {
  switch (nonlinearity) {
    case Nonlinearity::kLinear:
    case Nonlinearity::kSigmoid:
      return 1;
    case Nonlinearity::kTanh:
      return 5.0 / 3;
    case Nonlinearity::kRelu:
      return std::numbers::sqrt2;
    case Nonlinearity::kLeakyRelu:
      return std::sqrt(2 / (1 + slope * slope));
    case Nonlinearity::kSelu:
      return 0.75;
  }
  fail("nn::init::gain: unknown nonlinearity");
}

Initializer xavier_uniform(double gain) {
  return uniform_around_zero([=](const Shape& shape) { return xavier_std(shape, gain); });
}
Initializer xavier_normal(double gain) {
  return normal_around_zero([=](const Shape& shape) { return xavier_std(shape, gain); });
}
Initializer kaiming_uniform(const KaimingOptions& options) {
  return uniform_around_zero([=](const Shape& shape) { return kaiming_std(shape, options); });
}
Initializer kaiming_normal(const KaimingOptions& options) {
  return normal_around_zero([=](const Shape& shape) { return kaiming_std(shape, options); });
}

Initializer orthogonal(double gain) {
  return [=](Tensor& target, Generator& generator) { fill_orthogonal(target, generator, gain); };
}

}  // namespace tern::nn::init

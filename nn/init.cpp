#include "tern/nn/init.h"
#include "tern/core/ops/random.h"

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
  detail::check_truncated_normal(mean, std, low, high);
  return [=](Tensor& target, Generator& generator) {
    target.copy_(tern::truncated_normal(target.shape(), generator, mean, std, low, high).to(target.device()));
  };
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

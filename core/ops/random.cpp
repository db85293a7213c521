#include "tern/core/ops/random.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tern/core/ops/indexing/scatter.h"
#include "tern/core/ops/pointwise/function.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"
#include "tern/core/ops/reduce/run_reduction.h"
#include "tern/core/ops/reduce/softmax.h"
#include "tern/core/ops/sort/cumulative.h"
#include "tern/core/ops/sort/search.h"
#include "tern/core/ops/sort/sort.h"
#include "tern/kernels/copy.h"
#include "tern/kernels/math/math.h"
#include "tern/kernels/pointwise/random.h"

namespace tern {
namespace {

double normal_cdf(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }

/// In (0, 1), with 52 bits: fp64, never 0 or 1.
Tensor fine_uniform(const Shape& shape, Generator& generator, Device device) {
  return (randint(0, int64_t{1} << 52, shape, generator, {float64, device}) + 0.5) * 0x1p-52;
}

}  // namespace

Tensor randint(int64_t low, int64_t high, const Shape& shape, Generator& generator, const TensorOptions& options) {
  TERN_CHECK(low < high, "randint: low must be below high, got ", low, " and ", high);
  const Tensor result = empty(shape, options);
  const uint64_t count = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  kernels::fill_random_integers(current_stream(options.device), generator.next(options.device), low, count,
                                result.view());
  return result;
}

Tensor randperm(int64_t n, Generator& generator, const TensorOptions& options) {
  TERN_CHECK(n >= 0, "randperm: n must not be negative, got ", n);
  // Equal keys, which would favour the order of the numbers, are as good as impossible among 2^63.
  return argsort(randint(0, INT64_MAX, {n}, generator, {DType::kInt64, options.device}), 0).to(options.dtype);
}

Tensor bernoulli(const Tensor& probabilities, Generator& generator) {
  TERN_CHECK(is_floating(probabilities.dtype()), "bernoulli: expected floating probabilities, got ",
             probabilities.dtype());
  const Tensor p = probabilities.detach();
  return (rand(p.shape(), generator, {DType::kFloat32, p.device()}) < p).to(p.dtype());
}

Tensor poisson(const Tensor& rates, Generator& generator) {
  TERN_CHECK(is_floating(rates.dtype()), "poisson: expected floating rates, got ", rates.dtype());
  const Tensor rate = rates.detach().to(float64);
  TERN_CHECK(all(logical_and(rate >= 0.0, isfinite(rate))).item<bool>(),
             "poisson: the rates must be finite and not negative; of log-rates take exp()");
  return pointwise(kernels::Poisson{}, rate, fine_uniform(rate.shape(), generator, rate.device())).to(rates.dtype());
}

Tensor binomial(const Tensor& counts, const Tensor& probabilities, Generator& generator) {
  TERN_CHECK(is_floating(probabilities.dtype()), "binomial: expected floating probabilities, got ",
             probabilities.dtype());
  const Shape shape = broadcast_shapes("binomial", counts.shape(), probabilities.shape());
  const Tensor count = counts.detach().to(float64), p = probabilities.detach().to(float64);
  TERN_CHECK(all(logical_and(logical_and(count >= 0.0, isfinite(count)), floor(count) == count)).item<bool>(),
             "binomial: the counts must be whole numbers that are not negative");
  TERN_CHECK(all(logical_and(p >= 0.0, p <= 1.0)).item<bool>(), "binomial: the probabilities must be in [0, 1]");
  const Tensor y = pointwise(kernels::Binomial{}, count, p, fine_uniform(shape, generator, p.device()));
  return y.to(promote(counts, probabilities));
}

Tensor multinomial(const Tensor& weights, int64_t count, Generator& generator, bool replacement) {
  TERN_CHECK((weights.dim() == 1 || weights.dim() == 2) && is_floating(weights.dtype()) && weights.size(-1) > 0,
             "multinomial: weights must be floating, [categories] or [rows, categories], got ", weights.describe());
  TERN_CHECK(count > 0, "multinomial: count must be above 0, got ", count);
  const Tensor w = weights.detach().to(float64);  // the cumulative sums of many small weights differ
  TERN_CHECK(all(logical_and(w >= 0.0, isfinite(w))).item<bool>(),
             "multinomial: the weights must be finite and not negative; of log-probabilities take exp()");
  const int64_t positive = w.numel() == 0 ? w.size(-1) : min(sum(w > 0.0, {-1})).item<int64_t>();
  TERN_CHECK(positive > 0, "multinomial: there is a row of weights whose sum is 0");
  TERN_CHECK(replacement || count <= positive, "multinomial: ", count, " different categories from a row with ",
             positive, " weights above 0; pass replacement = true to draw one several times");
  const auto uniform = [&](const Shape& shape) {  // in (0, 1), with 53 bits
    return (randint(0, int64_t{1} << 53, shape, generator, {float64, w.device()}) + 0.5) * 0x1p-53;
  };
  if (replacement) {
    const Tensor ends = cumsum(w, -1), total = ends.slice(-1, w.size(-1) - 1);
    return searchsorted(ends, uniform(w.shape().with(w.dim() - 1, count)) * total, /*right=*/true);
  }
  // The largest of weight / exponential number (Efraimidis and Spirakis, "Weighted random sampling with a reservoir",
  // 2006).
  const Tensor scores = where(w > 0.0, w / neg(log(uniform(w.shape()))), -1.0);
  return topk(scores, count, -1).indices;
}

Tensor exponential(const Shape& shape, Generator& generator, double rate, const TensorOptions& options) {
  TERN_CHECK(rate > 0 && std::isfinite(rate), "exponential: rate must be a finite number above 0, got ", rate);
  TERN_CHECK(is_floating(options.dtype), "exponential: expected a floating dtype, got ", options.dtype);
  // The centres of rand's 2^24 intervals: never 0 or 1.
  const Tensor uniform = rand(shape, generator, {float32, options.device}).to(float64) + 0x1p-25;
  return (log(uniform) * (-1 / rate)).to(options.dtype);
}

Tensor gumbel_softmax(const Tensor& logits, Generator& generator, double tau, bool hard, int dim) {
  TERN_CHECK(is_floating(logits.dtype()), "gumbel_softmax: expected floating logits, got ", logits.dtype());
  TERN_CHECK(tau > 0 && std::isfinite(tau), "gumbel_softmax: tau must be a finite number above 0, got ", tau);
  const DType wide = detail::accumulation_type(logits.dtype());
  const Tensor noise = -log(exponential(logits.shape(), generator, 1, {wide, logits.device()}));
  const Tensor soft = softmax((logits.to(wide) + noise) / tau, dim);
  if (!hard) return soft.to(logits.dtype());
  const Tensor index = argmax(soft.detach(), dim, true);
  const Tensor chosen = scatter(zeros_like(soft.detach()), dim, index, 1);
  return (chosen + (soft - soft.detach())).to(logits.dtype());
}

Tensor normal(const Tensor& mean, const Tensor& std, Generator& generator) {
  const Tensor shaped = mean.detach() + std.detach();
  return mean.detach() + std.detach() * randn(shaped.shape(), generator, shaped.options());
}

Tensor normal(double mean, double std, const Shape& shape, Generator& generator, const TensorOptions& options) {
  TERN_CHECK(std >= 0, "normal: std must not be negative, got ", std);
  return randn(shape, generator, options) * std + mean;
}

Tensor truncated_normal(const Shape& shape, Generator& generator, double mean, double std, double low, double high,
                        const TensorOptions& options) {
  detail::check_truncated_normal(mean, std, low, high);
  const double first = normal_cdf((low - mean) / std), last = normal_cdf((high - mean) / std);
  std::vector<float> values = rand(shape, generator).to_vector<float>();
  for (float& value : values) {
    const double u = value + 0x1p-25;  // the centre of rand's interval: never 0 or 1
    const double z = std::numbers::sqrt2 * kernels::math::erfinv(2 * (first + u * (last - first)) - 1);
    value = static_cast<float>(std::clamp(mean + std * z, low, high));
  }
  return from_vector(values, shape).to(options.dtype).to(options.device);
}

void detail::check_truncated_normal(double mean, double std, double low, double high) {
  TERN_CHECK(std::isfinite(mean) && std > 0 && std::isfinite(std) && low < high,
             "truncated_normal: needs a finite mean, std > 0 and low < high, got mean ", mean, ", std ", std, ", low ",
             low, ", high ", high);
  TERN_CHECK(mean > low - 6 * std && mean < high + 6 * std, "truncated_normal: [", low, ", ", high,
             "] is more than 6 std from the mean ", mean, ", where no values can be drawn");
}

}  // namespace tern

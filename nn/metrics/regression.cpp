#include "tern/nn/metrics/regression.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tern/nn/metrics/exact_sum.h"

namespace tern::nn {
namespace {

using tern::detail::add_exact, tern::detail::add_exact_product, tern::detail::DoublePair, tern::detail::pair_of_exact;

/// Checked elements of predictions and targets, in pairs.
std::vector<std::pair<double, double>> pairs_of(const char* name, const Tensor& predictions, const Tensor& targets) {
  const std::vector<double> p = tern::detail::metric_numbers(name, "predictions", predictions, true);
  const std::vector<double> t = tern::detail::metric_numbers(name, "targets", targets, true);
  TERN_CHECK(predictions.shape() == targets.shape(), name, ": predictions are ", predictions.shape(), " and targets ",
             targets.shape(), ", expected the same shape");
  std::vector<std::pair<double, double>> pairs;
  for (size_t i = 0; i < p.size(); ++i) pairs.emplace_back(p[i], t[i]);
  return pairs;
}

/// n times the sum of (x - mean of x) (y - mean of y), of n pairs with these sums of x y, x and y; 0 where no more is
/// left than rounding.
double spread_of(int64_t n, DoublePair xy, DoublePair x, DoublePair y) {
  const DoublePair count{static_cast<double>(n), 0};
  const double spread = tern::detail::difference_of_products(count, xy, x, y);
  constexpr double kRounding = 0x1p-98;
  return std::abs(spread) <= kRounding * count.high * std::abs(xy.high) ? 0 : spread;
}

std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    const double rank = (static_cast<double>(begin) + static_cast<double>(end) + 1) / 2;
    for (size_t i = begin; i < end; ++i) ranks[order[i]] = rank;
  }
  return ranks;
}

}  // namespace

void MeanSquaredError::update(const Tensor& predictions, const Tensor& targets) {
  for (const auto& [p, t] : pairs_of(name_, predictions, targets)) add((p - t) * (p - t));
  carry();
}

void MeanAbsoluteError::update(const Tensor& predictions, const Tensor& targets) {
  for (const auto& [p, t] : pairs_of(name_, predictions, targets)) add(std::abs(p - t));
  carry();
}

// Sums of targets, of their squares and of squared errors.
void R2::update(const Tensor& predictions, const Tensor& targets) {
  for (const auto& [p, t] : pairs_of(name_, predictions, targets)) {
    ++count(0);
    add_exact(sum(0, 0), t);
    add_exact_product(sum(0, 1), t, t);
    add_exact(sum(0, 2), (t - p) * (t - p));
  }
  carry();
}

double R2::compute(const GatherRanks& gather) const {
  const Counts all = total(gather);
  if (all[0] < 2) return std::numeric_limits<double>::quiet_NaN();
  const DoublePair targets = pair_of_exact(sum_in(all, 0, 0)), squares = pair_of_exact(sum_in(all, 0, 1));
  const double errors = tern::detail::value_of_exact(sum_in(all, 0, 2));
  const double spread = spread_of(all[0], squares, targets, targets);
  if (spread == 0) return errors == 0 ? 1 : 0;
  return 1 - errors * static_cast<double>(all[0]) / spread;
}

// Sums of predictions, of targets, of products, of both's squares.
void PearsonCorrelation::update(const Tensor& predictions, const Tensor& targets) {
  for (const auto& [p, t] : pairs_of(name_, predictions, targets)) {
    ++count(0);
    add_exact(sum(0, 0), p);
    add_exact(sum(0, 1), t);
    add_exact_product(sum(0, 2), p, t);
    add_exact_product(sum(0, 3), p, p);
    add_exact_product(sum(0, 4), t, t);
  }
  carry();
}

double PearsonCorrelation::compute(const GatherRanks& gather) const {
  const Counts all = total(gather);
  const auto sum_of = [&](int64_t i) { return pair_of_exact(sum_in(all, 0, i)); };
  const DoublePair p = sum_of(0), t = sum_of(1);
  const double pt = spread_of(all[0], sum_of(2), p, t);
  const double pp = spread_of(all[0], sum_of(3), p, p), tt = spread_of(all[0], sum_of(4), t, t);
  if (!(pp > 0 && tt > 0)) return std::numeric_limits<double>::quiet_NaN();
  return std::clamp(pt / (std::sqrt(pp) * std::sqrt(tt)), -1.0, 1.0);
}

void SpearmanCorrelation::update(const Tensor& predictions, const Tensor& targets) {
  std::vector<double> scores, wanted;
  for (const auto& [p, t] : pairs_of(name_, predictions, targets)) {
    scores.push_back(p);
    wanted.push_back(t);
  }
  add(scores, wanted);
}

double SpearmanCorrelation::of(const std::vector<double>& scores, const std::vector<double>& targets) const {
  const auto is_nan = [](double value) { return std::isnan(value); };
  if (std::any_of(scores.begin(), scores.end(), is_nan) || std::any_of(targets.begin(), targets.end(), is_nan))
    return std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> p = ranks_of(scores), t = ranks_of(targets);
  PearsonCorrelation of_ranks;
  of_ranks.update(from_vector(p, {std::ssize(p)}), from_vector(t, {std::ssize(t)}));
  return of_ranks.compute();
}

}  // namespace tern::nn

// States of metrics that no examples give: an error, which changes nothing.

#include "tern/nn/metrics/classification.h"
#include "tern/nn/metrics/regression.h"
#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

using Counts = std::vector<int64_t>;

StateView counts_state(const Counts& counts) {
  return {{"counts", from_vector(counts, {static_cast<int64_t>(counts.size())})}};
}

template <class M>
Counts counts_of(const M& metric) {
  return metric.state_dict()[0].tensor.template to_vector<int64_t>();
}

/// Each change of the counts of a metric that has seen examples is refused; the state itself is taken.
template <class M>
void expect_refused(M& metric, const std::vector<std::pair<size_t, int64_t>>& changes) {
  const Counts good = counts_of(metric);
  for (const auto& [place, value] : changes) {
    SCOPED_TRACE(testing::Message() << "count " << place << " = " << value);
    Counts bad = good;
    bad.at(place) = value;
    expect_error([&] { metric.load_state_dict(counts_state(bad)); }, {"no examples give the state's counts"});
    EXPECT_EQ(counts_of(metric), good);
  }
  expect_error(
      [&] {
        metric.load_state_dict({{"counts", full({static_cast<int64_t>(good.size())}, 0.5)}});
      },
      {"counts must be integers"});
  const double value = metric.compute();
  metric.reset();
  metric.load_state_dict(counts_state(Counts(good.size(), 0)));  // no examples
  metric.load_state_dict(counts_state(good));
  EXPECT_EQ(metric.compute(), value);
}

TEST(MetricState, ImpossibleCountsAreRefused) {
  const Tensor scores = from_vector<double>({0.1, 0.9, 0.8, 0.2, 0.3, 0.7}, {3, 2});
  const Tensor targets = from_vector<int64_t>({1, 1, 0}, {3});
  nn::Accuracy accuracy;
  accuracy.update(scores, targets);
  expect_refused(accuracy, {{1, -1}, {1, 4}, {0, -3}, {0, 0}, {0, INT64_MAX}, {1, INT64_MAX}});
  nn::TopKAccuracy top(1);
  top.update(scores, targets);
  expect_refused(top, {{1, -1}, {1, 4}, {0, 0}, {0, INT64_MAX}});
  nn::F1 f1({.classes = 2});
  f1.update(scores, targets);
  expect_refused(f1, {{0, -1}, {3, INT64_MIN}, {2, INT64_MAX}, {1, INT64_MAX - 1}});
  nn::Perplexity perplexity;
  perplexity.update(scores, targets);
  // Words of a sum are in [0, 2^32), then come the numbers of NaN and infinities among the terms.
  expect_refused(perplexity,
                 {{0, -1}, {0, 0}, {1, -1}, {34, int64_t{1} << 32}, {68, INT64_MAX}, {68, -1}, {69, 4}, {70, -1}});
  nn::MeanSquaredError error;
  error.update(scores, scores * 2);
  expect_refused(error, {{0, -1}, {0, 0}, {20, INT64_MIN}, {68, -1}, {71, 7}});
  nn::R2 r2;
  r2.update(scores, scores * 2 - 3);
  nn::AUROC area;
  area.update(scores.select(1, 0), targets);
  for (const double target : {-1.0, 0.5, 2.0, std::nan("")}) {
    SCOPED_TRACE(target);
    expect_error(
        [&] {
          area.load_state_dict(
              {{"scores", zeros({1, 1}, {.dtype = float64})}, {"targets", full({1}, target, {.dtype = float64})}});
        },
        {"auroc: target 0 of the state is "});
  }
  EXPECT_EQ(area.compute(), 0.5);
  expect_refused(r2, {{0, -6}, {0, 0}, {1, -1}, {68, INT64_MIN}, {72 + 67, -1}, {1 + 2 * 71, -1}});
  nn::CalibrationError calibration(2);
  calibration.update(scores, targets);
  constexpr size_t kBin = 73;
  expect_refused(calibration, {{kBin, -1}, {kBin, 1}, {kBin + 1, 4}, {kBin + 1, -1}, {2, 5}, {kBin + 2 + 35, 1000}});
}

/// Sums below 0 and of infinite terms are possible.
TEST(MetricState, RareCountsAreTaken) {
  nn::R2 r2;
  r2.update(tensor({1, 2, 3}, {.dtype = float64}), tensor({-1e300, -2, 1e-300}, {.dtype = float64}));
  nn::R2 same;
  same.load_state_dict(r2.state_dict());
  EXPECT_EQ(counts_of(same), counts_of(r2));
  nn::MeanSquaredError error;
  error.update(tensor({1, INFINITY, NAN}), tensor({1, 2, 3}));
  nn::MeanSquaredError copy;
  copy.load_state_dict(error.state_dict());
  EXPECT_EQ(counts_of(copy), counts_of(error));
}

}  // namespace
}  // namespace tern::test

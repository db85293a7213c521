#pragma once
// Metrics that accumulate over batches and processes.
//
//   nn::F1 f1({.classes = 10, .average = nn::Average::kMacro});
//   for (const auto& batch : loader.epoch(0)) f1.update(net.forward(batch[0]), batch[1]);
//   const double value = f1.compute(dist::gather_over(group));  // of all ranks' batches; compute(): of this rank's
//   f1.reset();
//
// Exact: examples are counted in int64, and terms in double are summed without rounding (exact_sum.h), so the bits of a
// result do not depend on how examples are divided among batches and ranks.
//
// Definitions are those of torchmetrics and scikit-learn. Without any example every metric is NaN. update() takes
// tensors on either device, and throws Error and changes nothing when shapes or types are wrong, a target is out of
// range or a score is NaN; the message gives the position. dist::LoopState saves the counts of every rank.

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "tern/core/tensor.h"

namespace tern::nn {

/// Returns the tensors that all ranks pass, in rank order; their shapes may differ. All ranks call it equally often.
/// Empty: this process alone. dist::gather_over() makes one of a group.
using GatherRanks = std::function<std::vector<Tensor>(const Tensor& own)>;

/// What the metrics have in common: a state of each process, which compute(gather) joins.
class Metric {
 public:
  virtual ~Metric() = default;
  virtual void reset() = 0;
  /// Copies.
  virtual StateView state_dict() const = 0;
  /// Throws Error, and changes nothing, for the state of another metric, and for one that no examples give.
  virtual void load_state_dict(const StateView& state) = 0;

 protected:
  explicit Metric(const char* name) : name_(name) {}
  const char* name_;  // begins the messages
};

/// A metric of counts and exact sums, which are added up. State: "counts" (int64).
class CountMetric : public Metric {
 public:
  void reset() override;
  StateView state_dict() const override;
  void load_state_dict(const StateView& state) override;

 protected:
  using Counts = std::vector<int64_t>;
  /// Records of counts and then sums. The first count is of examples, the others are of some of these, and each sum has
  /// a term for each.
  struct Layout {
    int64_t records = 1, counts = 1, sums = 0;
    int64_t signed_sums = 0;  // so many of the sums, the first ones, have terms of both signs
    double greatest = std::numeric_limits<double>::infinity();  // term
  };
  CountMetric(const char* name, const Layout& layout);
  /// The counts of all ranks.
  Counts total(const GatherRanks& gather) const;
  int64_t& count(int64_t record, int64_t i = 0) { return counts_[place(record, i)]; }
  std::span<int64_t> sum(int64_t record, int64_t i);
  std::span<const int64_t> sum_in(const Counts& counts, int64_t record, int64_t i) const;
  size_t place(int64_t record, int64_t i) const { return static_cast<size_t>(record * width_ + i); }
  /// To be called after the terms of an update were added to sums.
  void carry();
  const Layout layout_;

 private:
  bool is_possible(const Counts& counts) const;
  const int64_t width_;  // of a record
  Counts counts_;
};

/// A part of the examples.
class Share : public CountMetric {
 public:
  double compute(const GatherRanks& gather = nullptr) const;

 protected:
  explicit Share(const char* name) : CountMetric(name, {.counts = 2}) {}
  void add(int64_t part, int64_t examples);
};

/// The mean of numbers.
class Mean : public CountMetric {
 public:
  Mean() : Mean("mean", 1) {}
  /// Every element of a floating tensor is an example.
  void update(const Tensor& values);
  /// A sum over so many examples that was rounded already; over none it is not counted.
  void update(double sum, int64_t examples);
  double compute(const GatherRanks& gather = nullptr) const;

 protected:
  Mean(const char* name, int64_t signed_sums)
      : CountMetric(name, {.counts = 1, .sums = 1, .signed_sums = signed_sums}) {}
  /// Needs carry() afterwards.
  void add(double term, int64_t examples = 1);
};

/// A metric that keeps all scores and targets. State: "scores" (float64 [n, columns]) and "targets" (float64 [n]).
class ScoreMetric : public Metric {
 public:
  void reset() override;
  StateView state_dict() const override;
  void load_state_dict(const StateView& state) override;
  double compute(const GatherRanks& gather = nullptr) const;

 protected:
  ScoreMetric(const char* name, int64_t columns) : Metric(name), columns_(columns) {}
  /// What update() may have added; throws Error otherwise.
  virtual void check(const std::vector<double>& scores, const std::vector<double>& targets) const = 0;
  virtual double of(const std::vector<double>& scores, const std::vector<double>& targets) const = 0;
  void add(const std::vector<double>& scores, const std::vector<double>& targets);
  const int64_t columns_;

 private:
  std::vector<double> scores_, targets_;
};

}  // namespace tern::nn

namespace tern::detail {

/// The number, or NaN where the whole is 0.
double ratio(int64_t part, int64_t whole);
/// Elements of a metric's tensor on the host. Throw Error that begins with `name` for other types and for NaN, unless
/// it is allowed.
std::vector<int64_t> metric_integers(const char* name, const char* what, const Tensor& tensor);
std::vector<double> metric_numbers(const char* name, const char* what, const Tensor& tensor, bool nan_allowed = false);

}  // namespace tern::detail

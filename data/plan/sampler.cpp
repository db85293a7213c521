#include "tern/data/plan/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "tern/data/plan/shuffle.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

std::vector<int32_t> first_rows(int64_t size) {
  std::vector<int32_t> rows(static_cast<size_t>(size));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

void check_size(const char* what, int64_t size) {
  TERN_CHECK(size >= 0 && size <= std::numeric_limits<int32_t>::max(), what, ": a sampler has 0 to 2^31 - 1 rows, got ",
             size);
}

/// Index i with probability (sums[i] - sums[i - 1]) / sums.back(); never one of weight 0.
std::vector<int32_t> draw_with_replacement(const std::vector<double>& sums, int64_t samples, RandomStream random) {
  std::vector<int32_t> rows(static_cast<size_t>(samples));
  const auto last = std::lower_bound(sums.begin(), sums.end(), sums.back());
  for (int32_t& row : rows) {
    const auto found = std::upper_bound(sums.begin(), sums.end(), random.uniform(0, sums.back()));
    row = static_cast<int32_t>(std::min(found, last) - sums.begin());  // the product may be rounded to the last sum
  }
  return rows;
}

/// The first `samples` arrivals, where row i arrives at a time of exponential distribution with rate weights[i].
std::vector<int32_t> draw_without_replacement(const std::vector<double>& weights, int64_t samples,
                                              RandomStream random) {
  std::vector<std::pair<double, int32_t>> arrivals;
  for (size_t row = 0; row < weights.size(); ++row) {
    const double wait = -std::log1p(-random.uniform());
    if (weights[row] > 0) arrivals.emplace_back(wait / weights[row], static_cast<int32_t>(row));
  }
  std::partial_sort(arrivals.begin(), arrivals.begin() + samples, arrivals.end());
  std::vector<int32_t> rows;
  for (int64_t i = 0; i < samples; ++i) rows.push_back(arrivals[static_cast<size_t>(i)].second);
  return rows;
}

}  // namespace

Sampler sequential_sampler(int64_t size) {
  check_size("sequential_sampler", size);
  return {size, [size](int64_t) { return first_rows(size); }};
}

Sampler random_sampler(int64_t size, uint64_t seed) {
  check_size("random_sampler", size);
  return subset_sampler(first_rows(size), seed);
}

Sampler subset_sampler(std::vector<int32_t> rows, uint64_t seed) {
  const int64_t size = static_cast<int64_t>(rows.size());
  return {size, [rows = std::move(rows), seed](int64_t epoch) {
            std::vector<int32_t> order = rows;
            shuffle(std::span(order), RandomStream(seed, Draw::kEpoch, static_cast<uint64_t>(epoch)));
            return order;
          }};
}

Sampler weighted_sampler(std::vector<double> weights, const WeightedOptions& options) {
  const int64_t samples = options.samples;
  check_size("weighted_sampler", samples);
  int64_t positive = 0;
  for (size_t row = 0; row < weights.size(); ++row) {
    TERN_CHECK(weights[row] >= 0 && std::isfinite(weights[row]), "weighted_sampler: the weight of row ", row,
               " must be finite and >= 0, got ", weights[row]);
    positive += weights[row] > 0;
  }
  const int64_t needed = options.replacement ? std::min<int64_t>(samples, 1) : samples;
  TERN_CHECK(positive >= needed, "weighted_sampler: ", samples, " samples ",
             options.replacement ? "need a positive weight, got none" : "without replacement need as many positive ",
             options.replacement ? "" : "weights, got " + std::to_string(positive));
  std::vector<double> sums(weights.size());
  std::partial_sum(weights.begin(), weights.end(), sums.begin());
  TERN_CHECK(sums.empty() || std::isfinite(sums.back()), "weighted_sampler: the sum of the weights is not finite");
  if (options.replacement) weights = std::move(sums);
  return {samples, [weights = std::move(weights), options](int64_t epoch) {
            if (options.samples == 0) return std::vector<int32_t>();
            const RandomStream random(options.seed, Draw::kWeighted, static_cast<uint64_t>(epoch));
            return options.replacement ? draw_with_replacement(weights, options.samples, random)
                                       : draw_without_replacement(weights, options.samples, random);
          }};
}

Sampler distributed_sampler(const Sampler& all, const DistributedOptions& options) {
  const auto [rank, ranks, drop_last] = options;
  TERN_CHECK(ranks >= 1 && rank >= 0 && rank < ranks, "distributed_sampler: rank ", rank, " of ", ranks);
  TERN_CHECK(all, "distributed_sampler: no sampler to divide");
  const int64_t share = drop_last ? all.size / ranks : all.size / ranks + (all.size % ranks != 0 ? 1 : 0);
  return {share, [all, share, rank = rank, ranks = ranks](int64_t epoch) {
            const std::vector<int32_t> rows = all.order(epoch);
            TERN_CHECK(static_cast<int64_t>(rows.size()) == all.size, "distributed_sampler: a sampler of ", all.size,
                       " rows gave ", rows.size(), " in epoch ", epoch);
            std::vector<int32_t> own(static_cast<size_t>(share));
            for (int64_t i = 0; i < share; ++i)
              own[static_cast<size_t>(i)] = rows[static_cast<size_t>(rank + i * ranks) % rows.size()];
            return own;
          }};
}

}  // namespace tern::data

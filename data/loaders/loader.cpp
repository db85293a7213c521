#include "tern/data/loaders/loader.h"

#include <algorithm>
#include <limits>
#include <sstream>

#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

/// The rows of an epoch, checked.
std::vector<int32_t> sampled_rows(const Sampler& sampler, int64_t size, int64_t epoch) {
  std::vector<int32_t> rows = sampler.order(epoch);
  TERN_CHECK(static_cast<int64_t>(rows.size()) == sampler.size, "loader: the sampler has ", sampler.size, " rows, but ",
             rows.size(), " in epoch ", epoch);
  for (const int32_t row : rows)
    TERN_CHECK(row >= 0 && row < size, "loader: the sampler names row ", row, " of ", size);
  return rows;
}

/// For each row, how often it came before.
std::vector<int32_t> repeats_of(const std::vector<int32_t>& rows, int64_t size) {
  std::vector<int32_t> counts(static_cast<size_t>(size)), repeats;
  repeats.reserve(rows.size());
  for (const int32_t row : rows) repeats.push_back(counts[static_cast<size_t>(row)]++);
  return repeats;
}

}  // namespace

}  // namespace tern::data

namespace tern::detail {

LoaderPlans loader_plans(int64_t size, const data::LoaderOptions& options) {
  TERN_CHECK(options.batch_size >= 1, "loader: batch_size must be at least 1, got ", options.batch_size);
  TERN_CHECK(size >= 0 && size <= std::numeric_limits<int32_t>::max(),
             "loader: a data set has 0 to 2^31 - 1 samples, got ", size);
  TERN_CHECK(!options.sampler || !options.shuffle, "loader: give either a sampler or shuffle, not both");
  TERN_CHECK(options.lengths.empty() || static_cast<int64_t>(options.lengths.size()) == size, "loader: ", size,
             " samples, but ", options.lengths.size(), " lengths");
  const bool grouped = !options.lengths.empty();
  const data::BatchPlanOptions plan{.batch_size = options.batch_size,
                                    .shuffle = options.shuffle || options.sampler,
                                    .group_by_length = grouped,
                                    .drop_last = options.drop_last,
                                    .seed = options.seed};
  const data::Sampler rows = options.sampler   ? options.sampler
                             : options.shuffle ? data::random_sampler(size, options.seed)
                                               : data::sequential_sampler(size);
  const int64_t batches = rows.size / options.batch_size;
  const int64_t steps = batches + (!options.drop_last && rows.size % options.batch_size != 0 ? 1 : 0);
  return {size, steps, [rows, plan, size, lengths = options.lengths, repeated = bool(options.sampler)](int64_t epoch) {
            TERN_CHECK(epoch >= 0, "loader: the epoch must not be negative, got ", epoch);
            data::EpochPlan made = data::plan_in_order(data::sampled_rows(rows, size, epoch), lengths, plan, epoch);
            if (repeated) made.repeats = data::repeats_of(made.rows, size);
            return std::make_shared<const data::EpochPlan>(std::move(made));
          }};
}

std::vector<data::ItemKey> batch_keys(const data::EpochPlan& plan, uint64_t seed, int64_t epoch, int64_t step) {
  const std::span<const int32_t> rows = plan.batch(step);
  const size_t first = static_cast<size_t>(plan.starts[static_cast<size_t>(step)]);
  std::vector<data::ItemKey> keys;
  keys.reserve(rows.size());
  for (size_t i = 0; i < rows.size(); ++i)
    keys.push_back({seed, epoch, rows[i], plan.repeats.empty() ? 0 : plan.repeats[first + i]});
  return keys;
}

std::string collating(std::span<const data::ItemKey> keys) {
  constexpr size_t kNamed = 8;
  std::ostringstream text;
  text << "collating samples ";
  for (size_t i = 0; i < std::min(keys.size(), kNamed); ++i) text << (i > 0 ? ", " : "") << keys[i].row;
  text << (keys.size() > kNamed ? ", ..." : "") << " of epoch " << (keys.empty() ? 0 : keys[0].epoch) << ": ";
  return text.str();
}

}  // namespace tern::detail

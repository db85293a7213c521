#pragma once
// Batches of a data set, in an order that seed and epoch decide, prepared ahead by worker threads.

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tern/data/loaders/batch_loader.h"
#include "tern/data/plan/sampler.h"
#include "tern/data/samples/dataset.h"

namespace tern::data {

struct LoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;
  bool drop_last = false;  // skip a last batch that is not full
  int workers = 2;         // 0: batches are made in the consumer's thread
  int64_t prefetch = 0;    // batches made ahead; 0: two per worker
  uint64_t seed = 0;       // of the shuffle and of the samples' keys
  /// Chooses the rows of an epoch and their order, instead of all rows and `shuffle`: sampler.h.
  Sampler sampler = {};
  /// Length of every sample. Not empty: a batch holds samples of similar lengths, as plan_epoch (batch_plan.h) with
  /// group_by_length makes them.
  std::vector<int32_t> lengths = {};
};

}  // namespace tern::data

namespace tern::detail {

/// The plans of a loader, checked.
struct LoaderPlans {
  int64_t size = 0, steps = 0;
  std::function<std::shared_ptr<const data::EpochPlan>(int64_t epoch)> plan;
};
LoaderPlans loader_plans(int64_t size, const data::LoaderOptions& options);

/// The keys of a plan's batch.
std::vector<data::ItemKey> batch_keys(const data::EpochPlan& plan, uint64_t seed, int64_t epoch, int64_t step);
/// "collating samples 4, 7, ... of epoch 2: "
std::string collating(std::span<const data::ItemKey> keys);

template <class D>
concept IsDataset = std::derived_from<D, data::Dataset<typename D::SampleType>>;
template <class F, class Sample>
concept Collates = std::invocable<const F&, std::vector<Sample>, std::span<const data::ItemKey>>;
template <class F, class Sample>
using Result = std::invoke_result_t<const F&, std::vector<Sample>, std::span<const data::ItemKey>>;

}  // namespace tern::detail

namespace tern::data {

/// Makes a batch of samples; keys[i] belongs to samples[i]. Called from several threads, so it must depend on its
/// arguments alone.
template <class Sample, class Batch>
using CollateFunction = std::function<Batch(std::vector<Sample> samples, std::span<const ItemKey> keys)>;

/// for (const auto& batch : loader.epoch(e)) has the batches of collate() (collate.h), batch[0], batch[1], ... for
/// samples of tensors; or of a function of the user. Content and order depend on the data, the batch size, sampler,
/// seed and epoch, not on the number of workers. epoch(e, {.first = n}) continues after n batches. An Error of the data
/// set is thrown at its batch and names the sample.
///
///   Loader loader(MyDataset(), {.batch_size = 32, .shuffle = true});
///   Loader loader(MyDataset(), [](std::vector<MySample> samples, auto) { return pad(samples); }, {.batch_size = 32});
template <class Sample = std::vector<Tensor>, class Batch = Collated<Sample>>
class Loader : public BatchLoader<Batch> {
 public:
  using Set = std::shared_ptr<const Dataset<Sample>>;

  explicit Loader(const Set& dataset, const LoaderOptions& options = {})
      : Loader(dataset, options, [dataset](std::span<const ItemKey> keys) { return dataset->get_batch(keys); }) {}
  Loader(const Set& dataset, CollateFunction<Sample, Batch> collate, const LoaderOptions& options = {})
      : Loader(dataset, options, [dataset, collate = std::move(collate)](std::span<const ItemKey> keys) {
          std::vector<Sample> samples = dataset->get_each(keys);
          try {
            return collate(std::move(samples), keys);
          } catch (...) {
            detail::rethrow_with(detail::collating(keys));
          }
        }) {}
  /// Take a data set by value.
  template <detail::IsDataset D>
  explicit Loader(D dataset, const LoaderOptions& options = {})
      : Loader(Set(std::make_shared<const D>(std::move(dataset))), options) {}
  template <detail::IsDataset D>
  Loader(D dataset, CollateFunction<Sample, Batch> collate, const LoaderOptions& options = {})
      : Loader(Set(std::make_shared<const D>(std::move(dataset))), std::move(collate), options) {}

  /// Samples of the data set.
  int64_t size() const { return size_; }
  /// Batches per epoch.
  int64_t steps() const { return steps_; }

 private:
  using Keyed = std::function<Batch(std::span<const ItemKey> keys)>;

  Loader(const Set& dataset, const LoaderOptions& options, Keyed make)
      : Loader(detail::loader_plans(checked_size(dataset), options), options, std::move(make)) {}
  Loader(detail::LoaderPlans plans, const LoaderOptions& options, Keyed make)
      : BatchLoader<Batch>(
            "loader", std::move(plans.plan),
            [make = std::move(make), seed = options.seed](const EpochPlan& plan, int64_t epoch, int64_t step) {
              return make(detail::batch_keys(plan, seed, epoch, step));
            },
            {.workers = options.workers, .prefetch = options.prefetch}),
        size_(plans.size),
        steps_(plans.steps) {}
  static int64_t checked_size(const Set& dataset) {
    TERN_CHECK(dataset != nullptr, "loader: no data set");
    return dataset->size();
  }

  int64_t size_, steps_;
};

template <detail::IsDataset D>
Loader(D, const LoaderOptions& = {}) -> Loader<typename D::SampleType>;
template <detail::IsDataset D>
Loader(std::shared_ptr<D>, const LoaderOptions& = {}) -> Loader<typename D::SampleType>;
template <detail::IsDataset D, detail::Collates<typename D::SampleType> F>
Loader(D, F, const LoaderOptions& = {}) -> Loader<typename D::SampleType, detail::Result<F, typename D::SampleType>>;
template <detail::IsDataset D, detail::Collates<typename D::SampleType> F>
Loader(std::shared_ptr<D>, F, const LoaderOptions& = {})
    -> Loader<typename D::SampleType, detail::Result<F, typename D::SampleType>>;

}  // namespace tern::data

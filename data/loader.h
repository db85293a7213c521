#pragma once
// Batches of a map-style data set, shuffled by seed and epoch, prepared ahead by worker threads.

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "tern/core/tensor.h"
#include "tern/data/batch_loader.h"

namespace tern::data {

/// Samples by index. get() and get_batch() are called from several threads and must depend on the index alone.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  /// The tensors of one sample, without a batch dimension: {image, label}.
  virtual std::vector<Tensor> get(int64_t index) const = 0;
  /// The tensors of a batch. Default: get() of each index, stacked along a new first dimension. All samples must have
  /// the same number of tensors, with the same shapes and dtypes, contiguous on the CPU.
  virtual std::vector<Tensor> get_batch(std::span<const int32_t> indices) const;
};

/// Tensors whose first dimension counts samples: {inputs [n, ...], labels [n]}. On the CPU.
class TensorDataset final : public Dataset {
 public:
  explicit TensorDataset(std::vector<Tensor> tensors);
  int64_t size() const override { return tensors_.empty() ? 0 : tensors_[0].size(0); }  // no tensors: moved from
  /// Views; nothing is copied.
  std::vector<Tensor> get(int64_t index) const override;
  std::vector<Tensor> get_batch(std::span<const int32_t> indices) const override;
  const std::vector<Tensor>& tensors() const { return tensors_; }

 private:
  std::vector<Tensor> tensors_;
};

struct LoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;
  bool drop_last = false;  // skip a last batch that is not full
  int workers = 2;         // 0: batches are made in the consumer's thread
  int64_t prefetch = 0;    // batches made ahead; 0: two per worker
  uint64_t seed = 0;
};

/// for (const auto& batch : loader.epoch(e)) uses batch[0], batch[1], ... Content and order depend on the data, the
/// batch size, seed and epoch, not on the number of workers. An exception of the data set is rethrown at that batch.
class Loader : public BatchLoader<std::vector<Tensor>> {
 public:
  Loader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options = {});
  /// Takes a data set by value.
  template <class D>
  requires std::derived_from<std::remove_cvref_t<D>, Dataset>
  explicit Loader(D&& dataset, const LoaderOptions& options = {})
      : Loader(std::make_shared<const std::remove_cvref_t<D>>(std::forward<D>(dataset)), options) {}

  int64_t size() const { return size_; }
  /// Batches per epoch.
  int64_t steps() const { return steps_; }

 private:
  int64_t size_, steps_;
};

}  // namespace tern::data

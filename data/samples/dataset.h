#pragma once
// Samples by index.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tern/core/tensor.h"
#include "tern/data/plan/item_key.h"
#include "tern/data/samples/collate.h"

namespace tern::detail {
/// Within a catch block: throws the exception again, as an Error that begins with `what` (the original is nested).
/// OutOfMemoryError and DeviceError keep their types.
[[noreturn]] void rethrow_with(const std::string& what);
}  // namespace tern::detail

namespace tern::data {

/// Samples of any type: tensors, numbers, a struct. get() and get_batch() are called from several threads and must
/// depend on the key alone. Random choices (an augmentation) are drawn from item_random(key): they differ in every
/// epoch and do not depend on the workers.
template <class Sample = std::vector<Tensor>>
class Dataset {
 public:
  using SampleType = Sample;

  virtual ~Dataset() = default;
  /// Number of samples.
  virtual int64_t size() const = 0;
  /// The sample of row key.row, 0 .. size() - 1, without a batch dimension: {image, label}.
  virtual Sample get(const ItemKey& key) const = 0;
  /// A batch, where it can be made faster than from single samples. Default: collate() of get() of each key.
  virtual Collated<Sample> get_batch(std::span<const ItemKey> keys) const {
    return collate(get_each(keys), {.keys = keys});
  }
  /// get() of each key. An Error of get() begins with the sample's number.
  std::vector<Sample> get_each(std::span<const ItemKey> keys) const {
    std::vector<Sample> samples;
    samples.reserve(keys.size());
    for (const ItemKey& key : keys) {
      try {
        samples.push_back(get(key));
      } catch (...) {
        detail::rethrow_with("sample " + std::to_string(key.row) + " of the data set: ");
      }
    }
    return samples;
  }
};

/// Tensors whose first dimension counts samples: {inputs [n, ...], labels [n]}. On the CPU.
class TensorDataset final : public Dataset<> {
 public:
  explicit TensorDataset(std::vector<Tensor> tensors);
  int64_t size() const override { return tensors_.empty() ? 0 : tensors_[0].size(0); }  // no tensors: moved from
  /// Views; nothing is copied.
  std::vector<Tensor> get(const ItemKey& key) const override;
  std::vector<Tensor> get_batch(std::span<const ItemKey> keys) const override;
  const std::vector<Tensor>& tensors() const { return tensors_; }

 private:
  std::vector<Tensor> tensors_;
};

}  // namespace tern::data

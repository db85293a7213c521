#pragma once
// Batches on a device, fetched while the device computes on the one before.

#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/memory/stream.h"
#include "tern/core/tensor.h"
#include "tern/data/loaders/batch_stream.h"
#include "tern/data/samples/batch_tensors.h"

namespace tern::data {

/// The next batch, on the consumer's device; nothing at the end.
template <class Batch>
using BatchSource = std::function<std::optional<Batch>()>;

/// The batches of a stream, each as `convert` makes it on the consumer's device; or copied to a device.
template <class Batch, class Convert>
auto source_of(BatchStream<Batch> stream, Convert convert) {
  using Converted = std::invoke_result_t<Convert, Batch>;
  const auto batches = std::make_shared<BatchStream<Batch>>(std::move(stream));
  return BatchSource<Converted>([batches, convert]() -> std::optional<Converted> {
    std::optional<Batch> batch = batches->next();
    if (!batch) return std::nullopt;
    return convert(*std::move(batch));
  });
}
template <class Batch>
BatchSource<Batch> source_of(BatchStream<Batch> stream, Device device) {
  return source_of(std::move(stream), [device](Batch batch) { return to_device(std::move(batch), device); });
}

/// Batches of a source, each fetched while the step on the one before it runs. On CUDA the copies, and what else the
/// source computes, are queued on a separate stream.
template <class Batch>
class Prefetch {
 public:
  explicit Prefetch(Device device) : device_(device), arrival_(device) {
    if (device.is_cuda()) copies_.emplace(device);
  }

  void start(BatchSource<Batch> source) {
    source_ = std::move(source);
    fetch_ahead();
  }
  /// Makes the next batch the current one; false at the end. What the source throws for a batch is thrown here, when
  /// that batch would be the current one.
  bool next() {
    current_.reset();  // frees its memory for the next batch
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    if (!ahead_) return false;
    current_ = std::move(ahead_);
    if (copies_) {
      const kernels::Stream stream = current_stream(device_);
      arrival_.make_wait(stream);
      each_tensor(*current_, [&](const Tensor& tensor) { tensor.storage()->record_stream(stream); });
    }
    fetch_ahead();
    return true;
  }
  const Batch& current() const { return *current_; }

 private:
  void fetch_ahead() {
    ahead_.reset();
    const NoGrad off;
    std::optional<StreamGuard> guard;
    if (copies_) guard.emplace(*copies_);
    try {
      ahead_ = source_();
      if (copies_ && ahead_) arrival_.record();
    } catch (...) {
      error_ = std::current_exception();
    }
  }

  const Device device_;
  BatchSource<Batch> source_;
  std::optional<Stream> copies_;
  Event arrival_;  // of ahead_
  std::optional<Batch> current_, ahead_;
  std::exception_ptr error_;  // instead of ahead_
};

/// The batches of a stream on a device, each copied while the step on the one before it runs:
///   for (const auto& batch : DeviceBatches(loader.epoch(0), device))
template <class Batch>
class DeviceBatches {
 public:
  DeviceBatches(BatchStream<Batch> stream, Device device) : prefetch_(std::make_unique<Prefetch<Batch>>(device)) {
    prefetch_->start(source_of(std::move(stream), device));
  }

  class Iterator {
   public:
    explicit Iterator(Prefetch<Batch>* prefetch) : prefetch_(prefetch) { ++*this; }
    const Batch& operator*() const { return prefetch_->current(); }
    Iterator& operator++() {
      more_ = prefetch_->next();
      return *this;
    }
    bool operator==(std::default_sentinel_t) const { return !more_; }

   private:
    Prefetch<Batch>* prefetch_;
    bool more_ = false;
  };
  Iterator begin() { return Iterator(prefetch_.get()); }
  std::default_sentinel_t end() const { return {}; }

 private:
  std::unique_ptr<Prefetch<Batch>> prefetch_;
};

}  // namespace tern::data

#pragma once
// Batches as the trainer sees them: a struct of any kind that lists its tensors.
//
//   struct Pairs {
//     Tensor x, y;
//     std::vector<Tensor*> tensors() { return {&x, &y}; }
//   };
//
// From the list come the inputs of captured steps and what is copied to a device (data::to_device).

#include <any>
#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/memory/stream.h"
#include "tern/core/tensor.h"

namespace tern::models {

template <class B>
concept ListsTensors = std::copy_constructible<B> && requires(B& batch) {
  { batch.tensors() } -> std::same_as<std::vector<Tensor*>>;
};

/// A batch of any type. A copy shares the tensors.
class AnyBatch {
 public:
  AnyBatch() = default;
  template <class B>
  requires(!std::same_as<B, AnyBatch> && ListsTensors<B>) AnyBatch(B batch)
      : batch_(std::move(batch)), list_([](std::any& any) { return std::any_cast<B&>(any).tensors(); }) {
    if constexpr (requires { batch.max_length; })
      longest_ = [](std::any& any) { return &std::any_cast<B&>(any).max_length; };
  }

  std::vector<Tensor> tensors() const;
  /// The batch's member max_length, the longest sequence, where it has one: a number on which shapes depend.
  int64_t longest() const;
  /// The batch with other tensors, and another longest(), in their places.
  AnyBatch with(std::span<const Tensor> tensors, int64_t longest) const;
  /// Throws Error if the batch is of another type.
  template <class B>
  const B& as() const {
    const B* const batch = std::any_cast<B>(&batch_);
    TERN_CHECK(batch, "trainer: a loss got a batch of another type than its task makes");
    return *batch;
  }

 private:
  std::any batch_;
  std::vector<Tensor*> (*list_)(std::any&) = nullptr;
  int64_t* (*longest_)(std::any&) = nullptr;
};

/// The next batch, on the model's device; nothing at the end.
template <class Batch>
using BatchSource = std::function<std::optional<Batch>()>;

/// Batches of a source, each fetched while the step on the one before it runs. On CUDA the copies, and what else the
/// source computes, are queued on a separate stream.
template <ListsTensors Batch>
class Prefetch {
 public:
  explicit Prefetch(Device device) : device_(device), arrival_(device) {
    if (device.is_cuda()) copies_.emplace(device);
  }

  void start(BatchSource<Batch> source) {
    source_ = std::move(source);
    fetch_ahead();
  }
  /// Makes the next batch the current one; false at the end.
  bool next() {
    current_.reset();  // frees its memory for the next batch
    if (!ahead_) return false;
    current_ = std::move(ahead_);
    if (copies_) {
      const kernels::Stream stream = current_stream(device_);
      arrival_.make_wait(stream);
      for (const Tensor* tensor : current_->tensors())
        if (tensor->defined()) tensor->storage()->record_stream(stream);
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
    ahead_ = source_();
    if (copies_ && ahead_) arrival_.record();
  }

  const Device device_;
  BatchSource<Batch> source_;
  std::optional<Stream> copies_;
  Event arrival_;  // of ahead_
  std::optional<Batch> current_, ahead_;
};

}  // namespace tern::models

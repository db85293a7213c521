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
#include <span>
#include <utility>
#include <vector>

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

}  // namespace tern::models

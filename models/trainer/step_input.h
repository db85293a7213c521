#pragma once
// A batch as a training step sees it: a struct of any type that lists its tensors, with its loss.
//
//   struct Pairs {
//     Tensor x, y;
//     std::vector<Tensor*> tensors() { return {&x, &y}; }
//   };
//
// From the list come the inputs of captured steps and what is copied to a device (data::to_device).

#include <concepts>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "tern/core/tensor.h"

namespace tern::models {

template <class B>
concept ListsTensors = std::copy_constructible<B> && requires(B& batch) {
  { batch.tensors() } -> std::same_as<std::vector<Tensor*>>;
};

/// A copy shares the tensors.
struct StepInput {
  /// `loss` of a batch, recorded for backward, may be called any number of times.
  template <ListsTensors B, std::invocable<const B&> Loss>
  StepInput(B batch, Loss loss) {
    for (const Tensor* tensor : batch.tensors()) tensors.push_back(*tensor);
    if constexpr (requires { batch.layout.max_length; }) max_length = batch.layout.max_length;
    loss_of = [batch = std::move(batch), loss = std::move(loss)](std::span<const Tensor> given, int64_t longest) {
      B with = batch;
      const std::vector<Tensor*> places = with.tensors();
      for (size_t i = 0; i < places.size(); ++i) *places[i] = given[i];
      if constexpr (requires { with.layout.max_length; }) with.layout.max_length = longest;
      return loss(with);
    };
  }

  Tensor loss() const { return loss_of(tensors, max_length); }

  std::vector<Tensor> tensors;
  int64_t max_length = 0;  // the longest sequence, where the batch has a `layout`: a number on which shapes depend
  /// The loss of the batch with other tensors, and another max_length, in their places.
  std::function<Tensor(std::span<const Tensor> tensors, int64_t max_length)> loss_of;
};

}  // namespace tern::models

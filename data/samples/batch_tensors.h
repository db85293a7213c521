#pragma once
// The tensors of a batch, whatever its type.

#include <cstdint>
#include <tuple>
#include <type_traits>
#include <vector>

#include "tern/core/tensor.h"

namespace tern::detail {
template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = !std::is_same_v<T, bool>;
}  // namespace tern::detail

namespace tern::data {

/// Label of samples that only fill a batch: the losses' default ignore_index.
inline constexpr int64_t kIgnoredLabel = -100;

/// Calls use(tensor) for each defined Tensor of a batch: a Tensor; vectors, maps, pairs and tuples of batches; a struct
/// that lists them as std::vector<Tensor*> tensors(). Any other value has none.
template <class Batch, class Use>
void each_tensor(Batch& batch, const Use& use) {
  if constexpr (std::is_same_v<Batch, Tensor>) {
    if (batch.defined()) use(batch);
  } else if constexpr (requires { batch.tensors(); }) {
    for (Tensor* tensor : batch.tensors()) each_tensor(*tensor, use);
  } else if constexpr (requires { std::tuple_size<Batch>::value; }) {
    std::apply([&](auto&... parts) { (each_tensor(parts, use), ...); }, batch);
  } else if constexpr (requires { typename Batch::mapped_type; }) {
    for (auto& [key, part] : batch) each_tensor(part, use);
  } else if constexpr (detail::is_vector<Batch>) {
    for (auto& part : batch) each_tensor(part, use);
  }
}

/// The batch with its tensors on another device.
template <class Batch>
Batch to_device(Batch batch, Device device) {
  each_tensor(batch, [device](Tensor& tensor) { tensor = tensor.to(device); });
  return batch;
}

}  // namespace tern::data

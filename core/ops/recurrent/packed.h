#pragma once
// The packed weight of a recurrent layer that is called again and again for a step: nn::LSTMCell and its like.

#include "tern/core/ops/matmul/packed_weights.h"
#include "tern/kernels/recurrent/recurrent.h"

namespace tern::detail {

/// RecurrentWeights::state as the kernels of forward and of backward read it.
class PackedRecurrentWeight {
 public:
  /// layer.weight: `weight` in the layer's dtype. Undefined where the kernel reads that itself.
  Tensor find(const kernels::RecurrentLayer& layer, const Tensor& weight, bool backward) {
    return copies_.find({layer.kind, layer.weight.dtype, backward}, weight, [&] {
      const kernels::Stream stream = current_stream(weight.device());
      const int64_t bytes = kernels::recurrent_packed_bytes(stream, layer, backward);
      if (bytes == 0) return Tensor();
      const Tensor packed = empty({bytes}, {uint8, weight.device()});
      kernels::recurrent_pack(stream, layer, backward, packed.raw_data());
      return packed;
    });
  }

 private:
  struct Key {
    kernels::RecurrentKind kind;
    DType dtype;
    bool backward;
    bool operator==(const Key&) const = default;
  };
  PackedWeights<Key, 2> copies_;
};

}  // namespace tern::detail

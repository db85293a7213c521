#pragma once
// The weight of a linear layer that is called again and again without gradients.

#include "tern/core/autograd/autocast.h"
#include "tern/core/ops/matmul/packed_weights.h"
#include "tern/kernels/row_chain.h"

namespace tern::detail {

/// A linear layer's weight as a row chain reads it. One copy serves as long as the weight and the rows' dtype are the
/// same.
class PackedLinear {
 public:
  /// Whether find() gives a copy for the rows of x, which autocast may cast.
  static bool packs(int64_t rows, const Tensor& x, const Tensor& weight) {
    const bool casts = autocast_enabled(x.device()) && x.dtype() != float64;
    const DType dtype = casts ? autocast_active_dtype(x.device()) : x.dtype();
    const kernels::Stream stream = current_stream(weight.device());
    return kernels::linear_packing(stream, dtype, rows, weight.size(0), weight.size(1)) != 0;
  }
  /// For rows of a dtype. weight: [out, in], contiguous or a transposed contiguous matrix, of that dtype or to be cast
  /// by autocast. Undefined where the chain reads the weight itself.
  Tensor find(int64_t rows, DType dtype, const Tensor& weight) {
    const kernels::Stream stream = current_stream(weight.device());
    const int64_t out = weight.size(0), in = weight.size(1);
    const int64_t packing = kernels::linear_packing(stream, dtype, rows, out, in);
    if (packing == 0) return {};
    return copies_.find({packing, dtype}, weight, [&] {
      const Tensor used = autocast_copy(weight, dtype);
      const Tensor packed =
          empty({kernels::linear_packed_bytes(stream, dtype, rows, out, in)}, {uint8, weight.device()});
      kernels::linear_pack(stream, rows, used.view(), packed.raw_data());
      return packed;
    });
  }

 private:
  PackedWeights<std::pair<int64_t, DType>, 1> copies_;
};

}  // namespace tern::detail

#include "tern/data/samples/token_batch.h"

#include "tern/core/ops/ops.h"

namespace tern::data {

Tensor TokenInput::sequence_keys() const {
  return layout.row_keys.defined() ? layout.row_keys.index({first_rows}) : Tensor();
}

TokenInput padded_input(const Tensor& ids, const Tensor& mask, const Tensor& token_types) {
  TERN_CHECK(ids.dim() == 2 && ids.size(1) > 0, "padded_input: ids must be [batch, length], got ", ids.describe());
  TERN_CHECK(!token_types.defined() || token_types.shape() == ids.shape(), "padded_input: token_types must be ",
             ids.shape(), ", as ids, got ", token_types.describe());
  const int64_t batch = ids.size(0), length = ids.size(1);
  const TensorOptions whole{.dtype = DType::kInt64, .device = ids.device()};
  const Tensor positions = arange(0, static_cast<double>(length), 1, whole).expand({batch, length}).reshape({-1});
  return {.tokens = ids.contiguous().reshape({-1}),
          .positions = positions,
          .first_rows = arange(0, static_cast<double>(batch * length), static_cast<double>(length), whole),
          .layout = padded_layout(batch, length, mask, ids.device()),
          .token_types = token_types.defined() ? token_types.contiguous().reshape({-1}) : Tensor()};
}

}  // namespace tern::data

#include "tern/models/encoder/input.h"

#include "tern/core/ops/ops.h"

namespace tern::models {

Tensor EncoderInput::sequence_keys() const {
  return layout.row_keys.defined() ? layout.row_keys.index({first_rows}) : Tensor();
}

EncoderInput encoder_input(const data::TokenBatch& batch) {
  EncoderInput input;
  input.tokens = batch.tokens;
  input.positions = batch.positions;
  input.first_rows = batch.first_rows;
  input.layout.offsets = batch.offsets;
  input.layout.max_length = batch.max_length;
  input.layout.key_mask = batch.key_mask;
  input.layout.row_keys = batch.row_keys;
  return input;
}

EncoderInput encoder_input(const Tensor& ids, const Tensor& mask) {
  TERN_CHECK(ids.dim() == 2 && ids.size(1) > 0, "encoder: ids must be [batch, length], got ", ids.describe());
  const int64_t batch = ids.size(0), length = ids.size(1);
  EncoderInput input;
  input.tokens = ids.contiguous().reshape({-1});
  input.positions = arange(0, static_cast<double>(length), 1, {.dtype = DType::kInt64, .device = ids.device()})
                        .expand({batch, length})
                        .reshape({-1});
  input.first_rows = arange(0, static_cast<double>(batch * length), static_cast<double>(length),
                            {.dtype = DType::kInt64, .device = ids.device()});
  input.layout = padded_layout(batch, length, mask, ids.device());
  return input;
}

}  // namespace tern::models

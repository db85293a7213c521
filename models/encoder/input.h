#pragma once

#include "tern/core/ops/attention/attention.h"
#include "tern/data/samples/token_batch.h"

namespace tern::models {

/// Input of a text encoder: sequences one after another, packed or padded (see data::TokenBatch).
struct EncoderInput {
  Tensor tokens;      // int32 or int64 [rows]
  Tensor positions;   // int32 or int64 [rows], within each sequence
  Tensor first_rows;  // int64 [sequences]: row of each sequence's first token
  SequenceLayout layout;

  int64_t sequences() const { return layout.sequences(); }
  /// The row keys of the sequences' first tokens, int64 [sequences]; undefined without row keys.
  Tensor sequence_keys() const;
};

/// The encoder input of a loader's batch; shares its tensors.
EncoderInput encoder_input(const data::TokenBatch& batch);

/// A padded batch: ids [batch, length] of int64 or int32, mask [batch, length] (0 where padded) or undefined.
EncoderInput encoder_input(const Tensor& ids, const Tensor& mask = {});

}  // namespace tern::models

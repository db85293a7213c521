#pragma once
// Batches of token sequences for the text models.

#include <cstdint>
#include <vector>

#include "tern/core/ops/attention/attention.h"
#include "tern/data/samples/batch_tensors.h"

namespace tern::data {

/// What a text model reads: sequences of tokens one after another, packed or padded.
struct TokenInput {
  Tensor tokens;      // int32 or int64 [rows]
  Tensor positions;   // int32 or int64 [rows]: 0, 1, 2, ... in each sequence
  Tensor first_rows;  // int64 [sequences]: the row of each sequence's first token; 0 for an empty sequence
  SequenceLayout layout;
  Tensor token_types = {};  // int32 or int64 [rows]: BERT's segments; undefined: all 0

  int64_t sequences() const { return layout.sequences(); }
  bool padded() const { return layout.key_mask.defined(); }
  /// The row keys of the sequences' first tokens, int64 [sequences]; undefined without row keys.
  Tensor sequence_keys() const;
};

/// Padded sequences: ids [batch, length] of int64 or int32, mask [batch, length] (0 where padded) or undefined,
/// token_types as ids or undefined.
TokenInput padded_input(const Tensor& ids, const Tensor& mask = {}, const Tensor& token_types = {});

/// A step's input for a text model: sequence s has the token rows layout.offsets[s] .. layout.offsets[s + 1] - 1.
///
/// Packed: no padding. Padded: every sequence occupies S rows, S the longest of the batch (offsets 0, S, 2S, ...), and
/// layout.key_mask (uint8) is 0 on padding rows. In both forms a row's key is (data set row << 32 | position in its
/// sequence), also on padding rows, so dropout keyed by it does not depend on a sequence's place in a batch or on the
/// other sequences.
///
/// Fixed capacity gives every batch of a plan the same shape:
///  - packed: `batch_tokens` rows and max_batch_sequences() sequences. Missing sequences are empty (offsets repeat the
///    end of the last real one) and have label kIgnoredLabel. Rows after the last offset belong to no sequence: token
///    pad_id, position 0, and distinct negative keys (-1 << 32 | row). No row of a sequence depends on them, their
///    values are meaningless, and no gradient reaches them, since attention ends at the offsets and the loss reads
///    first_rows.
///  - padded: S is the longest of the plan, and a batch has batch_size sequences; missing ones are all padding, with
///    label kIgnoredLabel and negative keys.
struct TokenBatch : TokenInput {
  Tensor labels;              // int64 [sequences], or what TokenLoaderOptions::transform puts here
  std::vector<int32_t> rows;  // data set row of each real sequence
  int64_t real_tokens = 0;    // tokens that are not padding
  int64_t epoch = 0;
  int64_t step = 0;  // within the epoch

  std::vector<Tensor*> tensors() {
    return {&tokens,          &positions,       &first_rows,  &layout.offsets,
            &layout.key_mask, &layout.row_keys, &token_types, &labels};
  }
  /// Copies the batch to another device.
  TokenBatch to(Device device) const { return to_device(*this, device); }
};

}  // namespace tern::data

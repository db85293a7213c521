#pragma once
// Batches of token sequences for the text models.

#include <cstdint>
#include <vector>

#include "tern/core/tensor.h"
#include "tern/data/samples/batch_tensors.h"

namespace tern::data {

/// Sequences one after another; sequence s has the token rows offsets[s] .. offsets[s + 1] - 1.
///
/// Packed: no padding. Padded: every sequence occupies S rows, S the longest of the batch (offsets 0, S, 2S, ...), and
/// key_mask is 0 on padding rows. In both forms a row's key is (data set row << 32 | position in its sequence), also on
/// padding rows, so dropout keyed by it does not depend on a sequence's place in a batch or on the other sequences.
///
/// Fixed capacity gives every batch of a plan the same shape:
///  - packed: `batch_tokens` rows and max_batch_sequences() sequences. Missing sequences are empty (offsets repeat the
///    end of the last real one) and have label kIgnoredLabel. Rows after the last offset belong to no sequence: token
///    pad_id, position 0, and distinct negative keys (-1 << 32 | row). No row of a sequence depends on them, their
///    values are meaningless, and no gradient reaches them, since attention ends at the offsets and the loss reads
///    first_rows.
///  - padded: S is the longest of the plan, and a batch has batch_size sequences; missing ones are all padding, with
///    label kIgnoredLabel and negative keys.
struct TokenBatch {
  Tensor tokens;              // int32 [rows]
  Tensor offsets;             // int32 [sequences + 1]
  Tensor first_rows;          // int64 [sequences]: the row of each sequence's first token; 0 for an empty sequence
  Tensor positions;           // int32 [rows]: 0, 1, 2, ... in each sequence
  Tensor row_keys;            // int64 [rows]
  Tensor labels;              // int64 [sequences], or what TokenLoaderOptions::transform puts here
  Tensor key_mask;            // uint8 [rows] when padded, undefined when packed
  std::vector<int32_t> rows;  // data set row of each real sequence
  int64_t max_length = 0;     // longest sequence, padding included; attention may use it as a bound
  int64_t real_tokens = 0;    // tokens that are not padding
  int64_t epoch = 0;
  int64_t step = 0;  // within the epoch

  int64_t sequences() const { return first_rows.size(0); }
  bool padded() const { return key_mask.defined(); }
  std::vector<Tensor*> tensors() { return {&tokens, &positions, &first_rows, &offsets, &key_mask, &row_keys, &labels}; }
  /// Copies the batch to another device.
  TokenBatch to(Device device) const { return to_device(*this, device); }
};

}  // namespace tern::data

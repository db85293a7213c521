#pragma once
// Batches of sequences in tests/golden.

#include "tern/data/samples/token_batch.h"
#include "tern/tests/models/golden.h"

namespace tern::models {

/// The rows of a padded batch that are not padding, [batch, length] or [batch * length, ...] -> [rows, ...].
inline Tensor rows_kept(const Tensor& x, const Tensor& mask) {
  std::vector<int64_t> rows;
  const std::vector<int64_t> keep = mask.to_vector<int64_t>();
  for (size_t i = 0; i < keep.size(); ++i)
    if (keep[i] != 0) rows.push_back(static_cast<int64_t>(i));
  return index_select(x, 0, from_vector(rows, {static_cast<int64_t>(rows.size())}));
}

/// Packs the sequences of a padded batch without the padding. types: as ids, or undefined.
inline data::TokenInput packed(const Tensor& ids, const Tensor& mask, const Tensor& types = {}) {
  std::vector<int64_t> lengths, positions, first;
  const std::vector<int64_t> keep = mask.to_vector<int64_t>();
  for (int64_t s = 0; s < ids.size(0); ++s) {
    first.push_back(static_cast<int64_t>(positions.size()));
    int64_t n = 0;
    for (int64_t i = 0; i < ids.size(1); ++i)
      if (keep[static_cast<size_t>(s * ids.size(1) + i)] != 0) positions.push_back(n++);
    lengths.push_back(n);
  }
  return {.tokens = rows_kept(ids.reshape({-1}), mask),
          .positions = from_vector(positions, {static_cast<int64_t>(positions.size())}),
          .first_rows = from_vector(first, {static_cast<int64_t>(first.size())}),
          .layout = packed_layout(lengths),
          .token_types = types.defined() ? rows_kept(types.reshape({-1}), mask) : Tensor()};
}

inline data::TokenInput input_of(const StateView& expected, bool pack) {
  const Tensor ids = find(expected, "input_ids"), mask = find(expected, "attention_mask");
  const Tensor types = find(expected, "token_type_ids");
  return pack ? packed(ids, mask, types) : data::padded_input(ids, mask, types);
}

}  // namespace tern::models

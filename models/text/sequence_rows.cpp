#include "tern/models/text/sequence_rows.h"

namespace tern::models {

std::vector<std::vector<int64_t>> rows_of_sequences(const SequenceLayout& layout) {
  const std::vector<int64_t> offsets = layout.offsets.to_vector<int64_t>();
  const std::vector<int64_t> mask =
      layout.key_mask.defined() ? layout.key_mask.to_vector<int64_t>() : std::vector<int64_t>();
  std::vector<std::vector<int64_t>> rows;
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    std::vector<int64_t>& own = rows.emplace_back();
    for (int64_t row = offsets[s]; row < offsets[s + 1]; ++row)
      if (mask.empty() || mask[static_cast<size_t>(row)] != 0) own.push_back(row);
  }
  return rows;
}

}  // namespace tern::models

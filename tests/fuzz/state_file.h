#pragma once
#include "tern/core/io/state_file.h"
#include "tern/tests/fuzz/fuzz.h"

namespace tern::fuzz {

/// Reads every element of a tensor of at most 2^16 elements.
inline void touch(const Tensor& tensor) {
  if (tensor.numel() > 1 << 16) return;
  require(static_cast<int64_t>(tensor.to_vector<double>().size()) == tensor.numel());
}

inline void touch(const StateFile& file) {
  for (const NamedTensor& entry : file.tensors) touch(entry.tensor);
  for (const auto& [name, value] : file.other_entries) require(detail::printable(value, 50).size() < 1000);
}

}  // namespace tern::fuzz

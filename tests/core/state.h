#pragma once
// Named tensors in tests: their names and values.

#include <string>
#include <vector>

#include "tern/core/tensor.h"

namespace tern::test {

using Values = std::vector<std::vector<double>>;

inline std::vector<std::string> names_of(const StateView& state) {
  std::vector<std::string> names;
  for (const NamedTensor& entry : state) names.push_back(entry.name);
  return names;
}

inline Values values_of(const StateView& state) {
  Values values;
  for (const NamedTensor& entry : state) values.push_back(entry.tensor.to_vector<double>());
  return values;
}

/// A copy that later changes in place do not reach.
inline StateView copy_of(const StateView& state) {
  StateView copy;
  for (const NamedTensor& entry : state) copy.push_back({entry.name, entry.tensor.clone()});
  return copy;
}

}  // namespace tern::test

#pragma once
// The graph of a result as text for Graphviz.

#include <string>

#include "tern/core/tensor.h"

namespace tern {

/// The recorded ops behind `output` in the DOT language: an ellipse for each op with its results' shapes and dtypes, a
/// box for each leaf, with its name if `names` has the tensor; arrows from inputs to results. The same graph gives the
/// same text. `dot -Tsvg` draws it. A tensor without history gives one box.
std::string graph_dot(const Tensor& output, const StateView& names = {});

}  // namespace tern

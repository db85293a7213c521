#pragma once
// Tensors of all ranks that differ in shape.

#include <vector>

#include "tern/dist/collectives/communicator.h"

namespace tern::detail {

/// The tensors of all ranks, on the host, in rank order; shapes and types may differ. Called by all ranks.
std::vector<Tensor> gather_tensors(dist::Communicator& group, const Tensor& own);

}  // namespace tern::detail

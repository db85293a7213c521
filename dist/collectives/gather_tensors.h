#pragma once
// Tensors of all ranks that differ in shape.

#include <vector>

#include "tern/dist/collectives/communicator.h"
#include "tern/nn/metrics/metric.h"

namespace tern::dist {

/// For compute() of metrics: of all ranks of the group.
nn::GatherRanks gather_over(std::shared_ptr<Communicator> group);

}  // namespace tern::dist

namespace tern::detail {

/// The tensors of all ranks, on the host, in rank order; shapes and types may differ. Called by all ranks.
std::vector<Tensor> gather_tensors(dist::Communicator& group, const Tensor& own);

}  // namespace tern::detail

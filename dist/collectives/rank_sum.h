#pragma once
// Reductions over ranks on the CPU.

#include "tern/dist/collectives/communicator.h"

namespace tern::dist {

/// result[i] = parts[0][i] op parts[1][i] op ..., in this order; 16-bit values are reduced in float32 and rounded once.
/// kMean divides the sum by the number of parts. result may be one of the parts. Single-threaded; each result depends
/// only on that element's values. The arguments must satisfy the checks of Communicator::all_reduce.
void reduce_in_order(ReduceOp op, DType dtype, const std::vector<const void*>& parts, void* result, int64_t count);

}  // namespace tern::dist

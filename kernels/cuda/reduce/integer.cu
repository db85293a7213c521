// Reductions of integers and bool.

#include "tern/kernels/cuda/reduce/kernel.h"

namespace tern::kernels::cuda {

template void reduce_elements<int64_t>(Stream, Reduction, const ReducePlan&, const void*, void*, const ValueSink&);
template void reduce_elements<int32_t>(Stream, Reduction, const ReducePlan&, const void*, void*, const ValueSink&);
template void reduce_elements<uint8_t>(Stream, Reduction, const ReducePlan&, const void*, void*, const ValueSink&);
template void reduce_elements<bool>(Stream, Reduction, const ReducePlan&, const void*, void*, const ValueSink&);

}  // namespace tern::kernels::cuda

// Reductions of fp32 and fp64.

#include "tern/kernels/cuda/reduce/kernel.h"

namespace tern::kernels::cuda {

template void reduce_elements<float>(Stream, Reduction, const ReducePlan&, const void*, void*, const ValueSink&);
template void reduce_elements<double>(Stream, Reduction, const ReducePlan&, const void*, void*, const ValueSink&);

}  // namespace tern::kernels::cuda

// Reductions of 16-bit floats.

#include "tern/kernels/cuda/reduce/kernel.h"

namespace tern::kernels::cuda {

template void reduce_elements<BFloat16>(Stream, Reduction, const ReducePlan&, const void*, void*, const ValueSink&);
template void reduce_elements<Float16>(Stream, Reduction, const ReducePlan&, const void*, void*, const ValueSink&);

}  // namespace tern::kernels::cuda

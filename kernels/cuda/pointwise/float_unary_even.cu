// Every other built-in op of one input, computed in float.

#include "tern/kernels/cuda/pointwise/builtin.h"

namespace tern::kernels::cuda {

template PointwiseFunction* builtin_pointwise<float, PointwiseGroup::kUnaryEven>(int);

}  // namespace tern::kernels::cuda

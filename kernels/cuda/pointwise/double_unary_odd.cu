// Every other built-in op of one input, computed in double.

#include "tern/kernels/cuda/pointwise/builtin.h"

namespace tern::kernels::cuda {

template PointwiseFunction* builtin_pointwise<double, PointwiseGroup::kUnaryOdd>(int);

}  // namespace tern::kernels::cuda

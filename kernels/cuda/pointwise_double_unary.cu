// The built-in ops of one input, computed in double.

#include "tern/kernels/cuda/pointwise_builtin.h"

namespace tern::kernels::cuda {

template PointwiseFunction* builtin_pointwise<double, PointwiseGroup::kUnary>(int);

}  // namespace tern::kernels::cuda

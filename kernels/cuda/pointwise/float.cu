// The built-in ops of two and three inputs, computed in float.

#include "tern/kernels/cuda/pointwise/builtin.h"

namespace tern::kernels::cuda {

template PointwiseFunction* builtin_pointwise<float, PointwiseGroup::kOthers>(int);

}  // namespace tern::kernels::cuda

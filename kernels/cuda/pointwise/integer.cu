// The built-in ops that compute in int64.

#include "tern/kernels/cuda/pointwise/builtin.h"

namespace tern::kernels::cuda {

template PointwiseFunction* builtin_pointwise<int64_t, PointwiseGroup::kUnaryEven>(int);
template PointwiseFunction* builtin_pointwise<int64_t, PointwiseGroup::kUnaryOdd>(int);
template PointwiseFunction* builtin_pointwise<int64_t, PointwiseGroup::kOthers>(int);

}  // namespace tern::kernels::cuda

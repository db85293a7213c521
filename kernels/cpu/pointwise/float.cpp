// The built-in ops, computed in float.

#include "tern/kernels/cpu/pointwise/loops.h"

namespace tern::kernels::TERN_CPU {

template TileFunction<float> builtin_loop<float>(int, PointwisePass);

}  // namespace tern::kernels::TERN_CPU

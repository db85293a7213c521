// The built-in ops, computed in double.

#include "tern/kernels/cpu/pointwise/loops.h"

namespace tern::kernels::TERN_CPU {

template TileFunction<double> builtin_loop<double>(int, PointwisePass);

}  // namespace tern::kernels::TERN_CPU

// The built-in ops, computed in int64_t.

#include "tern/kernels/cpu/pointwise/loops.h"

namespace tern::kernels::TERN_CPU {

template TileFunction<int64_t> builtin_loop<int64_t>(int, PointwisePass);

}  // namespace tern::kernels::TERN_CPU

// The built-in ops on elements of bfloat16.

#include "tern/kernels/cpu/pointwise/halves.h"

namespace tern::kernels::TERN_CPU {

template TileFunction<BFloat16> half_loop<BFloat16>(int);

}  // namespace tern::kernels::TERN_CPU

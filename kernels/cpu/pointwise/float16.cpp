// The built-in ops on elements of float16.

#include "tern/kernels/cpu/pointwise/halves.h"

namespace tern::kernels::TERN_CPU {

template TileFunction<Float16> half_loop<Float16>(int);

}  // namespace tern::kernels::TERN_CPU

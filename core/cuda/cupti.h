#pragma once
// CUPTI, which times kernels, copies and fills. The library is loaded on first use; programs run without it.

#include "tern/kernels/cuda/support/library.h"

namespace tern::cuda {

kernels::cuda::SharedLibrary& cupti_library();

}  // namespace tern::cuda

#pragma once
// Whether cuDNN is there. This header needs no CUDA header; the functions exist where TERN_CUDA is on.

#include "tern/kernels/cuda/support/library.h"

namespace tern::kernels::cuda {

SharedLibrary& cudnn_library();
/// The version of cuDNN, or why it could not be loaded. The first call loads the library. Does not throw.
const LibraryInfo& cudnn_info();

}  // namespace tern::kernels::cuda

#include "tern/core/cuda/cupti.h"
#include "tern/core/device/backend.h"
#include "tern/kernels/cuda/support/cublaslt.h"
#include "tern/kernels/cuda/support/cudnn_info.h"

namespace tern::cuda {

std::vector<kernels::cuda::LibraryInfo> libraries() {
  return {kernels::cuda::cublaslt_info(), kernels::cuda::cudnn_info(), cupti_library().info()};
}

}  // namespace tern::cuda

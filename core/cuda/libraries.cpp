// The output of `tern info` about NVIDIA's libraries.

#include "tern/core/cuda/backend.h"
#include "tern/core/cuda/cupti.h"
#include "tern/core/cuda/nccl.h"
#include "tern/kernels/cuda/cudnn_attention.h"
#include "tern/kernels/cuda/support/cublaslt.h"
#include "tern/kernels/cuda/support/library.h"

namespace tern::cuda {
namespace {

using kernels::cuda::LibraryInfo;

LibraryReport report(const LibraryInfo& info) {
  if (info.found) return {info.name, info.path, info.version, ""};
  return {info.name, "", "", info.reason.empty() ? "no file to try" : info.reason};
}

}  // namespace

std::vector<LibraryReport> libraries() {
  return {report(kernels::cuda::cublaslt_info()), report(kernels::cuda::cudnn_info()), report(nccl::library().info()),
          report(cupti_library().info())};
}

}  // namespace tern::cuda

// What `tern info` says of NVIDIA's libraries.

#include "tern/core/cuda/backend.h"
#include "tern/core/cuda/cupti.h"
#include "tern/kernels/cuda/cudnn_attention.h"
#include "tern/kernels/cuda/support/cublaslt.h"
#include "tern/kernels/cuda/support/library.h"

namespace tern::cuda {
namespace {

using kernels::cuda::LibraryInfo;
using kernels::cuda::SharedLibrary;

// Declared here as the libraries export them: a build needs no headers of libraries that it does not call.
std::string nccl_version(void* probe) {
  int version = 0;
  if (reinterpret_cast<int (*)(int*)>(probe)(&version) != 0) return "of unknown version";
  return kernels::cuda::dotted_version(static_cast<size_t>(version));
}

LibraryReport report(const LibraryInfo& info) {
  if (info.found) return {info.name, info.path, info.version, ""};
  return {info.name, "", "", info.reason.empty() ? "no file to try" : info.reason};
}

}  // namespace

std::vector<LibraryReport> libraries() {
  SharedLibrary nccl({"NCCL",
                      "training on several GPUs",
                      {"libnccl.so.2"},
                      "package libnccl2",
                      "TERN_NCCL",
                      "ncclGetVersion",
                      nccl_version});
  return {report(kernels::cuda::cublaslt_info()), report(kernels::cuda::cudnn_info()), report(nccl.info()),
          report(cupti_library().info())};
}

}  // namespace tern::cuda

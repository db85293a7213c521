#pragma once
// cuDNN's functions, loaded on first use, and its errors as exceptions. Include it only after a check of
// __has_include(<cudnn.h>): the CUDA toolkit does not contain that header.

#include <cudnn.h>

#include "tern/kernels/base/check.h"
#include "tern/kernels/cuda/support/cudnn_info.h"
#include "tern/kernels/cuda/support/library.h"

namespace tern::kernels::cuda {

/// The functions that Tern calls, named without the prefix "cudnn".
struct Cudnn {
  TERN_LIBRARY_FUNCTION(cudnn_library(), cudnn, Create);
  TERN_LIBRARY_FUNCTION(cudnn_library(), cudnn, SetStream);
  TERN_LIBRARY_FUNCTION(cudnn_library(), cudnn, GetErrorString);
  TERN_LIBRARY_FUNCTION(cudnn_library(), cudnn, GetLastErrorString);
  TERN_LIBRARY_FUNCTION(cudnn_library(), cudnn, BackendCreateDescriptor);
  TERN_LIBRARY_FUNCTION(cudnn_library(), cudnn, BackendDestroyDescriptor);
  TERN_LIBRARY_FUNCTION(cudnn_library(), cudnn, BackendSetAttribute);
  TERN_LIBRARY_FUNCTION(cudnn_library(), cudnn, BackendGetAttribute);
  TERN_LIBRARY_FUNCTION(cudnn_library(), cudnn, BackendFinalize);
  TERN_LIBRARY_FUNCTION(cudnn_library(), cudnn, BackendExecute);
};

/// Throws Error when the library is missing.
const Cudnn& cudnn();

namespace detail {
/// Throws DeviceError when the device is lost, OutOfMemoryError when cuDNN got no memory, otherwise Error, with `what`,
/// the status and cuDNN's message.
[[noreturn]] void fail_cudnn(cudnnStatus_t status, const std::string& what);
}  // namespace detail

}  // namespace tern::kernels::cuda

/// Throws with the expression, its location and cuDNN's message when a call fails. A macro because the message quotes
/// the expression.
#define TERN_CUDNN_CHECK(expression)                                                                           \
  do {                                                                                                         \
    if (const cudnnStatus_t tern_status = (expression); tern_status != CUDNN_STATUS_SUCCESS)                   \
      ::tern::kernels::cuda::detail::fail_cudnn(                                                               \
          tern_status,                                                                                         \
          ::tern::detail::concatenate(::tern::detail::base_name(__FILE__), ":", __LINE__, ": ", #expression)); \
  } while (false)

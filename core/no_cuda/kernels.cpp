// The CUDA kernels of a program without CUDA. A kernel that is new in a header is here without another line; a header
// of kernels that is new is included here.

#include "tern/core/no_cuda/no_cuda.h"
#include "tern/kernels/kernel.h"

#undef TERN_KERNEL
// After the declarations of kernels/kernel.h, the definition for CUDA.
#define TERN_KERNEL(Result, name, ...)                                               \
  TERN_DECLARE_KERNEL(Result, name, __VA_ARGS__);                                    \
  namespace cuda {                                                                   \
  Result name(__VA_ARGS__) { ::tern::cuda::fail_without_cuda("the kernel " #name); } \
  }

#include "tern/kernels/attention.h"
#include "tern/kernels/copy.h"
#include "tern/kernels/cuda/cudnn_attention.h"
#include "tern/kernels/cuda/gemm_settings.h"
#include "tern/kernels/embedding.h"
#include "tern/kernels/gemm.h"
#include "tern/kernels/image.h"
#include "tern/kernels/loss_scale.h"
#include "tern/kernels/norm.h"
#include "tern/kernels/optimizer.h"
#include "tern/kernels/pointwise.h"
#include "tern/kernels/reduce.h"
#include "tern/kernels/row_chain.h"
#include "tern/kernels/scan.h"
#include "tern/kernels/softmax.h"
#include "tern/kernels/sort.h"

namespace tern::kernels::cuda {

void set_tf32(bool) { ::tern::cuda::fail_without_cuda(__func__); }
void set_autotune(bool) { ::tern::cuda::fail_without_cuda(__func__); }
std::string gemm_choices() { return ""; }
void restore_gemm_choices(const std::string&) { ::tern::cuda::fail_without_cuda(__func__); }
void set_attention_autotune(bool) { ::tern::cuda::fail_without_cuda(__func__); }
std::string attention_choices() { return ""; }
void restore_attention_choices(const std::string&) { ::tern::cuda::fail_without_cuda(__func__); }

}  // namespace tern::kernels::cuda

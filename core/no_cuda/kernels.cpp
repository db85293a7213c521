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
#include "tern/kernels/batch_norm.h"
#include "tern/kernels/cdist.h"
#include "tern/kernels/convolution/convolution.h"
#include "tern/kernels/copy.h"
#include "tern/kernels/ctc.h"
#include "tern/kernels/embedding.h"
#include "tern/kernels/gemm.h"
#include "tern/kernels/group_norm.h"
#include "tern/kernels/image.h"
#include "tern/kernels/norm.h"
#include "tern/kernels/optimizer/layerwise.h"
#include "tern/kernels/optimizer/loss_scale.h"
#include "tern/kernels/optimizer/optimizer.h"
#include "tern/kernels/pointwise/pointwise.h"
#include "tern/kernels/pool.h"
#include "tern/kernels/recurrent/recurrent.h"
#include "tern/kernels/recurrent/sequence.h"
#include "tern/kernels/reduce.h"
#include "tern/kernels/resample.h"
#include "tern/kernels/rotary.h"
#include "tern/kernels/row_chain.h"
#include "tern/kernels/scan.h"
#include "tern/kernels/softmax.h"
#include "tern/kernels/sort.h"

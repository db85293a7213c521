#pragma once
// Recurrent layers by cuDNN (kernels/recurrent/sequence.h). This header needs no CUDA header; the function exists where
// TERN_CUDA is on.
//
// cuDNN computes layers of at least two steps in fp32, bf16 and fp16, with sums in fp32 and, without --tf32, without
// rounding fp32. NVIDIA's notes on RNNs say that results may differ from run to run where cuBLAS, which cuDNN calls,
// has buffers of several sizes. cuDNN is therefore used only where the environment names one size
// (CUBLAS_WORKSPACE_CONFIG=:4096:8 or :16:8, say) when the process first asks.

namespace tern::kernels::cuda {

/// Instead of what the environment says: whether cuDNN computes recurrent layers where it is able to.
void set_cudnn_recurrent(bool on);
bool cudnn_recurrent();

}  // namespace tern::kernels::cuda

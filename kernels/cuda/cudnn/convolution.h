#pragma once
// cuDNN's convolutions. This header needs no CUDA header; the functions exist where TERN_CUDA is on.
//
// cuDNN computes convolutions in fp32, bf16 and fp16 of images with their channels last, with sums in fp32. The plan is
// the first of cuDNN's suggestions that gives the same bits every time and neither rounds sums to 16 bits nor, without
// --tf32, inputs of fp32; with autotune the fastest of them. What has no such plan, and images or weights that are not
// aligned to 16 bytes, go through columns (convolution/columns.h).

#include <climits>
#include <string>

#include "tern/kernels/convolution/convolution.h"

namespace tern::kernels::cuda {

/// Bytes of workspace for the functions below; 0 when cuDNN computes none of the passes.
int64_t cudnn_convolution_workspace(Stream stream, const ConvolutionShape& shape, DType dtype);

/// The kernels of kernels/convolution/convolution.h; false, without a result, for calls that columns must compute.
/// Tensors of more than `max_elements` elements, which cuDNN's engines do not all count, are computed by parts of the
/// batch.
bool cudnn_convolution_forward(Stream stream, const ConvolutionShape& shape, ConstView x, ConstView weight,
                               const ConvolutionEpilogue& epilogue, View y, void* workspace,
                               int64_t max_elements = INT_MAX);
bool cudnn_convolution_backward_input(Stream stream, const ConvolutionShape& shape, ConstView dy, ConstView weight,
                                      View dx, void* workspace, int64_t max_elements = INT_MAX);
bool cudnn_convolution_backward_weight(Stream stream, const ConvolutionShape& shape, ConstView dy, ConstView x,
                                       View dweight, void* workspace, int64_t max_elements = INT_MAX);

/// on: for each new kind of call cuDNN's suggestions and columns are timed, outside stream captures, and the fastest is
/// used from then on. Off by default. Timing waits for the stream.
void set_convolution_autotune(bool on);
/// As attention_choices() and restore_attention_choices(): which of cuDNN's suggestions is used, or -1 for columns.
std::string convolution_choices();
void restore_convolution_choices(const std::string& text);

}  // namespace tern::kernels::cuda

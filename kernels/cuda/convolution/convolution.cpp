// Chooses what computes a convolution: depthwise.cu for depthwise ones, cuDNN for the others, and matrix products where
// cuDNN has no plan.

#include "tern/kernels/convolution/convolution.h"

#include <algorithm>

#include "tern/kernels/convolution/columns.h"
#include "tern/kernels/cuda/convolution/depthwise.h"
#include "tern/kernels/cuda/cudnn/convolution.h"

namespace tern::kernels::cuda {
namespace {

/// The workspace of each pass: whether cuDNN has a plan is known when the tensors are.
int64_t workspace_of(Stream stream, const ConvolutionShape& shape, DType dtype) {
  if (is_depthwise(shape))
    return std::max(depthwise_workspace(shape, dtype), ConvolutionByColumns(stream, shape, dtype).channel_bytes());
  return std::max(ConvolutionByColumns(stream, shape, dtype).workspace_bytes(),
                  cudnn_convolution_workspace(stream, shape, dtype));
}

}  // namespace

int64_t convolution_workspace(Stream stream, const ConvolutionShape& shape, DType dtype, bool) {
  return workspace_of(stream, shape, dtype);
}
void convolution_forward(Stream stream, const ConvolutionShape& shape, ConstView x, ConstView weight,
                         const ConvolutionEpilogue& epilogue, View y, void* workspace) {
  ConvolutionByColumns columns(stream, shape, x.dtype);
  if (is_depthwise(shape)) {
    depthwise_forward(stream, shape, x, weight, epilogue.continues() ? ConstView() : epilogue.bias, y, workspace);
    if (epilogue.continues()) columns.apply_epilogue(epilogue, y, workspace);
    return;
  }
  if (cudnn_convolution_forward(stream, shape, x, weight, epilogue, y, workspace)) return;
  columns.forward(x, weight, epilogue, y, workspace);
}
int64_t convolution_packed_bytes(Stream, const ConvolutionShape&, DType) { return 0; }
void convolution_pack(Stream, const ConvolutionShape&, ConstView, void*) {}
const ConvolutionMethod* const* convolution_methods(Stream) { return nullptr; }

int64_t convolution_backward_input_workspace(Stream stream, const ConvolutionShape& shape, DType dtype) {
  return workspace_of(stream, shape, dtype);
}
void convolution_backward_input(Stream stream, const ConvolutionShape& shape, ConstView dy, ConstView weight, View dx,
                                void* workspace) {
  if (is_depthwise(shape)) return depthwise_backward_input(stream, shape, dy, weight, dx, workspace);
  if (cudnn_convolution_backward_input(stream, shape, dy, weight, dx, workspace)) return;
  ConvolutionByColumns(stream, shape, dx.dtype).backward_input(dy, weight, dx, workspace);
}

int64_t convolution_backward_weight_workspace(Stream stream, const ConvolutionShape& shape, DType dtype) {
  return workspace_of(stream, shape, dtype);
}
void convolution_backward_weight(Stream stream, const ConvolutionShape& shape, ConstView dy, ConstView x, View dweight,
                                 void* workspace) {
  if (is_depthwise(shape)) return depthwise_backward_weight(stream, shape, dy, x, dweight, workspace);
  if (cudnn_convolution_backward_weight(stream, shape, dy, x, dweight, workspace)) return;
  ConvolutionByColumns(stream, shape, x.dtype).backward_weight(dy, x, dweight, workspace);
}

}  // namespace tern::kernels::cuda

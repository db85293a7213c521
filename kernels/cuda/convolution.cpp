// Convolutions by matrix products.

#include "tern/kernels/convolution.h"

#include "tern/kernels/convolution_columns.h"

namespace tern::kernels::cuda {

int64_t convolution_workspace(Stream stream, const ConvolutionShape& shape, DType dtype, bool) {
  return ConvolutionByColumns(stream, shape, dtype).workspace_bytes();
}
void convolution_forward(Stream stream, const ConvolutionShape& shape, ConstView x, ConstView weight,
                         const ConvolutionEnd& end, View y, void* workspace) {
  ConvolutionByColumns(stream, shape, x.dtype).forward(x, weight, end, y, workspace);
}
int64_t convolution_packed_bytes(Stream, const ConvolutionShape&, DType) { return 0; }
void convolution_pack(Stream, const ConvolutionShape&, ConstView, void*) {}

int64_t convolution_backward_input_workspace(Stream stream, const ConvolutionShape& shape, DType dtype) {
  return ConvolutionByColumns(stream, shape, dtype).workspace_bytes();
}
void convolution_backward_input(Stream stream, const ConvolutionShape& shape, ConstView dy, ConstView weight, View dx,
                                void* workspace) {
  ConvolutionByColumns(stream, shape, dx.dtype).backward_input(dy, weight, dx, workspace);
}

int64_t convolution_backward_weight_workspace(Stream stream, const ConvolutionShape& shape, DType dtype) {
  return ConvolutionByColumns(stream, shape, dtype).workspace_bytes();
}
void convolution_backward_weight(Stream stream, const ConvolutionShape& shape, ConstView dy, ConstView x, View dweight,
                                 void* workspace) {
  ConvolutionByColumns(stream, shape, x.dtype).backward_weight(dy, x, dweight, workspace);
}

}  // namespace tern::kernels::cuda

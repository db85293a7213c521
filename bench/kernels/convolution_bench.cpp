// Convolutions of ResNet-18 (32 x 32), ResNet-50 and MobileNetV3, by the kernels. Forward has a weight that was packed
// before, as in evaluation; the gradients rewrite the weight in each call, as in training. tern-bench-onednn has the
// same rows (docs/benchmarks.md).

#include "tern/bench/benchmark.h"
#include "tern/bench/kernels/convolution_rows.h"

namespace tern::bench {
namespace {

/// The arguments of the three passes.
struct Convolution {
  explicit Convolution(const ConvolutionRow& row)
      : shape(row.shape),
        x(row.dtype, images(shape.in, shape.in_channels)),
        y(row.dtype, images(shape.out, shape.out_channels)),
        weight(row.dtype, weights()),
        dweight(float32, weights()),
        packed(kernels::convolution_packed_bytes(stream(), shape, row.dtype)),
        workspace(workspace_bytes(row)) {
    if (packs()) kernels::convolution_pack(stream(), shape, weight.view(), packed.data());
  }

  Shape images(const std::array<int64_t, 3>& size, int64_t channels) const {
    return {shape.batch, size[0], size[1], size[2], channels};
  }
  Shape weights() const {
    return {shape.out_channels, shape.group_in(), shape.kernel[0], shape.kernel[1], shape.kernel[2]};
  }
  bool packs() const { return kernels::convolution_packed_bytes(stream(), shape, weight.tensor().dtype()) > 0; }
  int64_t workspace_bytes(const ConvolutionRow& row) const {
    if (row.pass == ConvolutionPass::kForward)
      return kernels::convolution_workspace(stream(), shape, row.dtype, packs());
    return row.pass == ConvolutionPass::kInputGradient
               ? kernels::convolution_backward_input_workspace(stream(), shape, row.dtype)
               : kernels::convolution_backward_weight_workspace(stream(), shape, row.dtype);
  }
  void run(ConvolutionPass pass) const {
    if (pass == ConvolutionPass::kForward)
      kernels::convolution_forward(stream(), shape, x.view(), weight.view(),
                                   {.packed_weight = packs() ? packed.data() : nullptr}, y.view(), workspace.data());
    else if (pass == ConvolutionPass::kInputGradient)
      kernels::convolution_backward_input(stream(), shape, y.view(), weight.view(), x.view(), workspace.data());
    else
      kernels::convolution_backward_weight(stream(), shape, y.view(), x.view(), dweight.view(), workspace.data());
  }

  kernels::ConvolutionShape shape;
  Buffer x, y, weight, dweight;
  Scratch packed, workspace;
};

const Rows registered([] {
  if (device().is_cuda()) return;  // cuDNN's, which the training steps measure
  for (const ConvolutionRow& row : convolution_rows())
    add(row.name, row.work(),
        [row]() -> Call { return [convolution = Convolution(row), pass = row.pass] { convolution.run(pass); }; });
});

}  // namespace
}  // namespace tern::bench

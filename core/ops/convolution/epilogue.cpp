#include "tern/core/ops/convolution/epilogue.h"

#include "tern/core/ops/convolution/call.h"
#include "tern/core/ops/image/images.h"
#include "tern/core/ops/matmul/linear_inputs.h"

namespace tern::detail {

Tensor PackedWeight::find(const kernels::ConvolutionShape& shape, const Tensor& weight, const Tensor& used) {
  return copies_.find({shape, used.dtype()}, weight, [&] {
    const kernels::Stream stream = current_stream(used.device());
    const int64_t bytes = kernels::convolution_packed_bytes(stream, shape, used.dtype());
    if (bytes == 0) return Tensor();
    const Tensor packed = empty({bytes}, {uint8, used.device()});
    kernels::convolution_pack(stream, shape, used.view(), packed.raw_data());
    return packed;
  });
}

Tensor conv2d_with_epilogue(const Tensor& x, const Tensor& weight, const Tensor& bias,
                            const ConvolutionOptions& options, const Tensor& residual, ImageActivation activation,
                            PackedWeight& packed) {
  const ConvolutionCall call("conv2d", 2, x, weight, bias);
  const kernels::ConvolutionShape shape = shape_of(call, options);
  constexpr const char* kName = "convolution";
  const ProfileRange range(kName, RangeKind::kOp);
  const AllocationTag tag(kName);
  const Tensor y = empty_channels_last(image_shape(shape.batch, shape.out_channels, shape.out, 2), call.x.options());
  Tensor added;
  if (residual.defined()) {
    check_one_device("conv2d", {&call.x, &residual});
    added = call.batched ? residual : residual.unsqueeze(0);
    TERN_CHECK(added.shape() == y.shape() && added.dtype() == y.dtype(), "conv2d: the residual is ", residual.shape(),
               " ", residual.dtype(), ", expected the result's ", call.result(y).shape(), " ", y.dtype());
    added = added.channels_last();
  }
  const Tensor last = call.x.channels_last(), used = autocast_copy(call.weight, y.dtype()).contiguous();
  const Tensor shift = contiguous_or_none(bias_for(call.x, call.weight, call.bias));
  const Tensor memory = packed.find(shape, call.weight, used);
  run_forward(shape, last, used,
              {.bias = shift.view(),
               .residual = added.defined() ? rows_of(added) : kernels::View(),
               .activation = activation,
               .packed_weight = memory.defined() ? memory.raw_data() : nullptr},
              y);
  const Tensor* const read[] = {&call.x, &call.weight, &call.bias, &residual};
  if (range.recording()) range.count_tensors(read, 4, &y, 1);
  if (anomaly_mode() != Anomaly::kOff) check_anomaly_forward(kName, read, 1, y);
  return call.result(y);
}

}  // namespace tern::detail

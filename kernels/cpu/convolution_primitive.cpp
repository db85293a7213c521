#include "tern/kernels/cpu/convolution_primitive.h"

#include <optional>
#include <string_view>
#include <unordered_map>

#include "tern/kernels/base/check.h"
#include "tern/kernels/base/signal_guard.h"
#include "tern/kernels/cpu/gemm_onednn.h"

namespace tern::kernels::TERN_CPU {
namespace {

using Pass = ConvolutionPass;
using Dims = dnnl::memory::dims;
using Desc = dnnl::memory::desc;

/// 2 where the depth is 1 everywhere: oneDNN has more code for images than for volumes.
int spatial_dims(const ConvolutionShape& s) {
  return s.in[0] == 1 && s.out[0] == 1 && s.kernel[0] == 1 && s.padding[0] == 0 ? 2 : 3;
}

/// `front` and the last `dims` sizes.
Dims dims_of(const Dims& front, const std::array<int64_t, 3>& sizes, int dims) {
  Dims result = front;
  result.insert(result.end(), sizes.end() - dims, sizes.end());
  return result;
}

/// [batch, channels, spatial...] with the channels last in memory.
Desc images(int64_t batch, int64_t channels, const std::array<int64_t, 3>& size, int dims, DType dtype) {
  using Tag = dnnl::memory::format_tag;
  return Desc(dims_of({batch, channels}, size, dims), onednn_type(dtype), dims == 2 ? Tag::nhwc : Tag::ndhwc);
}

Desc any_layout(const Desc& desc) {
#if DNNL_VERSION_MAJOR >= 3
  return Desc(desc.get_dims(), desc.get_data_type(), dnnl::memory::format_tag::any);
#else
  return Desc(desc.dims(), desc.data_type(), dnnl::memory::format_tag::any);
#endif
}

/// The weight as kernels/convolution.h has it, or in any layout.
Desc weights(const ConvolutionShape& s, int dims, DType dtype, bool any) {
  using Tag = dnnl::memory::format_tag;
  const bool grouped = s.groups > 1;
  const Dims front = grouped ? Dims{s.groups, s.group_out(), s.group_in()} : Dims{s.out_channels, s.in_channels};
  const Tag plain = grouped ? (dims == 2 ? Tag::goihw : Tag::goidhw) : dims == 2 ? Tag::oihw : Tag::oidhw;
  return Desc(dims_of(front, s.kernel, dims), onednn_type(dtype), any ? Tag::any : plain);
}

[[noreturn]] void fail_convolution(const ConvolutionKey& key, const char* why) {
  const ConvolutionShape& s = key.shape;
  fail("convolution of [", s.batch, ", ", s.in_channels, ", ", s.in[0], ", ", s.in[1], ", ", s.in[2], "] ",
       name_of(key.dtype), " to ", s.out_channels, " channels, kernel [", s.kernel[0], ", ", s.kernel[1], ", ",
       s.kernel[2], "]: oneDNN: ", why);
}

}  // namespace

template <class Primitive>
void ConvolutionPrimitive::choose(const typename Primitive::primitive_desc& chosen) {
  scratch_ = chosen.scratchpad_desc();
  primitive_ = Primitive(chosen);
  // Products by another library's code within oneDNN, which move the stack pointer.
  guarded_ = std::string_view(chosen.impl_info_str()).find("gemm") != std::string_view::npos &&
             moves_stack_pointer(INT64_MAX - 1);
}

ConvolutionPrimitive::ConvolutionPrimitive(const ConvolutionKey& key) : key_(key) {
  try {
    create();
  } catch (const dnnl::error& error) {
    primitive_ = {};
    if (!key.winograd) fail_convolution(key, error.what());
  }
}

void ConvolutionPrimitive::create() {
  const ConvolutionKey& key = key_;
  const ConvolutionShape& s = key.shape;
  const bool gradient = key.pass == Pass::kBackwardWeight;
  const int dims = spatial_dims(s);
  x_ = images(s.batch, s.in_channels, s.in, dims, key.dtype);
  y_ = images(s.batch, s.out_channels, s.out, dims, key.dtype);
  plain_weight_ = weights(s, dims, gradient ? DType::kFloat32 : key.dtype, false);
  const Desc any = weights(s, dims, gradient ? DType::kFloat32 : key.dtype, true);
  const Desc low = weights(s, dims, key.dtype, true);
  if (key.bias) bias_ = Desc({s.out_channels}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::x);
  std::array<int64_t, 3> between{}, behind{};
  for (size_t d = 0; d < 3; ++d) {
    between[d] = s.dilation[d] - 1;
    behind[d] = (s.out[d] - 1) * s.stride[d] + (s.kernel[d] - 1) * s.dilation[d] + 1 - s.in[d] - s.padding[d];
  }
  const Dims dilation = dims_of({}, between, dims), high = dims_of({}, behind, dims);
  const Dims stride = dims_of({}, s.stride, dims), padding = dims_of({}, s.padding, dims);
  const auto algorithm = key.winograd ? dnnl::algorithm::convolution_winograd : dnnl::algorithm::convolution_direct;
  const Desc in = key.winograd ? any_layout(x_) : x_, out = key.winograd ? any_layout(y_) : y_;
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const OneThread guard;
  dnnl::engine& engine = onednn_engine();
  const auto forward = [&](const Desc& weight) {
#if DNNL_VERSION_MAJOR >= 3
    return dnnl::convolution_forward::primitive_desc(engine, dnnl::prop_kind::forward_training, algorithm, in, weight,
                                                     bias_, out, stride, dilation, padding, high, attributes);
#else
    using Forward = dnnl::convolution_forward;
    const auto kind = dnnl::prop_kind::forward_training;
    return Forward::primitive_desc(
        key.bias ? Forward::desc(kind, algorithm, in, weight, bias_, out, stride, dilation, padding, high)
                 : Forward::desc(kind, algorithm, in, weight, out, stride, dilation, padding, high),
        attributes, engine);
#endif
  };
  const auto hint = forward(low);
  const auto backward = [&]<class Backward>() {
#if DNNL_VERSION_MAJOR >= 3
    return typename Backward::primitive_desc(engine, algorithm, in, any, out, stride, dilation, padding, high, hint,
                                             attributes);
#else
    const typename Backward::desc described(algorithm, in, any, out, stride, dilation, padding, high);
    return typename Backward::primitive_desc(described, attributes, engine, hint);
#endif
  };
  if (key.pass == Pass::kForward) {
    weight_ = hint.weights_desc();
    inner_x_ = hint.src_desc();
    inner_y_ = hint.dst_desc();
    choose<dnnl::convolution_forward>(hint);
  } else if (key.pass == Pass::kBackwardInput) {
    const auto chosen = backward.template operator()<dnnl::convolution_backward_data>();
    weight_ = chosen.weights_desc();
    inner_x_ = chosen.diff_src_desc();
    inner_y_ = chosen.diff_dst_desc();
    choose<dnnl::convolution_backward_data>(chosen);
  } else {
    const auto chosen = backward.template operator()<dnnl::convolution_backward_weights>();
    weight_ = chosen.diff_weights_desc();
    inner_x_ = chosen.src_desc();
    inner_y_ = chosen.diff_dst_desc();
    choose<dnnl::convolution_backward_weights>(chosen);
  }
  const auto between_layouts = [&](const Desc& from, const Desc& to) {
    return dnnl::reorder(dnnl::reorder::primitive_desc(engine, from, engine, to));
  };
  reorder_weight_ = gradient ? between_layouts(weight_, plain_weight_) : between_layouts(plain_weight_, weight_);
  const bool input = key.pass == Pass::kBackwardInput, reads_y = input || gradient;
  if (inner_x_ != x_) reorder_x_ = input ? between_layouts(inner_x_, x_) : between_layouts(x_, inner_x_);
  if (inner_y_ != y_) reorder_y_ = reads_y ? between_layouts(y_, inner_y_) : between_layouts(inner_y_, y_);
}

void ConvolutionPrimitive::reorder_weight(const void* from, void* to) const try {
  const bool gradient = key_.pass == Pass::kBackwardWeight;
  const OneThread guard;
  dnnl::memory source = memory(gradient ? weight_ : plain_weight_, from);
  dnnl::memory result = memory(gradient ? plain_weight_ : weight_, to);
  dnnl::stream stream(onednn_engine());
  dnnl::reorder(reorder_weight_).execute(stream, source, result);
  stream.wait();
} catch (const dnnl::error& error) {
  fail_convolution(key_, error.what());
}

void ConvolutionPrimitive::run(const void* x, const void* weight, const void* bias, const void* y, void* scratch) const
    try {
  const bool input = key_.pass == Pass::kBackwardInput, gradient = key_.pass == Pass::kBackwardWeight;
  const bool reads_y = input || gradient;
  const OneThread one;
  std::optional<SignalGuard> guard;
  if (guarded_) guard.emplace();
  dnnl::stream stream(onednn_engine());
  dnnl::memory from = memory(x_, x), to = memory(y_, y);
  char* const buffers = static_cast<char*>(scratch) + own_scratch_bytes();
  dnnl::memory inner_from = x_bytes() > 0 ? memory(inner_x_, buffers) : from;
  dnnl::memory inner_to = y_bytes() > 0 ? memory(inner_y_, buffers + x_bytes()) : to;
  if (x_bytes() > 0 && !input) dnnl::reorder(reorder_x_).execute(stream, from, inner_from);
  if (y_bytes() > 0 && reads_y) dnnl::reorder(reorder_y_).execute(stream, to, inner_to);
  std::unordered_map<int, dnnl::memory> arguments = {
      {input ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, inner_from},
      {gradient ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, memory(weight_, weight)},
      {key_.pass == Pass::kForward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, inner_to},
      {DNNL_ARG_SCRATCHPAD, memory(scratch_, scratch)}};
  if (key_.bias) arguments.emplace(DNNL_ARG_BIAS, memory(bias_, bias));
  primitive_.execute(stream, arguments);
  if (x_bytes() > 0 && input) dnnl::reorder(reorder_x_).execute(stream, inner_from, from);
  if (y_bytes() > 0 && !reads_y) dnnl::reorder(reorder_y_).execute(stream, inner_to, to);
  stream.wait();
} catch (const dnnl::error& error) {
  fail_convolution(key_, error.what());
}

std::shared_ptr<const ConvolutionPrimitive> find_convolution(const ConvolutionKey& key) {
  // Never destroyed: worker threads may outlive main.
  static auto* const convolutions = new PrimitiveCache<ConvolutionKey, ConvolutionPrimitive>;
  return convolutions->find(key);
}

}  // namespace tern::kernels::TERN_CPU

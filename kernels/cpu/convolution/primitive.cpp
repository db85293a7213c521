#include "tern/kernels/cpu/convolution/primitive.h"

#include <optional>
#include <string_view>

#include "tern/kernels/base/check.h"
#include "tern/kernels/base/signal_guard.h"
#include "tern/kernels/cpu/gemm/onednn.h"

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

/// The weight as kernels/convolution/convolution.h has it, or in any layout.
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
  is_product_ = std::string_view(chosen.impl_info_str()).find("gemm") != std::string_view::npos;
  guarded_ = is_product_ && moves_stack_pointer(INT64_MAX - 1);
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
  bias_ = Desc({s.out_channels}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::x);
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
  const auto kind = key.fixed_weight ? dnnl::prop_kind::forward_inference : dnnl::prop_kind::forward_training;
  const auto forward = [&](const Desc& weight) {
#if DNNL_VERSION_MAJOR >= 3
    return dnnl::convolution_forward::primitive_desc(engine, kind, algorithm, in, weight, bias_, out, stride, dilation,
                                                     padding, high, attributes);
#else
    using Forward = dnnl::convolution_forward;
    return Forward::primitive_desc(
        Forward::desc(kind, algorithm, in, weight, bias_, out, stride, dilation, padding, high), attributes, engine);
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

ConvolutionCall::ConvolutionCall(const ConvolutionPrimitive& p)
    : primitive_(p),
      stream_(onednn_engine()),
      x_(p.memory(p.x_)),
      y_(p.memory(p.y_)),
      inner_x_(p.x_bytes() > 0 ? p.memory(p.inner_x_) : x_),
      inner_y_(p.y_bytes() > 0 ? p.memory(p.inner_y_) : y_),
      weight_(p.memory(p.weight_)),
      scratch_(p.memory(p.scratch_)) {
  const Pass pass = p.key_.pass;
  arguments_ = {{pass == Pass::kBackwardInput ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, inner_x_},
                {pass == Pass::kBackwardWeight ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, weight_},
                {pass == Pass::kForward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, inner_y_},
                {DNNL_ARG_SCRATCHPAD, scratch_}};
  if (pass == Pass::kForward) arguments_.emplace(DNNL_ARG_BIAS, bias_ = p.memory(p.bias_));
}

void ConvolutionCall::run(const void* x, const void* weight, const void* bias, const void* y, void* scratch) try {
  const ConvolutionPrimitive& p = primitive_;
  const bool input = p.key_.pass == Pass::kBackwardInput, gradient = p.key_.pass == Pass::kBackwardWeight;
  const bool reads_y = input || gradient;
  if (p.is_product_) check_limited_room_for_code();
  const OneThread one;
  std::optional<SignalGuard> guard;
  if (p.guarded_) guard.emplace();
  char* const buffers = static_cast<char*>(scratch) + p.own_scratch_bytes();
  x_.set_data_handle(const_cast<void*>(x));
  y_.set_data_handle(const_cast<void*>(y));
  // oneDNN 2 writes zeros behind the channels of a blocked layout when it is told an address; a new object does not.
  const auto move = [&](dnnl::memory& memory, int argument, const void* data) {
    if (memory.get_data_handle() == data) return;
    memory = dnnl::memory(memory.get_desc(), onednn_engine(), const_cast<void*>(data));
    arguments_[argument] = memory;
  };
  if (p.x_bytes() > 0) move(inner_x_, input ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, buffers);
  if (p.y_bytes() > 0) move(inner_y_, reads_y ? DNNL_ARG_DIFF_DST : DNNL_ARG_DST, buffers + p.x_bytes());
  move(weight_, gradient ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, weight);
  scratch_.set_data_handle(scratch);
  if (!reads_y) bias_.set_data_handle(const_cast<void*>(bias));
  if (p.x_bytes() > 0 && !input) dnnl::reorder(p.reorder_x_).execute(stream_, x_, inner_x_);
  if (p.y_bytes() > 0 && reads_y) dnnl::reorder(p.reorder_y_).execute(stream_, y_, inner_y_);
  p.primitive_.execute(stream_, arguments_);
  if (p.x_bytes() > 0 && input) dnnl::reorder(p.reorder_x_).execute(stream_, inner_x_, x_);
  if (p.y_bytes() > 0 && !reads_y) dnnl::reorder(p.reorder_y_).execute(stream_, inner_y_, y_);
  stream_.wait();
} catch (const dnnl::error& error) {
  fail_convolution(primitive_.key_, error.what());
}

std::shared_ptr<const ConvolutionPrimitive> find_convolution(const ConvolutionKey& key) {
  // Never destroyed: worker threads may outlive main.
  static auto* const convolutions = new PrimitiveCache<ConvolutionKey, ConvolutionPrimitive>;
  return convolutions->find(key);
}

}  // namespace tern::kernels::TERN_CPU

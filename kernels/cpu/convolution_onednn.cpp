#include "tern/kernels/cpu/convolution_onednn.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "tern/kernels/base/check.h"
#include "tern/kernels/base/signal_guard.h"
#include "tern/kernels/cpu/gemm_blocks.h"
#include "tern/kernels/cpu/gemm_onednn.h"
#include "tern/kernels/cpu/onednn.h"
#include "tern/kernels/cpu/rows.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

enum class Pass : uint8_t { kForward, kBackwardInput, kBackwardWeight };

struct ConvolutionKey {
  Pass pass = Pass::kForward;
  DType dtype = DType::kFloat32;
  bool bias = false;
  ConvolutionShape shape;
  auto operator<=>(const ConvolutionKey&) const = default;
};

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

/// One pass over a batch of fixed size. Immutable; several threads may use it at a time.
class ConvolutionPrimitive {
 public:
  explicit ConvolutionPrimitive(const ConvolutionKey& key);

  int64_t weight_bytes() const { return align_up(static_cast<int64_t>(weight_.get_size())); }
  int64_t scratch_bytes() const { return align_up(static_cast<int64_t>(scratch_.get_size())); }
  bool same_weight(const ConvolutionPrimitive& other) const { return weight_ == other.weight_; }

  /// From the weight as it is given to oneDNN's layout; for the gradient of the weight, which is fp32, back.
  void reorder_weight(const void* from, void* to) const;
  /// x and y: the input and the output, or their gradients; weight: in oneDNN's layout. The pass writes one of them.
  void run(const void* x, const void* weight, const void* bias, const void* y, void* scratch) const;

 private:
  dnnl::memory memory(const Desc& desc, const void* data) const {
    return dnnl::memory(desc, onednn_engine(), const_cast<void*>(data));
  }
  template <class Primitive>
  void choose(const typename Primitive::primitive_desc& chosen);

  ConvolutionKey key_;
  Desc x_, y_, bias_, plain_weight_, weight_, scratch_;
  dnnl::primitive primitive_;
  dnnl::reorder reorder_;
  bool guarded_ = false;  // runs with a SignalGuard
};

template <class Primitive>
void ConvolutionPrimitive::choose(const typename Primitive::primitive_desc& chosen) {
  scratch_ = chosen.scratchpad_desc();
  primitive_ = Primitive(chosen);
  // Products by another library's code within oneDNN, which move the stack pointer.
  guarded_ = std::string_view(chosen.impl_info_str()).find("gemm") != std::string_view::npos &&
             moves_stack_pointer(INT64_MAX - 1);
}

ConvolutionPrimitive::ConvolutionPrimitive(const ConvolutionKey& key) try : key_(key) {
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
  constexpr auto kDirect = dnnl::algorithm::convolution_direct;
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const OneThread guard;
  dnnl::engine& engine = onednn_engine();
  const auto forward = [&](const Desc& weight) {
#if DNNL_VERSION_MAJOR >= 3
    return dnnl::convolution_forward::primitive_desc(engine, dnnl::prop_kind::forward_training, kDirect, x_, weight,
                                                     bias_, y_, stride, dilation, padding, high, attributes);
#else
    using Forward = dnnl::convolution_forward;
    const auto kind = dnnl::prop_kind::forward_training;
    return Forward::primitive_desc(
        key.bias ? Forward::desc(kind, kDirect, x_, weight, bias_, y_, stride, dilation, padding, high)
                 : Forward::desc(kind, kDirect, x_, weight, y_, stride, dilation, padding, high),
        attributes, engine);
#endif
  };
  const auto hint = forward(low);
  const auto backward = [&]<class Backward>() {
#if DNNL_VERSION_MAJOR >= 3
    return typename Backward::primitive_desc(engine, kDirect, x_, any, y_, stride, dilation, padding, high, hint,
                                             attributes);
#else
    const typename Backward::desc described(kDirect, x_, any, y_, stride, dilation, padding, high);
    return typename Backward::primitive_desc(described, attributes, engine, hint);
#endif
  };
  if (key.pass == Pass::kForward) {
    weight_ = hint.weights_desc();
    choose<dnnl::convolution_forward>(hint);
  } else if (key.pass == Pass::kBackwardInput) {
    const auto chosen = backward.template operator()<dnnl::convolution_backward_data>();
    weight_ = chosen.weights_desc();
    choose<dnnl::convolution_backward_data>(chosen);
  } else {
    const auto chosen = backward.template operator()<dnnl::convolution_backward_weights>();
    weight_ = chosen.diff_weights_desc();
    choose<dnnl::convolution_backward_weights>(chosen);
  }
  reorder_ = dnnl::reorder(gradient ? dnnl::reorder::primitive_desc(engine, weight_, engine, plain_weight_)
                                    : dnnl::reorder::primitive_desc(engine, plain_weight_, engine, weight_));
} catch (const dnnl::error& error) {
  fail_convolution(key, error.what());
}

void ConvolutionPrimitive::reorder_weight(const void* from, void* to) const try {
  const bool gradient = key_.pass == Pass::kBackwardWeight;
  const OneThread guard;
  dnnl::memory source = memory(gradient ? weight_ : plain_weight_, from);
  dnnl::memory result = memory(gradient ? plain_weight_ : weight_, to);
  dnnl::stream stream(onednn_engine());
  dnnl::reorder(reorder_).execute(stream, source, result);
  stream.wait();
} catch (const dnnl::error& error) {
  fail_convolution(key_, error.what());
}

void ConvolutionPrimitive::run(const void* x, const void* weight, const void* bias, const void* y, void* scratch) const
    try {
  const bool input = key_.pass == Pass::kBackwardInput, gradient = key_.pass == Pass::kBackwardWeight;
  const OneThread one;
  std::optional<SignalGuard> guard;
  if (guarded_) guard.emplace();
  dnnl::stream stream(onednn_engine());
  std::unordered_map<int, dnnl::memory> arguments = {
      {input ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, memory(x_, x)},
      {gradient ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, memory(weight_, weight)},
      {key_.pass == Pass::kForward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, memory(y_, y)},
      {DNNL_ARG_SCRATCHPAD, memory(scratch_, scratch)}};
  if (key_.bias) arguments.emplace(DNNL_ARG_BIAS, memory(bias_, bias));
  primitive_.execute(stream, arguments);
  stream.wait();
} catch (const dnnl::error& error) {
  fail_convolution(key_, error.what());
}

namespace {

std::shared_ptr<const ConvolutionPrimitive> find_convolution(const ConvolutionKey& key) {
  // Never destroyed: worker threads may outlive main.
  static auto* const convolutions = new PrimitiveCache<ConvolutionKey, ConvolutionPrimitive>;
  return convolutions->find(key);
}

/// One pass over the whole batch in pieces of equal size, the last of which may be smaller.
class Pieces {
 public:
  Pieces(Pass pass, const ConvolutionShape& shape, DType dtype, bool bias, int64_t images)
      : batch_(shape.batch), images_(std::min(images, batch_)) {
    ConvolutionKey key{pass, dtype, bias, shape};
    key.shape.batch = images_;
    full_ = find_convolution(key);
    if (const int64_t rest = batch_ % images_; rest > 0) {
      key.shape.batch = rest;
      last_ = find_convolution(key);
    }
    slots_ = std::min<int64_t>(count(), num_threads());
  }
  int64_t count() const { return (batch_ + images_ - 1) / images_; }
  const ConvolutionPrimitive& full() const { return *full_; }
  /// Null where the last piece's weight has the layout of the others'.
  const ConvolutionPrimitive* other_layout() const {
    return last_ && !last_->same_weight(*full_) ? last_.get() : nullptr;
  }
  int64_t slot_bytes() const { return std::max(full_->scratch_bytes(), last_ ? last_->scratch_bytes() : 0); }
  int64_t slots_bytes() const { return slots_ * slot_bytes(); }
  int64_t weight_bytes() const { return full_->weight_bytes() + (other_layout() ? other_layout()->weight_bytes() : 0); }

  /// body(primitive, piece, first image, slot) for all pieces, on all threads.
  template <class Body>
  void run(const Body& body) const {
    std::atomic<int64_t> next = 0;
    parallel_for(slots_, 1, [&](int64_t slot, int64_t) {
      for (int64_t piece = next++; piece < count(); piece = next++) {
        const bool is_last = last_ && piece + 1 == count();
        body(is_last ? *last_ : *full_, piece, piece * images_, slot);
      }
    });
  }

 private:
  int64_t batch_, images_, slots_ = 1;
  std::shared_ptr<const ConvolutionPrimitive> full_, last_;
};

/// Operations of a piece of forward or of the input's gradient: 0.2 ms or more, so that sharing them out costs little.
constexpr double kPieceOperations = 2e7;
/// Parts of the gradient of a weight, which are added in order.
constexpr int64_t kWeightParts = 8;

int64_t images_of_piece(const ConvolutionShape& s) {
  const double image = 2.0 * static_cast<double>(s.out_pixels() * s.out_channels * s.depth_of_sums());
  return std::clamp<int64_t>(static_cast<int64_t>(kPieceOperations / image), 1, s.batch);
}

/// fp32 [channels] of a bias of any type.
const float* wide_bias(const ConstView& bias, float* memory) {
  if (!bias) return nullptr;
  return dispatch_float(bias.dtype, [&]<class T>() -> const float* {
    if constexpr (std::is_same_v<T, float>) return bias.as<float>();
    for (int64_t i = 0; i < bias.numel(); ++i) memory[i] = static_cast<float>(bias.as<T>()[i]);
    return memory;
  });
}

/// Forward or the input's gradient; x and y as in ConvolutionPrimitive::run(). packed: memory of the weight, then
/// of the slots.
void run_pieces(const Pieces& pieces, const ConvolutionShape& shape, DType dtype, const void* x, const void* weight,
                const float* bias, const void* y, char* packed) {
  check_not_ending();
  char* const packed_last = packed + pieces.full().weight_bytes();
  pieces.full().reorder_weight(weight, packed);
  if (pieces.other_layout()) pieces.other_layout()->reorder_weight(weight, packed_last);
  char* const slots = packed + pieces.weight_bytes();
  const int64_t size = size_of(dtype), in = shape.in_pixels() * shape.in_channels * size;
  const int64_t out = shape.out_pixels() * shape.out_channels * size;
  pieces.run([&](const ConvolutionPrimitive& piece, int64_t, int64_t image, int64_t slot) {
    piece.run(static_cast<const char*>(x) + image * in, &piece == pieces.other_layout() ? packed_last : packed, bias,
              static_cast<const char*>(y) + image * out, slots + slot * pieces.slot_bytes());
  });
}

}  // namespace

bool ConvolutionOnednn::suits(const ConvolutionShape& shape, DType dtype) {
  if (shape.batch == 0 || shape.is_product()) return false;
  if (shape.out_pixels() == 0 || shape.in_pixels() == 0) return false;
  return dtype == DType::kFloat32 || (dtype == DType::kBFloat16 && has_packed_matmul(dtype));
}

ConvolutionOnednn::ConvolutionOnednn(const ConvolutionShape& shape, DType dtype) : shape_(shape), dtype_(dtype) {}

int64_t ConvolutionOnednn::forward_bytes() const {
  const Pieces pieces(Pass::kForward, shape_, dtype_, true, images_of_piece(shape_));
  const Pieces without(Pass::kForward, shape_, dtype_, false, images_of_piece(shape_));
  return 64 + align_up(shape_.out_channels * 4) + std::max(pieces.weight_bytes(), without.weight_bytes()) +
         std::max(pieces.slots_bytes(), without.slots_bytes());
}

void ConvolutionOnednn::forward(ConstView x, ConstView weight, ConstView bias, View y, void* workspace) const {
  char* const memory = align_up(workspace);
  const float* const wide = wide_bias(bias, reinterpret_cast<float*>(memory));
  const Pieces pieces(Pass::kForward, shape_, dtype_, static_cast<bool>(bias), images_of_piece(shape_));
  run_pieces(pieces, shape_, dtype_, x.data, weight.data, wide, y.data, memory + align_up(shape_.out_channels * 4));
}

int64_t ConvolutionOnednn::backward_input_bytes() const {
  const Pieces pieces(Pass::kBackwardInput, shape_, dtype_, false, images_of_piece(shape_));
  return 64 + pieces.weight_bytes() + pieces.slots_bytes();
}

void ConvolutionOnednn::backward_input(ConstView dy, ConstView weight, View dx, void* workspace) const {
  const Pieces pieces(Pass::kBackwardInput, shape_, dtype_, false, images_of_piece(shape_));
  run_pieces(pieces, shape_, dtype_, dx.data, weight.data, nullptr, dy.data, align_up(workspace));
}

int64_t ConvolutionOnednn::backward_weight_bytes() const {
  const int64_t images = (shape_.batch + kWeightParts - 1) / kWeightParts;
  const Pieces pieces(Pass::kBackwardWeight, shape_, dtype_, false, images);
  return 64 +
         (pieces.count() + 1) *
             std::max(pieces.weight_bytes(), align_up(shape_.out_channels * shape_.depth_of_sums() * 4)) +
         pieces.slots_bytes();
}

void ConvolutionOnednn::backward_weight(ConstView dy, ConstView x, View dweight, void* workspace) const {
  check_not_ending();
  const int64_t images = (shape_.batch + kWeightParts - 1) / kWeightParts;
  const Pieces pieces(Pass::kBackwardWeight, shape_, dtype_, false, images);
  const int64_t elements = shape_.out_channels * shape_.depth_of_sums();
  const int64_t part_bytes = std::max(pieces.weight_bytes(), align_up(elements * 4));
  char* const parts = align_up(workspace);
  char* const slots = parts + (pieces.count() + 1) * part_bytes;
  const int64_t size = size_of(dtype_), in = shape_.in_pixels() * shape_.in_channels * size;
  const int64_t out = shape_.out_pixels() * shape_.out_channels * size;
  pieces.run([&](const ConvolutionPrimitive& piece, int64_t part, int64_t image, int64_t slot) {
    piece.run(static_cast<const char*>(x.data) + image * in, parts + part * part_bytes, nullptr,
              static_cast<const char*>(dy.data) + image * out, slots + slot * pieces.slot_bytes());
  });
  // The sums, in oneDNN's layout; then in the given one.
  auto* const sums = reinterpret_cast<float*>(parts);
  const int64_t alike = pieces.count() - (pieces.other_layout() ? 1 : 0);
  parallel_for(pieces.full().weight_bytes() / 4, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t part = 1; part < alike; ++part)
      add_to(sums + begin, reinterpret_cast<const float*>(parts + part * part_bytes) + begin, end - begin);
  });
  auto* const plain = reinterpret_cast<float*>(parts + pieces.count() * part_bytes);
  float* const result = dweight.dtype == DType::kFloat32 ? dweight.as<float>() : plain;
  pieces.full().reorder_weight(sums, result);
  if (pieces.other_layout()) {
    pieces.other_layout()->reorder_weight(parts + alike * part_bytes, sums);
    add_to(result, sums, elements);
  }
  if (result == plain) dispatch_float(dweight.dtype, [&]<class T>() { narrow(plain, dweight.as<T>(), elements); });
}

}  // namespace tern::kernels::TERN_CPU

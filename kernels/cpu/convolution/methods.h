#pragma once
// The methods by which the CPU computes convolutions. A method is a file of this folder and its name in the table at
// the end of this one, from which choose.cpp takes one. The test of convolutions has each compute whatever it can.

#include <functional>

#include "tern/kernels/convolution/convolution.h"

namespace tern::kernels {

enum class ConvolutionPass : uint8_t { kForward, kBackwardInput, kBackwardWeight };

/// What is to be computed. fixed_weight: a forward pass with the weight of convolution_pack().
struct ConvolutionCase {
  ConvolutionPass pass = ConvolutionPass::kForward;
  DType dtype = DType::kFloat32;
  ConvolutionShape shape;
  bool fixed_weight = false;

  auto operator<=>(const ConvolutionCase&) const = default;

  // What several methods ask.
  bool is(ConvolutionPass wanted) const { return pass == wanted; }
  bool is_empty() const {
    return shape.batch * shape.in_pixels() * shape.in_channels == 0 || shape.out_pixels() * shape.out_channels == 0;
  }
  bool is_flat() const {
    return shape.in[0] == 1 && shape.out[0] == 1 && shape.kernel[0] == 1 && shape.padding[0] == 0;
  }
  bool is_dilated() const { return shape.dilation != std::array<int64_t, 3>{1, 1, 1}; }
  bool is_depthwise() const { return shape.groups == shape.in_channels && shape.groups == shape.out_channels; }
  /// Two-dimensional in fp32, without groups and dilation.
  bool is_plain() const {
    return dtype == DType::kFloat32 && shape.groups == 1 && is_flat() && !is_dilated() && !is_empty();
  }
  /// 3 x 3 pixels and a result of the input's size: what Winograd's algorithm F(4 x 4, 3 x 3) computes.
  bool is_same_3x3() const {
    using Sizes = std::array<int64_t, 3>;
    return is_plain() && shape.kernel == Sizes{1, 3, 3} && shape.stride == Sizes{1, 1, 1} &&
           shape.padding == Sizes{0, 1, 1} && shape.in == shape.out;
  }
};

/// How a case is computed. The same bits for any number of threads, but for the number that was set when it was made.
struct ConvolutionPlan {
  /// (x, weight, epilogue, y) of forward, (dy, weight, {}, dx) of the input's gradient, (dy, x, {}, dweight) of the
  /// weight's. With packed_bytes the weight is at epilogue.packed_weight, as pack() wrote it. memory: memory_bytes,
  /// aligned to 64.
  std::function<void(ConstView, ConstView, const ConvolutionEpilogue& epilogue, View result, char* memory)> run =
      nullptr;
  int64_t memory_bytes = 0;
  /// A multiple of 64; 0: the weight is read as it is given, and there is no pack().
  int64_t packed_bytes = 0;
  std::function<void(ConstView weight, char* packed)> pack = nullptr;

  /// The size of operator()'s workspace, in which the weight is packed unless it is given so.
  int64_t workspace_bytes(bool packed) const { return room_for((packed ? 0 : packed_bytes) + memory_bytes); }
  void operator()(ConstView first, ConstView second, ConvolutionEpilogue epilogue, View result, void* workspace) const {
    char* memory = aligned(workspace);
    if (epilogue.packed_weight) {
      epilogue.packed_weight = aligned(epilogue.packed_weight);
    } else if (packed_bytes > 0) {
      pack(second, memory);
      epilogue.packed_weight = memory;
      memory += packed_bytes;
    }
    run(first, second, epilogue, result, memory);
  }

  static int64_t room_for(int64_t bytes) { return bytes > 0 ? bytes + 63 : 0; }
  static char* aligned(const void* memory) {
    return reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(memory) + 63) / 64 * 64);
  }
};

struct ConvolutionMethod {
  const char* name;
  /// Whether the method computes the case: the same at every level.
  bool (*can)(const ConvolutionCase&);
  /// Whether it is then faster than the methods behind it in the table, at this level.
  bool (*pays)(const ConvolutionCase&);
  ConvolutionPlan (*make)(const ConvolutionCase&);
};

/// Numbers of channels that fill vectors at every level.
inline constexpr int64_t kChannelStep = 8;

#ifdef TERN_CPU
namespace TERN_CPU {
extern const ConvolutionMethod kWinograd, kDepthwiseRows, kPointwise, kDirect, kDirectWeight, kStrips, kOnednn,
    kDepthwise, kColumns;
/// In the order in which they are tried; the last one computes every case. A null pointer ends them.
inline constexpr const ConvolutionMethod* kConvolutionMethods[] = {
    &kWinograd, &kDepthwiseRows, &kPointwise, &kDirect,  &kDirectWeight,
    &kStrips,   &kOnednn,        &kDepthwise, &kColumns, nullptr};
}  // namespace TERN_CPU
#endif

}  // namespace tern::kernels

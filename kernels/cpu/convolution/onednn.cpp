// Convolutions by oneDNN, of fp32 and bf16. Images stay in their layout, channels last; the weight is rewritten into
// the layout that oneDNN wants. What follows the sums finds each piece in cache.

#include <algorithm>

#include "tern/kernels/cpu/convolution/epilogue.h"
#include "tern/kernels/cpu/convolution/pieces.h"
#include "tern/kernels/cpu/gemm/onednn.h"
#include "tern/kernels/cpu/rows.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

using Pass = ConvolutionPass;
using Pieces = std::shared_ptr<const ConvolutionPieces>;
using Piece = ConvolutionPieces::Piece;

const void* at(const void* data, DType dtype, int64_t elements) {
  return static_cast<const char*>(data) + elements * size_of(dtype);
}

/// Forward or the input's gradient.
ConvolutionPlan image_plan(const ConvolutionCase& c, const Pieces& pieces) {
  const bool is_forward = c.is(Pass::kForward);
  const int64_t channels = c.shape.out_channels, bias_bytes = is_forward ? align_up(channels * 4) : 0;
  const auto run = [=, dtype = c.dtype](ConstView given, ConstView, const ConvolutionEpilogue& epilogue, View result,
                                        char* memory) {
    prepare_products();
    const float* const bias =
        is_forward ? wide_bias(epilogue.bias, channels, reinterpret_cast<float*>(memory)) : nullptr;
    const void *const x = is_forward ? given.data : result.data, *const y = is_forward ? result.data : given.data;
    const char* const packed = static_cast<const char*>(epilogue.packed_weight);
    char* const slots = memory + bias_bytes;
    pieces->run([&](const Piece& piece) {
      piece.call.run(at(x, dtype, piece.x), packed + piece.weight, bias, at(y, dtype, piece.y),
                     slots + piece.slot * pieces->slot_bytes());
      apply_epilogue(epilogue, result, piece.y, piece.y_elements);
    });
  };
  return {.run = run,
          .memory_bytes = bias_bytes + pieces->slots_bytes(),
          .packed_bytes = pieces->weight_bytes(),
          .pack = [pieces](ConstView weight, char* packed) { pieces->pack(weight.data, packed); }};
}

ConvolutionPlan weight_plan(const ConvolutionCase& c, const Pieces& pieces) {
  const int64_t elements = c.shape.out_channels * c.shape.depth_of_sums(), count = pieces->count();
  const int64_t part_bytes = std::max(pieces->weight_bytes(), align_up(elements * 4));
  const auto run = [=, dtype = c.dtype](ConstView dy, ConstView x, const ConvolutionEpilogue&, View dweight,
                                        char* parts) {
    prepare_products();
    char* const slots = parts + (count + 1) * part_bytes;
    pieces->run([&](const Piece& piece) {
      piece.call.run(at(x.data, dtype, piece.x), parts + piece.index * part_bytes, nullptr, at(dy.data, dtype, piece.y),
                     slots + piece.slot * pieces->slot_bytes());
    });
    // The sums, in oneDNN's layout; then in the given one.
    auto* const sums = reinterpret_cast<float*>(parts);
    const int64_t alike = count - (pieces->other_layout() ? 1 : 0);
    parallel_for(pieces->first().weight_bytes() / 4, 4096, [&](int64_t begin, int64_t end) {
      for (int64_t part = 1; part < alike; ++part)
        add_to(sums + begin, reinterpret_cast<const float*>(parts + part * part_bytes) + begin, end - begin);
    });
    auto* const plain = reinterpret_cast<float*>(parts + count * part_bytes);
    float* const result = dweight.dtype == DType::kFloat32 ? dweight.as<float>() : plain;
    pieces->first().reorder_weight(sums, result);
    if (pieces->other_layout()) {
      pieces->other_layout()->reorder_weight(parts + alike * part_bytes, sums);
      add_to(result, sums, elements);
    }
    if (result == plain) dispatch_float(dweight.dtype, [&]<class T>() { narrow(plain, dweight.as<T>(), elements); });
  };
  return {.run = run, .memory_bytes = (count + 1) * part_bytes + pieces->slots_bytes()};
}

ConvolutionPlan make(const ConvolutionCase& c) {
  const auto pieces = std::make_shared<const ConvolutionPieces>(pieces_of(c));
  return c.is(Pass::kBackwardWeight) ? weight_plan(c, pieces) : image_plan(c, pieces);
}

bool can(const ConvolutionCase& c) {
  if (c.is_empty()) return false;
  if (c.dtype == DType::kFloat32) return true;
  // With AVX512-BF16 oneDNN 2.6.3's gradient by the input of 1 x 1 kernels is wrong for odd numbers of channels and
  // some widths (jit_bf16_1x1; findings/onednn_bf16_gradient_of_odd_channels.sh).
  const ConvolutionShape& s = c.shape;
  const bool is_wrong = c.is(Pass::kBackwardInput) && s.kernel_size() == 1 && s.out_channels / s.groups % 2 != 0;
  return c.dtype == DType::kBFloat16 && has_packed_matmul(c.dtype) && !is_wrong;
}

/// The gradients of a product of matrices are faster as products (gemm/blocks.h), and oneDNN 2.6 takes ten times as
/// long as others for those of most depthwise convolutions.
bool pays(const ConvolutionCase& c) {
  const ConvolutionShape& s = c.shape;
  if (c.is(Pass::kForward)) return true;
  const bool is_small = s.kernel[0] == 1 && s.kernel[1] <= 3 && s.kernel[2] <= 3;
  const bool is_slow = c.is_dilated() || (c.is(Pass::kBackwardWeight) && !is_small);
  return !s.is_product() && !(is_slow && kDepthwise.can(c) && kDepthwise.pays(c));
}

}  // namespace

const ConvolutionMethod kOnednn = {"onednn", can, pays, make};

}  // namespace tern::kernels::TERN_CPU

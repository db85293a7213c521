#include "tern/kernels/cpu/convolution/onednn.h"

#include <algorithm>

#include "tern/kernels/base/check.h"
#include "tern/kernels/cpu/convolution/epilogue.h"
#include "tern/kernels/cpu/convolution/pieces.h"
#include "tern/kernels/cpu/gemm/onednn.h"
#include "tern/kernels/cpu/rows.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

using Piece = ConvolutionPieces::Piece;

const void* at(const void* data, DType dtype, int64_t elements) {
  return static_cast<const char*>(data) + elements * size_of(dtype);
}

}  // namespace

bool ConvolutionOnednn::suits(const ConvolutionShape& shape, DType dtype) {
  if (shape.batch == 0 || shape.out_pixels() == 0 || shape.in_pixels() == 0) return false;
  return dtype == DType::kFloat32 || (dtype == DType::kBFloat16 && has_packed_matmul(dtype));
}

// The gradients of a product of matrices are faster as products (gemm/blocks.h).
bool ConvolutionOnednn::suits_backward(const ConvolutionShape& shape, DType dtype) {
  return suits(shape, dtype) && !shape.is_product();
}

ConvolutionOnednn::ConvolutionOnednn(const ConvolutionShape& shape, DType dtype) : shape_(shape), dtype_(dtype) {}

int64_t ConvolutionOnednn::forward_bytes(bool packed) const {
  const ConvolutionPieces pieces = forward_pieces(shape_, dtype_, packed);
  return 64 + align_up(shape_.out_channels * 4) + (packed ? 0 : pieces.weight_bytes()) + pieces.slots_bytes();
}

int64_t ConvolutionOnednn::packed_bytes() const { return 64 + forward_pieces(shape_, dtype_, true).weight_bytes(); }

void ConvolutionOnednn::pack(ConstView weight, void* packed) const {
  forward_pieces(shape_, dtype_, true).pack(weight.data, align_up(packed));
}

void ConvolutionOnednn::forward(ConstView x, ConstView weight, const ConvolutionEnd& end, View y,
                                void* workspace) const {
  check_not_ending();
  const bool is_packed = end.packed_weight != nullptr;
  const ConvolutionPieces pieces = forward_pieces(shape_, dtype_, is_packed);
  char* memory = align_up(workspace);
  const float* const bias = wide_bias(end.bias, shape_.out_channels, reinterpret_cast<float*>(memory));
  memory += align_up(shape_.out_channels * 4);
  const char* packed = memory;
  if (is_packed) {
    packed = align_up(const_cast<void*>(end.packed_weight));
  } else {
    pieces.pack(weight.data, memory);
    memory += pieces.weight_bytes();
  }
  pieces.run([&](const Piece& piece) {
    const void* const to = at(y.data, dtype_, piece.y);
    piece.call.run(at(x.data, dtype_, piece.x), packed + piece.weight, bias, to,
                   memory + piece.slot * pieces.slot_bytes());
    if (!end.continues()) return;
    const auto finish_piece = [&]<class T>() {
      finish<T>(end.activation, end.residual ? end.residual.as<T>() + piece.y : nullptr, y.as<T>() + piece.y,
                piece.y_elements);
    };
    dtype_ == DType::kFloat32 ? finish_piece.operator()<float>() : finish_piece.operator()<BFloat16>();
  });
}

int64_t ConvolutionOnednn::backward_input_bytes() const {
  const ConvolutionPieces pieces = backward_input_pieces(shape_, dtype_);
  return 64 + pieces.weight_bytes() + pieces.slots_bytes();
}

void ConvolutionOnednn::backward_input(ConstView dy, ConstView weight, View dx, void* workspace) const {
  check_not_ending();
  const ConvolutionPieces pieces = backward_input_pieces(shape_, dtype_);
  char *const packed = align_up(workspace), *const slots = packed + pieces.weight_bytes();
  pieces.pack(weight.data, packed);
  pieces.run([&](const Piece& piece) {
    piece.call.run(at(dx.data, dtype_, piece.x), packed + piece.weight, nullptr, at(dy.data, dtype_, piece.y),
                   slots + piece.slot * pieces.slot_bytes());
  });
}

int64_t ConvolutionOnednn::backward_weight_bytes() const {
  const ConvolutionPieces pieces = backward_weight_pieces(shape_, dtype_);
  return 64 +
         (pieces.count() + 1) *
             std::max(pieces.weight_bytes(), align_up(shape_.out_channels * shape_.depth_of_sums() * 4)) +
         pieces.slots_bytes();
}

void ConvolutionOnednn::backward_weight(ConstView dy, ConstView x, View dweight, void* workspace) const {
  check_not_ending();
  const ConvolutionPieces pieces = backward_weight_pieces(shape_, dtype_);
  const int64_t elements = shape_.out_channels * shape_.depth_of_sums();
  const int64_t part_bytes = std::max(pieces.weight_bytes(), align_up(elements * 4));
  char* const parts = align_up(workspace);
  char* const slots = parts + (pieces.count() + 1) * part_bytes;
  pieces.run([&](const Piece& piece) {
    piece.call.run(at(x.data, dtype_, piece.x), parts + piece.index * part_bytes, nullptr, at(dy.data, dtype_, piece.y),
                   slots + piece.slot * pieces.slot_bytes());
  });
  // The sums, in oneDNN's layout; then in the given one.
  auto* const sums = reinterpret_cast<float*>(parts);
  const int64_t alike = pieces.count() - (pieces.other_layout() ? 1 : 0);
  parallel_for(pieces.first().weight_bytes() / 4, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t part = 1; part < alike; ++part)
      add_to(sums + begin, reinterpret_cast<const float*>(parts + part * part_bytes) + begin, end - begin);
  });
  auto* const plain = reinterpret_cast<float*>(parts + pieces.count() * part_bytes);
  float* const result = dweight.dtype == DType::kFloat32 ? dweight.as<float>() : plain;
  pieces.first().reorder_weight(sums, result);
  if (pieces.other_layout()) {
    pieces.other_layout()->reorder_weight(parts + alike * part_bytes, sums);
    add_to(result, sums, elements);
  }
  if (result == plain) dispatch_float(dweight.dtype, [&]<class T>() { narrow(plain, dweight.as<T>(), elements); });
}

}  // namespace tern::kernels::TERN_CPU

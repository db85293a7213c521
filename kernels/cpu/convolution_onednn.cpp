#include "tern/kernels/cpu/convolution_onednn.h"

#include <algorithm>
#include <atomic>
#include <optional>

#include "tern/kernels/base/check.h"
#include "tern/kernels/cpu/convolution_primitive.h"
#include "tern/kernels/cpu/gemm_onednn.h"
#include "tern/kernels/cpu/rows.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

using Pass = ConvolutionPass;

/// One pass over the whole batch in pieces of equal size, the last of which may be smaller.
class Pieces {
 public:
  /// key: of the whole batch.
  Pieces(ConvolutionKey key, int64_t images) : batch_(key.shape.batch), images_(std::min(images, batch_)) {
    key.shape.batch = images_;
    full_ = find_convolution(key);
    if (const int64_t rest = batch_ % images_; rest > 0) {
      key.shape.batch = rest;
      last_ = find_convolution(key);
    }
    slots_ = std::min<int64_t>(count(), num_threads());
  }
  bool usable() const { return full_->usable() && (!last_ || last_->usable()); }
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
/// Parts of the gradient of a weight, which are added in order. Winograd's algorithm makes no more pieces, because each
/// transforms the weight.
constexpr int64_t kParts = 8;

int64_t images_of_part(const ConvolutionShape& s) { return (s.batch + kParts - 1) / kParts; }
int64_t images_of_piece(const ConvolutionShape& s) {
  const double image = 2.0 * static_cast<double>(s.out_pixels() * s.out_channels * s.depth_of_sums());
  return std::clamp<int64_t>(static_cast<int64_t>(kPieceOperations / image), 1, s.batch);
}
/// Tiles of an image in Winograd's algorithm: each gives 4 x 4 pixels.
int64_t tiles_of(const ConvolutionShape& s) { return (s.out[1] + 3) / 4 * ((s.out[2] + 3) / 4); }

/// Whether Winograd's algorithm computes the convolution, in pieces of that many images, and faster. Times of a core in
/// ns, measured with oneDNN 2.6 on an EPYC with AVX-512; their ratio is what counts.
bool suits_winograd(const ConvolutionShape& s, DType dtype, int64_t images) {
  using Sizes = std::array<int64_t, 3>;
  if (dtype != DType::kFloat32 || s.groups != 1 || s.kernel != Sizes{1, 3, 3} || s.stride != Sizes{1, 1, 1} ||
      s.dilation != Sizes{1, 1, 1} || s.padding != Sizes{0, 1, 1} || s.in != s.out || s.in[0] != 1 ||
      std::min(s.in_channels, s.out_channels) < 16)
    return false;
  const auto number = [](int64_t n) { return static_cast<double>(n); };
  const double pixels = number(s.out_pixels() * images), tiles = number(tiles_of(s) * images);
  const double products = number(s.in_channels * s.out_channels), channels = number(s.in_channels + s.out_channels);
  const double direct = pixels * 18 * products / 115;
  const double winograd = tiles * 36 * (products * 2 / 100 + channels * 0.3) + pixels * channels * 0.5 +
                          36 * products * 0.7;  // of the weight
  return winograd < 0.85 * direct;
}

/// Forward or the input's gradient: by Winograd's algorithm, where that is faster and oneDNN has it.
Pieces pieces_of(Pass pass, const ConvolutionShape& shape, DType dtype, bool bias) {
  // So many tiles that the transform of the weight is about a third of the work.
  const int64_t images = std::clamp<int64_t>(128 / tiles_of(shape), 1, images_of_part(shape));
  ConvolutionKey key{.pass = pass, .dtype = dtype, .bias = bias, .winograd = true, .shape = shape};
  if (suits_winograd(shape, dtype, images))
    if (const Pieces pieces(key, images); pieces.usable()) return pieces;
  key.winograd = false;
  return Pieces(key, images_of_piece(shape));
}

Pieces weight_pieces(const ConvolutionShape& shape, DType dtype) {
  const int64_t images = images_of_part(shape);
  ConvolutionKey key{.pass = Pass::kBackwardWeight, .dtype = dtype, .winograd = true, .shape = shape};
  if (suits_winograd(shape, dtype, images))
    if (const Pieces pieces(key, images); pieces.usable()) return pieces;
  key.winograd = false;
  return Pieces(key, images);
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

/// Forward or the input's gradient; x and y as in ConvolutionPrimitive::run(). packed:
/// memory of the weight, then of the slots.
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
  const Pieces pieces = pieces_of(Pass::kForward, shape_, dtype_, true);
  const Pieces without = pieces_of(Pass::kForward, shape_, dtype_, false);
  return 64 + align_up(shape_.out_channels * 4) + std::max(pieces.weight_bytes(), without.weight_bytes()) +
         std::max(pieces.slots_bytes(), without.slots_bytes());
}

void ConvolutionOnednn::forward(ConstView x, ConstView weight, ConstView bias, View y, void* workspace) const {
  char* const memory = align_up(workspace);
  const float* const wide = wide_bias(bias, reinterpret_cast<float*>(memory));
  run_pieces(pieces_of(Pass::kForward, shape_, dtype_, static_cast<bool>(bias)), shape_, dtype_, x.data, weight.data,
             wide, y.data, memory + align_up(shape_.out_channels * 4));
}

int64_t ConvolutionOnednn::backward_input_bytes() const {
  const Pieces pieces = pieces_of(Pass::kBackwardInput, shape_, dtype_, false);
  return 64 + pieces.weight_bytes() + pieces.slots_bytes();
}

void ConvolutionOnednn::backward_input(ConstView dy, ConstView weight, View dx, void* workspace) const {
  run_pieces(pieces_of(Pass::kBackwardInput, shape_, dtype_, false), shape_, dtype_, dx.data, weight.data, nullptr,
             dy.data, align_up(workspace));
}

int64_t ConvolutionOnednn::backward_weight_bytes() const {
  const Pieces pieces = weight_pieces(shape_, dtype_);
  return 64 +
         (pieces.count() + 1) *
             std::max(pieces.weight_bytes(), align_up(shape_.out_channels * shape_.depth_of_sums() * 4)) +
         pieces.slots_bytes();
}

void ConvolutionOnednn::backward_weight(ConstView dy, ConstView x, View dweight, void* workspace) const {
  check_not_ending();
  const Pieces pieces = weight_pieces(shape_, dtype_);
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

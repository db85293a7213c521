#include "tern/kernels/cpu/convolution/pieces.h"

#include <array>

namespace tern::kernels::TERN_CPU {
namespace {

using Pass = ConvolutionPass;

/// Operations of a piece of forward or of the input's gradient: 0.2 ms or more, so that sharing them out costs little.
constexpr double kPieceOperations = 2e7;
/// Bytes of a piece's input and output in forward, so that what follows the sums finds them in cache.
constexpr double kPieceBytes = 512 * 1024;
/// Parts of the gradient of a weight, which are added in order. Winograd's algorithm makes no more pieces where each
/// transforms the weight, and fewer where each reads a transformed one.
constexpr int64_t kParts = 8, kFixedParts = 4;

double number(int64_t n) { return static_cast<double>(n); }
int64_t images_of_part(const ConvolutionShape& s, int64_t parts) { return (s.batch + parts - 1) / parts; }
double operations_of_image(const ConvolutionShape& s) {
  return 2 * number(s.out_pixels() * s.out_channels) * number(s.depth_of_sums());
}
int64_t images_of_piece(const ConvolutionShape& s) {
  return std::clamp<int64_t>(static_cast<int64_t>(kPieceOperations / operations_of_image(s)), 1, s.batch);
}
/// Tiles of an image in Winograd's algorithm: each gives 4 x 4 pixels.
int64_t tiles_of(const ConvolutionShape& s) { return (s.out[1] + 3) / 4 * ((s.out[2] + 3) / 4); }

/// Whether Winograd's algorithm computes the convolution, in pieces of that many images, and faster. Times of a core in
/// ns, measured with oneDNN 2.6 on an EPYC with AVX-512; their ratio is what counts.
bool suits_winograd(const ConvolutionKey& key, int64_t images) {
  const ConvolutionShape& s = key.shape;
  if (!key.is_same_3x3() || std::min(s.in_channels, s.out_channels) < 16) return false;
  const double pixels = number(s.out_pixels() * images), tiles = number(tiles_of(s) * images);
  const double products = number(s.in_channels * s.out_channels), channels = number(s.in_channels + s.out_channels);
  const double direct = pixels * 18 * products / 115;
  const double winograd = tiles * 36 * (products * 2 / 100 + channels * 0.3) + pixels * channels * 0.5 +
                          36 * products * (key.fixed_weight ? 0.2 : 0.7);  // of the weight
  return winograd < 0.85 * direct;
}

/// Sets key.winograd where that is faster, in pieces of so many images, and oneDNN has it.
bool find_winograd(ConvolutionKey& key, int64_t images) {
  if (suits_winograd(key, images)) {
    key.winograd = true;
    key.winograd = ConvolutionPieces(key, images).usable();
  }
  key.fixed_weight = key.fixed_weight && key.winograd;
  return key.winograd;
}
/// So many tiles that the transform of the weight, or reading the transformed one, is at most a third of the work. With
/// a fixed weight two images are faster than one. The gradient of a weight: its parts.
int64_t winograd_images(const ConvolutionCase& c) {
  const int64_t most = images_of_part(c.shape, c.fixed_weight ? kFixedParts : kParts), tiles = tiles_of(c.shape);
  if (c.is(Pass::kBackwardWeight)) return most;
  return std::clamp<int64_t>(c.fixed_weight ? std::max<int64_t>(64 / tiles, 2) : 128 / tiles, 1, most);
}

}  // namespace

ConvolutionPieces::ConvolutionPieces(const ConvolutionKey& key, int64_t units) {
  const ConvolutionShape& s = key.shape;
  const bool product = s.is_product();
  total_ = product ? s.batch * s.out_pixels() : s.batch;
  units_ = std::min(units, total_);
  x_unit_ = product ? s.in_channels : s.in_pixels() * s.in_channels;
  y_unit_ = product ? s.out_channels : s.out_pixels() * s.out_channels;
  main_ = units_of(key, units_);
  if (const int64_t rest = total_ % units_; rest > 0) last_ = units_of(key, rest);
  slots_ = std::min<int64_t>(count(), num_threads());
}

ConvolutionPieces::Part ConvolutionPieces::units_of(const ConvolutionKey& key, int64_t units) {
  ConvolutionKey found = key;
  found.shape.batch = units;
  if (key.shape.is_product()) {
    found.shape.batch = 1;
    found.shape.in = found.shape.out = {1, 1, units};
  }
  Part part{find_convolution(found), units * y_unit_};
  slot_bytes_ = std::max(slot_bytes_, part.primitive->scratch_bytes());
  for (const ConvolutionPrimitive* layout : layouts_) {
    if (layout->same_weight(*part.primitive)) return part;
    part.weight += layout->weight_bytes();
  }
  layouts_.push_back(part.primitive.get());
  weight_bytes_ += part.primitive->weight_bytes();
  return part;
}

void ConvolutionPieces::pack(const void* weight, char* packed) const {
  for (const ConvolutionPrimitive* layout : layouts_) {
    layout->reorder_weight(weight, packed);
    packed += layout->weight_bytes();
  }
}

bool has_winograd_pieces(const ConvolutionCase& c) {
  ConvolutionKey key{c};
  return find_winograd(key, winograd_images(c));
}

ConvolutionPieces pieces_of(const ConvolutionCase& c) {
  const ConvolutionShape& s = c.shape;
  ConvolutionKey key{c};
  const int64_t images = winograd_images(c);
  if (find_winograd(key, images) || c.is(Pass::kBackwardWeight)) return ConvolutionPieces(key, images);
  if (c.is(Pass::kBackwardInput)) return ConvolutionPieces(key, images_of_piece(s));
  // The shape of an image, or of a pixel of a product, so that a piece does not depend on the size of the images.
  const ConvolutionShape one =
      s.is_product() ? ConvolutionShape{.in_channels = s.in_channels, .out_channels = s.out_channels} : s;
  const double bytes = number((one.in_pixels() * s.in_channels + one.out_pixels() * s.out_channels) * size_of(c.dtype));
  const double pieces = std::max(operations_of_image(one) / kPieceOperations, bytes / kPieceBytes);
  const int64_t all = s.is_product() ? s.batch * s.out_pixels() : s.batch;
  return ConvolutionPieces(key, std::clamp<int64_t>(static_cast<int64_t>(1 / pieces), 1, all));
}

}  // namespace tern::kernels::TERN_CPU

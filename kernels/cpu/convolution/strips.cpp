// Convolutions by oneDNN in strips of a few fixed lengths, so that its primitives do not depend on the length of an
// image: creating one takes up to 50 ms and 10 MB where the length is a part of the code. Strips at the ends of an
// image are copied into a buffer with zeros around them. Which strips there are depends on the shape alone.

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "tern/kernels/cpu/convolution/epilogue.h"
#include "tern/kernels/cpu/convolution/pieces.h"
#include "tern/kernels/cpu/gemm/onednn.h"
#include "tern/kernels/cpu/rows.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

using Pass = ConvolutionPass;

/// Lengths of strips of lines, in units. A longer one takes longer to create than it gains.
constexpr int64_t kLongest = 256, kShortest = 16;
/// For gradients of large weights, which are added once for each strip.
constexpr int64_t kLongestOfLargeWeight = 1024, kLargeWeight = 32768;
/// Operations and bytes of a strip of rows: 0.2 ms or more, and what follows the sums finds it in cache.
constexpr double kStripOperations = 2e7, kStripBytes = 512 * 1024;
/// Each length is a quarter of the next, so that there are few.
constexpr int64_t kStep = 4;
constexpr size_t kLevels = 6;  // of 1, 4, ..., 1024 units
/// Parts of the gradient of a weight, which are added in order.
constexpr int64_t kParts = 8;

/// Whether the convolution is flat: of one row.
bool is_line(const ConvolutionShape& s) {
  return s.in[1] == 1 && s.out[1] == 1 && s.kernel[1] == 1 && s.padding[1] == 0;
}
/// A product of matrices has one line of all pixels.
ConvolutionShape line_of(ConvolutionShape s) {
  if (!s.is_product()) return s;
  s.in[2] = s.out[2] = s.batch * s.in[2];
  s.batch = 1;
  return s;
}
double number(int64_t n) { return static_cast<double>(n); }

/// The rows of the longest strip of an image: a power of kStep that depends on the length of a row alone.
int64_t longest_rows(const ConvolutionShape& s, DType dtype) {
  const double operations = 2 * number(s.out[2] * s.out_channels) * number(s.depth_of_sums());
  const double bytes = number((s.in[2] * s.in_channels * s.stride[1] + s.out[2] * s.out_channels) * size_of(dtype));
  const double rows = std::min(kStripOperations / operations, kStripBytes / bytes);
  int64_t result = 1;
  while (result < 64 && number(2 * result) <= rows) result *= kStep;
  return result;
}

/// A pass over all images, which lie in one long image with zeros between them. It is cut along its length: the width
/// of lines, the height of others. A pixel is one of that dimension; a unit is a pixel of the output, or of the input's
/// gradient as many pixels as the stride.
class Strips {
 public:
  struct Strip {
    int64_t first, units;
  };
  /// What a strip computed: y[first, first + elements), in elements of all images.
  struct Result {
    int64_t first, elements;
  };
  using Calls = std::array<std::optional<ConvolutionCall>, kLevels>;

  explicit Strips(const ConvolutionCase& c)
      : s_(line_of(c.shape)), dtype_(c.dtype), pass_(c.pass), axis_(is_line(c.shape) ? 2 : 1) {
    stride_ = s_.stride[axis_];
    reach_ = (s_.kernel[axis_] - 1) * s_.dilation[axis_];
    const int64_t padding = s_.padding[axis_], in = s_.in[axis_], out = s_.out[axis_], room = reach_ - padding;
    // The input's gradient: unit u reads outputs from u - before_ on.
    before_ = room >= 0 ? room / stride_ : -((-room + stride_ - 1) / stride_);
    if (padding + before_ * stride_ < 0) ++before_;
    // Zeros between images: none reads, or is read by, another's pixels.
    const bool input = pass_ == Pass::kBackwardInput;
    const int64_t units = input ? up(in, stride_) : out, end = (out - 1) * stride_ - padding + reach_ + 1;
    const int64_t period = std::max({units, out, up(std::max(in + padding, end), stride_)});
    const int64_t inner = axis_ == 2 ? 1 : s_.in[2], inner_out = axis_ == 2 ? 1 : s_.out[2];
    x_ = {period * stride_, in, inner * s_.in_channels * size_of(dtype_)};
    y_ = {period, out, inner_out * s_.out_channels * size_of(dtype_)};
    // What nothing reads is zero: 0 times infinity would be NaN in a gradient.
    x_.used = input ? in : std::clamp<int64_t>(end, 0, in);
    y_.used = out;
    const bool large = s_.out_channels * s_.depth_of_sums() >= kLargeWeight;
    const int64_t longest = axis_ == 1                                ? longest_rows(s_, dtype_)
                            : pass_ == Pass::kBackwardWeight && large ? kLongestOfLargeWeight
                                                                      : kLongest;
    const int64_t shortest = axis_ == 1 ? std::max<int64_t>(longest / kStep, 1) : kShortest,
                  all = (s_.batch - 1) * period + units;
    int64_t first = 0;
    for (; first + longest <= all; first += longest) add({first, longest});
    int64_t rest = up(all - first, shortest) * shortest;
    for (int64_t length = longest; rest > 0; length /= kStep)
      for (; rest >= length; rest -= length, first += length) add({first, length});
  }

  int64_t count() const { return static_cast<int64_t>(strips_.size()); }
  int64_t weight_bytes() const { return weight_bytes_; }
  /// The memory of a thread: for the primitive, and for copies of the strips that images do not fill.
  int64_t slot_bytes() const { return scratch_bytes_ + x_bytes_ + y_bytes_; }

  /// Rewrites a weight for all strips.
  void pack(const void* weight, char* packed) const {
    for_each_layout(
        [&](const ConvolutionPrimitive& layout, int64_t offset) { layout.reorder_weight(weight, packed + offset); });
  }
  /// body(layout, its place in the packed weight in bytes).
  template <class Body>
  void for_each_layout(const Body& body) const {
    int64_t offset = 0;
    for (const ConvolutionPrimitive* layout : layouts_) {
      body(*layout, offset);
      offset += layout->weight_bytes();
    }
  }
  /// Bytes and place of the weight that strip `index` reads or writes.
  int64_t weight_bytes_of(int64_t index) const { return level_of(index).primitive->weight_bytes(); }
  int64_t weight_place(int64_t index) const { return level_of(index).weight; }

  /// Computes a strip. x and y: all images, of which the pass writes one, unless it writes the weight. memory:
  /// slot_bytes().
  Result run(int64_t index, Calls& calls, const void* x, const void* weight, const void* bias, const void* y,
             char* memory) const {
    const Strip strip = strips_[static_cast<size_t>(index)];
    std::optional<ConvolutionCall>& call = calls[level(strip.units)];
    if (!call) call.emplace(*level_of(index).primitive);
    const ConvolutionShape& shape = call->primitive().key().shape;
    const bool input = pass_ == Pass::kBackwardInput;
    const Window window_x(x_, s_.batch, x, strip.first * stride_ - (input ? 0 : s_.padding[axis_]), shape.in[axis_],
                          memory + scratch_bytes_);
    const Window window_y(y_, s_.batch, y, input ? strip.first - before_ : strip.first, shape.out[axis_],
                          memory + scratch_bytes_ + x_bytes_);
    if (!input) window_x.read();
    if (pass_ != Pass::kForward) window_y.read();
    call->run(window_x.data(), weight, bias, window_y.data(), memory);
    if (input) window_x.write();
    if (pass_ == Pass::kForward) window_y.write();
    const int64_t elements = y_.pixel_bytes / size_of(dtype_), first = y_.pixels_before(s_.batch, strip.first);
    return {first * elements, (y_.pixels_before(s_.batch, strip.first + strip.units) - first) * elements};
  }

 private:
  struct Level {
    std::shared_ptr<const ConvolutionPrimitive> primitive;
    int64_t weight = 0;  // its place in the packed weight
  };

  /// How images lie in the long one, in pixels: one begins every `period`, has `length`, and the first `used` are read
  /// or written.
  struct Line {
    int64_t period = 0, length = 0, pixel_bytes = 0, used = 0;
    /// Pixels of images before a place of the long one.
    int64_t pixels_before(int64_t batch, int64_t place) const {
      const int64_t image = std::min(place / period, batch);
      return image * length + (image < batch ? std::min(place % period, length) : 0);
    }
  };

  /// `length` pixels of the long image from `first` on: where they are, or a copy with zeros.
  class Window {
   public:
    Window(const Line& line, int64_t batch, const void* images, int64_t first, int64_t length, char* copy)
        : line_(line),
          images_(const_cast<char*>(static_cast<const char*>(images))),
          first_(first),
          length_(length),
          images_before_(std::max<int64_t>(first, 0) / line.period),
          images_end_(std::min(batch, up(std::max<int64_t>(first + length, 0), line.period))),
          copy_(copy) {
      const int64_t within = first - images_before_ * line.period;
      if (first >= 0 && images_before_ < batch && within + length <= line.used) copy_ = nullptr;
      if (!copy_) images_ += (images_before_ * line.length + within) * line.pixel_bytes;
    }
    void* data() const { return copy_ ? copy_ : images_; }
    void read() const {
      if (!copy_) return;
      int64_t done = 0;
      for_each_image([&](int64_t at, int64_t pixel, int64_t count) {
        std::memset(copy_ + bytes(done), 0, bytes(at - done));
        std::memcpy(copy_ + bytes(at), images_ + bytes(pixel), bytes(count));
        done = at + count;
      });
      std::memset(copy_ + bytes(done), 0, bytes(length_ - done));
    }
    void write() const {
      if (!copy_) return;
      for_each_image([&](int64_t at, int64_t pixel, int64_t count) {
        std::memcpy(images_ + bytes(pixel), copy_ + bytes(at), bytes(count));
      });
    }

   private:
    size_t bytes(int64_t pixels) const { return static_cast<size_t>(pixels * line_.pixel_bytes); }
    /// body(place within the window, pixel of all images, number of pixels).
    template <class Body>
    void for_each_image(const Body& body) const {
      for (int64_t i = images_before_; i < images_end_; ++i) {
        const int64_t begin = std::max(i * line_.period, first_);
        const int64_t end = std::min(i * line_.period + line_.used, first_ + length_);
        if (begin < end) body(begin - first_, i * line_.length + begin - i * line_.period, end - begin);
      }
    }

    const Line& line_;
    char* images_;
    int64_t first_, length_, images_before_, images_end_;
    char* copy_;
  };

  static int64_t up(int64_t value, int64_t by) { return (value + by - 1) / by; }
  static size_t level(int64_t units) { return static_cast<size_t>(std::countr_zero(static_cast<uint64_t>(units))) / 2; }
  const Level& level_of(int64_t index) const { return levels_[level(strips_[static_cast<size_t>(index)].units)]; }

  void add(const Strip& strip) {
    strips_.push_back(strip);
    Level& of = levels_[level(strip.units)];
    if (of.primitive) return;
    ConvolutionKey key{{.pass = pass_, .dtype = dtype_, .shape = s_}};
    ConvolutionShape& s = key.shape;
    s.batch = 1;
    if (pass_ == Pass::kBackwardInput) {
      s.padding[axis_] = s_.padding[axis_] + before_ * stride_;
      s.in[axis_] = strip.units * stride_;
      s.out[axis_] = (s.in[axis_] - 1 + s.padding[axis_]) / stride_ + 1;
    } else {
      s.padding[axis_] = 0;
      s.in[axis_] = (strip.units - 1) * stride_ + reach_ + 1;
      s.out[axis_] = strip.units;
    }
    of.primitive = find_convolution(key);
    scratch_bytes_ = std::max(scratch_bytes_, of.primitive->scratch_bytes());
    x_bytes_ = std::max(x_bytes_, align_up(s.in[axis_] * x_.pixel_bytes));
    y_bytes_ = std::max(y_bytes_, align_up(s.out[axis_] * y_.pixel_bytes));
    for (const ConvolutionPrimitive* layout : layouts_) {
      if (layout->same_weight(*of.primitive)) return;
      of.weight += layout->weight_bytes();
    }
    layouts_.push_back(of.primitive.get());
    weight_bytes_ += of.primitive->weight_bytes();
  }

  const ConvolutionShape s_;
  const DType dtype_;
  const Pass pass_;
  const size_t axis_;
  int64_t stride_ = 1, reach_ = 0, before_ = 0;
  Line x_, y_;
  int64_t scratch_bytes_ = 0, x_bytes_ = 0, y_bytes_ = 0, weight_bytes_ = 0;
  std::vector<Strip> strips_;
  std::array<Level, kLevels> levels_;
  std::vector<const ConvolutionPrimitive*> layouts_;  // one for each layout of the weight
};

/// body(index, slot, calls) for all indices below `count`, on all threads.
template <class Body>
void share_out(int64_t count, const Body& body) {
  std::atomic<int64_t> next = 0;
  parallel_for(std::min<int64_t>(count, num_threads()), 1, [&](int64_t slot, int64_t) {
    Strips::Calls calls;
    for (int64_t i = next++; i < count; i = next++) body(i, slot, calls);
  });
}

/// Forward or the input's gradient.
ConvolutionPlan image_plan(const ConvolutionCase& c, const std::shared_ptr<const Strips>& strips) {
  const bool is_forward = c.is(Pass::kForward);
  const int64_t channels = c.shape.out_channels, bias_bytes = is_forward ? align_up(channels * 4) : 0;
  const auto run = [=](ConstView given, ConstView, const ConvolutionEpilogue& epilogue, View result, char* memory) {
    prepare_products();
    const float* const bias =
        is_forward ? wide_bias(epilogue.bias, channels, reinterpret_cast<float*>(memory)) : nullptr;
    const void *const x = is_forward ? given.data : result.data, *const y = is_forward ? result.data : given.data;
    const char* const packed = static_cast<const char*>(epilogue.packed_weight);
    char* const slots = memory + bias_bytes;
    share_out(strips->count(), [&](int64_t i, int64_t slot, Strips::Calls& calls) {
      const Strips::Result done =
          strips->run(i, calls, x, packed + strips->weight_place(i), bias, y, slots + slot * strips->slot_bytes());
      apply_epilogue(epilogue, result, done.first, done.elements);
    });
  };
  return {.run = run,
          .memory_bytes = bias_bytes + std::min<int64_t>(strips->count(), num_threads()) * strips->slot_bytes(),
          .packed_bytes = strips->weight_bytes(),
          .pack = [strips](ConstView weight, char* packed) { strips->pack(weight.data, packed); }};
}

/// Memory: the gradient twice as it is given, that of each part, and for each thread that of a strip.
ConvolutionPlan weight_plan(const ConvolutionCase& c, const std::shared_ptr<const Strips>& strips) {
  const int64_t elements = c.shape.out_channels * c.shape.depth_of_sums(), plain_bytes = align_up(elements * 4);
  const int64_t parts = std::min(strips->count(), kParts), part_bytes = strips->weight_bytes();
  const int64_t slot_bytes = strips->slot_bytes() + part_bytes;
  const auto run = [=](ConstView dy, ConstView x, const ConvolutionEpilogue&, View dweight, char* memory) {
    prepare_products();
    auto* const plain = reinterpret_cast<float*>(memory);
    auto* const plain_part = plain + plain_bytes / 4;
    char* const sums_of_parts = memory + 2 * plain_bytes;
    char* const slots = sums_of_parts + parts * part_bytes;
    share_out(parts, [&](int64_t part, int64_t slot, Strips::Calls& calls) {
      char* const sums = sums_of_parts + part * part_bytes;
      char *const own = slots + slot * slot_bytes, *const gradient = own + strips->slot_bytes();
      std::memset(sums, 0, static_cast<size_t>(part_bytes));
      const int64_t end = (part + 1) * strips->count() / parts;
      for (int64_t i = part * strips->count() / parts; i < end; ++i) {
        strips->run(i, calls, x.data, gradient, nullptr, dy.data, own);
        add_to(reinterpret_cast<float*>(sums + strips->weight_place(i)), reinterpret_cast<const float*>(gradient),
               strips->weight_bytes_of(i) / 4);
      }
    });
    auto* const sums = reinterpret_cast<float*>(sums_of_parts);
    parallel_for(part_bytes / 4, 4096, [&](int64_t begin, int64_t end) {
      for (int64_t part = 1; part < parts; ++part)
        add_to(sums + begin, reinterpret_cast<const float*>(sums_of_parts + part * part_bytes) + begin, end - begin);
    });
    float* const result = dweight.dtype == DType::kFloat32 ? dweight.as<float>() : plain;
    strips->for_each_layout([&](const ConvolutionPrimitive& layout, int64_t offset) {
      layout.reorder_weight(sums_of_parts + offset, offset == 0 ? result : plain_part);
      if (offset > 0) add_to(result, plain_part, elements);
    });
    if (result == plain) dispatch_float(dweight.dtype, [&]<class T>() { narrow(plain, dweight.as<T>(), elements); });
  };
  return {.run = run,
          .memory_bytes = 2 * plain_bytes + parts * part_bytes + std::min<int64_t>(parts, num_threads()) * slot_bytes};
}

ConvolutionPlan make(const ConvolutionCase& c) {
  const auto strips = std::make_shared<const Strips>(c);
  return c.is(Pass::kBackwardWeight) ? weight_plan(c, strips) : image_plan(c, strips);
}

bool can(const ConvolutionCase& c) { return kOnednn.can(c) && c.is_flat(); }

/// Lines, and forward large images, where oneDNN pays.
bool pays(const ConvolutionCase& c) {
  const ConvolutionShape& s = c.shape;
  if (is_line(s) && s.in[2] > 1 && s.batch * std::min(s.in[2], s.out[2]) >= kShortest) return kOnednn.pays(c);
  return c.is(Pass::kForward) && !s.is_product() && s.out[1] >= 2 * longest_rows(s, c.dtype) && !has_winograd_pieces(c);
}

}  // namespace

const ConvolutionMethod kStrips = {"strips", can, pays, make};

}  // namespace tern::kernels::TERN_CPU

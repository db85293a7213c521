#include "tern/kernels/cpu/convolution/strips.h"

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

bool is_flat(const ConvolutionShape& s) {
  return s.in[0] == 1 && s.out[0] == 1 && s.kernel[0] == 1 && s.padding[0] == 0;
}
bool is_line(const ConvolutionShape& s) {
  return is_flat(s) && s.in[1] == 1 && s.out[1] == 1 && s.kernel[1] == 1 && s.padding[1] == 0;
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

  Strips(const ConvolutionShape& shape, DType dtype, Pass pass)
      : s_(line_of(shape)), dtype_(dtype), pass_(pass), axis_(is_line(shape) ? 2 : 1) {
    stride_ = s_.stride[axis_];
    reach_ = (s_.kernel[axis_] - 1) * s_.dilation[axis_];
    const int64_t padding = s_.padding[axis_], in = s_.in[axis_], out = s_.out[axis_], room = reach_ - padding;
    // The input's gradient: unit u reads outputs from u - before_ on.
    before_ = room >= 0 ? room / stride_ : -((-room + stride_ - 1) / stride_);
    if (padding + before_ * stride_ < 0) ++before_;
    // Zeros between images: none reads, or is read by, another's pixels.
    const bool input = pass == Pass::kBackwardInput;
    const int64_t units = input ? up(in, stride_) : out, end = (out - 1) * stride_ - padding + reach_ + 1;
    const int64_t period = std::max({units, out, up(std::max(in + padding, end), stride_)});
    const int64_t inner = axis_ == 2 ? 1 : s_.in[2], inner_out = axis_ == 2 ? 1 : s_.out[2];
    x_ = {period * stride_, in, inner * s_.in_channels * size_of(dtype)};
    y_ = {period, out, inner_out * s_.out_channels * size_of(dtype)};
    // What nothing reads is zero: 0 times infinity would be NaN in a gradient.
    x_.used = input ? in : std::clamp<int64_t>(end, 0, in);
    y_.used = out;
    const bool large = s_.out_channels * s_.depth_of_sums() >= kLargeWeight;
    const int64_t longest = axis_ == 1                               ? longest_rows(s_, dtype)
                            : pass == Pass::kBackwardWeight && large ? kLongestOfLargeWeight
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
  /// Of a thread: for the primitive, and for copies of the strips that images do not fill.
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
    ConvolutionKey key{.pass = pass_, .dtype = dtype_, .shape = s_};
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

int64_t slots_bytes(const Strips& strips) {
  return std::min<int64_t>(strips.count(), num_threads()) * strips.slot_bytes();
}

/// The gradient of a weight: memory of the parts, then of the threads, each with room for the gradient of a strip.
struct WeightParts {
  explicit WeightParts(const Strips& strips, int64_t elements)
      : parts(std::min(strips.count(), kParts)),
        part_bytes(strips.weight_bytes()),
        plain_bytes(align_up(elements * 4)),
        slot_bytes(strips.slot_bytes() + strips.weight_bytes()),
        bytes(64 + 2 * plain_bytes + parts * part_bytes + std::min<int64_t>(parts, num_threads()) * slot_bytes) {}
  int64_t parts, part_bytes, plain_bytes, slot_bytes, bytes;
};

}  // namespace

bool ConvolutionStrips::suits(const ConvolutionShape& s) {
  return is_line(s) && s.in[2] > 1 && s.batch * std::min(s.in[2], s.out[2]) >= kShortest;
}

bool ConvolutionStrips::suits_forward(const ConvolutionShape& s, DType dtype, bool fixed_weight) {
  if (suits(s)) return true;
  return is_flat(s) && !s.is_product() && s.out[1] >= 2 * longest_rows(s, dtype) &&
         !has_winograd_pieces(s, dtype, fixed_weight);
}

int64_t ConvolutionStrips::forward_bytes(bool packed) const {
  const Strips strips(shape_, dtype_, Pass::kForward);
  return 64 + align_up(shape_.out_channels * 4) + (packed ? 0 : strips.weight_bytes()) + slots_bytes(strips);
}

int64_t ConvolutionStrips::packed_bytes() const { return 64 + Strips(shape_, dtype_, Pass::kForward).weight_bytes(); }

void ConvolutionStrips::pack(ConstView weight, void* packed) const {
  Strips(shape_, dtype_, Pass::kForward).pack(weight.data, align_up(packed));
}

void ConvolutionStrips::forward(ConstView x, ConstView weight, const ConvolutionEnd& end, View y,
                                void* workspace) const {
  check_not_ending();
  const Strips strips(shape_, dtype_, Pass::kForward);
  char* memory = align_up(workspace);
  const float* const bias = wide_bias(end.bias, shape_.out_channels, reinterpret_cast<float*>(memory));
  memory += align_up(shape_.out_channels * 4);
  const char* packed = memory;
  if (end.packed_weight) {
    packed = align_up(const_cast<void*>(end.packed_weight));
  } else {
    strips.pack(weight.data, memory);
    memory += strips.weight_bytes();
  }
  char* const slots = memory;
  share_out(strips.count(), [&](int64_t i, int64_t slot, Strips::Calls& calls) {
    const Strips::Result done =
        strips.run(i, calls, x.data, packed + strips.weight_place(i), bias, y.data, slots + slot * strips.slot_bytes());
    if (!end.continues()) return;
    const auto finish_strip = [&]<class T>() {
      finish<T>(end.activation, end.residual ? end.residual.as<T>() + done.first : nullptr, y.as<T>() + done.first,
                done.elements);
    };
    dtype_ == DType::kFloat32 ? finish_strip.operator()<float>() : finish_strip.operator()<BFloat16>();
  });
}

int64_t ConvolutionStrips::backward_input_bytes() const {
  const Strips strips(shape_, dtype_, Pass::kBackwardInput);
  return 64 + strips.weight_bytes() + slots_bytes(strips);
}

void ConvolutionStrips::backward_input(ConstView dy, ConstView weight, View dx, void* workspace) const {
  check_not_ending();
  const Strips strips(shape_, dtype_, Pass::kBackwardInput);
  char *const packed = align_up(workspace), *const slots = packed + strips.weight_bytes();
  strips.pack(weight.data, packed);
  share_out(strips.count(), [&](int64_t i, int64_t slot, Strips::Calls& calls) {
    strips.run(i, calls, dx.data, packed + strips.weight_place(i), nullptr, dy.data,
               slots + slot * strips.slot_bytes());
  });
}

int64_t ConvolutionStrips::backward_weight_bytes() const {
  const Strips strips(shape_, dtype_, Pass::kBackwardWeight);
  return WeightParts(strips, shape_.out_channels * shape_.depth_of_sums()).bytes;
}

void ConvolutionStrips::backward_weight(ConstView dy, ConstView x, View dweight, void* workspace) const {
  check_not_ending();
  const Strips strips(shape_, dtype_, Pass::kBackwardWeight);
  const int64_t elements = shape_.out_channels * shape_.depth_of_sums();
  const WeightParts memory(strips, elements);
  auto* const plain = reinterpret_cast<float*>(align_up(workspace));
  auto* const plain_part = plain + memory.plain_bytes / 4;
  char* const parts = reinterpret_cast<char*>(plain_part) + memory.plain_bytes;
  char* const slots = parts + memory.parts * memory.part_bytes;
  share_out(memory.parts, [&](int64_t part, int64_t slot, Strips::Calls& calls) {
    char* const sums = parts + part * memory.part_bytes;
    char *const own = slots + slot * memory.slot_bytes, *const gradient = own + strips.slot_bytes();
    std::memset(sums, 0, static_cast<size_t>(memory.part_bytes));
    const int64_t end = (part + 1) * strips.count() / memory.parts;
    for (int64_t i = part * strips.count() / memory.parts; i < end; ++i) {
      strips.run(i, calls, x.data, gradient, nullptr, dy.data, own);
      add_to(reinterpret_cast<float*>(sums + strips.weight_place(i)), reinterpret_cast<const float*>(gradient),
             strips.weight_bytes_of(i) / 4);
    }
  });
  auto* const sums = reinterpret_cast<float*>(parts);
  parallel_for(memory.part_bytes / 4, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t part = 1; part < memory.parts; ++part)
      add_to(sums + begin, reinterpret_cast<const float*>(parts + part * memory.part_bytes) + begin, end - begin);
  });
  float* const result = dweight.dtype == DType::kFloat32 ? dweight.as<float>() : plain;
  strips.for_each_layout([&](const ConvolutionPrimitive& layout, int64_t offset) {
    layout.reorder_weight(parts + offset, offset == 0 ? result : plain_part);
    if (offset > 0) add_to(result, plain_part, elements);
  });
  if (result == plain) dispatch_float(dweight.dtype, [&]<class T>() { narrow(plain, dweight.as<T>(), elements); });
}

}  // namespace tern::kernels::TERN_CPU

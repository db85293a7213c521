#include "tern/kernels/cpu/convolution/depthwise.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "tern/kernels/cpu/gemm/blocks.h"
#include "tern/kernels/cpu/rows.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float))));
constexpr int64_t kMaxBlock = 2 * kLanes;   // channels at a time
constexpr int kMaxTaps = 7;                 // elements of a row of the kernel at a time
constexpr int64_t kTaskProducts = 1 << 21;  // of forward and of the input's gradient
constexpr int64_t kParts = 8;               // of the images, in the gradient of the weight

Lanes load(const float* from) {
  Lanes v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
void store(float* to, Lanes v) { std::memcpy(to, &v, sizeof v); }
/// n: a multiple of kLanes.
void copy_lanes(const float* from, int64_t n, float* to) {
  for (int64_t i = 0; i < n; i += kLanes) store(to + i, load(from + i));
}

/// How the rows of the result read the rows of the source: the input for forward and for the weight's gradient, dy for
/// the input's.
struct Geometry {
  std::array<int64_t, 3> from, to;  // sizes of source and result
  bool transposed;                  // the input's gradient
  int64_t width, first, spread;     // of a buffer: pixels, place of the source's first, distance of its pixels
  int64_t base, step, tap;          // result o reads base + o * step + k * tap

  Geometry(const ConvolutionShape& s, bool gradient_of_input) : transposed(gradient_of_input) {
    const int64_t reach = (s.kernel[2] - 1) * s.dilation[2];
    from = transposed ? s.out : s.in;
    to = transposed ? s.in : s.out;
    spread = transposed ? s.stride[2] : 1;
    first = transposed ? std::max<int64_t>(0, reach - s.padding[2]) : s.padding[2];
    base = transposed ? s.padding[2] + first : 0;
    step = transposed ? 1 : s.stride[2];
    tap = transposed ? -s.dilation[2] : s.dilation[2];
    width = std::max(first + (from[2] - 1) * spread, base + (to[2] - 1) * step + (transposed ? 0 : reach)) + 1;
  }

  /// The place of dimension d that result `o` reads for position k of the kernel; -1 outside of the source.
  int64_t source(const ConvolutionShape& s, size_t d, int64_t o, int64_t k) const {
    int64_t place = o * s.stride[d] - s.padding[d] + k * s.dilation[d];
    if (transposed) {
      place = o + s.padding[d] - k * s.dilation[d];
      if (place < 0 || place % s.stride[d] != 0) return -1;
      place /= s.stride[d];
    }
    return place >= 0 && place < from[d] ? place : -1;
  }
};

/// The rows of one image and one block of channels in fp32, the last of them that were used.
template <class T>
class RowBuffers {
 public:
  RowBuffers(const ConvolutionShape& s, const Geometry& g, int64_t block)
      : g_(g),
        channels_(s.in_channels),
        block_(block),
        rows_(static_cast<size_t>(s.kernel[0] * ((s.kernel[1] - 1) * s.dilation[1] + 1)), -1),
        memory_(static_cast<size_t>(g.width * block) * rows_.size()) {}

  void set_image(const T* image) {
    image_ = image;
    std::fill(rows_.begin(), rows_.end(), -1);
  }
  /// Row `row` of the source, with zeros around and between its pixels.
  const float* row(int64_t row) {
    const size_t slot = static_cast<size_t>(row) % rows_.size();
    float* const buffer = memory_.data() + static_cast<int64_t>(slot) * g_.width * block_;
    if (rows_[slot] == row) return buffer;
    rows_[slot] = row;
    const T* from = image_ + row * g_.from[2] * channels_;
    // The last pixels may be such that no result reads.
    for (int64_t p = 0; p < g_.from[2]; ++p, from += channels_) {
      float* const to = buffer + (g_.first + p * g_.spread) * block_;
      if constexpr (std::is_same_v<T, float>)
        copy_lanes(from, block_, to);
      else
        widen(from, to, block_);
    }
    return buffer;
  }

 private:
  const Geometry& g_;
  int64_t channels_, block_;
  std::vector<int64_t> rows_;  // which row a buffer holds
  std::vector<float> memory_;
  const T* image_ = nullptr;
};

/// sums[o] += the taps of one row of the kernel for all pixels o of a row.
template <int kTaps, int kVectors>
[[gnu::noinline]] void add_row(const Geometry& g, const float* buffer, const float* weight, float* sums) {
  constexpr int64_t kBlock = kVectors * kLanes;
  Lanes w[kTaps][kVectors];
  for (int k = 0; k < kTaps; ++k)
    for (int v = 0; v < kVectors; ++v) w[k][v] = load(weight + k * kBlock + v * kLanes);
  const float* from = buffer + g.base * kBlock;
  for (int64_t o = 0; o < g.to[2]; ++o, from += g.step * kBlock, sums += kBlock)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      Lanes sum = load(sums + v * kLanes);
#pragma GCC unroll 7
      for (int k = 0; k < kTaps; ++k) sum += w[k][v] * load(from + k * g.tap * kBlock + v * kLanes);
      store(sums + v * kLanes, sum);
    }
}

/// sums[k] += the products of a row of dy and the source for the taps k of one row of the kernel.
template <int kTaps, int kVectors>
[[gnu::noinline]] void add_products(const Geometry& g, const float* buffer, const float* dy, int64_t dy_step,
                                    float* sums) {
  constexpr int64_t kBlock = kVectors * kLanes;
  Lanes sum[kTaps][kVectors];
  for (int k = 0; k < kTaps; ++k)
    for (int v = 0; v < kVectors; ++v) sum[k][v] = load(sums + k * kBlock + v * kLanes);
  for (int64_t o = 0; o < g.to[2]; ++o, buffer += g.step * kBlock, dy += dy_step)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const Lanes d = load(dy + v * kLanes);
#pragma GCC unroll 7
      for (int k = 0; k < kTaps; ++k) sum[k][v] += d * load(buffer + k * g.tap * kBlock + v * kLanes);
    }
  for (int k = 0; k < kTaps; ++k)
    for (int v = 0; v < kVectors; ++v) store(sums + k * kBlock + v * kLanes, sum[k][v]);
}

/// body.operator()<kTaps>(first tap) for the taps of a row of the kernel, up to kMaxTaps at a time.
template <int kTaps = kMaxTaps, class Body>
void for_taps(int64_t taps, const Body& body, int64_t first = 0) {
  while (taps - first >= kTaps) {
    body.template operator()<kTaps>(first);
    first += kTaps;
  }
  if constexpr (kTaps > 1) for_taps<kTaps - 1>(taps, body, first);
}

/// Blocks of channels; the last one begins earlier so that it is full, and counts from `begin` on.
struct Block {
  int64_t first, begin, end;
};
int64_t block_size(int64_t channels) { return channels >= kMaxBlock ? kMaxBlock : kLanes; }
int64_t block_count(int64_t channels) { return (channels + block_size(channels) - 1) / block_size(channels); }
Block block_at(int64_t channels, int64_t index) {
  const int64_t size = block_size(channels), begin = index * size, end = std::min(begin + size, channels);
  return {end - size, begin, end};
}

/// The weight in fp32: [blocks][kernel size][block].
std::vector<float> blocked_weight(const ConvolutionShape& s, const ConstView& weight) {
  const int64_t positions = s.kernel_size(), size = block_size(s.in_channels), blocks = block_count(s.in_channels);
  std::vector<float> result(static_cast<size_t>(blocks * positions * size));
  dispatch_float(weight.dtype, [&]<class T>() {
    float* to = result.data();
    for (int64_t index = 0; index < blocks; ++index) {
      const T* const from = weight.as<T>() + block_at(s.in_channels, index).first * positions;
      for (int64_t k = 0; k < positions; ++k)
        for (int64_t c = 0; c < size; ++c) *to++ = static_cast<float>(from[c * positions + k]);
    }
  });
  return result;
}

/// body(source row, row of the kernel) for each row of the kernel that result row (z, y) reads.
template <class Body>
void for_kernel_rows(const ConvolutionShape& s, const Geometry& g, int64_t z, int64_t y, const Body& body) {
  for (int64_t i = 0; i < s.kernel[0]; ++i) {
    const int64_t depth = g.source(s, 0, z, i);
    if (depth < 0) continue;
    for (int64_t j = 0; j < s.kernel[1]; ++j)
      if (const int64_t height = g.source(s, 1, y, j); height >= 0)
        body(depth * g.from[1] + height, i * s.kernel[1] + j);
  }
}

/// y = activation(sums + residual) of a block's channels of a row.
template <class T>
[[gnu::noinline]] void finish_row(const ConvolutionShape& s, const Geometry& g, const Block& b,
                                  const ConvolutionEnd& end, const float* sums, int64_t at, T* y) {
  const int64_t size = block_size(s.in_channels), n = b.end - b.begin;
  sums += b.begin - b.first;
  with_image_activation(end.activation, [&](const auto& act) {
    const auto finish = [&](auto count) {
      for (int64_t o = 0; o < g.to[2]; ++o, sums += size, at += s.in_channels)
        if (end.residual)
          map_row<float>(
              y + at, count, [&](float v, float r) { return act.forward(v + r); }, sums, end.residual.as<T>() + at);
        else
          map_row<float>(
              y + at, count, [&](float v) { return act.forward(v); }, sums);
    };
    if (n == kMaxBlock) return finish(std::integral_constant<int64_t, kMaxBlock>());
    finish(n);
  });
}

/// Forward or the input's gradient, from `source` to `result`.
template <class T>
void correlate(const ConvolutionShape& s, bool transposed, const T* source, const ConstView& weight,
               const ConvolutionEnd& end, T* result) {
  const Geometry g(s, transposed);
  const int64_t channels = s.in_channels, size = block_size(channels), blocks = block_count(channels);
  const int64_t from = g.from[0] * g.from[1] * g.from[2] * channels, to = g.to[0] * g.to[1] * g.to[2] * channels;
  // A task is some rows of an image and all channels, so that the rows' lines of memory belong to one thread.
  const int64_t rows = g.to[0] * g.to[1], of_row = g.to[2] * channels * s.kernel_size();
  const int64_t of_task = std::max<int64_t>(1, kTaskProducts / of_row), tasks = (rows + of_task - 1) / of_task;
  const std::vector<float> weights = blocked_weight(s, weight);
  parallel_for(s.batch * tasks, 1, [&](int64_t begin, int64_t stop) {
    std::vector<float> sums(static_cast<size_t>(g.to[2] * size)), bias(static_cast<size_t>(size));
    RowBuffers<T> buffers(s, g, size);
    for (int64_t index = 0; index < blocks; ++index) {
      const Block b = block_at(channels, index);
      const float* const w = weights.data() + index * s.kernel_size() * size;
      if (end.bias)
        dispatch_float(end.bias.dtype, [&]<class B>() {
          for (int64_t c = 0; c < size; ++c)
            bias[static_cast<size_t>(c)] = static_cast<float>(end.bias.as<B>()[b.first + c]);
        });
      for (int64_t task = begin; task < stop; ++task) {
        const int64_t image = task / tasks, top = task % tasks * of_task;
        buffers.set_image(source + image * from + b.first);
        for (int64_t row = top; row < std::min(top + of_task, rows); ++row) {
          for (int64_t o = 0; o < g.to[2]; ++o) copy_lanes(bias.data(), size, sums.data() + o * size);
          for_kernel_rows(s, g, row / g.to[1], row % g.to[1], [&](int64_t line, int64_t k) {
            const float* const buffer = buffers.row(line);
            for_taps(s.kernel[2], [&]<int kTaps>(int64_t tap) {
              const float* const taps = w + (k * s.kernel[2] + tap) * size;
              const float* const shifted = buffer + tap * g.tap * size;
              size == kMaxBlock ? add_row<kTaps, 2>(g, shifted, taps, sums.data())
                                : add_row<kTaps, 1>(g, shifted, taps, sums.data());
            });
          });
          finish_row<T>(s, g, b, end, sums.data(), image * to + row * g.to[2] * channels + b.begin, result);
        }
      }
    }
  });
}

/// dispatch over the types that suits() accepts.
template <class Body>
void with_type(DType dtype, const Body& body) {
  if (dtype == DType::kFloat32) return body.template operator()<float>();
  dtype == DType::kBFloat16 ? body.template operator()<BFloat16>() : body.template operator()<Float16>();
}

int64_t part_count(const ConvolutionShape& s) { return std::min(kParts, s.batch); }

/// The sums of one part of the images and one block of channels: [kernel size][block].
template <class T>
void weight_sums(const ConvolutionShape& s, const Geometry& g, const T* dy, const T* x, int64_t part, const Block& b,
                 float* sums) {
  const int64_t channels = s.in_channels, size = block_size(channels), row = g.to[2] * channels;
  RowBuffers<T> buffers(s, g, size);
  std::vector<float> wide(std::is_same_v<T, float> ? 0 : static_cast<size_t>(g.to[2] * size));
  const int64_t parts = part_count(s), rows = g.to[0] * g.to[1];
  for (int64_t n = s.batch * part / parts; n < s.batch * (part + 1) / parts; ++n) {
    buffers.set_image(x + n * s.in_pixels() * channels + b.first);
    for (int64_t r = 0; r < rows; ++r) {
      const T* const given = dy + (n * rows + r) * row + b.first;
      const float* gradient = wide.data();
      int64_t step = size;
      if constexpr (std::is_same_v<T, float>) {
        gradient = given;
        step = channels;
      } else {
        for (int64_t o = 0; o < g.to[2]; ++o) widen(given + o * channels, wide.data() + o * size, size);
      }
      for_kernel_rows(s, g, r / g.to[1], r % g.to[1], [&](int64_t line, int64_t k) {
        const float* const buffer = buffers.row(line);
        for_taps(s.kernel[2], [&]<int kTaps>(int64_t tap) {
          float* const taps = sums + (k * s.kernel[2] + tap) * size;
          const float* const shifted = buffer + tap * g.tap * size;
          size == kMaxBlock ? add_products<kTaps, 2>(g, shifted, gradient, step, taps)
                            : add_products<kTaps, 1>(g, shifted, gradient, step, taps);
        });
      });
    }
  }
}

}  // namespace

bool ConvolutionDepthwise::suits(const ConvolutionShape& s, DType dtype) {
  return s.groups == s.in_channels && s.groups == s.out_channels && s.in_channels >= kLanes &&
         dtype != DType::kFloat64 && s.batch > 0 && s.in_pixels() > 0 && s.out_pixels() > 0;
}

void ConvolutionDepthwise::forward(ConstView x, ConstView weight, const ConvolutionEnd& end, View y, void*) const {
  with_type(x.dtype, [&]<class T>() { correlate(shape_, false, x.as<T>(), weight, end, y.as<T>()); });
}

void ConvolutionDepthwise::backward_input(ConstView dy, ConstView weight, View dx, void*) const {
  with_type(dy.dtype, [&]<class T>() { correlate(shape_, true, dy.as<T>(), weight, {}, dx.as<T>()); });
}

int64_t ConvolutionDepthwise::backward_weight_bytes() const {
  const int64_t channels = block_count(shape_.in_channels) * block_size(shape_.in_channels);
  return 64 + part_count(shape_) * channels * shape_.kernel_size() * static_cast<int64_t>(sizeof(float));
}

void ConvolutionDepthwise::backward_weight(ConstView dy, ConstView x, View dweight, void* workspace) const {
  const ConvolutionShape& s = shape_;
  const Geometry g(s, false);
  const int64_t channels = s.in_channels, size = block_size(channels), blocks = block_count(channels);
  const int64_t positions = s.kernel_size(), of_block = positions * size, parts = part_count(s);
  auto* const sums = reinterpret_cast<float*>(align_up(workspace));
  parallel_for(parts * blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      std::fill_n(sums + task * of_block, of_block, 0.0f);
      with_type(x.dtype, [&]<class T>() {
        weight_sums(s, g, dy.as<T>(), x.as<T>(), task / blocks, block_at(channels, task % blocks),
                    sums + task * of_block);
      });
    }
  });
  for (int64_t task = blocks; task < parts * blocks; ++task)
    add_to(sums + task % blocks * of_block, sums + task * of_block, of_block);
  dispatch_float(dweight.dtype, [&]<class T>() {
    for (int64_t index = 0; index < blocks; ++index) {
      const Block b = block_at(channels, index);
      const float* const from = sums + index * of_block;
      for (int64_t c = b.begin; c < b.end; ++c)
        for (int64_t k = 0; k < positions; ++k)
          dweight.as<T>()[c * positions + k] = static_cast<T>(from[k * size + c - b.first]);
    }
  });
}

}  // namespace tern::kernels::TERN_CPU

// Depthwise convolutions: each channel has one kernel. Vectors of channels; rows of images are converted to fp32 and
// padded with zeros in a buffer that stays in the L1 cache.

#include <algorithm>

#include "tern/kernels/cpu/convolution/methods.h"
#include "tern/kernels/cpu/gemm/blocks.h"
#include "tern/kernels/cpu/rows.h"
#include "tern/kernels/cpu/slots.h"
#include "tern/kernels/workspace_parts.h"

namespace tern::kernels::TERN_CPU {
namespace {

constexpr int kLanes = kRegisterBytes / 4;
using Lanes = Vector<float, kRegisterBytes>;
constexpr int64_t kMaxBlock = 2 * kLanes;   // channels at a time
constexpr int kMaxTaps = 7;                 // elements of a row of the kernel at a time
constexpr int64_t kTaskProducts = 1 << 21;  // of forward and of the input's gradient
constexpr int64_t kParts = 8;               // of the images, in the gradient of the weight

Lanes load(const float* from) { return load_vector<kRegisterBytes>(from); }
void store(float* to, Lanes v) { store_vector(to, v); }
/// n: a multiple of kLanes.
void copy_lanes(const float* from, int64_t n, float* to) {
  for (int64_t i = 0; i < n; i += kLanes) store(to + i, load(from + i));
}
/// Numbers of any type in fp32.
template <class T>
void copy_wide(const T* from, int64_t n, float* to) {
  if constexpr (!std::is_same_v<T, float>)
    widen(from, to, n);
  else if (n % kLanes == 0)
    copy_lanes(from, n, to);
  else
    std::copy_n(from, n, to);
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

/// The memory of one thread.
struct Scratch {
  int64_t lines;   // that the buffers hold
  float* row;      // of sums, or of a gradient in fp32
  int64_t* held;   // which line a buffer holds
  float* buffers;  // [lines][width][block]
  int64_t bytes;

  /// block: channels.
  Scratch(const ConvolutionShape& s, const Geometry& g, int64_t block, char* memory)
      : lines(s.kernel[0] * ((s.kernel[1] - 1) * s.dilation[1] + 1)) {
    WorkspaceParts parts(memory, 64);
    row = parts.take<float>(g.to[2] * block);
    held = parts.take<int64_t>(lines);
    buffers = parts.take<float>(lines * g.width * block);
    bytes = align_up(parts.bytes());
  }
};

/// The rows of one image and one block of channels in fp32, the last of them that were used.
template <class T>
class RowBuffers {
 public:
  RowBuffers(const ConvolutionShape& s, const Geometry& g, int64_t block, const Scratch& scratch)
      : g_(g), channels_(s.in_channels), block_(block), count_(std::min(block, channels_)), scratch_(scratch) {
    std::fill_n(scratch.buffers, scratch.lines * g.width * block, 0.0f);
  }

  void set_image(const T* image) {
    image_ = image;
    std::fill_n(scratch_.held, scratch_.lines, -1);
  }
  /// Row `row` of the source, with zeros around and between its pixels.
  const float* row(int64_t row) {
    const int64_t slot = row % scratch_.lines;
    float* const buffer = scratch_.buffers + slot * g_.width * block_;
    if (scratch_.held[slot] == row) return buffer;
    scratch_.held[slot] = row;
    const T* from = image_ + row * g_.from[2] * channels_;
    // The last pixels may be such that no result reads.
    for (int64_t p = 0; p < g_.from[2]; ++p, from += channels_) {
      float* const to = buffer + (g_.first + p * g_.spread) * block_;
      copy_wide(from, count_, to);
    }
    return buffer;
  }

 private:
  const Geometry& g_;
  int64_t channels_, block_, count_;  // count_: channels of a block
  const Scratch& scratch_;
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

/// Blocks of channels; the last one begins earlier so that it is full, and counts from `begin` on. With fewer channels
/// than a vector has, zeros are behind them.
struct Block {
  int64_t first, begin, end;
};
int64_t block_size(int64_t channels) { return channels >= kMaxBlock ? kMaxBlock : kLanes; }
int64_t block_count(int64_t channels) { return (channels + block_size(channels) - 1) / block_size(channels); }
Block block_at(int64_t channels, int64_t index) {
  const int64_t size = block_size(channels), begin = index * size, end = std::min(begin + size, channels);
  return {std::max<int64_t>(end - size, 0), begin, end};
}

/// to: the weight in fp32, [blocks][kernel size][block].
void write_weight(const ConvolutionShape& s, const ConstView& weight, float* to) {
  const int64_t positions = s.kernel_size(), size = block_size(s.in_channels), blocks = block_count(s.in_channels);
  std::fill_n(to, blocks * positions * size, 0.0f);
  dispatch_float(weight.dtype, [&]<class T>() {
    for (int64_t index = 0; index < blocks; ++index) {
      const Block b = block_at(s.in_channels, index);
      const T* const from = weight.as<T>() + b.first * positions;
      for (int64_t k = 0; k < positions; ++k, to += size)
        for (int64_t c = 0; c < b.end - b.first; ++c) to[c] = static_cast<float>(from[c * positions + k]);
    }
  });
}
int64_t weight_bytes(const ConvolutionShape& s) {
  return align_up(block_count(s.in_channels) * s.kernel_size() * block_size(s.in_channels) * 4);
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
[[gnu::noinline]] void write_row(const ConvolutionShape& s, const Geometry& g, const Block& b,
                                 const ConvolutionEpilogue& epilogue, const float* sums, int64_t at, T* y) {
  const int64_t size = block_size(s.in_channels), n = b.end - b.begin;
  sums += b.begin - b.first;
  with_image_activation(epilogue.activation, [&](const auto& act) {
    const auto write = [&](auto count) {
      for (int64_t o = 0; o < g.to[2]; ++o, sums += size, at += s.in_channels)
        if (epilogue.residual)
          map_row<float>(
              y + at, count, [&](float v, float r) { return act.forward(v + r); }, sums,
              epilogue.residual.as<T>() + at);
        else
          map_row<float>(
              y + at, count, [&](float v) { return act.forward(v); }, sums);
    };
    if (n == kMaxBlock) return write(std::integral_constant<int64_t, kMaxBlock>());
    write(n);
  });
}

/// Forward or the input's gradient, from `source` to `result`, on `threads` threads, each with `of_thread` bytes of the
/// memory behind the weight.
template <class T>
void correlate(const ConvolutionShape& s, const Geometry& g, const T* source, const ConstView& weight,
               const ConvolutionEpilogue& epilogue, T* result, int64_t threads, int64_t of_thread, char* memory) {
  const int64_t channels = s.in_channels, size = block_size(channels), blocks = block_count(channels);
  const int64_t from = g.from[0] * g.from[1] * g.from[2] * channels, to = g.to[0] * g.to[1] * g.to[2] * channels;
  // A task is some rows of an image and all channels, so that the rows' lines of memory belong to one thread.
  const int64_t rows = g.to[0] * g.to[1], of_row = g.to[2] * channels * s.kernel_size();
  const int64_t of_task = std::max<int64_t>(1, kTaskProducts / of_row), tasks = (rows + of_task - 1) / of_task;
  auto* const weights = reinterpret_cast<float*>(memory);
  write_weight(s, weight, weights);
  for_tasks(s.batch * tasks, threads, [&](int64_t task, int64_t slot) {
    const Scratch scratch(s, g, size, memory + weight_bytes(s) + slot * of_thread);
    float bias[kMaxBlock] = {}, *const sums = scratch.row;
    RowBuffers<T> buffers(s, g, size, scratch);
    const int64_t image = task / tasks, top = task % tasks * of_task;
    for (int64_t index = 0; index < blocks; ++index) {
      const Block b = block_at(channels, index);
      const float* const w = weights + index * s.kernel_size() * size;
      if (epilogue.bias)
        dispatch_float(epilogue.bias.dtype, [&]<class B>() {
          for (int64_t c = 0; c < b.end - b.first; ++c)
            bias[c] = static_cast<float>(epilogue.bias.as<B>()[b.first + c]);
        });
      buffers.set_image(source + image * from + b.first);
      for (int64_t row = top; row < std::min(top + of_task, rows); ++row) {
        for (int64_t o = 0; o < g.to[2]; ++o) copy_lanes(bias, size, sums + o * size);
        for_kernel_rows(s, g, row / g.to[1], row % g.to[1], [&](int64_t line, int64_t k) {
          const float* const buffer = buffers.row(line);
          for_taps(s.kernel[2], [&]<int kTaps>(int64_t tap) {
            const float* const taps = w + (k * s.kernel[2] + tap) * size;
            const float* const shifted = buffer + tap * g.tap * size;
            size == kMaxBlock ? add_row<kTaps, 2>(g, shifted, taps, sums) : add_row<kTaps, 1>(g, shifted, taps, sums);
          });
        });
        write_row<T>(s, g, b, epilogue, sums, image * to + row * g.to[2] * channels + b.begin, result);
      }
    }
  });
}

/// dispatch over the types that can() accepts.
template <class Body>
void with_type(DType dtype, const Body& body) {
  if (dtype == DType::kFloat32) return body.template operator()<float>();
  dtype == DType::kBFloat16 ? body.template operator()<BFloat16>() : body.template operator()<Float16>();
}

int64_t part_count(const ConvolutionShape& s) { return std::min(kParts, s.batch); }

/// The sums of one part of the images and one block of channels: [kernel size][block].
template <class T>
void weight_sums(const ConvolutionShape& s, const Geometry& g, const T* dy, const T* x, int64_t part, const Block& b,
                 const Scratch& scratch, float* sums) {
  const int64_t channels = s.in_channels, size = block_size(channels), row = g.to[2] * channels;
  RowBuffers<T> buffers(s, g, size, scratch);
  const bool in_place = std::is_same_v<T, float> && channels >= size;
  float* const wide = scratch.row;
  if (!in_place) std::fill_n(wide, g.to[2] * size, 0.0f);
  const int64_t parts = part_count(s), rows = g.to[0] * g.to[1];
  for (int64_t n = s.batch * part / parts; n < s.batch * (part + 1) / parts; ++n) {
    buffers.set_image(x + n * s.in_pixels() * channels + b.first);
    for (int64_t r = 0; r < rows; ++r) {
      const T* const given = dy + (n * rows + r) * row + b.first;
      const float* gradient = in_place ? reinterpret_cast<const float*>(given) : wide;
      const int64_t step = in_place ? channels : size;
      for (int64_t o = 0; !in_place && o < g.to[2]; ++o)
        copy_wide(given + o * channels, b.end - b.first, wide + o * size);
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

ConvolutionPlan weight_plan(const ConvolutionShape& s) {
  const int64_t channels = s.in_channels, size = block_size(channels), blocks = block_count(channels);
  const int64_t positions = s.kernel_size(), of_block = positions * size, parts = part_count(s);
  const Geometry g(s, false);
  const int64_t of_thread = Scratch(s, g, size, nullptr).bytes, threads = num_threads();
  const int64_t sums_bytes = align_up(parts * blocks * of_block * 4);
  const auto run = [=](ConstView dy, ConstView x, const ConvolutionEpilogue&, View dweight, char* memory) {
    auto* const sums = reinterpret_cast<float*>(memory);
    for_tasks(parts * blocks, threads, [&](int64_t task, int64_t slot) {
      const Scratch scratch(s, g, size, memory + sums_bytes + slot * of_thread);
      std::fill_n(sums + task * of_block, of_block, 0.0f);
      with_type(x.dtype, [&]<class T>() {
        weight_sums(s, g, dy.as<T>(), x.as<T>(), task / blocks, block_at(channels, task % blocks), scratch,
                    sums + task * of_block);
      });
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
  };
  return {.run = run, .memory_bytes = sums_bytes + threads * of_thread};
}

ConvolutionPlan make(const ConvolutionCase& c) {
  if (c.is(ConvolutionPass::kBackwardWeight)) return weight_plan(c.shape);
  const ConvolutionShape& s = c.shape;
  const Geometry g(s, c.is(ConvolutionPass::kBackwardInput));
  const int64_t of_thread = Scratch(s, g, block_size(s.in_channels), nullptr).bytes, threads = num_threads();
  const auto run = [=](ConstView source, ConstView weight, const ConvolutionEpilogue& epilogue, View result,
                       char* memory) {
    with_type(source.dtype, [&]<class T>() {
      correlate(s, g, source.as<T>(), weight, epilogue, result.as<T>(), threads, of_thread, memory);
    });
  };
  return {.run = run, .memory_bytes = weight_bytes(s) + threads * of_thread};
}

bool can(const ConvolutionCase& c) { return c.is_depthwise() && c.dtype != DType::kFloat64 && !c.is_empty(); }
bool pays(const ConvolutionCase& c) { return c.shape.in_channels >= kLanes; }

}  // namespace

const ConvolutionMethod kDepthwise = {"depthwise", can, pays, make};

}  // namespace tern::kernels::TERN_CPU

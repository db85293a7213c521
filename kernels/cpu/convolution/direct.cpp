// Two-dimensional convolutions in fp32 as products of matrices whose rows are read from the images where they are (an
// implicit GEMM; Chetlur et al., arXiv:1410.0759): a kernel's row reads one run of memory of each pixel, and a block of
// pixels stays in cache until it has met the whole weight. A pixel's bits do not depend on the others, nor on the
// number of threads. The gradient of the weight is in direct_weight.cpp.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "tern/kernels/base/check.h"
#include "tern/kernels/cpu/convolution/epilogue.h"
#include "tern/kernels/cpu/convolution/methods.h"
#include "tern/kernels/cpu/gemm/blocks.h"
#include "tern/kernels/cpu/simd/register_products.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

constexpr int64_t kDepth = 256;  // numbers of a pixel that meet a panel of the weight, which stays in the L1 cache
constexpr int64_t kBlock = 96;   // pixels of a block, whose numbers stay in the L2 cache meanwhile

/// One dimension of a correlation: result i of `count` is at place first + i * step, and reads the numbers i * stride +
/// begin + k of `size` for k < kernel; those outside are 0.
struct Axis {
  int64_t size, count, kernel, stride, begin, first, step;

  bool reads_outside() const { return begin < 0 || (count - 1) * stride + begin + kernel > size; }
};

/// Where the weight of a correlation is in that of the convolution: number (to, from, i, j) is at the sum of their
/// products with these.
struct WeightPlaces {
  int64_t first, to, from, row, column;
};

/// A convolution's forward pass, or the gradient of those inputs that have the same remainders by the stride.
struct CorrelationShape {
  int64_t batch, from, to;  // channels
  Axis y, x;
  int64_t result_height, result_width;
  WeightPlaces weight;

  int64_t pixels() const { return batch * y.count * x.count; }
  int64_t run() const { return x.kernel * from; }  // numbers that a row of the kernel reads, one after another
  int64_t depth() const { return y.kernel * run(); }
  int64_t weight_bytes() const { return align_up(padded(to) * depth() * 4); }
};

CorrelationShape forward_shape(const ConvolutionShape& s) {
  const auto axis = [&](size_t d) { return Axis{s.in[d], s.out[d], s.kernel[d], s.stride[d], -s.padding[d], 0, 1}; };
  const int64_t height = s.kernel[1], width = s.kernel[2];
  return {.batch = s.batch,
          .from = s.in_channels,
          .to = s.out_channels,
          .y = axis(1),
          .x = axis(2),
          .result_height = s.out[1],
          .result_width = s.out[2],
          .weight = {0, s.in_channels * height * width, height * width, width, 1}};
}

/// The kernel's positions and outputs that the inputs `phase`, `phase` + stride, ... read, in the order of the outputs.
struct Phase {
  Axis axis;
  int64_t last;  // the kernel's position of output k of an input: last - k * stride
  Phase(const ConvolutionShape& s, size_t d, int64_t phase) {
    const int64_t stride = s.stride[d], first = (phase + s.padding[d]) % stride;
    const int64_t count = (std::max<int64_t>(s.kernel[d] - first, 0) + stride - 1) / stride;
    const int64_t inputs = (std::max<int64_t>(s.in[d] - phase, 0) + stride - 1) / stride;
    axis = {s.out[d], inputs, count, 1, (phase + s.padding[d]) / stride - (count - 1), phase, stride};
    last = first + (count - 1) * stride;
  }
};

CorrelationShape gradient_shape(const ConvolutionShape& s, int64_t row_phase, int64_t column_phase) {
  const Phase y(s, 1, row_phase), x(s, 2, column_phase);
  const int64_t size = s.kernel[1] * s.kernel[2], width = s.kernel[2];
  return {.batch = s.batch,
          .from = s.out_channels,
          .to = s.in_channels,
          .y = y.axis,
          .x = x.axis,
          .result_height = s.in[1],
          .result_width = s.in[2],
          .weight = {y.last * width + x.last, size, s.in_channels * size, -s.stride[1] * width, -s.stride[2]}};
}

/// The kernels from channel c to a panel of channels: to[position * from * kPanel + channel].
void pack_kernels(const CorrelationShape& s, const float* weight, int64_t first, int64_t c, float* to) {
  const int64_t count = std::min(kPanel, s.to - first), step = s.weight.to;
  const float* const from = weight + s.weight.first + first * step + c * s.weight.from;
  for (int64_t i = 0; i < s.y.kernel; ++i)
    for (int64_t j = 0; j < s.x.kernel; ++j, to += s.from * kPanel) {
      const float* const place = from + i * s.weight.row + j * s.weight.column;
      if (count == kPanel && step == 1) {
        std::memcpy(to, place, kPanel * 4);
        continue;
      }
      for (int64_t k = 0; k < count; ++k) to[k] = place[k * step];
      std::fill(to + count, to + kPanel, 0.0f);
    }
}

/// packed: [panels of `to`][kernel's rows][columns][from][kPanel], zeros behind the last channel.
void pack_weight(const CorrelationShape& s, const float* weight, float* packed) {
  const int64_t depth = s.depth();
  if (depth == 0) return;
  // Some weights have the channels of `to` last, others those of `from`: a task reads a few of both.
  constexpr int64_t kTask = 16;
  const int64_t panels = padded(s.to) / kPanel, across = (s.from + kTask - 1) / kTask;
  parallel_for((panels + kTask - 1) / kTask * across, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t first_panel = task / across * kTask, first_channel = task % across * kTask;
      for (int64_t panel = first_panel; panel < std::min(first_panel + kTask, panels); ++panel)
        for (int64_t c = first_channel; c < std::min(first_channel + kTask, s.from); ++c)
          pack_kernels(s, weight, panel * kPanel, c, packed + panel * kPanel * depth + c * kPanel);
    }
  });
}

/// The part of the weight that a block meets at a time: `runs` rows of the kernel, of each the numbers [begin, begin +
/// count) of a run.
struct Part {
  int64_t first_run, runs, begin, count;
};
/// Calls body(Part, its place in a panel). A weight without rows has one part without numbers.
template <class Body>
void for_parts(int64_t runs, int64_t run, const Body& body) {
  if (runs * run == 0) return body(Part{0, 0, 0, 0}, 0);
  if (run <= kDepth) {
    const int64_t together = kDepth / run;
    for (int64_t i = 0; i < runs; i += together) body(Part{i, std::min(together, runs - i), 0, run}, i * run);
    return;
  }
  const int64_t pieces = (run + kDepth - 1) / kDepth, piece = (run + pieces - 1) / pieces;
  for (int64_t i = 0; i < runs; ++i)
    for (int64_t begin = 0; begin < run; begin += piece)
      body(Part{i, 1, begin, std::min(piece, run - begin)}, i * run + begin);
}

/// results[r] = bias or, without, itself, plus the products of pixels' numbers and a panel. pixels: [runs, step].
template <int kCount, int kVectors>
[[gnu::noinline]] void multiply_runs(const float* const* pixels, int64_t step, const Part& part, const float* panel,
                                     const float* bias, float* const* results, int64_t column) {
  RegisterTile<kCount, kVectors> tile;
  tile.load([&](int r) { return bias ? bias : results[r] + column; });
  for (int64_t i = 0; i < part.runs; ++i, pixels += step, panel += part.count * kPanel)
    tile.multiply(part.count, LeftPointers<kCount, float>(pixels, part.begin), panel, kPanel);
  tile.store([&](int r) { return results[r] + column; });
}

/// The same for the last columns of results, which may be fewer than kVectors vectors hold.
template <int kCount, int kVectors>
void multiply_last(const float* const* pixels, int64_t step, const Part& part, const float* panel, const float* bias,
                   float* const* results, int64_t column, int64_t columns) {
  alignas(64) float values[kCount][kVectors * kLanes] = {};
  float* rows[kCount];
  const auto bytes = static_cast<size_t>(columns) * 4;
  for (int r = 0; r < kCount; ++r) {
    rows[r] = values[r];
    if (!bias) std::memcpy(values[r], results[r] + column, bytes);
  }
  multiply_runs<kCount, kVectors>(pixels, step, part, panel, bias, rows, 0);
  for (int r = 0; r < kCount; ++r) std::memcpy(results[r] + column, values[r], bytes);
}

class Correlation {
 public:
  explicit Correlation(const CorrelationShape& s) : s_(s), threads_(num_threads()) {
    const int64_t blocks = std::max((s.pixels() + kBlock - 1) / kBlock, threads_);
    block_ = ((s.pixels() + blocks - 1) / blocks + kRows - 1) / kRows * kRows;
  }

  int64_t bytes() const { return 64 + align_up(s_.run() * 4) + threads_ * slot_bytes(); }

  /// bias: [padded(to)]. finish(first, count) follows each block of pixels.
  template <class Finish>
  void run(const float* images, const float* packed, const float* bias, float* result, void* workspace,
           const Finish& finish) const {
    if (s_.pixels() == 0) return;
    auto* const zeros = reinterpret_cast<float*>(align_up(workspace));
    std::fill_n(zeros, s_.run(), 0.0f);
    char* const slots = reinterpret_cast<char*>(zeros) + align_up(s_.run() * 4);
    const int64_t blocks = (s_.pixels() + block_ - 1) / block_;
    std::atomic<int64_t> next = 0;
    parallel_for(std::min(blocks, threads_), 1, [&](int64_t slot, int64_t) {
      Block block(*this, slots + slot * slot_bytes());
      for (int64_t b = next++; b < blocks; b = next++) {
        const int64_t first = b * block_, count = std::min(block_, s_.pixels() - first);
        block.find(first, count, images, zeros, result);
        block.multiply(count, packed, bias);
        finish(first, count);
      }
    });
  }

 private:
  /// The pixels of a block: for each row of the kernel where the runs begin, and where the results are.
  struct Block {
    const Correlation& c;
    const float** runs;
    float** results;
    float* copies;  // of runs that are partly outside of the image

    Block(const Correlation& correlation, char* memory)
        : c(correlation),
          runs(reinterpret_cast<const float**>(memory)),
          results(reinterpret_cast<float**>(memory) + c.s_.y.kernel * c.block_),
          copies(reinterpret_cast<float*>(memory + c.table_bytes())) {}

    void find(int64_t first, int64_t count, const float* images, const float* zeros, float* result) {
      const CorrelationShape& s = c.s_;
      float* copy = copies;
      int64_t column = first % s.x.count, row = first / s.x.count % s.y.count, image = first / (s.x.count * s.y.count);
      for (int64_t p = 0; p < count; ++p) {
        const int64_t x = column * s.x.stride + s.x.begin;
        const int64_t left = std::clamp<int64_t>(-x, 0, s.x.kernel);
        const int64_t inside = std::clamp<int64_t>(s.x.size - x, left, s.x.kernel) - left;
        for (int64_t i = 0; i < s.y.kernel; ++i) {
          const int64_t y = row * s.y.stride + s.y.begin + i;
          const float*& run = runs[i * c.block_ + p];
          if (y < 0 || y >= s.y.size || inside == 0) {
            run = zeros;
            continue;
          }
          const float* const from = images + ((image * s.y.size + y) * s.x.size + x + left) * s.from;
          if (inside == s.x.kernel) {
            run = from;
            continue;
          }
          run = copy;
          copy = std::fill_n(copy, left * s.from, 0.0f);
          copy = std::copy_n(from, inside * s.from, copy);
          copy = std::fill_n(copy, (s.x.kernel - left - inside) * s.from, 0.0f);
        }
        results[p] = result + ((image * s.result_height + s.y.first + row * s.y.step) * s.result_width + s.x.first +
                               column * s.x.step) *
                                  s.to;
        if (++column < s.x.count) continue;
        column = 0;
        if (++row < s.y.count) continue;
        row = 0;
        ++image;
      }
    }

    void multiply(int64_t count, const float* packed, const float* bias) const {
      const CorrelationShape& s = c.s_;
      bool begun = false;
      for_parts(s.y.kernel, s.run(), [&](const Part& part, int64_t place) {
        for (int64_t k = 0; k < s.to; k += kPanel) {
          const float* const panel = packed + k * s.depth() + place * kPanel;
          const float* const add = begun ? nullptr : bias + k;
          const int64_t columns = std::min(kPanel, s.to - k);
          for_rows(count, [&]<int kCount>(int64_t p) {
            const float* const* const pixels = runs + part.first_run * c.block_ + p;
            if (columns == kPanel)
              multiply_runs<kCount, 2>(pixels, c.block_, part, panel, add, results + p, k);
            else if (columns > kLanes)
              multiply_last<kCount, 2>(pixels, c.block_, part, panel, add, results + p, k, columns);
            else
              multiply_last<kCount, 1>(pixels, c.block_, part, panel, add, results + p, k, columns);
          });
        }
        begun = true;
      });
    }
  };

  int64_t table_bytes() const { return align_up((s_.y.kernel + 1) * block_ * static_cast<int64_t>(sizeof(void*))); }
  int64_t slot_bytes() const { return table_bytes() + (s_.x.reads_outside() ? align_up(block_ * s_.depth() * 4) : 0); }

  const CorrelationShape s_;
  const int64_t threads_;
  int64_t block_;
};

/// Calls body(CorrelationShape) for each pair of remainders of the inputs' places by the stride.
template <class Body>
void for_phases(const ConvolutionShape& s, const Body& body) {
  for (int64_t i = 0; i < std::min(s.stride[1], s.in[1]); ++i)
    for (int64_t j = 0; j < std::min(s.stride[2], s.in[2]); ++j) body(gradient_shape(s, i, j));
}

ConvolutionPlan forward_plan(const ConvolutionShape& shape) {
  const CorrelationShape s = forward_shape(shape);
  const Correlation sums(s);
  const int64_t bias_bytes = align_up(padded(s.to) * 4);
  const auto run = [=](ConstView x, ConstView, const ConvolutionEpilogue& epilogue, View y, char* memory) {
    prepare_products();
    auto* const bias = reinterpret_cast<float*>(memory);
    const float* const given = wide_bias(epilogue.bias, s.to, bias);
    if (given != bias) std::copy_n(given, s.to, bias);
    std::fill(bias + s.to, bias + padded(s.to), 0.0f);
    sums.run(x.as<float>(), static_cast<const float*>(epilogue.packed_weight), bias, y.as<float>(), memory + bias_bytes,
             [&](int64_t first, int64_t count) { apply_epilogue(epilogue, y, first * s.to, count * s.to); });
  };
  return {.run = run,
          .memory_bytes = bias_bytes + sums.bytes(),
          .packed_bytes = s.weight_bytes(),
          .pack = [s](ConstView weight, char* packed) {
            pack_weight(s, weight.as<float>(), reinterpret_cast<float*>(packed));
          }};
}

ConvolutionPlan input_plan(const ConvolutionShape& shape) {
  int64_t weight_bytes = 0, work_bytes = 0;
  for_phases(shape, [&](const CorrelationShape& s) {
    weight_bytes = std::max(weight_bytes, s.weight_bytes());
    work_bytes = std::max(work_bytes, Correlation(s).bytes());
  });
  const int64_t channels = padded(shape.in_channels), bias_bytes = align_up(channels * 4);
  const auto run = [=](ConstView dy, ConstView weight, const ConvolutionEpilogue&, View dx, char* memory) {
    prepare_products();
    auto* const bias = reinterpret_cast<float*>(memory);
    std::fill_n(bias, channels, 0.0f);
    for_phases(shape, [&](const CorrelationShape& s) {
      char* const packed = memory + bias_bytes;
      pack_weight(s, weight.as<float>(), reinterpret_cast<float*>(packed));
      Correlation(s).run(dy.as<float>(), reinterpret_cast<const float*>(packed), bias, dx.as<float>(),
                         packed + s.weight_bytes(), [](int64_t, int64_t) {});
    });
  };
  return {.run = run, .memory_bytes = bias_bytes + weight_bytes + work_bytes};
}

ConvolutionPlan make(const ConvolutionCase& c) {
  return c.is(ConvolutionPass::kForward) ? forward_plan(c.shape) : input_plan(c.shape);
}

bool can(const ConvolutionCase& c) { return c.is_plain() && !c.is(ConvolutionPass::kBackwardWeight); }

// Measured on an EPYC with AVX2 against oneDNN 2.6 with channels-last images. Few channels are sums too short for what
// a tile costs besides; of 1 x 1 oneDNN is slow with many channels alone.
bool pays(const ConvolutionCase& c) {
  const ConvolutionShape& s = c.shape;
  if (!kOwnIsFaster) return false;
  if (c.is(ConvolutionPass::kBackwardInput))
    return s.kernel_size() > 1 ? s.in_channels >= 16 : s.is_product() && s.in_channels >= 512;
  return s.kernel_size() > 1 ? s.in_channels >= 16 || s.depth_of_sums() >= 256
                             : s.in_channels >= 256 && !s.is_product();
}

}  // namespace

const ConvolutionMethod kDirect = {"direct", can, pays, make};

}  // namespace tern::kernels::TERN_CPU

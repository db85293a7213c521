// Convolutions of 3 x 3 pixels in fp32 by Winograd's algorithm F(4 x 4, 3 x 3) (Lavin & Gray, arXiv:1509.09308), which
// multiplies a quarter as often: the images are cut into tiles of 4 x 4 pixels of the result, and the patches of 6 x 6
// that these read become 36 numbers for each channel, the points. At each point the tiles are a matrix, which is
// multiplied with the transformed weight. A tile's bits do not depend on the others, nor on the number of threads.

#include <algorithm>
#include <atomic>

#include "tern/kernels/base/check.h"
#include "tern/kernels/cpu/convolution/epilogue.h"
#include "tern/kernels/cpu/convolution/methods.h"
#include "tern/kernels/cpu/gemm/blocks.h"
#include "tern/kernels/cpu/simd/register_products.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

constexpr int64_t kSide = 4, kPatch = 6, kPoints = kPatch * kPatch;

/// Numbers between two points: not a power of two, because equal places of all points are written together.
int64_t point_step(int64_t rows, int64_t channels) { return rows * channels + 16; }

// The algorithm multiplies polynomials by their values at the points 0, a, -a, b, -b and infinity. a and b are
// oneDNN's, with which it rounds less than with 1 and 2 (on the choice: Barabasz et al., arXiv:1803.10986). Each
// function is the part of a transform for one column or row; B, G and A are the names of Lavin & Gray.
constexpr float kA = 0.625f, kB = 1.5f, kA2 = kA * kA, kB2 = kB * kB;
constexpr float kOfZero = 1 / (kA2 * kB2), kOfA = 1 / (2 * kA2 * (kA2 - kB2)), kOfB = 1 / (2 * kB2 * (kB2 - kA2));

/// B^T d.
void transform_patch(const Lanes (&d)[6], Lanes (&t)[6]) {
  t[0] = kA2 * kB2 * d[0] - (kA2 + kB2) * d[2] + d[4];
  const Lanes even_a = d[4] - kB2 * d[2], odd_a = kA * (d[3] - kB2 * d[1]);
  t[1] = even_a + odd_a;
  t[2] = even_a - odd_a;
  const Lanes even_b = d[4] - kA2 * d[2], odd_b = kB * (d[3] - kA2 * d[1]);
  t[3] = even_b + odd_b;
  t[4] = even_b - odd_b;
  t[5] = kA2 * kB2 * d[1] - (kA2 + kB2) * d[3] + d[5];
}
/// A^T m.
void transform_sums(const Lanes (&m)[6], Lanes (&y)[4]) {
  const Lanes even_a = m[1] + m[2], odd_a = kA * (m[1] - m[2]), even_b = m[3] + m[4], odd_b = kB * (m[3] - m[4]);
  y[0] = m[0] + even_a + even_b;
  y[1] = odd_a + odd_b;
  y[2] = kA2 * even_a + kB2 * even_b;
  y[3] = kA2 * odd_a + kB2 * odd_b + m[5];
}
/// A dy.
void transform_gradient(const Lanes (&y)[4], Lanes (&m)[6]) {
  const Lanes even_a = y[0] + kA2 * y[2], odd_a = kA * (y[1] + kA2 * y[3]);
  const Lanes even_b = y[0] + kB2 * y[2], odd_b = kB * (y[1] + kB2 * y[3]);
  m[0] = y[0];
  m[1] = even_a + odd_a;
  m[2] = even_a - odd_a;
  m[3] = even_b + odd_b;
  m[4] = even_b - odd_b;
  m[5] = y[3];
}
/// G g.
void transform_weight(const Lanes (&g)[3], Lanes (&u)[6]) {
  const Lanes even_a = kOfA * (g[0] + kA2 * g[2]), odd_a = kOfA * kA * g[1];
  const Lanes even_b = kOfB * (g[0] + kB2 * g[2]), odd_b = kOfB * kB * g[1];
  u[0] = kOfZero * g[0];
  u[1] = even_a + odd_a;
  u[2] = even_a - odd_a;
  u[3] = even_b + odd_b;
  u[4] = even_b - odd_b;
  u[5] = g[2];
}
/// G^T u.
void transform_weight_gradient(const Lanes (&u)[6], Lanes (&g)[3]) {
  const Lanes even_a = kOfA * (u[1] + u[2]), even_b = kOfB * (u[3] + u[4]);
  g[0] = kOfZero * u[0] + even_a + even_b;
  g[1] = kOfA * kA * (u[1] - u[2]) + kOfB * kB * (u[3] - u[4]);
  g[2] = kA2 * even_a + kB2 * even_b + u[5];
}

/// The transform of the columns of `from`, then of the rows of what that gives.
template <int kFrom, int kTo, void (*transform)(const Lanes (&)[kFrom], Lanes (&)[kTo])>
void transform_both(const Lanes (&from)[kFrom][kFrom], Lanes (&to)[kTo][kTo]) {
  Lanes half[kTo][kFrom];
#pragma GCC unroll 6
  for (int j = 0; j < kFrom; ++j) {
    Lanes column[kFrom], result[kTo];
    for (int i = 0; i < kFrom; ++i) column[i] = from[i][j];
    transform(column, result);
    for (int i = 0; i < kTo; ++i) half[i][j] = result[i];
  }
#pragma GCC unroll 6
  for (int i = 0; i < kTo; ++i) transform(half[i], to[i]);
}

/// The images' tiles.
struct Tiles {
  int64_t height, width, down, across, count;
  explicit Tiles(const ConvolutionShape& s)
      : height(s.in[1]),
        width(s.in[2]),
        down((height + kSide - 1) / kSide),
        across((width + kSide - 1) / kSide),
        count(s.batch * down * across) {}
};
/// The first pixel of a tile and its image.
struct Tile {
  int64_t image, top, left;
  Tile(const Tiles& tiles, int64_t index)
      : image(index / (tiles.down * tiles.across)),
        top(index / tiles.across % tiles.down * kSide),
        left(index % tiles.across * kSide) {}
};

/// The points of tiles [first, first + count): to[point][tile][channel], `step` between points and `row` between tiles;
/// from kSize x kSize pixels that begin `before` the tile, of which those outside of the image are zeros.
template <int kSize, void (*transform)(const Lanes (&)[kSize], Lanes (&)[6])>
void write_points(const Tiles& tiles, const float* images, int64_t channels, int64_t before, const float* zeros,
                  int64_t first, int64_t count, int64_t step, int64_t row, float* to) {
  for (int64_t t = 0; t < count; ++t) {
    const Tile tile(tiles, first + t);
    const float* pixels[kSize][kSize];
    for (int64_t i = 0; i < kSize; ++i)
      for (int64_t j = 0; j < kSize; ++j) {
        const int64_t y = tile.top - before + i, x = tile.left - before + j;
        const bool inside = y >= 0 && y < tiles.height && x >= 0 && x < tiles.width;
        pixels[i][j] = inside ? images + ((tile.image * tiles.height + y) * tiles.width + x) * channels : zeros;
      }
    for (int64_t c = 0; c < channels; c += kLanes) {
      Lanes in[kSize][kSize], out[kPatch][kPatch];
      for (int i = 0; i < kSize; ++i)
        for (int j = 0; j < kSize; ++j) in[i][j] = load_vector(pixels[i][j] + c);
      transform_both<kSize, kPatch, transform>(in, out);
      float* place = to + t * row + c;
      for (int i = 0; i < kPatch; ++i)
        for (int j = 0; j < kPatch; ++j, place += step) store_vector(place, out[i][j]);
    }
  }
}

/// y and its epilogue, from the sums at the points of tiles [first, first + count).
void write_tiles(const Tiles& tiles, int64_t channels, const float* bias, const ConvolutionEpilogue& epilogue,
                 int64_t first, int64_t count, int64_t step, int64_t row, const float* sums, const View& y) {
  for (int64_t t = 0; t < count; ++t) {
    const Tile tile(tiles, first + t);
    const int64_t rows = std::min(kSide, tiles.height - tile.top), columns = std::min(kSide, tiles.width - tile.left);
    const int64_t at = ((tile.image * tiles.height + tile.top) * tiles.width + tile.left) * channels;
    for (int64_t c = 0; c < channels; c += kLanes) {
      Lanes in[kPatch][kPatch], out[kSide][kSide];
      const float* place = sums + t * row + c;
      for (int i = 0; i < kPatch; ++i)
        for (int j = 0; j < kPatch; ++j, place += step) in[i][j] = load_vector(place);
      transform_both<kPatch, kSide, transform_sums>(in, out);
      const Lanes shift = load_vector(bias + c);
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j)
          store_vector(y.as<float>() + at + (i * tiles.width + j) * channels + c, out[i][j] + shift);
    }
    for (int64_t i = 0; i < rows; ++i) apply_epilogue(epilogue, y, at + i * tiles.width * channels, columns * channels);
  }
}

/// sums[r] = the products of rows [0, kCount) and a panel, over `depth` channels.
template <int kCount>
[[gnu::noinline]] void multiply(const float* rows, int64_t row, const float* panel, int64_t depth, float* sums,
                                int64_t sums_row) {
  RegisterTile<kCount, 2> tile;
  tile.multiply(depth, LeftRows<float>{rows, row}, panel, kPanel);
  tile.store([&](int r) { return sums + r * sums_row; });
}
/// The transformed weight: [points][panels of the result's channels][channels of the source][kPanel].
int64_t weight_step(int64_t from, int64_t to) { return padded(to) * from + 16; }
int64_t weight_bytes(int64_t from, int64_t to) { return align_up(kPoints * weight_step(from, to) * 4); }
/// transposed: for the input's gradient, from the channels of the output to those of the input.
void transform_weights(const float* weight, int64_t from, int64_t to, bool transposed, float* packed) {
  const int64_t step = weight_step(from, to);
  parallel_for(padded(to) / kPanel * from, 64, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const int64_t first = index / from * kPanel, c = index % from;
      alignas(64) float values[9][kPanel] = {};
      for (int64_t k = 0; k < std::min(kPanel, to - first); ++k) {
        const float* const kernel = weight + (transposed ? c * to + first + k : (first + k) * from + c) * 9;
        for (int64_t q = 0; q < 9; ++q) values[q][k] = kernel[transposed ? 8 - q : q];
      }
      for (int64_t half = 0; half < kPanel; half += kLanes) {
        Lanes in[3][3], out[kPatch][kPatch];
        for (int i = 0; i < 3; ++i)
          for (int j = 0; j < 3; ++j) in[i][j] = load_vector(values[i * 3 + j] + half);
        transform_both<3, kPatch, transform_weight>(in, out);
        float* place = packed + index * kPanel + half;
        for (int i = 0; i < kPatch; ++i)
          for (int j = 0; j < kPatch; ++j, place += step) store_vector(place, out[i][j]);
      }
    }
  });
}

/// Whether the transformed weight, of so many products of channels, is larger than a core's cache.
bool is_large(int64_t products) { return products >= int64_t{1} << 15; }

/// Tiles whose points and sums are in cache together; more where the transformed weight is larger than they are, since
/// each block reads it once.
int64_t tiles_of_block(const Tiles& tiles, int64_t from, int64_t to, int64_t threads) {
  const int64_t of_tile = kPoints * 4 * (from + padded(to)), least = is_large(from * to) ? 120 : 48;
  const int64_t wanted = std::max((int64_t{1} << 20) / of_tile, least), share = (tiles.count + threads - 1) / threads;
  return (std::min(wanted, share) + kRows - 1) / kRows * kRows;
}

/// Convolution of images of `from` channels with the transformed weight: forward, or the input's gradient.
class Correlation {
 public:
  Correlation(const ConvolutionShape& s, int64_t from, int64_t to)
      : tiles_(s),
        from_(from),
        to_(to),
        threads_(num_threads()),
        block_(tiles_of_block(tiles_, from, to, threads_)),
        from_step_(point_step(block_, from)),
        to_step_(point_step(block_, padded(to))) {}

  int64_t bytes() const { return 64 + align_up(from_ * 4) + threads_ * slot_bytes(); }

  void run(const float* images, const float* packed, const float* bias, const ConvolutionEpilogue& epilogue,
           const View& y, void* workspace) const {
    auto* const zeros = reinterpret_cast<float*>(align_up(workspace));
    std::fill_n(zeros, from_, 0.0f);
    char* const slots = reinterpret_cast<char*>(zeros) + align_up(from_ * 4);
    const int64_t blocks = (tiles_.count + block_ - 1) / block_;
    std::atomic<int64_t> next = 0;
    parallel_for(std::min(blocks, threads_), 1, [&](int64_t slot, int64_t) {
      auto* const points = reinterpret_cast<float*>(slots + slot * slot_bytes());
      float* const sums = points + kPoints * from_step_;
      for (int64_t b = next++; b < blocks; b = next++) {
        const int64_t first = b * block_, count = std::min(block_, tiles_.count - first);
        write_points<6, transform_patch>(tiles_, images, from_, 1, zeros, first, count, from_step_, from_, points);
        multiply_all(points, packed, count, sums);
        write_tiles(tiles_, to_, bias, epilogue, first, count, to_step_, padded(to_), sums, y);
      }
    });
  }

 private:
  int64_t slot_bytes() const { return align_up(kPoints * (from_step_ + to_step_) * 4); }
  void multiply_all(const float* points, const float* packed, int64_t count, float* sums) const {
    for (int64_t p = 0; p < kPoints; ++p)
      for (int64_t k = 0; k < padded(to_); k += kPanel) {
        const float* const panel = packed + p * weight_step(from_, to_) + k * from_;
        for_rows(count, [&]<int kCount>(int64_t t) {
          multiply<kCount>(points + p * from_step_ + t * from_, from_, panel, from_,
                           sums + p * to_step_ + t * padded(to_) + k, padded(to_));
        });
      }
  }

  const Tiles tiles_;
  const int64_t from_, to_, threads_, block_, from_step_, to_step_;
};

/// The gradient of a weight, from its sums at the points: [points][channels of the input][channels of the output]. The
/// latter are padded by numbers that nothing reads.
class WeightGradient {
 public:
  explicit WeightGradient(const ConvolutionShape& s)
      : tiles_(s),
        from_(s.in_channels),
        to_(s.out_channels),
        block_(tiles_of_block(tiles_, from_, to_, 1) * 2),
        from_step_(point_step(block_, from_)),
        to_step_(point_step(block_, padded(to_))),
        sums_step_(point_step(from_, padded(to_))) {}

  int64_t bytes() const {
    return 64 + align_up(std::max(from_, to_) * 4) + kPoints * (from_step_ + to_step_ + sums_step_) * 4;
  }

  void run(const float* dy, const float* x, float* dweight, void* workspace) const {
    auto* const zeros = reinterpret_cast<float*>(align_up(workspace));
    std::fill_n(zeros, std::max(from_, to_), 0.0f);
    float* const points = zeros + align_up(std::max(from_, to_) * 4) / 4;
    float* const gradients = points + kPoints * from_step_;
    float* const sums = gradients + kPoints * to_step_;
    for (int64_t first = 0; first < tiles_.count; first += block_) {
      const int64_t count = std::min(block_, tiles_.count - first);
      parallel_for(count, kRows, [&](int64_t begin, int64_t end) {
        write_points<6, transform_patch>(tiles_, x, from_, 1, zeros, first + begin, end - begin, from_step_, from_,
                                         points + begin * from_);
        write_points<4, transform_gradient>(tiles_, dy, to_, 0, zeros, first + begin, end - begin, to_step_,
                                            padded(to_), gradients + begin * padded(to_));
      });
      add_block(points, gradients, count, first > 0, sums);
    }
    write(sums, dweight);
  }

 private:
  static constexpr int64_t kChannels = 8 * kRows;  // of a task

  void add_block(const float* points, const float* gradients, int64_t count, bool add, float* sums) const {
    const int64_t parts = (from_ + kChannels - 1) / kChannels, row = padded(to_);
    parallel_for(kPoints * parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t p = task / parts, first = task % parts * kChannels;
        for (int64_t k = 0; k < row; k += kPanel)
          for_rows(std::min(kChannels, from_ - first), [&]<int kCount>(int64_t c) {
            multiply_columns<kCount>(points + p * from_step_ + first + c, from_, gradients + p * to_step_ + k, row,
                                     count, add, sums + p * sums_step_ + (first + c) * row + k, row);
          });
      }
    });
  }
  void write(const float* sums, float* dweight) const {
    parallel_for(padded(to_) / kPanel, 1, [&](int64_t begin, int64_t end) {
      for (int64_t panel = begin * kPanel; panel < end * kPanel; panel += kPanel)
        for (int64_t c = 0; c < from_; ++c)  // the lines of memory that kPanel kernels share stay in cache
          for (int64_t k = panel; k < std::min(panel + kPanel, to_); k += kLanes) {
            Lanes in[kPatch][kPatch], out[3][3];
            const float* place = sums + c * padded(to_) + k;
            for (int i = 0; i < kPatch; ++i)
              for (int j = 0; j < kPatch; ++j, place += sums_step_) in[i][j] = load_vector(place);
            transform_both<kPatch, 3, transform_weight_gradient>(in, out);
            for (int64_t l = 0; l < kLanes; ++l)
              for (int q = 0; q < 9; ++q) dweight[((k + l) * from_ + c) * 9 + q] = out[q / 3][q % 3][l];
          }
    });
  }

  const Tiles tiles_;
  const int64_t from_, to_, block_, from_step_, to_step_, sums_step_;
};

/// What a pass takes, in multiplications of a direct sum: each of those, and the weight's transform or reading it for a
/// product of two channels, in cache and not. Measured on an EPYC with AVX2 and oneDNN 2.6; ratios are what counts.
struct Costs {
  double direct, weight, large_weight;
};
constexpr Costs kForward = {1, 300, 2000}, kFixedForward = {1, 20, 300}, kInputGradient = {0.75, 300, 2000},
                kWeightGradient = {1.2, 600, 2300};

/// Whether the algorithm takes less time than a direct sum.
bool is_worth(const ConvolutionShape& s, const Costs& costs) {
  const auto number = [](int64_t n) { return static_cast<double>(n); };
  const double pixels = number(s.batch * s.out_pixels()), tiles = number(Tiles(s).count);
  const double products = number(s.in_channels * s.out_channels), channels = number(s.in_channels + s.out_channels);
  const double weight = is_large(s.in_channels * s.out_channels) ? costs.large_weight : costs.weight;
  return 1.2 * (1.1 * tiles * kPoints * products + 600 * tiles * channels + weight * products) <
         costs.direct * 9 * pixels * products;
}

/// Forward or the input's gradient.
ConvolutionPlan image_plan(const ConvolutionShape& s, bool transposed) {
  const int64_t from = transposed ? s.out_channels : s.in_channels, to = transposed ? s.in_channels : s.out_channels;
  const Correlation sums(s, from, to);
  const auto run = [=](ConstView images, ConstView, const ConvolutionEpilogue& epilogue, View result, char* memory) {
    prepare_products();
    const float* const bias = wide_bias(epilogue.bias, to, reinterpret_cast<float*>(memory));
    sums.run(images.as<float>(), static_cast<const float*>(epilogue.packed_weight), bias, epilogue, result,
             memory + align_up(to * 4));
  };
  return {.run = run,
          .memory_bytes = align_up(to * 4) + sums.bytes(),
          .packed_bytes = weight_bytes(from, to),
          .pack = [=](ConstView weight, char* packed) {
            transform_weights(weight.as<float>(), from, to, transposed, reinterpret_cast<float*>(packed));
          }};
}

ConvolutionPlan make(const ConvolutionCase& c) {
  if (!c.is(ConvolutionPass::kBackwardWeight)) return image_plan(c.shape, c.is(ConvolutionPass::kBackwardInput));
  const WeightGradient gradient(c.shape);
  const auto run = [gradient](ConstView dy, ConstView x, const ConvolutionEpilogue&, View dweight, char* memory) {
    prepare_products();
    gradient.run(dy.as<float>(), x.as<float>(), dweight.as<float>(), memory);
  };
  return {.run = run, .memory_bytes = gradient.bytes()};
}

bool can(const ConvolutionCase& c) {
  return c.is_same_3x3() && c.shape.in_channels % kChannelStep == 0 && c.shape.out_channels % kChannelStep == 0;
}

bool pays(const ConvolutionCase& c) {
  return kOwnIsFaster && is_worth(c.shape, c.is(ConvolutionPass::kBackwardInput)    ? kInputGradient
                                           : c.is(ConvolutionPass::kBackwardWeight) ? kWeightGradient
                                           : c.fixed_weight                         ? kFixedForward
                                                                                    : kForward);
}

}  // namespace

const ConvolutionMethod kWinograd = {"winograd", can, pays, make};

}  // namespace tern::kernels::TERN_CPU

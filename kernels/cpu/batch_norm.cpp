// Batch normalisation: blocks of rows, which stay in a core's cache between the two passes of the statistics.

#include "tern/kernels/batch_norm.h"

#include <algorithm>
#include <cmath>

#include "tern/kernels/convert.h"
#include "tern/kernels/cpu/gemm/blocks.h"
#include "tern/kernels/cpu/rows.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

constexpr int64_t kBlockElements = 16384;
constexpr int64_t kMaxBlocks = 64;  // whatever the number of threads
constexpr int64_t kRunRows = 64;    // of one sum

int64_t rows_of_block(int64_t rows, int64_t channels) {
  const int64_t least = std::max<int64_t>(1, kBlockElements / std::max<int64_t>(channels, 1));
  return std::max(least, (rows + kMaxBlocks - 1) / kMaxBlocks);
}
int64_t block_count(int64_t rows, int64_t channels) {
  const int64_t of_block = rows_of_block(rows, channels);
  return (rows + of_block - 1) / of_block;
}

/// Adds terms of rows [begin, end) to the sums of their columns, in runs of rows so that many small terms are not added
/// to a large sum one by one: add(at, column, n, run) adds those of n columns of a row, from element `at`, to `run`.
template <class F, class Add>
void add_columns(int64_t begin, int64_t end, int64_t channels, F* sums, const Add& add) {
  for (int64_t first = begin; first < end; first += kRunRows)
    for (int64_t c = 0; c < channels; c += kTile) {
      const int64_t n = std::min(kTile, channels - c), behind = std::min(first + kRunRows, end);
      alignas(64) F run[kTile] = {};
      for (int64_t r = first; r < behind; ++r) add(r * channels + c, c, n, run);
      add_to(sums + c, run, n);
    }
}

/// body(at, column, n) for tiles of rows [begin, end): n <= kTile columns of one row, from element `at`.
template <class Body>
void for_tiles(int64_t begin, int64_t end, int64_t channels, const Body& body) {
  for (int64_t r = begin; r < end; ++r)
    for (int64_t c = 0; c < channels; c += kTile) body(r * channels + c, c, std::min(kTile, channels - c));
}

/// How many rows are taken as one, so that one of few channels fills vectors; a power of two.
int64_t folds_of(int64_t rows, int64_t channels) {
  int64_t folds = 1;
  while (rows % (2 * folds) == 0 && 2 * folds * channels <= kTile) folds *= 2;
  return folds;
}

/// The matrix with rows of that length.
struct Folded {
  int64_t folds, rows, channels;
  Folded(int64_t all_rows, int64_t all_channels)
      : folds(folds_of(all_rows, all_channels)), rows(all_rows / folds), channels(all_channels * folds) {}
};

/// Numbers of channels where a tile of a folded row takes them: as they are, or repeated for each of its rows, which
/// fit in one tile; zeros for an absent view.
template <class F>
class Repeated {
 public:
  Repeated(const ConstView& numbers, const Folded& m) : given_(numbers && m.folds == 1 ? numbers.as<F>() : nullptr) {
    for (int64_t c = 0; numbers && !given_ && c < m.channels; ++c)
      tile_[c] = numbers.as<F>()[c % (m.channels / m.folds)];
  }
  /// Those of the tile that begins at column c.
  const F* at(int64_t c) const { return given_ ? given_ + c : tile_; }

 private:
  const F* given_;
  alignas(64) F tile_[kTile] = {};
};

/// The activation of a tile in place, and the gradient before it. Apart from the loops over rows, which would otherwise
/// be compiled once for each activation.
template <class F>
[[gnu::noinline]] void activate_tile(ImageActivation activation, F* z, int64_t n) {
  with_image_activation(activation, [&](const auto& act) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) z[i] = act.forward(z[i]);
  });
}
template <class F>
[[gnu::noinline]] void backward_tile(ImageActivation activation, const F* z, const F* dy, F* dz, int64_t n) {
  with_image_activation(activation, [&](const auto& act) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) dz[i] = act.backward(z[i], dy[i]);
  });
}

/// z = (x - mean) * scale + shift + residual; residual may be null.
template <class T, class F>
void widened_map(const T* x, const T* residual, const F* mean, const F* scale, const F* shift, F* z, int64_t n) {
  alignas(64) F buffer[kTile];
  const F* const values = widen(x, buffer, n);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) z[i] = (values[i] - mean[i]) * scale[i] + shift[i];
  if (residual) add_to(z, widen(residual, buffer, n), n);
}

/// run.operator()<T>(act), with act ReLU or nothing: what the loops over rows compute themselves.
template <class Run>
void dispatch_relu(DType dtype, ImageActivation activation, const Run& run) {
  dispatch_float(dtype, [&]<class T>() {
    if (activation == ImageActivation::kRelu)
      run.template operator()<T>(PointwiseActivation<Relu>{});
    else
      run.template operator()<T>(IdentityActivation{});
  });
}

/// Adds the statistics of `count` more values to those of `before`: the mean and the sum of squared differences from it
/// (Chan et al., "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979).
template <class F>
void join(F before, F count, int64_t n, const F* means, const F* squares, F* mean, F* sum) {
  const F share = count / (before + count), weight = before * share;
#pragma GCC ivdep
  for (int64_t c = 0; c < n; ++c) {
    const F difference = means[c] - mean[c];
    mean[c] += difference * share;
    sum[c] += squares[c] + difference * difference * weight;
  }
}

/// run.operator()<F>() with the type of the channels' numbers.
template <class Run>
void dispatch_numbers(DType dtype, const Run& run) {
  dtype == DType::kFloat64 ? run.template operator()<double>() : run.template operator()<float>();
}
template <class F>
F values_of(const BatchNormCount& count) {
  return count.count ? *count.count.as<F>() : static_cast<F>(count.rows);
}
/// running += momentum * (now(c) - running), in the precision of the running numbers.
template <class Now>
void follow(const View& running, double momentum, const Now& now) {
  if (!running) return;
  dispatch_float(running.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    for (int64_t c = 0; c < running.shape[0]; ++c) {
      T& number = running.as<T>()[c * running.strides[0]];
      const F old = convert<T, F>(number);
      number = convert<F, T>(old + static_cast<F>(momentum) * (static_cast<F>(now(c)) - old));
    }
  });
}

}  // namespace

int64_t batch_norm_workspace(Stream, int64_t rows, int64_t channels, DType) {
  const Folded m(rows, channels);
  return 64 + (3 * block_count(m.rows, m.channels) + 1) * m.channels * static_cast<int64_t>(sizeof(double));
}

void batch_norm_statistics(Stream, ConstView x, View mean, View squares, void* workspace) {
  const int64_t channels = x.shape[1];
  const Folded m(x.shape[0], channels);
  const int64_t of_block = rows_of_block(m.rows, m.channels), blocks = block_count(m.rows, m.channels);
  dispatch_float(x.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    // Means are differences from the first row: they are not larger than the spread, and lose no digits in it.
    F* const pivot = reinterpret_cast<F*>(align_up(workspace));
    F *const means = pivot + m.channels, *const parts = means + blocks * m.channels;
    F* const centers = parts + blocks * m.channels;
    alignas(64) F first_row[kTile];
    for_tiles(0, 1, m.channels, [&](int64_t at, int64_t c, int64_t n) {
      std::copy_n(widen(x.as<T>() + at, first_row, n), n, pivot + c);
    });
    parallel_for(m.rows, of_block, [&](int64_t begin, int64_t end) {
      F* const offset = means + begin / of_block * m.channels;
      F* const part = parts + begin / of_block * m.channels;
      F* const center = centers + begin / of_block * m.channels;
      alignas(64) F buffer[kTile];
      std::fill_n(offset, m.channels, F(0));
      add_columns(begin, end, m.channels, offset, [&](int64_t at, int64_t c, int64_t n, F* run) {
        const F* values = widen(x.as<T>() + at, buffer, n);
#pragma GCC ivdep
        for (int64_t i = 0; i < n; ++i) run[i] += values[i] - pivot[c + i];
      });
      const F count = static_cast<F>(end - begin);
      for (int64_t c = 0; c < m.channels; ++c) {
        offset[c] /= count;
        center[c] = pivot[c] + offset[c];
      }
      std::fill_n(part, m.channels, F(0));
      add_columns(begin, end, m.channels, part, [&](int64_t at, int64_t c, int64_t n, F* run) {
        const F* values = widen(x.as<T>() + at, buffer, n);
#pragma GCC ivdep
        for (int64_t i = 0; i < n; ++i) run[i] += (values[i] - center[c + i]) * (values[i] - center[c + i]);
      });
      for (int64_t c = 0; c < m.channels; ++c) {
        const F rounding = (center[c] - pivot[c]) - offset[c];  // of the center, beside the mean
        part[c] = std::max(part[c] - count * rounding * rounding, F(0));
      }
    });
    // Blocks are joined in order into the first, then the rows of a folded row.
    for (int64_t b = 1; b < blocks; ++b)
      join(static_cast<F>(b * of_block), static_cast<F>(std::min(of_block, m.rows - b * of_block)), m.channels,
           means + b * m.channels, parts + b * m.channels, means, parts);
    F *const total = mean.as<F>(), *const deviations = squares.as<F>();
    std::copy_n(means, channels, total);
    std::copy_n(parts, channels, deviations);
    for (int64_t f = 1; f < m.folds; ++f) {
      F* const of_fold = means + f * channels;
      for (int64_t c = 0; c < channels; ++c) of_fold[c] += pivot[f * channels + c] - pivot[c];
      join(static_cast<F>(f * m.rows), static_cast<F>(m.rows), channels, of_fold, parts + f * channels, total,
           deviations);
    }
    for (int64_t c = 0; c < channels; ++c) total[c] += pivot[c];
  });
}

void batch_norm_numbers(Stream, ConstView mean, ConstView squares, const BatchNormCount& count, ConstView weight,
                        double eps, View rstd, View scale, const BatchNormRunning& running) {
  dispatch_numbers(mean.dtype, [&]<class F>() {
    const F *const means = mean.as<F>(), *const sums = squares.as<F>(), n = values_of<F>(count);
    F* const factors = rstd.as<F>();
    for (int64_t c = 0; c < mean.shape[0]; ++c) factors[c] = F(1) / std::sqrt(sums[c] / n + static_cast<F>(eps));
    if (scale)
      dispatch_float(weight.dtype, [&]<class T>() {
        for (int64_t c = 0; c < mean.shape[0]; ++c)
          scale.as<F>()[c] = factors[c] * convert<T, F>(weight.as<T>()[c * weight.strides[0]]);
      });
    follow(running.mean, running.momentum, [&](int64_t c) { return means[c]; });
    follow(running.variance, running.momentum, [&](int64_t c) { return sums[c] / (n - 1); });
  });
}

void batch_norm_apply(Stream, ConstView x, const BatchNormMap& map, ConstView residual, View y) {
  if (x.numel() == 0) return;
  const Folded m(x.shape[0], x.shape[1]);
  const bool simple = map.activation == ImageActivation::kNone || map.activation == ImageActivation::kRelu;
  dispatch_relu(x.dtype, map.activation, [&]<class T>(const auto& act) {
    using F = ComputeType<T>;
    const Repeated<F> means(map.mean, m), scales(map.scale, m), shifts(map.shift, m);
    parallel_for(m.rows, rows_of_block(m.rows, m.channels), [&](int64_t begin, int64_t end) {
      alignas(64) F z[kTile];
      for_tiles(begin, end, m.channels, [&](int64_t at, int64_t c, int64_t n) {
        T* const to = y.as<T>() + at;
        const T* const from = x.as<T>() + at;
        const F *center = means.at(c), *scale = scales.at(c), *shift = shifts.at(c);
        const auto map_to = [&](T* result) {
          if (residual)
            map_row<F>(
                result, n, [&](F v, F e, F a, F b, F r) { return act.forward((v - e) * a + b + r); }, from, center,
                scale, shift, residual.as<T>() + at);
          else
            map_row<F>(
                result, n, [&](F v, F e, F a, F b) { return act.forward((v - e) * a + b); }, from, center, scale,
                shift);
        };
        if (simple) return map_to(to);
        widened_map(from, residual ? residual.as<T>() + at : nullptr, center, scale, shift, z, n);
        activate_tile(map.activation, z, n);
        narrow(z, to, n);
      });
    });
  });
}

void batch_norm_backward_sums(Stream, ConstView dy, ConstView y, ConstView x, const BatchNormMap& map, View sums,
                              View g, void* workspace) {
  const int64_t channels = x.shape[1];
  const Folded m(x.shape[0], channels);
  const int64_t of_block = rows_of_block(m.rows, m.channels), blocks = block_count(m.rows, m.channels);
  const bool plain = map.activation == ImageActivation::kNone;
  dispatch_float(x.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    F* const parts = reinterpret_cast<F*>(align_up(workspace));
    const Repeated<F> means(map.mean, m), scales(map.scale, m), shifts(map.shift, m);
    parallel_for(m.rows, of_block, [&](int64_t begin, int64_t end) {
      F* const first = parts + 2 * (begin / of_block) * m.channels;
      F* const second = first + m.channels;
      std::fill_n(first, 2 * m.channels, F(0));
      alignas(64) F buffer[kTile], outputs[kTile], inputs[kTile], gradients[kTile];
      for (int64_t top = begin; top < end; top += kRunRows) {
        const int64_t bottom = std::min(top + kRunRows, end);
        for (int64_t c = 0; c < m.channels; c += kTile) {
          const int64_t n = std::min(kTile, m.channels - c);
          const F *center = means.at(c), *scale = scales.at(c), *shift = shifts.at(c);
          alignas(64) F sum[kTile] = {}, product[kTile] = {};
          for (int64_t at = top * m.channels + c; at < bottom * m.channels; at += m.channels) {
            const F* values = widen(x.as<T>() + at, inputs, n);
            const F* given = widen(dy.as<T>() + at, buffer, n);
            if (!plain) {
              const F* z = y ? widen(y.as<T>() + at, outputs, n) : outputs;
              if (!y) widened_map(values, static_cast<const F*>(nullptr), center, scale, shift, outputs, n);
              backward_tile(map.activation, z, given, gradients, n);
              given = gradients;
            }
            if (g) narrow(given, g.as<T>() + at, n);
#pragma GCC ivdep
            for (int64_t i = 0; i < n; ++i) {
              sum[i] += given[i];
              product[i] += given[i] * (values[i] - center[i]);
            }
          }
          add_to(first + c, sum, n);
          add_to(second + c, product, n);
        }
      }
    });
    for (int64_t b = 1; b < blocks; ++b) add_to(parts, parts + 2 * b * m.channels, 2 * m.channels);
    F* const total = sums.as<F>();
    std::fill_n(total, 2 * channels, F(0));
    for (int64_t f = 0; f < m.folds; ++f) {
      add_to(total, parts + f * channels, channels);
      add_to(total + channels, parts + m.channels + f * channels, channels);
    }
  });
}

void batch_norm_gradients(Stream, ConstView sums, ConstView total, const BatchNormCount& count, ConstView rstd,
                          ConstView scale, const BatchNormGradients& results) {
  const int64_t channels = sums.shape[1];
  dispatch_numbers(sums.dtype, [&]<class F>() {
    const F *const own = sums.as<F>(), *const all = total.as<F>(), *const factors = rstd.as<F>(),
                   n = values_of<F>(count);
    const auto write = [&](const View& gradient, const auto& value) {
      if (!gradient) return;
      dispatch_float(gradient.dtype, [&]<class T>() {
        for (int64_t c = 0; c < channels; ++c) gradient.as<T>()[c] = convert<F, T>(value(c));
      });
    };
    write(results.weight, [&](int64_t c) { return own[channels + c] * factors[c]; });
    write(results.bias, [&](int64_t c) { return own[c]; });
    write(results.offset, [&](int64_t c) { return -scale.as<F>()[c] * (all[c] / n); });
    write(results.slope,
          [&](int64_t c) { return -scale.as<F>()[c] * (factors[c] * factors[c]) * (all[channels + c] / n); });
  });
}

void batch_norm_backward_apply(Stream, ConstView dy, ConstView x, const BatchNormMap& map, ConstView offset,
                               ConstView slope, View dx) {
  if (dx.numel() == 0) return;
  const Folded m(dx.shape[0], dx.shape[1]);
  const bool plain = map.activation == ImageActivation::kNone,
             simple = plain || map.activation == ImageActivation::kRelu;
  dispatch_relu(dx.dtype, map.activation, [&]<class T>(const auto& act) {
    using F = ComputeType<T>;
    const Repeated<F> means(map.mean, m), scales(map.scale, m), shifts(map.shift, m), offsets(offset, m),
        slopes(slope, m);
    parallel_for(m.rows, rows_of_block(m.rows, m.channels), [&](int64_t begin, int64_t end) {
      alignas(64) F buffer[kTile], z[kTile], g[kTile];
      for_tiles(begin, end, m.channels, [&](int64_t at, int64_t c, int64_t n) {
        T* const to = dx.as<T>() + at;
        const T* const given = dy.as<T>() + at;
        const F *center = means.at(c), *scale = scales.at(c), *shift = shifts.at(c);
        if (plain && !slope)
          return map_row<F>(
              to, n, [](F d, F a) { return d * a; }, given, scale);
        const auto map_from = [&](const auto* gradient) {
          map_row<F>(
              to, n,
              [&](F d, F v, F e, F a, F b, F o, F s) {
                const F centered = v - e;
                return a * act.backward(centered * a + b, d) + o + s * centered;
              },
              gradient, x.as<T>() + at, center, scale, shift, offsets.at(c), slopes.at(c));
        };
        if (simple) return map_from(given);
        widened_map(x.as<T>() + at, static_cast<const T*>(nullptr), center, scale, shift, z, n);
        backward_tile(map.activation, z, widen(given, buffer, n), g, n);
        map_from(static_cast<const F*>(g));
      });
    });
  });
}

}  // namespace tern::kernels::TERN_CPU

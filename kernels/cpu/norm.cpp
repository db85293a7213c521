#include "tern/kernels/norm.h"

#include "tern/kernels/cpu/norm_rows.h"
#include "tern/kernels/cpu/short_rows.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

/// Rows per block: about 64 KiB.
int64_t row_grain(int64_t cols) { return std::max<int64_t>(1, 16384 / std::max<int64_t>(cols, 1)); }

/// Rows of so few elements are normalised in blocks: one element for each lane of LaneSum, so that the bits are those
/// of the functions for one row, which row chains call.
template <class T>
constexpr int64_t kShortNorm = std::min<int64_t>(kShortRow, LaneSum<ComputeType<T>>::kLanes);

/// The norm of n <= kBlockRows short rows; without `mean` RMS norm.
template <class T, class F>
void normalize_short_rows(const T* z, int64_t n, int64_t cols, double eps, const Affine<T>& gamma,
                          const Affine<T>& beta, T* y, F* mean, F* rstd) {
  constexpr int64_t kRows = kBlockRows<F>;
  ShortRows<T> rows(z, n, cols);
  BlockSums<F> sums;
  alignas(64) F centers[kRows] = {}, factors[kRows], values[kRows];
  if (mean) {
    for (int64_t c = 0; c < cols; ++c) sums.add(c, rows.column(c));
    const F* const totals = sums.totals(cols);
    for (int64_t r = 0; r < kRows; ++r) centers[r] = totals[r] / static_cast<F>(cols);
    std::copy_n(centers, n, mean);
  }
  for (int64_t c = 0; c < cols; ++c) {
    const F* const x = rows.column(c);
    for (int64_t r = 0; r < kRows; ++r) values[r] = (x[r] - centers[r]) * (x[r] - centers[r]);
    sums.add(c, values);
  }
  const F* const totals = sums.totals(cols);
  for (int64_t r = 0; r < kRows; ++r)
    factors[r] = F(1) / std::sqrt(totals[r] / static_cast<F>(cols) + static_cast<F>(eps));
  std::copy_n(factors, n, rstd);

  F gamma_buffer[kShortRow], beta_buffer[kShortRow];
  const F* const scale = gamma ? gamma.tile(0, gamma_buffer, cols) : nullptr;
  const F* const shift = beta ? beta.tile(0, beta_buffer, cols) : nullptr;
  for (int64_t c = 0; c < cols; ++c) {
    F* const x = rows.column(c);
    if (scale && shift)
      for (int64_t r = 0; r < kRows; ++r) x[r] = (x[r] - centers[r]) * factors[r] * scale[c] + shift[c];
    else if (shift)
      for (int64_t r = 0; r < kRows; ++r) x[r] = (x[r] - centers[r]) * factors[r] + shift[c];
    else
      for (int64_t r = 0; r < kRows; ++r) x[r] = (x[r] - centers[r]) * factors[r];
    if (scale && !shift)
      for (int64_t r = 0; r < kRows; ++r) x[r] *= scale[c];
  }
  rows.store(y);
}

// ---- backward ----------------------------------------------------------------------------------------------------

/// Rows per partial sum of dgamma and dbeta: at most 64 blocks, for any number of threads.
int64_t backward_rows(int64_t rows) { return std::max<int64_t>(16, (rows + 63) / 64); }
int64_t backward_blocks(int64_t rows) { return (rows + backward_rows(rows) - 1) / backward_rows(rows); }

template <class T>
struct Backward {
  using F = ComputeType<T>;
  int64_t cols;
  const T *dy, *dsum, *z;  // dsum may be null
  Affine<T> gamma;
  const F *mean, *rstd;  // mean is null for RMS norm
  DropoutFactors dropout;
  T *dz, *dx;

  /// Processes one row and adds to the partial sums, either of which may be null.
  void row(int64_t r, F* dgamma, F* dbeta) const {
    const T *dy_row = dy + r * cols, *z_row = z + r * cols;
    const F center = mean ? mean[r] : F(0), scale = rstd[r];
    F dy_buffer[kTile], z_buffer[kTile], gamma_buffer[kTile];
    LaneSum<F> sum, product;
    for (int64_t j = 0; j < cols; j += kTile) {
      const int64_t n = std::min(kTile, cols - j);
      const F* d = widen(dy_row + j, dy_buffer, n);
      const F* v = widen(z_row + j, z_buffer, n);
      if (gamma) {
        const F* w = gamma.tile(j, gamma_buffer, n);
        sum.add(
            n, [](auto a, auto b) { return a * b; }, d, w);
        product.add(
            n, [=](auto a, auto b, auto c) { return a * b * ((c - center) * scale); }, d, w, v);
      } else {
        sum.add(
            n, [](auto a) { return a; }, d);
        product.add(
            n, [=](auto a, auto c) { return a * ((c - center) * scale); }, d, v);
      }
      if (dgamma) {
        F* out = dgamma + j;
#pragma GCC ivdep
        for (int64_t i = 0; i < n; ++i) out[i] += d[i] * ((v[i] - center) * scale);
      }
      if (dbeta) add_to(dbeta + j, d, n);
    }
    const F count = static_cast<F>(cols);
    write_row(r, center, scale, mean ? sum.total() / count : F(0), product.total() / count);
  }

  void write_row(int64_t r, F center, F scale, F mean_gradient, F mean_product) const {
    const T *dy_row = dy + r * cols, *z_row = z + r * cols;
    F gamma_buffer[kTile], factors[kTile];
    for (int64_t j = 0; j < cols; j += kTile) {
      const int64_t n = std::min(kTile, cols - j);
      const T *d = dy_row + j, *v = z_row + j;
      T* out = dz + r * cols + j;
      const F* w = gamma ? gamma.tile(j, gamma_buffer, n) : nullptr;
      const auto gradient = [=](F direct, F value) {
        return scale * (direct - mean_gradient - (value - center) * scale * mean_product);
      };
      const auto weighted = [=](F a, F value, F weight) { return gradient(a * weight, value); };
      const T* const other = dsum ? dsum + r * cols + j : nullptr;
      if (w && other)
        map_row<F>(
            out, n, [=](F a, F value, F weight, F sum) { return weighted(a, value, weight) + sum; }, d, v, w, other);
      else if (w)
        map_row<F>(out, n, weighted, d, v, w);
      else if (other)
        map_row<F>(
            out, n, [=](F a, F value, F sum) { return gradient(a, value) + sum; }, d, v, other);
      else
        map_row<F>(out, n, gradient, d, v);
      if (!dx) continue;
      T* through = dx + r * cols + j;
      if (dropout.active())
        dropout.fill(r, j, n, factors);
      else
        std::fill_n(factors, n, F(1));
      map_row<F>(
          through, n, [](F value, F factor) { return value * factor; }, out, factors);
    }
  }
};

}  // namespace

void layer_norm_forward(Stream, ConstView x, ConstView residual, ConstView gamma, ConstView beta, double eps,
                        Dropout dropout, ConstView row_keys, View z, View y, View mean, View rstd, void*) {
  const int64_t rows = x.rows(), cols = x.cols();
  if (cols == 0) return;
  const DropoutFactors factors(dropout, row_keys);
  dispatch_float(x.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    const Affine<T> scale(gamma), shift(beta);
    const bool sums = residual || z || factors.active();
    // The row to normalise: x's, or the sum of it and the residual, which is then computed.
    const auto input_of = [&](int64_t r) -> const T* {
      const T* const input = x.as<T>() + r * cols;
      if (!sums) return input;
      T* const kept = (z ? z.as<T>() : y.as<T>()) + r * cols;
      add_row(r, cols, input, residual ? residual.as<T>() + r * cols : nullptr, factors, kept);
      return kept;
    };
    parallel_for(rows, row_grain(cols), [&](int64_t begin, int64_t end) {
      if (cols <= kShortNorm<T>) {
        return for_row_blocks<F>(begin, end, [&](int64_t first, int64_t n) {
          const T* const input = input_of(first);
          for (int64_t r = 1; r < n; ++r) input_of(first + r);
          normalize_short_rows(input, n, cols, eps, scale, shift, y.as<T>() + first * cols,
                               mean ? mean.as<F>() + first : nullptr, rstd.as<F>() + first);
        });
      }
      for (int64_t r = begin; r < end; ++r) {
        const T* const input = input_of(r);
        const F center = mean ? row_mean(input, cols) : F(0), factor = row_rstd(input, cols, eps, center);
        if (mean) mean.as<F>()[r] = center;
        rstd.as<F>()[r] = factor;
        normalize_row(input, cols, center, factor, scale, shift, y.as<T>() + r * cols);
      }
    });
  });
}

int64_t layer_norm_backward_workspace(Stream, int64_t rows, int64_t cols, DType) {
  return 64 + backward_blocks(rows) * 2 * cols * 8;
}

void layer_norm_backward(Stream, ConstView dy, ConstView dsum, ConstView z, ConstView gamma, ConstView mean,
                         ConstView rstd, Dropout dropout, ConstView row_keys, void* workspace, void*, View dz, View dx,
                         View dgamma, View dbeta) {
  const int64_t rows = dy.rows(), cols = dy.cols();
  if (cols == 0) return;
  dispatch_float(dy.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    F* sums = static_cast<F*>(workspace);
    const Backward<T> backward{cols,
                               dy.as<T>(),
                               dsum ? dsum.as<T>() : nullptr,
                               z.as<T>(),
                               Affine<T>(gamma),
                               mean ? mean.as<F>() : nullptr,
                               rstd.as<F>(),
                               DropoutFactors(dropout, row_keys),
                               dz.as<T>(),
                               dx ? dx.as<T>() : nullptr};
    parallel_for(rows, backward_rows(rows), [&](int64_t begin, int64_t end) {
      F* block_sums = sums + begin / backward_rows(rows) * 2 * cols;
      if (dgamma || dbeta) std::fill_n(block_sums, 2 * cols, F(0));
      for (int64_t r = begin; r < end; ++r)
        backward.row(r, dgamma ? block_sums : nullptr, dbeta ? block_sums + cols : nullptr);
    });
    add_partial_sums(sums, backward_blocks(rows), cols, dgamma);
    add_partial_sums(sums + cols, backward_blocks(rows), cols, dbeta);
  });
}

void dropout(Stream, ConstView x, Dropout dropout, ConstView row_keys, View y) {
  const int64_t cols = x.cols();
  if (cols == 0) return;
  const DropoutFactors factors(dropout, row_keys);
  dispatch_float(x.dtype, [&]<class T>() {
    parallel_for(x.rows(), row_grain(cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        add_row<T>(r, cols, x.as<T>() + r * cols, nullptr, factors, y.as<T>() + r * cols);
    });
  });
}

}  // namespace tern::kernels::TERN_CPU

// Layer and RMS normalisation. A warp (up to 512 columns, 768 of 16 bits) or a block holds a row in registers, so every
// element is read once. gamma and beta are in shared memory for all rows of a block. Longer rows are read again in each
// pass.

#include "tern/kernels/norm.h"

#include <cmath>

#include "tern/kernels/cuda/support/affine.h"
#include "tern/kernels/cuda/support/column_sums.h"
#include "tern/kernels/cuda/support/row_dropout.h"
#include "tern/kernels/cuda/values.h"

namespace tern::kernels::cuda {
namespace {

template <class T>
constexpr int padded_columns(int cols) {
  constexpr int kWidth = vector_width<T>;
  return (cols + kWidth - 1) / kWidth * kWidth;
}

// ---- forward -----------------------------------------------------------------------------------------------------

template <class T>
struct Forward {
  using F = ComputeType<T>;
  const T *x, *residual;  // residual may be null
  Affine<T> gamma, beta;
  F eps;
  RowDropout dropout;
  T *z, *y;           // z may be null
  F *mean, *rstd;     // mean is null for RMS normalisation
  unsigned* tickets;  // may be null
  int64_t rows, cols;

  /// z = residual + dropout(x) for a vector of columns, rounded to T so that the statistics are those of the values
  /// that backward reads.
  template <int kWidth>
  __device__ Vector<T, kWidth> add(RowDropout::Row drawn, int64_t column, const Vector<T, kWidth>& x_values,
                                   const Vector<T, kWidth>& residual_values) const {
    Vector<F, kWidth> sum = to_compute(x_values);
    if (dropout.active) {
      const Vector<F, kWidth> factors = dropout.template factors<F, kWidth>(drawn, column);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sum.v[k] *= factors.v[k];
    }
    if (residual) {
      const Vector<F, kWidth> other = to_compute(residual_values);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sum.v[k] += other.v[k];
    }
    return from_compute<T>(sum);
  }
  /// All threads of the grid call it.
  __device__ void clear_tickets() const {
    if (tickets && blockIdx.x == 0 && threadIdx.x < kLayerNormTickets) tickets[threadIdx.x] = 0;
  }
  __device__ void write_statistics(int64_t row, F row_mean, F row_rstd) const {
    if (mean) store_one(mean + row, row_mean);
    store_one(rstd + row, row_rstd);
  }
};

/// Threads that should share a multiprocessor, which limits their registers, by the elements that each thread holds.
template <class T>
constexpr int forward_threads(int vectors) {
  const int elements = vectors * vector_width<T>;
  if (sizeof(T) == 2) return elements <= 8 ? 1024 : elements <= 16 ? 768 : elements <= 24 ? 512 : 256;
  return sizeof(T) == 4 && elements <= 16 ? (elements <= 8 ? 1024 : 512) : 256;
}

template <class F, int kWidth>
__device__ F squared_distance(const Vector<F, kWidth>& values, F center, int64_t column, int64_t cols) {
  F sum = 0;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    const F distance = column + k < cols ? values.v[k] - center : F(0);
    sum += distance * distance;
  }
  return sum;
}

template <class T, int kGroup, int kVectors>
__global__ void __launch_bounds__(RowGroup<kGroup>::kThreads, forward_threads<T>(kVectors) / RowGroup<kGroup>::kThreads)
    layer_norm_kernel(TERN_GRID_CONSTANT(Forward<T>) a) {
  using F = ComputeType<T>;
  using Group = RowGroup<kGroup>;
  constexpr int kWidth = vector_width<T>;
  TERN_DYNAMIC_SHARED(F, gamma);
  const int cols = static_cast<int>(a.cols), padded = padded_columns<T>(cols), start = Group::lane() * kWidth;
  F* const beta = gamma + padded;
  a.gamma.stage(cols, padded, F(1), gamma);
  a.beta.stage(cols, padded, F(0), beta);
  a.clear_tickets();
  block_barrier();
  for (int64_t row = Group::first_row(); row < a.rows; row += Group::row_step()) {
    Vector<T, kWidth> raw[kVectors], other[kVectors] = {};
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      raw[i] = load_columns(a.x + row * a.cols, start + i * kGroup * kWidth, cols);
      if (a.residual) other[i] = load_columns(a.residual + row * a.cols, start + i * kGroup * kWidth, cols);
    }
    const RowDropout::Row drawn = a.dropout.row(row);
    F sum = 0;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int column = start + i * kGroup * kWidth;
      if (column >= cols) continue;
      raw[i] = a.add(drawn, column, raw[i], other[i]);
      if (a.z) store_columns(a.z + row * a.cols, column, cols, raw[i]);
      const Vector<F, kWidth> z = to_compute(raw[i]);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sum += z.v[k];  // columns outside are 0
    }
    const F mean = a.mean ? Group::sum(sum) / static_cast<F>(cols) : F(0);
    F squares = 0;
#pragma unroll
    for (int i = 0; i < kVectors; ++i)
      squares += squared_distance(to_compute(raw[i]), mean, start + i * kGroup * kWidth, cols);
    const F rstd = F(1) / std::sqrt(Group::sum(squares) / static_cast<F>(cols) + a.eps);
    if (Group::lane() == 0) a.write_statistics(row, mean, rstd);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int column = start + i * kGroup * kWidth;
      if (column >= cols) continue;
      Vector<F, kWidth> scale, shift;
      load_values(gamma + column, scale.v);
      load_values(beta + column, shift.v);
      Vector<F, kWidth> y = to_compute(raw[i]);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) y.v[k] = (y.v[k] - mean) * rstd * scale.v[k] + shift.v[k];
      store_columns(a.y + row * a.cols, column, cols, from_compute<T>(y));
    }
  }
}

/// One block per row. The sum is stored in z, or in y where z is absent; each thread reads only values that it wrote.
template <class T>
__global__ void __launch_bounds__(kRowThreads) layer_norm_long_kernel(TERN_GRID_CONSTANT(Forward<T>) a) {
  using F = ComputeType<T>;
  using Group = RowGroup<kRowThreads>;
  constexpr int kWidth = vector_width<T>;
  const int64_t row = Group::first_row(), cols = a.cols, start = Group::lane() * kWidth, step = kRowThreads * kWidth;
  const T* input = a.x + row * cols;
  T* const output = a.y + row * cols;
  a.clear_tickets();
  if (a.residual || a.z || a.dropout.active) {
    T* const kept = a.z ? a.z + row * cols : output;
    const RowDropout::Row drawn = a.dropout.row(row);
    for (int64_t column = start; column < cols; column += step) {
      const Vector<T, kWidth> values = load_columns(input, column, cols);
      Vector<T, kWidth> other = {};
      if (a.residual) other = load_columns(a.residual + row * cols, column, cols);
      store_columns(kept, column, cols, a.add(drawn, column, values, other));
    }
    input = kept;
  }
  F sum = 0;
  for (int64_t column = start; column < cols; column += step) {
    const Vector<F, kWidth> z = to_compute(load_columns(input, column, cols));
    F part = 0;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) part += z.v[k];
    sum += part;
  }
  const F mean = a.mean ? Group::sum(sum) / static_cast<F>(cols) : F(0);
  F squares = 0;
  for (int64_t column = start; column < cols; column += step)
    squares += squared_distance(to_compute(load_columns(input, column, cols)), mean, column, cols);
  const F rstd = F(1) / std::sqrt(Group::sum(squares) / static_cast<F>(cols) + a.eps);
  if (Group::lane() == 0) a.write_statistics(row, mean, rstd);
  for (int64_t column = start; column < cols; column += step) {
    Vector<F, kWidth> z = to_compute(load_columns(input, column, cols));
#pragma unroll
    for (int k = 0; k < kWidth; ++k)
      if (column + k < cols)
        z.v[k] = (z.v[k] - mean) * rstd * a.gamma.at(column + k, F(1)) + a.beta.at(column + k, F(0));
    store_columns(output, column, cols, from_compute<T>(z));
  }
}

// ---- backward ----------------------------------------------------------------------------------------------------

/// Blocks of the first stage; each writes a partial sum for dgamma and one for dbeta. `threads`, `groups`: per block.
int64_t backward_parts(int64_t rows, int threads, int groups) {
  return std::min(kMaxParts * (kRowThreads / threads), ceil_div(rows, groups));
}
template <class T>
int64_t backward_parts(int64_t rows, int64_t cols) {
  int64_t parts = backward_parts(rows, kRowThreads, 1);
  dispatch_row_shape<T>(cols, [&]<int kGroup, int kVectors>() {
    parts = backward_parts(rows, RowGroup<kGroup>::kThreads, RowGroup<kGroup>::kGroups);
  });
  return parts;
}

/// Longer rows use a second launch: one multiprocessor would take longer than that to read their partial sums.
constexpr int64_t kLastBlockColumns = 2048;
static_assert(PartGroups<float>::groups_for(kMaxParts * kRowThreads / 128) < kLayerNormTickets);

template <class T>
struct Backward {
  using F = ComputeType<T>;
  const T *dy, *dsum, *z;  // dsum may be null
  Affine<T> gamma;
  const F *mean, *rstd;  // mean is null for RMS normalisation
  RowDropout dropout;
  T *dz, *dx;  // dx may be null
  F* parts;    // [blocks, 2, cols]: partial sums of dgamma and dbeta; null when both are absent
  ColumnResult<F> dgamma, dbeta;
  PartGroups<F> groups;  // without tickets another launch adds the sums
  int64_t rows, cols;

  __device__ F* part(int which) const { return parts + (static_cast<int64_t>(blockIdx.x) * 2 + which) * cols; }

  /// Writes dz and dx of a vector of columns. `gradient`, `product`: the row's means of dy gamma and of dy gamma hat.
  template <int kWidth, class Index>
  __device__ void write(int64_t row, Index column, Index columns, const Vector<F, kWidth>& d,
                        const Vector<F, kWidth>& hat, const Vector<F, kWidth>& weight, F scale, F gradient, F product,
                        RowDropout::Row drawn) const {
    Vector<F, kWidth> result;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) result.v[k] = scale * (d.v[k] * weight.v[k] - gradient - hat.v[k] * product);
    if (dsum) {
      const Vector<F, kWidth> other = to_compute(load_columns(dsum + row * cols, column, columns));
#pragma unroll
      for (int k = 0; k < kWidth; ++k) result.v[k] += other.v[k];
    }
    const Vector<T, kWidth> rounded = from_compute<T>(result);
    store_columns(dz + row * cols, column, columns, rounded);
    if (!dx) return;
    result = to_compute(rounded);
    if (dropout.active) {
      const Vector<F, kWidth> factors = dropout.template factors<F, kWidth>(drawn, column);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) result.v[k] *= factors.v[k];
    }
    store_columns(dx + row * cols, column, columns, from_compute<T>(result));
  }
};

template <class T>
constexpr int backward_threads(int vectors) {
  const int elements = vectors * vector_width<T>;
  if (sizeof(T) == 2) return elements <= 8 ? 768 : elements <= 24 ? 512 : 256;
  return sizeof(T) == 4 && elements <= 16 ? (elements <= 8 ? 768 : 512) : 256;
}

template <class F, int kWidth>
__device__ Vector<F, kWidth> normalized(const Vector<F, kWidth>& z, F mean, F rstd) {
  Vector<F, kWidth> hat;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) hat.v[k] = (z.v[k] - mean) * rstd;
  return hat;
}

/// Writes a thread's columns of the sums over this block's rows to the workspace, after adding over warps in `shared`.
template <int kGroup, class F, int kWidth, int kVectors>
__device__ void write_part(const Vector<F, kWidth> (&sums)[kVectors], int cols, int padded, F* shared, F* part) {
  using Group = RowGroup<kGroup>;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int column = (Group::lane() + i * kGroup) * kWidth;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      if (column + k >= cols) continue;
      if constexpr (Group::kGroups == 1)
        store_one(part + column + k, sums[i].v[k]);
      else
        shared[Group::group() * padded + column + k] = sums[i].v[k];
    }
  }
  if constexpr (Group::kGroups > 1) {
    block_barrier();
    for (int c = static_cast<int>(threadIdx.x); c < cols; c += kRowThreads) {
      F total = 0;
#pragma unroll
      for (int g = 0; g < Group::kGroups; ++g) total += shared[g * padded + c];
      store_one(part + c, total);
    }
    block_barrier();
  }
}

template <class T, int kGroup, int kVectors>
__global__ void __launch_bounds__(RowGroup<kGroup>::kThreads,
                                  backward_threads<T>(kVectors) / RowGroup<kGroup>::kThreads)
    layer_norm_backward_kernel(TERN_GRID_CONSTANT(Backward<T>) a) {
  using F = ComputeType<T>;
  using Group = RowGroup<kGroup>;
  constexpr int kWidth = vector_width<T>;
  TERN_DYNAMIC_SHARED(F, gamma);
  const int cols = static_cast<int>(a.cols), padded = padded_columns<T>(cols), start = Group::lane() * kWidth;
  a.gamma.stage(cols, padded, F(1), gamma);
  block_barrier();
  Vector<F, kWidth> dgamma[kVectors] = {}, dbeta[kVectors] = {};
  for (int64_t row = Group::first_row(); row < a.rows; row += Group::row_step()) {
    Vector<T, kWidth> dy[kVectors], z[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      dy[i] = load_columns(a.dy + row * a.cols, start + i * kGroup * kWidth, cols);
      z[i] = load_columns(a.z + row * a.cols, start + i * kGroup * kWidth, cols);
    }
    const F mean = a.mean ? load_one(a.mean + row) : F(0), rstd = load_one(a.rstd + row);
    F gradient = 0, product = 0;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int column = start + i * kGroup * kWidth;
      if (column >= cols) continue;
      const Vector<F, kWidth> d = to_compute(dy[i]), hat = normalized(to_compute(z[i]), mean, rstd);
      Vector<F, kWidth> weight;
      load_values(gamma + column, weight.v);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        gradient += d.v[k] * weight.v[k];  // d of columns outside is 0
        product += d.v[k] * weight.v[k] * hat.v[k];
        dgamma[i].v[k] += d.v[k] * hat.v[k];
        dbeta[i].v[k] += d.v[k];
      }
    }
    gradient = a.mean ? Group::sum(gradient) / static_cast<F>(cols) : F(0);
    product = Group::sum(product) / static_cast<F>(cols);
    const RowDropout::Row drawn = a.dropout.row(row);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int column = start + i * kGroup * kWidth;
      if (column >= cols) continue;
      Vector<F, kWidth> weight;
      load_values(gamma + column, weight.v);
      a.write(row, column, cols, to_compute(dy[i]), normalized(to_compute(z[i]), mean, rstd), weight, rstd, gradient,
              product, drawn);
    }
  }
  if (!a.parts) return;
  write_part<kGroup>(dgamma, cols, padded, gamma + padded, a.part(0));
  write_part<kGroup>(dbeta, cols, padded, gamma + padded, a.part(1));
  if (!a.groups.tickets) return;
  if (cols % vector_width<F> == 0)
    add_parts_last<vector_width<F>>(a.parts, a.groups, a.dgamma, a.dbeta, cols);
  else
    add_parts_last<1>(a.parts, a.groups, a.dgamma, a.dbeta, cols);
}

/// The partial sums do not fit into registers either: they are accumulated in the workspace, each by a single thread.
template <class T>
__global__ void __launch_bounds__(kRowThreads) layer_norm_backward_long_kernel(TERN_GRID_CONSTANT(Backward<T>) a) {
  using F = ComputeType<T>;
  using Group = RowGroup<kRowThreads>;
  constexpr int kWidth = vector_width<T>;
  const int64_t cols = a.cols, start = Group::lane() * kWidth, step = kRowThreads * kWidth;
  for (int64_t row = Group::first_row(); row < a.rows; row += Group::row_step()) {
    const F mean = a.mean ? load_one(a.mean + row) : F(0), rstd = load_one(a.rstd + row);
    const bool first = row == Group::first_row();
    F gradient = 0, product = 0;
    for (int64_t column = start; column < cols; column += step) {
      const Vector<F, kWidth> d = to_compute(load_columns(a.dy + row * cols, column, cols));
      const Vector<F, kWidth> hat = normalized(to_compute(load_columns(a.z + row * cols, column, cols)), mean, rstd);
      F gradient_part = 0, product_part = 0;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        if (column + k >= cols) continue;
        const F weighted = d.v[k] * a.gamma.at(column + k, F(1));
        gradient_part += weighted;
        product_part += weighted * hat.v[k];
        if (!a.parts) continue;
        F *dgamma = a.part(0) + column + k, *dbeta = a.part(1) + column + k;
        store_one(dgamma, (first ? F(0) : load_one(dgamma)) + d.v[k] * hat.v[k]);
        store_one(dbeta, (first ? F(0) : load_one(dbeta)) + d.v[k]);
      }
      gradient += gradient_part;
      product += product_part;
    }
    gradient = a.mean ? Group::sum(gradient) / static_cast<F>(cols) : F(0);
    product = Group::sum(product) / static_cast<F>(cols);
    const RowDropout::Row drawn = a.dropout.row(row);
    for (int64_t column = start; column < cols; column += step) {
      const Vector<F, kWidth> d = to_compute(load_columns(a.dy + row * cols, column, cols));
      const Vector<F, kWidth> hat = normalized(to_compute(load_columns(a.z + row * cols, column, cols)), mean, rstd);
      Vector<F, kWidth> weight;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) weight.v[k] = column + k < cols ? a.gamma.at(column + k, F(1)) : F(0);
      a.write(row, column, cols, d, hat, weight, rstd, gradient, product, drawn);
    }
  }
}

}  // namespace

void layer_norm_forward(Stream stream, ConstView x, ConstView residual, ConstView gamma, ConstView beta, double eps,
                        Dropout dropout, ConstView row_keys, View z, View y, View mean, View rstd, void* tickets) {
  const int64_t rows = x.rows(), cols = x.cols();
  if (rows == 0 || cols == 0) return;
  dispatch_float(x.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    const Forward<T> a{x.as<T>(),
                       residual ? residual.as<T>() : nullptr,
                       Affine<T>(gamma),
                       Affine<T>(beta),
                       static_cast<F>(eps),
                       RowDropout(dropout, row_keys),
                       z ? z.as<T>() : nullptr,
                       y.as<T>(),
                       mean ? mean.as<F>() : nullptr,
                       rstd.as<F>(),
                       static_cast<unsigned*>(tickets),
                       rows,
                       cols};
    const bool fits = dispatch_row_shape<T>(cols, [&]<int kGroup, int kVectors>() {
      using Group = RowGroup<kGroup>;
      constexpr int64_t kBlocks = 1024 / Group::kThreads;  // fills a multiprocessor and reads gamma and beta few times
      const int64_t blocks = std::min(ceil_div(rows, Group::kGroups), kBlocks * sm_count(stream));
      const size_t shared = 2 * padded_columns<T>(static_cast<int>(cols)) * sizeof(F);
      launch(layer_norm_kernel<T, kGroup, kVectors>, static_cast<unsigned>(blocks), Group::kThreads, shared, stream, a);
    });
    if (!fits) launch(layer_norm_long_kernel<T>, RowGroup<kRowThreads>::grid(rows), kRowThreads, 0, stream, a);
  });
}

int64_t layer_norm_backward_workspace(Stream, int64_t rows, int64_t cols, DType dtype) {
  return dispatch_float(dtype, [&]<class T>() -> int64_t {
    const int64_t parts = backward_parts<T>(rows, cols);
    return (parts + PartGroups<T>::groups_for(parts)) * 2 * cols * static_cast<int64_t>(sizeof(ComputeType<T>));
  });
}

void layer_norm_backward(Stream stream, ConstView dy, ConstView dsum, ConstView z, ConstView gamma, ConstView mean,
                         ConstView rstd, Dropout dropout, ConstView row_keys, void* workspace, void* tickets, View dz,
                         View dx, View dgamma, View dbeta) {
  const int64_t rows = dy.rows(), cols = dy.cols();
  if (cols == 0) return;
  dispatch_float(dy.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    F* const parts = static_cast<F*>(workspace);
    const int64_t blocks = backward_parts<T>(rows, cols);
    const bool sums = dgamma || dbeta;
    const ColumnResult<F> first{parts, dgamma.data, dgamma.dtype}, second{parts + cols, dbeta.data, dbeta.dtype};
    PartGroups<F> groups;
    if (sums && tickets && rows > 0 && cols <= kLastBlockColumns)
      groups = PartGroups<F>(blocks, parts + blocks * 2 * cols, tickets);
    if (rows > 0) {
      const Backward<T> a{dy.as<T>(),
                          dsum ? dsum.as<T>() : nullptr,
                          z.as<T>(),
                          Affine<T>(gamma),
                          mean ? mean.as<F>() : nullptr,
                          rstd.as<F>(),
                          RowDropout(dropout, row_keys),
                          dz.as<T>(),
                          dx ? dx.as<T>() : nullptr,
                          sums ? parts : nullptr,
                          first,
                          second,
                          groups,
                          rows,
                          cols};
      const bool fits = dispatch_row_shape<T>(cols, [&]<int kGroup, int kVectors>() {
        using Group = RowGroup<kGroup>;
        const size_t copies = Group::kGroups > 1 ? 1 + Group::kGroups : 1;
        const size_t shared = copies * padded_columns<T>(static_cast<int>(cols)) * sizeof(F);
        launch(layer_norm_backward_kernel<T, kGroup, kVectors>, static_cast<unsigned>(blocks), Group::kThreads, shared,
               stream, a);
      });
      if (!fits) launch(layer_norm_backward_long_kernel<T>, static_cast<unsigned>(blocks), kRowThreads, 0, stream, a);
    }
    if (sums && !groups.tickets) add_parts<F>(stream, first, second, blocks, 2 * cols, cols, false);
  });
}

}  // namespace tern::kernels::cuda

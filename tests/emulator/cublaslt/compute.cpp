// The arithmetic of the stand-in cuBLASLt: a blocked product in fp32 or fp64 on one core, then the epilogue.

#include <algorithm>
#include <bit>
#include <type_traits>
#include <vector>

#include "tern/tests/emulator/cublaslt/state.h"

namespace tern::standin::lt {
namespace {

const void* matrix_at(const Matrix& matrix, const void* data, int64_t index) {
  return static_cast<const char*>(data) + index * matrix.batch_stride * bytes_of(matrix.type);
}

/// TF32 keeps 10 bits of the mantissa, rounded to nearest even.
float round_to_tf32(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) return x;
  return std::bit_cast<float>((bits + 0xfffu + ((bits >> 13) & 1u)) & ~0x1fffu);
}

// --- the product ---

template <class F>
struct Tile {
  static constexpr int kRows = 32 / static_cast<int>(sizeof(F)) * 2, kCols = 6;  // size of a block held in registers
};

/// op(X) in panels of kWidth rows (of A) or columns (of B): [panel][inner][kWidth], padded with zeros.
template <class F, int kWidth>
std::vector<F> pack(const Matrix& matrix, const void* data, bool along_rows, bool transposed, int64_t count,
                    int64_t inner, bool tf32) {
  // Memory strides between the rows or columns of a panel, and along the inner dimension.
  const bool by_rows = along_rows != transposed;
  const int64_t step = by_rows ? 1 : matrix.ld, inner_step = by_rows ? matrix.ld : 1;
  const int64_t panels = (count + kWidth - 1) / kWidth;
  std::vector<F> packed(static_cast<size_t>(panels * inner * kWidth), F(0));
  for (int64_t panel = 0; panel < panels; ++panel)
    for (int64_t p = 0; p < inner; ++p)
      for (int64_t i = 0; i < std::min<int64_t>(kWidth, count - panel * kWidth); ++i) {
        F value = load<F>(matrix.type, data, (panel * kWidth + i) * step + p * inner_step);
        if constexpr (std::is_same_v<F, float>)
          if (tf32) value = round_to_tf32(value);
        packed[static_cast<size_t>((panel * inner + p) * kWidth + i)] = value;
      }
  return packed;
}

/// sums[column][row] = a panel of A times a panel of B over [0, inner).
template <class F>
inline __attribute__((always_inline)) void multiply_tile(const F* a, const F* b, int64_t inner, F* sums) {
  constexpr int kRows = Tile<F>::kRows, kCols = Tile<F>::kCols, kLanes = kRows / 2;
  typedef F Lanes __attribute__((vector_size(sizeof(F) * kLanes), aligned(sizeof(F)), may_alias));
  Lanes low[kCols] = {}, high[kCols] = {};
  for (int64_t p = 0; p < inner; ++p, a += kRows, b += kCols) {
    const Lanes a_low = *reinterpret_cast<const Lanes*>(a), a_high = *reinterpret_cast<const Lanes*>(a + kLanes);
#pragma GCC unroll 6
    for (int j = 0; j < kCols; ++j) {
      low[j] += a_low * b[j];
      high[j] += a_high * b[j];
    }
  }
  for (int j = 0; j < kCols; ++j) {
    *reinterpret_cast<Lanes*>(sums + j * kRows) = low[j];
    *reinterpret_cast<Lanes*>(sums + j * kRows + kLanes) = high[j];
  }
}
template <class F>
__attribute__((target("avx2,fma"))) void multiply_tile_avx2(const F* a, const F* b, int64_t inner, F* sums) {
  multiply_tile(a, b, inner, sums);
}
template <class F>
void multiply_tile_plain(const F* a, const F* b, int64_t inner, F* sums) {
  multiply_tile(a, b, inner, sums);
}

/// result[column * m + row] = op(A) op(B); the inner dimension is in `parts`, whose sums are added in `order`.
template <class F>
void multiply(const Product& p, const void* a, const void* b, const std::vector<int>& order, std::vector<F>& result) {
  constexpr int kRows = Tile<F>::kRows, kCols = Tile<F>::kCols;
  const bool tf32 = p.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  const std::vector<F> left = pack<F, kRows>(p.a, a, true, p.transpose_a, p.m, p.k, tf32);
  const std::vector<F> right = pack<F, kCols>(p.b, b, false, p.transpose_b, p.n, p.k, tf32);
  const bool fast = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const auto tile = fast ? multiply_tile_avx2<F> : multiply_tile_plain<F>;
  const auto parts = static_cast<int64_t>(order.size());
  result.assign(static_cast<size_t>(p.m * p.n), F(0));
  F sums[kRows * kCols];
  for (int64_t column = 0; column < p.n; column += kCols)
    for (int64_t row = 0; row < p.m; row += kRows)
      for (const int part : order) {
        const int64_t begin = p.k * part / parts, end = p.k * (part + 1) / parts;
        tile(left.data() + row * p.k + begin * kRows, right.data() + column * p.k + begin * kCols, end - begin, sums);
        for (int64_t j = 0; j < std::min<int64_t>(kCols, p.n - column); ++j)
          for (int64_t i = 0; i < std::min<int64_t>(kRows, p.m - row); ++i)
            result[static_cast<size_t>((column + j) * p.m + row + i)] += sums[j * kRows + i];
      }
}

// --- the epilogue ---

/// Sums over the inner dimension of op(B).
template <class F>
void input_bias_gradient(const Product& p, const void* b, void* bias) {
  const int64_t step = p.transpose_b ? 1 : p.b.ld, inner_step = p.transpose_b ? p.b.ld : 1;
  for (int64_t i = 0; i < p.n; ++i) {
    F sum = 0;
    for (int64_t q = 0; q < p.k; ++q) sum += load<F>(p.b.type, b, i * step + q * inner_step);
    store(p.d.type, bias, i, sum);
  }
}

std::vector<int> order_of_parts(const Arguments& t) {
  if (t.algorithm == MatmulAlgorithm::kSplit) return {0, 1, 2, 3};
  if (t.algorithm == MatmulAlgorithm::kInPlace)
    return t.call % 2 == 0 ? std::vector<int>{3, 1, 2, 0} : std::vector<int>{0, 2, 3, 1};
  return {0};
}

template <class F>
void compute_in(const Product& p, const Arguments& t) {
  const auto alpha = static_cast<F>(t.alpha_value), beta = static_cast<F>(t.beta_value);
  const std::vector<int> order = order_of_parts(t);
  std::vector<F> result;
  for (int64_t index = 0; index < p.d.batch; ++index) {
    const void *a = matrix_at(p.a, t.a, index), *b = matrix_at(p.b, t.b, index), *c = matrix_at(p.c, t.c, index);
    void* d = const_cast<void*>(matrix_at(p.d, t.d, index));
    char* bias = static_cast<char*>(p.bias) + index * p.bias_stride * bytes_of(p.d.type);
    multiply(p, a, b, order, result);
    for (int64_t column = 0; column < p.n; ++column)
      for (int64_t row = 0; row < p.m; ++row) {
        F value = alpha * result[static_cast<size_t>(column * p.m + row)];
        if (beta != 0) value += beta * load<F>(p.c.type, c, row + column * p.c.ld);
        if (p.epilogue == CUBLASLT_EPILOGUE_BIAS) value += load<F>(p.d.type, bias, row);
        store(p.d.type, d, row + column * p.d.ld, value);
      }
    if (p.epilogue == CUBLASLT_EPILOGUE_BGRADB) input_bias_gradient<F>(p, b, bias);
  }
}

}  // namespace

void compute(const Product& product, const Arguments& arguments) {
  if (product.wide())
    compute_in<double>(product, arguments);
  else
    compute_in<float>(product, arguments);
}

}  // namespace tern::standin::lt

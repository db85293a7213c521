#include "tern/kernels/gemm.h"

#include <array>

#include "tern/kernels/cpu/convolution/column_products.h"
#include "tern/kernels/cpu/gemm/blocks.h"
#include "tern/kernels/cpu/gemm/double.h"
#include "tern/kernels/cpu/gemm/tiles.h"
#include "tern/kernels/cpu/gemm/tiny.h"
#include "tern/kernels/cpu/rows.h"
#include "tern/kernels/cpu/simd/register_products.h"

namespace tern::kernels::TERN_CPU {
namespace {

/// Inner elements (such as tokens) for which 16-bit operands are widened at a time on CPUs without native products.
constexpr int64_t kWidenDepth = 1024;

/// A c of at most kSplitSize elements has too few tiles for all threads; a product of more than kMinSplitWork
/// multiplications is then worth splitting along the inner dimension.
constexpr int64_t kSplitSize = int64_t{1} << 14, kMinSplitWork = int64_t{1} << 22;

/// One matrix of each operand, and the path that computes the product. choose() holds the rule.
struct Problem {
  enum class Path : uint8_t {
    kNothing,  // c is empty or nothing is added to it
    kDouble,   // Eigen
    kTiny,     // fp32, loops on one thread; all following paths call oneDNN
    kSgemm,    // fp32, any alpha and beta, in Tiles
    kColumns,  // fp32 at level v3, a transposed: ColumnProducts
    kSwapped,  // fp32, c^T = b^T a into the workspace, then transposed: faster for some strides
    kSpread,   // fp32, b copied into the workspace with other strides, then as kSgemm
    kBlocks,   // RowBlocks
    kSplit,    // c is small and the inner dimension long: SplitProduct
    kNative,   // bf16, in Tiles
    kWidened,  // converted to fp32 in slices of the inner dimension
  };
  bool transpose_a, transpose_b;
  int64_t batch, m, n, k;
  double alpha, beta;
  DType input, output;
  const char *a, *b;
  char* c;
  int64_t lda, ldb, ldc, batch_a, batch_b, batch_c;
  Path path;

  bool plain() const { return alpha == 1 && beta == 0; }
};

/// A row stride that BLAS accepts. A matrix with fewer than two rows may have any stride.
int64_t row_stride(const ConstView& view) {
  const int64_t cols = std::max<int64_t>(view.size(-1), 1);
  return view.size(-2) < 2 ? cols : view.strides[view.dims - 2];
}

/// True when rows are in order without overlap, as oneDNN requires.
bool is_regular(const ConstView& view) {
  const bool contiguous_rows = view.size(-1) < 2 || view.strides[view.dims - 1] == 1;
  return contiguous_rows && row_stride(view) >= std::max<int64_t>(view.size(-1), 1);
}

// The rule, measured on training shapes with AVX-512 (bench/kernels/gemm_bench.cpp):
// * a not transposed (forward, input gradient): packed blocks of rows, unless the rows are too few to repay packing a
//   large b; then sgemm is 1.03 to 1.1 x as fast, except for a long inner dimension with b transposed (0.85 x);
// * both stored with the inner dimension first (weight gradient): sgemm. If a's columns are multiples of 4 KiB apart,
//   they share cache sets while sgemm packs them; then a and b are swapped (1.1 x);
//   At level v3 ColumnProducts take 1.0 to 2.1 x less time: they copy blocks of rows in the order of their use, where
//   sgemm reads columns that are multiples of 1 KiB apart from few sets of the cache;
// * neither transposed, and rows of b multiples of 2 KiB apart, at level v3: the same happens to b, and sgemm of a copy
//   with other strides takes 0.42 to 0.75 x the time;
// * a small c with a long inner dimension (weight gradients of narrow layers): split along it (SplitProduct);
// * other bf16 products: oneDNN without packing;
// * fp32 with a few thousand multiplications: loops (gemm/tiny.h), because a call of oneDNN alone takes longer.
bool packing_pays(const Problem& p) {
  return p.m >= 2048 || p.n * p.k <= int64_t{1} << 20 || (p.transpose_b && p.k >= 2048);
}

Problem::Path choose(const Problem& p, bool regular) {
  using Path = Problem::Path;
  if (p.batch == 0 || p.m == 0 || p.n == 0 || (p.beta == 1 && (p.k == 0 || p.alpha == 0))) return Path::kNothing;
  if (p.input == DType::kFloat64) return Path::kDouble;
  if (p.k == 0 || !regular) return Path::kWidened;
  if (p.input == DType::kFloat32 && is_tiny_product(p.m, p.n, p.k)) return Path::kTiny;
  if (is_low_precision(p.input) && !has_packed_matmul(p.input)) return Path::kWidened;
  const bool blocks = !p.transpose_a && has_packed_matmul(p.input) && RowBlocks::suits(p.input, p.m, p.n, p.k);
  if (blocks && (p.input == DType::kBFloat16 || (p.plain() && packing_pays(p)))) return Path::kBlocks;
  if (p.m * p.n <= kSplitSize && p.m * p.n * p.k > kMinSplitWork) return Path::kSplit;
  if (p.input == DType::kBFloat16) return Path::kNative;
  if (kOwnIsFaster && p.transpose_a && !p.transpose_b && p.alpha == 1 && (p.beta == 0 || p.beta == 1) &&
      p.n % kLanes == 0 && p.m >= 32 && p.n >= 32 && p.k >= 64) {
    return Path::kColumns;
  }
  if (p.transpose_a && !p.transpose_b && p.k >= 512 && p.m >= 128 && p.n >= 64 && p.lda % 1024 == 0 &&
      p.ldb % 1024 != 0) {
    return Path::kSwapped;
  }
  if (kOwnIsFaster && !p.transpose_a && !p.transpose_b && p.ldb % 512 == 0 && p.m >= 128 && p.n >= 128 &&
      p.m * p.n * p.k > kMinSplitWork) {
    return Path::kSpread;
  }
  return Path::kSgemm;
}

Problem make_problem(bool transpose_a, bool transpose_b, double alpha, const ConstView& a, const ConstView& b,
                     double beta, const ConstView& c) {
  Problem p{};
  p.transpose_a = transpose_a;
  p.transpose_b = transpose_b;
  p.batch = c.dims == 3 ? c.shape[0] : 1;
  p.m = c.size(-2);
  p.n = c.size(-1);
  p.k = a.size(transpose_a ? -2 : -1);
  p.alpha = alpha;
  p.beta = beta;
  p.input = a.dtype;
  p.output = c.dtype;
  p.a = static_cast<const char*>(a.data);
  p.b = static_cast<const char*>(b.data);
  p.lda = row_stride(a);
  p.ldb = row_stride(b);
  p.ldc = row_stride(c);
  // A batch dimension of size 1 is broadcast for any stride.
  const auto batch_stride = [](const ConstView& v) { return v.dims == 3 && v.shape[0] > 1 ? v.strides[0] : 0; };
  p.batch_a = batch_stride(a);
  p.batch_b = batch_stride(b);
  p.batch_c = batch_stride(c);
  // With one b for all of a, the batch adds rows.
  if (p.batch > 1 && p.batch_b == 0 && !transpose_a && p.batch_a == p.m * p.lda && p.batch_c == p.m * p.ldc &&
      is_regular(a) && is_regular(c)) {
    p.m *= p.batch;
    p.batch = 1;
  }
  p.path = choose(p, is_regular(a) && is_regular(b) && is_regular(c));
  if (p.path > Problem::Path::kTiny) prepare_products();
  return p;
}

// ---- writing an fp32 result to c ----

/// c = alpha * product + beta * c for a part [rows, cols] of c. Element (i, j) is product[i * row + j * col].
template <class T>
void write_part(const Problem& p, int64_t rows, int64_t cols, const float* product, int64_t row, int64_t col, T* c) {
  const float alpha = static_cast<float>(p.alpha);
  float block[16];
  for (int64_t j = 0; j < cols; j += 16) {
    const int64_t n = std::min<int64_t>(16, cols - j);
    for (int64_t i = 0; i < rows; ++i) {
      T* out = c + i * p.ldc + j;
      for (int64_t l = 0; l < n; ++l) block[l] = alpha * product[i * row + (j + l) * col];
      if (p.beta != 0)
        for (int64_t l = 0; l < n; ++l) block[l] += static_cast<float>(out[l]);
      for (int64_t l = 0; l < n; ++l) out[l] = static_cast<T>(block[l]);
    }
  }
}

void write_part(const Problem& p, int64_t rows, int64_t cols, const float* product, int64_t row, int64_t col, char* c) {
  dispatch_float(p.output, [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>) write_part(p, rows, cols, product, row, col, reinterpret_cast<T*>(c));
  });
}

// ---- 16-bit without native products, and strides that oneDNN does not support ----

/// Copies rows x cols of a matrix with any row stride to contiguous fp32.
template <class T>
void widen_matrix(const T* from, int64_t rows, int64_t cols, int64_t stride, float* to) {
  parallel_for(rows, std::max<int64_t>(1, 16384 / std::max<int64_t>(cols, 1)), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t i = 0; i < cols; ++i) to[r * cols + i] = static_cast<float>(from[r * stride + i]);
  });
}

int64_t widened_floats(const Problem& p) { return p.m * p.n + std::min(p.k, kWidenDepth) * (p.m + p.n) + 48; }

template <class T>
void gemm_widened(const Problem& p, const T* a, const T* b, char* c, float* workspace) {
  float* product = workspace;
  float* wide_a = product + align_up(p.m * p.n * 4) / 4;
  float* wide_b = wide_a + align_up(std::min(p.k, kWidenDepth) * p.m * 4) / 4;
  if (p.k == 0) std::fill_n(product, p.m * p.n, 0.0f);
  for (int64_t i = 0; i < p.k; i += kWidenDepth) {
    const int64_t depth = std::min(kWidenDepth, p.k - i);
    if (p.transpose_a)
      widen_matrix(a + i * p.lda, depth, p.m, p.lda, wide_a);
    else
      widen_matrix(a + i, p.m, depth, p.lda, wide_a);
    if (p.transpose_b)
      widen_matrix(b + i, p.n, depth, p.ldb, wide_b);
    else
      widen_matrix(b + i * p.ldb, depth, p.n, p.ldb, wide_b);
    Tiles(p.m, p.n, depth).run([&](int64_t row, int64_t rows, int64_t col, int64_t cols, int64_t) {
      sgemm(p.transpose_a, p.transpose_b, rows, cols, depth, 1.0f, wide_a + (p.transpose_a ? row : row * depth),
            p.transpose_a ? p.m : depth, wide_b + (p.transpose_b ? col * depth : col), p.transpose_b ? depth : p.n,
            i == 0 ? 0.0f : 1.0f, product + row * p.n + col, p.n);
    });
  }
  parallel_for(p.m, 16, [&](int64_t begin, int64_t end) {
    write_part(p, end - begin, p.n, product + begin * p.n, p.n, 1, c + begin * p.ldc * size_of(p.output));
  });
}

// ---- one matrix ----

std::shared_ptr<const Matmul> native_product(const Problem& p, int64_t rows, int64_t cols) {
  const bool direct = p.plain();
  return find_matmul({.input = p.input,
                      .output = direct ? p.output : DType::kFloat32,
                      .transpose_a = p.transpose_a,
                      .transpose_b = p.transpose_b,
                      .m = rows,
                      .n = cols,
                      .k = p.k,
                      .lda = p.lda,
                      .ldb = p.ldb,
                      .ldc = direct ? p.ldc : cols});
}

/// bf16 products of c's tiles. The last tiles of rows and columns may be smaller, so there are up to four products.
class NativeTiles {
 public:
  explicit NativeTiles(const Problem& p) : p_(p), tiles_(p.m, p.n, p.k) {
    const auto sizes = [](int64_t all, int64_t size) { return std::array<int64_t, 2>{size, all % size}; };
    for (const int64_t rows : sizes(p.m, tiles_.rows())) {
      for (const int64_t cols : sizes(p.n, tiles_.cols())) {
        if (rows == 0 || cols == 0) continue;
        products_[rows != tiles_.rows()][cols != tiles_.cols()] = native_product(p, rows, cols);
        scratch_ = std::max(scratch_, align_up(native_product(p, rows, cols)->scratch_bytes()));
      }
    }
  }

  int64_t workspace_bytes() const { return 64 + tiles_.slots() * slot_bytes(); }

  void run(const char* a, const char* b, char* c, char* memory) const {
    const int64_t input = size_of(p_.input);
    tiles_.run([&](int64_t row, int64_t rows, int64_t col, int64_t cols, int64_t slot) {
      char* const scratch = memory + slot * slot_bytes();
      char* const to = c + (row * p_.ldc + col) * size_of(p_.output);
      void* const result = p_.plain() ? to : scratch + scratch_;
      const Matmul& product = *products_[rows != tiles_.rows()][cols != tiles_.cols()];
      product.run(a + (p_.transpose_a ? row : row * p_.lda) * input, b + (p_.transpose_b ? col * p_.ldb : col) * input,
                  nullptr, result, scratch);
      if (!p_.plain()) write_part(p_, rows, cols, static_cast<const float*>(result), cols, 1, to);
    });
  }

 private:
  int64_t slot_bytes() const { return scratch_ + (p_.plain() ? 0 : align_up(tiles_.rows() * tiles_.cols() * 4)); }

  const Problem& p_;
  const Tiles tiles_;
  int64_t scratch_ = 0;
  std::shared_ptr<const Matmul> products_[2][2];  // [smaller rows][smaller columns]
};

/// fp32, c^T = b^T a in tiles, each computed in scratch memory and transposed into c.
class SwappedTiles {
 public:
  explicit SwappedTiles(const Problem& p) : p_(p), tiles_(p.n, p.m, p.k) {}

  int64_t workspace_bytes() const { return 64 + tiles_.slots() * slot_bytes(); }

  void run(const char* a, const char* b, char* c, char* memory) const {
    tiles_.run([&](int64_t col, int64_t cols, int64_t row, int64_t rows, int64_t slot) {
      float* const product = reinterpret_cast<float*>(memory + slot * slot_bytes());
      sgemm(true, false, cols, rows, p_.k, 1.0f, reinterpret_cast<const float*>(b) + col, p_.ldb,
            reinterpret_cast<const float*>(a) + row, p_.lda, 0.0f, product, rows);
      write_part(p_, rows, cols, product, 1, rows, c + (row * p_.ldc + col) * 4);
    });
  }

 private:
  int64_t slot_bytes() const { return align_up(tiles_.rows() * tiles_.cols() * 4); }

  const Problem& p_;
  const Tiles tiles_;
};

/// A product split along the inner dimension, depending only on its shape. Parts are computed concurrently in separate
/// memory and added in order.
class SplitProduct {
 public:
  explicit SplitProduct(const Problem& p) : p_(p) {
    constexpr int64_t kPart = int64_t{1} << 20, kMaxParts = 8;
    const int64_t parts = std::clamp<int64_t>(p.m * p.n * p.k / kPart, 1, kMaxParts);
    depth_ = ((p.k + parts - 1) / parts + 15) / 16 * 16;
    parts_ = (p.k + depth_ - 1) / depth_;
    if (p.input != DType::kBFloat16) return;
    for (const bool last : {false, true}) {
      products_[last] = native_product(part(last ? parts_ - 1 : 0), p.m, p.n);
      scratch_ = std::max(scratch_, align_up(products_[last]->scratch_bytes()));
    }
  }

  int64_t workspace_bytes() const { return 64 + parts_ * part_bytes(); }

  void run(const char* a, const char* b, char* c, char* memory) const {
    const int64_t input = size_of(p_.input);
    const auto result = [&](int64_t i) { return reinterpret_cast<float*>(memory + i * part_bytes()); };
    parallel_for(parts_, 1, [&](int64_t i, int64_t) {
      const char* const part_a = a + i * depth_ * (p_.transpose_a ? p_.lda : 1) * input;
      const char* const part_b = b + i * depth_ * (p_.transpose_b ? 1 : p_.ldb) * input;
      if (p_.input == DType::kBFloat16) {
        char* const scratch = memory + (i + 1) * part_bytes() - scratch_;
        products_[i + 1 == parts_]->run(part_a, part_b, nullptr, result(i), scratch);
      } else {
        sgemm(p_.transpose_a, p_.transpose_b, p_.m, p_.n, part(i).k, 1.0f, reinterpret_cast<const float*>(part_a),
              p_.lda, reinterpret_cast<const float*>(part_b), p_.ldb, 0.0f, result(i), p_.n);
      }
    });
    parallel_for(p_.m, std::max<int64_t>(1, 4096 / p_.n), [&](int64_t begin, int64_t end) {
      const int64_t from = begin * p_.n, count = (end - begin) * p_.n;
      for (int64_t i = 1; i < parts_; ++i) add_to(result(0) + from, result(i) + from, count);
      write_part(p_, end - begin, p_.n, result(0) + from, p_.n, 1, c + begin * p_.ldc * size_of(p_.output));
    });
  }

 private:
  int64_t part_bytes() const { return align_up(p_.m * p_.n * 4) + scratch_; }

  /// The product of one part, with an fp32 result.
  Problem part(int64_t i) const {
    Problem result = p_;
    result.k = std::min(depth_, p_.k - i * depth_);
    result.alpha = 1;
    result.beta = 0;
    result.output = DType::kFloat32;
    result.ldc = p_.n;
    return result;
  }

  const Problem& p_;
  int64_t depth_, parts_, scratch_ = 0;
  std::shared_ptr<const Matmul> products_[2];  // the last part may be smaller
};

ColumnProducts column_products(const Problem& p) { return ColumnProducts(p.m, p.n, p.k); }
void gemm_columns(const Problem& p, const char* a, const char* b, char* c, char* memory) {
  const auto write_panels = [&](int64_t first, int64_t count, int64_t begin, int64_t numbers, float* panels) {
    for (int64_t r = 0; r < count; ++r) {
      const float* const from = reinterpret_cast<const float*>(b) + (first + r) * p.ldb + begin;
      float* to = panels + r * kPanel;
      int64_t k = 0;
      for (; k + kPanel <= numbers; k += kPanel, to += count * kPanel) std::memcpy(to, from + k, kPanel * 4);
      if (k < numbers) std::memcpy(to, from + k, kLanes * 4);  // of the last panel one vector is read
    }
  };
  column_products(p).run(reinterpret_cast<const float*>(a), p.lda, p.beta == 1, reinterpret_cast<float*>(c), p.ldc,
                         memory, write_panels);
}

/// The distance between rows of a copy of b: no multiple of 2 KiB, as it is in b.
int64_t spread_stride(const Problem& p) { return p.n + ((p.n + 16) % 512 == 0 ? 32 : 16); }

RowBlocks make_blocks(const Problem& p) {
  return RowBlocks(p.input, p.output, p.plain(), p.transpose_b, p.m, p.n, p.k, p.lda, p.ldb, p.ldc);
}

int64_t workspace_of(const Problem& p) {
  switch (p.path) {
    case Problem::Path::kColumns:
      return column_products(p).bytes();
    case Problem::Path::kSwapped:
      return SwappedTiles(p).workspace_bytes();
    case Problem::Path::kSpread:
      return 64 + spread_stride(p) * p.k * 4;
    case Problem::Path::kBlocks:
      return make_blocks(p).workspace_bytes();
    case Problem::Path::kSplit:
      return SplitProduct(p).workspace_bytes();
    case Problem::Path::kWidened:
      return 64 + widened_floats(p) * 4;
    case Problem::Path::kNative:
      return NativeTiles(p).workspace_bytes();
    default:
      return 0;
  }
}

/// Computes one tile of an fp32 product.
void sgemm_tile(const Problem& p, const char* a, const char* b, char* c, int64_t row, int64_t rows, int64_t col,
                int64_t cols) {
  sgemm(p.transpose_a, p.transpose_b, rows, cols, p.k, static_cast<float>(p.alpha),
        reinterpret_cast<const float*>(a) + (p.transpose_a ? row : row * p.lda), p.lda,
        reinterpret_cast<const float*>(b) + (p.transpose_b ? col * p.ldb : col), p.ldb, static_cast<float>(p.beta),
        reinterpret_cast<float*>(c) + row * p.ldc + col, p.ldc);
}

void gemm_direct(const Problem& p, const char* a, const char* b, char* c) {
  gemm_tiny({p.transpose_a, p.transpose_b, p.m, p.n, p.k, static_cast<float>(p.alpha),
             reinterpret_cast<const float*>(a), p.lda, reinterpret_cast<const float*>(b), p.ldb,
             static_cast<float>(p.beta), reinterpret_cast<float*>(c), p.ldc});
}

void gemm_sgemm(const Problem& p, const char* a, const char* b, char* c) {
  Tiles(p.m, p.n, p.k).run([&](int64_t row, int64_t rows, int64_t col, int64_t cols, int64_t) {
    sgemm_tile(p, a, b, c, row, rows, col, cols);
  });
}

void gemm_spread(Problem p, const char* a, const char* b, char* c, char* memory) {
  const auto* const from = reinterpret_cast<const float*>(b);
  auto* const to = reinterpret_cast<float*>(memory);
  parallel_for(p.k, std::max<int64_t>(1, 16384 / p.n), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) std::copy_n(from + r * p.ldb, p.n, to + r * spread_stride(p));
  });
  p.ldb = spread_stride(p);
  gemm_sgemm(p, a, memory, c);
}

void gemm_one(const Problem& p, const char* a, const char* b, char* c, void* workspace) {
  char* aligned = align_up(workspace);
  switch (p.path) {
    case Problem::Path::kNothing:
      return;
    case Problem::Path::kDouble:
      return gemm_double(p.transpose_a, p.transpose_b, p.m, p.n, p.k, p.alpha, reinterpret_cast<const double*>(a),
                         p.lda, reinterpret_cast<const double*>(b), p.ldb, p.beta, reinterpret_cast<double*>(c), p.ldc);
    case Problem::Path::kTiny:
      return gemm_direct(p, a, b, c);
    case Problem::Path::kSgemm:
      return gemm_sgemm(p, a, b, c);
    case Problem::Path::kColumns:
      return gemm_columns(p, a, b, c, aligned);
    case Problem::Path::kSwapped:
      return SwappedTiles(p).run(a, b, c, aligned);
    case Problem::Path::kSpread:
      return gemm_spread(p, a, b, c, aligned);
    case Problem::Path::kBlocks:
      return make_blocks(p).run(a, b, nullptr, c, workspace, [&](const ResultBlock& block) {
        if (p.plain()) return;
        write_part(p, block.rows, p.n, static_cast<const float*>(block.result), block.stride, 1,
                   c + block.begin * p.ldc * size_of(p.output));
      });
    case Problem::Path::kSplit:
      return SplitProduct(p).run(a, b, c, aligned);
    case Problem::Path::kNative:
      return NativeTiles(p).run(a, b, c, aligned);
    case Problem::Path::kWidened:
      return dispatch_float(p.input, [&]<class T>() {
        if constexpr (!std::is_same_v<T, double>) {
          gemm_widened(p, reinterpret_cast<const T*>(a), reinterpret_cast<const T*>(b), c,
                       reinterpret_cast<float*>(aligned));
        }
      });
  }
}

}  // namespace

int64_t gemm_workspace(Stream, bool transpose_a, bool transpose_b, ConstView a, ConstView b, View c) {
  // alpha and beta are unknown here: the workspace is large enough for all values.
  const Problem problem = make_problem(transpose_a, transpose_b, 1, a, b, 0, c);
  if (problem.path == Problem::Path::kTiny) return 0;
  const int64_t plain = workspace_of(problem);
  return std::max(plain, workspace_of(make_problem(transpose_a, transpose_b, 2, a, b, 1, c)));
}

void gemm(Stream, bool transpose_a, bool transpose_b, double alpha, ConstView a, ConstView b, double beta, View c,
          void* workspace) {
  Problem p = make_problem(transpose_a, transpose_b, alpha, a, b, beta, c);
  p.c = static_cast<char*>(c.data);
  const int64_t input = size_of(p.input), output = size_of(p.output);
  const auto run = [&](int64_t i, const auto& one) {
    one(p.a + i * p.batch_a * input, p.b + i * p.batch_b * input, p.c + i * p.batch_c * output);
  };
  if (p.path == Problem::Path::kTiny) {
    const int64_t grain = std::max<int64_t>(1, (int64_t{1} << 17) / (p.m * p.n * p.k));
    return parallel_for(p.batch, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        run(i, [&](const char* a_i, const char* b_i, char* c_i) { gemm_direct(p, a_i, b_i, c_i); });
    });
  }
  // Many small products: one thread each. Large ones are computed one after the other by all threads.
  if (p.path == Problem::Path::kSgemm && p.batch > 1 && p.m * p.n * p.k <= int64_t{1} << 22) {
    return parallel_for(p.batch, 1, [&](int64_t i, int64_t) {
      run(i, [&](const char* a_i, const char* b_i, char* c_i) { sgemm_tile(p, a_i, b_i, c_i, 0, p.m, 0, p.n); });
    });
  }
  for (int64_t i = 0; i < p.batch; ++i)
    run(i, [&](const char* a_i, const char* b_i, char* c_i) { gemm_one(p, a_i, b_i, c_i, workspace); });
}

}  // namespace tern::kernels::TERN_CPU

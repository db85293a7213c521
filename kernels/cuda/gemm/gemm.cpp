// Matrix products by cuBLASLt. It thinks in columns: the memory of a row-major [rows, cols] matrix with rows `ld`
// elements apart is to it a [cols, rows] matrix with columns `ld` apart, the transpose. So what is asked for here is
// c^T = op(b)^T op(a)^T: b is its A and a its B, n its number of rows and m of columns, and an operand is transposed
// for it exactly when it is transposed for us.

#include "tern/kernels/gemm.h"

#include <algorithm>
#include <string>

#include "tern/kernels/base/check.h"
#include "tern/kernels/copy.h"
#include "tern/kernels/cuda/gemm/matmul.h"
#include "tern/kernels/cuda/support/cublaslt.h"
#include "tern/kernels/pointwise/ops.h"
#include "tern/kernels/pointwise/tiles.h"
#include "tern/kernels/reduce.h"

namespace tern::kernels::cuda {
namespace {

constexpr int64_t kMaxBatch = 65535;  // of one call: the largest third dimension of a grid
constexpr int64_t kBiasAlignment = 16;

int64_t align_up(int64_t bytes) { return (bytes + kMatmulAlignment - 1) / kMatmulAlignment * kMatmulAlignment; }
char* align_up(void* memory) {
  return reinterpret_cast<char*>(align_up(static_cast<int64_t>(reinterpret_cast<uintptr_t>(memory))));
}

/// [batch, rows, cols] in memory, rows of neighbouring elements.
struct Matrix {
  const void* data;
  DType dtype;
  int64_t batch, rows, cols, row_stride, batch_stride;

  /// From a view of two or three dimensions. Strides that no element depends on become those of packed memory, so that
  /// they neither violate cuBLASLt's rules nor make two kinds of product out of one.
  explicit Matrix(const ConstView& v)
      : data(v.data), dtype(v.dtype), batch(v.size(-3)), rows(v.size(-2)), cols(v.size(-1)) {
    row_stride = rows > 1 ? v.strides[v.dims - 2] : std::max<int64_t>(cols, 1);
    batch_stride = batch > 1 ? v.strides[v.dims - 3] : 0;
  }
  /// True when rows overlap or run backwards, which cuBLASLt does not take.
  bool needs_packing() const { return row_stride < std::max<int64_t>(cols, 1); }
  int64_t stored_batch() const { return batch_stride == 0 ? 1 : batch; }
  int64_t packed_bytes() const { return needs_packing() ? align_up(stored_batch() * rows * cols * size_of(dtype)) : 0; }
  View packed(void* memory) const {
    const int64_t shape[] = {stored_batch(), rows, cols}, strides[] = {rows * cols, cols, 1};
    return View(memory, dtype, 3, shape, strides);
  }
  /// Copies the matrix to `memory` if needed, and refers to the copy then. Returns the end of the used memory.
  char* pack(Stream stream, char* memory) {
    if (!needs_packing()) return memory;
    const int64_t shape[] = {stored_batch(), rows, cols}, strides[] = {batch_stride, row_stride, 1};
    copy(stream, ConstView(data, dtype, 3, shape, strides), packed(memory));
    char* const end = memory + packed_bytes();
    data = memory;
    row_stride = cols;
    if (batch_stride != 0) batch_stride = rows * cols;
    return end;
  }
  /// True when the matrices of the batch follow each other like rows of one matrix.
  bool folds() const { return batch_stride == rows * row_stride; }
  const char* at(int64_t index) const { return static_cast<const char*>(data) + index * batch_stride * size_of(dtype); }
};

/// With one b for all of a and c, a batch is one product of more rows.
void fold_batch(bool transpose_a, Matrix& a, const Matrix& b, Matrix& c) {
  const bool one_b = b.batch_stride == 0 && !transpose_a;
  if (c.batch < 2 || !one_b || !a.folds() || !c.folds() || c.batch * c.rows > INT32_MAX) return;
  for (Matrix* matrix : {&a, &c}) {
    matrix->rows *= matrix->batch;
    matrix->batch = 1;
    matrix->batch_stride = 0;
  }
}

Matmul make_matmul(bool transpose_a, bool transpose_b, const Matrix& a, const Matrix& b, const Matrix& c) {
  Matmul p;
  p.input = a.dtype;
  p.output = c.dtype;
  p.transpose_a = transpose_b;
  p.transpose_b = transpose_a;
  p.m = c.cols;
  p.n = c.rows;
  p.k = transpose_a ? a.rows : a.cols;
  p.batch = c.batch;
  p.lda = b.row_stride;
  p.ldb = a.row_stride;
  p.ldd = c.row_stride;
  p.batch_a = b.batch_stride;
  p.batch_b = a.batch_stride;
  p.batch_d = c.batch_stride;
  p.align_a = alignment_of(b.data);
  p.align_b = alignment_of(a.data);
  p.align_d = alignment_of(c.data);
  return p;
}

View matrix_view(void* data, DType dtype, int64_t rows, int64_t cols, int64_t row_stride) {
  const int64_t shape[] = {rows, cols}, strides[] = {row_stride, 1};
  return View(data, dtype, 2, shape, strides);
}
/// All dimensions but the last as one: contiguous tensors as a matrix.
View as_matrix(const View& v) { return matrix_view(v.data, v.dtype, v.rows(), v.cols(), v.cols()); }
ConstView as_matrix(const ConstView& v) {
  return matrix_view(const_cast<void*>(v.data), v.dtype, v.rows(), v.cols(), v.cols());
}

template <class Op>
void apply(Stream stream, const ConstView& x, const View& y) {
  const Op op;
  const DType compute = x.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  pointwise(stream, make_call(op, {}, compute), &x, 1, y);
}

/// The bias of a linear layer as the epilogue of cuBLASLt takes it: of y's dtype and aligned. Otherwise copied to
/// `memory`; a wider bias is rounded to 16 bits there, as autocast does.
const void* epilogue_bias(Stream stream, const ConstView& bias, DType dtype, void* memory) {
  if (bias.dtype == dtype && alignment_of(bias.data) >= kBiasAlignment) return bias.data;
  const int64_t size = bias.numel(), stride = 1;
  const View copied(memory, dtype, 1, &size, &stride);
  copy(stream, bias, copied);
  return memory;
}

/// target = x weight^T + bias
void linear_product(Stream stream, const ConstView& x, const ConstView& weight, const ConstView& bias,
                    const View& target, char* memory) {
  const int64_t in = x.cols(), rows[] = {target.shape[0], target.shape[1]}, repeated[] = {0, 1};
  char* const workspace = memory + align_up(target.cols() * size_of(target.dtype));
  // cuBLASLt has the bias epilogue for fp32 and 16 bits.
  if (bias && in > 0 && target.dtype != DType::kFloat64) {
    const Matrix a(x), b(weight), c{ConstView(target)};
    Matmul p = make_matmul(false, true, a, b, c);
    const void* added = epilogue_bias(stream, bias, target.dtype, memory);
    p.bias = MatmulBias::kAdd;
    p.align_bias = alignment_of(added);
    if (try_matmul(stream, p, {1, b.data, a.data, 0, target.data, added}, workspace)) return;
  }
  if (bias) copy(stream, ConstView(bias.data, bias.dtype, 2, rows, repeated), target);
  gemm(stream, false, true, 1, x, weight, bias ? 1 : 0, target, workspace);
}

}  // namespace

int64_t gemm_workspace(Stream, bool, bool, ConstView a, ConstView b, View) {
  // The last part is for a start that is not aligned.
  return Matrix(a).packed_bytes() + Matrix(b).packed_bytes() + kMatmulWorkspace + kMatmulAlignment;
}

void gemm(Stream stream, bool transpose_a, bool transpose_b, double alpha, ConstView a_view, ConstView b_view,
          double beta, View c_view, void* workspace) {
  Matrix a(a_view), b(b_view), c{ConstView(c_view)};
  if (c.batch == 0 || c.rows == 0 || c.cols == 0) return;
  if ((transpose_a ? a.rows : a.cols) == 0) {
    if (beta == 0) fill(stream, 0, c_view);
    return;
  }
  char* memory = b.pack(stream, a.pack(stream, align_up(workspace)));
  fold_batch(transpose_a, a, b, c);
  for (int64_t first = 0; first < c.batch; first += kMaxBatch) {
    Matmul p = make_matmul(transpose_a, transpose_b, a, b, c);
    p.batch = std::min(kMaxBatch, c.batch - first);
    const MatmulOperands operands{alpha, b.at(first), a.at(first), beta, const_cast<char*>(c.at(first)), nullptr};
    TERN_CHECK(try_matmul(stream, p, operands, memory), "gemm: cuBLASLt ", cublaslt_info().version,
               " has no algorithm for ", p.describe());
  }
}

int64_t linear_workspace(Stream stream, ConstView x, ConstView weight, View y) {
  const int64_t bias_bytes = align_up(y.cols() * size_of(y.dtype));
  return bias_bytes + gemm_workspace(stream, false, true, as_matrix(x), weight, as_matrix(y)) + kMatmulAlignment;
}

void linear_forward(Stream stream, ConstView x, ConstView weight, ConstView bias, Activation activation, View pre,
                    View y, void* workspace) {
  if (y.numel() == 0) return;
  const View result = as_matrix(y), target = pre && activation != Activation::kNone ? as_matrix(pre) : result;
  linear_product(stream, as_matrix(x), weight, bias, target, align_up(workspace));
  if (activation == Activation::kGelu)
    apply<Gelu>(stream, target, result);
  else if (activation == Activation::kRelu)
    apply<Relu>(stream, target, result);
  else if (pre)
    copy(stream, result, as_matrix(pre));
}

int64_t linear_weight_backward_workspace(Stream stream, ConstView dy, ConstView x, View dweight) {
  const int64_t sums = column_sum_workspace(stream, dy.rows(), dy.cols(), dy.dtype);
  return std::max(sums, gemm_workspace(stream, true, false, dy, x, dweight));
}

void linear_weight_backward(Stream stream, ConstView dy, ConstView x, View dweight, View dbias, void* workspace) {
  const bool product = dy.rows() > 0 && dweight.numel() > 0;
  if (dbias && product && dbias.dtype == dweight.dtype && dweight.dtype != DType::kFloat64) {
    const Matrix a(dy), b(x), c{ConstView(dweight)};
    Matmul p = make_matmul(true, false, a, b, c);
    p.bias = MatmulBias::kGradientOfB;
    p.align_bias = alignment_of(dbias.data);
    if (try_matmul(stream, p, {1, b.data, a.data, 0, dweight.data, dbias.data}, align_up(workspace))) return;
  }
  if (dbias && dbias.numel() > 0) column_sum(stream, dy, false, workspace, dbias);
  gemm(stream, true, false, 1, dy, x, 0, dweight, workspace);
}

const char* gemm_library(Stream) {
  static const std::string text = [] {
    const LibraryInfo& library = cublaslt_info();
    return library.found ? "cuBLASLt " + library.version : "cuBLASLt (not found)";
  }();
  return text.c_str();
}

}  // namespace tern::kernels::cuda

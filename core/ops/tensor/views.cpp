// Views: tensors that share the storage of another.

#include <algorithm>

#include "tern/core/autograd/function.h"
#include "tern/core/ops/indexing/join.h"
#include "tern/core/ops/indexing/rearrange.h"
#include "tern/core/tensor.h"
#include "tern/core/tensor/size_checks.h"

namespace tern {
namespace {

Tensor make_view(const Tensor& x, int64_t offset, const Shape& shape, const Strides& strides) {
  const Tensor view = from_storage(x.storage(), offset, shape, strides, x.dtype());
  view.impl()->is_view = true;
  return view;
}

struct ReshapeView final : TwiceDifferentiable<ReshapeView> {
  static constexpr const char* kName = "reshape";
  Shape shape_;
  Tensor forward(const Tensor& x, const Shape& shape, const Strides& strides) {
    shape_ = x.shape();
    return make_view(x, x.storage_offset(), shape, strides);
  }
  Grads backward(const Tensor& dy) override { return {dy.reshape(shape_)}; }
};

struct Permute final : TwiceDifferentiable<Permute> {
  static constexpr const char* kName = "permute";
  std::vector<int> order_;
  Tensor forward(const Tensor& x, const std::vector<int>& order) {
    order_ = order;
    int64_t sizes[kMaxDims];
    Strides strides{};
    for (int d = 0; d < x.dim(); ++d) {
      sizes[d] = x.shape()[order[static_cast<size_t>(d)]];
      strides[d] = x.strides()[order[static_cast<size_t>(d)]];
    }
    return make_view(x, x.storage_offset(), Shape(sizes, x.dim()), strides);
  }
  Grads backward(const Tensor& dy) override {
    std::vector<int> inverse(order_.size());
    for (size_t d = 0; d < order_.size(); ++d) inverse[static_cast<size_t>(order_[d])] = static_cast<int>(d);
    return {dy.permute(inverse)};
  }
};

struct Expand final : TwiceDifferentiable<Expand> {
  static constexpr const char* kName = "expand";
  Tensor forward(const Tensor& x, const Shape& shape) {
    Strides strides{};
    const int shift = shape.dims() - x.dim();
    for (int d = 0; d < x.dim(); ++d) strides[d + shift] = x.shape()[d] == 1 ? 0 : x.strides()[d];
    return make_view(x, x.storage_offset(), shape, strides);
  }
  Grads backward(const Tensor& dy) override { return {dy}; }  // the engine sums over broadcast dimensions
};

/// A range of one dimension, already clamped.
struct Range {
  int d = 0;
  int64_t begin = 0, count = 0, step = 1;
};

Tensor slice_view(const Tensor& x, const Range& range) {
  Strides strides = x.strides();
  const int64_t offset = x.storage_offset() + (range.count > 0 ? range.begin * strides[range.d] : 0);
  strides[range.d] *= range.step;
  return make_view(x, offset, x.shape().with(range.d, range.count), strides);
}

/// Backward of a slice: writes dy into the range of a tensor of zeros. Its backward is the slice.
struct SliceBackward final : TwiceDifferentiable<SliceBackward> {
  static constexpr const char* kName = "slice_backward";
  Range range_;
  Tensor forward(const Tensor& dy, const Shape& shape, const Range& range) {
    range_ = range;
    const Tensor dx = zeros(shape, dy.options());
    slice_view(dx, range).copy_(dy);
    return dx;
  }
  Grads backward(const Tensor& g) override {
    return {g.slice(range_.d, range_.begin, range_.begin + range_.count * range_.step, range_.step)};
  }
};

struct SliceView final : TwiceDifferentiable<SliceView> {
  static constexpr const char* kName = "slice";
  Shape shape_;
  Range range_;
  Tensor forward(const Tensor& x, const Range& range) {
    shape_ = x.shape();
    range_ = range;
    return slice_view(x, range);
  }
  /// Slices of one tensor add to one gradient, and only the first fills it with zeros.
  bool adds_to_gradient() const override { return true; }
  Grads backward(const Tensor& dy) override {
    const Tensor sum = take_sum();
    if (!sum.defined()) return {SliceBackward::apply(dy, shape_, range_)};
    slice_view(sum, range_).add_(dy);
    return {sum};
  }
};

/// The diagonal of two dimensions of a shape.
struct DiagonalRange {
  int64_t offset = 0;
  int rows = 0, cols = 1;
};

Tensor diagonal_view(const Tensor& x, const DiagonalRange& range) {
  const int64_t down = std::max<int64_t>(-range.offset, 0), right = std::max<int64_t>(range.offset, 0);
  const int64_t count = std::max<int64_t>(std::min(x.shape()[range.rows] - down, x.shape()[range.cols] - right), 0);
  std::vector<int64_t> sizes;
  Strides strides{};
  for (int d = 0; d < x.dim(); ++d)
    if (d != range.rows && d != range.cols) {
      strides[sizes.size()] = x.strides()[d];
      sizes.push_back(x.shape()[d]);
    }
  const int64_t row = x.strides()[range.rows], col = x.strides()[range.cols];
  strides[sizes.size()] = row + col;
  sizes.push_back(count);
  return make_view(x, x.storage_offset() + (count > 0 ? down * row + right * col : 0), Shape(sizes), strides);
}

/// Writes y on the diagonal of a tensor of zeros. Its backward is the diagonal.
struct DiagonalEmbedding final : TwiceDifferentiable<DiagonalEmbedding> {
  static constexpr const char* kName = "diag_embed";
  DiagonalRange range_;
  Tensor forward(const Tensor& y, const Shape& shape, const DiagonalRange& range) {
    range_ = range;
    const Tensor x = zeros(shape, y.options());
    diagonal_view(x, range).copy_(y);
    return x;
  }
  Grads backward(const Tensor& g) override { return {g.diagonal(range_.offset, range_.rows, range_.cols)}; }
};

struct Diagonal final : TwiceDifferentiable<Diagonal> {
  static constexpr const char* kName = "diagonal";
  Shape shape_;
  DiagonalRange range_;
  Tensor forward(const Tensor& x, const DiagonalRange& range) {
    shape_ = x.shape();
    range_ = range;
    return diagonal_view(x, range);
  }
  Grads backward(const Tensor& dy) override { return {DiagonalEmbedding::apply(dy, shape_, range_)}; }
};

/// Throws Error unless rows and cols are different dimensions; a diagonal far outside the matrix is empty.
DiagonalRange diagonal_range(const char* op, int64_t offset, const Shape& shape, int rows, int cols) {
  const DiagonalRange range{std::clamp<int64_t>(offset, -INT64_MAX / 2, INT64_MAX / 2), shape.wrap(rows),
                            shape.wrap(cols)};
  TERN_CHECK(range.rows != range.cols, op, ": dimensions ", rows, " and ", cols, " of ", shape, " are the same");
  return range;
}

/// A piece costs a tensor, its place in the list and an edge of the graph.
constexpr int64_t kPieceBytes = 512;

/// Consecutive ranges that cover a dimension; with `drops` they have size 1 and lose the dimension. A single node,
/// whose backward concatenates the gradients of the pieces.
struct Split final : TwiceDifferentiable<Split> {
  static constexpr const char* kName = "split";
  int dim_ = 0;
  bool drops_ = false;
  std::vector<Tensor> forward(const Tensor& x, const std::vector<int64_t>& sizes, int dim, bool drops) {
    dim_ = dim;
    drops_ = drops;
    std::vector<Tensor> pieces;
    int64_t begin = 0;
    for (const int64_t size : sizes) {
      const Tensor piece = slice_view(x, {dim, begin, size, 1});
      begin += size;
      if (!drops) {
        pieces.push_back(piece);
        continue;
      }
      Strides strides = piece.strides();
      std::copy(strides.begin() + dim + 1, strides.end(), strides.begin() + dim);
      pieces.push_back(make_view(x, piece.storage_offset(), piece.shape().without(dim), strides));
    }
    return pieces;
  }
  Grads backward_all(const Grads& gradients) override {
    Grads pieces = gradients;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const Meta& meta = output_meta()[i];
      if (!pieces[i].defined()) pieces[i] = zeros({}, {meta.dtype, meta.device}).expand(meta.shape);
    }
    return {drops_ ? stack(pieces, dim_) : cat(pieces, dim_)};
  }
};

/// Replaces a -1 in the shape by the size that the number of elements implies.
Shape infer_shape(const Tensor& x, const std::vector<int64_t>& sizes) {
  std::vector<int64_t> result = sizes;
  int64_t known = 1;
  int unknown = -1;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != -1) {
      TERN_CHECK(!__builtin_mul_overflow(known, sizes[d], &known),
                 "reshape: the requested sizes do not fit into 64 bits");
      continue;
    }
    TERN_CHECK(unknown < 0, "reshape: only one size may be -1");
    unknown = static_cast<int>(d);
  }
  if (unknown >= 0) {
    TERN_CHECK(known != 0 && x.numel() % known == 0, "reshape: ", x.shape(), " cannot be reshaped: ", x.numel(),
               " elements are not a multiple of ", known);
    result[static_cast<size_t>(unknown)] = x.numel() / known;
  }
  const Shape shape(result);
  TERN_CHECK(shape.numel() == x.numel(), "reshape: ", x.shape(), " has ", x.numel(), " elements, ", shape, " has ",
             shape.numel());
  return shape;
}

/// Computes strides that give x's storage the new shape, if possible: each run of dimensions with uniform strides is
/// split into dimensions of the new shape.
bool view_strides(const Tensor& x, const Shape& shape, Strides& strides) {
  strides = contiguous_strides(shape);
  if (x.is_contiguous() || x.numel() == 0) return true;
  int to = shape.dims() - 1;
  int64_t run = 1;   // elements of the current run, from its last dimension
  int64_t base = 1;  // stride of the run's last dimension
  int64_t taken = 1;
  bool open = false;
  for (int d = x.dim() - 1; d >= 0; --d) {
    if (x.shape()[d] == 1) continue;
    if (!open) {
      base = x.strides()[d];
      run = taken = 1;
      open = true;
    }
    run *= x.shape()[d];
    int next = d - 1;
    while (next >= 0 && x.shape()[next] == 1) --next;
    const bool continues = next >= 0 && x.strides()[next] == x.strides()[d] * x.shape()[d];
    if (continues) continue;
    while (to >= 0 && (taken < run || shape[to] == 1)) {
      strides[to] = base * taken;
      taken *= shape[to];
      --to;
    }
    if (taken != run) return false;
    open = false;
  }
  for (; to >= 0; --to) strides[to] = 1;
  return true;
}

}  // namespace

Tensor Tensor::reshape(const std::vector<int64_t>& sizes) const {
  const Shape shape = infer_shape(*this, sizes);
  if (shape == this->shape()) return *this;
  Strides strides;
  if (!view_strides(*this, shape, strides)) return contiguous().reshape(shape);
  return ReshapeView::apply(*this, shape, strides);
}

Tensor Tensor::view(DType dtype) const {
  if (dtype == this->dtype()) return *this;
  TERN_CHECK(size_of(dtype) == size_of(this->dtype()) && dtype != DType::kBool, "view: ", this->dtype(),
             " elements cannot be read as ", dtype, ": the size must be ", size_of(this->dtype()),
             " bytes, and bool is not taken; convert values with to(dtype)");
  if (detail::TraceSink* const sink = detail::active_trace())
    return detail::record_call(
        *sink, "view", [](const Tensor& x, DType wanted) { return x.view(wanted); }, *this, dtype);
  const Tensor bits = from_storage(storage(), storage_offset(), shape(), strides(), dtype);
  bits.impl()->is_view = true;
  return bits;
}

Tensor Tensor::flatten(int start, int end) const {
  if (dim() == 0) return reshape(Shape{1});
  const int first = shape().wrap(start), last = shape().wrap(end);
  TERN_CHECK(first <= last, "flatten: start dimension ", start, " comes after end dimension ", end);
  std::vector<int64_t> sizes(shape().begin(), shape().begin() + first);
  int64_t product = 1;
  for (int d = first; d <= last; ++d) product *= shape()[d];
  sizes.push_back(product);
  sizes.insert(sizes.end(), shape().begin() + last + 1, shape().end());
  return reshape(Shape(sizes));
}

Tensor Tensor::permute(const std::vector<int>& order) const {
  TERN_CHECK(static_cast<int>(order.size()) == dim(), "permute: ", order.size(), " dimensions for shape ", shape());
  std::vector<int> wrapped;
  for (int d : order) {
    wrapped.push_back(shape().wrap(d));
    TERN_CHECK(std::count(wrapped.begin(), wrapped.end(), wrapped.back()) == 1, "permute: dimension ", d,
               " is repeated");
  }
  return Permute::apply(*this, wrapped);
}

Tensor Tensor::transpose(int a, int b) const {
  std::vector<int> order(static_cast<size_t>(dim()));
  for (int d = 0; d < dim(); ++d) order[static_cast<size_t>(d)] = d;
  std::swap(order[static_cast<size_t>(shape().wrap(a))], order[static_cast<size_t>(shape().wrap(b))]);
  return permute(order);
}

Tensor Tensor::movedim(const std::vector<int>& source, const std::vector<int>& destination) const {
  TERN_CHECK(source.size() == destination.size(), "movedim: ", source.size(), " dimensions and ", destination.size(),
             " destinations");
  constexpr int kFree = -1;
  std::vector<int> order(static_cast<size_t>(dim()), kFree), rest;
  for (size_t i = 0; i < source.size(); ++i) {
    int& place = order[static_cast<size_t>(shape().wrap(destination[i]))];
    TERN_CHECK(place == kFree, "movedim: destination ", destination[i], " is repeated");
    place = shape().wrap(source[i]);
    TERN_CHECK(std::count(order.begin(), order.end(), place) == 1, "movedim: dimension ", source[i], " is repeated");
  }
  for (int d = 0; d < dim(); ++d)
    if (std::count(order.begin(), order.end(), d) == 0) rest.push_back(d);
  auto next = rest.begin();
  for (int& d : order)
    if (d == kFree) d = *next++;
  return permute(order);
}

Tensor Tensor::unflatten(int dim, const std::vector<int64_t>& sizes) const {
  const int i = shape().wrap(dim);
  TERN_CHECK(!sizes.empty(), "unflatten: expected at least one size");
  std::vector<int64_t> inner = sizes;
  int64_t known = 1;
  for (const int64_t size : sizes)
    if (size != -1) TERN_CHECK(!__builtin_mul_overflow(known, size, &known), "unflatten: the sizes exceed 64 bits");
  const auto unknown = std::count(sizes.begin(), sizes.end(), -1);
  TERN_CHECK(unknown <= 1, "unflatten: only one size may be -1");
  if (unknown == 1 && known != 0) *std::find(inner.begin(), inner.end(), -1) = shape()[i] / known;
  TERN_CHECK(unknown == 0 ? known == shape()[i] : known > 0 && shape()[i] % known == 0, "unflatten: the sizes ",
             Shape(inner).str(), " do not make up dimension ", dim, " of ", shape());
  std::vector<int64_t> all(shape().begin(), shape().begin() + i);
  all.insert(all.end(), inner.begin(), inner.end());
  all.insert(all.end(), shape().begin() + i + 1, shape().end());
  return reshape(Shape(all));
}

Tensor Tensor::squeeze(const std::vector<int>& dims) const {
  uint32_t listed = 0;
  for (const int dim : dims) {
    const uint32_t bit = 1u << shape().wrap(dim);
    TERN_CHECK((listed & bit) == 0, "squeeze: dimension ", dim, " is repeated");
    listed |= bit;
  }
  std::vector<int64_t> sizes;
  for (int d = 0; d < dim(); ++d)
    if (shape()[d] != 1 || (listed >> d & 1) == 0) sizes.push_back(shape()[d]);
  return reshape(Shape(sizes));
}

Tensor Tensor::squeeze() const {
  std::vector<int64_t> sizes = shape().vec();
  std::erase(sizes, 1);
  return reshape(Shape(sizes));
}

Tensor Tensor::squeeze(int dim) const {
  const int i = shape().wrap(dim);
  return shape()[i] == 1 ? reshape(shape().without(i)) : *this;
}

Tensor Tensor::unsqueeze(int dim) const { return reshape(shape().inserted(dim, 1)); }

Tensor Tensor::expand(const std::vector<int64_t>& sizes) const {
  std::vector<int64_t> result = sizes;
  const int shift = static_cast<int>(sizes.size()) - dim();
  TERN_CHECK(shift >= 0, "expand: ", shape(), " has more dimensions than the ", sizes.size(), " requested");
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != -1) continue;
    TERN_CHECK(static_cast<int>(d) >= shift, "expand: a new dimension ", d, " cannot be -1");
    result[d] = shape()[static_cast<int>(d) - shift];
  }
  const Shape target(result);
  TERN_CHECK(broadcasts_to(shape(), target), "expand: ", shape(), " does not broadcast to ", target);
  if (target == shape()) return *this;
  return Expand::apply(*this, target);
}

Tensor Tensor::slice(int dim, int64_t begin, int64_t end, int64_t step) const {
  TERN_CHECK(step >= 1, "slice: step must be at least 1, got ", step);
  const int i = shape().wrap(dim);
  const int64_t size = shape()[i];
  const auto clamp = [&](int64_t v) { return std::clamp<int64_t>(v < 0 ? v + size : v, 0, size); };
  const int64_t first = clamp(begin), last = std::max(clamp(end), first);
  step = std::min(step, std::max<int64_t>(size, 1));  // a longer step also selects only the first element
  const Range range{i, first, (last - first + step - 1) / step, step};
  if (range.begin == 0 && range.count == size && step == 1) return *this;
  return SliceView::apply(*this, range);
}

Tensor Tensor::narrow(int dim, int64_t start, int64_t length) const {
  const int64_t size = shape().size(dim), first = start < 0 ? start + size : start;
  TERN_CHECK(first >= 0 && first <= size && length >= 0 && length <= size - first, "narrow: start ", start,
             " and length ", length, " do not fit into dimension ", dim, " of ", shape());
  return slice(dim, first, first + length);
}

Tensor Tensor::select(int dim, int64_t index) const {
  const int i = shape().wrap(dim);
  const int64_t at = index < 0 ? index + shape()[i] : index;
  TERN_CHECK(at >= 0 && at < shape()[i], "select: index ", index, " is out of range for dimension ", dim, " of ",
             shape());
  return slice(i, at, at + 1).reshape(shape().without(i));
}

std::vector<Tensor> Tensor::split(const std::vector<int64_t>& sizes, int dim) const {
  const int i = shape().wrap(dim);
  int64_t end = 0;
  for (int64_t size : sizes) {
    TERN_CHECK(size >= 0 && size <= shape()[i] - end, "split: the sizes do not add up to dimension ", dim, " of ",
               shape());
    end += size;
  }
  TERN_CHECK(end == shape()[i], "split: the sizes add up to ", end, ", dimension ", dim, " of ", shape(), " has ",
             shape()[i]);
  if (sizes.empty()) return {};
  return sizes.size() == 1 ? std::vector<Tensor>{*this} : Split::apply(*this, sizes, i, false);
}

std::vector<Tensor> Tensor::unbind(int dim) const {
  const int i = shape().wrap(dim);
  detail::check_host_list("unbind", shape()[i], kPieceBytes);
  const auto count = static_cast<size_t>(shape()[i]);
  return count == 0 ? std::vector<Tensor>() : Split::apply(*this, std::vector<int64_t>(count, 1), i, true);
}

std::vector<Tensor> Tensor::split(int64_t size, int dim) const {
  const int64_t whole = shape().size(dim);
  TERN_CHECK(size > 0 || (size == 0 && whole == 0), "split: the size of a piece must be positive, got ", size,
             " for dimension ", dim, " of ", shape());
  detail::check_host_list("split", size > 0 ? (whole - 1) / size : 0, kPieceBytes);
  std::vector<int64_t> sizes;
  for (int64_t begin = 0; begin < whole; begin += sizes.back()) sizes.push_back(std::min(size, whole - begin));
  if (sizes.empty()) sizes.push_back(0);
  return split(sizes, dim);
}

std::vector<Tensor> Tensor::chunk(int64_t pieces, int dim) const {
  const int64_t whole = shape().size(dim);
  TERN_CHECK(pieces >= 1, "chunk: the number of pieces must be positive, got ", pieces);
  if (whole == 0) detail::check_host_list("chunk", pieces, kPieceBytes);
  if (whole == 0) return split(std::vector<int64_t>(static_cast<size_t>(pieces), 0), dim);
  return split((whole - 1) / pieces + 1, dim);
}

std::vector<Tensor> Tensor::tensor_split(int64_t pieces, int dim) const {
  const int64_t whole = shape().size(dim);
  TERN_CHECK(pieces >= 1, "tensor_split: the number of pieces must be positive, got ", pieces);
  detail::check_host_list("tensor_split", pieces, kPieceBytes);
  std::vector<int64_t> sizes(static_cast<size_t>(pieces), whole / pieces);
  for (int64_t i = 0; i < whole % pieces; ++i) ++sizes[static_cast<size_t>(i)];
  return split(sizes, dim);
}

std::vector<Tensor> Tensor::tensor_split(const std::vector<int64_t>& indices, int dim) const {
  std::vector<Tensor> pieces;
  int64_t begin = 0;
  for (const int64_t index : indices) {
    pieces.push_back(slice(dim, begin, index));
    begin = index;
  }
  pieces.push_back(slice(dim, begin));
  return pieces;
}

Tensor Tensor::diagonal(int64_t offset, int dim1, int dim2) const {
  return Diagonal::apply(*this, diagonal_range("diagonal", offset, shape(), dim1, dim2));
}

Tensor diag_embed(const Tensor& x, int64_t offset, int dim1, int dim2) {
  TERN_CHECK(x.dim() >= 1, "diag_embed: expected at least one dimension, got ", x.shape());
  constexpr int64_t kFar = int64_t{1} << 60;
  TERN_CHECK(offset > -kFar && offset < kFar, "diag_embed: the offset ", offset, " is too large");
  const int64_t size = x.size(-1) + std::abs(offset);
  const Shape vectors = x.shape().without(-1), wrapped = vectors.inserted(0, size).inserted(0, size);
  const DiagonalRange range = diagonal_range("diag_embed", offset, wrapped, dim1, dim2);
  const int low = std::min(range.rows, range.cols), high = std::max(range.rows, range.cols);
  return DiagonalEmbedding::apply(x, vectors.inserted(low, size).inserted(high, size), range);
}

}  // namespace tern

#include "tern/core/ops/indexing/rearrange.h"

#include <algorithm>

#include "tern/core/autograd/function.h"
#include "tern/core/ops/indexing/gather.h"
#include "tern/core/ops/indexing/nonzero.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"
#include "tern/core/ops/reduce/run_reduction.h"
#include "tern/core/ops/sort/cumulative.h"
#include "tern/core/ops/sort/search.h"
#include "tern/core/ops/sort/sort.h"
#include "tern/core/tensor/size_checks.h"
#include "tern/core/tensor/tensor_impl.h"
#include "tern/kernels/copy.h"

namespace tern {
namespace {

/// A run of indices of one dimension: the result's `to`, to + 1, ... are the source's `from`, from + step, ...; step is
/// 1, -1, or 0 for one index that is repeated.
struct Piece {
  int64_t from = 0, to = 0, count = 0, step = 1;
};
/// The pieces of every dimension. A result consists of a block for each combination of them.
using Pieces = std::vector<std::vector<Piece>>;

Pieces whole(const Shape& shape) {
  Pieces pieces;
  for (const int64_t size : shape) pieces.push_back({{0, 0, size, 1}});
  return pieces;
}

/// Calls use(source view, result view) for each block.
template <class Use>
void for_each_block(const Tensor& source, const Tensor& result, const Pieces& pieces, const Use& use) {
  const size_t dims = pieces.size();
  std::vector<size_t> at(dims, 0);
  if (std::any_of(pieces.begin(), pieces.end(), [](const auto& of_dim) { return of_dim.empty(); })) return;
  for (size_t d = 0; d < dims || dims == 0;) {
    Shape shape = source.shape();
    Strides from = source.strides(), to = result.strides();
    int64_t from_offset = source.storage_offset(), to_offset = result.storage_offset();
    for (size_t e = 0; e < dims; ++e) {
      const Piece& piece = pieces[e][at[e]];
      shape = shape.with(static_cast<int>(e), piece.count);
      from_offset += piece.from * from[e];
      to_offset += piece.to * to[e];
      from[e] *= piece.step;
    }
    if (shape.numel() > 0)
      use(from_storage(source.storage(), from_offset, shape, from, source.dtype()),
          from_storage(result.storage(), to_offset, shape, to, result.dtype()));
    for (d = 0; d < dims && ++at[d] == pieces[d].size(); ++d) at[d] = 0;
    if (dims == 0) return;
  }
}

/// Fills y outside of the one block that the pieces make, without writing to the block.
void fill_outside(const Tensor& y, const Pieces& pieces, double value) {
  const kernels::Stream stream = current_stream(y.device());
  Tensor rest = y;
  for (int d = 0; d < y.dim(); ++d) {
    const auto& of_dim = pieces[static_cast<size_t>(d)];
    const int64_t begin = of_dim.empty() ? 0 : of_dim[0].to, end = of_dim.empty() ? 0 : begin + of_dim[0].count;
    for (const Tensor& side : {rest.slice(d, 0, begin), rest.slice(d, end)})
      if (side.numel() > 0) kernels::fill(stream, value, side.view());
    rest = rest.slice(d, begin, end);
  }
}

/// The map from the result back to the source.
Pieces inverse(const Pieces& pieces) {
  Pieces result = pieces;
  for (auto& of_dim : result)
    for (Piece& piece : of_dim) {
      const int64_t back = piece.step < 0 ? piece.count - 1 : 0;
      piece = {piece.to + back, piece.from - back, piece.count, piece.step};
    }
  return result;
}

bool reads_once(const Pieces& pieces, const Shape& source) {
  for (int d = 0; d < source.dims(); ++d) {
    int64_t count = 0;
    for (const Piece& piece : pieces[static_cast<size_t>(d)]) {
      if (piece.step == 0) return false;
      count += piece.count;
    }
    if (count > source[d]) return false;
  }
  return true;
}

/// In memory like x, if that has its channels last.
Tensor ordered(const Tensor& x, const Shape& shape) {
  return detail::has_channels_last(x) ? detail::empty_channels_last(shape, x.options()) : empty(shape, x.options());
}

Tensor rearrange(const Tensor& x, const Shape& shape, const Pieces& pieces, double value = 0);

/// The gradient of a Rearrange that reads elements several times: each gets the sum of the gradients of its copies.
struct RearrangeGradient final : TwiceDifferentiable<RearrangeGradient> {
  static constexpr const char* kName = "rearrange_gradient";
  Shape shape_;
  Pieces pieces_;
  Tensor forward(const Tensor& dy, const Shape& shape, const Pieces& pieces) {
    shape_ = dy.shape();
    pieces_ = pieces;
    // Several blocks may add to one element of dx: 16-bit floats then in fp32.
    const Tensor wide = reads_once(pieces, shape) ? dy : dy.to(detail::accumulation_type(dy.dtype())),
                 dx = ordered(wide, shape);
    kernels::fill(current_stream(dx.device()), 0, dx.view());
    for_each_block(dx, wide, pieces, [&](const Tensor& to, const Tensor& from) {
      std::vector<int> repeated, flipped;
      Tensor target = to, gradient = from;
      for (int d = 0; d < to.dim(); ++d) {
        if (to.strides()[d] < 0) flipped.push_back(d);
        if (to.strides()[d] == 0 && to.size(d) > 1) repeated.push_back(d);
      }
      if (!repeated.empty()) gradient = sum(gradient, repeated, true);
      for (const int d : repeated) target = target.slice(d, 0, 1);
      add_reversed(target, gradient, flipped);
    });
    return dx.to(dy.dtype());
  }
  Grads backward(const Tensor& g) override { return {rearrange(g, shape_, pieces_)}; }

 private:
  /// target += gradient, read and written from the other end of `flipped`, along which target descends.
  static void add_reversed(const Tensor& target, const Tensor& gradient, const std::vector<int>& flipped) {
    const auto turned = [&](const Tensor& x) {
      Strides strides = x.strides();
      int64_t offset = x.storage_offset();
      for (const int d : flipped) {
        offset += (x.size(d) - 1) * strides[d];
        strides[d] = -strides[d];
      }
      return from_storage(x.storage(), offset, x.shape(), strides, x.dtype());
    };
    turned(target).add_(turned(gradient));
  }
};

/// A tensor made of blocks of another, and of `value` where there is none.
struct Rearrange final : TwiceDifferentiable<Rearrange> {
  static constexpr const char* kName = "rearrange";
  Shape shape_;
  Pieces pieces_;
  Tensor forward(const Tensor& x, const Shape& shape, const Pieces& pieces, double value) {
    shape_ = x.shape();
    pieces_ = pieces;
    const Tensor y = ordered(x, shape);
    if (std::all_of(pieces.begin(), pieces.end(), [](const auto& of_dim) { return of_dim.size() <= 1; }))
      fill_outside(y, pieces, value);
    for_each_block(x, y, pieces, [&](const Tensor& from, const Tensor& to) {
      kernels::copy(current_stream(x.device()), from.view(), to.view());
    });
    return y;
  }
  Grads backward(const Tensor& dy) override {
    if (reads_once(pieces_, shape_)) return {rearrange(dy, shape_, inverse(pieces_))};
    return {RearrangeGradient::apply(dy, shape_, pieces_)};
  }
};

Tensor rearrange(const Tensor& x, const Shape& shape, const Pieces& pieces, double value) {
  return Rearrange::apply(x, shape, pieces, value);
}

/// A tensor that does not share x's memory.
Tensor own(const Tensor& x, const Tensor& result) { return result.storage() == x.storage() ? result.clone() : result; }

/// The pieces of a padded dimension of this size, without those of no elements.
std::vector<Piece> padded(PadMode mode, int64_t size, int64_t before, int64_t after) {
  const int64_t first = std::max<int64_t>(-before, 0), last = std::max<int64_t>(-after, 0);
  std::vector<Piece> pieces = {{first, std::max<int64_t>(before, 0), size - first - last, 1}};
  const int64_t end = before + size;
  if (mode == PadMode::kReflect) pieces.insert(pieces.end(), {{before, 0, before, -1}, {size - 2, end, after, -1}});
  if (mode == PadMode::kReplicate) pieces.insert(pieces.end(), {{0, 0, before, 0}, {size - 1, end, after, 0}});
  if (mode == PadMode::kCircular) pieces.insert(pieces.end(), {{size - before, 0, before, 1}, {0, end, after, 1}});
  std::erase_if(pieces, [](const Piece& piece) { return piece.count == 0; });
  return pieces;
}

/// Throws Error unless this mode can pad a dimension of this size.
void check_padding(const Tensor& x, PadMode mode, int dim, int64_t before, int64_t after) {
  const int64_t size = x.size(dim), low = std::min(before, after), high = std::max(before, after);
  constexpr int64_t kMost = int64_t{1} << 60;
  TERN_CHECK(low > -kMost && high < kMost, "pad: a padding of ", before, " and ", after, " does not fit into memory");
  if (mode == PadMode::kConstant) {
    TERN_CHECK(std::min<int64_t>(before, 0) + std::min<int64_t>(after, 0) + size >= 0, "pad: ", before, " and ", after,
               " remove more than the ", size, " elements of dimension ", dim, " of ", x.shape());
    return;
  }
  TERN_CHECK(low >= 0, "pad: only the constant mode takes negative padding, got ", before, " and ", after,
             " for dimension ", dim, "; use slice");
  const int64_t most = mode == PadMode::kReflect ? size - 1 : mode == PadMode::kCircular ? size : size > 0 ? kMost : 0;
  TERN_CHECK(high == 0 || high <= most, "pad: dimension ", dim, " of ", x.shape(), " can be padded by at most ", most,
             " in this mode, got ", before, " and ", after);
}

Tensor triangle(const char* op, const Tensor& x, int64_t diagonal, bool lower);

struct Triangle final : TwiceDifferentiable<Triangle> {
  static constexpr const char* kName = "triangle";
  int64_t diagonal_ = 0;
  bool lower_ = false;
  Tensor forward(const Tensor& x, int64_t diagonal, bool lower) {
    diagonal_ = diagonal;
    lower_ = lower;
    const Tensor y = empty(x.shape(), x.options());
    kernels::triangle(current_stream(x.device()), x.contiguous().view(), diagonal, lower, y.view());
    return y;
  }
  Grads backward(const Tensor& dy) override { return {triangle(kName, dy, diagonal_, lower_)}; }
};

Tensor triangle(const char* op, const Tensor& x, int64_t diagonal, bool lower) {
  TERN_CHECK(x.dim() >= 2, op, ": expected matrices [..., rows, cols], got ", x.shape());
  constexpr int64_t kFar = int64_t{1} << 62;
  return Triangle::apply(x, std::clamp(diagonal, -kFar, kFar), lower);
}

/// Rows of x, each at its place, as often as the tensor says.
Tensor repeat_by(const Tensor& x, const Tensor& repeats, int dim) {
  const int d = x.shape().wrap(dim);
  TERN_CHECK(repeats.dim() <= 1 && (repeats.dtype() == DType::kInt64 || repeats.dtype() == DType::kInt32),
             "repeat_interleave: repeats must be int64 or int32 with one dimension, got ", repeats.describe());
  TERN_CHECK(repeats.numel() == 1 || repeats.numel() == x.size(d), "repeat_interleave: ", repeats.numel(),
             " repeats for ", x.size(d), " elements along dimension ", dim, " of ", x.shape());
  const Tensor counts = repeats.detach().reshape({-1}).expand({x.size(d)}).to(DType::kInt64);
  if (x.size(d) == 0) return x.clone();
  const int64_t least = min(counts).item<int64_t>();
  TERN_CHECK(least >= 0, "repeat_interleave: repeats must not be negative, got ", least);
  // A sum of fp64 numbers does not wrap around.
  TERN_CHECK(sum(counts.to(DType::kFloat64)).item<double>() < 0x1p53,
             "repeat_interleave: the sum of the repeats does not fit into memory");
  const Tensor ends = cumsum(counts, 0);
  const int64_t total = ends[-1].item<int64_t>();
  const Tensor places = arange(0, static_cast<double>(total), 1, {DType::kInt64, x.device()});
  return index_select(x, d, searchsorted(ends, places, true));
}

}  // namespace

Tensor flip(const Tensor& x, const std::vector<int>& dims) {
  Pieces pieces = whole(x.shape());
  for (const int dim : dims) {
    const int d = x.shape().wrap(dim);
    TERN_CHECK(pieces[static_cast<size_t>(d)][0].step == 1, "flip: dimension ", dim, " is repeated");
    pieces[static_cast<size_t>(d)] = {{x.size(d) - 1, 0, x.size(d), -1}};
  }
  return rearrange(x, x.shape(), pieces);
}

Tensor rot90(const Tensor& x, int64_t k, int dim0, int dim1) {
  const int first = x.shape().wrap(dim0), second = x.shape().wrap(dim1);
  TERN_CHECK(first != second, "rot90: expected two different dimensions, got ", dim0, " and ", dim1);
  const int64_t turns = (k % 4 + 4) % 4;
  if (turns % 2 == 0) return turns == 0 ? x.clone() : flip(x, {first, second});
  return flip(x, {turns == 1 ? second : first}).transpose(first, second);
}

Tensor roll(const Tensor& x, const std::vector<int64_t>& shifts, const std::vector<int>& dims) {
  if (dims.empty() && shifts.size() == 1) return roll(x.reshape({x.numel()}), shifts, {0}).reshape(x.shape());
  TERN_CHECK(shifts.size() == dims.size(), "roll: ", shifts.size(), " shifts for ", dims.size(), " dimensions");
  std::vector<int64_t> by(static_cast<size_t>(x.dim()), 0);
  for (size_t i = 0; i < dims.size(); ++i) {
    const int d = x.shape().wrap(dims[i]);
    const int64_t size = std::max<int64_t>(x.size(d), 1);
    int64_t& shift = by[static_cast<size_t>(d)];
    shift = (shift + shifts[i] % size + size) % size;
  }
  Pieces pieces = whole(x.shape());
  for (int d = 0; d < x.dim(); ++d)
    if (const int64_t k = by[static_cast<size_t>(d)]; k > 0)
      pieces[static_cast<size_t>(d)] = {{x.size(d) - k, 0, k, 1}, {0, k, x.size(d) - k, 1}};
  return rearrange(x, x.shape(), pieces);
}

Tensor repeat(const Tensor& x, const std::vector<int64_t>& repeats) {
  const int missing = static_cast<int>(repeats.size()) - x.dim();
  TERN_CHECK(missing >= 0, "repeat: ", repeats.size(), " repeats for the ", x.dim(), " dimensions of ", x.shape(),
             "; there may be more but not fewer");
  Tensor y = x;
  for (int d = 0; d < missing; ++d) y = y.unsqueeze(0);
  for (int d = 0; d < y.dim(); ++d) {
    const int64_t times = repeats[static_cast<size_t>(d)], size = y.size(d);
    TERN_CHECK(times >= 0, "repeat: the number of repeats must not be negative, got ", times);
    if (times == 1) continue;
    if (size == 1) {
      y = y.expand(y.shape().with(d, times));
      continue;
    }
    const int64_t total = detail::checked_product("repeat", times, size);
    // An eighth dimension leaves no room for the one of the repeats.
    y = y.dim() < kMaxDims
            ? y.unsqueeze(d).expand(y.shape().inserted(d, times)).reshape(y.shape().with(d, total))
            : index_select(y, d,
                           remainder(arange(0, static_cast<double>(total), 1, {DType::kInt64, x.device()}),
                                     static_cast<double>(size)));
  }
  return own(x, y);
}

Tensor tile(const Tensor& x, const std::vector<int64_t>& repeats) {
  std::vector<int64_t> all = repeats;
  if (static_cast<int>(all.size()) < x.dim()) all.insert(all.begin(), static_cast<size_t>(x.dim()) - all.size(), 1);
  return repeat(x, all);
}

Tensor repeat_interleave(const Tensor& x, int64_t repeats) { return repeat_interleave(x.flatten(), repeats, 0); }

Tensor repeat_interleave(const Tensor& x, int64_t repeats, int dim) {
  TERN_CHECK(repeats >= 0, "repeat_interleave: repeats must not be negative, got ", repeats);
  const int d = x.shape().wrap(dim);
  const int64_t total = detail::checked_product("repeat_interleave", repeats, x.size(d));
  if (x.dim() == kMaxDims) return repeat_by(x, full({1}, static_cast<double>(repeats), {DType::kInt64, x.device()}), d);
  return own(x, x.unsqueeze(d + 1).expand(x.shape().inserted(d + 1, repeats)).reshape(x.shape().with(d, total)));
}

Tensor repeat_interleave(const Tensor& x, const Tensor& repeats) { return repeat_by(x.flatten(), repeats, 0); }

Tensor repeat_interleave(const Tensor& x, const Tensor& repeats, int dim) { return repeat_by(x, repeats, dim); }

Tensor pad(const Tensor& x, const std::vector<int64_t>& padding, PadMode mode, double value) {
  TERN_CHECK(padding.size() % 2 == 0 && padding.size() / 2 <= static_cast<size_t>(x.dim()),
             "pad: expected two numbers for each of up to ", x.dim(), " dimensions of ", x.shape(), ", got ",
             padding.size());
  Pieces pieces = whole(x.shape());
  Shape shape = x.shape();
  for (size_t i = 0; i < padding.size(); i += 2) {
    const int d = x.dim() - 1 - static_cast<int>(i / 2);
    const int64_t before = padding[i], after = padding[i + 1], size = x.size(d);
    check_padding(x, mode, d, before, after);
    pieces[static_cast<size_t>(d)] = padded(mode, size, before, after);
    shape = shape.with(d, before + size + after);
  }
  return rearrange(x, shape, pieces, value);
}

Tensor tril(const Tensor& x, int64_t diagonal) { return triangle("tril", x, diagonal, true); }
Tensor triu(const Tensor& x, int64_t diagonal) { return triangle("triu", x, diagonal, false); }

namespace {
Tensor triangle_indices(bool lower, int64_t rows, int64_t cols, int64_t diagonal, const TensorOptions& options) {
  const Tensor all = ones({rows, cols}, {DType::kBool, options.device});
  return nonzero(lower ? tril(all, diagonal) : triu(all, diagonal)).t().to(options.dtype).contiguous();
}
}  // namespace
Tensor tril_indices(int64_t rows, int64_t cols, int64_t diagonal, const TensorOptions& options) {
  return triangle_indices(true, rows, cols, diagonal, options);
}
Tensor triu_indices(int64_t rows, int64_t cols, int64_t diagonal, const TensorOptions& options) {
  return triangle_indices(false, rows, cols, diagonal, options);
}

Tensor diag(const Tensor& x, int64_t diagonal) {
  TERN_CHECK(x.dim() == 1 || x.dim() == 2, "diag: expected a vector or a matrix, got ", x.shape(),
             "; use diag_embed or diagonal");
  return x.dim() == 1 ? diag_embed(x, diagonal) : x.diagonal(diagonal).clone();
}

Tensor trace(const Tensor& x) {
  TERN_CHECK(x.dim() == 2, "trace: expected a matrix, got ", x.shape());
  return sum(x.diagonal());
}

}  // namespace tern

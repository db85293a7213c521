#include "tern/core/ops/indexing/grids.h"

#include <algorithm>

#include "tern/core/ops/indexing/index.h"
#include "tern/core/ops/indexing/join.h"
#include "tern/core/ops/indexing/rearrange.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"
#include "tern/core/ops/sort/cumulative.h"
#include "tern/core/ops/sort/sort.h"
#include "tern/core/tensor/size_checks.h"

namespace tern {

std::vector<Tensor> meshgrid(const std::vector<Tensor>& tensors, Indexing indexing) {
  TERN_CHECK(!tensors.empty() && tensors.size() <= kMaxDims, "meshgrid: expected 1 to ", kMaxDims, " tensors, got ",
             tensors.size());
  const bool exchanged = indexing == Indexing::kXY && tensors.size() >= 2;
  const auto place_of = [&](size_t i) { return exchanged && i < 2 ? 1 - i : i; };
  std::vector<int64_t> sizes(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    TERN_CHECK(tensors[i].dim() <= 1, "meshgrid: expected vectors, got ", tensors[i].shape());
    TERN_CHECK(tensors[i].dtype() == tensors[0].dtype() && tensors[i].device() == tensors[0].device(),
               "meshgrid: all tensors must have one dtype and device, got ", tensors[0].describe(), " and ",
               tensors[i].describe());
    sizes[place_of(i)] = tensors[i].numel();
  }
  std::vector<Tensor> grids;
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::vector<int64_t> own_sizes(tensors.size(), 1);
    own_sizes[place_of(i)] = tensors[i].numel();
    grids.push_back(tensors[i].reshape(own_sizes).expand(sizes));
  }
  return grids;
}

Tensor cartesian_prod(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> columns;
  for (const Tensor& grid : meshgrid(tensors)) columns.push_back(grid.flatten());
  return columns.size() == 1 ? columns[0] : stack(columns, 1);
}

std::vector<Tensor> broadcast_tensors(const std::vector<Tensor>& tensors) {
  Shape shape;
  for (const Tensor& x : tensors) shape = broadcast_shapes("broadcast_tensors", shape, x.shape());
  std::vector<Tensor> all;
  for (const Tensor& x : tensors) all.push_back(x.expand(shape));
  return all;
}

namespace {
/// n over r, or as much as is too many.
int64_t combinations_of(int64_t n, int64_t r) {
  constexpr int64_t kTooMany = INT64_MAX / 2;
  if (r > n) return 0;
  int64_t count = 1;
  for (int64_t i = 1; i <= std::min(r, n - r); ++i) {
    // The division is exact. From the second factor on the count grows with i, so that few steps lead to too many.
    const __int128 next = static_cast<__int128>(count) * (n - i + 1) / i;
    if (next > kTooMany) return kTooMany;
    count = static_cast<int64_t>(next);
  }
  return count;
}
}  // namespace

Tensor combinations(const Tensor& x, int64_t r, bool with_replacement) {
  TERN_CHECK(x.dim() == 1, "combinations: expected a vector, got ", x.shape());
  TERN_CHECK(r >= 0, "combinations: r must not be negative, got ", r);
  const int64_t n = x.numel();
  if (r == 0) return zeros({0}, x.options());
  const int64_t choices = with_replacement && n > 0 ? detail::checked_sum("combinations", n - 1, r) : n;
  const int64_t expected = combinations_of(choices, r);
  if (expected == 0) return zeros({0, r}, x.options());
  detail::check_host_list("combinations", detail::checked_product("combinations", expected, r));
  std::vector<int64_t> indices, at(static_cast<size_t>(r));
  for (int64_t i = 0; i < r; ++i) at[static_cast<size_t>(i)] = with_replacement ? 0 : i;
  // at[i] goes up to n - 1, or leaves room for the larger indices after it.
  const auto last = [&](int64_t i) { return with_replacement ? n - 1 : n - r + i; };
  for (int64_t i = n > 0 && last(0) >= 0 ? 0 : -1; i >= 0;) {
    indices.insert(indices.end(), at.begin(), at.end());
    for (i = r - 1; i >= 0 && at[static_cast<size_t>(i)] == last(i);) --i;
    if (i < 0) break;
    const int64_t next = ++at[static_cast<size_t>(i)];
    for (int64_t j = i + 1; j < r; ++j) at[static_cast<size_t>(j)] = with_replacement ? next : next + j - i;
  }
  const int64_t count = static_cast<int64_t>(indices.size()) / r;
  return take(x, from_vector(indices, {count, r}).to(x.device()));
}

Tensor vander(const Tensor& x, std::optional<int64_t> columns, bool increasing) {
  TERN_CHECK(x.dim() == 1, "vander: expected a vector, got ", x.shape());
  const int64_t count = columns.value_or(x.numel());
  TERN_CHECK(count >= 0, "vander: the number of columns must not be negative, got ", count);
  const DType dtype = is_floating(x.dtype()) ? x.dtype() : DType::kInt64;
  if (count == 0) return zeros({x.numel(), 0}, {dtype, x.device()});
  const Tensor first = ones({x.numel(), 1}, {dtype, x.device()});
  const Tensor powers = cumprod(cat({first, x.to(dtype).unsqueeze(1).expand({x.numel(), count - 1})}, 1), 1);
  return increasing ? powers : flip(powers, {1});
}

std::vector<Tensor> unravel_index(const Tensor& index, const Shape& shape) {
  TERN_CHECK(index.dtype() == DType::kInt64 || index.dtype() == DType::kInt32,
             "unravel_index: the indices must be int64 or int32, got ", index.describe());
  if (index.numel() > 0) {
    const int64_t least = min(index).item<int64_t>(), most = max(index).item<int64_t>();
    TERN_CHECK(least >= 0 && most < shape.numel(), "unravel_index: the indices, ", least, " to ", most,
               ", must be in [0, ", shape.numel(), "), the elements of ", shape);
  }
  std::vector<Tensor> of_dims(static_cast<size_t>(shape.dims()));
  Tensor rest = index;
  for (int d = shape.dims() - 1; d >= 0; --d) {
    const double size = static_cast<double>(std::max<int64_t>(shape[d], 1));
    of_dims[static_cast<size_t>(d)] = remainder(rest, size);
    rest = floor_divide(rest, size);
  }
  return of_dims;
}

}  // namespace tern

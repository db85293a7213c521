// Elements by indices, sorting and sets.

#include <algorithm>

#include "tern/kernels/base/check.h"
#include "tern/models/onnx/registry.h"

namespace tern::onnx {
namespace {

/// Indices of int64 from the front, which is what gather and scatter take.
Tensor from_front(const Tensor& index, int64_t size) {
  const Tensor wide = index.to(int64);
  return where(wide < 0.0, wide + static_cast<double>(size), wide);
}

void gather_slices(Call& c) {
  const Tensor x = c.in(0), index = c.in(1);
  const int axis = wrapped(c.integer("axis", 0), x.dim());
  if (index.dim() == 0 && index.device().is_cpu()) {
    const int64_t place = index.item<int64_t>();
    TERN_CHECK(place >= -x.size(axis) && place < x.size(axis), "index ", place, " is outside of axis ", axis, " of ",
               x.shape());
    return c.set(0, x.select(axis, place < 0 ? place + x.size(axis) : place), c.element(0));
  }
  const Tensor place = from_front(index, x.size(axis));
  if (axis == 0 && x.dim() == 2 && is_floating(x.dtype())) return c.set(0, embedding(x, place), c.element(0));
  std::vector<int64_t> sizes(x.shape().begin(), x.shape().begin() + axis);
  sizes.insert(sizes.end(), index.shape().begin(), index.shape().end());
  sizes.insert(sizes.end(), x.shape().begin() + axis + 1, x.shape().end());
  c.set(0, index_select(x, axis, place.flatten()).reshape(sizes), c.element(0));
}

void gather_elements(Call& c) {
  const Tensor x = c.in(0);
  const int axis = wrapped(c.integer("axis", 0), x.dim());
  c.set(0, gather(x, axis, from_front(c.in(1), x.size(axis))), c.element(0));
}

/// An index of each dimension, the last of `indices`, as Tensor::index takes them.
std::vector<TensorIndex> parts_of(const Tensor& indices) {
  const Tensors parts = indices.to(int64).unbind(-1);
  TERN_CHECK(parts.size() <= static_cast<size_t>(kMaxDims), "there are indices of ", parts.size(), " dimensions");
  return {parts.begin(), parts.end()};
}

void gather_nd(Call& c) {
  const Tensor x = c.in(0), indices = c.in(1);
  const int64_t batch_dims = c.integer("batch_dims", 0);
  TERN_CHECK(batch_dims >= 0 && batch_dims < std::min(x.dim(), indices.dim()), "batch_dims ", batch_dims);
  std::vector<TensorIndex> entries;
  for (int d = 0; d < batch_dims; ++d) {
    std::vector<int64_t> sizes(static_cast<size_t>(indices.dim() - 1), 1);
    sizes[static_cast<size_t>(d)] = x.size(d);
    entries.emplace_back(arange(0, static_cast<double>(x.size(d)), 1, {int64, x.device()}).reshape(sizes));
  }
  for (TensorIndex& part : parts_of(indices)) entries.push_back(std::move(part));
  c.set(0, x.index(entries), c.element(0));
}

void reverse_sequence(Call& c) {
  const Tensor x = c.in(0);
  const int time = wrapped(c.integer("time_axis", 0), x.dim()), batch = wrapped(c.integer("batch_axis", 1), x.dim());
  TERN_CHECK(time < 2 && batch < 2 && time != batch, "time axis ", time, " and batch axis ", batch);
  const Tensor lengths = c.in(1).to(int64);
  const Tensor place = arange(0, static_cast<double>(x.size(time)), 1, lengths.options()).unsqueeze(batch);
  const Tensor length = lengths.unsqueeze(time);
  Tensor index = where(place < length, length - 1.0 - place, place);
  for (int d = 2; d < x.dim(); ++d) index = index.unsqueeze(-1);
  c.set(0, take_along_dim(x, index, time), c.element(0));
}

void compress(Call& c) {
  const bool whole = !c.has_attribute("axis");
  const Tensor x = whole ? c.in(0).flatten() : c.in(0);
  const int axis = wrapped(c.integer("axis", 0), x.dim());
  TERN_CHECK(c.in(1).numel() <= x.size(axis), "the condition has ", c.in(1).numel(), " elements for ", x.size(axis));
  c.set(0, index_select(x, axis, nonzero(c.in(1)).flatten()), c.element(0));
}

/// Indices outside of the depth give no one.
void one_hot_of(Call& c) {
  const auto depth = static_cast<int64_t>(c.scalar(1));
  TERN_CHECK(depth > 0, "the depth is ", depth);
  const Tensor index = from_front(c.in(0), depth).unsqueeze(-1);
  Tensor hot = index == arange(0, static_cast<double>(depth), 1, {int64, index.device()});
  hot = hot.movedim(-1, wrapped(c.integer("axis", -1), hot.dim()));
  const Tensor values = c.in(2);
  c.set(0, where(hot, values[1], values[0]).to(values.dtype()), c.element(2));
}

ScatterReduction scatter_reduction_of(const std::string& name) {
  if (name == "mul") return ScatterReduction::kProd;
  if (name == "max") return ScatterReduction::kMax;
  TERN_CHECK(name == "min", "the reduction '", name, "'");
  return ScatterReduction::kMin;
}

void scatter_elements(Call& c) {
  const Tensor x = c.in(0), updates = c.in(2);
  const int axis = wrapped(c.integer("axis", 0), x.dim());
  const std::string reduction = c.text("reduction", "none");
  const Tensor index = from_front(c.in(1), x.size(axis));
  if (reduction == "none") return c.set(0, scatter(x, axis, index, updates), c.element(0));
  if (reduction == "add") return c.set(0, scatter_add(x, axis, index, updates), c.element(0));
  c.set(0, scatter_reduce(x, axis, index, updates, scatter_reduction_of(reduction)), c.element(0));
}

/// Indices name slices, which are rows of a matrix.
Tensor scatter_slices(const Call& c, const std::string& reduction) {
  const Tensor data = c.in(0), indices = c.in(1).to(int64);
  const int64_t count = indices.numel() / std::max<int64_t>(1, indices.size(-1));
  int64_t slices = 1;
  Tensor row = zeros({count}, indices.options());
  const Tensors parts = indices.unbind(-1);
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t size = data.size(static_cast<int>(i));
    row = row * static_cast<double>(size) + from_front(parts[i].flatten(), size);
    slices *= size;
  }
  const Tensor x = data.reshape({slices, slices == 0 ? 0 : data.numel() / slices});
  return scatter_reduce(x, 0, row.unsqueeze(1).expand({count, x.size(1)}), c.in(2).reshape({count, x.size(1)}),
                        scatter_reduction_of(reduction))
      .reshape(data.shape());
}

void scatter_nd(Call& c) {
  const std::string reduction = c.text("reduction", "none");
  if (reduction == "none" || reduction == "add")
    return c.set(0, index_put(c.in(0), parts_of(c.in(1)), c.in(2), reduction == "add"), c.element(0));
  c.set(0, scatter_slices(c, reduction), c.element(0));
}

void tensor_scatter(Call& c) {
  const Tensor x = c.in(0), update = c.in(1);
  const int axis = wrapped(c.integer("axis", -2), x.dim());
  const int64_t count = update.size(axis);
  // The places of the update's elements along the axis: [batch, 1, ..., count, 1, ...].
  std::vector<int64_t> first(static_cast<size_t>(x.dim()), 1), each = first;
  first[0] = x.size(0);
  each[static_cast<size_t>(axis)] = count;
  Tensor place = arange(0, static_cast<double>(count), 1, {int64, x.device()}).reshape(each);
  if (c.has(2)) place = c.in(2).to(int64).reshape(first) + place;
  if (c.text("mode", "linear") == "circular") place = remainder(place, static_cast<double>(x.size(axis)));
  c.set(0, scatter(x, axis, place.expand(update.shape()), update), c.element(0));
}

void top_k(Call& c) {
  const int64_t k = c.opset() < 10 ? c.integer("k", 0) : c.whole(1);
  const SortResult top =
      topk(c.in(0), k, wrapped(c.integer("axis", -1), c.in(0).dim()), c.flag("largest", true), c.flag("sorted", true));
  c.set(0, top.values, c.element(0));
  c.set(1, top.indices, kInt64);
}

void unique_of(Call& c) {
  const bool whole = !c.has_attribute("axis");
  const Tensor x = c.in(0);
  const UniqueResult found = whole ? unique(x) : unique(x, wrapped(c.integer("axis", 0), x.dim()));
  const Tensor inverse = found.inverse.flatten();
  const Tensor places = arange(0, static_cast<double>(inverse.numel()), 1, inverse.options());
  const Tensor first = scatter_reduce(zeros_like(found.counts), 0, inverse, places, ScatterReduction::kMin, false);
  const int axis = whole ? 0 : wrapped(c.integer("axis", 0), x.dim());
  const bool sorted = c.flag("sorted", true);
  const Tensor order = sorted ? arange(0, static_cast<double>(first.numel()), 1, first.options()) : argsort(first);
  c.set(0, index_select(found.values, axis, order), c.element(0));
  c.set(1, index_select(first, 0, order), kInt64);
  c.set(2, sorted ? inverse : index_select(argsort(order), 0, inverse), kInt64);
  c.set(3, index_select(found.counts, 0, order), kInt64);
}

void nonzero_of(Call& c) { c.set(0, nonzero(c.in(0)).t(), kInt64); }

template <bool kSums>
void cumulate(Call& c) {
  const Tensor given = c.in(0);
  const int dim = wrapped(c.whole(1), given.dim());
  const auto reversed = [&](const Tensor& x) { return c.flag("reverse") ? flip(x, {dim}) : x; };
  Tensor x = reversed(given);
  if (c.flag("exclusive") && x.size(dim) > 0)
    x = cat({full_like(x.narrow(dim, 0, 1), kSums ? 0 : 1), x.slice(dim, 0, x.size(dim) - 1)}, dim);
  c.set(0, reversed(kSums ? cumsum(x, dim) : cumprod(x, dim)).to(given.dtype()), c.element(0));
}

}  // namespace

void add_index_ops(Rows& rows) {
  const Rows own = {
      {"Gather", 1, gather_slices},
      {"GatherElements", 11, gather_elements},
      {"GatherND", 11, gather_nd},
      {"ReverseSequence", 10, reverse_sequence},
      {"Compress", 9, compress},
      {"OneHot", 9, one_hot_of},
      {"Scatter", 9, scatter_elements},
      {"ScatterElements", 11, scatter_elements},
      {"ScatterND", 11, scatter_nd},
      {"TensorScatter", 24, tensor_scatter},
      {"TopK", 1, top_k},
      {"Unique", 11, unique_of},
      {"NonZero", 9, nonzero_of},
      {"CumSum", 11, cumulate<true>},
      {"CumProd", 1, cumulate<false>},
  };
  rows.insert(rows.end(), own.begin(), own.end());
}

}  // namespace tern::onnx

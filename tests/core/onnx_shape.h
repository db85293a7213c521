#pragma once
// ONNX's ops on shapes, places and indices by Tern's.

#include <algorithm>

#include "tern/tests/core/onnx.h"

namespace tern::test::onnx {

/// The shape that Reshape takes: 0 keeps a size unless allowzero.
inline Tensor reshaped(const Case& c) {
  std::vector<int64_t> sizes = c.list(1);
  for (size_t i = 0; i < sizes.size() && !c.integer("allowzero", 0); ++i)
    if (sizes[i] == 0) sizes[i] = c.in(0).size(static_cast<int>(i));
  return c.in(0).reshape(sizes);
}

inline Tensor flattened(const Tensor& x, int axis) {
  axis = wrapped(axis, x.dim());
  return axis == 0 ? x.flatten().unsqueeze(0) : x.flatten(axis).flatten(0, axis - 1);
}

inline Tensor sliced(const Case& c) {
  const std::vector<int64_t> begins = c.list(1), ends = c.list(2);
  Tensor x = c.in(0);
  for (size_t i = 0; i < begins.size(); ++i) {
    const int axis = c.has(3) ? c.list<int>(3)[i] : static_cast<int>(i);
    const int64_t step = c.has(4) ? c.list(4)[i] : 1, size = x.size(axis);
    if (step > 0) {
      x = x.slice(axis, begins[i], ends[i], step);
      continue;
    }
    // Backward, which PyTorch's slices do not go: forward in the flipped tensor.
    const auto place = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + size : at, -1, size - 1); };
    x = flip(x, {axis}).slice(axis, size - 1 - place(begins[i]), size - 1 - place(ends[i]), -step);
  }
  return x;
}

inline void add_views(Table& table) {
  table["Reshape"] = [](const Case& c) { return Tensors{reshaped(c)}; };
  table["Flatten"] = [](const Case& c) { return Tensors{flattened(c.in(0), c.axis(1))}; };
  table["Transpose"] = [](const Case& c) {
    std::vector<int> order;
    for (int i = c.in(0).dim(); i-- > 0;) order.push_back(i);
    return Tensors{c.in(0).permute(c.get("perm", order))};
  };
  table["Squeeze"] = [](const Case& c) { return Tensors{c.in(0).squeeze(c.list<int>(1))}; };
  table["Unsqueeze"] = [](const Case& c) {
    std::vector<int> axes = c.list<int>(1);
    for (int& axis : axes) axis = wrapped(axis, c.in(0).dim() + static_cast<int>(axes.size()));
    std::sort(axes.begin(), axes.end());
    Tensor x = c.in(0);
    for (const int axis : axes) x = x.unsqueeze(axis);
    return Tensors{x};
  };
  table["Expand"] = [](const Case& c) {
    return Tensors{c.in(0).expand(broadcast_shapes("Expand", c.in(0).shape(), Shape(c.list(1))))};
  };
  table["Slice"] = [](const Case& c) { return Tensors{sliced(c)}; };
  table["Split"] = [](const Case& c) {
    if (c.has(1)) return c.in(0).split(c.list(1), c.axis(0));
    const int64_t count = static_cast<int64_t>(c.outputs.size());
    return c.in(0).split((c.in(0).size(c.axis(0)) + count - 1) / count, c.axis(0));
  };
  table["SplitToSequence"] = [](const Case& c) {
    if (!c.has(1)) return c.integer("keepdims", 1) ? c.in(0).split(1, c.axis(0)) : c.in(0).unbind(c.axis(0));
    return c.in(1).dim() == 0 ? c.in(0).split(c.list(1).at(0), c.axis(0)) : c.in(0).split(c.list(1), c.axis(0));
  };
  table["Shape"] = [](const Case& c) {
    const Tensor sizes = from_vector(c.in(0).shape().vec(), {c.in(0).dim()}).to(c.device);
    return Tensors{sizes.slice(0, c.integer("start", 0), c.integer("end", INT64_MAX))};
  };
  table["Size"] = [](const Case& c) { return Tensors{from_vector(std::vector{c.in(0).numel()}, {}).to(c.device)}; };
}

/// Tern's order of paddings, from the last dimension to the first, of befores and afters by axis.
inline std::vector<int64_t> padding_of(int dims, const std::map<int, std::pair<int64_t, int64_t>>& by_axis) {
  std::vector<int64_t> padding(2 * static_cast<size_t>(dims));
  for (const auto& [axis, sizes] : by_axis) {
    const size_t at = 2 * static_cast<size_t>(dims - 1 - wrapped(axis, dims));
    padding[at] = sizes.first;
    padding[at + 1] = sizes.second;
  }
  return padding;
}

inline void add_paddings(Table& table) {
  table["Pad"] = [](const Case& c) {
    static const std::map<std::string, PadMode> modes = {{"constant", PadMode::kConstant},
                                                         {"reflect", PadMode::kReflect},
                                                         {"edge", PadMode::kReplicate},
                                                         {"wrap", PadMode::kCircular}};
    const std::vector<int64_t> pads = c.list(1);
    std::map<int, std::pair<int64_t, int64_t>> by_axis;
    for (size_t i = 0; i < pads.size() / 2; ++i)
      by_axis[c.has(3) ? c.list<int>(3)[i] : static_cast<int>(i)] = {pads[i], pads[pads.size() / 2 + i]};
    return Tensors{pad(c.in(0), padding_of(c.in(0).dim(), by_axis), modes.at(c.get<std::string>("mode", "constant")),
                       c.has(2) ? c.scalar(2) : 0)};
  };
  table["CenterCropPad"] = [](const Case& c) {
    const std::vector<int64_t> sizes = c.list(1);
    std::map<int, std::pair<int64_t, int64_t>> by_axis;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const int axis = c.attributes.contains("axes") ? c.attributes["axes"][i].get<int>() : static_cast<int>(i);
      const int64_t more = sizes[i] - c.in(0).size(axis), before = more / 2;
      by_axis[axis] = {before, more - before};
    }
    return Tensors{pad(c.in(0), padding_of(c.in(0).dim(), by_axis))};
  };
  table["Tile"] = [](const Case& c) { return Tensors{tile(c.in(0), c.list(1))}; };
  table["Concat"] = [](const Case& c) { return Tensors{cat(c.inputs, c.axis(0))}; };
  table["Trilu"] = [](const Case& c) {
    const int64_t k = c.has(1) ? c.list(1).at(0) : 0;
    return Tensors{c.integer("upper", 1) ? triu(c.in(0), k) : tril(c.in(0), k)};
  };
  const auto blocks = [](const Case& c, const std::vector<int64_t>& sizes, const std::vector<int>& order) {
    return c.in(0).reshape(sizes).permute(order);
  };
  table["SpaceToDepth"] = [=](const Case& c) {
    const int64_t b = c.integer("blocksize", 1), n = c.in(0).size(0), h = c.in(0).size(2) / b, w = c.in(0).size(3) / b;
    const bool crd = c.get<std::string>("mode", "DCR") == "CRD";
    const std::vector<int> order = crd ? std::vector{0, 1, 3, 5, 2, 4} : std::vector{0, 3, 5, 1, 2, 4};
    return Tensors{blocks(c, {n, -1, h, b, w, b}, order).reshape({n, -1, h, w})};
  };
  table["DepthToSpace"] = [=](const Case& c) {
    const int64_t b = c.integer("blocksize", 1), n = c.in(0).size(0), h = c.in(0).size(2), w = c.in(0).size(3);
    const bool crd = c.get<std::string>("mode", "DCR") == "CRD";
    const Tensor y =
        crd ? blocks(c, {n, -1, b, b, h, w}, {0, 1, 4, 2, 5, 3}) : blocks(c, {n, b, b, -1, h, w}, {0, 3, 4, 1, 5, 2});
    return Tensors{y.reshape({n, -1, h * b, w * b})};
  };
}

inline void add_factories(Table& table) {
  table["EyeLike"] = [](const Case& c) {
    static const std::map<int64_t, DType> types = {{1, float32}, {11, float64}};  // TensorProto.DataType
    const TensorOptions options = {c.attributes.contains("dtype") ? types.at(c.attributes["dtype"]) : c.in(0).dtype(),
                                   c.device};
    const int64_t k = c.integer("k", 0);
    if (k == 0) return Tensors{eye(c.in(0).size(0), c.in(0).size(1), options)};
    return Tensors{tril(triu(ones(c.in(0).shape(), options), k), k)};
  };
  table["Range"] = [](const Case& c) {
    return Tensors{arange(c.scalar(0), c.scalar(1), c.scalar(2), {c.in(0).dtype(), c.device})};
  };
  table["ConstantOfShape"] = [](const Case& c) {
    const Json value = c.attributes["value"];
    const DType dtype = value["type"] == "int32" ? int32 : float32;
    return Tensors{full(Shape(c.list(0)), value["values"][0], {dtype, c.device})};
  };
}

/// Indices from the front, which is what gather and scatter take.
inline Tensor from_front(const Tensor& index, int64_t size) {
  return where(index < 0.0, index + static_cast<double>(size), index);
}

/// An index of each dimension, the last of `indices`, as Tensor::index takes them.
inline std::vector<TensorIndex> parts_of(const Tensor& indices) {
  const Tensors parts = indices.unbind(-1);
  return {parts.begin(), parts.end()};
}

inline void add_gathers(Table& table) {
  table["Gather"] = [](const Case& c) {
    const int axis = wrapped(c.axis(0), c.in(0).dim());
    if (c.in(1).dim() == 1 && min(c.in(1)).item<int64_t>() >= 0) return Tensors{index_select(c.in(0), axis, c.in(1))};
    std::vector<TensorIndex> entries(static_cast<size_t>(axis), Slice{});
    entries.emplace_back(c.in(1));
    return Tensors{c.in(0).index(entries)};
  };
  table["GatherElements"] = [](const Case& c) {
    return Tensors{gather(c.in(0), c.axis(0), from_front(c.in(1), c.in(0).size(c.axis(0))))};
  };
  table["GatherND"] = [](const Case& c) {
    std::vector<TensorIndex> parts = parts_of(c.in(1));
    if (c.integer("batch_dims", 0) == 1) {
      const int64_t batch = c.in(0).size(0);
      Tensor rows = arange(0, static_cast<double>(batch), 1, c.in(1).options());
      for (int i = 2; i < c.in(1).dim(); ++i) rows = rows.unsqueeze(-1);
      parts.insert(parts.begin(), rows);
    }
    return Tensors{c.in(0).index(parts)};
  };
  table["ReverseSequence"] = [](const Case& c) {
    const int time = static_cast<int>(c.integer("time_axis", 0)), batch = static_cast<int>(c.integer("batch_axis", 1));
    const Tensor place = arange(0, static_cast<double>(c.in(0).size(time)), 1, c.in(1).options()).unsqueeze(batch);
    const Tensor length = c.in(1).unsqueeze(time);
    return Tensors{take_along_dim(c.in(0), where(place < length, length - 1.0 - place, place), time)};
  };
  table["Compress"] = [](const Case& c) {
    const bool whole = !c.attributes.contains("axis");
    const Tensor x = whole ? c.in(0).flatten() : c.in(0);
    const int axis = c.axis(0);
    const Tensor mask = pad(c.in(1), {0, x.size(axis) - c.in(1).numel()});  // it may be shorter
    return Tensors{whole ? masked_select(x, mask) : index_select(x, axis, nonzero(mask).flatten())};
  };
  table["OneHot"] = [](const Case& c) {
    const int64_t depth = c.list(1).at(0);
    const Tensor ones = one_hot(from_front(c.in(0).to(int64), depth), depth).movedim(-1, c.axis(-1));
    return Tensors{where(ones.to(boolean), c.in(2)[1], c.in(2)[0])};
  };
}

inline ScatterReduction scatter_reduction(const std::string& name) {
  static const std::map<std::string, ScatterReduction> reductions = {
      {"mul", ScatterReduction::kProd}, {"max", ScatterReduction::kMax}, {"min", ScatterReduction::kMin}};
  return reductions.at(name);
}

/// ScatterND, whose indices name slices, by the scatter of rows of a matrix.
inline Tensor scatter_slices(const Case& c, const std::string& reduction) {
  const int64_t count = c.in(1).numel() / c.in(1).size(-1);
  int64_t slices = 1;
  Tensor row = zeros({count}, c.in(1).options());
  const Tensors parts = c.in(1).unbind(-1);
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t size = c.in(0).size(static_cast<int>(i));
    row = row * static_cast<double>(size) + parts[i].flatten();
    slices *= size;
  }
  const Tensor x = c.in(0).reshape({slices, -1});
  return scatter_reduce(x, 0, row.unsqueeze(1).expand({count, x.size(1)}), c.in(2).reshape({count, -1}),
                        scatter_reduction(reduction))
      .reshape(c.in(0).shape());
}

inline void add_scatters(Table& table) {
  table["ScatterElements"] = [](const Case& c) {
    const std::string reduction = c.get<std::string>("reduction", "none");
    const Tensor index = from_front(c.in(1), c.in(0).size(c.axis(0)));
    if (reduction == "none") return Tensors{scatter(c.in(0), c.axis(0), index, c.in(2))};
    if (reduction == "add") return Tensors{scatter_add(c.in(0), c.axis(0), index, c.in(2))};
    return Tensors{scatter_reduce(c.in(0), c.axis(0), index, c.in(2), scatter_reduction(reduction))};
  };
  table["Scatter"] = table["ScatterElements"];  // its name in older versions
  table["ScatterND"] = [](const Case& c) {
    const std::string reduction = c.get<std::string>("reduction", "none");
    if (reduction == "none" || reduction == "add")
      return Tensors{index_put(c.in(0), parts_of(c.in(1)), c.in(2), reduction == "add")};
    return Tensors{scatter_slices(c, reduction)};
  };
  table["TensorScatter"] = [](const Case& c) {
    const int axis = wrapped(c.axis(-2), c.in(0).dim());
    const int64_t count = c.in(1).size(axis);
    // The places of the update's elements along the axis: [batch, 1, ..., count, 1, ...].
    std::vector<int64_t> first(static_cast<size_t>(c.in(0).dim()), 1), each = first;
    first[0] = c.in(0).size(0);
    each[static_cast<size_t>(axis)] = count;
    Tensor place = c.in(2).reshape(first) + arange(0, static_cast<double>(count), 1, c.in(2).options()).reshape(each);
    if (c.get<std::string>("mode", "linear") == "circular")
      place = remainder(place, static_cast<double>(c.in(0).size(axis)));
    return Tensors{scatter(c.in(0), axis, place.expand(c.in(1).shape()), c.in(1))};
  };
}

inline void add_shapes(Table& table) {
  add_views(table);
  add_paddings(table);
  add_factories(table);
  add_gathers(table);
  add_scatters(table);
}

}  // namespace tern::test::onnx

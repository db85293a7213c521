// Shapes and views: where elements lie, without computing new ones.

#include <algorithm>
#include <map>

#include "tern/core/tensor/size_checks.h"
#include "tern/kernels/base/check.h"
#include "tern/models/onnx/registry.h"

namespace tern::onnx {
namespace {

void reshape_op(Call& c) {
  std::vector<int64_t> sizes = c.list(1);
  const Tensor x = c.in(0);
  for (size_t i = 0; i < sizes.size() && !c.flag("allowzero"); ++i)
    if (sizes[i] == 0) sizes[i] = x.size(static_cast<int>(i));
  c.set(0, x.reshape(sizes), c.element(0));
}

void flatten_op(Call& c) {
  const Tensor x = c.in(0);
  const int64_t axis = c.integer("axis", 1);
  const int64_t first = axis < 0 ? axis + x.dim() : axis;
  TERN_CHECK(first >= 0 && first <= x.dim(), "there is no axis ", axis, " of ", x.dim());
  int64_t rows = 1;
  for (int d = 0; d < first; ++d) rows *= x.size(d);
  c.set(0, x.reshape({rows, rows == 0 ? 0 : x.numel() / rows}), c.element(0));
}

void transpose_op(Call& c) {
  const Tensor x = c.in(0);
  Numbers order;
  for (int i = x.dim(); i-- > 0;) order.push_back(i);
  c.set(0, x.permute(wrapped(c.numbers("perm", order), x.dim())), c.element(0));
}

/// Axes are an attribute in old versions and an input in new ones.
Numbers new_axes(const Call& c, int64_t since) {
  if (c.opset() < since) return c.numbers("axes");
  return c.has(1) ? c.list(1) : Numbers();
}

void squeeze_op(Call& c) {
  const Tensor x = c.in(0);
  const Numbers axes = new_axes(c, 13);
  if (axes.empty()) return c.set(0, x.squeeze(), c.element(0));
  const std::vector<int> dims = wrapped(axes, x.dim());
  for (const int dim : dims) TERN_CHECK(x.size(dim) == 1, "axis ", dim, " of ", x.shape(), " is not of size 1");
  c.set(0, x.squeeze(dims), c.element(0));
}

void unsqueeze_op(Call& c) {
  Tensor x = c.in(0);
  const Numbers axes = new_axes(c, 13);
  TERN_CHECK(axes.size() <= static_cast<size_t>(kMaxDims), "there are ", axes.size(), " new axes");
  std::vector<int> dims = wrapped(axes, x.dim() + static_cast<int>(axes.size()));
  std::sort(dims.begin(), dims.end());
  TERN_CHECK(std::adjacent_find(dims.begin(), dims.end()) == dims.end(), "a new axis is given twice");
  for (const int dim : dims) x = x.unsqueeze(dim);
  c.set(0, x, c.element(0));
}

void expand_op(Call& c) {
  const Tensor x = c.in(0);
  c.set(0, x.expand(broadcast_shapes("Expand", x.shape(), Shape(c.list(1)))), c.element(0));
}

Tensor sliced(const Tensor& x, int axis, int64_t begin, int64_t end, int64_t step) {
  TERN_CHECK(step != 0 && step > INT64_MIN, "the step of a slice is ", step);
  if (step > 0) return x.slice(axis, begin, end, step);
  // Backward, which Tern's slices do not go: forward in the flipped tensor.
  const int64_t size = x.size(axis);
  const auto place = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + size : at, -1, size - 1); };
  return flip(x, {axis}).slice(axis, size - 1 - place(begin), size - 1 - place(end), -step);
}

void slice_op(Call& c) {
  const bool old = c.opset() < 10;
  const Numbers begins = old ? c.numbers("starts") : c.list(1), ends = old ? c.numbers("ends") : c.list(2);
  const Numbers axes = old ? c.numbers("axes") : c.has(3) ? c.list(3) : Numbers();
  const Numbers steps = !old && c.has(4) ? c.list(4) : Numbers();
  Tensor x = c.in(0);
  TERN_CHECK(begins.size() == ends.size() && (axes.empty() || axes.size() == begins.size()) &&
                 (steps.empty() || steps.size() == begins.size()),
             "there are ", begins.size(), " starts, ", ends.size(), " ends, ", axes.size(), " axes and ", steps.size(),
             " steps");
  for (size_t i = 0; i < begins.size(); ++i) {
    const int axis = wrapped(axes.empty() ? static_cast<int64_t>(i) : axes[i], x.dim());
    x = sliced(x, axis, begins[i], ends[i], steps.empty() ? 1 : steps[i]);
  }
  c.set(0, x, c.element(0));
}

void set_list(Call& c, const Tensors& list) {
  TERN_CHECK(list.size() == c.outputs(), "there are ", c.outputs(), " outputs for ", list.size(), " parts");
  for (size_t i = 0; i < list.size(); ++i) c.set(i, list[i], c.element(0));
}

void split_op(Call& c) {
  const Tensor x = c.in(0);
  const int axis = wrapped(c.integer("axis", 0), x.dim());
  if (c.opset() < 13 && c.has_attribute("split")) return set_list(c, x.split(c.numbers("split"), axis));
  if (c.has(1)) return set_list(c, x.split(c.list(1), axis));
  const auto count = static_cast<int64_t>(c.outputs());
  const int64_t size = (x.size(axis) + count - 1) / count;
  Numbers sizes;
  for (int64_t i = 0, left = x.size(axis); i < count; ++i) {
    sizes.push_back(std::min(size, left));
    left -= sizes.back();
  }
  set_list(c, x.split(sizes, axis));
}

void shape_op(Call& c) {
  const Numbers sizes = c.value(0).tensor.shape().vec();
  const auto dims = static_cast<int64_t>(sizes.size());
  const auto place = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + dims : at, 0, dims); };
  const int64_t begin = place(c.integer("start", 0)), end = std::max(begin, place(c.integer("end", INT64_MAX)));
  c.set(0, from_vector(Numbers(sizes.begin() + begin, sizes.begin() + end), {end - begin}), kInt64);
}

void size_op(Call& c) { c.set(0, from_vector(Numbers{c.value(0).tensor.numel()}, {}), kInt64); }

/// Adds elements before and after each axis; negative numbers cut.
Tensor padded(Tensor x, const std::map<int, std::pair<int64_t, int64_t>>& by_axis, PadMode mode, double value) {
  Numbers padding(2 * static_cast<size_t>(x.dim()));
  bool grows = false;
  for (const auto& [axis, sizes] : by_axis) {
    const auto [before, after] = sizes;
    const int64_t begin = std::max<int64_t>(0, -before), cut = std::max<int64_t>(0, -after);
    TERN_CHECK(begin <= x.size(axis) && cut <= x.size(axis) - begin, "more than axis ", axis, " is cut off");
    if (begin > 0 || cut > 0) x = x.narrow(axis, begin, x.size(axis) - begin - cut);
    const size_t at = 2 * static_cast<size_t>(x.dim() - 1 - axis);
    padding[at] = std::max<int64_t>(0, before);
    padding[at + 1] = std::max<int64_t>(0, after);
    grows = grows || padding[at] > 0 || padding[at + 1] > 0;
  }
  return grows ? pad(x, padding, mode, value) : x;
}

std::string refuse_pad(const NodeDef& node, int64_t) {
  const auto mode = node.attributes.find("mode");
  const bool known = mode == node.attributes.end() || mode->second.s == "constant" || mode->second.s == "reflect" ||
                     mode->second.s == "edge" || mode->second.s == "wrap";
  return known ? "" : "the mode '" + mode->second.s + "'";
}

void pad_op(Call& c) {
  static const std::map<std::string, PadMode> modes = {{"constant", PadMode::kConstant},
                                                       {"reflect", PadMode::kReflect},
                                                       {"edge", PadMode::kReplicate},
                                                       {"wrap", PadMode::kCircular}};
  const bool old = c.opset() < 11;
  const Tensor x = c.in(0);
  const Numbers pads = old ? c.numbers("pads") : c.list(1);
  Numbers axes;
  if (!old && c.has(3))
    axes = c.list(3);
  else
    for (int d = 0; d < x.dim(); ++d) axes.push_back(d);
  TERN_CHECK(pads.size() == 2 * axes.size(), "there are ", pads.size(), " pads for ", axes.size(), " axes");
  std::map<int, std::pair<int64_t, int64_t>> by_axis;
  for (size_t i = 0; i < axes.size(); ++i) by_axis[wrapped(axes[i], x.dim())] = {pads[i], pads[axes.size() + i]};
  const double value = old ? c.number("value", 0) : c.has(2) ? c.scalar(2) : 0;
  c.set(0, padded(x, by_axis, modes.at(c.text("mode", "constant")), value), c.element(0));
}

void center_crop_pad(Call& c) {
  const Tensor x = c.in(0);
  const Numbers sizes = c.list(1);
  Numbers axes;
  for (int d = 0; d < x.dim(); ++d) axes.push_back(d);
  axes = c.numbers("axes", axes);
  TERN_CHECK(axes.size() == sizes.size(), "there are ", sizes.size(), " sizes for ", axes.size(), " axes");
  std::map<int, std::pair<int64_t, int64_t>> by_axis;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int axis = wrapped(axes[i], x.dim());
    const int64_t more = sizes[i] - x.size(axis), before = more / 2;
    by_axis[axis] = {before, more - before};
  }
  c.set(0, padded(x, by_axis, PadMode::kConstant, 0), c.element(0));
}

void tile_of(Call& c) { c.set(0, tile(c.in(0), c.list(1)), c.element(0)); }

void concat_op(Call& c) {
  const Tensors parts = c.all();
  TERN_CHECK(!parts.empty(), "there is nothing to join");
  const int axis = wrapped(c.integer("axis", 0), parts[0].dim());
  for (const Tensor& part : parts)
    TERN_CHECK(part.dtype() == parts[0].dtype() && part.dim() == parts[0].dim(), "cannot join ", parts[0].describe(),
               " and ", part.describe());
  c.set(0, cat(parts, axis), c.element(0));
}

void triangle(Call& c) {
  const int64_t k = c.has(1) ? c.whole(1) : 0;
  c.set(0, c.flag("upper", true) ? triu(c.in(0), k) : tril(c.in(0), k), c.element(0));
}

int64_t block_size(const Call& c) {
  const int64_t size = c.integer("blocksize", 1);
  TERN_CHECK(size > 0 && size < (1 << 20) && c.value(0).tensor.dim() == 4, "a block of ", size, " of ",
             c.value(0).tensor.describe());
  return size;
}

void space_to_depth(Call& c) {
  const Tensor x = c.in(0);
  const int64_t b = block_size(c), n = x.size(0), h = x.size(2) / b, w = x.size(3) / b;
  const bool crd = c.text("mode", "DCR") == "CRD";
  const std::vector<int> order = crd ? std::vector{0, 1, 3, 5, 2, 4} : std::vector{0, 3, 5, 1, 2, 4};
  c.set(0, x.reshape({n, x.size(1), h, b, w, b}).permute(order).reshape({n, x.size(1) * b * b, h, w}), c.element(0));
}

void depth_to_space(Call& c) {
  const Tensor x = c.in(0);
  const int64_t b = block_size(c), n = x.size(0), d = x.size(1) / (b * b), h = x.size(2), w = x.size(3);
  const Tensor y = c.text("mode", "DCR") == "CRD" ? x.reshape({n, d, b, b, h, w}).permute({0, 1, 4, 2, 5, 3})
                                                  : x.reshape({n, b, b, d, h, w}).permute({0, 3, 4, 1, 5, 2});
  c.set(0, y.reshape({n, d, h * b, w * b}), c.element(0));
}

void eye_like(Call& c) {
  const Tensor x = c.in(0);
  const int32_t element = c.has_attribute("dtype") ? static_cast<int32_t>(c.integer("dtype", 1)) : c.element(0);
  const TensorOptions options{storage_of(element), c.device()};
  TERN_CHECK(x.dim() == 2, "expected a matrix, got ", x.describe());
  const int64_t k = c.integer("k", 0);
  if (k == 0) return c.set(0, eye(x.size(0), x.size(1), options), element);
  c.set(0, tril(triu(ones(x.shape(), options), k), k), element);
}

void range_op(Call& c) {
  const DType dtype = c.in(0).dtype();
  const double start = c.scalar(0), limit = c.scalar(1), delta = c.scalar(2);
  TERN_CHECK(delta != 0, "the step of a range is 0");
  const double count = std::max(0.0, std::ceil((limit - start) / delta));
  TERN_CHECK(count < 9e15, "a range of ", count, " elements");
  tern::detail::check_host_list("Range", static_cast<int64_t>(count));
  const bool fine = is_floating(dtype);
  const Tensor places = arange(0, count, 1, {fine ? float64 : int64});
  c.set(0, (places * delta + start).to(dtype), c.element(0));
}

void constant_of_shape(Call& c) {
  const Shape shape(c.list(0));
  const Attribute* value = c.attribute("value");
  if (value == nullptr || !value->tensor) return c.set(0, zeros(shape), kFloat);
  const int32_t element = value->tensor->element;
  const Tensor number = value->tensor->tensor();
  TERN_CHECK(number.numel() == 1, "its value is ", number.describe());
  const TensorOptions options{.dtype = number.dtype()};
  if (number.dtype() == int64)  // beyond 2^53 no double has it
    return c.set(0,
                 number.reshape({1})
                     .expand({std::max<int64_t>(1, shape.numel())})
                     .clone()
                     .narrow(0, 0, shape.numel())
                     .reshape(shape),
                 element);
  c.set(0, full(shape, number.item<double>(), options), element);
}

}  // namespace

void add_shape_ops(Rows& rows) {
  const Rows own = {
      {"Reshape", 5, reshape_op},
      {"Flatten", 1, flatten_op},
      {"Transpose", 1, transpose_op},
      {"Squeeze", 1, squeeze_op},
      {"Unsqueeze", 1, unsqueeze_op},
      {"Expand", 8, expand_op},
      {"Slice", 1, slice_op},
      {"Split", 2, split_op},
      {"Shape", 1, shape_op},
      {"Size", 1, size_op},
      {"Pad", 2, pad_op, refuse_pad},
      {"CenterCropPad", 18, center_crop_pad},
      {"Tile", 6, tile_of},
      {"Concat", 4, concat_op},
      {"Trilu", 14, triangle},
      {"SpaceToDepth", 1, space_to_depth},
      {"DepthToSpace", 1, depth_to_space},
      {"EyeLike", 9, eye_like},
      {"Range", 11, range_op},
      {"ConstantOfShape", 9, constant_of_shape},
  };
  rows.insert(rows.end(), own.begin(), own.end());
}

}  // namespace tern::onnx

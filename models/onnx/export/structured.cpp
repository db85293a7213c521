// Views, joins, reductions and indexing as ONNX's nodes.

#include <algorithm>
#include <bit>
#include <cmath>

#include "tern/models/onnx/export/exporter.h"

namespace tern::onnx {
namespace {

using Arguments = std::vector<GraphArgument>;
using Kind = GraphArgument::Kind;

int64_t whole(Exporter& e, const GraphArgument& a) {
  if (!a.size.is_constant()) e.refuse("one of its arguments depends on a dynamic size");
  return a.size.constant();
}

std::vector<SymbolicSize> sizes_in(const GraphArgument& list) {
  std::vector<SymbolicSize> sizes;
  for (const GraphArgument& element : list.list) sizes.push_back(element.size);
  return sizes;
}

std::vector<int64_t> integers_in(Exporter& e, const GraphArgument& list) {
  std::vector<int64_t> values;
  for (const GraphArgument& element : list.list) values.push_back(whole(e, element));
  return values;
}

/// The dimensions that bits name.
std::vector<int64_t> axes_of(Exporter& e, const GraphArgument& bits) {
  std::vector<int64_t> axes;
  for (auto left = static_cast<uint64_t>(whole(e, bits)); left != 0; left &= left - 1)
    axes.push_back(std::countr_zero(left));
  return axes;
}

int64_t rank_of(const Exporter& e, int value) { return static_cast<int64_t>(e.info(value).shape.size()); }

std::string first_input(Exporter& e, const Graph::Node& node) { return e.name(node.inputs[0]); }

/// The first input as the dtype of the result.
std::string converted_input(Exporter& e, const Graph::Node& node) {
  return e.cast(first_input(e, node), e.info(node.inputs[0]).dtype, e.info(node.outputs[0]).dtype);
}

void write_alias(Exporter& e, const Graph::Node& node, const Arguments&) {
  e.set(node.outputs[0], first_input(e, node));
}

void write_cast(Exporter& e, const Graph::Node& node, const Arguments&) {
  e.set(node.outputs[0], converted_input(e, node));
}

void write_reshape(Exporter& e, const Graph::Node& node, const Arguments&) {
  e.set(node.outputs[0], e.reshape(first_input(e, node), e.info(node.outputs[0]).shape));
}

void write_permute(Exporter& e, const Graph::Node& node, const Arguments& a) {
  e.set(node.outputs[0], e.transpose(first_input(e, node), integers_in(e, a[1])));
}

void write_expand(Exporter& e, const Graph::Node& node, const Arguments&) {
  e.set(node.outputs[0], e.node("Expand", {first_input(e, node), e.sizes(e.info(node.outputs[0]).shape)}));
}

/// Arguments: x, dimension, begin, count, step. The end is begin + count * step, or the dimension's end where that is
/// the same for all sizes.
void write_slice(Exporter& e, const Graph::Node& node, const Arguments& a) {
  const int64_t axis = whole(e, a[1]), step = whole(e, a[4]);
  const SymbolicSize &begin = a[2].size, &count = a[3].size,
                     &size = e.info(node.inputs[0]).shape.at(static_cast<size_t>(axis));
  std::string end;
  if (begin.is_constant() && count.is_constant())
    end = e.integers({begin.constant() + count.constant() * step});
  else if (begin.is_constant() && begin.constant() == 0 && step == 1)
    end = e.sizes({count});
  else if (step == 1 && SymbolicSize::sum(begin, count) == size)
    end = e.integers({INT64_MAX});
  else
    end = e.node("Add", {e.sizes({begin}), e.node("Mul", {e.sizes({count}), e.integers({step})})});
  e.set(node.outputs[0],
        e.node("Slice", {first_input(e, node), e.sizes({begin}), end, e.integers({axis}), e.integers({step})}));
}

/// Arguments: x, sizes, dimension, whether it disappears.
void write_split(Exporter& e, const Graph::Node& node, const Arguments& a) {
  const int64_t axis = whole(e, a[2]);
  std::vector<std::string> parts = e.nodes("Split", {first_input(e, node), e.sizes(sizes_in(a[1]))},
                                           node.outputs.size(), {{"axis", attribute(axis)}});
  for (size_t i = 0; i < parts.size(); ++i) {
    if (whole(e, a[3])) parts[i] = e.node("Squeeze", {parts[i], e.integers({axis})});
    if (node.outputs[i] >= 0) e.set(node.outputs[i], parts[i]);
  }
}

void write_cat(Exporter& e, const Graph::Node& node, const Arguments& a) {
  std::vector<std::string> parts;
  for (const int v : node.inputs) parts.push_back(e.name(v));
  e.set(node.outputs[0], e.node("Concat", parts, {{"axis", attribute(whole(e, a[1]))}}));
}

/// Arguments: shape, value, dtype, ...
void write_full(Exporter& e, const Graph::Node& node, const Arguments& a) {
  const std::string value = e.scalar(a[1].number, e.info(node.outputs[0]).dtype);
  const std::vector<SymbolicSize>& shape = e.info(node.outputs[0]).shape;
  e.set(node.outputs[0], shape.empty() ? value : e.node("Expand", {value, e.sizes(shape)}));
}

void write_full_like(Exporter& e, const Graph::Node& node, const Arguments& a) {
  const std::string value = e.scalar(a[1].number, e.info(node.outputs[0]).dtype);
  e.set(node.outputs[0], e.node("Expand", {value, e.sizes(e.info(node.outputs[0]).shape)}));
}

/// Arguments: start, end, step, dtype, ...
void write_arange(Exporter& e, const Graph::Node& node, const Arguments& a) {
  const DType dtype = e.info(node.outputs[0]).dtype;
  if (a[0].kind != Kind::kInteger) {
    const DType wide = is_floating(dtype) ? dtype : DType::kFloat64;
    const std::string range =
        e.node("Range", {e.scalar(a[0].number, wide), e.scalar(a[1].number, wide), e.scalar(a[2].number, wide)});
    return e.set(node.outputs[0], e.cast(range, wide, dtype));
  }
  const auto number = [&](const GraphArgument& x) { return e.node("Squeeze", {e.sizes({x.size}), e.integers({0})}); };
  const std::string range = e.node("Range", {number(a[0]), number(a[1]), number(a[2])});
  e.set(node.outputs[0], e.cast(range, DType::kInt64, dtype));
}

/// Arguments: weight, ids, ...
void write_embedding(Exporter& e, const Graph::Node& node, const Arguments&) {
  e.set(node.outputs[0],
        e.node("Gather", {e.name(node.inputs[0]), e.name(node.inputs[1])}, {{"axis", attribute(int64_t{0})}}));
}

/// Arguments: x, index, dimension, ...
void write_gather(Exporter& e, const Graph::Node& node, const Arguments& a) {
  e.set(node.outputs[0], e.node("GatherElements", {e.name(node.inputs[0]), e.name(node.inputs[1])},
                                {{"axis", attribute(whole(e, a[2]))}}));
}

/// Arguments: x, a text, tensors, the dimensions that they index.
void write_index(Exporter& e, const Graph::Node& node, const Arguments& a) {
  const std::vector<int64_t> dims = integers_in(e, a.back());
  if (dims.size() == 1)
    return e.set(node.outputs[0],
                 e.node("Gather", {e.name(node.inputs[0]), e.name(node.inputs[1])}, {{"axis", attribute(dims[0])}}));
  // GatherND takes leading dimensions. The result's are those of the indices, which stand where the indexed dimensions
  // were if these follow one another, and first otherwise.
  const std::vector<SymbolicSize>& result = e.info(node.outputs[0]).shape;
  const auto rank = rank_of(e, node.inputs[0]), count = static_cast<int64_t>(dims.size()), rest = rank - count,
             common = static_cast<int64_t>(result.size()) - rest;
  const bool together = dims.back() - dims.front() == count - 1;
  const int64_t before = together ? dims.front() : 0;
  std::vector<int64_t> order = dims, back;
  for (int64_t d = 0; d < rank; ++d)
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) order.push_back(d);
  std::vector<SymbolicSize> shape(result.begin() + before, result.begin() + before + common);
  shape.push_back(SymbolicSize(1));
  std::vector<std::string> columns;
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    const std::string index = e.cast(e.name(node.inputs[i]), e.info(node.inputs[i]).dtype, int64);
    columns.push_back(e.node("Expand", {e.node("Unsqueeze", {index, e.integers({-1})}), e.sizes(shape)}));
  }
  const std::string x = e.name(node.inputs[0]);
  const std::string y = e.node("GatherND", {before > 0 || !together ? e.transpose(x, order) : x,
                                            e.node("Concat", columns, {{"axis", attribute(int64_t{-1})}})});
  for (int64_t d = 0; d < common + rest; ++d)
    back.push_back(d < before ? common + d : d < before + common ? d - before : d);
  e.set(node.outputs[0], before > 0 ? e.transpose(y, back) : y);
}

/// Arguments: x, dimensions as bits, keepdim, further flags.
void write_sum(Exporter& e, const Graph::Node& node, const Arguments& a) {
  const std::vector<int64_t> axes = axes_of(e, a[1]);
  const std::string x = converted_input(e, node);
  if (axes.empty()) return e.set(node.outputs[0], x);
  e.set(node.outputs[0], e.reduce(whole(e, a[3]) ? "ReduceMean" : "ReduceSum", x, axes, whole(e, a[2]) != 0));
}
void write_extreme(Exporter& e, const Graph::Node& node, const Arguments& a) {
  const std::vector<int64_t> axes = axes_of(e, a[1]);
  if (axes.empty()) return write_alias(e, node, a);
  e.set(node.outputs[0],
        e.reduce(whole(e, a[3]) ? "ReduceMax" : "ReduceMin", first_input(e, node), axes, whole(e, a[2]) != 0));
}
void write_product(Exporter& e, const Graph::Node& node, const Arguments& a) {
  const std::vector<int64_t> axes = axes_of(e, a[1]);
  if (axes.empty()) return write_cast(e, node, a);
  e.set(node.outputs[0], e.reduce("ReduceProd", converted_input(e, node), axes, whole(e, a[2]) != 0));
}
void write_logsumexp(Exporter& e, const Graph::Node& node, const Arguments& a) {
  e.set(node.outputs[0], e.reduce("ReduceLogSumExp", first_input(e, node), axes_of(e, a[1]), whole(e, a[2]) != 0));
}
void write_norm(Exporter& e, const Graph::Node& node, const Arguments& a) {
  e.set(node.outputs[0], e.reduce("ReduceL2", first_input(e, node), axes_of(e, a[1]), whole(e, a[2]) != 0));
}

/// all and any: arguments reduction, x, bits, keepdim, dtype.
void write_truth(Exporter& e, const Graph::Node& node, const Arguments& a) {
  const std::vector<int64_t> axes = axes_of(e, a[2]);
  const std::string flags =
      e.cast(e.cast(first_input(e, node), e.info(node.inputs[0]).dtype, DType::kBool), DType::kBool, DType::kInt32);
  const std::string found =
      axes.empty() ? flags : e.reduce(node.op == "all" ? "ReduceMin" : "ReduceMax", flags, axes, whole(e, a[3]) != 0);
  e.set(node.outputs[0], e.cast(found, DType::kInt32, DType::kBool));
}

/// Arguments: x, list of dimensions, correction, keepdim, whether the root is taken.
void write_variance(Exporter& e, const Graph::Node& node, const Arguments& a) {
  std::vector<int64_t> axes = integers_in(e, a[1]);
  const int64_t rank = rank_of(e, node.inputs[0]);
  if (axes.empty())
    for (int64_t d = 0; d < rank; ++d) axes.push_back(d);
  SymbolicSize count = 1;
  for (int64_t& axis : axes) {
    if (axis < 0) axis += rank;
    const SymbolicSize& size = e.info(node.inputs[0]).shape[static_cast<size_t>(axis)];
    if (!size.is_constant() || !count.is_constant()) e.refuse("the variance is over a dynamic dimension");
    count = SymbolicSize(count.constant() * size.constant());
  }
  const DType dtype = e.info(node.inputs[0]).dtype;
  const std::string x = first_input(e, node), apart = e.node("Sub", {x, e.reduce("ReduceMean", x, axes, true)});
  const auto n = static_cast<double>(count.constant());
  std::string variance = e.reduce("ReduceMean", e.node("Mul", {apart, apart}), axes, whole(e, a[3]) != 0);
  if (a[2].number != 0) variance = e.node("Mul", {variance, e.scalar(n / (n - a[2].number), dtype)});
  e.set(node.outputs[0], whole(e, a[4]) ? e.node("Sqrt", {variance}) : variance);
}

/// Arguments: a text, x, dimension, keepdim, whether the largest is wanted.
void write_arg_extreme(Exporter& e, const Graph::Node& node, const Arguments& a) {
  e.set(node.outputs[0], e.node(whole(e, a[4]) ? "ArgMax" : "ArgMin", {first_input(e, node)},
                                {{"axis", attribute(a[2].size.constant())}, {"keepdims", attribute(whole(e, a[3]))}}));
}

/// Arguments: x, dimension, whether it is the logarithm.
void write_softmax(Exporter& e, const Graph::Node& node, const Arguments& a) {
  e.set(node.outputs[0], e.node(whole(e, a[2]) ? "LogSoftmax" : "Softmax", {first_input(e, node)},
                                {{"axis", attribute(whole(e, a[1]))}}));
}

/// Arguments: x, reverse; of the last dimension.
void write_cumsum(Exporter& e, const Graph::Node& node, const Arguments& a) {
  e.set(node.outputs[0], e.node("CumSum", {converted_input(e, node), e.scalar(-1, DType::kInt64)},
                                {{"reverse", attribute(whole(e, a[1]))}}));
}

/// Arguments: x, k, largest, sorted; of the last dimension.
void write_topk(Exporter& e, const Graph::Node& node, const Arguments& a) {
  const std::vector<std::string> both =
      e.nodes("TopK", {first_input(e, node), e.sizes({a[1].size})}, 2,
              {{"largest", attribute(whole(e, a[2]))}, {"sorted", attribute(whole(e, a[3]))}});
  for (size_t i = 0; i < 2; ++i)
    if (node.outputs[i] >= 0) e.set(node.outputs[i], both[i]);
}
void write_sort(Exporter& e, const Graph::Node& node, const Arguments& a) {
  const std::vector<std::string> both =
      e.nodes("TopK", {first_input(e, node), e.sizes({e.info(node.inputs[0]).shape.back()})}, 2,
              {{"largest", attribute(whole(e, a[1]))}});
  for (size_t i = 0; i < 2; ++i)
    if (node.outputs[i] >= 0) e.set(node.outputs[i], both[i]);
}

/// Arguments: x, diagonal, lower.
void write_triangle(Exporter& e, const Graph::Node& node, const Arguments& a) {
  e.set(node.outputs[0],
        e.node("Trilu", {first_input(e, node), e.scalar(static_cast<double>(whole(e, a[1])), DType::kInt64)},
               {{"upper", attribute(int64_t{1} - whole(e, a[2]))}}));
}

/// Arguments: x, shape, for each dimension pieces of from, to, count, step, and the value between them. Padding by
/// constants and reversed dimensions are written; other arrangements are not.
void write_rearrange(Exporter& e, const Graph::Node& node, const Arguments& a) {
  const auto rank = static_cast<size_t>(rank_of(e, node.inputs[0]));
  std::string x = first_input(e, node);
  std::vector<int64_t> before(rank, 0), after(rank, 0);
  for (size_t d = 0; d < rank; ++d) {
    const std::vector<GraphArgument>& pieces = a[2].list[d].list;  // four numbers for each piece
    const SymbolicSize &size = e.info(node.inputs[0]).shape[d], &result = e.info(node.outputs[0]).shape[d];
    if (pieces.size() != 4) e.refuse("it repeats or reflects elements");
    const int64_t step = whole(e, pieces[3]);
    if (step == 1 && pieces[2].size == size && size == result) continue;
    const int64_t axis = static_cast<int64_t>(d);
    if (step == -1) {
      x = e.node("Slice", {x, e.integers({-1}), e.integers({INT64_MIN + 1}), e.integers({axis}), e.integers({-1})});
      continue;
    }
    if (step != 1) e.refuse("it repeats elements");
    const SymbolicSize &from = pieces[0].size, &count = pieces[2].size;
    if (!(from == 0) || !(count == size))
      x = e.node("Slice", {x, e.sizes({from}), e.sizes({SymbolicSize::sum(from, count)}), e.integers({axis})});
    before[d] = whole(e, pieces[1]);
    const SymbolicSize rest = SymbolicSize::difference(result, count);
    if (!rest.is_constant()) e.refuse("its padding depends on a dynamic size");
    after[d] = rest.constant() - before[d];
  }
  const auto is_zero = [](int64_t v) { return v == 0; };
  if (!std::all_of(before.begin(), before.end(), is_zero) || !std::all_of(after.begin(), after.end(), is_zero)) {
    std::vector<int64_t> pads = before;
    pads.insert(pads.end(), after.begin(), after.end());
    x = e.node("Pad", {x, e.integers(pads), e.scalar(a[3].number, e.info(node.inputs[0]).dtype)});
  }
  e.set(node.outputs[0], x);
}

}  // namespace

void add_structured(ExportTable& table) {
  for (const char* op : {"clone", "detach", "to_device"}) table[op] = write_alias;
  table["to"] = write_cast;
  table["reshape"] = write_reshape;
  table["permute"] = write_permute;
  table["expand"] = write_expand;
  table["slice"] = write_slice;
  table["split"] = write_split;
  table["cat"] = write_cat;
  table["full"] = write_full;
  table["full_like"] = write_full_like;
  table["arange"] = write_arange;
  table["embedding"] = write_embedding;
  table["gather"] = write_gather;
  table["index"] = write_index;
  table["sum"] = write_sum;
  table["max_min"] = write_extreme;
  table["prod"] = write_product;
  table["logsumexp"] = write_logsumexp;
  table["norm"] = write_norm;
  for (const char* op : {"all", "any"}) table[op] = write_truth;
  table["var"] = write_variance;
  for (const char* op : {"argmax", "argmin"}) table[op] = write_arg_extreme;
  table["softmax"] = write_softmax;
  table["cumsum"] = write_cumsum;
  table["topk"] = write_topk;
  table["sort"] = write_sort;
  table["triangle"] = write_triangle;
  table["rearrange"] = write_rearrange;
}

}  // namespace tern::onnx

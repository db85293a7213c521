#pragma once
// How Tern computes the ops of tests/golden/random_index_cases.py: views, moved elements, indices.

#include "tern/tests/core/random_ops.h"

namespace tern::test::random_ops {

inline DType dtype_named(const std::string& name) {
  for (int dtype = 0; dtype <= static_cast<int>(boolean); ++dtype)
    if (name == name_of(static_cast<DType>(dtype))) return static_cast<DType>(dtype);
  return boolean;
}

inline void view_rows(Table& t) {
  t["contiguous"] = [](const Case& c) { return Tensors{c.in(0).contiguous()}; };
  t["clone"] = [](const Case& c) { return Tensors{c.in(0).clone()}; };
  t["t"] = [](const Case& c) { return Tensors{c.in(0).t()}; };
  t["to"] = [](const Case& c) { return Tensors{c.in(0).to(dtype_named(c.get<std::string>("dtype")))}; };
  t["channels_last"] = [](const Case& c) { return Tensors{c.in(0).channels_last()}; };
  t["reshape"] = [](const Case& c) { return Tensors{c.in(0).reshape(c.list("sizes"))}; };
  t["flatten"] = [](const Case& c) { return Tensors{c.in(0).flatten(c.dim("start"), c.dim("end"))}; };
  t["transpose"] = [](const Case& c) { return Tensors{c.in(0).transpose(c.dim("a"), c.dim("b"))}; };
  t["permute"] = [](const Case& c) { return Tensors{c.in(0).permute(c.dims("order"))}; };
  t["movedim"] = [](const Case& c) { return Tensors{c.in(0).movedim(c.dim("a"), c.dim("b"))}; };
  t["view"] = [](const Case& c) { return Tensors{c.in(0).view(dtype_named(c.get<std::string>("dtype")))}; };
  t["unflatten"] = [](const Case& c) { return Tensors{c.in(0).unflatten(c.dim(), c.list("sizes"))}; };
  t["squeeze"] = [](const Case& c) { return Tensors{c.has("dims") ? c.in(0).squeeze(c.dims()) : c.in(0).squeeze()}; };
  t["unsqueeze"] = [](const Case& c) { return Tensors{c.in(0).unsqueeze(c.dim())}; };
  t["expand"] = [](const Case& c) { return Tensors{c.in(0).expand(c.list("sizes"))}; };
  t["slice"] = [](const Case& c) {
    return Tensors{c.in(0).slice(c.dim(), c.get("begin"), c.get("end"), c.get("step"))};
  };
  t["narrow"] = [](const Case& c) { return Tensors{c.in(0).narrow(c.dim(), c.get("start"), c.get("length"))}; };
  t["diagonal"] = [](const Case& c) {
    return Tensors{c.in(0).diagonal(c.get("offset"), c.dim("dim1"), c.dim("dim2"))};
  };
  t["select"] = [](const Case& c) { return Tensors{c.in(0).select(c.dim(), c.get("index"))}; };
  t["split"] = [](const Case& c) { return c.in(0).split(c.get("size"), c.dim()); };
  t["chunk"] = [](const Case& c) { return c.in(0).chunk(c.get("pieces"), c.dim()); };
  t["tensor_split"] = [](const Case& c) {
    return c.arguments["pieces"].is_array() ? c.in(0).tensor_split(c.list("pieces"), c.dim())
                                            : c.in(0).tensor_split(c.get("pieces"), c.dim());
  };
  t["unbind"] = [](const Case& c) { return c.in(0).unbind(c.dim()); };
}

inline PadMode pad_mode(const std::string& name) {
  if (name == "reflect") return PadMode::kReflect;
  if (name == "replicate") return PadMode::kReplicate;
  return name == "circular" ? PadMode::kCircular : PadMode::kConstant;
}

inline void rearranged_rows(Table& t) {
  t["flip"] = [](const Case& c) { return Tensors{flip(c.in(0), c.dims())}; };
  t["rot90"] = [](const Case& c) { return Tensors{rot90(c.in(0), c.get("k"), c.dim("a"), c.dim("b"))}; };
  t["roll"] = [](const Case& c) { return Tensors{roll(c.in(0), c.list("shifts"), c.dims())}; };
  t["repeat"] = [](const Case& c) { return Tensors{repeat(c.in(0), c.list("repeats"))}; };
  t["tile"] = [](const Case& c) { return Tensors{tile(c.in(0), c.list("repeats"))}; };
  t["repeat_interleave"] = [](const Case& c) {
    return Tensors{c.has("dim") ? repeat_interleave(c.in(0), c.get("repeats"), c.dim())
                                : repeat_interleave(c.in(0), c.get("repeats"))};
  };
  t["pad"] = [](const Case& c) {
    return Tensors{pad(c.in(0), c.list("padding"), pad_mode(c.get<std::string>("mode")), c.number_of("value"))};
  };
  t["tril"] = [](const Case& c) { return Tensors{tril(c.in(0), c.get("diagonal"))}; };
  t["triu"] = [](const Case& c) { return Tensors{triu(c.in(0), c.get("diagonal"))}; };
  t["diag_embed"] = [](const Case& c) {
    return Tensors{diag_embed(c.in(0), c.get("offset"), c.dim("dim1"), c.dim("dim2"))};
  };
  t["diag"] = [](const Case& c) { return Tensors{diag(c.in(0), c.get("diagonal"))}; };
  t["tril_indices"] = [](const Case& c) {
    return Tensors{tril_indices(c.get("rows"), c.get("cols"), c.get("diagonal"))};
  };
  t["triu_indices"] = [](const Case& c) {
    return Tensors{triu_indices(c.get("rows"), c.get("cols"), c.get("diagonal"))};
  };
  t["combinations"] = [](const Case& c) { return Tensors{combinations(c.in(0), c.get("r"), c.flag("again"))}; };
  t["vander"] = [](const Case& c) {
    const auto columns = c.has("columns") ? std::optional<int64_t>(c.get("columns")) : std::nullopt;
    return Tensors{vander(c.in(0), columns, c.flag("increasing"))};
  };
  t["cat"] = [](const Case& c) { return Tensors{cat(c.inputs, c.dim())}; };
  t["stack"] = [](const Case& c) { return Tensors{stack(c.inputs, c.dim())}; };
  t["hstack"] = [](const Case& c) { return Tensors{hstack(c.inputs)}; };
  t["vstack"] = [](const Case& c) { return Tensors{vstack(c.inputs)}; };
  t["dstack"] = [](const Case& c) { return Tensors{dstack(c.inputs)}; };
  t["column_stack"] = [](const Case& c) { return Tensors{column_stack(c.inputs)}; };
  t["block_diag"] = [](const Case& c) { return Tensors{block_diag(c.inputs)}; };
  t["meshgrid"] = [](const Case& c) {
    return meshgrid(c.inputs, c.get<std::string>("indexing") == "xy" ? Indexing::kXY : Indexing::kIJ);
  };
  t["cartesian_prod"] = [](const Case& c) { return Tensors{cartesian_prod(c.inputs)}; };
  t["broadcast_tensors"] = [](const Case& c) { return broadcast_tensors(c.inputs); };
}

inline ScatterReduction scatter_reduction(const Case& c) {
  const auto name = c.get<std::string>("mode");
  if (name == "prod") return ScatterReduction::kProd;
  if (name == "mean") return ScatterReduction::kMean;
  if (name == "amax") return ScatterReduction::kMax;
  return name == "amin" ? ScatterReduction::kMin : ScatterReduction::kSum;
}

/// The entries between brackets, of which tensors are inputs: number k is inputs[k - 1 + first].
inline std::vector<TensorIndex> entries_of(const Case& c, size_t first) {
  std::vector<TensorIndex> entries;
  for (const Json& entry : c.arguments["entries"]) {
    if (entry.contains("number")) entries.emplace_back(entry["number"].get<int64_t>());
    if (entry.contains("tensor")) entries.emplace_back(c.in(entry["tensor"].get<size_t>() - 1 + first));
    if (entry.contains("new")) entries.emplace_back(NewAxis{});
    if (entry.contains("rest")) entries.emplace_back(Ellipsis{});
    if (entry.contains("slice")) entries.emplace_back(Slice{entry["slice"][0], entry["slice"][1], entry["slice"][2]});
  }
  return entries;
}

inline void indexed_rows(Table& t) {
  t["index_select"] = [](const Case& c) { return Tensors{index_select(c.in(0), c.dim(), c.in(1))}; };
  t["index_fill"] = [](const Case& c) { return Tensors{index_fill(c.in(0), c.dim(), c.in(1), c.number_of("value"))}; };
  t["index_copy"] = [](const Case& c) { return Tensors{index_copy(c.in(0), c.dim(), c.in(1), c.in(2))}; };
  t["index_add"] = [](const Case& c) {
    return Tensors{index_add(c.in(0), c.dim(), c.in(1), c.in(2), c.number_of("alpha"))};
  };
  t["index_reduce"] = [](const Case& c) {
    return Tensors{index_reduce(c.in(0), c.dim(), c.in(1), c.in(2), scatter_reduction(c), c.flag("include_self"))};
  };
  t["gather"] = [](const Case& c) { return Tensors{gather(c.in(0), c.dim(), c.in(1))}; };
  t["scatter"] = [](const Case& c) { return Tensors{scatter(c.in(0), c.dim(), c.in(1), c.in(2))}; };
  t["scatter_number"] = [](const Case& c) { return Tensors{scatter(c.in(0), c.dim(), c.in(1), c.number_of("value"))}; };
  t["scatter_add"] = [](const Case& c) { return Tensors{scatter_add(c.in(0), c.dim(), c.in(1), c.in(2))}; };
  t["scatter_reduce"] = [](const Case& c) {
    return Tensors{scatter_reduce(c.in(0), c.dim(), c.in(1), c.in(2), scatter_reduction(c), c.flag("include_self"))};
  };
  t["take_along_dim"] = [](const Case& c) { return Tensors{take_along_dim(c.in(0), c.in(1), c.dim())}; };
  t["embedding"] = [](const Case& c) { return Tensors{embedding(c.in(0), c.in(1), c.get("padding_index"))}; };
  t["put"] = [](const Case& c) { return Tensors{put(c.in(0), c.in(1), c.in(2), c.flag("accumulate"))}; };
  t["masked_scatter"] = [](const Case& c) { return Tensors{masked_scatter(c.in(0), c.in(1), c.in(2))}; };
  t["one_hot"] = [](const Case& c) { return Tensors{one_hot(c.in(0), c.get("classes"))}; };
  t["unravel_index"] = [](const Case& c) { return unravel_index(c.in(0), Shape(c.list("shape"))); };
  t["index"] = [](const Case& c) { return Tensors{c.in(0).index(entries_of(c, 1))}; };
  t["index_put"] = [](const Case& c) {
    return Tensors{index_put(c.in(0), entries_of(c, 2), c.in(1), c.flag("accumulate"))};
  };
}

inline Table index_rows() {
  Table t;
  view_rows(t);
  rearranged_rows(t);
  indexed_rows(t);
  return t;
}

}  // namespace tern::test::random_ops

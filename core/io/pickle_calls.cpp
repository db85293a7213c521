#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>

#include "tern/core/io/pickle_reader.h"

// The calls allowed in a pickle. Those for tensors are in PyTorch's torch/_utils.py and numpy's
// numpy/_core/src/multiarray.

namespace tern::pickle {
namespace {

std::string too_many_dimensions(size_t dimensions) {
  return std::to_string(dimensions) + " dimensions; Tern has at most " + std::to_string(kMaxDims);
}

}  // namespace

/// Every function that a pickle may "call". Nothing is called: each name has a handler here.
const std::unordered_map<std::string_view, Reader::Handler>& Reader::handlers() {
  static const std::unordered_map<std::string_view, Handler> table = {
      {"builtins.dict", &Reader::make_dict},
      {"collections.OrderedDict", &Reader::make_dict},
      {"collections.Counter", &Reader::make_dict},
      {"collections.defaultdict", &Reader::make_default_dict},
      {"argparse.Namespace", &Reader::make_namespace},
      {"builtins.set", &Reader::make_set},
      {"builtins.frozenset", &Reader::make_set},
      {"collections.deque", &Reader::make_list},
      {"builtins.complex", &Reader::make_complex},
      {"builtins.slice", &Reader::make_plain},
      {"builtins.range", &Reader::make_plain},
      {"builtins.bytes", &Reader::make_bytes},
      {"builtins.bytearray", &Reader::make_bytes},
      {"_codecs.encode", &Reader::encode},
      {"pathlib.Path", &Reader::make_path},
      {"pathlib.PosixPath", &Reader::make_path},
      {"pathlib.PurePosixPath", &Reader::make_path},
      {"pathlib.WindowsPath", &Reader::make_path},
      {"pathlib.PureWindowsPath", &Reader::make_path},
      {"torch.Size", &Reader::make_size},
      {"torch.device", &Reader::make_device},
      {"torch.serialization._get_layout", &Reader::make_device},
      {"torch.nn.parameter.Parameter", &Reader::first_tensor},
      {"torch.nn.parameter.Buffer", &Reader::first_tensor},
      {"torch.nn.parameter.UninitializedParameter", &Reader::uninitialized},
      {"torch.nn.parameter.UninitializedBuffer", &Reader::uninitialized},
      {"torch._utils._rebuild_sparse_tensor", &Reader::rebuild_sparse},
      {"torch._utils._rebuild_sparse_csr_tensor", &Reader::rebuild_sparse},
      {"torch._utils._rebuild_qtensor", &Reader::rebuild_quantized},
      {"torch._utils._rebuild_meta_tensor_no_storage", &Reader::rebuild_meta},
      {"torch._utils._rebuild_nested_tensor", &Reader::rebuild_nested},
      {"torch.nested._internal.nested_tensor._rebuild_njt", &Reader::rebuild_nested},
      {"torch._utils._rebuild_wrapper_subclass", &Reader::rebuild_wrapper},
      {"torch._utils._rebuild_parameter", &Reader::first_tensor},
      {"torch._utils._rebuild_parameter_with_state", &Reader::first_tensor},
      {"torch._tensor._rebuild_from_type_v2", &Reader::rebuild_subclass},
      {"torch._utils._rebuild_tensor", &Reader::rebuild_tensor},
      {"torch._utils._rebuild_tensor_v2", &Reader::rebuild_tensor},
      {"torch._utils._rebuild_tensor_v3", &Reader::rebuild_tensor_v3},
      {"numpy.dtype", &Reader::numpy_type},
      {"numpy.core.multiarray._reconstruct", &Reader::numpy_array},
      {"numpy.core.numeric._frombuffer", &Reader::numpy_from_buffer},
      {"numpy.core.multiarray.scalar", &Reader::numpy_scalar},
  };
  return table;
}

/// True for the names a pickle may mention: the functions above and names that are only arguments of a call.
bool Reader::is_listed(std::string_view name) {
  constexpr std::string_view names[] = {"builtins.int",
                                        "builtins.float",
                                        "builtins.bool",
                                        "builtins.str",
                                        "builtins.list",
                                        "builtins.tuple",
                                        "builtins.Ellipsis",
                                        "numpy.ndarray",
                                        "torch.Tensor",
                                        "torch.nested._internal.nested_tensor.NestedTensor",
                                        "torch.masked.maskedtensor.core.MaskedTensor",
                                        "torch.per_tensor_affine",
                                        "torch.per_tensor_symmetric",
                                        "torch.per_channel_affine",
                                        "torch.per_channel_symmetric",
                                        "torch.per_channel_affine_float_qparams",
                                        "torch.contiguous_format",
                                        "torch.channels_last",
                                        "torch.channels_last_3d",
                                        "torch.preserve_format"};
  if (handlers().contains(name) || std::find(std::begin(names), std::end(names), name) != std::end(names)) return true;
  if (!name.starts_with("torch.")) return false;
  name.remove_prefix(name.starts_with("torch.storage.") ? 14 : 6);
  if (element_by_name(name) || name == "UntypedStorage") return true;
  if (!name.ends_with("Storage")) return false;
  name.remove_suffix(std::string_view("Storage").size());
  return element_by_storage(name) != nullptr;
}

Id Reader::call_global(Id function, std::span<const Id> arguments) {
  if (tree_[function].kind != PickleKind::kGlobal) damaged("a call of ", name_of(tree_[function].kind));
  std::string name(tree_[function].view());
  const auto handler = handlers().find(name);
  if (handler == handlers().end())
    damaged("a call of ", detail::printable(name), ", which is not a function that Tern supports");
  return (this->*handler->second)({std::move(name), arguments});
}

std::span<const Id> Reader::sequence(Id id, const char* what) const {
  const PickleKind kind = tree_[id].kind;
  if (kind != PickleKind::kTuple && kind != PickleKind::kList && kind != PickleKind::kSet)
    damaged(what, " must be a tuple or a list, got ", name_of(kind));
  return tree_.items(id);
}

int64_t Reader::as_integer(Id id, const char* what) const {
  const Node& node = tree_[id];
  if (node.kind != PickleKind::kInteger && node.kind != PickleKind::kBool)
    damaged(what, " must be an integer of 64 bits, got ", name_of(node.kind));
  return node.integer;
}

std::string_view Reader::as_text(Id id, const char* what) const {
  if (!tree_.is_text(id)) damaged(what, " must be text, got ", name_of(tree_[id].kind));
  return tree_[id].view();
}

Id Reader::argument(const Arguments& a, size_t i) const {
  if (i >= a.items.size()) damaged(a.name, " has ", a.items.size(), " arguments, at least ", i + 1, " are needed");
  return a.items[i];
}

Id Reader::first_tensor(const Arguments& a) {
  const Id id = argument(a, 0);
  if (tree_[id].kind != PickleKind::kTensor) damaged(a.name, " of ", name_of(tree_[id].kind), ", not of a tensor");
  return id;
}

/// Empty, a copy of a dict, or built from pairs.
Id Reader::make_dict(const Arguments& a) {
  const Id result = container(PickleKind::kDict, {});
  if (a.items.empty()) return result;
  if (tree_[a.items[0]].kind == PickleKind::kDict) {
    set_items(result, tree_.items(a.items[0]));
    return result;
  }
  for (const Id pair : sequence(a.items[0], "a dict's contents")) {
    const auto items = sequence(pair, "a dict's entry");
    if (items.size() != 2) damaged("a dict's entry of ", items.size(), " items");
    set_items(result, items);
  }
  return result;
}

/// Its function for missing keys is not needed.
Id Reader::make_default_dict(const Arguments&) { return container(PickleKind::kDict, {}); }

Id Reader::make_set(const Arguments& a) {
  const Id result = container(PickleKind::kSet, {});
  if (!a.items.empty()) append(result, sequence(a.items[0], "a set's contents"));
  return result;
}

/// collections.deque(items, longest): its items follow where none are given.
Id Reader::make_list(const Arguments& a) {
  const Id result = container(PickleKind::kList, {});
  if (!a.items.empty()) append(result, sequence(a.items[0], "a list's contents"));
  return result;
}

/// A value that is of no use here: its arguments.
Id Reader::make_plain(const Arguments& a) {
  return container(PickleKind::kTuple, std::vector<Id>(a.items.begin(), a.items.end()));
}

Id Reader::complex_number(double real, double imaginary) {
  std::array<char, 64> digits{};
  const auto print = [&](double value) {
    return std::string(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr);
  };
  const std::string second = print(imaginary);
  return own(PickleKind::kComplex, detail::concatenate("(", print(real), second[0] == '-' ? "" : "+", second, "j)"));
}

Id Reader::make_complex(const Arguments& a) {
  const auto part = [&](size_t i) {
    if (i >= a.items.size()) return 0.0;
    const Node& node = tree_[a.items[i]];
    return node.kind == PickleKind::kFloat ? node.number
                                           : static_cast<double>(as_integer(a.items[i], "a complex number's part"));
  };
  return complex_number(part(0), part(1));
}

Id Reader::make_size(const Arguments& a) {
  if (a.items.empty()) return container(PickleKind::kTuple, {});
  sequence(a.items[0], "torch.Size's argument");
  return a.items[0];
}

Id Reader::make_bytes(const Arguments& a) {
  if (a.items.empty()) return text(PickleKind::kBytes, {at_, 0});
  return tree_[a.items[0]].kind == PickleKind::kBytes ? a.items[0] : encode(a);
}

/// Python 3 writes bytes in protocol 2 as text in which each character is a byte. Equal text returns the same node, so
/// that a repeated call takes no more memory.
Id Reader::encode(const Arguments& a) {
  const Id source = argument(a, 0);
  const std::string_view given = as_text(source, "encoded text"), encoding = as_text(argument(a, 1), "an encoding");
  if (encoding != "latin1" && encoding != "latin-1")
    damaged("the encoding '", detail::printable(encoding), "' is not known");
  if (tree_[source].kind == PickleKind::kBytes) return source;
  const auto known = encoded_.find(source);
  if (known != encoded_.end()) return known->second;
  std::string bytes;
  for (size_t i = 0; i < given.size(); ++i) {
    const auto lead = static_cast<uint8_t>(given[i]);
    if (lead >= 0x80 && (lead > 0xc3 || i + 1 >= given.size())) damaged("text that is not Latin-1");
    bytes += static_cast<char>(lead < 0x80 ? lead : (lead & 3) << 6 | (static_cast<uint8_t>(given[++i]) & 0x3f));
  }
  return encoded_[source] = own(PickleKind::kBytes, std::move(bytes));
}

/// Joins the parts of a path.
Id Reader::make_path(const Arguments& a) {
  std::string path;
  for (const Id part : a.items) {
    path += path.empty() || path.ends_with('/') ? "" : "/";
    path += as_text(part, "a path's part");
    if (path.size() > 10'000) damaged("a path of more than 10,000 bytes");
  }
  return own(PickleKind::kText, std::move(path));
}

Id Reader::make_device(const Arguments& a) {
  std::string name(as_text(argument(a, 0), "a device"));
  if (name.size() > 100) damaged("a device's name of ", name.size(), " bytes");
  if (a.items.size() > 1) name.append(":").append(std::to_string(as_integer(a.items[1], "a device's number")));
  return own(PickleKind::kText, std::move(name));
}

/// Its entries follow as its state.
Id Reader::make_namespace(const Arguments&) {
  const Id result = container(PickleKind::kDict, {});
  tree_.nodes[result].integer = 1;
  return result;
}

/// _rebuild_tensor(storage, offset, size, stride), _rebuild_tensor_v2(..., requires_grad, hooks, metadata).
Id Reader::rebuild_tensor(const Arguments& a) {
  const Id result = tensor_of_storage(a, nullptr);
  if (a.items.size() > 6 && tree_[a.items[6]].kind == PickleKind::kDict)
    if (const char* lazy = pending_flag(a.items[6]))
      tree_.tensors.back().problem = std::string("it is saved with a pending ") + lazy;
  return result;
}

/// The operation that PyTorch deferred, from a tensor's metadata; null: none. Any number of tensors may refer to one
/// dict, which may grow between them, so every entry is read only once; otherwise each tensor, a few bytes, would cost
/// time for the whole dict.
const char* Reader::pending_flag(Id metadata) {
  const std::vector<Id>& pairs = tree_.items(metadata);
  PendingFlags& flags = pending_flags_[metadata];
  for (; flags.seen + 2 <= pairs.size(); flags.seen += 2) {
    const Id key = pairs[flags.seen], value = pairs[flags.seen + 1];
    if (!tree_.is_text(key)) continue;
    if (tree_[key].view() == "conj") flags.conj = value;
    if (tree_[key].view() == "neg") flags.neg = value;
  }
  if (flags.neg != kNoId && as_integer(flags.neg, "neg") != 0) return "neg";
  return flags.conj != kNoId && as_integer(flags.conj, "conj") != 0 ? "conj" : nullptr;
}

/// As _rebuild_tensor_v2, with the dtype of the elements of an untyped storage as its seventh argument.
Id Reader::rebuild_tensor_v3(const Arguments& a) { return tensor_of_storage(a, dtype_named(argument(a, 6))); }

const ElementType* Reader::dtype_named(Id id) const {
  const Node& dtype = tree_[id];
  const bool named = dtype.kind == PickleKind::kGlobal && dtype.view().starts_with("torch.");
  const ElementType* element = named ? element_by_name(dtype.view().substr(6)) : nullptr;
  if (!element)
    damaged("not a dtype that Tern supports: ", named ? detail::printable(dtype.view()) : name_of(dtype.kind));
  return element;
}

/// A tensor that is described but not read.
Id Reader::unreadable_tensor(std::string problem, const ElementType* element, Id size) {
  TensorSpec spec;
  spec.element = element;
  spec.dims = element && size != kNoId ? 0 : kUnbuilt;
  if (spec.dims == 0) {
    const auto sizes = sequence(size, "a tensor's size");
    set_layout(spec, sizes, sizes);
  }
  if (spec.problem.empty()) spec.problem = std::move(problem);
  return tensor(std::move(spec));
}

/// (layout, (indices, values, size, ...)) or, compressed, (layout, (pointers, indices, values, size)).
Id Reader::rebuild_sparse(const Arguments& a) {
  std::string layout(as_text(argument(a, 0), "a tensor's layout"));
  Id size = kNoId;
  const ElementType* element = nullptr;
  for (const Id id : sequence(argument(a, 1), "a sparse tensor's parts")) {
    const Node& node = tree_[id];
    if (node.kind == PickleKind::kTensor) element = tree_.tensors[node.index].element;
    if (node.kind == PickleKind::kTuple || node.kind == PickleKind::kList) size = id;
  }
  if (layout.starts_with("torch.")) layout.erase(0, 6);
  return unreadable_tensor("a sparse tensor (" + detail::printable(layout) + "); Tern has only dense ones", element,
                           size);
}

/// _rebuild_qtensor(storage, offset, size, stride, (scheme, scale, zero point, ...), ...).
Id Reader::rebuild_quantized(const Arguments& a) {
  const Id result = tensor_of_storage(a, nullptr);
  std::string& problem = tree_.tensors.back().problem;
  if (problem.empty()) problem = "a quantised tensor, which Tern has not";
  return result;
}

/// (dtype, size, stride, requires_grad)
Id Reader::rebuild_meta(const Arguments& a) {
  return unreadable_tensor("a tensor on PyTorch's meta device, which has no values", dtype_named(argument(a, 0)),
                           argument(a, 1));
}

Id Reader::rebuild_nested(const Arguments&) {
  return unreadable_tensor("a nested tensor; Tern has only those of one shape");
}

/// (class, dtype, size, stride, offset, layout, device, requires_grad)
Id Reader::rebuild_wrapper(const Arguments& a) {
  return unreadable_tensor("a tensor of the subclass " + detail::printable(tree_[argument(a, 0)].view()),
                           dtype_named(argument(a, 1)), argument(a, 2));
}

Id Reader::uninitialized(const Arguments&) { return unreadable_tensor("a lazy module's parameter, without values"); }

/// `element`: null means the storage's.
Id Reader::tensor_of_storage(const Arguments& a, const ElementType* element) {
  const Id storage = argument(a, 0);
  if (tree_[storage].kind != PickleKind::kStorage)
    damaged(a.name, " of ", name_of(tree_[storage].kind), ", not of a storage");
  TensorSpec spec;
  spec.source = storage;
  spec.element = element ? element : tree_.storages[tree_[storage].index].element;
  if (!spec.element) spec.element = element_by_name("uint8");
  spec.offset = as_integer(argument(a, 1), "a tensor's offset");
  set_layout(spec, sequence(argument(a, 2), "a tensor's size"), sequence(argument(a, 3), "a tensor's stride"));
  return tensor(std::move(spec));
}

void Reader::set_layout(TensorSpec& spec, std::span<const Id> sizes, std::span<const Id> strides) {
  if (sizes.size() != strides.size()) damaged("a tensor of ", sizes.size(), " sizes and ", strides.size(), " strides");
  if (sizes.size() > kMaxDims) {
    spec.problem = too_many_dimensions(sizes.size());
    spec.element = nullptr;
    return;
  }
  spec.dims = static_cast<int>(sizes.size());
  for (size_t d = 0; d < sizes.size(); ++d) {
    spec.sizes[d] = as_integer(sizes[d], "a tensor's size");
    spec.strides[d] = as_integer(strides[d], "a tensor's stride");
  }
}

/// _rebuild_from_type_v2(function, class, arguments, state): the function's result with Python attributes.
Id Reader::rebuild_subclass(const Arguments& a) {
  const Id function = argument(a, 0);
  const bool named = tree_[function].kind == PickleKind::kGlobal;
  if (named && tree_[function].view() == a.name) damaged(a.name, " of itself");  // no depth set by a file
  return call_global(function, sequence(argument(a, 2), "the arguments of a call"));
}

/// numpy.dtype("f4", align, copy); build() gives the byte order.
Id Reader::numpy_type(const Arguments& a) {
  std::string_view code = as_text(argument(a, 0), "a numpy dtype");
  bool swapped = false;
  if (!code.empty() && (code[0] == '<' || code[0] == '>' || code[0] == '|' || code[0] == '=')) {
    swapped = code[0] == '>';
    code.remove_prefix(1);
  }
  const Id result = text(PickleKind::kNumpyType, code);
  tree_.nodes[result].index = swapped ? 1 : 0;
  return result;
}

/// _reconstruct(class, shape, type): an array that build() fills.
Id Reader::numpy_array(const Arguments&) {
  TensorSpec spec;
  spec.dims = kUnbuilt;
  spec.problem = "a numpy array without contents";
  return tensor(std::move(spec));
}

/// _frombuffer(buffer, type, shape, order).
Id Reader::numpy_from_buffer(const Arguments& a) {
  const std::string_view order = as_text(argument(a, 3), "an array's order");
  TensorSpec spec;
  set_array(spec, argument(a, 0), argument(a, 1), argument(a, 2), order == "F");
  return tensor(std::move(spec));
}

/// ([version,] shape, type, Fortran order, bytes)
void Reader::build_array(TensorSpec& spec, Id state) {
  auto items = sequence(state, "a numpy array's state");
  if (items.size() == 5) items = items.subspan(1);
  if (items.size() != 4) damaged("a numpy array's state of ", items.size(), " items");
  spec.problem.clear();
  set_array(spec, items[3], items[1], items[0], as_integer(items[2], "an array's order") != 0);
}

void Reader::set_array(TensorSpec& spec, Id bytes, Id type, Id shape, bool fortran) {
  if (tree_[type].kind != PickleKind::kNumpyType) damaged("a numpy array's dtype is ", name_of(tree_[type].kind));
  const std::string_view code = tree_[type].view();
  spec.dims = 0;
  spec.element = element_by_numpy(code);
  const auto sizes = sequence(shape, "a numpy array's shape");
  if (sizes.size() > kMaxDims) {
    spec.problem = too_many_dimensions(sizes.size());
    spec.element = nullptr;
  } else if (!spec.element) {
    spec.problem = "a numpy array of dtype " + detail::printable(code);
  } else {
    spec.source = bytes;
    spec.swapped = tree_[type].index != 0;
    spec.dims = static_cast<int>(sizes.size());
  }
  if (!spec.problem.empty()) return;
  uint64_t numel = 1;
  for (int i = 0; i < spec.dims; ++i) {
    const int d = fortran ? i : spec.dims - 1 - i;  // starting with the contiguous dimension
    const int64_t size = as_integer(sizes[static_cast<size_t>(d)], "an array's size");
    if (size < 0) damaged("a numpy array of a negative size");
    spec.sizes[d] = size;
    spec.strides[d] = static_cast<int64_t>(numel);
    if (__builtin_mul_overflow(numel, static_cast<uint64_t>(size), &numel) || numel > INT64_MAX)
      damaged("a numpy array of more elements than 64 bits count");
  }
  const std::string_view contents = as_text(bytes, "a numpy array's contents");
  const auto element_bytes = static_cast<uint64_t>(spec.element->bytes);
  if (contents.size() % element_bytes != 0 || contents.size() / element_bytes != numel)
    damaged("a numpy array of ", numel, " ", spec.element->name, " has ", contents.size(), " bytes");
}

/// scalar(type, bytes): a plain number.
Id Reader::numpy_scalar(const Arguments& a) {
  const Node& type = tree_[argument(a, 0)];
  if (type.kind != PickleKind::kNumpyType) damaged("a numpy scalar's dtype is ", name_of(type.kind));
  const std::string_view bytes = as_text(argument(a, 1), "a numpy scalar's bytes");
  const ElementType* element = element_by_numpy(type.view());
  if (!element) damaged("a numpy scalar of dtype ", detail::printable(type.view()));
  if (bytes.size() != static_cast<size_t>(element->bytes))
    damaged("a numpy scalar of ", element->name, " has ", bytes.size(), " bytes");
  if (element->numpy[0] == 'c') {
    if (type.index != 0) damaged("a complex numpy scalar in big-endian byte order");
    std::array<double, 2> parts{};
    std::array<float, 2> narrow{};
    if (bytes.size() == sizeof(narrow)) {
      std::memcpy(narrow.data(), bytes.data(), sizeof(narrow));
      std::copy(narrow.begin(), narrow.end(), parts.begin());
    } else {
      std::memcpy(parts.data(), bytes.data(), sizeof(parts));
    }
    return complex_number(parts[0], parts[1]);
  }
  uint64_t bits = 0;
  std::memcpy(&bits, bytes.data(), bytes.size());
  if (type.index != 0) bits = __builtin_bswap64(bits) >> (64 - 8 * bytes.size());
  const char code = element->numpy[0];
  if (code == 'f') {
    const double value = bytes.size() == 8   ? std::bit_cast<double>(bits)
                         : bytes.size() == 4 ? double{std::bit_cast<float>(static_cast<uint32_t>(bits))}
                                             : double{float(std::bit_cast<Float16>(static_cast<uint16_t>(bits)))};
    add(PickleKind::kFloat).number = value;
    return last();
  }
  if (code == 'b') return integer(PickleKind::kBool, bits != 0);
  const int unused = 64 - 8 * static_cast<int>(bytes.size());  // shift for the sign
  if (code == 'i') return integer(PickleKind::kInteger, static_cast<int64_t>(bits << unused) >> unused);
  return bits <= INT64_MAX ? integer(PickleKind::kInteger, static_cast<int64_t>(bits))
                           : own(PickleKind::kBigInteger, std::to_string(bits));
}

}  // namespace tern::pickle

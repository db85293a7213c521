#include <array>

#include "tern/core/io/pickle_reader.h"

namespace tern::pickle {

Id Tree::find(Id id, std::string_view key) const {
  if (nodes[id].kind != PickleKind::kDict) return kNoId;
  const std::vector<Id>& pairs = items(id);
  for (size_t i = pairs.size(); i >= 2; i -= 2)
    if (is_text(pairs[i - 2]) && nodes[pairs[i - 2]].view() == key) return pairs[i - 1];
  return kNoId;
}

Node& Reader::add(PickleKind kind) {
  if (tree_.nodes.size() >= kMaxValues) damaged("more than ", kMaxValues, " values");
  tree_.nodes.push_back({});
  tree_.nodes.back().kind = kind;
  return tree_.nodes.back();
}

Id Reader::integer(PickleKind kind, int64_t value) {
  add(kind).integer = value;
  return last();
}

Id Reader::text(PickleKind kind, std::string_view view) {
  Node& node = add(kind);
  node.text = view.data();
  node.length = view.size();
  return last();
}

/// A few bytes can repeat calls that copy (dict(d), a joined path), so the memory they take is limited by the pickle's
/// size.
void Reader::account(size_t references, size_t text_bytes) {
  const auto allowed = 4 * static_cast<size_t>(end_ - begin_) + 4096;
  references_ += references;
  text_bytes_ += text_bytes;
  if (references_ > allowed || text_bytes_ > allowed)
    damaged("its values take more memory than a pickle of ", end_ - begin_, " bytes justifies");
}

Id Reader::own(PickleKind kind, std::string value) {
  account(0, value.size());
  tree_.owned.push_back(std::move(value));
  return text(kind, tree_.owned.back());
}

Id Reader::container(PickleKind kind, std::vector<Id> items) {
  account(items.size(), 0);
  add(kind).index = static_cast<uint32_t>(tree_.containers.size());
  tree_.containers.push_back(std::move(items));
  return last();
}

/// The name that current Python and numpy use.
Id Reader::global(std::string_view module, std::string_view name) {
  if (module.size() + name.size() > 1000) damaged("a class's name of ", module.size() + name.size(), " bytes");
  constexpr std::array<std::pair<std::string_view, std::string_view>, 2> modules = {
      {{"__builtin__", "builtins"}, {"copy_reg", "copyreg"}}};
  for (const auto& [old, now] : modules)
    if (module == old) module = now;
  std::string full(module);
  if (full.starts_with("numpy._core.")) full.erase(6, 1);
  full += '.';
  full += name;
  if (full == "builtins.long") full = "builtins.int";  // Python 2's names, which protocol 2 writes
  if (full == "builtins.xrange") full = "builtins.range";
  if (!is_listed(full))
    damaged("it names ", detail::printable(full),
            "; Tern reads tensors and plain containers and never runs code (save only"
            " the weights: torch.save(model.state_dict(), file))");
  return own(PickleKind::kGlobal, std::move(full));
}

Id Reader::tensor(TensorSpec spec) {
  if (tree_.tensors.size() >= kMaxTensors) damaged("more than ", kMaxTensors, " tensors");
  add(PickleKind::kTensor).index = static_cast<uint32_t>(tree_.tensors.size());
  tree_.tensors.push_back(std::move(spec));
  return last();
}

/// Appends to a list or a set.
void Reader::append(Id target, std::span<const Id> items) {
  const Node& node = tree_[target];
  if (node.kind != PickleKind::kList && node.kind != PickleKind::kSet)
    damaged("items are added to ", name_of(node.kind), ", not to a list or a set");
  account(items.size(), 0);
  std::vector<Id>& container = tree_.containers[node.index];
  container.insert(container.end(), items.begin(), items.end());
}

void Reader::set_items(Id target, std::span<const Id> pairs) {
  const Node& node = tree_[target];
  if (node.kind != PickleKind::kDict) damaged("entries are set in ", name_of(node.kind), ", not in a dict");
  if (pairs.size() % 2 != 0) damaged("a key without a value");
  account(pairs.size(), 0);
  std::vector<Id>& container = tree_.containers[node.index];
  container.insert(container.end(), pairs.begin(), pairs.end());
}

/// The state that Python passes to __setstate__ or stores in __dict__.
void Reader::build(Id target, Id state) {
  Node& node = tree_.nodes[target];
  switch (node.kind) {
    case PickleKind::kNumpyType:  // (version, byte order, ...)
      if (const auto items = sequence(state, "a numpy dtype's state"); items.size() >= 2 && tree_.is_text(items[1]))
        node.index = tree_[items[1]].view() == ">" ? 1 : 0;
      return;
    case PickleKind::kTensor:
      if (TensorSpec& spec = tree_.tensors[node.index]; spec.dims == kUnbuilt) build_array(spec, state);
      return;
    case PickleKind::kDict:  // attributes: a Namespace's entries, OrderedDict's _metadata
      if (node.integer == 0) return;
      if (tree_[state].kind != PickleKind::kDict) damaged("a Namespace's state is ", name_of(tree_[state].kind));
      set_items(target, std::vector<Id>(tree_.items(state)));
      return;
    default:
      damaged("a state is given to ", name_of(node.kind), ", which has none");
  }
}

/// PyTorch's persistent ids: ("storage", class, key, location, elements[, view]) and, in the older format, a class with
/// its source code, ("module", class, file, source).
Id Reader::persistent(Id id) {
  if (!torch_) damaged("a persistent id, which means nothing outside PyTorch's files");
  const auto items = sequence(id, "a persistent id");
  const std::string_view type = items.empty() ? "" : as_text(items[0], "a persistent id's type");
  if (type == "module" && items.size() >= 2) return items[1];
  if (type != "storage" || items.size() < 5)
    damaged("a persistent id that is neither a storage nor a module: ", detail::printable(type));
  return storage(items);
}

Id Reader::storage(std::span<const Id> items) {
  if (tree_[items[1]].kind != PickleKind::kGlobal) damaged("a storage's type is no class");
  const std::string_view full = tree_[items[1]].view();
  std::string_view name = full.substr(full.rfind('.') + 1);
  if (!full.starts_with("torch.") || !name.ends_with("Storage")) damaged("no storage class: ", detail::printable(full));
  name.remove_suffix(std::string_view("Storage").size());
  StorageSpec spec;
  spec.element = element_by_storage(name);
  if (!spec.element && name != "Untyped") damaged("no storage class: ", detail::printable(full));
  const Node& key = tree_[items[2]];
  spec.key = key.kind == PickleKind::kInteger ? std::to_string(key.integer) : as_text(items[2], "a storage's key");
  if (spec.key.size() > 100) damaged("a storage's key of ", spec.key.size(), " bytes");
  spec.numel = as_integer(items[4], "a storage's number of elements");
  int64_t bytes = 0;
  if (spec.numel < 0 || __builtin_mul_overflow(spec.numel, spec.element_bytes(), &bytes))
    damaged("storage '", detail::printable(spec.key), "' has ", spec.numel, " elements");
  if (items.size() > 5 && tree_[items[5]].kind != PickleKind::kNone) {
    const auto view = sequence(items[5], "a storage's view");
    if (view.size() != 3) damaged("a storage's view is (key, offset, elements)");
    spec.view_offset = as_integer(view[1], "a view's offset");
    spec.view_numel = as_integer(view[2], "a view's number of elements");
    if (spec.view_offset < 0 || spec.view_numel < 0 || spec.view_offset > spec.numel ||
        spec.view_numel > spec.numel - spec.view_offset)
      damaged("a view of ", spec.view_numel, " elements from ", spec.view_offset, " of a storage of ", spec.numel);
  }
  if (tree_.storages.size() >= kMaxTensors) damaged("more than ", kMaxTensors, " storages");
  add(PickleKind::kStorage).index = static_cast<uint32_t>(tree_.storages.size());
  tree_.storages.push_back(std::move(spec));
  return last();
}

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<uint8_t>(text[i++]);
    const int more = lead < 0x80                   ? 0
                     : lead >= 0xc2 && lead < 0xe0 ? 1
                     : lead >= 0xe0 && lead < 0xf0 ? 2
                     : lead >= 0xf0 && lead < 0xf5 ? 3
                                                   : -1;
    if (more < 0 || text.size() - i < static_cast<size_t>(more)) return false;
    for (int k = 0; k < more; ++k)
      if ((static_cast<uint8_t>(text[i++]) & 0xc0) != 0x80) return false;
  }
  return true;
}

}  // namespace tern::pickle

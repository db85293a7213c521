#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <tuple>

#include "tern/core/io/pickle_reader.h"

// Converts the tensor descriptions of a pickle to tensors over the file's bytes.

namespace tern::pickle {
namespace {

/// An expanded tensor (stride 0) needs no extra bytes in the file; this limits the memory of a copy of it.
constexpr int64_t kMaxExpandedBytes = int64_t{1} << 30;

/// The path of a node: "model.head.weight", or "" when nothing refers to it.
std::string place_of(const Tree& tree, Id wanted) {
  struct Step {
    Id parent;
    uint32_t position;
  };
  std::vector<Step> steps(tree.nodes.size(), {kNoId, 0});
  std::vector<Id> open = {tree.root};
  while (!open.empty() && open.back() != wanted) {
    const Id id = open.back();
    open.pop_back();
    const auto visit = [&](Id child, size_t position) {
      if (child == tree.root || steps[child].parent != kNoId) return;
      steps[child] = {id, static_cast<uint32_t>(position)};
      open.push_back(child);
    };
    const PickleKind kind = tree[id].kind;
    if (kind != PickleKind::kDict && kind != PickleKind::kList && kind != PickleKind::kTuple) continue;
    const std::vector<Id>& items = tree.items(id);
    for (size_t i = kind == PickleKind::kDict ? 1 : 0; i < items.size(); i += kind == PickleKind::kDict ? 2 : 1)
      visit(items[i], i);
  }
  std::string place;
  for (Id id = wanted; steps[id].parent != kNoId && place.size() < 1000; id = steps[id].parent) {
    const Node& parent = tree[steps[id].parent];
    const uint32_t position = steps[id].position;
    std::string name = std::to_string(position);
    if (parent.kind == PickleKind::kDict) {
      const Id key = tree.containers[parent.index][position - 1];
      if (tree.is_text(key)) name = detail::printable(tree[key].view());
      if (tree[key].kind == PickleKind::kInteger) name = std::to_string(tree[key].integer);
    }
    place.insert(0, place.empty() ? name : name + ".");
  }
  return place;
}

/// Storages for bytes of a file, each created once for all tensors that share it.
class StorageCache {
 public:
  explicit StorageCache(std::shared_ptr<MappedFile> file) : file_(std::move(file)) {}
  /// The bytes as elements of a supported type: a view of the file, or a copy where they are not aligned to 8, in the
  /// other byte order, of a narrower type, or a bool that is neither 0 nor 1.
  std::shared_ptr<Storage> get(const ElementType& element, bool swapped, std::string_view bytes);

 private:
  std::shared_ptr<Storage> unconverted(std::string_view bytes);

  std::shared_ptr<MappedFile> file_;
  std::map<std::tuple<const char*, size_t, const ElementType*, bool>, std::shared_ptr<Storage>> storages_;
};

std::shared_ptr<Storage> StorageCache::get(const ElementType& element, bool swapped, std::string_view bytes) {
  std::shared_ptr<Storage>& storage = storages_[{bytes.data(), bytes.size(), &element, swapped}];
  if (!storage)
    storage = detail::needs_conversion(element, swapped, bytes) ? detail::converted(element, swapped, bytes)
                                                                : unconverted(bytes);
  return storage;
}

std::shared_ptr<Storage> StorageCache::unconverted(std::string_view bytes) {
  std::shared_ptr<Storage>& storage = storages_[{bytes.data(), bytes.size(), nullptr, false}];
  if (storage) return storage;
  const std::less<> before;
  char* begin = file_->data();
  const bool mapped = !before(bytes.data(), begin) && before(bytes.data(), begin + file_->bytes());
  const auto size = static_cast<int64_t>(bytes.size());
  if (mapped && reinterpret_cast<uintptr_t>(bytes.data()) % 8 == 0)
    return storage = std::make_shared<Storage>(begin + (bytes.data() - begin), size, cpu, [file = file_] {});
  storage = std::make_shared<Storage>(size, cpu);
  if (size > 0) std::memcpy(storage->data(), bytes.data(), bytes.size());
  return storage;
}

/// The tensor of a spec, in memory that begins at its offset 0. Error: the tensor exceeds the memory.
Tensor build_tensor(const TensorSpec& spec, const std::shared_ptr<Storage>& storage) {
  const Shape shape(spec.sizes, spec.dims);
  const DType dtype = spec.element->dtype;
  int64_t bytes = 0;
  TERN_CHECK(!__builtin_mul_overflow(shape.numel(), size_of(dtype), &bytes) &&
                 (bytes <= kMaxExpandedBytes || bytes <= storage->bytes()),
             shape, " of ", dtype, " takes more than 1 GiB from a storage of ", storage->bytes(), " bytes");
  if (shape.numel() == 0) return empty(shape, {.dtype = dtype});
  Strides strides = contiguous_strides(shape);
  int64_t end = spec.offset;  // position of the last element, then plus one
  bool inside = spec.offset >= 0;
  for (int d = 0; d < spec.dims; ++d) {
    int64_t span = 0;
    TERN_CHECK(spec.strides[d] >= 0, "stride ", spec.strides[d], " of dimension ", d, " is negative");
    if (spec.sizes[d] == 1) continue;  // a stride without effect, which may be huge, is not stored
    strides[static_cast<size_t>(d)] = spec.strides[d];
    inside = inside && !__builtin_mul_overflow(spec.sizes[d] - 1, spec.strides[d], &span) &&
             !__builtin_add_overflow(end, span, &end);
  }
  inside = inside && end < INT64_MAX && !__builtin_mul_overflow(end + 1, size_of(dtype), &end);
  TERN_CHECK(inside && end <= storage->bytes(), shape, " of ", dtype, " at element ", spec.offset,
             " is not inside its storage of ", storage->bytes(), " bytes");
  return from_storage(storage, spec.offset, shape, strides, dtype);
}

/// Bytes outside a view do not belong to the tensor.
std::shared_ptr<Storage> view_of(const StorageSpec& source, const ElementType& element,
                                 const std::shared_ptr<Storage>& storage) {
  const int64_t begin = source.view_offset * source.element_bytes();
  TERN_CHECK(begin % element.bytes == 0, "its view of a storage begins inside an element, at byte ", begin);
  const int64_t scale = size_of(element.dtype) / element.bytes;  // 1, or more where elements are widened
  return std::make_shared<Storage>(static_cast<char*>(storage->data()) + begin * scale,
                                   source.view_numel * source.element_bytes() * scale, cpu, [storage] {});
}

Tensor make_tensor(const Tree& tree, const TensorSpec& spec, bool swapped, const FindStorage& find,
                   StorageCache& storages) {
  const Node& node = tree[spec.source];
  if (node.kind != PickleKind::kStorage)
    return build_tensor(spec, storages.get(*spec.element, spec.swapped, node.view()));
  const StorageSpec& source = tree.storages[node.index];
  const std::string_view bytes = find(source);
  // As many elements as the pickle says; a remainder smaller than an element belongs to the untyped storage.
  TERN_CHECK(bytes.size() / static_cast<size_t>(source.element_bytes()) == static_cast<uint64_t>(source.numel),
             "its storage '", detail::printable(source.key), "' must have ", source.numel, " elements of ",
             source.element_bytes(), " bytes, the file holds ", bytes.size(), " bytes");
  const std::shared_ptr<Storage> storage = storages.get(*spec.element, swapped, bytes);
  return build_tensor(spec, source.view_numel < 0 ? storage : view_of(source, *spec.element, storage));
}

}  // namespace

void build_tensors(Tree& tree, bool swapped, const FindStorage& find) {
  StorageCache storages(tree.file);
  for (size_t i = 0; i < tree.tensors.size(); ++i) {
    TensorSpec& spec = tree.tensors[i];
    if (!spec.problem.empty()) continue;
    if (!spec.element->known) {
      spec.problem = std::string("Tern has no ") + spec.element->name;
      continue;
    }
    try {
      spec.tensor = make_tensor(tree, spec, swapped, find, storages);
    } catch (const OutOfMemoryError&) {
      throw;
    } catch (const Error& error) {
      const auto node = std::find_if(tree.nodes.begin(), tree.nodes.end(),
                                     [&](const Node& n) { return n.kind == PickleKind::kTensor && n.index == i; });
      fail(tree.path, ": tensor '", place_of(tree, static_cast<Id>(node - tree.nodes.begin())), "': ", error.what());
    }
  }
}

}  // namespace tern::pickle

#include "tern/core/io/torch_file.h"

#include <cstring>
#include <unordered_map>

#include "tern/core/io/pickle_reader.h"
#include "tern/core/io/zip_directory.h"

namespace tern {
namespace {

using pickle::Id, pickle::Reader, pickle::StorageSpec, pickle::Tree;

/// The archive's only top folder, of any name, with its slash.
std::string_view top_folder(const std::string& path, const ZipDirectory& zip) {
  std::string_view folder;
  for (const ZipEntry& entry : zip.entries()) {
    const size_t slash = entry.name.find('/');
    if (slash == std::string_view::npos || entry.name.substr(slash + 1) != "data.pkl") continue;
    TERN_CHECK(folder.empty(), path, ": the zip archive has two of PyTorch's pickles: ", detail::printable(folder),
               "data.pkl and ", detail::printable(entry.name));
    folder = entry.name.substr(0, slash + 1);
  }
  TERN_CHECK(!folder.empty(), path, ": a zip archive without PyTorch's data.pkl");
  return folder;
}

bool is_big_endian(const std::string& path, const ZipDirectory& zip, const std::string& folder) {
  const ZipEntry* order = zip.find(folder + "byteorder");
  const std::string_view name = order ? zip.contents(*order) : "little";
  TERN_CHECK(name == "little" || name == "big", path, ": byteorder must be little or big, got '",
             detail::printable(name), "'");
  return name == "big";
}

void read_zip(Tree& tree) {
  const std::string& path = tree.path;
  const ZipDirectory zip(path, tree.file->data(), tree.file->bytes());
  const std::string folder(top_folder(path, zip));
  TERN_CHECK(!zip.find(folder + "constants.pkl"), path,
             ": a TorchScript archive, which holds code; save only the weights: torch.save(model.state_dict(), "
             "file)");
  const bool swapped = is_big_endian(path, zip, folder);
  const std::string_view text = zip.contents(*zip.find(folder + "data.pkl"));
  tree.root = Reader(tree, path + ": data.pkl", text.data(), text.data() + text.size(), true).read();

  std::unordered_map<std::string, std::string_view> checked;  // a checksum is computed once
  pickle::build_tensors(tree, swapped, [&](const StorageSpec& spec) {
    const auto [found, first] = checked.try_emplace(spec.key);
    if (first) {
      const ZipEntry* entry = zip.find(folder + "data/" + spec.key);
      TERN_CHECK(entry, "its storage '", detail::printable(spec.key), "' is not in the archive");
      found->second = zip.contents(*entry);
    }
    return found->second;
  });
}

/// The older format's magic number, 0x1950a86a20f9469cfc6c, in the two forms of the pickle reader.
bool is_magic(const Tree& tree, Id id) {
  return tree[id].kind == PickleKind::kBigInteger &&
         (tree[id].view() == "0x1950a86a20f9469cfc6c" || tree[id].view() == "119547037146038801333356");
}

constexpr int64_t kOlderVersion = 1001;

/// Finds the raw storages after the pickles: for each key its number of elements, in 64 bits, and the elements. They
/// are always little-endian, regardless of the writing machine and of the file's record of it.
std::unordered_map<std::string, std::string_view> find_older_storages(const Tree& tree, Id keys, const char* at) {
  const std::string& path = tree.path;
  std::unordered_map<std::string_view, const StorageSpec*> specs;
  for (const StorageSpec& spec : tree.storages) specs.try_emplace(spec.key, &spec);
  TERN_CHECK(tree[keys].kind == PickleKind::kList, path, ": the list of storages is ", name_of(tree[keys].kind));
  std::unordered_map<std::string, std::string_view> found;
  const char* end = tree.file->data() + tree.file->bytes();
  for (const Id id : tree.items(keys)) {
    const bool number = tree[id].kind == PickleKind::kInteger;
    TERN_CHECK(number || tree.is_text(id), path, ": a storage's key is ", name_of(tree[id].kind));
    const std::string key = number ? std::to_string(tree[id].integer) : std::string(tree[id].view());
    const auto spec = specs.find(key);
    TERN_CHECK(spec != specs.end(), path, ": no tensor has the storage '", detail::printable(key), "'");
    int64_t numel = -1;
    TERN_CHECK(end - at >= 8, path, ": truncated before storage '", detail::printable(key), "'");
    std::memcpy(&numel, at, 8);
    at += 8;
    TERN_CHECK(numel == spec->second->numel, path, ": storage '", detail::printable(key), "' must have ",
               spec->second->numel, " elements, has ", numel);
    const auto bytes = numel * spec->second->element_bytes();  // cannot overflow: checked when the storage was read
    TERN_CHECK(bytes <= end - at, path, ": truncated in storage '", detail::printable(key), "': ", bytes,
               " bytes are needed, there are ", end - at);
    TERN_CHECK(found.try_emplace(key, std::string_view(at, static_cast<size_t>(bytes))).second, path, ": storage '",
               detail::printable(key), "' occurs twice");
    at += bytes;
  }
  return found;
}

/// Reads magic number, protocol version, a record of the machine, the value, the storages' keys: five pickles. Returns
/// false, with the first pickle's value as the root, when the file is not PyTorch's.
bool read_older(Tree& tree) {
  const std::string& path = tree.path;
  const char* at = tree.file->data();
  const char* end = at + tree.file->bytes();
  const auto next = [&](const char* part, bool torch) {
    Reader reader(tree, path + part, at, end, torch);
    const Id id = reader.read();
    at = reader.position();
    return id;
  };
  tree.root = next("", false);
  if (!is_magic(tree, tree.root)) return false;
  const Id version = next(": protocol version", false);
  TERN_CHECK(tree[version].kind == PickleKind::kInteger && tree[version].integer == kOlderVersion, path,
             ": the protocol version must be ", kOlderVersion);
  next(": system information", false);
  tree.root = next(": the value", true);
  const Id keys = next(": the storages' keys", false);
  const auto found = find_older_storages(tree, keys, at);
  pickle::build_tensors(tree, false, [&](const StorageSpec& spec) {
    const auto bytes = found.find(spec.key);
    TERN_CHECK(bytes != found.end(), "its storage '", detail::printable(spec.key), "' is not in the file");
    return bytes->second;
  });
  return true;
}

}  // namespace

TorchFile load_torch(const std::string& path) {
  auto tree = std::make_shared<Tree>();
  tree->path = path;
  tree->file = std::make_shared<MappedFile>(path);
  const std::string_view bytes(tree->file->data(), tree->file->bytes());
  TERN_CHECK(!bytes.empty(), path, ": the file is empty");
  TERN_CHECK(bytes.size() < 512 || bytes.substr(257, 5) != "ustar", path,
             ": a tar archive, PyTorch's format of before 2017; load and save it with a newer PyTorch");
  TorchFile file;
  if (bytes.starts_with("PK\3\4") || bytes.starts_with("PK\5\6")) {
    file.format = "PyTorch (zip)";
    read_zip(*tree);
  } else if (read_older(*tree)) {
    file.format = "PyTorch (older format)";
  } else {
    file.format = "pickle";
    pickle::build_tensors(*tree);
  }
  tree->file->check();
  file.contents = PickleValue(tree, tree->root);
  return file;
}

}  // namespace tern

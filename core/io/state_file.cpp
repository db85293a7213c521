#include "tern/core/io/state_file.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <unordered_set>

#include "tern/core/io/file_kind.h"
#include "tern/core/io/json.h"
#include "tern/core/io/mapped_file.h"
#include "tern/core/io/npy.h"
#include "tern/core/io/npy_header.h"
#include "tern/core/io/torch_file.h"
#include "tern/core/io/zip_directory.h"

namespace tern {
namespace {

using Json = nlohmann::json;

constexpr const char* kContainers[] = {
    "state_dict_ema", "model_ema", "state_dict", "model_state_dict", "model", "model_state", "net",    "network",
    "module",         "weights",   "params",     "ema_state_dict",   "ema",   "teacher",     "student"};
constexpr const char* kPrefixes[] = {"module.", "_orig_mod."};
constexpr size_t kMaxDepth = 64, kMaxName = 1000, kMaxNames = 1'000'000, kMaxNameBytes = 64'000'000;
// Containers may be shared, and a few bytes of sharing give any number of paths, so the work is limited: reading a
// value counts 1 and visiting it under a name 5.
constexpr size_t kMaxWork = 12'000'000;

struct Found {
  std::string name;
  PickleValue value;
};

/// Collects the tensors in a value, and the other entries.
class Collector {
 public:
  explicit Collector(const std::string& path) : path_(path) {}

  void collect(const PickleValue& value) {
    tensors.clear();
    other_entries.clear();
    visit(value, "", 0);
  }

  std::vector<Found> tensors, other_entries;

 private:
  void count(size_t work) {
    work_ += work;
    TERN_CHECK(work_ <= kMaxWork, path_, ": too many values, or too many paths to shared ones");
  }

  static bool is_container(const PickleValue& value) {
    return value.is(PickleKind::kDict) || value.is(PickleKind::kList) || value.is(PickleKind::kTuple);
  }

  /// True for a container that is visited, false for one that is described in one line.
  bool has_parts(const PickleValue& value) {
    if (!is_container(value)) return false;
    count(value.size());
    if (value.is(PickleKind::kDict)) return value.size() > 0;
    for (size_t i = 0; i < value.size(); ++i)
      if (is_container(value[i]) || value[i].is(PickleKind::kTensor)) return true;
    return false;
  }

  /// A container inside itself is skipped: it adds nothing new.
  void visit(const PickleValue& value, const std::string& name, size_t depth) {
    count(5);
    if (!has_parts(value)) {
      add(value.is(PickleKind::kTensor) ? tensors : other_entries, value, name);
      return;
    }
    if (std::find(open_.begin(), open_.end(), value.id()) != open_.end()) return;
    TERN_CHECK(depth < kMaxDepth, path_, ": '", detail::printable(name), "' is nested in more than ", kMaxDepth,
               " containers");
    open_.push_back(value.id());
    const bool dict = value.is(PickleKind::kDict);
    for (size_t i = 0; i < value.size(); ++i)
      visit(value[i], join(name, dict ? value.key(i) : PickleValue(), i), depth + 1);
    open_.pop_back();
  }

  std::string join(const std::string& name, const PickleValue& key, size_t position) const {
    std::string part = std::to_string(position);
    if (key.is(PickleKind::kText) || key.is(PickleKind::kBytes)) {
      const std::string_view text = key.as_text();
      TERN_CHECK(text.size() <= kMaxName && name.size() <= kMaxName, path_, ": the name '", detail::printable(name),
                 ".", detail::printable(text), "' is longer than ", kMaxName, " bytes");
      part = text;
    } else if (key.defined()) {
      part = key.describe();
    }
    return name.empty() ? part : name + "." + part;
  }

  void add(std::vector<Found>& list, const PickleValue& value, const std::string& name) {
    name_bytes_ += name.size();
    TERN_CHECK(list.size() < kMaxNames && name_bytes_ <= kMaxNameBytes, path_, ": more than ", kMaxNames,
               " tensors or other values, or ", kMaxNameBytes, " bytes of names");
    list.push_back({name.empty() && value.is(PickleKind::kTensor) ? "tensor" : name, value});
  }

  const std::string& path_;
  std::vector<uint32_t> open_;  // the containers that enclose the visited one
  size_t name_bytes_ = 0, work_ = 0;
};

/// Scalars next to a container are a checkpoint's epoch or accuracy, and integers are a generator's state.
bool has_own_weights(const PickleValue& dict) {
  for (size_t i = 0; i < dict.size(); ++i) {
    const PickleValue item = dict[i];
    if (!item.is(PickleKind::kTensor) || !item.tensor_problem().empty()) continue;
    const Tensor tensor = item.as_tensor();
    if (tensor.dim() > 0 && is_floating(tensor.dtype())) return true;
  }
  return false;
}

/// Enters the next container, or the one of that name, and collects its tensors; false when there is none to enter.
bool enter_next(Collector& collector, PickleValue& value, StateFile& file, std::vector<Found>& tensors,
                const std::string& wanted) {
  if (!value.is(PickleKind::kDict) || (wanted.empty() && has_own_weights(value))) return false;
  const std::string outer = file.container.empty() ? "" : file.container + ".";
  PickleValue taken;
  const auto try_to_enter = [&](const std::string& name) {
    const PickleValue inner = value.find(name);
    if (!inner.is(PickleKind::kDict)) return;
    collector.collect(inner);
    if (collector.tensors.empty()) return;
    if (taken.defined()) {
      file.other_containers.push_back(outer + name);
      return;
    }
    tensors = collector.tensors;
    taken = inner;
    file.container = outer + name;
  };
  if (!wanted.empty()) try_to_enter(wanted);
  for (const char* name : kContainers)
    if (name != wanted && (wanted.empty() || taken.defined())) try_to_enter(name);
  if (taken.defined()) value = taken;
  return taken.defined();
}

/// Removes prefixes as long as every name has the same one; returns what was removed.
std::string strip_prefixes(std::vector<Found>& found) {
  const auto is_count = [](const Found& f) { return f.name == "n_averaged"; };
  std::string taken;
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view prefix : kPrefixes) {
      const auto has_prefix = [&](const Found& f) {
        return f.name.size() > prefix.size() && f.name.starts_with(prefix);
      };
      const bool any = std::any_of(found.begin(), found.end(), has_prefix);
      if (!any ||
          !std::all_of(found.begin(), found.end(), [&](const Found& f) { return is_count(f) || has_prefix(f); }))
        continue;
      std::erase_if(found, is_count);
      for (Found& f : found) f.name.erase(0, prefix.size());
      taken += prefix;
      again = true;
    }
  }
  return taken;
}

StateFile from_torch(const std::string& path, const StateFileOptions& options, const std::string& wanted) {
  constexpr int kMaxContainers = 8;  // a dict may contain itself under "model"
  TorchFile torch = load_torch(path);
  StateFile file;
  file.path = path;
  file.format = std::move(torch.format);
  file.contents = std::move(torch.contents);
  Collector collector(path);
  collector.collect(file.contents);
  for (const Found& f : collector.other_entries)
    file.other_entries.emplace_back(detail::printable(f.name, kMaxName), f.value.describe());
  std::vector<Found> tensors = collector.tensors;
  PickleValue value = file.contents;
  for (int i = 0; !options.whole && i < kMaxContainers; ++i) {
    const bool named = i == 0 && !wanted.empty();
    if (enter_next(collector, value, file, tensors, named ? wanted : "")) continue;
    TERN_CHECK(!named, path, ": holds no tensors under '", detail::printable(wanted), "'");
    break;
  }
  if (!options.whole) file.prefix = strip_prefixes(tensors);
  std::unordered_set<std::string_view> names;
  for (const auto& [name, value] : tensors) {
    TERN_CHECK(names.insert(name).second, path, ": two tensors are named '", detail::printable(name), "'");
    if (!value.tensor_problem().empty()) {
      file.unreadable.push_back({name, value.describe()});
      continue;
    }
    file.tensors.push_back({name, value.as_tensor()});
    if (const std::string_view stored = value.stored_dtype(); stored != name_of(file.tensors.back().tensor.dtype()))
      file.widened[name] = stored;
  }
  return file;
}

StateFile from_safetensors(const std::string& path) {
  SafetensorsFile given = load_safetensors(path);
  StateFile file;
  file.path = path;
  file.format = "safetensors";
  file.tensors = std::move(given.tensors);
  file.widened = std::move(given.widened);
  file.unreadable = std::move(given.unreadable);
  for (const auto& [key, value] : given.metadata) file.other_entries.emplace_back(key, value);
  return file;
}

StateFile from_numpy(const std::string& path, bool archive) {
  NumpyFile given = archive ? load_npz(path) : detail::load_npy_entry(path);
  StateFile file;
  file.path = path;
  file.format = archive ? "NumPy (npz)" : "NumPy (npy)";
  file.tensors = std::move(given.tensors);
  file.widened = std::move(given.widened);
  file.unreadable = std::move(given.unreadable);
  return file;
}

bool is_zip(std::string_view bytes) { return bytes.starts_with("PK\3\4") || bytes.starts_with("PK\5\6"); }

/// True for a zip archive of NumPy's: one with an array, or of that name, and without the pickle of PyTorch's.
bool is_npz(const std::string& path, std::string_view bytes) {
  if (!is_zip(bytes)) return false;
  const ZipDirectory zip(path, bytes.data(), bytes.size());
  const auto any_ends_with = [&](std::string_view ending) {
    return std::any_of(zip.entries().begin(), zip.entries().end(),
                       [&](const ZipEntry& entry) { return entry.name.ends_with(ending); });
  };
  return (path.ends_with(".npz") || any_ends_with(".npy")) && !any_ends_with("/data.pkl");
}

/// True for a valid header length followed by a brace. No pickle and no archive begins this way.
bool is_safetensors(std::string_view bytes) {
  uint64_t length = 0;
  if (bytes.size() < 9) return false;
  std::memcpy(&length, bytes.data(), 8);
  return length <= 100'000'000 && bytes[8] == '{';
}

bool is_torch(std::string_view bytes) {
  return is_zip(bytes) || bytes.starts_with('\x80') || (bytes.size() >= 512 && bytes.substr(257, 5) == "ustar");
}

/// "weight_map" of an index: the names of the files, and the tensors that each must contain.
std::map<std::string, std::set<std::string>> read_index(const std::string& path) {
  const Json index = read_json_object(path);
  TERN_CHECK(index.contains("weight_map") && index["weight_map"].is_object(), path,
             ": expected a JSON object with \"weight_map\", an object of tensors' names and file names");
  std::map<std::string, std::set<std::string>> files;
  for (const auto& [name, file] : index["weight_map"].items()) {
    TERN_CHECK(file.is_string(), path, ": the file of '", detail::printable(name), "' is not a string");
    const std::string text = file.get<std::string>();
    TERN_CHECK(!text.empty() && text.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos && text != "..",
               path, ": '", detail::printable(text), "' is not the name of a file next to the index");
    files[text].insert(name);
  }
  return files;
}

StateFile load_parts(const std::string& index) {
  StateFile whole;
  std::unordered_set<std::string> names;
  for (const auto& [name, wanted] : read_index(index)) {
    StateFile part = load_state_file((std::filesystem::path(index).parent_path() / name).string());
    whole.format = part.format;
    std::set<std::string> missing = wanted;
    for (NamedTensor& entry : part.tensors) {
      missing.erase(entry.name);
      TERN_CHECK(names.insert(entry.name).second, part.path, ": tensor '", detail::printable(entry.name),
                 "' is in another of the files too");
      whole.tensors.push_back(std::move(entry));
    }
    for (UnreadableTensor& entry : part.unreadable) {
      missing.erase(entry.name);
      whole.unreadable.push_back(std::move(entry));
    }
    TERN_CHECK(missing.empty(), part.path, ": has no tensor '", detail::printable(*missing.begin()), "', which ", index,
               " says it has");
    whole.widened.merge(part.widened);
  }
  whole.path = index;
  return whole;
}

/// Whether the bytes are a pickle's "cMODULE\nNAME\n"; a text that begins with a c (the header of a table) is none.
bool names_global(std::string_view bytes) {
  if (!bytes.starts_with('c')) return false;
  const size_t module = bytes.find('\n');
  if (module == std::string_view::npos) return true;  // cut off
  const auto is_name = [](std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
    });
  };
  return is_name(bytes.substr(1, module - 1)) &&
         is_name(bytes.substr(module + 1, bytes.find('\n', module + 1) - module - 1));
}

}  // namespace

std::string file_of_weights(const std::string& path) {
  const size_t colon = path.rfind(':');
  if (colon == std::string::npos || colon == 0 || detail::name_exists(path)) return path;
  const std::string file = path.substr(0, colon);
  return detail::name_exists(file) ? file : path;
}

StateFile load_state_file(const std::string& given, const StateFileOptions& options) {
  const std::string path = file_of_weights(given);
  const std::string wanted = path == given ? "" : given.substr(path.size() + 1);
  const MappedFile mapping(path);
  const std::string_view bytes(mapping.data(), mapping.bytes());
  TERN_CHECK(!bytes.empty(), path, ": the file is empty");
  TERN_CHECK(!bytes.starts_with("version https://git-lfs"), path,
             ": a pointer of Git LFS, not the file itself; fetch it with git lfs pull");
  // Damaged at the beginning: the reader of that format reports how.
  const bool named = path.ends_with(".safetensors");
  if (is_safetensors(bytes) || (named && !is_torch(bytes))) {
    TERN_CHECK(wanted.empty(), path, ": a safetensors file holds no container '", detail::printable(wanted), "'");
    return from_safetensors(path);
  }
  const bool array = bytes.starts_with(detail::kNpyMagic);
  if (array || is_npz(path, bytes)) {
    TERN_CHECK(wanted.empty(), path, ": a file of NumPy holds no container '", detail::printable(wanted), "'");
    return from_numpy(path, !array);
  }
  // A pickle of protocol 0 or 1 has no signature; it begins with a mark, an empty container or a global.
  const bool may_be_pickle = std::string_view("(]}").find(bytes[0]) != std::string_view::npos || names_global(bytes);
  TERN_CHECK(is_torch(bytes) || may_be_pickle, path,
             ": neither a safetensors file nor one that PyTorch or NumPy writes; it begins with '",
             detail::printable(bytes, 16), "'");
  return from_torch(path, options, wanted);
}

void verify_files_of(const StateView& tensors) {
  for (const NamedTensor& entry : tensors)
    if (entry.tensor.device().is_cpu()) verify_mapped_memory(entry.tensor.raw_data());
}

StateFile load_state_folder(const std::string& folder) {
  namespace fs = std::filesystem;
  constexpr const char* names[] = {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
                                   "pytorch_model.bin.index.json"};
  for (const char* name : names) {
    const fs::path path = fs::path(folder) / name;
    if (!detail::name_exists(path.string())) continue;
    StateFile file = path.extension() == ".json" ? load_parts(path.string()) : load_state_file(path.string());
    TERN_CHECK(file.unreadable.empty(), file.path, ": tensor '", detail::printable(file.unreadable[0].name), "' is ",
               file.unreadable[0].reason);
    return file;
  }
  fail((fs::path(folder) / names[0]).string(), ": no such file; the weights of a model folder are in ", names[0], ", ",
       names[1], ", ", names[2], " or ", names[3]);
}

}  // namespace tern

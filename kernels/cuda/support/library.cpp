#include "tern/kernels/cuda/support/library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "tern/kernels/base/check.h"

namespace tern::kernels::cuda {
namespace {

namespace fs = std::filesystem;

std::string path_of(void* function, const std::string& otherwise) {
  Dl_info where = {};
  return dladdr(function, &where) != 0 && where.dli_fname ? where.dli_fname : otherwise;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// The entries of a folder, sorted by name; empty if it cannot be read.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    entries.push_back(entry->path());
  std::sort(entries.begin(), entries.end());
  return entries;
}

/// Possible prefixes of Python installations: the active environment, those of `python3` and `python` in PATH, and
/// those of the system's and the user's packages.
std::vector<fs::path> python_prefixes() {
  std::vector<fs::path> prefixes;
  const auto add = [&](const fs::path& prefix) {
    if (!prefix.empty() && std::find(prefixes.begin(), prefixes.end(), prefix) == prefixes.end())
      prefixes.push_back(prefix);
  };
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) add(variable(name));
  const std::string path = variable("PATH");
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const fs::path folder = path.substr(begin, end - begin);
    begin = end + 1;
    for (const char* program : {"python3", "python"}) {
      std::error_code error;
      if (folder.empty() || !fs::exists(folder / program, error)) continue;
      add(folder.parent_path());
      add(fs::canonical(folder / program, error).parent_path().parent_path());  // resolves links of an environment
    }
  }
  for (const char* prefix : {"/usr/local", "/usr"}) add(prefix);
  if (const std::string home = variable("HOME"); !home.empty()) add(fs::path(home) / ".local");
  return prefixes;
}

/// The folders of NVIDIA's libraries from Python packages: PREFIX/lib/python3.*/site-packages/nvidia/*/lib.
std::vector<std::string> python_folders() {
  std::vector<std::string> folders;
  for (const fs::path& prefix : python_prefixes())
    for (const fs::path& python : entries_of(prefix / "lib")) {
      if (!python.filename().string().starts_with("python3")) continue;
      for (const char* packages : {"site-packages", "dist-packages"})
        for (const fs::path& package : entries_of(python / packages / "nvidia")) {
          std::error_code error;
          if (fs::is_directory(package / "lib", error)) folders.push_back((package / "lib").string() + "/");
        }
    }
  return folders;
}

/// Folders that may contain CUDA but that the loader does not search.
const std::vector<std::string>& other_folders() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> folders;
    for (const std::string& root : {variable("CUDA_HOME"), variable("CUDA_PATH"), std::string("/usr/local/cuda")})
      if (!root.empty())
        for (const char* part : {"/lib64/", "/extras/CUPTI/lib64/"}) folders.push_back(root + part);
    for (std::string& folder : python_folders()) folders.push_back(std::move(folder));
    return folders;
  }();
  return all;
}

}  // namespace

void SharedLibrary::found(void* handle, void* probe, const std::string& file) {
  handle_ = handle;
  info_.found = true;
  info_.path = path_of(probe, file);
  info_.version = need_.version(probe);
  info_.reason.clear();
}

bool SharedLibrary::open(const std::string& file) {
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (void* probe = handle ? dlsym(handle, need_.probe) : nullptr) {
    found(handle, probe, file);
    return true;
  }
  const char* words = dlerror();
  info_.reason += (info_.reason.empty() ? "" : "; ") + (words ? std::string(words) : file + ": cannot be loaded");
  if (handle) dlclose(handle);
  return false;
}

void SharedLibrary::load() {
  info_.name = need_.name;
  if (const char* file = std::getenv(need_.variable); file && *file) {
    open(file);
    return;
  }
  if (void* probe = dlsym(RTLD_DEFAULT, need_.probe)) return found(RTLD_DEFAULT, probe, "the program itself");
  for (const char* file : need_.files)
    if (open(file)) return;
  for (const std::string& folder : other_folders())
    for (const char* file : need_.files)
      if (std::error_code error; fs::exists(folder + file, error) && open(folder + file)) return;
}

const LibraryInfo& SharedLibrary::info() {
  std::call_once(loaded_, [this] { load(); });
  return info_;
}

void* SharedLibrary::find(const char* name) { return info().found ? dlsym(handle_, name) : nullptr; }

void* SharedLibrary::address(const char* name) {
  const LibraryInfo& library = info();
  TERN_CHECK(library.found, need_.name, " is needed for ", need_.purpose, " and was not found (", library.reason,
             "); install it (", need_.packages, "), name its file in ", need_.variable, ", or use --device cpu");
  void* function = find(name);
  TERN_CHECK(function, need_.name, " ", library.version, " (", library.path, ") has no function ", name,
             "; it is too old for this program");
  return function;
}

std::string dotted_version(size_t number) {
  return tern::detail::concatenate(number / 10000, ".", number / 100 % 100, ".", number % 100);
}

}  // namespace tern::kernels::cuda

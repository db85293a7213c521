#include "tern/kernels/cuda/support/library.h"

#include <dlfcn.h>

#include <cstdlib>

#include "tern/core/check.h"

namespace tern::kernels::cuda {
namespace {

std::string path_of(void* function, const std::string& otherwise) {
  Dl_info where = {};
  return dladdr(function, &where) != 0 && where.dli_fname ? where.dli_fname : otherwise;
}

/// The folders in which CUDA is installed where the loader does not look by itself.
std::vector<std::string> toolkit_folders() {
  std::vector<std::string> folders;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* root = std::getenv(variable); root && *root) folders.push_back(std::string(root) + "/lib64/");
  folders.emplace_back("/usr/local/cuda/lib64/");
  return folders;
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
  const std::string by_name = info_.reason;  // the folders below are an extra: what failed there says nothing more
  for (const std::string& folder : toolkit_folders())
    for (const char* file : need_.files)
      if (open(folder + file)) return;
  info_.reason = by_name;
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

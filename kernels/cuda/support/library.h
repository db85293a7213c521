#pragma once
// NVIDIA's libraries, loaded on first use: the program links none of them, starts without them and reports which one is
// missing. Each library is one SharedLibrary object.

#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace tern::kernels::cuda {

/// The information that `tern info` shows about a library.
struct LibraryInfo {
  std::string name;  // "cuBLASLt"
  bool found = false;
  std::string path;     // of the loaded file
  std::string version;  // "13.1.0"
  std::string reason;   // why it was not loaded: the loader's message for each file tried
};

/// The library to load, and the text of the error when that fails.
struct LibraryNeed {
  const char* name;                // "cuBLASLt"
  const char* purpose;             // "matrix products on CUDA": completes "cuBLASLt is needed for ..."
  std::vector<const char*> files;  // in order of preference: "libcublasLt.so.13", ...
  const char* packages;            // completes "install it (...)"
  const char* variable;            // environment variable that names the only file to load instead
  const char* probe;               // a function that returns the version; also identifies the library
  std::string (*version)(void* probe);
};

/// A shared library that is opened on first use and never closed. Searched in this order: the file that the environment
/// variable names; a copy that the process has loaded; the files by name in the loader's path; in lib64 and
/// extras/CUPTI/lib64 of $CUDA_HOME, $CUDA_PATH and /usr/local/cuda; in site-packages/nvidia/*/lib (and dist-packages)
/// of $VIRTUAL_ENV, $CONDA_PREFIX, the Pythons in PATH, /usr/local, /usr and ~/.local, where NVIDIA's Python packages
/// install them. Safe for use by several threads.
class SharedLibrary {
 public:
  explicit SharedLibrary(LibraryNeed need) : need_(std::move(need)) {}
  SharedLibrary(const SharedLibrary&) = delete;
  SharedLibrary& operator=(const SharedLibrary&) = delete;

  /// Loads the library if that has not been tried; does not throw when it is missing.
  const LibraryInfo& info();
  /// The address of a function; null when the library is missing or lacks it.
  void* find(const char* name);
  /// The function of that name with type `F`: function<decltype(cublasLtCreate)>("cublasLtCreate"). Throws Error when
  /// the library is missing or lacks it.
  template <class F>
  F* function(const char* name) {
    return reinterpret_cast<F*>(address(name));
  }

 private:
  void load();
  bool open(const std::string& file);
  void found(void* handle, void* probe, const std::string& file);
  void* address(const char* name);

  LibraryNeed need_;
  std::once_flag loaded_;
  void* handle_ = nullptr;
  LibraryInfo info_;
};

/// A member of a struct of a library's functions: the function PREFIXname, found when the struct is made. A macro
/// because type and name are made from one word.
#define TERN_LIBRARY_FUNCTION(library, prefix, name) \
  decltype(&prefix##name) name = (library).function<decltype(prefix##name)>(#prefix #name)

/// "13.1.0" from major * 10000 + minor * 100 + patch, the format of NVIDIA's libraries.
std::string dotted_version(size_t number);

}  // namespace tern::kernels::cuda

#pragma once
// Shared by the fuzz targets. A target defines try_input(), which passes its input to a reader. A reader rejects an
// input by a tern::Error; any other exception, a signal, a sanitizer report, or more memory or time than run.sh allows
// ends the program, and libFuzzer keeps the input.

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "tern/kernels/base/check.h"

namespace tern::fuzz {

/// Defined by the target.
void try_input(std::string_view input);

/// Runs the reader; a tern::Error is a valid result.
template <class Reader>
void read(Reader&& reader) {
  try {
    reader();
  } catch (const Error&) {
  }
}

/// Aborts unless the property holds.
inline void require(bool holds) {
  if (!holds) std::abort();
}

/// A folder of this process, in memory if possible.
inline const std::filesystem::path& folder() {
  static const auto* const path = [] {
    const bool memory = access("/dev/shm", W_OK) == 0;
    std::string name = (memory ? "/dev/shm" : std::filesystem::temp_directory_path().string()) + "/tern-fuzz-XXXXXX";
    require(mkdtemp(name.data()) != nullptr);
    std::atexit([] {
      std::error_code ignored;
      std::filesystem::remove_all(folder(), ignored);
    });
    return new std::filesystem::path(name);
  }();
  return *path;
}

/// Writes a file with these bytes to folder() and returns its path.
inline std::string write_file(const std::string& name, std::string_view bytes) {
  const std::filesystem::path path = folder() / name;
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  require(file >= 0 && write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  close(file);
  return path.string();
}

}  // namespace tern::fuzz

/// What libFuzzer calls. A target is one file, so this is defined once.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tern::fuzz::try_input({reinterpret_cast<const char*>(data), size});
  return 0;
}

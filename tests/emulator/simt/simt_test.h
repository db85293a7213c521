#pragma once
// Helpers of the emulator's tests.

#include <source_location>
#include <string>

#include "tern/kernels/base/check.h"
#include "tern/tests/emulator/simt/schedules.h"

namespace tern::kernels::cuda {

/// The message of the Error that f throws; "" and a test failure if it throws none.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// "file.cpp:line" in the calling file, the format of errors.
inline std::string place(int line, const std::source_location& here = std::source_location::current()) {
  const std::string path = here.file_name();
  return path.substr(path.rfind('/') + 1) + ":" + std::to_string(line);
}

}  // namespace tern::kernels::cuda

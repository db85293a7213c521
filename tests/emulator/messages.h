#pragma once
// What errors and other processes say, for the emulator's tests.

#include <cerrno>
#include <cstdio>
#include <source_location>
#include <string>

#include "tern/tests/errors.h"

namespace tern {

using test::error_of;
using test::expect_contains;
using test::expect_error;
using test::has;

/// "file.cpp:line" in the calling file, the format of the emulator's errors.
inline std::string place(int line, const std::source_location& here = std::source_location::current()) {
  const std::string path = here.file_name();
  return path.substr(path.rfind('/') + 1) + ":" + std::to_string(line);
}

/// The output of another process: this program with a changed environment, running the disabled test of that name.
inline std::string output_of(const std::string& environment, const std::string& test) {
  const std::string command = environment + " '" + std::string(program_invocation_name) +
                              "' --gtest_also_run_disabled_tests --gtest_filter='" + test + "' 2>&1";
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  char buffer[256];
  while (pipe && std::fgets(buffer, sizeof buffer, pipe)) text += buffer;
  if (pipe) pclose(pipe);
  return text;
}

}  // namespace tern

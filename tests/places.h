#pragma once
// Where a test program finds its files and the program that it runs: in the source and build folders that it was
// compiled in, or, in a folder of programs that was carried to another machine (bench/gpu/bundle.sh), relative to
// itself.

#include <cstdlib>
#include <filesystem>
#include <string>

namespace tern::test {

/// The folder above the test program's own.
inline std::string parent_of_programs() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path().parent_path().string();
}

/// The folder that holds tests/golden and data/assets: TERN_TEST_FILES of the environment, otherwise the source root;
/// for programs that are carried, the folder above theirs.
inline std::string source_dir() {
  if (const char* set = std::getenv("TERN_TEST_FILES"); set && *set) return set;
  const std::string compiled = TERN_SOURCE_DIR;
  return compiled.empty() ? parent_of_programs() : compiled;
}

/// The path that was compiled in; when that is only a name, the file of that name in the test program's own folder.
inline std::string program_path(const std::string& compiled) {
  return compiled.find('/') != std::string::npos ? compiled : parent_of_programs() + "/bin/" + compiled;
}

}  // namespace tern::test

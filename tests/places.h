#pragma once
// Where a test program finds its files: in the source folder that it was compiled in or, in a folder of programs that
// was carried to another machine (bench/gpu/bundle.sh), relative to itself; and the program that it runs: in its own
// folder. One file alone (support/places.cpp) is compiled with the source folder's path, so that a compiler cache
// serves the others in every folder.

#include <cstdlib>
#include <filesystem>
#include <string>

namespace tern::test {

/// The folder above the test program's own.
inline std::string parent_of_programs() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path().parent_path().string();
}

/// The source root that this build was made from; empty for programs that are carried.
extern const char* const kCompiledSourceDir;

/// The folder that holds tests/golden and data/assets: TERN_TEST_FILES of the environment, otherwise the source root;
/// for programs that are carried, the folder above theirs.
inline std::string source_dir() {
  if (const char* set = std::getenv("TERN_TEST_FILES"); set && *set) return set;
  const std::string compiled = kCompiledSourceDir;
  return compiled.empty() ? parent_of_programs() : compiled;
}

/// The program of that name in the test program's own folder.
inline std::string program_path(const std::string& name) { return parent_of_programs() + "/bin/" + name; }

}  // namespace tern::test

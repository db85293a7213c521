// DLPack with the libraries that it is for: NumPy and PyTorch, in a process of Python that loads Tern
// (python/check_dlpack.py).

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "tern/tests/places.h"
#include "tern/tests/support/sanitizer.h"

namespace tern::test {
namespace {

void check_with(const std::string& library) {
  if (kSanitized) GTEST_SKIP() << "sanitizer: Python is built without one";
  const char* const python = std::getenv("TERN_PYTHON");
  const std::string command = "'" + std::string(python ? python : "python3") + "' '" + source_dir() +
                              "/tests/core/python/check_dlpack.py' '" TERN_DLPACK_MODULE "' " + library + " 2>&1";
  FILE* const pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string said;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) said += static_cast<char>(c);
  const int status = pclose(pipe);
  if (WIFEXITED(status) && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127))
    GTEST_SKIP() << "python: TERN_PYTHON names no Python with " << library;
  EXPECT_EQ(status, 0) << command << "\n" << said;
  std::cout << said;
}

TEST(DLPackWithPython, Numpy) { check_with("numpy"); }
TEST(DLPackWithPython, Torch) { check_with("torch"); }

}  // namespace
}  // namespace tern::test

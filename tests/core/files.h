#pragma once
// Fixtures of tests that read and write files.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <optional>

#include "tern/tests/core/core_test.h"
#include "tern/tests/support/temporary_folder.h"

namespace tern::test {

namespace fs = std::filesystem;

/// A folder for each test, removed after it. The child process of a death test ends without removing one, so it uses
/// its parent's.
class FolderTest : public testing::Test {
 protected:
  FolderTest() {
    if (const char* parents = std::getenv(kVariable)) {
      folder_ = parents;
      return;
    }
    folder_ = created_.emplace().path();
    setenv(kVariable, folder_.c_str(), 1);
  }
  ~FolderTest() override {
    if (created_) unsetenv(kVariable);
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

  fs::path folder_;

 private:
  static constexpr const char* kVariable = "TERN_CORE_TEST_FOLDER";
  std::optional<TemporaryFolder> created_;
};

/// A file in memory, rewritten for each case: thousands of writes to a disk take long on a busy machine.
class MemoryFileTest : public testing::Test {
 protected:
  MemoryFileTest() : memory_(memfd_create("test", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(memory_)) {}
  ~MemoryFileTest() override { close(memory_); }

  const std::string& file(const std::string& bytes) const {
    EXPECT_EQ(ftruncate(memory_, 0), 0);
    EXPECT_EQ(pwrite(memory_, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    return path_;
  }
  /// Expects an Error that names the file and contains every part.
  void expect_refused(const std::function<void()>& load, std::vector<std::string> parts) const {
    parts.push_back(path_);
    expect_error(load, parts);
  }

  const int memory_;
  const std::string path_;
};

}  // namespace tern::test

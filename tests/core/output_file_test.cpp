// Which existing paths are written to, and which are errors.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tern/core/io/atomic_file.h"
#include "tern/core/io/input_file.h"
#include "tern/core/io/safetensors.h"
#include "tern/tests/core/core_test.h"

namespace tern {
namespace {

namespace fs = std::filesystem;
using test::error_of;

class OutputFiles : public testing::Test {
 protected:
  OutputFiles() {
    std::string name = (fs::temp_directory_path() / "tern-output-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  ~OutputFiles() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  fs::path folder_;
};

TEST_F(OutputFiles, FilesAndLinksAreReplaced) {
  write_atomically(path("file"), "first");
  write_atomically(path("file"), "second");
  EXPECT_EQ(read_whole_file(path("file")), "second");
  fs::create_symlink(path("file"), path("link"));
  write_atomically(path("link"), "third");
  EXPECT_EQ(read_whole_file(path("link")), "third");
  fs::create_symlink(path("nothing"), path("dangling"));
  write_atomically(path("dangling"), "fourth");
  EXPECT_EQ(read_whole_file(path("dangling")), "fourth");
}

TEST_F(OutputFiles, WhatIsNoFileIsRefusedAndStays) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  fs::create_symlink(path("pipe"), path("link"));
  fs::create_directory(path("folder"));
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  ASSERT_LT(path("socket").size(), sizeof address.sun_path);
  path("socket").copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  fs::create_symlink("/dev/zero", path("device"));
  for (const auto& [name, kind] :
       {std::pair("pipe", "a named pipe"), std::pair("link", "a named pipe"), std::pair("folder", "a folder"),
        std::pair("socket", "a socket"), std::pair("device", "a device")}) {
    const fs::file_type before = fs::symlink_status(path(name)).type();
    const std::string expected = path(name) + ": cannot be written: not a regular file but " + kind;
    EXPECT_EQ(error_of([&] { write_atomically(path(name), "text"); }), expected);
    EXPECT_EQ(error_of([&] { save_safetensors({{"a", ones({2})}}, path(name)); }), expected);
    EXPECT_EQ(fs::symlink_status(path(name)).type(), before);
  }
  close(socket);
  for (const auto& entry : fs::directory_iterator(folder_))
    EXPECT_FALSE(is_unfinished_file(entry.path().filename().string())) << entry.path();
}

TEST_F(OutputFiles, WhatIsGivenOpenIsWrittenTo) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  for (const std::string folder : {"/dev/fd/", "/proc/self/fd/"})
    write_atomically(folder + std::to_string(ends[1]), "text");
  char got[9] = "";
  EXPECT_EQ(read(ends[0], got, 8), 8);
  EXPECT_STREQ(got, "texttext");
  close(ends[0]);
  close(ends[1]);
  // When standard output is a file, its contents are kept.
  const int file = open(path("out").c_str(), O_WRONLY | O_CREAT, 0600), before = dup(STDOUT_FILENO);
  fflush(stdout);
  ASSERT_EQ(write(file, "head ", 5), 5);
  dup2(file, STDOUT_FILENO);
  write_atomically("/dev/stdout", "tail");
  dup2(before, STDOUT_FILENO);
  close(file);
  close(before);
  EXPECT_EQ(read_whole_file(path("out")), "head tail");
  write_atomically("/dev/null", "nothing");
  struct stat status {};
  ASSERT_EQ(stat("/dev/null", &status), 0);
  EXPECT_TRUE(S_ISCHR(status.st_mode));
  EXPECT_NE(error_of([] { write_atomically("/dev/fd/987654", "text"); }).find("/dev/fd/987654: cannot be written"),
            std::string::npos);
}

}  // namespace
}  // namespace tern

// Which paths can be opened for reading, and which are errors.

#include "tern/core/io/input_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "tern/core/io/mapped_file.h"
#include "tern/tests/core/core_test.h"

namespace tern {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::expect_error;

class InputFiles : public testing::Test {
 protected:
  InputFiles() {
    std::string name = (fs::temp_directory_path() / "tern-input-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  ~InputFiles() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }

  fs::path folder_;
};

/// Both ends of a pipe.
struct Pipe {
  int out = -1, in = -1;
  Pipe() {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    out = ends[0];
    in = ends[1];
  }
  ~Pipe() {
    close(out);
    finish();
  }
  void send(const std::string& text) const {
    EXPECT_EQ(::write(in, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void finish() {
    if (in >= 0) close(in);
    in = -1;
  }
  std::string path() const { return "/dev/fd/" + std::to_string(out); }
};

TEST_F(InputFiles, RegularFilesOfAnySize) {
  for (const size_t size : {0ul, 1ul, 4095ul, 4096ul, 65536ul, 65537ul, 1000003ul}) {
    std::string text(size, 0);
    for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 7 + i / 251);
    const std::string file = write("file", text);
    EXPECT_EQ(read_whole_file(file), text);
    std::string appended = "before";
    append_file(file, appended);
    EXPECT_EQ(appended, "before" + text);
    InputStream stream(file);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(stream), {}), text);
    EXPECT_EQ(InputFile(file).bytes(), size);
  }
  fs::create_symlink(path("file"), path("link"));
  EXPECT_EQ(read_whole_file(path("link")).size(), 1000003u);
  // A file of unknown length.
  EXPECT_FALSE(read_whole_file("/proc/self/status").empty());
}

TEST_F(InputFiles, OtherKindsAreRefusedByName) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  const int server = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s", path("socket").c_str());
  ASSERT_EQ(bind(server, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  fs::create_symlink(path("pipe"), path("link"));
  fs::create_symlink(path("nowhere"), path("dangling"));
  const std::pair<std::string, std::string> cases[] = {{path("pipe"), "not a regular file but a named pipe"},
                                                       {path("link"), "not a regular file but a named pipe"},
                                                       {path("socket"), "not a regular file but a socket"},
                                                       {"/dev/zero", "not a regular file but a device"},
                                                       {"/dev/null", "not a regular file but a device"},
                                                       {folder_.string(), "not a regular file but a folder"},
                                                       {path("nowhere"), "No such file"},
                                                       {path("dangling"), "No such file"},
                                                       {path("pipe") + "/x", "Not a directory"}};
  for (const auto& [file, reason] : cases) {
    for (const InputKind kind : {InputKind::kRegular, InputKind::kStream}) {
      expect_error([&, &file = file, kind] { InputFile(file, kind); }, {file, reason});
      expect_error([&, &file = file, kind] { InputStream(file, kind); }, {file, reason});
      expect_error([&, &file = file, kind] { read_whole_file(file, kind); }, {file, reason});
    }
    expect_error([&, &file = file] { MappedFile{file}; }, {file, reason});
  }
  close(server);
}

TEST_F(InputFiles, WhatIsGivenOpenCanBeRead) {
  Pipe pipe;
  pipe.send("one\ntwo");
  expect_error([&] { InputFile{pipe.path()}; }, {pipe.path(), "not a regular file but a named pipe"});
  InputStream in(pipe.path(), InputKind::kStream);
  EXPECT_GT(in.rdbuf()->in_avail(), 0);
  std::string line;
  ASSERT_TRUE(next_line(in, line, "pipe", 1));
  EXPECT_EQ(line, "one");
  std::jthread writer([&] {
    pipe.send("more\n\n");
    pipe.finish();
  });
  ASSERT_TRUE(next_line(in, line, "pipe", 2));
  EXPECT_EQ(line, "twomore");
  ASSERT_TRUE(next_line(in, line, "pipe", 3));
  EXPECT_EQ(line, "");
  EXPECT_FALSE(next_line(in, line, "pipe", 4));
  // Not open descriptors of this process, or not numbers.
  for (const char* name : {"/dev/fd/987654", "/dev/fd/", "/dev/fd/-1", "/dev/fd/1x", "/dev/fd/99999999999999999999"})
    expect_error([&] { InputFile(name, InputKind::kStream); }, {"cannot ", name});
}

TEST_F(InputFiles, ReadyMeansThatReadingDoesNotWait) {
  Pipe pipe;
  fcntl(pipe.out, F_SETFL, O_NONBLOCK);  // set as another program might; reading must still wait
  InputFile file(pipe.path(), InputKind::kStream);
  EXPECT_FALSE(file.is_ready());
  std::jthread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    pipe.send("x");
  });
  char byte = 0;
  EXPECT_EQ(file.read(&byte, 1), 1u);
  EXPECT_EQ(byte, 'x');
  writer.join();
  pipe.finish();
  EXPECT_TRUE(file.is_ready());
  EXPECT_EQ(file.read(&byte, 1), 0u);
}

TEST_F(InputFiles, Lines) {
  const std::string file = write("lines", "a\r\n\nb\n" + std::string(70'000, 'x') + "\nlast");
  InputStream in(file);
  std::string line;
  std::vector<std::string> lines;
  for (int64_t number = 1; next_line(in, line, file, number); ++number) lines.push_back(line);
  EXPECT_EQ(lines, (std::vector<std::string>{"a\r", "", "b", std::string(70'000, 'x'), "last"}));
}

/// Endless zeros in a sparse file.
TEST_F(InputFiles, ALineHasABound) {
  const std::string file = write("long", "short\n");
  fs::resize_file(file, (size_t{1} << 28) + 100);
  InputStream in(file);
  std::string line;
  ASSERT_TRUE(next_line(in, line, file, 1));
  EXPECT_EQ(error_of([&] { next_line(in, line, file, 2); }), file + ":2: the line is longer than 256 MiB");
}

TEST_F(InputFiles, AClosedStandardStreamIsNotTakenByAFile) {
  const int kept = dup(STDIN_FILENO);
  close(STDIN_FILENO);
  EXPECT_GT(InputFile(write("file", "x")).descriptor(), 2);
  expect_error([] { InputStream::standard_input(); }, {"cannot open stdin", "Bad file descriptor"});
  if (kept >= 0) {
    dup2(kept, STDIN_FILENO);
    close(kept);
  }
}

}  // namespace
}  // namespace tern

// Which paths can be opened for reading, which are written to, and which are errors. What the JSON parser accepts, and
// its error messages.

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <nlohmann/json.hpp>

#include "tern/core/io/atomic_file.h"
#include "tern/core/io/input_file.h"
#include "tern/core/io/json.h"
#include "tern/core/io/mapped_file.h"
#include "tern/core/io/safetensors.h"
#include "tern/tests/core/files.h"

namespace tern::test {
namespace {

class Files : public FolderTest {
 protected:
  /// Creates "pipe", "socket", "folder" and links to a pipe and a device, none of which is a regular file.
  void make_special_files() {
    ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
    fs::create_symlink(path("pipe"), path("link"));
    fs::create_directory(path("folder"));
    fs::create_symlink("/dev/zero", path("device"));
    const int server = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    ASSERT_LT(path("socket").size(), sizeof address.sun_path);
    path("socket").copy(address.sun_path, sizeof address.sun_path - 1);
    ASSERT_EQ(bind(server, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    close(server);
  }
  const std::pair<std::string, std::string> kinds_[5] = {{path("pipe"), "a named pipe"},
                                                         {path("link"), "a named pipe"},
                                                         {path("socket"), "a socket"},
                                                         {path("device"), "a device"},
                                                         {path("folder"), "a folder"}};
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

TEST_F(Files, RegularFilesOfAnySize) {
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

TEST_F(Files, OtherKindsAreRefusedByName) {
  make_special_files();
  fs::create_symlink(path("nowhere"), path("dangling"));
  std::vector<std::pair<std::string, std::string>> cases = {{"/dev/zero", "not a regular file but a device"},
                                                            {"/dev/null", "not a regular file but a device"},
                                                            {path("nowhere"), "No such file"},
                                                            {path("dangling"), "No such file"},
                                                            {path("pipe") + "/x", "Not a directory"}};
  for (const auto& [file, kind] : kinds_) cases.emplace_back(file, "not a regular file but " + kind);
  for (const auto& [name, why] : cases) {
    const std::string &file = name, &reason = why;
    for (const InputKind kind : {InputKind::kRegular, InputKind::kStream}) {
      expect_error([&] { InputFile(file, kind); }, {file, reason});
      expect_error([&] { InputStream(file, kind); }, {file, reason});
      expect_error([&] { read_whole_file(file, kind); }, {file, reason});
    }
    expect_error([&] { MappedFile{file}; }, {file, reason});
  }
}

TEST_F(Files, WhatIsGivenOpenCanBeRead) {
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

TEST_F(Files, ReadyMeansThatReadingDoesNotWait) {
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

TEST_F(Files, Lines) {
  const std::string file = write("lines", "a\r\n\nb\n" + std::string(70'000, 'x') + "\nlast");
  InputStream in(file);
  std::string line;
  std::vector<std::string> lines;
  for (int64_t number = 1; next_line(in, line, file, number); ++number) lines.push_back(line);
  EXPECT_EQ(lines, (std::vector<std::string>{"a\r", "", "b", std::string(70'000, 'x'), "last"}));
}

/// Endless zeros in a sparse file.
TEST_F(Files, ALineHasABound) {
  const std::string file = write("long", "short\n");
  fs::resize_file(file, (size_t{1} << 28) + 100);
  InputStream in(file);
  std::string line;
  ASSERT_TRUE(next_line(in, line, file, 1));
  EXPECT_EQ(error_of([&] { next_line(in, line, file, 2); }), file + ":2: the line is longer than 256 MiB");
}

TEST_F(Files, AClosedStandardStreamIsNotTakenByAFile) {
  const int kept = dup(STDIN_FILENO);
  close(STDIN_FILENO);
  EXPECT_GT(InputFile(write("file", "x")).descriptor(), 2);
  expect_error([] { InputStream::standard_input(); }, {"cannot open stdin", "Bad file descriptor"});
  if (kept >= 0) {
    dup2(kept, STDIN_FILENO);
    close(kept);
  }
}

TEST_F(Files, FilesAndLinksAreReplaced) {
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

TEST_F(Files, WhatIsNoFileIsRefusedAndStays) {
  make_special_files();
  for (const auto& [name, kind] : kinds_) {
    const std::string &file = name, expected = file + ": cannot be written: not a regular file but " + kind;
    const fs::file_type before = fs::symlink_status(file).type();
    EXPECT_EQ(error_of([&] { write_atomically(file, "text"); }), expected);
    EXPECT_EQ(error_of([&] { save_safetensors({{"a", ones({2})}}, file); }), expected);
    EXPECT_EQ(fs::symlink_status(file).type(), before);
  }
  for (const auto& entry : fs::directory_iterator(folder_))
    EXPECT_FALSE(is_unfinished_file(entry.path().filename().string())) << entry.path();
}

TEST_F(Files, WhatIsGivenOpenIsWrittenTo) {
  Pipe pipe;
  for (const std::string folder : {"/dev/fd/", "/proc/self/fd/"})
    write_atomically(folder + std::to_string(pipe.in), "text");
  char got[9] = "";
  EXPECT_EQ(read(pipe.out, got, 8), 8);
  EXPECT_STREQ(got, "texttext");
  // When standard output is a file, its contents are kept.
  const int file = open(path("out").c_str(), O_WRONLY | O_CREAT, 0600), before = dup(STDOUT_FILENO);
  fflush(stdout);
  ASSERT_EQ(::write(file, "head ", 5), 5);
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
  expect_error([] { write_atomically("/dev/fd/987654", "text"); }, {"/dev/fd/987654: cannot be written"});
}

std::string nested(int levels, const std::string& open, const std::string& close, const std::string& inside = "") {
  std::string text;
  for (int i = 0; i < levels; ++i) text += open;
  text += inside;
  for (int i = 0; i < levels; ++i) text += close;
  return text;
}

TEST(Json, IsWhatTheLibraryReads) {
  for (const std::string text :
       {R"({"a": [1, -2, 18446744073709551615, 2.5, 1e300, true, false, null, "x\né\ud83d\ude00"], "b": {}, "": []})",
        "7", "\"\"", "[]", "[[], [[]], {\"a\": {\"b\": []}}, 3]", "\xef\xbb\xbf{\"bom\": 1}", " {\n} \n",
        "{\"a\": {\"x\": 1}, \"b\": {\"x\": 2}, \"c\": [{\"x\": 3}, {\"x\": 4}]}"})
    EXPECT_EQ(parse_json(text, "x"), nlohmann::json::parse(text)) << text;
  // Lists grow after values inside them were stored.
  std::string list = "[";
  for (int i = 0; i < 1000; ++i) list += "{\"k\": [" + std::to_string(i) + ", [" + std::to_string(i) + "]]},";
  list.back() = ']';
  EXPECT_EQ(parse_json(list, "x"), nlohmann::json::parse(list));
}

TEST(Json, Depth) {
  for (const auto& [open, close, inside] : {std::tuple("[", "]", ""), std::tuple("{\"a\":", "}", "1")}) {
    EXPECT_NO_THROW(parse_json(nested(kMaxJsonDepth, open, close, inside), "x"));
    EXPECT_EQ(error_of([&] { parse_json(nested(kMaxJsonDepth + 1, open, close, inside), "x"); }),
              "x: nested more than 128 levels deep");
    const std::string deep = nested(200'000, open, close, inside), unclosed = nested(200'000, open, "");
    for (const std::string& text : {deep, unclosed, "{\"dim\": 3, \"a\": [1, " + deep + "]}"})
      expect_error([&] { parse_json(text, "x"); }, {"x: nested more than 128"});
  }
  // Many values at one level are not nesting.
  EXPECT_EQ(parse_json("[" + nested(0, "", "") + "[],[],[]," + nested(100, "[", "]") + "]", "x").size(), 4u);
  std::string wide = "[";
  for (int i = 0; i < 100'000; ++i) wide += "[{}],";
  wide.back() = ']';
  EXPECT_EQ(parse_json(wide, "x").size(), 100'000u);
}

TEST(Json, Errors) {
  EXPECT_EQ(error_of([] { parse_json("{\"a\": 1e999}", "f"); }),
            "f: the number 1e999 is too large for 64 bits of floating point (at byte 11)");
  expect_error([] { parse_json("[-1e999]", "f"); }, {"f: ", "-1e999"});
  expect_error([] { parse_json("[" + std::string(100'000, '9') + "]", "f"); }, {"f: the number 999", "..."});
  EXPECT_EQ(parse_json("[99999999999999999999]", "f")[0].get<double>(), 1e20);
  EXPECT_EQ(error_of([] { parse_json("{\"a\": 1, \"b\": {\"a\": 2, \"c\": 3, \"a\": 4}}", "f"); }),
            "f: the name 'a' occurs twice in an object");
  expect_error([] { parse_json("{\"a\": 1, \"a\": 1}", "f"); }, {"'a' occurs twice"});
  for (const std::string text :
       {"", " ", "{", "[1,", "[1 2]", "{\"a\"}", "{'a': 1}", "nul", "\"\\ud800\"", "{}x", "01", "[NaN]", "[Infinity]",
        "\"\xff\"", "{\"\xc3\": 1}", "\xff\xfe{\0}\0", "// a\n{}", "\"a"})
    expect_error([&] { parse_json(text, "f"); }, {"f: not valid JSON ("});
  EXPECT_EQ(error_of([] { parse_json("{\n  \"a\": 1,\n  oops\n}", "f"); }), "f: not valid JSON (line 3, byte 3)");
  EXPECT_EQ(error_of([] { parse_json("{\"a\": 1, oops}", "f"); }), "f: not valid JSON (at byte 10)");
  for (const std::string text : {"[]", "3", "null", "\"x\""})
    EXPECT_EQ(error_of([&] { parse_json_object(text, "f"); }), "f: not a JSON object");
}

TEST_F(Files, OfJson) {
  EXPECT_EQ(read_json_object(write("file", "{\"a\": [1]}")), nlohmann::json::parse("{\"a\": [1]}"));
  const std::string file = write("file", "");
  EXPECT_EQ(error_of([&] { read_json_object(file); }), file + ": the file is empty");
  write("file", "{\n1");
  EXPECT_EQ(error_of([&] { read_json_object(file); }), file + ": not valid JSON (line 2, byte 1)");
  expect_error([&] { read_json_object(path("none")); }, {"cannot open ", path("none"), "No such file"});
  expect_error([&] { read_json_object("/dev/null"); }, {"/dev/null", "not a regular file"});
}

TEST(Json, IntegersAreExact) {
  const auto integer = [](const std::string& text) { return integer_in(parse_json(text, "x")); };
  EXPECT_EQ(integer("0"), 0);
  EXPECT_EQ(integer("-5"), -5);
  EXPECT_EQ(integer("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(integer("-9223372036854775808"), INT64_MIN);
  for (const char* text : {"9223372036854775808", "18446744073709551615", "1e3", "2.0", "true", "null", "\"1\"", "[1]"})
    EXPECT_FALSE(integer(text)) << text;
}

}  // namespace
}  // namespace tern::test

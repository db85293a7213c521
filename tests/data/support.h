#pragma once
// Shared by the tests of data.

#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <optional>
#include <random>

#include "tern/data/files/files.h"
#include "tern/tests/errors.h"

namespace tern::data {

using test::error_of;

/// Succeeds if every part occurs in the text; otherwise prints the text.
inline testing::AssertionResult contains(const std::string& text, std::initializer_list<std::string> parts) {
  for (const std::string& part : parts)
    if (const testing::AssertionResult found = test::has(text, part); !found) return found;
  return testing::AssertionSuccess();
}

/// Succeeds if the action throws an Error whose message has every part.
template <class Action>
testing::AssertionResult fails(const Action& action, std::initializer_list<std::string> parts) {
  return contains(error_of(action), parts);
}

inline std::string random_bytes(size_t size, std::mt19937_64& random, uint64_t values = 256) {
  std::string bytes(size, ' ');
  for (char& c : bytes) c = static_cast<char>(random() % values);
  return bytes;
}

/// Writes the lowest `count` bytes of a number, the highest first.
inline void put_number(std::string& bytes, size_t at, uint32_t value, int count) {
  for (int i = 0; i < count; ++i) bytes[at + i] = static_cast<char>(value >> 8 * (count - 1 - i));
}

/// The PNG file with a header that claims this size.
inline std::string png_of_size(std::string png, uint32_t width, uint32_t height) {
  put_number(png, 16, width, 4);
  put_number(png, 20, height, 4);
  put_number(png, 29, static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(&png[12]), 17)), 4);
  return png;
}

/// The bytes compressed by zlib.
inline std::string gzip(const std::string& bytes) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, bytes.size()), ' ');
  stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

/// 0 to n - 1.
inline std::vector<int32_t> rows_below(int32_t n) {
  std::vector<int32_t> rows(static_cast<size_t>(n));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

/// A log that appends to `lines`.
inline std::function<void(const std::string&)> log_to(std::vector<std::string>& lines) {
  return [&lines](const std::string& line) { lines.push_back(line); };
}

inline std::string read_bytes(const std::filesystem::path& path) {
  std::string bytes;
  read_file(path, bytes);
  return bytes;
}

/// Creates a new folder for each test, with helpers to write files in it, and removes it afterwards.
class FolderTest : public testing::Test {
 protected:
  std::filesystem::path root() const { return folder_.path(); }
  std::string write(const std::string& name, const std::string& contents) const {
    const std::filesystem::path path = root() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << contents;
    return path.string();
  }

 private:
  TemporaryDirectory folder_{std::filesystem::temp_directory_path(), "tern-data-test"};
};

/// Sets an environment variable, or unsets it without a value, until the end of the scope.
class Environment {
 public:
  Environment(const char* name, const std::optional<std::string>& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    set(value);
  }
  ~Environment() { set(old_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  void set(const std::optional<std::string>& value) {
    if (value) ::setenv(name_, value->c_str(), 1);
    if (!value) ::unsetenv(name_);
  }
  const char* name_;
  std::optional<std::string> old_;
};

}  // namespace tern::data

// Safe unpacking.

#include "tern/data/files/archive.h"

#include <archive.h>
#include <archive_entry.h>

#include "tern/tests/data/support.h"
#include "tern/tests/support/seed.h"

namespace tern::data {
namespace {

namespace fs = std::filesystem;

class ArchiveTest : public FolderTest {
 protected:
  struct Entry {
    std::string path;
    std::string contents;
    unsigned type = AE_IFREG;
    std::string link = {};
  };

  /// A .tar.gz of the entries, in order.
  fs::path make_archive(const std::vector<Entry>& entries) const {
    const fs::path path = root() / "a.tar.gz";
    archive* writer = archive_write_new();
    archive_write_add_filter_gzip(writer);
    archive_write_set_format_pax_restricted(writer);
    EXPECT_EQ(archive_write_open_filename(writer, path.c_str()), ARCHIVE_OK);
    for (const Entry& item : entries) {
      archive_entry* entry = archive_entry_new();
      archive_entry_set_pathname(entry, item.path.c_str());
      archive_entry_set_perm(entry, 0755);
      if (item.type != 0) archive_entry_set_filetype(entry, item.type);
      if (item.type == AE_IFLNK) archive_entry_set_symlink(entry, item.link.c_str());
      if (item.type == 0) archive_entry_set_hardlink(entry, item.link.c_str());
      archive_entry_set_size(entry, static_cast<int64_t>(item.contents.size()));
      EXPECT_EQ(archive_write_header(writer, entry), ARCHIVE_OK) << archive_error_string(writer);
      archive_write_data(writer, item.contents.data(), item.contents.size());
      archive_entry_free(entry);
    }
    EXPECT_EQ(archive_write_close(writer), ARCHIVE_OK);
    archive_write_free(writer);
    fs::create_directories(root() / "out");
    return path;
  }

  std::string extract_error(const std::vector<Entry>& entries, int64_t max_size = 1000) const {
    return error_of([&] { extract_archive(make_archive(entries), root() / "out", max_size); });
  }
};

TEST_F(ArchiveTest, UnpacksFilesAndFolders) {
  EXPECT_EQ(extract_error({{"d", "", AE_IFDIR}, {"d/x.txt", "one"}, {"e/f/./y.txt", ""}}), "no error");
  EXPECT_EQ(read_bytes(root() / "out/d/x.txt"), "one");
  EXPECT_EQ(read_bytes(root() / "out/e/f/y.txt"), "");
}

TEST_F(ArchiveTest, RefusesPathsThatLeaveTheFolder) {
  EXPECT_TRUE(contains(extract_error({{"../x", "1"}}), {"refused", "../x"}));
  EXPECT_TRUE(contains(extract_error({{"a/../../x", "1"}}), {"refused", "a/../../x"}));
  EXPECT_TRUE(contains(extract_error({{(root() / "x").string(), "1"}}), {"refused", "absolute"}));
  EXPECT_FALSE(fs::exists(root() / "x"));
}

TEST_F(ArchiveTest, RefusesLinksAndDevices) {
  EXPECT_TRUE(contains(extract_error({{"s", "", AE_IFLNK, "/etc"}, {"s/x", "1"}}), {"refused", "\"s\""}));
  EXPECT_TRUE(contains(extract_error({{"a", "1"}, {"h", "", 0, "a"}}), {"refused", "\"h\""}));
  fs::remove_all(root() / "out");
  EXPECT_TRUE(contains(extract_error({{"p", "", AE_IFIFO}}), {"refused", "\"p\""}));
  EXPECT_TRUE(fs::is_empty(root() / "out"));
}

TEST_F(ArchiveTest, NeverWritesToWhatExists) {
  write("target", "safe");
  fs::create_directories(root() / "out");
  fs::create_symlink(root() / "target", root() / "out" / "x");
  EXPECT_TRUE(contains(extract_error({{"x", "1"}}), {"cannot create", "out/x"}));
  EXPECT_EQ(read_bytes(root() / "target"), "safe");
}

TEST_F(ArchiveTest, RefusesTooMuch) {
  const std::string text(600, 'x');
  EXPECT_TRUE(contains(extract_error({{"a", text}, {"b", text}}), {"more than expected"}));
}

TEST_F(ArchiveTest, DamagedArchives) {
  std::mt19937_64 random = fresh_random();
  const std::string good = read_bytes(make_archive({{"a", random_bytes(50'000, random)}}));
  for (const size_t size : {size_t{0}, size_t{1}, good.size() / 2, good.size() - 9}) {
    fs::remove_all(root() / "out");
    fs::create_directories(root() / "out");
    const std::string path = write("cut.tar.gz", good.substr(0, size));
    const std::string error = error_of([&] { extract_archive(path, root() / "out", 1 << 20); });
    EXPECT_TRUE(size <= 1 || contains(error, {"cut.tar.gz", "truncated"})) << size << error;
  }
  EXPECT_TRUE(fails([&] { extract_archive(root() / "none", root() / "out", 1); }, {"cannot open", "none"}));
}

}  // namespace
}  // namespace tern::data

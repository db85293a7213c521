#include "tern/data/files/archive.h"

#include <archive.h>
#include <archive_entry.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "tern/core/io/input_file.h"
#include "tern/data/files/files.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace fs = std::filesystem;
namespace {

void finish_file(File file, const fs::path& path) {
  TERN_CHECK(std::fclose(file.release()) == 0, "cannot write ", path.string(), ": ", std::strerror(errno));
}

using Reader = std::unique_ptr<archive, int (*)(archive*)>;

Reader new_reader() {
  Reader reader(archive_read_new(), archive_read_free);
  TERN_CHECK(reader, "libarchive could not start");
  archive_read_support_filter_all(reader.get());
  return reader;
}

std::string reason(archive* reader) {
  const char* text = archive_error_string(reader);
  return text != nullptr ? text : "unknown error";
}

/// The entry's path below the target, checked.
fs::path entry_path(archive_entry* entry, const std::string& name) {
  const char* text = archive_entry_pathname(entry);
  TERN_CHECK(text != nullptr, name, ": an entry has no readable path");
  const fs::path path(text);
  TERN_CHECK(!path.empty() && path.is_relative(), name, ": refused: the path \"", text, "\" is absolute or empty");
  for (const fs::path& part : path) {
    TERN_CHECK(part != "..", name, ": refused: the path \"", text, "\" leaves the folder");
  }
  const auto type = archive_entry_filetype(entry);
  const bool link = archive_entry_hardlink(entry) != nullptr || archive_entry_symlink(entry) != nullptr;
  TERN_CHECK(!link && (type == AE_IFREG || type == AE_IFDIR), name, ": refused: \"", text,
             "\" is neither a file nor a folder");
  return path;
}

/// The rest of the current entry, block by block; errors beyond max_bytes, which counts down.
template <class Sink>
void read_entry(archive* reader, const std::string& name, int64_t& max_bytes, const Sink& sink) {
  char block[1 << 16];
  for (;;) {
    const la_ssize_t got = archive_read_data(reader, block, sizeof block);
    TERN_CHECK(got >= 0, name, ": damaged: ", reason(reader));
    if (got == 0) return;
    max_bytes -= got;
    TERN_CHECK(max_bytes >= 0, name, ": refused: unpacks to more than expected");
    sink(std::string_view(block, static_cast<size_t>(got)));
  }
}

}  // namespace

void extract_archive(const fs::path& archive_path, const fs::path& folder, int64_t max_bytes) {
  const std::string name = archive_path.string();
  const Reader reader = new_reader();
  archive_read_support_format_tar(reader.get());
  const InputFile input(name);
  TERN_CHECK(archive_read_open_fd(reader.get(), input.descriptor(), 1 << 16) == ARCHIVE_OK, name,
             ": cannot read: ", reason(reader.get()));
  for (;;) {
    archive_entry* entry = nullptr;
    const int code = archive_read_next_header(reader.get(), &entry);
    if (code == ARCHIVE_EOF) return;
    TERN_CHECK(code == ARCHIVE_OK, name, ": damaged: ", reason(reader.get()));
    const fs::path path = folder / entry_path(entry, name);
    const bool directory = archive_entry_filetype(entry) == AE_IFDIR;
    std::error_code error;
    fs::create_directories(directory ? path : path.parent_path(), error);
    TERN_CHECK(!error, name, ": cannot create ", path.string(), ": ", error.message());
    if (directory) continue;
    File file = create_file(path);
    read_entry(reader.get(), name, max_bytes, [&](std::string_view block) {
      TERN_CHECK(std::fwrite(block.data(), 1, block.size(), file.get()) == block.size(), "cannot write ", path.string(),
                 ": ", std::strerror(errno));
    });
    finish_file(std::move(file), path);
  }
}

void require_archives(const std::string&) {}

}  // namespace tern::data

#include "tern/data/datasets/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <curl/curl.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>

#include "tern/core/check.h"
#include "tern/core/io/input_file.h"
#include "tern/data/datasets/sha256.h"

namespace tern::data {
namespace fs = std::filesystem;
namespace {

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, FileCloser>;

/// A new file; existing ones (and links) are never written to.
File create_file(const fs::path& path) {
  File file(std::fopen(path.c_str(), "wbxe"));
  TERN_CHECK(file, "cannot create ", path.string(), ": ", std::strerror(errno));
  return file;
}

void finish_file(File file, const fs::path& path) {
  TERN_CHECK(std::fclose(file.release()) == 0, "cannot write ", path.string(), ": ", std::strerror(errno));
}

struct Transfer {
  const Download& source;
  const std::function<void(const std::string&)>& log;
  std::FILE* file;
  Sha256 digest;
  int64_t received = 0;
  int64_t tenths = 0;
  std::string problem;
};

size_t on_data(char* data, size_t, size_t size, void* user) {
  Transfer& transfer = *static_cast<Transfer*>(user);
  transfer.received += static_cast<int64_t>(size);
  if (transfer.received > transfer.source.bytes) {
    transfer.problem = "more than the expected " + std::to_string(transfer.source.bytes) + " bytes";
    return 0;
  }
  if (std::fwrite(data, 1, size, transfer.file) != size) {
    transfer.problem = std::string("writing failed: ") + std::strerror(errno);
    return 0;
  }
  transfer.digest.update(std::string_view(data, size));
  const int64_t tenths = 10 * transfer.received / transfer.source.bytes;
  if (transfer.log && tenths > transfer.tenths) {
    transfer.tenths = tenths;
    transfer.log("fetching " + transfer.source.url + ": " + std::to_string(10 * tenths) + " %");
  }
  return size;
}

/// Empty when all went well, otherwise the reason.
std::string perform(Transfer& transfer) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  const std::unique_ptr<CURL, void (*)(CURL*)> curl(curl_easy_init(), curl_easy_cleanup);
  if (!curl) return "libcurl could not start";
  char message[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(curl.get(), CURLOPT_URL, transfer.source.url.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_PROTOCOLS_STR, "https,file");
  curl_easy_setopt(curl.get(), CURLOPT_REDIR_PROTOCOLS_STR, "https");
  curl_easy_setopt(curl.get(), CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_MAXREDIRS, 5L);
  curl_easy_setopt(curl.get(), CURLOPT_FAILONERROR, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_CONNECTTIMEOUT, 20L);
  curl_easy_setopt(curl.get(), CURLOPT_LOW_SPEED_LIMIT, 1000L);
  curl_easy_setopt(curl.get(), CURLOPT_LOW_SPEED_TIME, 60L);
  curl_easy_setopt(curl.get(), CURLOPT_ERRORBUFFER, message);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, on_data);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &transfer);
  const CURLcode code = curl_easy_perform(curl.get());
  if (!transfer.problem.empty()) return transfer.problem;
  if (code != CURLE_OK) return message[0] != 0 ? message : curl_easy_strerror(code);
  if (transfer.received != transfer.source.bytes) {
    return "got " + std::to_string(transfer.received) + " of " + std::to_string(transfer.source.bytes) + " bytes";
  }
  const std::string digest = transfer.digest.hex();
  if (digest != transfer.source.sha256) {
    return "its sha256 is " + digest + ", expected " + transfer.source.sha256;
  }
  return "";
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

/// The rest of the current entry, block by block; errors beyond most_bytes, which counts down.
template <class Sink>
void read_entry(archive* reader, const std::string& name, int64_t& most_bytes, const Sink& sink) {
  char block[1 << 16];
  for (;;) {
    const la_ssize_t got = archive_read_data(reader, block, sizeof block);
    TERN_CHECK(got >= 0, name, ": damaged: ", reason(reader));
    if (got == 0) return;
    most_bytes -= got;
    TERN_CHECK(most_bytes >= 0, name, ": refused: unpacks to more than expected");
    sink(std::string_view(block, static_cast<size_t>(got)));
  }
}

}  // namespace

void download(const Download& source, const fs::path& path, const std::function<void(const std::string&)>& log) {
  File file = create_file(path);
  Transfer transfer{source, log, file.get(), {}, 0, 0, {}};
  std::string problem = perform(transfer);
  if (std::fclose(file.release()) != 0 && problem.empty()) problem = std::strerror(errno);
  if (problem.empty()) return;
  std::error_code ignored;
  fs::remove(path, ignored);
  fail("cannot fetch ", source.url, ": ", problem);
}

void extract_archive(const fs::path& archive_path, const fs::path& folder, int64_t most_bytes) {
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
    read_entry(reader.get(), name, most_bytes, [&](std::string_view block) {
      TERN_CHECK(std::fwrite(block.data(), 1, block.size(), file.get()) == block.size(), "cannot write ", path.string(),
                 ": ", std::strerror(errno));
    });
    finish_file(std::move(file), path);
  }
}

std::string decompress(std::string_view bytes, int64_t most_bytes) {
  const std::string name = "compressed data";
  const Reader reader = new_reader();
  archive_read_support_format_raw(reader.get());
  archive_read_support_format_empty(reader.get());
  TERN_CHECK(archive_read_open_memory(reader.get(), bytes.data(), bytes.size()) == ARCHIVE_OK, name,
             ": cannot read: ", reason(reader.get()));
  std::string out;
  archive_entry* entry = nullptr;
  const int code = archive_read_next_header(reader.get(), &entry);
  if (code == ARCHIVE_EOF) return out;
  TERN_CHECK(code == ARCHIVE_OK, name, ": damaged: ", reason(reader.get()));
  read_entry(reader.get(), name, most_bytes, [&](std::string_view block) { out += block; });
  return out;
}

}  // namespace tern::data

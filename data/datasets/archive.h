#pragma once
// Fetching and unpacking archives.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace tern::data {

struct Download {
  std::string url = {};     // https, or file for tests and mirrors on disk
  int64_t bytes = 0;        // exact size
  std::string sha256 = {};  // lower-case hexadecimal
};

/// Fetches to `path`, which must not exist yet. Throws Error in one line (with the address, and what to do when
/// offline) and removes what was written, unless size and SHA-256 are as stated. Gives up after 60 s below 1 kB/s.
/// `log` gets a line at each tenth.
void download(const Download& source, const std::filesystem::path& path,
              const std::function<void(const std::string&)>& log = {});

/// Unpacks a tar archive of any compression into an existing folder. Only files and folders whose paths stay inside are
/// accepted: a link, a device, an absolute path or "..", more than `most_bytes` in all, and a damaged archive are
/// errors. Owners, modes and times are not restored.
void extract_archive(const std::filesystem::path& archive, const std::filesystem::path& folder, int64_t most_bytes);

/// The decompressed contents of gzip (or uncompressed) bytes. Error when damaged or larger than `most_bytes`.
std::string decompress(std::string_view bytes, int64_t most_bytes);

}  // namespace tern::data

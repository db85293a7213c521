#pragma once
// Fetching a file by its address.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace tern::data {

struct Download {
  std::string url = {};     // https, or file for tests and mirrors on disk
  int64_t bytes = 0;        // exact size
  std::string sha256 = {};  // lower-case hexadecimal
};

/// Fetches to `path`, which must not exist yet. Throws Error in one line (with the address, and what to do when
/// offline) and removes what was written, unless size and SHA-256 are as stated. Gives up after 60 s below 1 kB/s.
/// `log` gets a line at each tenth. A build without TERN_CURL throws Error and writes nothing.
void download(const Download& source, const std::filesystem::path& path,
              const std::function<void(const std::string&)>& log = {});

}  // namespace tern::data

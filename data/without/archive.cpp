// TERN_ARCHIVES=OFF.

#include "tern/data/files/archive.h"

#include "tern/data/without/part.h"

namespace tern::data {

void require_archives(const std::string& archive) {
  fail_without("cannot unpack " + archive, "libarchive", "TERN_ARCHIVES");
}

void extract_archive(const std::filesystem::path& archive, const std::filesystem::path&, int64_t) {
  require_archives(archive.string());
}

}  // namespace tern::data

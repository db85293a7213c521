// TERN_CURL=OFF.

#include "tern/data/files/download.h"

#include "tern/data/without/part.h"

namespace tern::data {

void download(const Download& source, const std::filesystem::path&, const std::function<void(const std::string&)>&) {
  fail_without("cannot fetch " + source.url, "libcurl", "TERN_CURL");
}

}  // namespace tern::data

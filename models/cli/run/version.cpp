#include "tern/models/cli/run/version.h"

namespace tern::cli {

std::string version() { return TERN_VERSION; }
std::string commit() { return TERN_COMMIT; }
std::string version_text() {
  return "tern " + version() + (commit().empty() ? "" : " (" + commit().substr(0, 12) + ")");
}

}  // namespace tern::cli

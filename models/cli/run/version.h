#pragma once

#include <string>

namespace tern::cli {

/// "0.1.0".
std::string version();
/// The commit this program was configured from; empty outside a git checkout.
std::string commit();
/// "tern 0.1.0 (abc1234)".
std::string version_text();

}  // namespace tern::cli

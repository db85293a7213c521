#pragma once

#include <toml++/toml.h>
#include <string>

namespace tern::cli {

/// The table of a TOML option file, which may be one that the program was given open (InputKind::kStream). Throws
/// UsageError with file and line: it cannot be read, is not TOML, or is nested deeper than a few levels.
toml::table read_option_file(const std::string& path);

}  // namespace tern::cli

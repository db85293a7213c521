#pragma once

#include <string>
#include <vector>

#include "tern/models/cli/options/options.h"

namespace tern::cli {

/// Adds the options of the TOML file named by --config to the arguments, before those given by hand, which win. Keys
/// are the flags without dashes ("batch-tokens = 8192"; '_' counts as '-'). Throws UsageError that names the file, and
/// where there is one the line: it cannot be read, is not TOML, is nested deeper than a few levels, or has a key or
/// value that is not one of the command's.
std::vector<std::string> merge_option_file(const Options& options, const std::string& command,
                                           const std::vector<std::string>& arguments);

}  // namespace tern::cli

#pragma once
// The parser of the command line, for the files that declare options: costly to compile, so nothing else includes it.

#include <CLI/CLI.hpp>
#include <cstdint>

namespace tern::cli {

/// Accepts numbers from least to most. NaN is none, and nothing is rounded, wrapped or cut to fit.
CLI::Validator number_in(double least, double most);
CLI::Validator whole_in(int64_t least, int64_t most);

}  // namespace tern::cli

#pragma once
// What every subcommand shares: common options, option files, and errors that name the nearest known word.

#include <stdexcept>
#include <string>
#include <vector>

#include "tern/core/device.h"

namespace CLI {
class App;
}

namespace tern::cli {

class Subcommand;

/// Wrong usage: exit status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct CommonOptions {
  std::string device = "auto";
  int threads = 0;  // 0: all cores this process may use
  uint64_t seed = 42;
  bool quiet = false;
  std::string config;  // read by merge_option_file; the parser only has to know the flag
};

void add_common(Subcommand& command, CommonOptions& options);
/// Sets the number of threads and returns the device. Throws UsageError when there is no such device, Error when it
/// cannot be used.
Device apply_common(const CommonOptions& options);

/// Adds the options of the TOML file named by --config to the arguments, before those given by hand, which win. Keys
/// are the long flags without dashes ("batch-tokens = 8192"; '_' counts as '-'). Throws UsageError on unknown keys.
std::vector<std::string> merge_option_file(CLI::App& command, const std::vector<std::string>& arguments);

/// The candidate nearest to `word` by edit distance; empty when none is near.
std::string nearest(const std::string& word, const std::vector<std::string>& candidates);
/// Throws UsageError naming the flag that `command` does not know and the nearest it knows.
void reject_unknown(const CLI::App& command);

}  // namespace tern::cli

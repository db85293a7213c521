#include "tern/models/cli/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>

#include "tern/core/check.h"
#include "tern/core/cuda/backend.h"
#include "tern/core/io/pickle.h"
#include "tern/dist/rendezvous.h"
#include "tern/models/cli/option_file.h"
#include "tern/models/cli/subcommand.h"

namespace tern::cli {
namespace {

constexpr size_t kMostWord = 100;  // a longer word is near no option

int64_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<int64_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int64_t>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    int64_t diagonal = row[0];
    row[0] = static_cast<int64_t>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int64_t substitute = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

std::vector<std::string> long_flags(const CLI::App& command) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  return flags;
}

/// The value of --config FILE or --config=FILE, or empty.
std::string config_path(const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--config" && i + 1 < arguments.size()) return arguments[i + 1];
    if (arguments[i].starts_with("--config=")) return arguments[i].substr(9);
  }
  return {};
}

bool given(const std::vector<std::string>& arguments, const std::string& flag) {
  return std::any_of(arguments.begin(), arguments.end(),
                     [&](const std::string& a) { return a == flag || a.starts_with(flag + "="); });
}

std::string scalar_text(const toml::node& node, const std::string& where) {
  if (const auto* text = node.as_string()) return text->get();
  std::ostringstream out;
  if (const auto* integer = node.as_integer())
    out << integer->get();
  else if (const auto* number = node.as_floating_point())
    out << std::setprecision(17) << number->get();
  else
    throw UsageError(where + ": expected a string, a number or true / false");
  return out.str();
}

Device parse_device_flag(const std::string& text) {
  try {
    return parse_device(text);
  } catch (const Error& error) {
    throw UsageError(std::string("--") + error.what());
  }
}

/// A rank of a job takes the GPU of its number on this machine, or the only one that it is shown, and starts no other.
Device wanted_device(const std::string& text) {
  const dist::Launch launch = dist::detect_launch();
  const Device own{DeviceType::kCUDA, cuda::listed_device_count() == 1 ? 0 : launch.local_rank};
  if (text == "auto") return !launch.is_parallel() ? best_device() : cuda::suitable_device_count() > 0 ? own : cpu;
  return launch.is_parallel() && text == "cuda" ? own : parse_device_flag(text);
}

}  // namespace

void add_common(Subcommand& command, CommonOptions& options) {
  command.add_option("--device", &options.device, "auto, cpu or cuda[:N]").show_default();
  command.add_option("--threads", &options.threads, "CPU threads; 0: all cores this process may use")
      .show_default()
      .whole_in(0, 4096);
  command.add_option("--seed", &options.seed, "seed of everything random").show_default().unsigned_in(0, UINT64_MAX);
  command.add_option("--config", &options.config, "TOML file of options, named like the flags; flags win");
  command.add_flag("--quiet", &options.quiet, "no progress and no log, only results and errors");
}

Device apply_common(const CommonOptions& options) {
  if (options.threads > 0) kernels::set_num_threads(options.threads);
  const Device device = wanted_device(options.device);
  require_available(device);
  return device;
}

std::vector<std::string> merge_option_file(CLI::App& command, const std::vector<std::string>& arguments) {
  const std::string path = config_path(arguments);
  if (path.empty()) return arguments;
  const toml::table table = read_option_file(path);
  std::vector<std::string> added;
  for (const auto& [raw_key, node] : table) {
    std::string key(raw_key.str());
    std::replace(key.begin(), key.end(), '_', '-');
    const std::string flag = "--" + key, where = path + ": '" + tern::detail::printable(key) + "'";
    const CLI::Option* option = command.get_option_no_throw(flag);
    if (!option || key == "config" || key == "help") {
      const std::string near = nearest(flag, long_flags(command));
      throw UsageError(where + " is not an option of 'tern " + command.get_name() + "'" +
                       (near.empty() ? "" : "; did you mean '" + near.substr(2) + "'?"));
    }
    if (given(arguments, flag)) continue;
    if (const auto* boolean = node.as_boolean()) {
      if (option->get_expected_max() != 0) throw UsageError(where + " takes a value, not true or false");
      if (boolean->get()) added.push_back(flag);
    } else if (option->get_expected_max() == 0) {
      throw UsageError(where + " is true or false");
    } else {
      added.push_back(flag + "=" + scalar_text(node, where));
    }
  }
  added.insert(added.end(), arguments.begin(), arguments.end());
  return added;
}

std::string nearest(const std::string& word, const std::vector<std::string>& candidates) {
  std::string best;
  if (word.size() > kMostWord) return best;
  int64_t least = std::max<int64_t>(3, static_cast<int64_t>(word.size()) / 3);
  for (const std::string& candidate : candidates) {
    // A beginning of a known word is near, however much is missing.
    const int64_t distance = word.size() >= 4 && candidate.starts_with(word) ? 1 : edit_distance(word, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

void reject_unknown(const CLI::App& command) {
  for (const std::string& argument : command.remaining()) {
    const bool flag = argument.size() > 1 && argument[0] == '-';
    const std::string name = argument.substr(0, argument.find('='));
    if (!flag) throw UsageError("unexpected argument '" + argument + "'; see 'tern " + command.get_name() + " --help'");
    const std::string near = nearest(name, long_flags(command));
    throw UsageError(
        "unknown flag '" + name + "'" +
        (near.empty() ? "; see 'tern " + command.get_name() + " --help'" : "; did you mean '" + near + "'?"));
  }
}

}  // namespace tern::cli

// The one file that includes CLI11, whose headers take about five seconds to compile.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <set>

#include "tern/kernels/kernel.h"
#include "tern/models/cli/commands/commands.h"
#include "tern/models/cli/options/option_file.h"
#include "tern/models/cli/options/train_help.h"
#include "tern/models/cli/run/version.h"

namespace tern::cli {
namespace {

/// What --help calls the values of the row's type.
const char* type_name(const OptionRow& row) {
  const auto name = [](const auto& stored) {
    using T = std::decay_t<decltype(stored)>;
    if constexpr (std::is_same_v<T, double> || std::is_same_v<T, std::optional<double>>)
      return "FLOAT";
    else if constexpr (std::is_integral_v<T>)
      return std::is_signed_v<T> ? "INT" : "UINT";
    else
      return "TEXT";
  };
  return std::visit(name, row.initial);
}

void declare(CLI::App& parser, Options& options, const OptionRow& row) {
  const std::string name = row.spec.name;
  CLI::Option* option = nullptr;
  if (row.is_flag()) {
    option = parser.add_flag_callback(
        name, [&options, name] { options.take(name, {}); }, row.help());
  } else {
    const CLI::callback_t take = [&options, name](const CLI::results_t& texts) {
      options.take(name, texts);
      return true;
    };
    option = parser.add_option(name, take, row.help());
    option->type_name(type_name(row))->default_str(row.shown_default())->required(row.spec.required);
    if (row.is_list()) option->expected(CLI::detail::expected_max_vector_size);
    if (!row.spec.bare.empty()) option->expected(0, 1);
  }
  option->group(row.spec.heading);
}

/// Throws UsageError when the parser met a word that is none of the command's.
void reject_unknown(const CLI::App& parser, const Command& command) {
  for (const std::string& word : parser.remaining()) {
    const std::string see = "; see 'tern " + command.name + " --help'";
    if (word.size() < 2 || word[0] != '-') throw UsageError("unexpected argument '" + word + "'" + see);
    const std::string flag = word.substr(0, word.find('='));
    std::vector<std::string> known = command.options->flags();
    known.push_back("--help");
    const std::string near = meant_flag(flag, known);
    throw UsageError("unknown flag '" + flag + "'" + (near.empty() ? see : "; did you mean '" + near + "'?"));
  }
}

/// Throws UsageError when an option with one value is given more than once: which one is meant is not known.
void reject_repeated(const Options& options, const std::vector<std::string>& words) {
  std::set<std::string> seen;
  for (const std::string& word : words) {
    if (word == "--") return;
    const OptionRow* const row = options.find(word.substr(0, word.find('=')));
    if (row == nullptr || !word.starts_with("--") || row->is_flag() || row->is_list()) continue;
    if (!seen.insert(row->spec.name).second) throw UsageError(row->spec.name + ": is given twice; give it once");
  }
}

/// Throws UsageError when there is no command of that name.
const Command& find_command(const std::vector<Command>& commands, const std::string& name) {
  std::vector<std::string> known;
  for (const Command& command : commands) {
    if (command.name == name) return command;
    known.push_back(command.name);
  }
  const std::string near = nearest(name, known);
  throw UsageError("unknown command '" + name + "'" +
                   (near.empty() ? "; see 'tern --help'" : "; did you mean '" + near + "'?"));
}

}  // namespace

int run_command_line(const std::vector<Command>& commands, std::vector<std::string> words) {
  if (!words.empty() && words[0] == "help") {  // git's spelling
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  CLI::App app("Tern: train and serve classifiers of texts and images", "tern");
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", version_text());
  app.footer("Example: tern train " + example_family().name +
             "\nSee 'tern COMMAND --help' for the options of a command.");
  for (const Command& command : commands) {
    CLI::App* const parser = app.add_subcommand(command.name, command.description);
    for (const OptionRow& row : command.options->rows()) declare(*parser, *command.options, row);
    parser->footer(command.epilog);
  }
  std::vector<std::string> reversed(words.rbegin(), words.rend());
  const bool named = !words.empty() && !words[0].starts_with("-");
  if (named) {
    const Command& command = find_command(commands, words[0]);
    app.get_subcommand(command.name)->allow_extras();
    const std::vector<std::string> given(words.begin() + 1, words.end());
    check_no_empty_value(*command.options, given);
    const std::vector<std::string> merged = merge_option_file(*command.options, command.name, given);
    reject_repeated(*command.options, merged);
    reversed.assign(merged.rbegin(), merged.rend());
    reversed.push_back(command.name);
  }
  try {
    app.parse(reversed);
  } catch (const CLI::Success& done) {
    return app.exit(done);  // --help and --version
  } catch (const CLI::ParseError& error) {
    // A flag that is unknown says more than the one that is missing in its place.
    for (const CLI::App* parser : app.get_subcommands())
      reject_unknown(*parser, find_command(commands, parser->get_name()));
    throw UsageError(error.what());
  }
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  if (chosen.empty()) {
    std::cout << app.help();
    return words.empty() ? 2 : 0;
  }
  const Command& command = find_command(commands, chosen[0]->get_name());
  reject_unknown(*chosen[0], command);
  kernels::cpu_level();  // throws where the processor has none of this build's levels
  return command.run();
}

}  // namespace tern::cli

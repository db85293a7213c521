#pragma once
// Declares the options of a subcommand. A thin front of CLI11, whose headers cost about five seconds in each file that
// includes them.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tern::cli {

/// Where the value of an option is stored; it, and a flag's, must live until the command line has been parsed.
using OptionValue = std::variant<std::string*, std::vector<std::string>*, int*, int64_t*, uint64_t*, double*>;

class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option& required();
  /// --help shows the value that it has now.
  Option& show_default();
  /// Accept numbers from least to most. NaN is none, and nothing is rounded, wrapped or cut to fit.
  Option& number_in(double least, double most);
  Option& whole_in(int64_t least, int64_t most);
  Option& unsigned_in(uint64_t least, uint64_t most);
  Option& one_of(const std::vector<std::string>& values);
  /// It may also stand without a value.
  Option& value_optional();

 private:
  CLI::Option* option_;
};

class Subcommand {
 public:
  /// Adds itself to the program's parser.
  Subcommand(CLI::App& program, const std::string& name, const std::string& description);

  /// `name`: "--flag", or a word for what is given by its place.
  Option add_option(const std::string& name, OptionValue value, const std::string& help);
  /// The flag sets *value to `given`.
  void add_flag(const std::string& name, bool* value, const std::string& help, bool given = true);
  /// What --help ends with.
  void footer(const std::string& text);
  /// After parsing: whether the flag is on the command line or in the option file.
  bool has(const std::string& flag) const;

 private:
  CLI::App* command_;  // the parser owns it
};

}  // namespace tern::cli

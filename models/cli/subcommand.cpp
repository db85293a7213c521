#include "tern/models/cli/subcommand.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <sstream>

#include "tern/core/io/pickle.h"

namespace tern::cli {
namespace {

/// Accepts what is wholly a T within the bounds; the parser's own conversions wrap and saturate.
template <class T>
CLI::Validator in_bounds(const char* kind, T least, T most) {
  const auto check = [kind, least, most](const std::string& text) -> std::string {
    T value{};
    const char* end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && stopped == end && value >= least && value <= most) return {};
    std::ostringstream problem;
    problem << "must be a " << kind << " from " << least << " to " << most << ", got '" << tern::detail::printable(text)
            << "'";
    return problem.str();
  };
  return CLI::Validator(check, "");
}

}  // namespace

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::show_default() {
  option_->capture_default_str();
  return *this;
}

Option& Option::number_in(double least, double most) {
  option_->check(in_bounds("number", least, most));
  return *this;
}

Option& Option::whole_in(int64_t least, int64_t most) {
  option_->check(in_bounds("whole number", least, most));
  return *this;
}

Option& Option::unsigned_in(uint64_t least, uint64_t most) {
  option_->check(in_bounds("whole number", least, most));
  return *this;
}

Option& Option::one_of(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
  return *this;
}

Option& Option::value_optional() {
  option_->expected(0, 1);
  return *this;
}

Subcommand::Subcommand(CLI::App& program, const std::string& name, const std::string& description)
    : command_(program.add_subcommand(name, description)) {}

Option Subcommand::add_option(const std::string& name, OptionValue value, const std::string& help) {
  return Option(std::visit([&](auto* stored) { return command_->add_option(name, *stored, help); }, value));
}

void Subcommand::add_flag(const std::string& name, bool* value, const std::string& help, bool given) {
  command_->add_flag_callback(
      name, [value, given] { *value = given; }, help);
}

void Subcommand::footer(const std::string& text) { command_->footer(text); }
bool Subcommand::has(const std::string& flag) const { return command_->count(flag) > 0; }

}  // namespace tern::cli

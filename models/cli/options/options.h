#pragma once
// The options of a command. Each is declared once, and from its declaration come the command line, the option file,
// --help, the checks, run.json and what is compared when a run is resumed:
//
//     struct EvalOptions : CommonOptions {
//       using Self = EvalOptions;
//       int64_t batch_tokens =
//           option(&Self::batch_tokens, 16384, "--batch-tokens", "tokens a batch", Bounds{1, 1e12}, For::kTexts);
//     };
//
// The member is a plain int64_t. Its declaration adds a row to Options::rows(), the table that everything else reads.

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace tern::cli {

/// Wrong usage: exit status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What a declaration may say beyond name and help, in any order:

/// The least and the greatest number that is accepted. They are exact for whole numbers up to 2^53.
struct Bounds {
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
};
/// The accepted texts.
using Words = std::vector<std::string>;
/// What accepted texts look like ("i/k, like 1/5"), and whether a text is one.
struct Form {
  std::string description;
  bool (*accepts)(const std::string& text) = nullptr;
};
/// The models that an option is for.
enum class For : uint8_t { kAllModels, kTexts, kImages };
/// Where two values must be equal: on the ranks of one job, and in run.json and the run that resumes it. An option
/// decides a bit of the result, so that it is compared everywhere, unless its declaration says otherwise.
enum class Compared : uint8_t { kEverywhere, kBetweenRanks, kAtResume, kNowhere };
/// The command does not run without the option.
struct Required {};
/// The value of the option where its flag stands without one.
struct Bare {
  std::string value;
};
/// The heading of --help under which the option stands.
struct Heading {
  std::string text;
};

/// What an option is called and what it accepts.
struct OptionSpec {
  /// "--lr", or a word for what is given by its place. A bool is a flag, which sets the value that is not the default:
  /// "--no-shuffle" is recorded as "shuffle".
  std::string name;
  /// One that ends with a colon continues with what is accepted.
  std::string help;
  Bounds bounds = {};
  Words words = {};
  Form form = {};
  For models = For::kAllModels;
  Compared compared = Compared::kEverywhere;
  bool required = false;
  std::string bare = {};  // empty: the flag needs a value
  std::string heading = "Options";

  void add(Bounds of) { bounds = of; }
  void add(Words of) { words = std::move(of); }
  void add(Form of) { form = std::move(of); }
  void add(For of) { models = of; }
  void add(Compared where) { compared = where; }
  void add(Required) { required = true; }
  void add(Bare of) { bare = std::move(of.value); }
  void add(Heading of) { heading = std::move(of.text); }
};

/// An option of type std::optional is empty unless it is given.
using OptionValue =
    std::variant<std::string, std::vector<std::string>, bool, int, int64_t, uint64_t, double, std::optional<double>>;

class Options;

/// An option in the table.
struct OptionRow {
  OptionSpec spec;
  OptionValue initial;  // the default
  std::function<OptionValue(const Options&)> get;
  std::function<void(Options&, const OptionValue&)> set;
  bool given = false;  // on the command line or in the option file

  bool is_flag() const { return std::holds_alternative<bool>(initial); }
  bool is_list() const { return std::holds_alternative<std::vector<std::string>>(initial); }
  /// "weight_decay" for --weight-decay, "shuffle" for --no-shuffle.
  std::string recorded_name() const;
  /// Whether a run may be started with the value. Not so for a default that stands for a rule: 0 epochs.
  bool accepts(const OptionValue& value) const;
  /// "a whole number from 1 to 256".
  std::string accepted() const;
  /// The text of --help, complete.
  std::string help() const;
  /// The default as --help shows it; empty for a flag and for a default that stands for a rule.
  std::string shown_default() const;
};

/// What the options of a command derive from. A copy has the values and the rows of the original.
class Options {
 public:
  const std::vector<OptionRow>& rows() const { return rows_; }
  /// The row of that name ("--lr"), or null.
  const OptionRow* find(std::string_view name) const;
  /// The names that begin with dashes.
  std::vector<std::string> flags() const;
  /// Whether the option is on the command line or in the option file. Throws Error when there is no such option.
  bool given(std::string_view name) const;
  /// Sets the option from the words of the command line and marks it as given. Throws UsageError, which names the
  /// option, what it accepts and what was given.
  void take(std::string_view name, const std::vector<std::string>& texts);

 protected:
  /// Declares an option; the result is its default.
  template <class Self, class T, class... Traits>
  T option(T Self::*member, std::type_identity_t<T> initial, std::string name, std::string help, Traits... traits) {
    OptionSpec spec{.name = std::move(name), .help = std::move(help)};
    (spec.add(std::move(traits)), ...);
    const auto get = [member](const Options& options) {
      return OptionValue(std::in_place_type<T>, static_cast<const Self&>(options).*member);
    };
    const auto set = [member](Options& options, const OptionValue& value) {
      static_cast<Self&>(options).*member = std::get<T>(value);
    };
    rows_.push_back({std::move(spec), OptionValue(std::in_place_type<T>, initial), get, set, false});
    return initial;
  }

 private:
  std::vector<OptionRow> rows_;
};

/// Throws UsageError that names the option when the words of a command line give one an empty value, as an unset
/// variable of the shell does. No option has a use for one: what is left out has its default. Options::take() refuses
/// one by its place.
void check_no_empty_value(const Options& options, const std::vector<std::string>& words);
/// The error of an empty value; `where`: the option, as the user wrote it.
UsageError empty_value(const OptionRow& row, const std::string& where);
/// Throws UsageError when an option was given that is for the other kind of model.
void check_options_are_for(For model, const Options& options);
/// Throws UsageError "--lr: unknown 'x', did you mean 'y'?; known: ..." unless the value is one of the words.
void check_word(const std::string& name, const std::string& value, const std::vector<std::string>& words);

/// The flag of `known` that the user may have meant: what other tools call so ("--learning-rate" is "--lr"), else the
/// nearest; empty when none is near.
std::string meant_flag(const std::string& flag, const std::vector<std::string>& known);
/// The candidate nearest to `word` by edit distance; empty when none is near.
std::string nearest(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace tern::cli

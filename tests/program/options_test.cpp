// Every option in the table, given to the program: --help, both ends of its bounds, words, and the models it is for.

#include <set>

#include "tern/models/cli/options/train_arguments.h"
#include "tern/models/cli/program.h"
#include "tern/tests/models/option_values.h"
#include "tern/tests/program/program.h"
#include "tern/tests/support/seed.h"

namespace tern::program {
namespace {

using cli::For;
using cli::OptionRow;

class OptionsProgramTest : public ProgramTest {
 protected:
  /// A command line that fails after its options were parsed and accepted.
  static Words failing(const std::string& command, const OptionRow& row) {
    if (command == "train")
      return (row.spec.models == For::kImages ? "train vit" : "train distilbert") + Words("--split 1/1/1 --fold 1/5");
    if (command == "export") return {command, "missing", row.spec.name == "--text" ? "--dot=graph.dot" : "--text"};
    if (row.spec.name == "--pool") return {command, "missing", "--features"};
    if (command != "launch") return {command, "missing"};
    return row.spec.name == "--nproc" ? "launch" : "launch --nproc 1";
  }
  static std::string failure(const std::string& command, const OptionRow& row) {
    if (command == "resume" && row.spec.name == "--seed") return "belongs to the run";
    return command == "train" ? "exclude each other" : command == "launch" ? "nothing to start" : "missing";
  }
  Result give(const std::string& command, const OptionRow& row, const std::string& text) {
    const std::string& name = row.spec.name;
    const bool one_word = !text.empty() && random_() % 2 == 0;
    return tern(failing(command, row) + (row.is_flag() ? Words{name}
                                         : one_word    ? Words{name + "=" + text}
                                                       : Words{name, text}));
  }
  void expect_accepted(const std::string& command, const OptionRow& row, const std::string& text) {
    SCOPED_TRACE(command + " " + row.spec.name + " " + text);
    const Result result = give(command, row, text);
    EXPECT_NE(result.status, 0);
    EXPECT_TRUE(has(result.err, failure(command, row)));
    EXPECT_FALSE(has(result.err, row.spec.name + ":"));
  }
  void expect_refused(const std::string& command, const OptionRow& row, const std::string& text,
                      std::vector<std::string> parts) {
    SCOPED_TRACE(command + " " + row.spec.name + " " + text);
    parts.push_back("tern: error: " + row.spec.name + ": ");
    parts.push_back("'" + text + "'");
    expect_error(give(command, row, text), 2, parts);
  }

  std::mt19937_64 random_ = fresh_random();
};

/// The text without line breaks and with single spaces.
std::string unfolded(const std::string& text) {
  std::string all;
  for (const std::string& word : Words(text)) all += (all.empty() ? "" : " ") + word;
  return all;
}

TEST_F(OptionsProgramTest, HelpShowsEveryOption) {
  for (const cli::Command& command : cli::all_commands({}, {})) {
    const std::string help = unfolded(succeeds({command.name, "--help"}).out);
    for (const OptionRow& row : command.options->rows()) {
      const std::string shown = row.shown_default();
      size_t at = help.find(" " + row.spec.name + " ");
      if (at == std::string::npos) at = help.find(" " + row.spec.name + "=");
      ASSERT_NE(at, std::string::npos) << command.name << " " << row.spec.name;
      EXPECT_TRUE(has(help.substr(at), unfolded(row.help()))) << command.name << " " << row.spec.name;
      if (!shown.empty()) {
        EXPECT_LT(help.find("=" + shown, at), help.find(unfolded(row.help()), at)) << row.spec.name;
      }
    }
  }
}

TEST_F(OptionsProgramTest, BothEndsOfEveryNumber) {
  int numbers = 0;
  for (const cli::Command& command : cli::all_commands({}, {}))
    for (const OptionRow& row : command.options->rows()) {
      if (!cli::is_whole(row) && !cli::is_real(row)) continue;
      ++numbers;
      const cli::Ends ends = cli::ends_of(row);
      expect_accepted(command.name, row, ends.minimum);
      expect_accepted(command.name, row, ends.maximum);
      const std::string bounds = "must be a whole number from " + ends.minimum + " to " + ends.maximum;
      for (const std::string& text : {ends.below, ends.above})
        expect_refused(command.name, row, text, {cli::is_whole(row) ? bounds : "must be a number from "});
      for (const char* text : {"nan", "1x", cli::is_whole(row) ? "2.5" : "inf"})
        expect_refused(command.name, row, text, {"must be a "});
    }
  EXPECT_GE(numbers, 30);
}

/// The bounds in the message are the bounds.
TEST_F(OptionsProgramTest, TheMessageNamesBothBoundsOfARealNumber) {
  const cli::TrainArguments table;
  for (const OptionRow& row : table.rows()) {
    if (!cli::is_real(row)) continue;
    const std::string error = give("train", row, "-1").err;
    double minimum = NAN, maximum = NAN;
    const size_t at = error.find(" from ");
    ASSERT_NE(at, std::string::npos) << error;
    ASSERT_EQ(std::sscanf(error.c_str() + at, " from %lf to %lf, got '-1'", &minimum, &maximum), 2) << error;
    EXPECT_EQ(minimum, row.spec.bounds.minimum) << error;
    EXPECT_EQ(maximum, row.spec.bounds.maximum) << error;
  }
}

TEST_F(OptionsProgramTest, WordsAndForms) {
  for (const cli::Command& command : cli::all_commands({}, {}))
    for (const OptionRow& row : command.options->rows()) {
      if (!row.spec.words.empty()) {
        for (const std::string& word : row.spec.words) expect_accepted(command.name, row, word);
        std::string known;
        for (const std::string& word : row.spec.words) known += (known.empty() ? "known: " : ", ") + word;
        const std::string& near = row.spec.words[random_() % row.spec.words.size()];
        expect_refused(command.name, row, near + "x", {"unknown", "did you mean '", known});
      }
      const bool twice = command.name == "train" && (row.spec.name == "--split" || row.spec.name == "--fold");
      if (row.spec.form.accepts && !twice)
        expect_refused(command.name, row, "1y/", {"must be " + row.spec.form.description + ", got "});
    }
}

/// As an unset variable of the shell gives it, in every place where an option can stand; OptionsTest tries every
/// option.
TEST_F(OptionsProgramTest, AnEmptyValueIsRefused) {
  const std::pair<Words, std::string> cases[] = {{{"train", ""}, "model"},
                                                 {{"train", "distilbert", "--init", ""}, "--init"},
                                                 {{"train", "distilbert", "--data="}, "--data"},
                                                 {{"train", "distilbert", "--config", ""}, "--config"},
                                                 {{"train", "distilbert", "--find-lr", "", "--quiet"}, "--find-lr"},
                                                 {{"train", "distilbert", "--find-batch-size="}, "--find-batch-size"},
                                                 {{"train", "distilbert", "--quiet="}, "--quiet"},
                                                 {{"resume", ""}, "run"},
                                                 {{"eval", "curve", "--split", ""}, "--split"},
                                                 {{"predict", ""}, "dir"},
                                                 {{"predict", "curve", "x.txt", ""}, "files"},
                                                 {{"tokenize", "", "x.txt"}, "files"},
                                                 {{"info", ""}, "path"},
                                                 {{"launch", "--nproc", "", "--", "info"}, "--nproc"},
                                                 {{"launch", "--nproc", "2", "--logs", "", "--", "info"}, "--logs"}};
  for (const auto& [arguments, option] : cases) {
    SCOPED_TRACE(testing::PrintToString(arguments));
    expect_error(tern(arguments), 2, {option + ": must be ", "got an empty value"});
  }
  expect_error(tern({"train", "distilbert", "--freeze", "a,,b"}), 2, {"--freeze: "});
  EXPECT_EQ(listing("."), "curve");
}

TEST_F(OptionsProgramTest, OptionsOfOtherModelsAreRefused) {
  const cli::TrainArguments table;
  int refused = 0;
  for (const OptionRow& row : table.rows()) {
    if (row.spec.models == For::kAllModels) continue;
    ++refused;
    const bool images = row.spec.models == For::kImages;
    const Words other = images ? "train distilbert" : "train vit";
    const Words given = row.is_flag() ? Words{row.spec.name} : Words{row.spec.name, cli::random_text(row, random_)};
    SCOPED_TRACE(row.spec.name);
    expect_error(tern(other + given), 2,
                 {row.spec.name + (images ? " is for models that take images" : " is for models that take texts")});
    // From the option file too.
    const bool number = cli::is_whole(row) || cli::is_real(row);
    write("options.toml", row.spec.name.substr(2) + " = " + (row.is_flag() ? "true" : number ? "1000" : "\"none\""));
    expect_error(tern(other + "--config options.toml"), 2, {row.spec.name});
    write("options.toml", "");
  }
  EXPECT_GE(refused, 8);
  EXPECT_EQ(listing("."), "curve options.toml");
}

class ResumedOptionsTest : public OptionsProgramTest {
 protected:
  /// With the paths that `resume` records.
  static Words run(const Words& more) {
    return "train distilbert --quiet --threads 1 --out run --max-steps 2 --resume auto --checkpoint-every 1" +
           Words{"--init", kCurve, "--data", kCurve + "/data.csv"} + more;
  }
};

/// A run goes on with the values it was started with: each number that decides a bit is named when it is another.
TEST_F(ResumedOptionsTest, AnotherValueIsRefused) {
  succeeds(run({}));
  const Json options = options_of("run");
  const cli::TrainArguments table;
  EXPECT_EQ(options.size(), table.rows().size() + 1);  // and "processes"
  int compared = 0;
  for (const OptionRow& row : table.rows()) {
    EXPECT_TRUE(options.contains(row.recorded_name())) << row.spec.name;
    const bool number = cli::is_whole(row) || cli::is_real(row);
    if (!number || row.spec.models == For::kImages || row.spec.compared != cli::Compared::kEverywhere) continue;
    // In the command line already, or cut to what the data and the model are.
    if (std::set<std::string>{"--max-steps", "--max-length", "--batch-tokens"}.contains(row.spec.name)) continue;
    // These belong to other schedules and optimizers than this run's.
    if (row.spec.name.starts_with("--schedule-") || row.spec.name == "--momentum") continue;
    if (row.spec.name == "--min-delta" || row.spec.name == "--lookahead-alpha") continue;  // with another option alone
    const std::string text = row.spec.name == "--warmup" ? "0.25" : cli::random_text(row, random_);
    if (Json::parse(text) == options[row.recorded_name()]) continue;
    SCOPED_TRACE(row.spec.name + " " + text);
    expect_error(tern(run({row.spec.name, text})), 1,
                 {"the run was started with other values: ", row.spec.name + " was "});
    ++compared;
  }
  EXPECT_GE(compared, 5);
  // The same run, and values that decide no bit.
  succeeds(run("--workers 0 --keep 7 --recompute block"));
}

/// run.json of a program that had fewer options.
TEST_F(ResumedOptionsTest, RecordsOfOtherPrograms) {
  succeeds(run("--keep 4"));
  const Json record = json("run/run.json");
  const std::string weights = read("run/model.safetensors");
  Json older = record;
  for (const char* name : {"ema", "shuffle", "strategy", "kahan"}) older["options"].erase(name);
  write("run/run.json", older.dump());
  succeeds("resume run/checkpoints/step-00000001 --quiet --threads 1");
  EXPECT_TRUE(read("run/model.safetensors") == weights);
  Json options = options_of("run");
  for (const char* name : {"resume", "out"}) options[name] = record["options"][name];
  EXPECT_EQ(options, record["options"]);
}

}  // namespace
}  // namespace tern::program

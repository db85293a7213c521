// The table of options: what is declared is parsed, checked, recorded and compared; and the defaults of a run.

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tern/core/io/json.h"
#include "tern/models/cli/options/option_file.h"
#include "tern/models/cli/options/option_record.h"
#include "tern/models/cli/program.h"
#include "tern/models/cli/run/plan.h"
#include "tern/tests/errors.h"
#include "tern/tests/models/option_values.h"
#include "tern/tests/support/seed.h"
#include "tern/tests/support/temporary_folder.h"

namespace tern::cli {
namespace {

using test::has;
using Json = nlohmann::ordered_json;

/// The message of the UsageError that `action` throws; empty when it throws none.
template <class Action>
std::string usage_error_of(Action&& action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

const TrainArguments kTable;  // with every default

TEST(OptionsTest, EveryRowHasAHelpAndADistinctName) {
  const std::vector<Command> commands = all_commands({}, {});
  EXPECT_EQ(commands.size(), 9u);
  for (const Command& command : commands) {
    std::set<std::string> names, recorded;
    for (const OptionRow& row : command.options->rows()) {
      SCOPED_TRACE(command.name + " " + row.spec.name);
      EXPECT_TRUE(names.insert(row.spec.name).second);
      EXPECT_TRUE(recorded.insert(row.recorded_name()).second);
      EXPECT_GE(row.help().size(), 5u);
      EXPECT_NE(row.help().back(), ':');
      EXPECT_FALSE(row.given);
      EXPECT_TRUE(row.get(*command.options) == row.initial);
      if (is_whole(row) || is_real(row)) {
        EXPECT_LT(row.spec.bounds.minimum, row.spec.bounds.maximum);
      }
    }
  }
}

TEST(OptionsTest, HelpSaysWhatTheRowsOfFamiliesAndSetsSay) {
  const std::pair<const char*, const char*> parts[] = {
      {"model", "cnn (images), lstm (texts) or onnx (texts or images)"},
      {"--data", "default: imdb or cifar10 where it is on this machine"},
      {"--split", "80/10/10; cnn's speedrun: train-test where"},
      {"--freeze",
       "layer[1-3].*,bn1.* of a cnn, encoder.* of a distilbert, bert.encoder.* of a bert, the names of an ONNX file's "
       "weights; batch"},
      {"--augment", "(mirror images, not of digits, and shifts"},
      {"--augment", "not of files; for cnn's speedrun: alternating)"},
      {"--mixup", "default: 0, for digits 0.3"},
      {"--epochs", "with --init (distilbert: or --preset base; bert: or --preset base or large)"},
      {"--epochs", "10 for images, 40 for digits, 16 for cnn's speedrun, 3 for its quick and for MNIST"},
      {"--lr", "5e-4 for texts (lstm: 2e-3), 1e-3 for images, 2e-3 for digits, for cnn's speedrun 0.17 times the"},
      {"--momentum", "0.95, for cnn's speedrun 1 - 0.2 x images a step / 1000, from 0 to 0.95)"},
      {"--batch-size", "for cnn's speedrun 1000, less with fewer than 50,000 training images (50 steps an epoch)"},
      {"--preset", "unless stated (vit for digits: a smaller one)"}};
  for (const auto& [name, part] : parts) EXPECT_TRUE(has(kTable.find(name)->help(), part)) << kTable.find(name)->help();
}

/// No option takes an empty value: not as a separate word, after "=", or in the option file.
TEST(OptionsTest, AnEmptyValueIsRefusedByEveryOption) {
  test::TemporaryFolder folder;
  const std::string file = (folder.path() / "options.toml").string();
  for (const Command& command : all_commands({}, {}))
    for (const OptionRow& row : command.options->rows()) {
      const std::string& name = row.spec.name;
      SCOPED_TRACE(command.name + " " + name);
      Options& options = *command.options;
      const auto error_of_words = [&](const std::vector<std::string>& words) {
        return usage_error_of([&] { check_no_empty_value(options, words); });
      };
      const auto refused = [&](const std::string& error, const std::string& where) {
        return error.starts_with(where + ": must be ") && has(error, "got an empty value");
      };
      if (!name.starts_with("--")) {
        EXPECT_TRUE(refused(usage_error_of([&] { options.take(name, {""}); }), name));
        EXPECT_TRUE(!row.is_list() || refused(usage_error_of([&] { options.take(name, {"x", ""}); }), name));
        continue;
      }
      EXPECT_TRUE(refused(error_of_words({"x", name + "="}), name));
      EXPECT_EQ(error_of_words({"x", name + "=1"}), "");
      EXPECT_EQ(error_of_words({name}), "");
      if (row.is_flag()) continue;
      EXPECT_TRUE(refused(error_of_words({name, ""}), name));
      EXPECT_TRUE(refused(error_of_words({"--quiet", name, "", "y"}), name));
      EXPECT_TRUE(refused(error_of_words({name, "1", name, ""}), name));
      EXPECT_EQ(error_of_words({name, "1", ""}), "");  // a place, which take() refuses
      EXPECT_TRUE(!row.spec.bare.empty() || refused(usage_error_of([&] { options.take(name, {""}); }), name));
      if (name == "--config") continue;
      std::ofstream(file) << name.substr(2) << " = \"\"\n";
      const auto merge = [&](std::vector<std::string> words) {
        words.insert(words.end(), {"--config", file});
        return usage_error_of([&] { merge_option_file(options, command.name, words); });
      };
      const std::string where = file + ": '" + name.substr(2) + "'";
      EXPECT_TRUE(refused(merge({}), where));
      EXPECT_TRUE(refused(merge({name, "1"}), where));  // also where the command line gives another
    }
}

struct ProbeArguments : TrainArguments {
  using Self = ProbeArguments;
  double probe = option(&Self::probe, 0.25, "--probe-rate", "of the test", Bounds{0, 2}, For::kImages);
  bool lively = option(&Self::lively, true, "--no-lively", "of the test", Compared::kNowhere);
};

/// One declaration is the command line, the checks, the record and the comparison.
TEST(OptionsTest, ADeclarationIsAllThatAnOptionNeeds) {
  ProbeArguments options;
  const size_t rows = kTable.rows().size();
  ASSERT_EQ(options.rows().size(), rows + 2);
  EXPECT_EQ(options.find("--probe-rate")->shown_default(), "0.25");
  const Json before = to_record(options);
  EXPECT_EQ(before["probe_rate"], 0.25);
  EXPECT_EQ(before["lively"], true);

  options.take("--probe-rate", {"2"});
  options.take("--no-lively", {});
  EXPECT_EQ(options.probe, 2);
  EXPECT_FALSE(options.lively);
  EXPECT_TRUE(options.given("--probe-rate") && options.given("--no-lively") && !options.given("--lr"));
  const std::string problem = usage_error_of([&] { options.take("--probe-rate", {"2.5"}); });
  EXPECT_EQ(problem, "--probe-rate: must be a number from 0 to 2, got '2.5'");
  EXPECT_EQ(options.probe, 2);
  EXPECT_EQ(record_differences(options, before, to_record(options)), "--probe-rate was 0.25 and is 2.0");
  EXPECT_TRUE(has(lines_to_compare(options), "--probe-rate 2.0\n"));
  EXPECT_FALSE(has(lines_to_compare(options), "lively"));
  EXPECT_EQ(usage_error_of([&] { check_options_are_for(For::kTexts, options); }),
            "--probe-rate is for models that take images");
  EXPECT_EQ(usage_error_of([&] { check_options_are_for(For::kImages, options); }), "");

  // A copy has its own values.
  ProbeArguments copy = options;
  copy.take("--probe-rate", {"0"});
  EXPECT_EQ(copy.probe, 0);
  EXPECT_EQ(options.probe, 2);
  ProbeArguments restored;
  from_record(restored, to_record(options), "record");
  EXPECT_EQ(to_record(restored), to_record(options));
  EXPECT_FALSE(restored.given("--probe-rate"));
}

/// Every value that an option accepts is recorded and read again, through the text of a file.
TEST(OptionsTest, ARecordKeepsEveryValue) {
  std::mt19937_64 random = fresh_random();
  for (int round = 0; round < 20; ++round) {
    TrainArguments options;
    for (const OptionRow& row : kTable.rows())
      if (random() % 4 != 0) change(options, row, random);
    const Json record = to_record(options);
    EXPECT_EQ(record.size(), options.rows().size());
    TrainArguments read;
    from_record(read, Json(parse_json(record.dump(), "record")), "record");
    for (const OptionRow& row : read.rows())
      EXPECT_TRUE(row.get(read) == row.get(options)) << row.spec.name << " " << record[row.recorded_name()];
    EXPECT_EQ(record_differences(options, record, to_record(read)), "");
  }
}

// Written down once more: a changed line must be a decision.
const std::set<std::string> kFreeAtResume = {"--data",
                                             "--out",
                                             "--init",
                                             "--accumulate",
                                             "--strategy",
                                             "--recompute",
                                             "--image-cache",
                                             "--workers",
                                             "--profile",
                                             "--threads",
                                             "--checkpoint-every",
                                             "--keep",
                                             "--resume",
                                             "--quiet",
                                             "--profile-steps",
                                             "--config",
                                             "--find-lr",
                                             "--find-lr-steps",
                                             "--find-batch-size",
                                             "--memory-limit",
                                             "--tta"};
const std::set<std::string> kFreeBetweenRanks = {
    "--out",  "--recompute", "--image-cache", "--workers", "--profile", "--profile-steps", "--checkpoint-every",
    "--keep", "--resume",    "--threads",     "--config",  "--quiet",   "--device",        "--memory-limit"};

TEST(OptionsTest, WhatDecidesABitIsCompared) {
  std::mt19937_64 random = fresh_random(1);
  std::set<std::string> names;
  for (const OptionRow& row : kTable.rows()) {
    const std::string& name = row.spec.name;
    SCOPED_TRACE(name);
    names.insert(name);
    TrainArguments options;
    const Json before = to_record(options);
    const std::string lines = lines_to_compare(options);
    if (!change(options, row, random)) continue;
    const Json now = to_record(options);
    EXPECT_NE(now[row.recorded_name()], before[row.recorded_name()]);
    const std::string difference = record_differences(options, before, now);
    EXPECT_EQ(difference.empty(), kFreeAtResume.contains(name)) << difference;
    if (!difference.empty()) {
      EXPECT_TRUE(difference.starts_with(name + " was ") && has(difference, " and is ")) << difference;
    }
    EXPECT_EQ(lines_to_compare(options) == lines, kFreeBetweenRanks.contains(name)) << lines_to_compare(options);
  }
  for (const auto& free : {kFreeAtResume, kFreeBetweenRanks})
    for (const std::string& name : free) EXPECT_TRUE(names.contains(name)) << name;
}

/// The options of a run.json that this table did not write: Tern 0.1.0 before it had one.
constexpr const char* kEarlier = R"({"model": "distilbert", "data": "reviews.csv", "split": "", "fold": "",
  "out": "runs/a", "config": "", "preset": "tiny", "init": "", "epochs": 10, "max_steps": 0, "lr": 0.0005,
  "optimizer": "adamw", "weight_decay": 0.01, "schedule": "linear", "warmup": 0.1, "clip": 1.0, "ema": 0.0,
  "dropout": null, "dtype": "fp32", "tf32": false, "autotune": false, "kahan": false, "recompute": "none",
  "max_length": 512, "batch_size": 0, "batch_tokens": 1024, "image_size": 0, "augment": "default", "mixup": null,
  "cutmix": 0.0, "label_smoothing": 0.0, "accumulate": 1, "strategy": "ddp", "shuffle": true,
  "group_by_length": false, "workers": 2, "checkpoint_every": "", "keep": 2, "resume": "", "profile": "",
  "profile_steps": 20, "seed": 42, "quiet": true, "device": "cpu", "threads": 2, "processes": 1})";

TEST(OptionsTest, RecordsOfOtherPrograms) {
  const Json earlier(parse_json(kEarlier, "earlier"));
  TrainArguments options;
  from_record(options, earlier, "run.json");
  EXPECT_EQ(options.lr, 5e-4);
  EXPECT_FALSE(options.dropout.has_value());
  EXPECT_EQ(options.batch_tokens, 1024);
  EXPECT_EQ(options.device, "cpu");
  // This program makes the same of it, so that the run goes on.
  Json now = to_record(
      plan_run(options, TextFacts{.data = "reviews.csv", .max_positions = 512, .train_tokens = 1, .longest_row = 9}));
  now["processes"] = 1;
  EXPECT_EQ(record_differences(options, earlier, now), "");
  for (const auto& [name, value] : earlier.items()) EXPECT_EQ(now[name], value) << name;

  // An option that the record lacks had its default.
  Json older = earlier;
  for (const char* name : {"ema", "strategy", "shuffle", "dropout", "clip"}) older.erase(name);
  TrainArguments of_older;
  from_record(of_older, older, "run.json");
  EXPECT_EQ(to_record(of_older), to_record(options));
  EXPECT_EQ(record_differences(options, older, now), "");
  now["ema"] = 0.5;
  EXPECT_EQ(record_differences(options, older, now), "--ema was 0.0 and is 0.5");
  now["ema"] = 0.0;
  now["shuffle"] = false;
  now["dropout"] = 0.25;
  const std::string two = record_differences(options, earlier, now);
  EXPECT_TRUE(has(two, "--no-shuffle was not given and is given"));
  EXPECT_TRUE(has(two, "--dropout was not given and is 0.25"));

  // One that this program does not have may have decided bits.
  Json later = earlier;
  later["sharpness"] = 0.5;
  EXPECT_EQ(record_differences(options, later, to_record(options)),
            "\"processes\" was 1 and is no option of this program; \"sharpness\" was 0.5 and is no option of this "
            "program");
}

/// The error when a record with this entry alone is read; checks that otherwise the value is taken as it is.
std::string error_of_record(const OptionRow& row, const Json& value) {
  Json record;
  record[row.recorded_name()] = value;
  TrainArguments options;
  const std::string error = test::error_of([&] { from_record(options, record, "f/run.json"); });
  if (error == "no error") {
    EXPECT_EQ(to_record(options)[row.recorded_name()], value) << row.spec.name;
  } else {
    EXPECT_TRUE(error.starts_with("f/run.json: the option \"" + row.recorded_name() + "\" is ")) << error;
    EXPECT_TRUE(has(error, "; it must be ")) << error;
    EXPECT_EQ(to_record(options), to_record(kTable)) << row.spec.name;
  }
  return error;
}

TEST(OptionsTest, DamagedRecords) {
  std::mt19937_64 random = fresh_random(2);
  const std::vector<Json> values = {
      true,      -1,         0.5,       1e300,         1e40,           "",      "x",
      "every-0", UINT64_MAX, INT64_MIN, Json::array(), Json::object(), 1 << 20, static_cast<int64_t>(random())};
  int refused = 0;
  for (const OptionRow& row : kTable.rows()) {
    for (const Json& value : values) refused += error_of_record(row, value) != "no error";
    if (!is_whole(row) && !is_real(row)) continue;
    const Ends ends = ends_of(row);
    for (const auto& [text, inside] :
         {std::pair(ends.minimum, true), {ends.maximum, true}, {ends.below, false}, {ends.above, false}}) {
      const Json value(parse_json(text, "number"));
      const bool is_default = to_record(kTable)[row.recorded_name()] == value;
      EXPECT_EQ(error_of_record(row, value) == "no error", inside || is_default) << row.spec.name << " " << text;
    }
  }
  EXPECT_GT(refused, 300);
}

TEST(OptionsTest, DefaultsOfARunOnTexts) {
  const struct {
    const char *preset, *init;
    int64_t tokens, longest, batch_tokens, epochs;
    double lr;
  } cases[] = {
      {"", "", 1000, 10, 1024, 10, 5e-4},
      {"small", "", 131'071, 10, 1024, 10, 5e-4},
      {"", "", 131'072, 10, 2048, 10, 5e-4},
      {"", "", 262'143, 10, 2048, 10, 5e-4},
      {"", "", 262'144, 10, 4096, 10, 5e-4},
      {"", "", 499'999, 10, 4096, 10, 5e-4},
      {"", "", 500'000, 10, 4096, 4, 5e-4},
      {"", "", 3'999'999, 10, 8192, 4, 5e-4},
      {"", "", 4'000'000, 10, 8192, 2, 5e-4},
      {"", "", 1000, 1025, 2048, 10, 5e-4},
      {"", "", int64_t{1} << 40, 8193, 16384, 2, 5e-4},
      {"base", "", 1000, 10, 1024, 3, 5e-5},
      {"", "folder", 4'000'000, 10, 8192, 3, 5e-5},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(std::string(c.preset) + c.init + " " + std::to_string(c.tokens));
    TrainArguments given;
    given.model = "distilbert";
    given.preset = c.preset;
    given.init = c.init;
    const Json before = to_record(given);
    const TextFacts facts{.data = "set", .max_positions = 512, .train_tokens = c.tokens, .longest_row = c.longest};
    const TrainArguments options = plan_run(given, facts);
    EXPECT_EQ(to_record(given), before);
    EXPECT_EQ(options.data, "set");
    EXPECT_EQ(options.preset, *c.init ? "" : *c.preset ? c.preset : "tiny");
    EXPECT_EQ(options.max_length, 512);
    EXPECT_EQ(options.batch_tokens, c.batch_tokens);
    EXPECT_EQ(options.epochs, c.epochs);
    EXPECT_EQ(options.lr, c.lr);
    EXPECT_EQ(to_record(plan_run(options, facts)), to_record(options));
  }
  TrainArguments given;
  given.model = "lstm";
  EXPECT_EQ(plan_run(given, TextFacts{.data = "set", .max_positions = 256, .train_tokens = 1000}).lr, 2e-3);
  for (const auto& [length, positions, expected] :
       {std::tuple(0, 512, 512), {0, 128, 128}, {0, 1024, 512}, {64, 512, 64}, {600, 512, 512}, {600, 1024, 600}}) {
    given.max_length = length;
    EXPECT_EQ(max_length_of(given, positions), expected);
  }
  EXPECT_EQ(text_dropout_of(given, (4 << 20) - 1), 0.5);
  EXPECT_EQ(text_dropout_of(given, 4 << 20), 0.3);
  given.dropout = 0;
  EXPECT_EQ(text_dropout_of(given, 0), 0.0);
  given.dropout.reset();
  given.model = "distilbert";
  given.preset = "base";
  EXPECT_FALSE(text_dropout_of(given, 0).has_value());
}

TEST(OptionsTest, DefaultsOfARunOnImages) {
  const struct {
    const char *model, *data, *init, *preset;
    int64_t side, batch_size, epochs, first_size;
    double mixup, lr;
  } cases[] = {{"vit", "digits", "", "tiny", 8, 64, 40, 0, 0.3, 2e-3},
               {"vit", "cifar10", "", "tiny", 32, 64, 10, 0, 0, 1e-3},
               {"vit", "photos", "folder", "", 0, 16, 3, 0, 0, 5e-5},
               {"vit", "digits", "folder", "", 8, 16, 40, 0, 0, 2e-3},
               {"cnn", "digits", "", "resnet18", 8, 64, 40, 0, 0.3, 2e-3},
               {"cnn", "faces", "", "resnet18", 15, 64, 10, 0, 0, 1e-3},
               {"cnn", "faces", "", "speedrun", 16, 1000, 16, 16, 0, 0.17},
               {"cnn", "cifar10", "", "speedrun", 32, 1000, 16, 17, 0, 0.17},
               {"cnn", "mnist", "", "speedrun", 28, 1000, 3, 16, 0, 0.17},
               {"cnn", "faces", "", "speedrun", 64, 1000, 16, 34, 0, 0.17},
               {"cnn", "faces", "", "resnet18", 65, 64, 10, 0, 0, 1e-3},
               {"cnn", "photos", "", "resnet18", 0, 64, 10, 0, 0, 1e-3},
               {"cnn", "cifar10", "folder", "", 32, 16, 3, 0, 0, 5e-5}};
  for (const auto& c : cases) {
    SCOPED_TRACE(std::string(c.model) + " " + c.data + c.init + " " + std::to_string(c.side));
    TrainArguments given;
    given.model = c.model;
    given.init = c.init;
    const ImageFacts facts{.data = c.data, .side = c.side, .images = 60000, .has_parts = true};
    const TrainArguments options = plan_run(given, facts);
    const bool has_recipe = options.preset == "speedrun";
    EXPECT_EQ(options.data, c.data);
    EXPECT_EQ(options.preset, c.preset);
    EXPECT_EQ(options.batch_size, c.batch_size);
    EXPECT_EQ(options.epochs, c.epochs);
    EXPECT_EQ(options.progressive_resize, c.first_size);
    EXPECT_EQ(options.mixup, c.mixup);
    EXPECT_DOUBLE_EQ(options.lr.value(), c.lr);
    EXPECT_EQ(options.optimizer, has_recipe ? "muon" : "adamw");
    EXPECT_EQ(options.warmup, has_recipe ? 0 : 0.1);
    EXPECT_EQ(options.label_smoothing, has_recipe ? 0.2 : 0);
    EXPECT_EQ(options.augment, has_recipe ? "alternating" : "default");
    EXPECT_EQ(options.tta, has_recipe && *training_on(c.data).unmirrored == 0 ? "flip-shift" : "none");
    EXPECT_EQ(options.split, has_recipe ? "train-test" : "");
    EXPECT_EQ(to_record(plan_run(options, facts)), to_record(options));
  }
}

/// Small sets get smaller batches; the rate and the momentum follow what a step sees.
TEST(OptionsTest, RecipesScaleWithTheBatch) {
  const struct {
    int64_t images, given, accumulate, processes, batch_size;
    double lr, momentum;
  } cases[] = {{50000, 0, 1, 1, 1000, 0.17, 0.8},           {49949, 0, 1, 1, 998, 0.16982991, 0.8004},
               {1000, 0, 1, 1, 64, 0.043006976, 0.95},      {0, 0, 1, 1, 1000, 0.17, 0.8},
               {60000, 250, 1, 1, 250, 0.085, 0.95},        {60000, 500, 1, 1, 500, 0.120208153, 0.9},
               {60000, 1000, 2, 1, 1000, 0.240416306, 0.6}, {60000, 500, 1, 2, 500, 0.17, 0.8},
               {60000, 250, 2, 4, 250, 0.240416306, 0.6},   {50000, 0, 1, 2, 500, 0.17, 0.8},
               {60000, 9000, 1, 1, 9000, 0.51, 0}};
  for (const auto& c : cases) {
    SCOPED_TRACE(std::to_string(c.images) + " " + std::to_string(c.given));
    TrainArguments given;
    given.model = "cnn";
    given.batch_size = c.given;
    given.accumulate = c.accumulate;
    const TrainArguments options =
        plan_run(given, {.data = "faces", .side = 32, .images = c.images, .processes = c.processes});
    EXPECT_EQ(options.batch_size, c.batch_size);
    EXPECT_NEAR(options.lr.value(), c.lr, 1e-8);
    EXPECT_NEAR(options.momentum.value(), c.momentum, 1e-12);
  }
  TrainArguments of_vit;
  of_vit.model = "vit";
  of_vit.batch_size = 256;
  const TrainArguments options = plan_run(of_vit, {.data = "faces", .side = 32, .images = 100});
  EXPECT_EQ(options.lr, 1e-3);
  of_vit.batch_size = 0;
  EXPECT_EQ(plan_run(of_vit, {.data = "faces", .side = 32, .images = 100}).batch_size, 64);
}

TEST(OptionsTest, RecipesGiveWayToWhatIsGiven) {
  TrainArguments given;
  given.model = "cnn";
  const ImageFacts facts{.data = "cifar10", .side = 32, .has_parts = true};
  const auto split_with = [&](const auto& change) {
    TrainArguments changed = given;
    change(changed);
    return plan_run(changed, facts).split;
  };
  EXPECT_EQ(split_with([](TrainArguments&) {}), "train-test");
  EXPECT_EQ(split_with([](TrainArguments& a) { a.split = "official"; }), "official");
  EXPECT_EQ(split_with([](TrainArguments& a) { a.fold = "1/5"; }), "");
  EXPECT_EQ(split_with([](TrainArguments& a) { a.patience = 2; }), "");
  EXPECT_EQ(split_with([](TrainArguments& a) { a.schedule = "plateau"; }), "");
  EXPECT_EQ(plan_run(given, {.data = "faces", .side = 32}).split, "");
  EXPECT_EQ(plan_run(given, {.data = "mnist", .side = 28}).tta, "none");
  given.image_size = 65;  // in place of the data's
  EXPECT_EQ(plan_run(given, facts).preset, "resnet18");
  given.image_size = 64;
  EXPECT_EQ(plan_run(given, ImageFacts{.data = "photos"}).preset, "speedrun");
  given.image_size = 0;

  given.preset = "quick";
  given.optimizer = "sgd";
  given.lr = 0.5;
  given.epochs = 7;
  given.warmup = 0.2;
  given.label_smoothing = 0;
  given.augment = "none";
  given.tta = "none";
  given.batch_size = 32;
  given.progressive_resize = 32;
  const TrainArguments options = plan_run(given, facts);
  EXPECT_EQ(options.optimizer, "sgd");
  EXPECT_EQ(options.lr, 0.5);
  EXPECT_EQ(options.epochs, 7);
  EXPECT_EQ(options.warmup, 0.2);
  EXPECT_EQ(options.label_smoothing, 0);
  EXPECT_EQ(options.augment, "none");
  EXPECT_EQ(options.tta, "none");
  EXPECT_EQ(options.batch_size, 32);
  EXPECT_EQ(options.progressive_resize, 32);
  given.epochs = 0;
  EXPECT_EQ(plan_run(given, facts).epochs, 3);
  given.image_size = 48;
  given.progressive_resize = 0;
  EXPECT_EQ(plan_run(given, facts).progressive_resize, 25);

  // Momentum is of the optimizer that the recipe names.
  given = {};
  given.model = "cnn";
  given.momentum = 0.5;
  check_train_arguments(given);
  check_optimizer_arguments(plan_run(given, facts));
  EXPECT_THROW(check_optimizer_arguments(plan_run(given, {.data = "digits", .side = 8})), UsageError);
  given.model = "lstm";
  EXPECT_THROW(check_train_arguments(given), UsageError);
}

/// Whatever is given stays as it is.
TEST(OptionsTest, DefaultsReplaceNothingThatWasGiven) {
  std::mt19937_64 random = fresh_random(3);
  for (int round = 0; round < 50; ++round) {
    TrainArguments given;
    for (const OptionRow& row : kTable.rows())
      if (random() % 2 == 0) change(given, row, random);
    given.model = round % 2 == 0 ? "distilbert" : "vit";
    const TrainArguments of_texts =
        plan_run(given, TextFacts{.data = "set", .max_positions = 1 << 24, .train_tokens = 9, .longest_row = 9});
    const TrainArguments of_images = plan_run(given, ImageFacts{"set"});
    for (const OptionRow& row : given.rows()) {
      if (!row.given || row.spec.name == "--data") continue;
      EXPECT_TRUE(row.get(of_texts) == row.get(given)) << row.spec.name;
      EXPECT_TRUE(row.get(of_images) == row.get(given)) << row.spec.name;
    }
    EXPECT_GE(planned_epochs(of_texts), 1);
    if (given.max_steps > 0) {
      EXPECT_LE(planned_epochs(of_texts), given.max_steps);
    }
  }
}

}  // namespace
}  // namespace tern::cli

// Checkpoint folders: which are kept, what damage is noticed, and a state.json with invalid or implausible numbers.

#include "tern/models/trainer/checkpoint.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>

#include "tern/core/io/safetensors.h"
#include "tern/core/ops/ops.h"
#include "tern/models/checksums.h"
#include "tern/tests/errors.h"
#include "tern/tests/support/seed.h"
#include "tern/tests/support/temporary_folder.h"

namespace tern::models {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using test::error_of;
using test::has;

class CheckpointTest : public ::testing::Test {
 protected:
  void save(int64_t step, int64_t best_epoch = 0, bool validated = false, int64_t epoch = 0) {
    TrainCheckpoint checkpoint{
        .position = {.step = step, .epoch = epoch, .validated = validated, .best_epoch = best_epoch, .best = {}},
        .optimizer = {{"step.w", full({1}, static_cast<double>(step))}},
        .best_weights = {}};
    if (best_epoch > 0) checkpoint.best_weights = {{"w", full({1}, 7)}};
    folder_.save(checkpoint, [](const std::string& to) { save_safetensors({{"w", full({3}, 2)}}, to + "/model"); });
  }
  std::string listing() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path())) names.insert(entry.path().filename().string());
    std::string text;
    for (const std::string& name : names) text += name + " ";
    return text;
  }
  static std::string load_error(const std::string& dir) {
    return error_of([&] { load_checkpoint(dir); });
  }
  test::TemporaryFolder dir_;
  CheckpointFolder folder_{dir_ / "checkpoints", 2};
};

TEST_F(CheckpointTest, KeepsTheNewestAndTheBest) {
  EXPECT_FALSE(newest_checkpoint(folder_.path(), {}));
  save(3);
  save(5, 1, true);
  save(6, 1);
  save(9, 1);
  save(12, 1);
  EXPECT_EQ(listing(), "step-00000005-validated step-00000009 step-00000012 ");
  save(15, 2, true, 1);
  save(100000000, 2);
  EXPECT_EQ(listing(), "step-00000015-validated step-100000000 ");
  EXPECT_TRUE(newest_checkpoint(folder_.path(), {})->ends_with("step-100000000"));
}

/// Epochs without a better metric after the best one: their checkpoints, of validations and of steps, go like any
/// other.
TEST_F(CheckpointTest, KeepsNothingElseOfEpochsAfterTheBest) {
  save(10, 1, true, 0);
  save(15, 1, false, 1);
  save(20, 1, true, 1);
  save(30, 1, true, 2);
  EXPECT_EQ(listing(), "step-00000010-validated step-00000020-validated step-00000030-validated ");
  save(40, 1, true, 3);
  EXPECT_EQ(listing(), "step-00000010-validated step-00000030-validated step-00000040-validated ");
  save(45, 1, false, 4);
  save(47, 1, false, 4);
  EXPECT_EQ(listing(), "step-00000010-validated step-00000045 step-00000047 ");
  save(50, 5, true, 4);  // a new best: the old one is an epoch like others
  save(55, 5, false, 5);
  EXPECT_EQ(listing(), "step-00000050-validated step-00000055 ");
}

/// Any history, any number to keep: against a list that is kept by hand.
TEST_F(CheckpointTest, KeepsWhatItShouldInAnyHistory) {
  std::mt19937_64 random = fresh_random();
  for (int history = 0; history < 4; ++history) {
    const auto keep = static_cast<size_t>(1 + random() % 4);
    const std::string path = dir_ / ("history-" + std::to_string(history));
    struct Kept {
      std::string name;
      int64_t validated_epoch;  // from 1; 0: of a step
    };
    std::vector<Kept> expected;
    int64_t step = 0, epoch = 0, best = 0;
    for (int saves = 0; saves < 14; ++saves) {
      CheckpointFolder folder(path, static_cast<int64_t>(keep));  // as after a resume
      step += 1 + static_cast<int64_t>(random() % 3);
      const bool validated = random() % 2 == 0;
      if (validated && (best == 0 || random() % 3 == 0)) best = epoch + 1;
      const TrainCheckpoint checkpoint{
          .position = {.step = step, .epoch = epoch, .validated = validated, .best_epoch = best, .best = {}},
          .optimizer = {{"step.w", ones({1})}},
          .best_weights = {{"w", ones({1})}}};
      folder.save(checkpoint, [](const std::string&) {});
      char name[40];
      std::snprintf(name, sizeof name, "step-%08d%s", static_cast<int>(step), validated ? "-validated" : "");
      expected.push_back({name, validated ? epoch + 1 : 0});
      std::vector<Kept> left;
      for (size_t i = 0; i < expected.size(); ++i)
        if (expected.size() - i <= keep || (best > 0 && expected[i].validated_epoch == best))
          left.push_back(expected[i]);
      expected = left;
      std::set<std::string> wanted, found;
      for (const Kept& kept : expected) wanted.insert(kept.name);
      for (const auto& entry : fs::directory_iterator(path)) found.insert(entry.path().filename().string());
      ASSERT_EQ(found, wanted) << "keep " << keep << ", best epoch " << best;
      if (validated) ++epoch;
    }
  }
}

/// A checkpoint carries the id of its run, and those of other runs are not gone on from.
TEST_F(CheckpointTest, OfAnotherRun) {
  const auto save_as = [&](const std::string& run, int64_t step) {
    CheckpointFolder(folder_.path(), 9, {.run = run})
        .save({.position = {.step = step, .best = {}}, .optimizer = {{"w", ones({1})}}, .best_weights = {}},
              [](const std::string&) {});
  };
  save_as("mine", 3);
  save_as("theirs", 5);
  std::string said;
  const auto newest = [&](const std::string& run) {
    return newest_checkpoint(
               folder_.path(), [&](const std::string& line) { said = line; }, run)
        .value_or("");
  };
  EXPECT_TRUE(newest("mine").ends_with("step-00000003"));
  EXPECT_TRUE(has(said, "step-00000005: was written by another run (its id is \"theirs\", this run's \"mine\")"));
  EXPECT_TRUE(newest("theirs").ends_with("step-00000005"));
  EXPECT_TRUE(newest("").ends_with("step-00000005"));
  test::expect_error([&] { newest("third"); }, {"no checkpoint is whole", "another run"});
  save_as("mine", 5);  // another run's checkpoint, although its state is the same
  EXPECT_TRUE(newest("mine").ends_with("step-00000005"));
  save(7);  // of a program without ids
  EXPECT_TRUE(newest("mine").ends_with("step-00000007"));
}

/// Where the folder is no longer the run's, before a checkpoint is written or before it gets its name, nothing is left.
TEST_F(CheckpointTest, NothingIsLeftInAFolderOfOthers) {
  const std::string run = dir_ / "run";
  for (const int good : {0, 1}) {
    fs::create_directories(run);
    int asked = 0;
    CheckpointFolder folder(run + "/checkpoints", 2,
                            {.run = "mine", .check_place = [&] { TERN_CHECK(asked++ < good, "not mine"); }});
    const auto save_model = [&](const std::string& to) {  // somebody removes the run's folder meanwhile
      fs::remove_all(run);
      fs::create_directories(to);
    };
    test::expect_error(
        [&] {
          folder.save({.position = {.step = 3, .best = {}}, .optimizer = {{"w", ones({1})}}, .best_weights = {}},
                      save_model);
        },
        {"not mine"});
    EXPECT_EQ(fs::exists(run), good == 0);
    EXPECT_TRUE(good == 1 || fs::is_empty(run));
  }
}

/// What a model is loaded from is verified where it is a checkpoint; what only a resumed run needs may be missing.
TEST_F(CheckpointTest, ModelFilesAreVerified) {
  save(3, 1);
  const fs::path dir = fs::path(folder_.path()) / "step-00000003";
  for (const char* name : {"optimizer.safetensors", "best.safetensors"}) fs::remove(dir / name);
  const auto problem = [&](const fs::path& path) { return error_of([&] { check_model_files(path.string()); }); };
  EXPECT_EQ(problem(dir), "no error");
  EXPECT_EQ(problem(dir / "model"), "no error");
  std::fstream(dir / "model", std::ios::in | std::ios::out | std::ios::binary).seekp(-1, std::ios::end).put('\x7f');
  for (const fs::path& path : {dir, dir / "model"}) EXPECT_TRUE(has(problem(path), "/model: its checksum is wrong"));
  fs::remove(dir / "model");
  EXPECT_TRUE(has(problem(dir), "/model"));
  fs::remove(dir / "state.json");  // a folder of others, whose checksums.json may be of any form
  EXPECT_EQ(problem(dir), "no error");
}

/// A later checkpoint, damaged or of another history, does not make a save fail or count as one of the newest.
TEST_F(CheckpointTest, LaterOnesCountForNothing) {
  save(3);
  save(5);
  const fs::path path = folder_.path();
  for (const char* name : {"step-00000900", "step-900", "step-00000901-validated", "step-00000902.old"})
    fs::create_directories(path / name);
  std::ofstream(path / "step-00000900" / "state.json") << "{";
  std::ofstream(path / "step-00000903") << "a file";
  save(6, 1);
  save(7, 1, true);
  save(8, 1);
  EXPECT_EQ(listing(),
            "step-00000007-validated step-00000008 step-00000900 step-00000901-validated step-00000902.old "
            "step-00000903 step-900 ");
  const auto removed = [&](int64_t step, bool validated) {
    return folder_.remove_after({.step = step, .validated = validated, .best = {}});
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(removed(900, false), Names{"step-00000901-validated"});
  EXPECT_EQ(removed(7, true), (Names{"step-00000008", "step-00000900"}));
  EXPECT_EQ(removed(7, true), Names{});
  EXPECT_EQ(removed(7, false), Names{"step-00000007-validated"});
  EXPECT_EQ(listing(), "step-00000902.old step-00000903 step-900 ");
}

/// A checkpoint of another history: same step, different state.
TEST_F(CheckpointTest, OneOfTheSameStepIsReplaced) {
  save(3);
  save(5);
  const std::string newest = dir_ / "checkpoints/step-00000005";
  EXPECT_EQ(load_checkpoint_position(newest).best_epoch, 0);
  save(5, 2);
  EXPECT_EQ(load_checkpoint_position(newest).best_epoch, 2);
  EXPECT_EQ(load_error(newest), "no error");
  const auto written = fs::last_write_time(newest + "/state.json");
  save(5, 2);
  EXPECT_EQ(fs::last_write_time(newest + "/state.json"), written);  // an identical checkpoint is not rewritten
  EXPECT_EQ(listing(), "step-00000003 step-00000005 ");
}

TEST_F(CheckpointTest, DamageIsNoticedAndTheOneBeforeIsUsed) {
  save(3, 1);
  save(5, 1);
  const fs::path newest = fs::path(folder_.path()) / "step-00000005";
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(newest)) files.push_back(entry.path());
  ASSERT_EQ(files.size(), 5u);
  const fs::path copy = dir_ / "copy";
  fs::copy(newest, copy);
  for (const fs::path& file : files) {
    SCOPED_TRACE(file.string());
    for (const std::string how : {"flipped", "cut", "longer", "gone"}) {
      const auto size = fs::file_size(file);
      if (how == "flipped") {
        std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
        bytes.seekg(static_cast<std::streamoff>(size / 2));
        const char byte = static_cast<char>(bytes.get() ^ 0x10);
        bytes.seekp(static_cast<std::streamoff>(size / 2));
        bytes.put(byte);
      } else if (how == "cut") {
        fs::resize_file(file, size - 1);
      } else if (how == "longer") {
        fs::resize_file(file, size + 1);
      } else {
        fs::remove(file);
      }
      // One more or less white-space character at the end of a JSON file changes nothing.
      const bool harmless = file.filename() == "checksums.json" && (how == "longer" || how == "cut");
      std::string said;
      const auto found = newest_checkpoint(folder_.path(), [&](const std::string& line) { said = line; });
      if (!harmless) {
        EXPECT_TRUE(found && found->ends_with("step-00000003")) << how;
        EXPECT_TRUE(has(said, "the one before it is used"));
        EXPECT_NE(load_error(newest), "no error");
      }
      fs::copy(copy / file.filename(), file, fs::copy_options::overwrite_existing);
    }
  }
  EXPECT_EQ(load_error(newest), "no error");
  fs::remove(fs::path(folder_.path()) / "step-00000003" / "model");
  fs::remove(newest / "model");
  EXPECT_THROW(newest_checkpoint(folder_.path(), {}), Error);
  save(5, 1);  // a damaged checkpoint is rewritten
  EXPECT_EQ(load_error(newest), "no error");
}

TEST_F(CheckpointTest, AFailedWriteLeavesWhatWasThere) {
  save(3);
  TrainCheckpoint checkpoint;
  checkpoint.position.step = 4;
  test::expect_error([&] { folder_.save(checkpoint, [](const std::string&) { fail("no space left on device"); }); },
                     {"no space left on device; earlier checkpoints are untouched"});
  EXPECT_EQ(listing(), "step-00000003 ");
  // A folder left by a killed process is not a checkpoint, and is removed.
  fs::create_directories(fs::path(folder_.path()) / ".tern-unfinished-step-00000009");
  EXPECT_TRUE(newest_checkpoint(folder_.path(), {})->ends_with("step-00000003"));
  CheckpointFolder again(folder_.path(), 2);
  EXPECT_EQ(listing(), "step-00000003 ");
}

class StateJson : public ::testing::Test {
 protected:
  StateJson() {
    const TrainCheckpoint checkpoint{
        .position = {.step = 12, .epoch = 2, .step_in_epoch = 3, .best_epoch = 1, .best = {}, .seed = UINT64_MAX},
        .optimizer = {{"a", ones({2})}},
        .best_weights = {{"a", ones({2})}}};
    CheckpointFolder(folder_.path().string(), 1).save(checkpoint, [](const std::string&) {});
    std::ifstream(dir_ + "/state.json") >> state_;
  }
  /// The error for this state.json.
  std::string read(const std::string& text) const {
    std::ofstream(dir_ + "/state.json") << text;
    return error_of([&] { load_checkpoint_position(dir_); });
  }
  /// The error for a state.json in which this text replaces a value.
  std::string read_with(const char* path, const std::string& value) const {
    Json state = state_;
    state[Json::json_pointer(path)] = "HERE";
    std::string text = state.dump();
    return read(text.replace(text.find("\"HERE\""), 6, value));
  }

  test::TemporaryFolder folder_;
  const std::string dir_ = folder_ / "step-00000012";
  Json state_;
};

TEST_F(StateJson, WholeNumbersOfARun) {
  ASSERT_EQ(read(state_.dump()), "no error");
  for (const char* path : {"/version", "/step", "/epoch", "/step_in_epoch", "/items", "/best_epoch", "/best/examples",
                           "/generator/seed", "/generator/offset"}) {
    const std::string name = fs::path(path).filename().string();
    const bool any_unsigned = std::string(path).starts_with("/generator/");
    std::istringstream wrong(
        "1.5 1.0 -1 -1.5 1e30 1e3 -1e30 true null \"1\" [1] {} 0.5 \"NaN\" 2.0e0 \"\" 18446744073709551616 "
        "-9223372036854775808" +
        std::string(any_unsigned ? "" : " 18446744073709551615 9223372036854775808 9007199254740993"));
    for (std::string value; wrong >> value;)
      EXPECT_TRUE(has(read_with(path, value), dir_ + "/state.json: \"" + name + "\" is ")) << path << " = " << value;
    Json without = state_;
    without[Json::json_pointer(path).parent_pointer()].erase(name);
    EXPECT_TRUE(has(read(without.dump()), "/state.json: has no \"" + name + "\"")) << path;
  }
  for (const char* text : {"NaN", "Infinity", "1e999"})
    EXPECT_TRUE(has(read_with("/step", text), "/state.json: ")) << text;
}

TEST_F(StateJson, NumbersThatContradictEachOther) {
  for (const auto& [path, value] : {std::pair("/step_in_epoch", "13"), {"/step", "2"}})
    EXPECT_TRUE(has(read_with(path, value), "its numbers contradict each other")) << path;
  for (const auto& [path, value] : {std::pair("/step_in_epoch", "12"), {"/step", "3"}})
    EXPECT_EQ(read_with(path, value), "no error") << path;
}

}  // namespace
}  // namespace tern::models

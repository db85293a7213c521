// state.json of a checkpoint, with every number replaced by an invalid or implausible value.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tern/core/io/safetensors.h"
#include "tern/kernels/base/check.h"
#include "tern/models/trainer/checkpoint.h"

namespace tern::models {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

class StateJson : public testing::Test {
 protected:
  StateJson() {
    std::string name = (fs::temp_directory_path() / "tern-state-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    TrainCheckpoint checkpoint;
    checkpoint.position.step = 12;
    checkpoint.position.epoch = 2;
    checkpoint.position.step_in_epoch = 3;
    checkpoint.position.best_epoch = 1;
    checkpoint.position.seed = UINT64_MAX;
    checkpoint.optimizer = {{"a", ones({2})}};
    checkpoint.best_weights = {{"a", ones({2})}};
    CheckpointFolder(folder_.string(), 1).save(checkpoint, [](const std::string&) {});
    dir_ = (folder_ / "step-00000012").string();
    std::ifstream(dir_ + "/state.json") >> state_;
  }
  ~StateJson() override { fs::remove_all(folder_); }

  /// The error for this state.json; "" if it is accepted.
  std::string read(const std::string& text) const {
    std::ofstream(dir_ + "/state.json") << text;
    try {
      load_checkpoint_position(dir_);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  fs::path folder_;
  std::string dir_;
  Json state_;
};

TEST_F(StateJson, WholeNumbersOfARun) {
  ASSERT_EQ(read(state_.dump()), "");
  for (const char* path : {"/version", "/step", "/epoch", "/step_in_epoch", "/items", "/best_epoch", "/best/examples",
                           "/generator/seed", "/generator/offset"}) {
    const std::string name = fs::path(path).filename().string();
    const bool any_unsigned = std::string(path).starts_with("/generator/");
    std::vector<std::string> wrong = {"1.5",
                                      "1.0",
                                      "-1",
                                      "-1.5",
                                      "1e30",
                                      "1e3",
                                      "-1e30",
                                      "true",
                                      "null",
                                      "\"1\"",
                                      "[1]",
                                      "{}",
                                      "18446744073709551616",
                                      "0.5",
                                      "\"NaN\"",
                                      "2.0e0",
                                      "\"\"",
                                      "-9223372036854775808"};
    if (!any_unsigned) wrong.insert(wrong.end(), {"18446744073709551615", "9223372036854775808", "9007199254740993"});
    for (const std::string& value : wrong) {
      Json state = state_;
      state[Json::json_pointer(path)] = "HERE";
      std::string text = state.dump();
      text.replace(text.find("\"HERE\""), 6, value);
      const std::string message = read(text);
      EXPECT_NE(message.find(dir_ + "/state.json: \"" + name + "\" is "), std::string::npos)
          << path << " = " << value << ": '" << message << "'";
    }
    Json without = state_;
    without[Json::json_pointer(path).parent_pointer()].erase(name);
    EXPECT_NE(read(without.dump()).find("/state.json: has no \"" + name + "\""), std::string::npos) << path;
  }
  for (const char* text : {"NaN", "Infinity", "1e999"}) {
    Json state = state_;
    state["step"] = "HERE";
    std::string all = state.dump();
    all.replace(all.find("\"HERE\""), 6, text);
    EXPECT_NE(read(all).find("/state.json: "), std::string::npos) << text;
  }
}

TEST_F(StateJson, NumbersThatContradictEachOther) {
  for (const auto& [path, value] : {std::pair("/step_in_epoch", 13), {"/step", 2}}) {
    Json state = state_;
    state[Json::json_pointer(path)] = value;
    EXPECT_NE(read(state.dump()).find("its numbers contradict each other"), std::string::npos) << path;
  }
  for (const auto& [path, value] : {std::pair("/step_in_epoch", 12), {"/step", 3}}) {
    Json state = state_;
    state[Json::json_pointer(path)] = value;
    EXPECT_EQ(read(state.dump()), "") << path;
  }
}

}  // namespace
}  // namespace tern::models

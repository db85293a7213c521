#pragma once
// Shared by the tests of interrupted runs: a short run, disk faults during it, and the comparison of results.

#include "tern/models/trainer/checkpoint.h"
#include "tern/tests/program/program.h"
#include "tern/tests/support/seed.h"

namespace tern::program {

class InterruptedRuns : public ProgramTest {
 protected:
  const std::string kModel = kGolden + "train_curve";

  /// A text run: about a hundred steps with dropout, shuffled, with a checkpoint every ten. Fixed seed, since it
  /// determines the best epoch, whose checkpoint is kept.
  std::vector<std::string> arguments(const std::string& out, std::vector<std::string> more = {}) const {
    std::vector<std::string> all = {"train", "distilbert"};
    for (const auto& [flag, value] : std::vector<std::pair<std::string, std::string>>{{"--init", kModel},
                                                                                      {"--data", "data.csv"},
                                                                                      {"--out", out},
                                                                                      {"--dtype", "fp32"},
                                                                                      {"--lr", "1e-3"},
                                                                                      {"--epochs", "6"},
                                                                                      {"--dropout", "0.2"},
                                                                                      {"--seed", "7"},
                                                                                      {"--batch-size", "2"},
                                                                                      {"--threads", "1"},
                                                                                      {"--checkpoint-every", "10"}})
      all.insert(all.end(), {flag, value});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  void SetUp() override { write("data.csv", read_text(kModel + "/data.csv")); }

  std::string weights(const std::string& run) const { return read_text(file(run + "/model.safetensors")); }
  /// All fields of metrics.jsonl except times.
  std::vector<Json> metrics(const std::string& run) const {
    std::vector<Json> lines = json_lines(read_text(file(run + "/metrics.jsonl")));
    for (Json& line : lines)
      for (const char* name : {"seconds", "train_seconds", "tokens_per_second", "images_per_second",
                               "model_flops_utilization", "peak_memory_bytes", "reserved_memory_bytes"})
        line.erase(name);
    return lines;
  }
  /// Compares weights and losses bit for bit, and checks that there are no partial files.
  void expect_same(const std::string& run, const std::string& reference) const {
    EXPECT_TRUE(weights(run) == weights(reference)) << run;
    EXPECT_EQ(metrics(run), metrics(reference)) << run;
    EXPECT_EQ(listing(run), listing(reference)) << run;
  }
  /// Sorted names of the checkpoints.
  std::vector<std::string> checkpoints(const std::string& run) const {
    std::vector<std::string> names;
    if (!fs::exists(file(run + "/checkpoints"))) return names;
    for (const auto& entry : fs::directory_iterator(file(run + "/checkpoints"))) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("step-")) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  /// Checks that no folder with a checkpoint's name is damaged.
  void expect_all_are_whole(const std::string& run) const {
    for (const std::string& name : checkpoints(run))
      EXPECT_NO_THROW(models::load_checkpoint(file(run + "/checkpoints/" + name).string())) << name;
  }

#ifdef TERN_DISK_FAULTS
  /// Disk faults for a run in the folder `out`: tests/program/disk/faults.cpp.
  Setting failing(const std::string& out, const std::string& fault) const {
    Setting setting;
    const std::string folder = fs::canonical(folder_) / out;
    setting.in_child = [folder, fault, preload = test::preload(TERN_DISK_FAULTS)] {
      setenv("TERN_FAULT_FOLDER", folder.c_str(), 1);
      setenv("TERN_FAULT", fault.c_str(), 1);
      setenv("LD_PRELOAD", preload.c_str(), 1);
    };
    return setting;
  }
  /// The calls with which an undisturbed run changes its folder: "rename /checkpoints/step-00000010".
  std::vector<std::string> calls_of(const std::vector<std::string>& run, const std::string& out) const {
    const std::string calls = file("calls").string();
    const Result result = tern(run, failing(out, "count:" + calls));
    EXPECT_EQ(result.status, 0) << result.err;
    return lines_of(read_text(calls));
  }
#endif

  std::mt19937_64 random_ = fresh_random();
};

}  // namespace tern::program

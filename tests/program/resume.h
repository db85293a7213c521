#pragma once
// Shared by the tests of interrupted runs: a short run, disk faults during it, and the comparison of results.

#include <map>

#include "tern/models/trainer/checkpoint.h"
#include "tern/tests/program/program.h"
#include "tern/tests/support/seed.h"

namespace tern::program {

class InterruptedRuns : public ProgramTest {
 protected:
  InterruptedRuns() { write("data.csv", read("curve/data.csv")); }

  /// A short text run with dropout, shuffled. `more` replaces its flags. Fixed seed: it determines the best epoch,
  /// whose checkpoint is kept; and AdamW turns gradients of pure rounding error into steps of lr, so for some seeds one
  /// process and several differ by more than rounding.
  static Words texts(const std::string& out, const Words& more) {
    return Words{"train", "distilbert", "--out", out} +
           with_defaults("--init curve --data data.csv --dtype fp32 --lr 1e-3 --dropout 0.2 --seed 7 --threads 1",
                         more);
  }
  /// About a hundred steps, with a checkpoint every ten.
  static Words arguments(const std::string& out, const Words& more = {}) {
    return texts(out, with_defaults("--epochs 6 --batch-size 2 --checkpoint-every 10", more));
  }
  static Words resume(const std::string& what) { return {"resume", what, "--threads", "1"}; }

  /// Removes the results of a finished run, as if it had been killed in the test after training.
  void unfinish(const std::string& run) const {
    const std::string text = read(run + "/metrics.jsonl");
    ASSERT_TRUE(json_lines(text).back().contains("train_seconds")) << run;
    write(run + "/metrics.jsonl", text.substr(0, text.rfind('\n', text.size() - 2) + 1));
  }
  /// The names in a run's folder and below it, with the contents of files.
  std::map<std::string, std::string> contents(const std::string& folder) const {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(file(folder)))
      all[entry.path().string()] = entry.is_regular_file() ? read_text(entry.path()) : "a folder";
    return all;
  }

  /// All fields of metrics.jsonl except those that differ between equal runs.
  std::vector<Json> history(const std::string& run) const {
    std::vector<Json> lines = metrics(run);
    for (Json& line : lines)
      for (const std::string& name : unequal_) line.erase(name);
    return lines;
  }
  /// Compares weights and losses bit for bit, and checks that there are no partial files.
  void expect_same(const std::string& run, const std::string& reference) const {
    EXPECT_TRUE(weights(run) == weights(reference)) << run;
    EXPECT_EQ(history(run), history(reference)) << run;
    EXPECT_EQ(listing(run), listing(reference)) << run;
  }
  /// Sorted names of the checkpoints.
  std::vector<std::string> checkpoints(const std::string& run) const {
    if (!exists(run + "/checkpoints")) return {};
    std::vector<std::string> names = names_in(run + "/checkpoints");
    std::erase_if(names, [](const std::string& name) { return !name.starts_with("step-"); });
    return names;
  }
  void expect_all_are_whole(const std::string& run) const {
    for (const std::string& name : checkpoints(run))
      EXPECT_NO_THROW(models::load_checkpoint(file(run + "/checkpoints/" + name).string())) << name;
  }

#ifdef TERN_DISK_FAULTS
  /// Disk faults for a run in the folder `out`: tests/program/disk/faults.cpp.
  Setting failing(const std::string& out, const std::string& fault) const {
    const std::string folder = fs::canonical(folder_) / out;
    return {.in_child = [folder, fault, preload = test::preload(TERN_DISK_FAULTS)] {
      setenv("TERN_FAULT_FOLDER", folder.c_str(), 1);
      setenv("TERN_FAULT", fault.c_str(), 1);
      setenv("LD_PRELOAD", preload.c_str(), 1);
    }};
  }
  /// The calls with which an undisturbed run changes its folder: "rename /checkpoints/step-00000010".
  std::vector<std::string> calls_of(const Words& run, const std::string& out) const {
    succeeds(run, failing(out, "count:" + file("calls").string()));
    return lines_of(read("calls"));
  }
  /// Expects that the machine crashes, or the process is killed, at call number `at`.
  void expect_ends_at(const Words& run, const std::string& out, const std::string& fault) const {
    const Result result = tern(run, failing(out, fault));
    EXPECT_EQ(result.status, 1000 + SIGKILL) << fault << ": " << result.err;
  }
#endif

  Words unequal_ =
      "seconds train_seconds tokens_per_second images_per_second model_flops_utilization peak_memory_bytes "
      "reserved_memory_bytes";
  std::mt19937_64 random_ = fresh_random();
};

}  // namespace tern::program

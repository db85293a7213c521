// A power cut loses bytes and names that were not fsynced. Completed writes of a run survive, and partial files are
// never taken for complete ones. Each test cuts the power at a point before which one particular fsync is required.

#include "tern/tests/program/resume.h"

namespace tern::program {
namespace {

class PowerCutTest : public InterruptedRuns {
 protected:
  /// Thirty steps, with a checkpoint every five.
  static Words run(const std::string& out, const std::string& keep = "2") {
    return arguments(out, "--max-steps 30 --checkpoint-every 5 --keep " + keep);
  }
  /// The number, from 1, of the first such call after `from`.
  static int64_t find(const std::vector<std::string>& calls, const std::string& call, int64_t from = 0) {
    const auto found = std::find(calls.begin() + from, calls.end(), call);
    EXPECT_NE(found, calls.end()) << call;
    return found - calls.begin() + 1;
  }
  void expect_goes_on(const std::string& cut) const {
    expect_all_are_whole(cut);
    EXPECT_FALSE(has(succeeds(resume(cut)).err, "was changed"));
    expect_same(cut, "whole");
    EXPECT_EQ(checkpoints(cut), checkpoints("whole"));
  }
};

/// After the process has ended, all its files are on disk: the folder itself, also in parents that it created, the
/// record, the metrics to the last line, the model, and every checkpoint.
TEST_F(PowerCutTest, AfterTheEnd) {
  succeeds(run("whole"));
  succeeds(run("a/b/cut"), failing("a", "crash:1000000"));
  ASSERT_TRUE(exists("a/b/cut/run.json"));
  expect_same("a/b/cut", "whole");
  EXPECT_EQ(checkpoints("a/b/cut"), checkpoints("whole"));
  expect_all_are_whole("a/b/cut");
  EXPECT_TRUE(json("a/b/cut/run.json").is_object());
  // Also for a run stopped by a signal.
  const Result result = interrupted(arguments("stopped"), "step ", SIGUSR1, failing("stopped", "crash:1000000"));
  EXPECT_EQ(result.status, 75) << result.err;
  ASSERT_FALSE(checkpoints("stopped").empty());
  expect_all_are_whole("stopped");
  EXPECT_FALSE(has(tern(resume("stopped")).err, "was changed"));
}

/// A checkpoint is found as soon as it has its final name, with the metrics up to it; checkpoints removed afterwards
/// are complete or gone.
TEST_F(PowerCutTest, AroundACheckpoint) {
  const std::vector<std::string> calls = calls_of(run("whole"), "whole");
  const std::string name = "step-00000020";
  const int64_t named = find(calls, "rename /checkpoints/" + name), synced = find(calls, "sync /checkpoints", named);
  const int64_t removed = find(calls, "sync /checkpoints", synced);
  ASSERT_EQ(calls[static_cast<size_t>(removed)].substr(0, 33), "remove /checkpoints/.tern-removed");
  for (const auto& [at, lost, found] :
       {std::tuple(named + 1, "", false), std::tuple(synced + 1, "", true),
        std::tuple(removed + 2, "checkpoints", true), std::tuple(removed + 2, name.c_str(), true)}) {
    SCOPED_TRACE(calls[static_cast<size_t>(at - 1)] + " lost: " + lost);
    fs::remove_all(file("cut"));
    expect_ends_at(run("cut"), "cut", "crash:" + std::to_string(at) + ":" + lost);
    EXPECT_EQ(exists("cut/checkpoints/" + name), found);
    expect_goes_on("cut");
  }
}

/// Resuming from an older checkpoint: those removed for it are complete or gone, and the history stays consistent.
TEST_F(PowerCutTest, WhileLaterStepsAreRemoved) {
  succeeds(run("whole", "9"));
  const std::vector<std::string> names = checkpoints("whole");
  const auto again = [&](const std::string& out) { return resume(out + "/checkpoints/" + names[1]); };
  copy("whole", "rehearsal");
  const std::vector<std::string> calls = calls_of(again("rehearsal"), "rehearsal");
  const int64_t renamed = find(calls, "rename /checkpoints/.tern-removed-" + names.back());
  const int64_t synced = find(calls, "sync /checkpoints", renamed), cut = find(calls, "cut /metrics.jsonl");
  ASSERT_LT(synced, cut);
  for (const auto& [at, lost] :
       {std::pair(renamed + 1, ""), {synced + 3, "checkpoints"}, {cut + 1, ""}, {cut + 3, ""}}) {
    SCOPED_TRACE(calls[static_cast<size_t>(at - 1)] + " lost: " + lost);
    copy("whole", "cut");
    expect_ends_at(again("cut"), "cut", "crash:" + std::to_string(at) + ":" + lost);
    // Until its results are cut off the run is a finished one, so that going back is asked for again.
    expect_all_are_whole("cut");
    EXPECT_FALSE(has(succeeds(again("cut")).err, "was changed"));
    expect_same("cut", "whole");
    EXPECT_EQ(checkpoints("cut"), checkpoints("whole"));
  }
}

}  // namespace
}  // namespace tern::program

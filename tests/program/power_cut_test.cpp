// A power cut loses bytes and names that were not fsynced. Completed writes of a run survive, and partial files are
// never taken for complete ones. Each test cuts the power at a point before which one particular fsync is required.

#include "tern/tests/program/resume.h"

namespace tern::program {
namespace {

class PowerCutTest : public InterruptedRuns {
 protected:
  /// Thirty steps, with a checkpoint every five.
  std::vector<std::string> run(const std::string& out, const std::string& keep = "2") const {
    std::vector<std::string> all = arguments(out, {"--max-steps", "30", "--keep", keep});
    *(std::find(all.begin(), all.end(), "--checkpoint-every") + 1) = "5";
    return all;
  }
  /// The number, from 1, of the first such call after `from`.
  static int64_t find(const std::vector<std::string>& calls, const std::string& call, int64_t from = 0) {
    const auto found = std::find(calls.begin() + from, calls.end(), call);
    EXPECT_NE(found, calls.end()) << call;
    return found - calls.begin() + 1;
  }
  void expect_goes_on(const std::string& cut) const {
    expect_all_are_whole(cut);
    const Result resumed = tern({"resume", cut, "--threads", "1"});
    ASSERT_EQ(resumed.status, 0) << resumed.err;
    EXPECT_EQ(resumed.err.find("was changed"), std::string::npos) << resumed.err;
    expect_same(cut, "whole");
    EXPECT_EQ(checkpoints(cut), checkpoints("whole"));
  }
};

/// After the process has ended, all its files are on disk: the folder itself, also in parents that it created, the
/// record, the metrics to the last line, the model, and every checkpoint.
TEST_F(PowerCutTest, AfterTheEnd) {
  ASSERT_EQ(tern(run("whole")).status, 0);
  ASSERT_EQ(tern(run("a/b/cut"), failing("a", "crash:1000000")).status, 0);
  ASSERT_TRUE(fs::exists(file("a/b/cut/run.json")));
  expect_same("a/b/cut", "whole");
  EXPECT_EQ(checkpoints("a/b/cut"), checkpoints("whole"));
  expect_all_are_whole("a/b/cut");
  EXPECT_TRUE(Json::accept(read_text(file("a/b/cut/run.json"))));
  // Also for a run stopped by a signal.
  Process stopped(arguments("stopped"), folder_, failing("stopped", "crash:1000000"));
  ASSERT_TRUE(stopped.wait_for("step "));
  stopped.send(SIGUSR1);
  const Result result = stopped.finish();
  EXPECT_EQ(result.status, 75) << result.err;
  ASSERT_FALSE(checkpoints("stopped").empty());
  expect_all_are_whole("stopped");
  const Result resumed = tern({"resume", "stopped", "--threads", "1"});
  EXPECT_EQ(resumed.err.find("was changed"), std::string::npos) << resumed.err;
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
    const Result crashed = tern(run("cut"), failing("cut", "crash:" + std::to_string(at) + ":" + lost));
    ASSERT_EQ(crashed.status, 1000 + SIGKILL) << crashed.err;
    EXPECT_EQ(fs::exists(file("cut/checkpoints/" + name)), found);
    expect_goes_on("cut");
  }
}

/// Resuming from an older checkpoint: those removed for it are complete or gone, and the history stays consistent.
TEST_F(PowerCutTest, WhileLaterStepsAreRemoved) {
  ASSERT_EQ(tern(run("whole", "9")).status, 0);
  const std::vector<std::string> names = checkpoints("whole");
  const auto again = [&](const std::string& out) {
    return std::vector<std::string>{"resume", out + "/checkpoints/" + names[1], "--threads", "1"};
  };
  fs::copy(file("whole"), file("rehearsal"), fs::copy_options::recursive);
  const std::vector<std::string> calls = calls_of(again("rehearsal"), "rehearsal");
  const int64_t renamed = find(calls, "rename /checkpoints/.tern-removed-" + names.back());
  const int64_t synced = find(calls, "sync /checkpoints", renamed), cut = find(calls, "cut /metrics.jsonl");
  ASSERT_LT(synced, cut);
  for (const auto& [at, lost] :
       {std::pair(renamed + 1, ""), {synced + 3, "checkpoints"}, {cut + 1, ""}, {cut + 3, ""}}) {
    SCOPED_TRACE(calls[static_cast<size_t>(at - 1)] + " lost: " + lost);
    fs::remove_all(file("cut"));
    fs::copy(file("whole"), file("cut"), fs::copy_options::recursive);
    const Result crashed = tern(again("cut"), failing("cut", "crash:" + std::to_string(at) + ":" + lost));
    ASSERT_EQ(crashed.status, 1000 + SIGKILL) << crashed.err;
    expect_goes_on("cut");
  }
}

}  // namespace
}  // namespace tern::program

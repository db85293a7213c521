// Runs resumed from an older checkpoint: whatever was ahead of it, the folder then has one history, equal to that of an
// uninterrupted run.

#include "tern/core/io/safetensors.h"
#include "tern/tests/program/resume.h"

namespace tern::program {
namespace {

class HistoryTest : public InterruptedRuns {
 protected:
  /// Makes a finished run with a checkpoint every ten steps.
  void make_run(const std::string& out, std::vector<std::string> more = {}) const {
    const Result result = tern(arguments(out, std::move(more)));
    ASSERT_EQ(result.status, 0) << result.err;
  }
  void copy(const std::string& from, const std::string& to) const {
    fs::remove_all(file(to));
    fs::copy(file(from), file(to), fs::copy_options::recursive);
  }
  Result resume(const std::string& what) const { return tern({"resume", what, "--threads", "1"}); }
  /// Resumes from the checkpoint and kills the run at its first line of metrics.jsonl.
  void resume_without_a_step(const std::string& checkpoint) const {
    const std::string run = checkpoint.substr(0, checkpoint.find('/'));
    copy(run, "rehearsal");
    const std::vector<std::string> words = {"resume", checkpoint, "--threads", "1"};
    std::vector<std::string> rehearsed = words;
    rehearsed[1].replace(0, run.size(), "rehearsal");
    const std::vector<std::string> calls = calls_of(rehearsed, "rehearsal");
    const auto line = std::find(calls.begin(), calls.end(), "write /metrics.jsonl");
    ASSERT_NE(line, calls.end());
    const Result killed = tern(words, failing(run, "kill:" + std::to_string(line - calls.begin() + 1)));
    EXPECT_EQ(killed.status, 1000 + SIGKILL) << killed.err;
  }
  /// Checks that steps and epochs occur once and in order, and the results last.
  void expect_one_history(const std::string& run) const {
    int64_t step = 0, epoch = 0;
    bool over = false;
    for (const Json& line : metrics(run)) {
      EXPECT_FALSE(over) << "after the results: " << line;
      if (line.contains("step"))
        EXPECT_EQ(line["step"], ++step);
      else if (line.contains("epoch"))
        EXPECT_EQ(line["epoch"], ++epoch);
      else
        over = true;
    }
  }
  void expect_same_run(const std::string& run, const std::string& reference) const {
    expect_same(run, reference);
    EXPECT_EQ(checkpoints(run), checkpoints(reference));
    expect_all_are_whole(run);
    expect_one_history(run);
  }
};

TEST_F(HistoryTest, FromTheOldestThenTheRunThenTheMiddle) {
  make_run("whole", {"--keep", "4"});
  const std::vector<std::string> names = checkpoints("whole");
  ASSERT_GE(names.size(), 4u);
  copy("whole", "run");
  const Result oldest = resume("run/checkpoints/" + names.front());
  ASSERT_EQ(oldest.status, 0) << oldest.err;
  EXPECT_NE(oldest.err.find("checkpoints, " + names[1] + " to " + names.back() + ", and "), std::string::npos)
      << oldest.err;
  expect_same_run("run", "whole");
  for (int again = 0; again < 2; ++again) {
    const Result newest = resume("run");
    ASSERT_EQ(newest.status, 0) << newest.err;
    expect_same_run("run", "whole");
  }
  const Result middle = tern(arguments("run", {"--keep", "4", "--resume", "run/checkpoints/" + names[1]}));
  ASSERT_EQ(middle.status, 0) << middle.err;
  expect_same_run("run", "whole");
}

TEST_F(HistoryTest, ARunThatStopsAgain) {
  make_run("whole", {"--keep", "20"});
  copy("whole", "run");
  const std::vector<std::string> names = checkpoints("run");
  Process again({"resume", "run/checkpoints/" + names[1], "--threads", "1"}, folder_);
  ASSERT_TRUE(again.wait_for("removed what followed step"));
  again.send(SIGTERM);
  const Result stopped = again.finish();
  if (stopped.status != 0) {
    EXPECT_EQ(stopped.status, 143) << stopped.err;
    EXPECT_LT(checkpoints("run").size(), names.size());
    expect_all_are_whole("run");
    expect_one_history("run");
  }
  ASSERT_EQ(resume("run").status, 0);
  EXPECT_EQ(weights("run"), weights("whole"));
  EXPECT_EQ(metrics("run"), metrics("whole"));
}

/// The best epoch is ahead of the step from which the run resumes: until it is reached again, the folder's model is
/// that of the best epoch so far, or before any validation that of the checkpoint.
TEST_F(HistoryTest, TheModelIsThatOfTheCheckpoint) {
  make_run("whole", {"--keep", "20"});
  const std::vector<std::string> names = checkpoints("whole");
  const auto validated =
      std::find_if(names.begin(), names.end(), [](const auto& n) { return n.ends_with("validated"); });
  ASSERT_LT(validated + 1, names.end());
  // From the first checkpoint, before any validation, and from the one after the first validation.
  for (const auto& [from, model] : {std::pair(names.front(), names.front()), {*(validated + 1), *validated}}) {
    copy("whole", "run");
    resume_without_a_step("run/checkpoints/" + from);
    EXPECT_TRUE(weights("run") == weights("whole/checkpoints/" + model)) << from;
    ASSERT_EQ(resume("run").status, 0);
    expect_same_run("run", "whole");
  }
}

TEST_F(HistoryTest, TheModelIsTheAveragesOfTheCheckpoint) {
  const auto averaged = [&](const std::string& out, const std::string& steps) {
    make_run(out, {"--ema", "0.9", "--schedule", "constant", "--warmup", "0", "--split", "all", "--max-steps", steps,
                   "--keep", "9"});
  };
  averaged("short", "10");
  averaged("run", "20");
  EXPECT_FALSE(weights("run") == weights("short"));
  resume_without_a_step("run/checkpoints/step-00000010");
  EXPECT_TRUE(weights("run") == weights("short"));
  EXPECT_FALSE(weights("run") == weights("run/checkpoints/step-00000010"));
}

TEST_F(HistoryTest, LinesThatACrashCutShort) {
  make_run("whole");
  const std::string newest = checkpoints("whole").back();
  const std::string text = read_text(file("whole/metrics.jsonl"));
  const std::string nested = "{\"step\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}\n";
  for (const std::string& tail : std::vector<std::string>{"{\"step\":1", "\n", "{}\n{\"st", std::string(64, '\0'),
                                                          "{\"step\": 1000000}\n", "3\n\"step\"\n", nested}) {
    copy("whole", "torn");
    write("torn/metrics.jsonl", text + tail);
    const Result resumed = resume("torn");
    ASSERT_EQ(resumed.status, 0) << resumed.err;
    EXPECT_NE(resumed.err.find("of metrics.jsonl"), std::string::npos) << resumed.err;
    expect_same_run("torn", "whole");
  }
  // Missing lines stay missing, which is reported.
  const size_t half = text.find('\n', text.size() / 2);
  copy("whole", "short");
  write("short/metrics.jsonl", text.substr(0, half - 3));
  const Result resumed = resume("short");
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("metrics.jsonl was changed: it ends with step "), std::string::npos) << resumed.err;
  EXPECT_EQ(weights("short"), weights("whole"));
  for (const std::string& line : lines_of(read_text(file("short/metrics.jsonl"))))
    EXPECT_TRUE(Json::accept(line)) << line;
  fs::remove(file("short/metrics.jsonl"));
  EXPECT_EQ(resume("short").status, 0);
}

/// A damaged checkpoint of a later step, which exists before or appears during training, does no harm.
TEST_F(HistoryTest, ADamagedLaterCheckpoint) {
  std::vector<std::string> endless = arguments("run", {"--keep", "2"});
  *(std::find(endless.begin(), endless.end(), "--epochs") + 1) = "100000";
  Process process(endless, folder_);
  ASSERT_TRUE(process.wait_for("train: "));
  const auto newest = [&] { return checkpoints("run").empty() ? "" : checkpoints("run").back(); };
  for (int i = 0; i < 6000 && newest().empty(); ++i) usleep(10'000);
  write("run/checkpoints/step-99999999/state.json", "{\"step\": ");
  write("run/checkpoints/step-99999999/checksums.json", "{}");
  // When the first one is gone, the run has saved twice more.
  const std::string first = checkpoints("run").front();
  for (int i = 0; i < 6000 && checkpoints("run").front() == first; ++i) usleep(10'000);
  process.send(SIGUSR1);
  const Result stopped = process.finish();
  EXPECT_EQ(stopped.status, 75) << stopped.err;
  EXPECT_EQ(stopped.err.find("training continues"), std::string::npos) << stopped.err;
  EXPECT_LE(checkpoints("run").size(), 4u);  // two newest, the best epoch's and the damaged one

  Process again({"resume", "run", "--threads", "1"}, folder_);
  ASSERT_TRUE(again.wait_for("removed what followed step"));
  again.send(SIGUSR1);
  const Result resumed = again.finish();
  EXPECT_EQ(resumed.status, 75) << resumed.err;
  EXPECT_NE(resumed.err.find("step-99999999"), std::string::npos) << resumed.err;
  EXPECT_NE(resumed.err.find("the one before it is used"), std::string::npos) << resumed.err;
  EXPECT_FALSE(fs::exists(file("run/checkpoints/step-99999999")));
  expect_all_are_whole("run");
}

/// Files of other programs stay, whatever their names.
TEST_F(HistoryTest, FilesOfOthersInTheFolder) {
  make_run("run", {"--keep", "20"});
  const std::vector<std::string> theirs = {"run/x.tmp-abc123",
                                           "run/keep.tmp-backup",
                                           "run/model.tern-tmp-backup",
                                           "run/metrics.jsonl.old",
                                           "run/checkpoints/README",
                                           "run/checkpoints/unfinished-thoughts/a",
                                           "run/checkpoints/step-12/a",
                                           "run/checkpoints/step-00000990-mine/a",
                                           "run/checkpoints/step-00000990",
                                           "run/checkpoints/.tern-unfinished-b/a"};
  for (const std::string& name : theirs) write(name, name);
  write("run/model.safetensors.tern-tmp-0123456789abcdef", "half");
  write("run/checkpoints/.tern-unfinished-step-00000020/a", "half");
  write("run/checkpoints/.tern-removed-step-00000010-validated/a", "half");
  const Result resumed = resume("run/checkpoints/" + checkpoints("run").front());
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  for (const std::string& name : theirs) EXPECT_EQ(read_text(file(name)), name);
  for (const auto& entry : fs::recursive_directory_iterator(file("run")))
    EXPECT_NE(entry.is_regular_file() && read_text(entry.path()) == "half", true) << entry.path();
}

}  // namespace
}  // namespace tern::program

// The folder of a run. Resumed from an older checkpoint, whatever was ahead of it, it has one history, equal to that of
// an uninterrupted run; all other folders stay unchanged.

#include <sys/stat.h>

#include "tern/tests/program/resume.h"

namespace tern::program {
namespace {

class HistoryTest : public InterruptedRuns {
 protected:
  /// Resumes from the checkpoint and kills the run at its first line of metrics.jsonl.
  void resume_without_a_step(const std::string& checkpoint) const {
    const std::string run = checkpoint.substr(0, checkpoint.find('/'));
    copy(run, "rehearsal");
    const std::vector<std::string> calls = calls_of(resume("rehearsal" + checkpoint.substr(run.size())), "rehearsal");
    const auto line = std::find(calls.begin(), calls.end(), "write /metrics.jsonl");
    ASSERT_NE(line, calls.end());
    expect_ends_at(resume(checkpoint), run, "kill:" + std::to_string(line - calls.begin() + 1));
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
  succeeds(arguments("whole", "--keep 4"));
  const std::vector<std::string> names = checkpoints("whole");
  ASSERT_GE(names.size(), 4u);
  copy("whole", "run");
  const Result oldest = succeeds(resume("run/checkpoints/" + names.front()));
  EXPECT_TRUE(has(oldest.err, "checkpoints, " + names[1] + " to " + names.back() + ", and "));
  expect_same_run("run", "whole");
  for (int again = 0; again < 2; ++again) {
    succeeds(resume("run"));
    expect_same_run("run", "whole");
  }
  succeeds(arguments("run", {"--keep", "4", "--resume", "run/checkpoints/" + names[1]}));
  expect_same_run("run", "whole");
}

TEST_F(HistoryTest, ARunThatStopsAgain) {
  succeeds(arguments("whole", "--keep 20"));
  copy("whole", "run");
  const std::vector<std::string> names = checkpoints("run");
  const Result stopped = interrupted(resume("run/checkpoints/" + names[1]), "removed what followed step", SIGTERM);
  if (stopped.status != 0) {
    EXPECT_EQ(stopped.status, 143) << stopped.err;
    EXPECT_LT(checkpoints("run").size(), names.size());
    expect_all_are_whole("run");
    expect_one_history("run");
  }
  succeeds(resume("run"));
  EXPECT_EQ(weights("run"), weights("whole"));
  EXPECT_EQ(history("run"), history("whole"));
}

/// The best epoch is ahead of the step from which the run resumes: until it is reached again, the folder's model is
/// that of the best epoch so far, or before any validation that of the checkpoint.
TEST_F(HistoryTest, TheModelIsThatOfTheCheckpoint) {
  succeeds(arguments("whole", "--keep 20"));
  const std::vector<std::string> names = checkpoints("whole");
  const auto validated =
      std::find_if(names.begin(), names.end(), [](const auto& n) { return n.ends_with("validated"); });
  ASSERT_LT(validated + 1, names.end());
  // From the first checkpoint, before any validation, and from the one after the first validation.
  for (const auto& [from, model] : {std::pair(names.front(), names.front()), {*(validated + 1), *validated}}) {
    copy("whole", "run");
    resume_without_a_step("run/checkpoints/" + from);
    EXPECT_TRUE(weights("run") == weights("whole/checkpoints/" + model)) << from;
    succeeds(resume("run"));
    expect_same_run("run", "whole");
  }
}

TEST_F(HistoryTest, TheModelIsTheAveragesOfTheCheckpoint) {
  const auto averaged = [&](const std::string& out, const std::string& steps) {
    succeeds(arguments(out, "--ema 0.9 --schedule constant --warmup 0 --split all --keep 9 --max-steps " + steps));
  };
  averaged("short", "10");
  averaged("run", "20");
  EXPECT_FALSE(weights("run") == weights("short"));
  resume_without_a_step("run/checkpoints/step-00000010");
  EXPECT_TRUE(weights("run") == weights("short"));
  EXPECT_FALSE(weights("run") == weights("run/checkpoints/step-00000010"));
}

TEST_F(HistoryTest, LinesThatACrashCutShort) {
  succeeds(arguments("whole"));
  const std::string newest = checkpoints("whole").back();
  const std::string text = read("whole/metrics.jsonl");
  const std::string nested = "{\"step\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}\n";
  for (const std::string& tail : std::vector<std::string>{"{\"step\":1", "\n", "{}\n{\"st", std::string(64, '\0'),
                                                          "{\"step\": 1000000}\n", "3\n\"step\"\n", nested}) {
    copy("whole", "torn");
    write("torn/metrics.jsonl", text + tail);
    EXPECT_TRUE(has(succeeds(resume("torn")).err, "of metrics.jsonl"));
    expect_same_run("torn", "whole");
  }
  // Missing lines stay missing, which is reported.
  const size_t half = text.find('\n', text.size() / 2);
  copy("whole", "short");
  write("short/metrics.jsonl", text.substr(0, half - 3));
  EXPECT_TRUE(has(succeeds(resume("short")).err, "metrics.jsonl was changed: it ends with step "));
  EXPECT_EQ(weights("short"), weights("whole"));
  for (const std::string& line : lines_of(read("short/metrics.jsonl"))) EXPECT_TRUE(Json::accept(line)) << line;
  fs::remove(file("short/metrics.jsonl"));
  succeeds(resume("short"));
}

/// A damaged checkpoint of a later step, which exists before or appears during training, does no harm.
TEST_F(HistoryTest, ADamagedLaterCheckpoint) {
  Process process(arguments("run", "--keep 2 --epochs 100000"), folder_);
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
  EXPECT_FALSE(has(stopped.err, "training continues"));
  EXPECT_LE(checkpoints("run").size(), 4u);  // two newest, the best epoch's and the damaged one

  const Result resumed = interrupted(resume("run"), "removed what followed step", SIGUSR1);
  EXPECT_EQ(resumed.status, 75) << resumed.err;
  EXPECT_TRUE(has(resumed.err, "step-99999999"));
  EXPECT_TRUE(has(resumed.err, "the one before it is used"));
  EXPECT_FALSE(exists("run/checkpoints/step-99999999"));
  expect_all_are_whole("run");
}

/// Files of other programs stay, whatever their names.
TEST_F(HistoryTest, FilesOfOthersInTheFolder) {
  succeeds(arguments("run", "--keep 20"));
  const Words theirs =
      "run/x.tmp-abc123 run/keep.tmp-backup run/model.tern-tmp-backup run/metrics.jsonl.old run/checkpoints/README "
      "run/checkpoints/unfinished-thoughts/a run/checkpoints/step-12/a run/checkpoints/step-00000990-mine/a "
      "run/checkpoints/step-00000990 run/checkpoints/.tern-unfinished-b/a";
  for (const std::string& name : theirs) write(name, name);
  write("run/model.safetensors.tern-tmp-0123456789abcdef", "half");
  write("run/checkpoints/.tern-unfinished-step-00000020/a", "half");
  write("run/checkpoints/.tern-removed-step-00000010-validated/a", "half");
  succeeds(resume("run/checkpoints/" + checkpoints("run").front()));
  for (const std::string& name : theirs) EXPECT_EQ(read(name), name);
  for (const auto& entry : fs::recursive_directory_iterator(file("run")))
    EXPECT_NE(entry.is_regular_file() && read_text(entry.path()) == "half", true) << entry.path();
}

// --- Checks of a folder before training.

class RunFolderTest : public InterruptedRuns {
 protected:
  static Words endless(const std::string& out) { return arguments(out, "--epochs 100000"); }
  /// Waits until the run has written a checkpoint and metrics.
  void wait_until_it_saves(const std::string& run) const {
    for (int i = 0; i < 6000 && (checkpoints(run).empty() || read(run + "/metrics.jsonl").empty()); ++i) usleep(10'000);
    ASSERT_FALSE(checkpoints(run).empty());
    usleep(static_cast<useconds_t>(std::random_device()() % 100'000));  // anywhere between two checkpoints
  }
  static void expect_lost(const Result& result) {
    expect_error(result, 1, {"run: is not the folder of this run any more", "removed, moved or replaced"});
  }
};

/// Nothing is created, removed or changed in a folder that is not a run's, or that has a foreign run.json.
TEST_F(RunFolderTest, FoldersOfOthersStayAsTheyAre) {
  const std::vector<std::pair<std::string, std::string>> files[] = {
      {{"a", ""}, {"keep.tmp-backup", "mine"}, {"x.tmp-abc123", "mine"}, {"model.tern-tmp-0123456789abcdef", "mine"}},
      {{"metrics.jsonl", "{\"step\":1}\n"}},
      {{"metrics.jsonl", ""}, {"letter.txt", "Dear"}, {"y.tern-tmp-0123456789abcdef", "mine"}},
      {{"run.json", ""}, {"z.tern-tmp-0123456789abcdef", "mine"}},
      {{"run.json", "[1]"}, {"z.tern-tmp-0123456789abcdef", "mine"}},
      {{"run.json", "{\"options\": 1}"}, {"checkpoints/.tern-unfinished-step-00000001/a", "mine"}},
      {{"checkpoints/step-00000010/state.json", "{}"}, {"model.safetensors", "mine"}}};
  for (const auto& each : files) {
    fs::remove_all(file("d"));
    for (const auto& [name, text] : each) write("d/" + name, text);
    const auto before = contents("d");
    expect_error(tern(arguments("d", "--resume auto")), 1, {"d/run.json"});
    expect_error(tern("train distilbert --resume d"), 1, {"d/run.json"});
    expect_error(tern("resume d"), 1, {"d/run.json"});
    expect_error(tern(arguments("d")), 1, {"d: already holds files"});
    if (exists("d/checkpoints/step-00000010"))
      expect_error(tern(arguments("d", "--resume d/checkpoints/step-00000010")), 1, {"d/run.json"});
    EXPECT_EQ(contents("d"), before);
  }
}

/// A run whose folder is removed ends with an error, and does not make it again.
TEST_F(RunFolderTest, RemovedDuringTheRun) {
  for (int attempt = 0; attempt < 5; ++attempt) {
    Process process(endless("run"), folder_);
    ASSERT_TRUE(process.wait_for("step "));
    wait_until_it_saves("run");
    // Again, if a file was written while the folder was being removed.
    for (int again = 0; again < 100 && exists("run"); ++again)
      EXPECT_NE(system(("rm -rf " + file("run").string() + " 2>/dev/null").c_str()), -1);
    expect_lost(process.finish());
    EXPECT_FALSE(exists("run"));
  }
}

/// Moved away it stays as it was, and emptied it stays empty.
TEST_F(RunFolderTest, MovedAwayOrEmptiedDuringTheRun) {
  {
    Process process(endless("run"), folder_);
    ASSERT_TRUE(process.wait_for("step "));
    wait_until_it_saves("run");
    fs::rename(file("run"), file("moved"));
    expect_lost(process.finish());
    EXPECT_FALSE(exists("run"));
    expect_all_are_whole("moved");
    for (const std::string& line : lines_of(read("moved/metrics.jsonl"))) EXPECT_TRUE(Json::accept(line)) << line;
  }
  // Under the same name again by a link it is still the run's.
  Process process(endless("linked"), folder_);
  ASSERT_TRUE(process.wait_for("step "));
  wait_until_it_saves("linked");
  process.send(SIGSTOP);  // else it may make the folder again between the two moves
  ASSERT_EQ(
      system(
          ("cd " + folder_.string() + " && ln -s elsewhere link && mv linked elsewhere && mv -T link linked").c_str()),
      0);
  process.send(SIGCONT);
  const Result linked = (usleep(300'000), process.send(SIGUSR1), process.finish());
  EXPECT_EQ(linked.status, 75) << linked.err;
}

/// Another run that begins at the path meanwhile is not touched, whichever way it got there.
TEST_F(RunFolderTest, AnotherRunBeginsThere) {
  for (const bool same_folder : {false, true}) {
    SCOPED_TRACE(same_folder);
    fs::remove_all(file("run"));
    // It is stopped between two lines of metrics.jsonl, since it writes nothing else.
    Process process(arguments("run", "--epochs 100000 --split all --checkpoint-every 10h"), folder_);
    ASSERT_TRUE(process.wait_for("step "));
    process.send(SIGSTOP);
    if (same_folder)
      for (const std::string& name : names_in("run")) fs::remove_all(file("run/" + name));
    else
      fs::remove_all(file("run"));
    succeeds(arguments("run", "--epochs 1 --seed 3 --keep 9"));
    const auto before = contents("run");
    process.send(SIGCONT);
    expect_lost(process.finish());
    EXPECT_TRUE(contents("run") == before);
    expect_all_are_whole("run");
  }
}

/// The same folder and metrics.jsonl, but another run's record: copied over it.
TEST_F(RunFolderTest, TheRecordOfAnotherRun) {
  succeeds(arguments("other", "--max-steps 1"));
  EXPECT_EQ(json("other/run.json")["id"].get<std::string>().size(), 16u);
  Process process(endless("run"), folder_);
  ASSERT_TRUE(process.wait_for("step "));
  wait_until_it_saves("run");
  write("new.json", read("other/run.json"));
  fs::rename(file("new.json"), file("run/run.json"));
  const Result result = process.finish();
  expect_lost(result);
  EXPECT_TRUE(has(result.err, "its run.json is that of another run"));
}

TEST_F(RunFolderTest, MetricsThatAreNoFile) {
  succeeds(arguments("run", "--max-steps 1"));
  fs::remove(file("run/metrics.jsonl"));
  ASSERT_EQ(mkfifo(file("run/metrics.jsonl").c_str(), 0644), 0);
  expect_error(tern("resume run"), 1, {"run/metrics.jsonl"});
}

TEST_F(RunFolderTest, ParentsThatWereMadeAreRemovedWhenNothingIsKept) {
  const Words failing = "train distilbert --data nothing.csv --out a/b/run";
  expect_error(tern(failing), 1, {"nothing.csv"});
  EXPECT_FALSE(exists("a"));
  fs::create_directories(file("a"));
  expect_error(tern(failing), 1, {"nothing.csv"});
  EXPECT_EQ(listing("a"), "");
}

/// Files and folders get the modes that the umask allows.
TEST_F(RunFolderTest, TheUmaskIsHonoured) {
  for (const mode_t mask : {0077u, 0002u, 0027u}) {
    fs::remove_all(file("run"));
    succeeds(arguments("run", "--max-steps 10"), Setting{.in_child = [mask] { umask(mask); }});
    int files = 0;
    for (const auto& entry : fs::recursive_directory_iterator(file("run"))) {
      const auto expected = static_cast<fs::perms>((entry.is_directory() ? 0777 : 0666) & ~mask);
      EXPECT_EQ(entry.status().permissions(), expected) << entry.path() << std::oct << mask;
      ++files;
    }
    EXPECT_GT(files, 12);
  }
}

#ifdef TERN_DISK_FAULTS
/// A file system without locks does not count as use by another process.
TEST_F(RunFolderTest, FileSystemsWithoutLocks) {
  for (const int error : {ENOLCK, ENOSYS, EOPNOTSUPP}) {
    fs::remove_all(file("run"));
    const Result result = succeeds(arguments("run", "--max-steps 1"), failing("run", "lock:" + std::to_string(error)));
    EXPECT_TRUE(has(result.err, "run: its file system has no locks (" + std::string(std::strerror(error)) + ")"));
  }
  fs::remove_all(file("run"));
  expect_error(tern(arguments("run"), failing("run", "lock:" + std::to_string(EIO))), 1,
               {"run/metrics.jsonl: cannot be locked", std::strerror(EIO)});
  EXPECT_FALSE(exists("run"));
}
#endif

}  // namespace
}  // namespace tern::program

// One run with many kills (in training and while writing a checkpoint), machine crashes and full disks: it ends with
// the weights and losses of an uninterrupted run, and the newest checkpoint in its folder is always complete.

#include <sys/mount.h>

#include "tern/tests/program/resume.h"

namespace tern::program {
namespace {

class ResumeSlowTest : public InterruptedRuns {
 protected:
  std::vector<std::string> text_run(const std::string& out) const {
    std::vector<std::string> all = arguments(out, {"--resume", "auto"});
    *(std::find(all.begin(), all.end(), "--checkpoint-every") + 1) = "5";
    return all;
  }
  static std::vector<std::string> image_run(const std::string& out) {
    const std::string seed = std::to_string(fresh_seed());
    return {"train",    "vit",  "--data", "digits", "--max-steps", "40", "--batch-size",       "16",
            "--epochs", "2",    "--seed", seed,     "--threads",   "1",  "--checkpoint-every", "5",
            "--resume", "auto", "--out",  out};
  }
};

TEST_F(ResumeSlowTest, ThirtyKillsAtRandomMoments) {
  for (const bool images : {false, true}) {
    const auto run = [&](const std::string& out) { return images ? image_run(out) : text_run(out); };
    const std::string whole = images ? "whole-images" : "whole-texts", cut = images ? "cut-images" : "cut-texts";
    ASSERT_EQ(tern(run(whole)).status, 0);
    int kills = 0, starts = 0, went_on = 0;
    for (; kills < 30 && starts < 300; ++starts) {
      Process process(run(cut), folder_);
      if (starts % 4 != 0) process.wait_for("step ");
      usleep(static_cast<useconds_t>(random_() % 400'000));
      process.send(SIGKILL);
      const Result result = process.finish();
      if (result.status == 1000 + SIGKILL) ++kills;
      went_on += result.err.find("resume: " + cut + "/checkpoints/step-") != std::string::npos;
      if (result.status == 0) {  // it has finished: start again
        expect_same(cut, whole);
        fs::remove_all(file(cut));
      }
      expect_all_are_whole(cut);
    }
    EXPECT_EQ(kills, 30);
    const Result last = tern(run(cut));
    ASSERT_EQ(last.status, 0) << last.err;
    expect_same(cut, whole);
    EXPECT_GE(went_on, 10);
    std::printf("%s: %d kills in %d starts, of which %d went on from a checkpoint\n", images ? "images" : "texts",
                kills, starts, went_on);
  }
}

TEST_F(ResumeSlowTest, InsideACheckpointsWriting) {
  const int64_t calls = static_cast<int64_t>(calls_of(text_run("whole"), "whole").size());
  ASSERT_GT(calls, 100);
  for (const std::string fault : {"kill:", "crash:"}) {
    const std::string cut = fault == "kill:" ? "killed" : "crashed";
    int kills = 0;
    for (int start = 0; start < 40; ++start) {
      // Not too early, so that the run makes progress.
      const int64_t at = 1 + static_cast<int64_t>(random_() % static_cast<uint64_t>(calls / 4));
      const Result result = tern(text_run(cut), failing(cut, fault + std::to_string(at)));
      if (result.status == 1000 + SIGKILL)
        ++kills;
      else
        ASSERT_EQ(result.status, 0) << fault << at << ": " << result.err;
      expect_all_are_whole(cut);
      if (result.status != 0) continue;
      expect_same(cut, "whole");
      fs::remove_all(file(cut));
    }
    EXPECT_GE(kills, 20);
    const Result last = tern(text_run(cut));
    ASSERT_EQ(last.status, 0) << last.err;
    expect_same(cut, "whole");
    std::printf("%s %d times, of %lld calls a run\n", cut.c_str(), kills, static_cast<long long>(calls));
  }
}

TEST_F(ResumeSlowTest, AtEveryCallOfOneCheckpoint) {
  const int64_t calls = static_cast<int64_t>(calls_of(text_run("whole"), "whole").size());
  int kills = 0;
  for (int64_t at = calls / 2; at < calls / 2 + 40; ++at) {
    const std::string cut = "cut" + std::to_string(at);
    const Result killed = tern(text_run(cut), failing(cut, "crash:" + std::to_string(at)));
    EXPECT_EQ(killed.status, 1000 + SIGKILL) << killed.err;
    kills += killed.status == 1000 + SIGKILL;
    expect_all_are_whole(cut);
    const Result resumed = tern(text_run(cut));
    ASSERT_EQ(resumed.status, 0) << resumed.err;
    expect_same(cut, "whole");
    fs::remove_all(file(cut));
  }
  std::printf("%d crashes\n", kills);
}

TEST_F(ResumeSlowTest, FullDisks) {
  const int64_t calls = static_cast<int64_t>(calls_of(text_run("whole"), "whole").size());
  int failures = 0, went_on = 0;
  for (int start = 0; start < 20; ++start) {
    const std::string out = "full" + std::to_string(start);
    const int64_t at = 1 + static_cast<int64_t>(random_() % static_cast<uint64_t>(calls));
    const Result full = tern(text_run(out), failing(out, "full:" + std::to_string(at)));
    EXPECT_EQ(full.status, 1) << at << full.err;
    EXPECT_NE(full.err.find("No space left on device"), std::string::npos) << full.err;
    failures += full.status == 1;
    went_on += full.err.find("training continues") != std::string::npos;
    expect_all_are_whole(out);
    const Result resumed = tern(text_run(out));
    ASSERT_EQ(resumed.status, 0) << at << ": " << resumed.err;
    expect_same(out, "whole");
    fs::remove_all(file(out));
  }
  std::printf("%d runs on full disks, %d of them lost a checkpoint and went on\n", failures, went_on);
}

/// A separate file system that is at first too small for the run's files and is enlarged later.
TEST_F(ResumeSlowTest, SmallFileSystems) {
  ASSERT_EQ(tern(text_run("whole")).status, 0);
  int64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(file("whole")))
    if (entry.is_regular_file()) bytes += static_cast<int64_t>(entry.file_size());
  const std::string disk = file("disk").string();
  fs::create_directories(disk);
  int full = 0;
  for (int i = 0; i < 8; ++i) {
    const std::string size = "size=" + std::to_string(bytes / 4 * (i + 1) / 1024) + "k";
    if (mount("none", disk.c_str(), "tmpfs", 0, size.c_str()) != 0) GTEST_SKIP() << "root: mounting is for root";
    const Result limited = tern(text_run("disk/run"));
    full += limited.err.find("No space left on device") != std::string::npos;
    expect_all_are_whole("disk/run");
    EXPECT_EQ(mount("none", disk.c_str(), "tmpfs", MS_REMOUNT, "size=64m"), 0);
    const Result resumed = tern(text_run("disk/run"));
    EXPECT_EQ(resumed.status, 0) << resumed.err;
    expect_same("disk/run", "whole");
    ASSERT_EQ(umount(disk.c_str()), 0);
  }
  EXPECT_GE(full, 4);
  std::printf("%d of 8 disks were too small\n", full);
}

}  // namespace
}  // namespace tern::program

// One run with many kills (in training and while writing a checkpoint), machine crashes and full disks: it ends with
// the weights and losses of an uninterrupted run, and the newest checkpoint in its folder is always complete.

#include <sys/mount.h>

#include "tern/tests/program/resume.h"

namespace tern::program {
namespace {

class ResumeSlowTest : public InterruptedRuns {
 protected:
  static Words text_run(const std::string& out) { return arguments(out, "--checkpoint-every 5 --resume auto"); }
  static Words image_run(const std::string& out) {
    return "train vit --data digits --max-steps 40 --batch-size 16 --epochs 2 --threads 1 --checkpoint-every 5 "
           "--resume auto --seed " +
           std::to_string(fresh_seed()) + Words{"--out", out};
  }
  /// The number of calls with which a run in the folder "whole" changes it.
  int64_t calls_of_whole() const { return static_cast<int64_t>(calls_of(text_run("whole"), "whole").size()); }
  /// A number from 1 to `count`.
  int64_t random_to(int64_t count) { return 1 + static_cast<int64_t>(random_() % static_cast<uint64_t>(count)); }
  void expect_goes_on(const Words& run, const std::string& out, const std::string& whole = "whole") const {
    expect_all_are_whole(out);
    succeeds(run);
    expect_same(out, whole);
  }
};

TEST_F(ResumeSlowTest, ThirtyKillsAtRandomMoments) {
  for (const bool images : {false, true}) {
    const auto run = [&](const std::string& out) { return images ? image_run(out) : text_run(out); };
    const std::string whole = images ? "whole-images" : "whole-texts", cut = images ? "cut-images" : "cut-texts";
    succeeds(run(whole));
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
    expect_goes_on(run(cut), cut, whole);
    EXPECT_GE(went_on, 10);
  }
}

TEST_F(ResumeSlowTest, InsideACheckpointsWriting) {
  const int64_t calls = calls_of_whole();
  ASSERT_GT(calls, 100);
  for (const std::string fault : {"kill:", "crash:"}) {
    const std::string cut = fault == "kill:" ? "killed" : "crashed";
    int kills = 0;
    for (int start = 0; start < 40; ++start) {
      // Not too early, so that the run makes progress.
      const int64_t at = random_to(calls / 4);
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
    expect_goes_on(text_run(cut), cut);
  }
}

TEST_F(ResumeSlowTest, AtEveryCallOfOneCheckpoint) {
  const int64_t calls = calls_of_whole();
  for (int64_t at = calls / 2; at < calls / 2 + 40; ++at) {
    const std::string cut = "cut" + std::to_string(at);
    expect_ends_at(text_run(cut), cut, "crash:" + std::to_string(at));
    expect_goes_on(text_run(cut), cut);
    fs::remove_all(file(cut));
  }
}

TEST_F(ResumeSlowTest, FullDisks) {
  const int64_t calls = calls_of_whole();
  for (int start = 0; start < 20; ++start) {
    const std::string out = "full" + std::to_string(start);
    const int64_t at = random_to(calls);
    const Result full = tern(text_run(out), failing(out, "full:" + std::to_string(at)));
    EXPECT_EQ(full.status, 1) << at << full.err;
    EXPECT_TRUE(has(full.err, "No space left on device"));
    expect_goes_on(text_run(out), out);
    fs::remove_all(file(out));
  }
}

/// A separate file system that is at first too small for the run's files and is enlarged later.
TEST_F(ResumeSlowTest, SmallFileSystems) {
  succeeds(text_run("whole"));
  int64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(file("whole")))
    if (entry.is_regular_file()) bytes += static_cast<int64_t>(entry.file_size());
  const std::string disk = file("disk").string();
  fs::create_directories(disk);
  int full = 0;
  for (int i = 0; i < 8; ++i) {
    const std::string size = "size=" + std::to_string(bytes / 4 * (i + 1) / 1024) + "k";
    if (mount("none", disk.c_str(), "tmpfs", 0, size.c_str()) != 0) GTEST_SKIP() << "root: mounting is for root";
    full += tern(text_run("disk/run")).err.find("No space left on device") != std::string::npos;
    expect_all_are_whole("disk/run");
    EXPECT_EQ(mount("none", disk.c_str(), "tmpfs", MS_REMOUNT, "size=64m"), 0);
    succeeds(text_run("disk/run"));
    expect_same("disk/run", "whole");
    ASSERT_EQ(umount(disk.c_str()), 0);
  }
  EXPECT_GE(full, 4);
}

}  // namespace
}  // namespace tern::program

// Checks of a folder before training: a run uses its folder and leaves all other folders unchanged.

#include <sys/stat.h>

#include "tern/tests/program/resume.h"

namespace tern::program {
namespace {

class RunFolderTest : public InterruptedRuns {
 protected:
  /// Paths, sizes and contents of all files in a folder.
  std::string contents(const std::string& folder) const {
    std::vector<std::string> entries;
    for (const auto& entry : fs::recursive_directory_iterator(file(folder)))
      entries.push_back(entry.path().string() + (entry.is_regular_file() ? ":" + read_text(entry.path()) : ""));
    std::sort(entries.begin(), entries.end());
    std::string text;
    for (const std::string& entry : entries) text += entry + "\n";
    return text;
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
    const std::string before = contents("d");
    expect_error(tern(arguments("d", "--resume auto")), 1, {"d/run.json"});
    expect_error(tern("train distilbert --resume d"), 1, {"d/run.json"});
    expect_error(tern("resume d"), 1, {"d/run.json"});
    expect_error(tern(arguments("d")), 1, {"d: already holds files"});
    if (exists("d/checkpoints/step-00000010"))
      expect_error(tern(arguments("d", "--resume d/checkpoints/step-00000010")), 1, {"d/run.json"});
    EXPECT_EQ(contents("d"), before);
  }
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
  expect_error(tern(arguments("run"), failing("run", "lock:" + std::to_string(EWOULDBLOCK))), 1,
               {"another process is training in this folder"});
}
#endif

}  // namespace
}  // namespace tern::program

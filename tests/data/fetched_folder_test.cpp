// A data set that is fetched: what a power cut leaves of it is whole or nothing.

#include "tern/data/datasets/fetched_folder.h"

#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "tern/data/datasets/sha256.h"
#include "tern/tests/data/support.h"

namespace tern::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kArchive = "TERN_TEST_ARCHIVE";

bool is_complete(const fs::path& folder) { return fs::is_directory(folder / "train"); }

FetchedFolder fetched(const fs::path& archive) {
  std::string bytes;
  read_file(archive, bytes);
  return {.name = "letters",
          .folder = "letters",
          .archive = {"file://" + archive.string(), static_cast<int64_t>(bytes.size()), sha256(bytes)},
          .most_unpacked_bytes = 1 << 24,
          .contents = "letters/train",
          .is_complete = is_complete};
}

class FetchedFolderTest : public FolderTest {
 protected:
  void SetUp() override {
    std::mt19937 random(std::random_device{}());
    for (const char* name : {"train/a.txt", "train/b.txt", "test/c.txt"}) {
      std::string text(100'000 + random() % 1000, ' ');
      for (char& c : text) c = static_cast<char>('a' + random() % 26);
      write(std::string("from/letters/") + name, text);
      texts_.emplace_back(name, text);
    }
    archive_ = root() / "letters.tar";
    ASSERT_EQ(std::system(("tar -C " + (root() / "from").string() + " -cf " + archive_.string() + " letters").c_str()),
              0);
  }
  void expect_whole(const fs::path& folder) const {
    for (const auto& [name, text] : texts_) {
      std::string read;
      read_file(folder / name, read);
      EXPECT_TRUE(read == text) << name << " has " << read.size() << " of " << text.size() << " bytes";
    }
  }
  /// This program again, fetching to XDG_CACHE_HOME under a disk that fails: its status.
  int fetch_elsewhere(const std::string& fault) const {
    const pid_t child = fork();
    if (child == 0) {
      setenv("XDG_CACHE_HOME", (root() / "cache").c_str(), 1);
      setenv(kArchive, archive_.c_str(), 1);
      setenv("TERN_FAULT_FOLDER", (root() / "cache").c_str(), 1);
      setenv("TERN_FAULT", fault.c_str(), 1);
      setenv("LD_PRELOAD", TERN_DISK_FAULTS, 1);
      unsetenv("TERN_DATA");
      execl("/proc/self/exe", "fetch", nullptr);
      _exit(127);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

  fs::path archive_;
  std::vector<std::pair<std::string, std::string>> texts_;
};

TEST_F(FetchedFolderTest, IsOnTheDiskWhenItIsFetched) {
  ASSERT_EQ(fetch_elsewhere("crash:1000000"), 0);
  expect_whole(root() / "cache/tern/letters");
}

TEST_F(FetchedFolderTest, APowerCutLeavesAllOrNothing) {
  ASSERT_EQ(fetch_elsewhere("count:" + (root() / "calls").string()), 0);
  std::string calls;
  read_file(root() / "calls", calls);
  const size_t named = calls.find("rename /tern/letters\n");
  ASSERT_NE(named, calls.npos) << calls;
  const auto number = 1 + std::count(calls.begin(), calls.begin() + static_cast<std::ptrdiff_t>(named), '\n');
  const Environment cache("XDG_CACHE_HOME", (root() / "cache").string()), none("TERN_DATA", std::nullopt);
  // The folder's name is on the disk or lost, and in the other case what lies in it.
  for (const std::string lost : {"", ":train", ":letters"}) {
    SCOPED_TRACE(lost);
    fs::remove_all(root() / "cache");
    EXPECT_EQ(fetch_elsewhere("crash:" + std::to_string(number + 1) + lost), 1000 + SIGKILL);
    expect_whole(fetch_folder(fetched(archive_), {}));
  }
}

}  // namespace

/// What the other process does.
void fetch_here(const char* archive) { fetch_folder(fetched(archive), {}); }

}  // namespace tern::data

int main(int argc, char** argv) {
  if (const char* archive = std::getenv(tern::data::kArchive)) {
    tern::data::fetch_here(archive);
    return 0;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

// Fetched data sets: after a power cut a set is complete or absent.

#include "tern/data/files/fetched_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <set>
#include <thread>

#include "tern/data/files/sha256.h"
#include "tern/tests/data/support.h"
#include "tern/tests/support/sanitizer.h"
#include "tern/tests/support/seed.h"

namespace tern::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kArchive = "TERN_TEST_ARCHIVE";

FetchedFolder fetched(const fs::path& archive) {
  const std::string bytes = read_bytes(archive);
  return {.name = "letters",
          .folder = "letters",
          .archive = {"file://" + archive.string(), static_cast<int64_t>(bytes.size()), sha256(bytes)},
          .max_unpacked_bytes = 1 << 24,
          .contents = "letters/train",
          .is_complete = [](const fs::path& folder) { return fs::is_directory(folder / "train"); }};
}

class FetchedFolderTest : public FolderTest {
 protected:
  void SetUp() override {
    std::mt19937_64 random = fresh_random();
    for (const char* name : {"train/a.txt", "train/b.txt", "test/c.txt"}) {
      texts_.emplace_back(name, random_bytes(100'000 + random() % 1000, random));
      write(std::string("from/letters/") + name, texts_.back().second);
    }
    archive_ = root() / "letters.tar";
    ASSERT_EQ(std::system(("tar -C " + (root() / "from").string() + " -cf " + archive_.string() + " letters").c_str()),
              0);
  }
  void expect_whole(const fs::path& folder) const {
    for (const auto& [name, text] : texts_) {
      const std::string read = read_bytes(folder / name);
      EXPECT_TRUE(read == text) << name << " has " << read.size() << " of " << text.size() << " bytes";
    }
  }
  /// Runs this program again to fetch to XDG_CACHE_HOME, with disk faults if one is given.
  pid_t start_fetch(const std::string& fault = "") const {
    const std::string preload = test::preload(TERN_DISK_FAULTS);
    const pid_t child = fork();
    if (child != 0) return child;
    setenv(kArchive, archive_.c_str(), 1);
    if (!fault.empty()) {
      setenv("TERN_FAULT_FOLDER", (root() / "cache").c_str(), 1);
      setenv("TERN_FAULT", fault.c_str(), 1);
      setenv("LD_PRELOAD", preload.c_str(), 1);
    }
    execl("/proc/self/exe", "fetch", nullptr);
    _exit(127);
  }
  static int status_of(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  int fetch_elsewhere(const std::string& fault) const { return status_of(start_fetch(fault)); }

  /// The number of the call that renames the fetched folder to its final name; the cache is removed afterwards.
  std::ptrdiff_t call_that_names() const {
    EXPECT_EQ(fetch_elsewhere("count:" + (root() / "calls").string()), 0);
    const std::string calls = read_bytes(root() / "calls");
    const size_t named = calls.find("rename /tern/letters\n");
    EXPECT_NE(named, calls.npos) << calls;
    fs::remove_all(root() / "cache");
    const std::string before = calls.substr(0, named);
    return 1 + std::count(before.begin(), before.end(), '\n');
  }

  const Environment cache_{"XDG_CACHE_HOME", (root() / "cache").string()}, no_data_{"TERN_DATA", std::nullopt};
  fs::path archive_;
  std::vector<std::pair<std::string, std::string>> texts_;
};

TEST_F(FetchedFolderTest, IsOnTheDiskWhenItIsFetched) {
  ASSERT_EQ(fetch_elsewhere("crash:1000000"), 0);
  expect_whole(root() / "cache/tern/letters");
}

TEST_F(FetchedFolderTest, APowerCutLeavesAllOrNothing) {
  const auto number = call_that_names();
  // The power cut loses all unsynced names, or only those inside the folder.
  for (const std::string lost : {"", ":train", ":letters"}) {
    SCOPED_TRACE(lost);
    fs::remove_all(root() / "cache");
    EXPECT_EQ(fetch_elsewhere("crash:" + std::to_string(number + 1) + lost), 1000 + SIGKILL);
    expect_whole(fetch_folder(fetched(archive_), {}));
  }
}

TEST_F(FetchedFolderTest, TheNextFetchRemovesWhatAKilledOneLeft) {
  const fs::path cache = root() / "cache/tern";
  EXPECT_EQ(fetch_elsewhere("kill:" + std::to_string(call_that_names())), 1000 + SIGKILL);
  const auto names = [&] {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(cache)) found.insert(entry.path().filename().string());
    return found;
  };
  const std::set<std::string> left = names();
  EXPECT_TRUE(std::any_of(left.begin(), left.end(), [](const std::string& name) {
    return TemporaryDirectory::is_name(name, "letters.tern-fetch");
  })) << testing::PrintToString(left);
  // Files of other programs stay.
  std::set<std::string> others = {"letters.abcdef", "letters.backup", "letters.tern-fetch", "words.tern-fetch.abc123"};
  for (const char* end : {"abc12", "abc1234", "abc_12"}) others.insert(std::string("letters.tern-fetch.") + end);
  for (const std::string& name : others) write("cache/tern/" + name + "/note.txt", "mine");
  write("cache/tern/letters.tern-fetch.abc123", "a file");
  fs::create_directory_symlink(root() / "from", cache / "letters.tern-fetch.abc124");
  others.insert({"letters.tern-fetch.abc123", "letters.tern-fetch.abc124"});
  expect_whole(fetch_folder(fetched(archive_), {}));
  others.insert({"letters", ".letters.lock"});
  EXPECT_EQ(names(), others);
  expect_whole(root() / "from/letters");
}

/// A fetching process keeps its partial files, and other processes wait for it.
TEST_F(FetchedFolderTest, OneProcessFetchesTheOthersWait) {
  const fs::path cache = root() / "cache/tern", work = cache / "letters.tern-fetch.abc123";
  write("cache/tern/letters.tern-fetch.abc123/part", "of the download");
  const int lock = open((cache / ".letters.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  std::promise<std::string> waits;
  fs::path found;
  std::string failure;
  std::thread other([&] {
    bool told = false;
    failure = error_of([&] {
      found = fetch_folder(fetched(archive_), [&](const std::string& line) {
        if (!told) waits.set_value(line);
        told = true;
      });
    });
  });
  EXPECT_EQ(waits.get_future().get(), "waiting for another process that fetches to " + cache.string());
  EXPECT_TRUE(fs::exists(work / "part"));
  fs::remove(archive_);  // so that fetching again would fail
  fs::copy(root() / "from/letters", cache / "letters", fs::copy_options::recursive);
  close(lock);
  other.join();
  EXPECT_EQ(failure, "no error");
  EXPECT_EQ(found, cache / "letters");
}

TEST_F(FetchedFolderTest, SeveralAtOnce) {
  std::vector<pid_t> children;
  for (int i = 0; i < 5; ++i) children.push_back(start_fetch());
  for (const pid_t child : children) EXPECT_EQ(status_of(child), 0);
  expect_whole(root() / "cache/tern/letters");
  EXPECT_EQ(std::distance(fs::directory_iterator(root() / "cache/tern"), fs::directory_iterator()), 2);
}

/// On a file system without locks the set is still fetched, and files that may be in use are not removed.
TEST_F(FetchedFolderTest, WithoutLocks) {
  write("cache/tern/letters.tern-fetch.abc123/part", "of a download");
  ASSERT_EQ(fetch_elsewhere("lock:" + std::to_string(ENOLCK)), 0);
  expect_whole(root() / "cache/tern/letters");
  EXPECT_TRUE(fs::exists(root() / "cache/tern/letters.tern-fetch.abc123/part"));
}

}  // namespace
}  // namespace tern::data

int main(int argc, char** argv) {
  if (const char* archive = std::getenv(tern::data::kArchive)) {  // the second process
    tern::data::fetch_folder(tern::data::fetched(archive), {});
    return 0;
  }
  testing::InitGoogleTest(&argc, argv);
  return tern::run_all_tests("data_fetched_folder_test");
}

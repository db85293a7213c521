// Processes that diverge from the others: starts scenario.cpp with three ranks and reads the errors of each.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <thread>

#include "tern/tests/support/sanitizer.h"

namespace tern::dist {
namespace {

namespace fs = std::filesystem;

struct Outcome {
  int status = -1;
  double seconds = 0;
  std::string words[3];  // lines, by rank
};

Outcome run(const std::string& scenario, const std::map<std::string, std::string>& environment = {},
            double max_seconds = 60 * test::kPatience) {
  std::string folder = (fs::temp_directory_path() / "tern-ranks-XXXXXX").string();
  EXPECT_NE(mkdtemp(folder.data()), nullptr);
  const auto start = std::chrono::steady_clock::now();
  const pid_t child = fork();
  if (child == 0) {
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    setenv("OMP_NUM_THREADS", "1", 1);
    const std::string log = folder + "/mpirun";
    if (!freopen(log.c_str(), "w", stdout) || dup2(1, 2) < 0) _exit(126);
    execl(TERN_MPIRUN, TERN_MPIRUN, "--allow-run-as-root", "--oversubscribe", "-n", "3", TERN_SCENARIO,
          scenario.c_str(), folder.c_str(), nullptr);
    _exit(127);
  }
  Outcome outcome;
  int status = 0;
  for (;;) {
    if (waitpid(child, &status, WNOHANG) == child) break;
    outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (outcome.seconds > max_seconds) {
      ADD_FAILURE() << scenario << ": not over after " << max_seconds << " s";
      kill(child, SIGTERM);
      waitpid(child, &status, 0);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  for (int r = 0; r < 3; ++r) {
    std::ifstream file(folder + "/" + std::to_string(r));
    outcome.words[r].assign(std::istreambuf_iterator<char>(file), {});
  }
  fs::remove_all(folder);
  return outcome;
}

void expect_in(const std::string& part, const std::string& text) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

const std::map<std::string, std::string> kCheck = {{"TERN_DIST_CHECK", "1"}, {"TERN_DIST_TIMEOUT", "20"}};
const std::map<std::string, std::string> kShort = {{"TERN_DIST_TIMEOUT", "1"}};

TEST(Failures, NoneIsDone) {
  for (const auto& environment : {kCheck, std::map<std::string, std::string>{}}) {
    const Outcome outcome = run("fine", environment);
    EXPECT_EQ(outcome.status, 0);
    for (const std::string& word : outcome.words) EXPECT_EQ(word, "done\n");
  }
}

TEST(Failures, RanksOfOneMachineUseTheLoopback) {
  for (const std::string& words : run("listens").words) EXPECT_EQ(words, "done\n");
}

TEST(Failures, CheckModeNamesTheFirstThatDiffers) {
  const std::string texts =
      "group world, call 1: rank 2 has broadcast of float32 [4], root 0, but rank 0 has all_reduce of float32 [4], "
      "sum\n"
      "group world, call 2: rank 2 has all_reduce of float32 [4], sum, but rank 0 has barrier\n"
      "group world, call 3: rank 2 has all_reduce of float32 [2, 2], sum, but rank 0 has all_reduce of float32 [4], "
      "sum\n"
      "group world, call 4: rank 2 has all_reduce of float16 [4], sum, but rank 0 has all_reduce of float32 [4], sum\n"
      "group world, call 5: rank 2 has all_reduce of float32 [4], mean, but rank 0 has all_reduce of float32 [4], sum\n"
      "group world, call 6: rank 2 has broadcast of float32 [4], root 1, but rank 0 has broadcast of float32 [4], root "
      "0\n"
      "done\n";
  const Outcome outcome = run("disagree", kCheck);
  EXPECT_EQ(outcome.status, 0);
  for (const std::string& word : outcome.words) EXPECT_EQ(word, texts);
}

TEST(Failures, CheckModeComparesMessages) {
  const Outcome outcome = run("message", kCheck);
  EXPECT_NE(outcome.status, 0);
  for (const int rank : {0, 2})
    expect_in("message 1 from rank 0 to rank 2: rank 2 has float32 [5], but rank 0 has float32 [4]",
              outcome.words[rank]);
}

TEST(Failures, OtherLengthsAreNoticedWithoutCheckMode) {
  const Outcome outcome = run("length", {{"TERN_DIST_TIMEOUT", "20"}});
  EXPECT_NE(outcome.status, 0);
  for (const int rank : {0, 1}) expect_in("TERN_DIST_CHECK=1", outcome.words[rank]);
}

TEST(Failures, ARankThatDoesNotComeIsNamed) {
  auto first = std::async(std::launch::async, [] { return run("late", kShort); });
  auto second = std::async(std::launch::async, [] { return run("late-async", kShort); });
  auto third = std::async(std::launch::async, [] {
    return run("late", {{"TERN_DIST_TIMEOUT", "1"}, {"TERN_DIST_CHECK", "1"}});
  });
  const Outcome outcome = first.get(), asynchronous = second.get(), checked = third.get();
  EXPECT_NE(outcome.status, 0);
  for (const int rank : {0, 2}) {
    expect_in("group world, call 2, all_reduce of float32 [4], max: rank 1 has not arrived within 1 s",
              outcome.words[rank]);
    expect_in("rank 1 made call 1 last, all_reduce of float32 [3], sum", outcome.words[rank]);
    expect_in("rank 1 has not arrived within 1 s", asynchronous.words[rank]);
    expect_in("call 2: rank 1 has not arrived within 1 s", checked.words[rank]);
  }
}

TEST(Failures, AMessageThatDoesNotComeIsNamed) {
  const Outcome outcome = run("late-message", kShort);
  expect_in("receive from rank 1, message 1, float32 [4]: rank 1", outcome.words[0]);
}

TEST(Failures, FactsThatDifferAreNamed) {
  const Outcome outcome = run("facts");
  EXPECT_NE(outcome.status, 0);
  for (const std::string& word : outcome.words)
    expect_in("start: rank 1 has model base, but rank 0 has model tiny", word);
}

TEST(Failures, ARankThatIsKilledEndsAll) {
  const Outcome outcome = run("killed");
  EXPECT_NE(outcome.status, 0);
  EXPECT_LT(outcome.seconds, 10 * test::kPatience);
}

TEST(Failures, ARankThatFailsEndsAll) {
  const Outcome outcome = run("error");
  EXPECT_NE(outcome.status, 0);
  EXPECT_EQ(outcome.words[1], "error: the disk is full\n");
  EXPECT_LT(outcome.seconds, 10 * test::kPatience);
}

TEST(Failures, AStoppedRankIsATimeout) {
  const Outcome outcome = run("stopped", kShort);
  for (const int rank : {1, 2}) expect_in("within 1 s", outcome.words[rank]);
}

TEST(Failures, ARankThatDoesNotComeToTheStart) {
  const Outcome outcome = run("absent");
  for (const int rank : {0, 2})
    expect_in("peer: MPI: not all ranks have reached its start within 1 s", outcome.words[rank]);
}

}  // namespace
}  // namespace tern::dist

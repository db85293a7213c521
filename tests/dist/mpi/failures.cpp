// Processes that diverge from the others: starts scenario.cpp with three ranks and reads the errors of each.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <future>
#include <map>
#include <thread>

#include "tern/tests/dist/support.h"
#include "tern/tests/support/sanitizer.h"

namespace tern::dist {
namespace {

using Environment = std::map<std::string, std::string>;

constexpr double kSeconds = 60 * test::kPatience;

struct Outcome {
  int status = -1;
  double seconds = 0;
  std::string words[3];  // lines, by rank
};

Outcome run(const std::string& scenario, const Environment& environment = {}) {
  const TemporaryFolder scratch;
  const std::string folder = scratch.path();
  const auto start = std::chrono::steady_clock::now();
  const pid_t child = fork();
  if (child == 0) {
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    setenv("OMP_NUM_THREADS", "1", 1);
    if (!freopen((folder + "/mpirun").c_str(), "w", stdout) || dup2(1, 2) < 0) _exit(126);
    execl(TERN_MPIRUN, TERN_MPIRUN, "--allow-run-as-root", "--oversubscribe", "-n", "3", TERN_SCENARIO,
          scenario.c_str(), folder.c_str(), nullptr);
    _exit(127);
  }
  Outcome outcome;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) != child) {
    outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (outcome.seconds > kSeconds) {
      ADD_FAILURE() << scenario << ": not over after " << outcome.seconds << " s";
      kill(child, SIGTERM);  // mpirun then ends its ranks
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
  return outcome;
}

const Environment kCheck = {{"TERN_DIST_CHECK", "1"}, {"TERN_DIST_TIMEOUT", "20"}};
const Environment kShort = {{"TERN_DIST_TIMEOUT", "1"}};

TEST(Failures, NoneIsDone) {
  for (const auto& environment : {kCheck, Environment{}}) {
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

TEST(Failures, ARankThatDoesNotComeIsNamed) {
  auto first = std::async(std::launch::async, [] { return run("late", kShort); });
  auto second = std::async(std::launch::async, [] { return run("late-async", kShort); });
  auto third = std::async(std::launch::async, [] {
    return run("late", {{"TERN_DIST_TIMEOUT", "1"}, {"TERN_DIST_CHECK", "1"}});
  });
  const Outcome outcome = first.get(), asynchronous = second.get(), checked = third.get();
  EXPECT_NE(outcome.status, 0);
  for (const int rank : {0, 2}) {
    expect_contains(outcome.words[rank],
                    {"group world, call 2, all_reduce of float32 [4], max: rank 1 has not arrived within 1 s",
                     "rank 1 made call 1 last, all_reduce of float32 [3], sum"});
    expect_contains(asynchronous.words[rank], {"rank 1 has not arrived within 1 s"});
    expect_contains(checked.words[rank], {"call 2: rank 1 has not arrived within 1 s"});
  }
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

/// What some ranks write about a scenario.
struct Words {
  std::string scenario;
  Environment environment;
  std::vector<int> ranks;
  std::string part;
};

class FailuresNamed : public testing::TestWithParam<Words> {};

TEST_P(FailuresNamed, ByTheRanksThatNoticeThem) {
  const auto& [scenario, environment, ranks, part] = GetParam();
  const Outcome outcome = run(scenario, environment);
  EXPECT_NE(outcome.status, 0);
  bool named = false;
  for (const int rank : ranks) {
    const std::string& words = outcome.words[rank];
    named = named || words.find(part) != std::string::npos;
    // Without check mode a rank may learn first that another has ended for this reason.
    const bool refers = scenario == "length" && words.find("see its output for the reason") != std::string::npos;
    if (!refers) expect_contains(words, {part});
  }
  EXPECT_TRUE(named);
}

const Words kWords[] = {
    {"message", kCheck, {0, 2}, "message 1 from rank 0 to rank 2: rank 2 has float32 [5], but rank 0 has float32 [4]"},
    {"length", {{"TERN_DIST_TIMEOUT", "20"}}, {0, 1}, "TERN_DIST_CHECK=1"},  // without check mode
    {"late-message", kShort, {0}, "receive from rank 1, message 1, float32 [4]: rank 1"},
    {"facts", {}, {0, 1, 2}, "start: rank 1 has model base, but rank 0 has model tiny"},
    {"stopped", kShort, {1, 2}, "within 1 s"},
    {"absent", {}, {0, 2}, "peer: MPI: not all ranks have reached its start within 1 s"}};

INSTANTIATE_TEST_SUITE_P(Scenarios, FailuresNamed, testing::ValuesIn(kWords), [](const auto& info) {
  return info.param.scenario == "late-message" ? std::string("late_message") : info.param.scenario;
});

}  // namespace
}  // namespace tern::dist

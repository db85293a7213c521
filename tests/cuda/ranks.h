#pragma once
// For tests with several processes: the program starts itself once for each rank, with torchrun's variables. Each rank
// runs a scenario and writes its result to a file.

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <map>

#include "tern/dist/loop/world.h"
#include "tern/tests/cuda/device_test.h"
#include "tern/tests/support/results.h"
#include "tern/tests/support/temporary_folder.h"
#ifdef TERN_STANDIN
#include "tern/tests/emulator/runtime/standin.h"
#endif

namespace tern::dist {

inline void require(bool holds, const std::string& what) { TERN_CHECK(holds, "wrong: ", what); }

/// Repeats f with every order in which a stand-in device may run queued work.
inline void in_all_orders(const std::function<void()>& f) {
#ifdef TERN_STANDIN
  for (const standin::Order& order : standin::kOrders) {
    standin::set_order(order);
    f();
  }
#else
  f();
#endif
}

/// The same number in all ranks, new in every run of the program; TERN_TEST_SEED repeats one.
inline uint64_t shared_seed() { return std::strtoull(std::getenv("TERN_TEST_SEED"), nullptr, 10); }

using Scenarios = std::map<std::string, std::function<void(World&)>>;

/// The exit status of one rank.
inline int run_rank(const std::string& scenario, const Scenarios& scenarios) {
  const Launch launch = detect_launch();
  std::ofstream words(std::string(std::getenv("TERN_TEST_FOLDER")) + "/" + std::to_string(launch.rank));
  try {
#ifdef TERN_STANDIN
    const Device device{DeviceType::kCUDA, std::getenv("TERN_TEST_OWN_DEVICES") ? launch.rank : 0};
#else
    const Device device{DeviceType::kCUDA, launch.rank};
#endif
    World world(launch, device, {.group = with_environment({.timeout_seconds = 60}), .start_seconds = 60});
    scenarios.at(scenario)(world);
    world.finish();
    words << "done over " << world.transport().substr(0, 5) << std::endl;
    return 0;
  } catch (const PeerError& error) {
    words << "peer: " << error.what() << std::endl;
    return 3;
  } catch (const std::exception& error) {
    words << "error: " << error.what() << std::endl;
    return 1;
  }
}

/// Starts the ranks; returns the result of each.
inline std::vector<std::string> run(const std::string& scenario, int ranks,
                                    std::map<std::string, std::string> environment = {}) {
  const test::TemporaryFolder folder;
  int port = 0;
  {
    const TcpStoreServer free_one({"127.0.0.1"}, 0, {0, 1, "test"});
    port = free_one.port();
  }
  if (environment.contains("TERN_DIST_STORE")) environment["TERN_DIST_STORE"] = "file:" + folder.path().string();
  environment["TERN_TEST_SEED"] = std::to_string(fresh_seed());
  std::vector<pid_t> children;
  for (int r = 0; r < ranks; ++r) {
    const pid_t child = fork();
    if (child == 0) {
      setenv("RANK", std::to_string(r).c_str(), 1);
      setenv("WORLD_SIZE", std::to_string(ranks).c_str(), 1);
      setenv("MASTER_ADDR", "127.0.0.1", 1);
      setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
      setenv("OMP_NUM_THREADS", "1", 1);
      for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
      setenv("TERN_TEST_SCENARIO", scenario.c_str(), 1);
      setenv("TERN_TEST_FOLDER", folder.path().c_str(), 1);
      execl("/proc/self/exe", "rank", nullptr);
      _exit(127);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  std::vector<std::string> words;
  for (int r = 0; r < ranks; ++r) {
    std::ifstream file(folder / std::to_string(r));
    words.emplace_back();
    std::getline(file, words.back());
  }
  return words;
}

inline void expect_done(const std::string& scenario, int ranks,
                        const std::map<std::string, std::string>& environment = {}) {
  for (const std::string& word : run(scenario, ranks, environment)) EXPECT_EQ(word, "done over NCCL ");
}
/// With two processes, then with four.
inline void expect_done(const std::string& scenario) {
  for (const int ranks : {2, 4}) expect_done(scenario, ranks);
}

class RanksTest : public testing::Test {
 protected:
  void SetUp() override {
#ifndef TERN_STANDIN
    GTEST_SKIP() << "gpu: needs as many GPUs as ranks: start this program with torchrun's variables";
#endif
  }
};

/// The main() of these programs.
inline int run_program(int argc, char** argv, const Scenarios& scenarios) {
  if (const char* scenario = std::getenv("TERN_TEST_SCENARIO")) return run_rank(scenario, scenarios);
  testing::InitGoogleTest(&argc, argv);
  return run_all_tests(program_invocation_short_name);
}

}  // namespace tern::dist

// One call of CUDA or NCCL fails on one rank of a data-parallel training. Every rank ends, with an error or with the
// numbers of a training in which nothing fails; none waits for the other for ever, and none is ended by a signal.

#include <set>

#include "tern/dist/gradients/sharded_optimizer.h"
#include "tern/tests/cuda/ranks.h"
#include "tern/tests/cuda/small_net.h"

namespace tern::dist {
namespace {

constexpr int kFailing = 1;  // the rank

std::filesystem::path notes() { return std::getenv("TERN_TEST_NOTES"); }
std::string rank_name(int rank) { return "rank " + std::to_string(rank); }

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Four steps of AdamW, the last two of them replayed. Leaves the weights in notes(), and what the rank has called.
void train(World& world, bool shard) {
  Communicator& group = *world.group();
  const Device device = group.device();
  SmallNet net(nn::Scope({.device = device, .generator = Generator(shared_seed())}), 7, 19);
  DataParallel parallel(net, world.group(), {.bucket_bytes = 300, .first_bucket_bytes = 1, .shard = shard});
  ShardedOptimizer optimizer(parallel, {{net.parameters()}}, optim::AdamWOptions{.lr = 1e-2, .capturable = true});
  std::ofstream weights(notes() / rank_name(group.rank()));
  const uint64_t seed = shared_seed() + 1 + static_cast<uint64_t>(group.rank());
  for (const double loss : four_steps(net, optimizer, device, seed)) weights << std::hexfloat << loss << "\n";
  for (const auto& values : values_of(net.parameters()))
    for (const double w : values) weights << std::hexfloat << w << "\n";
  group.barrier();
  if (group.rank() != kFailing) return;
  std::ofstream calls(notes() / "calls");
  for (const auto& [function, count] : standin::counters().calls) calls << function << " " << count << "\n";
}

const Scenarios kScenarios = {
    {"whole", [](World& world) { train(world, false); }},
    {"sharded", [](World& world) { train(world, true); }},
};

class FailedRanks : public RanksTest, public testing::WithParamInterface<std::string> {};

TEST_P(FailedRanks, AllEndAndNoNumberIsWrong) {
  const test::TemporaryFolder folder;
  const std::map<std::string, std::string> environment = {{"TERN_TEST_NOTES", folder.path().string()},
                                                          {"TERN_DIST_TIMEOUT", "20"}};
  expect_done(GetParam(), 2, environment);
  const std::string expected[] = {read(folder / rank_name(0)), read(folder / rank_name(1))};
  ASSERT_FALSE(expected[0].empty());
  std::map<std::string, uint64_t> calls;
  std::ifstream file(folder / "calls");
  std::string name;
  for (uint64_t count; file >> name >> count;) calls[name] = count;
  ASSERT_TRUE(calls.contains("ncclCommInitRank")) << testing::PrintToString(calls);

  std::mt19937_64 random(fresh_seed());
  std::set<std::pair<std::string, uint64_t>> faults;
  for (const auto& [function, count] : calls)
    if (function.starts_with("nccl"))
      faults.insert({{function, 1}, {function, 1 + random() % count}, {function, count}});
  // When all is computed and the ranks take leave: the barrier's call, and the host's wait for it.
  for (const std::string function : {"ncclAllReduce", "cudaEventSynchronize"})
    faults.insert({function, calls[function] + 1});
  for (int i = 0; i < 12; ++i) {  // of CUDA's; each of them has its turn where one process is alone
    const auto& [function, count] = *std::next(calls.begin(), static_cast<int64_t>(random() % calls.size()));
    faults.insert({function, 1 + random() % count});
  }
  std::set<std::string> ended;
  for (const auto& [function, turn] : faults) {
    auto faulty = environment;
    faulty["TERN_TEST_FUNCTION"] = function;
    faulty["TERN_TEST_TURN"] = std::to_string(turn);
    const std::vector<std::string> words = run(GetParam(), 2, faulty);
    SCOPED_TRACE(function + ", call " + std::to_string(turn) + "; rank 0: " + words[0] + "; rank 1: " + words[1]);
    const bool done[] = {words[0].starts_with("done"), words[1].starts_with("done")};
    for (const int rank : {0, 1}) {
      EXPECT_FALSE(words[static_cast<size_t>(rank)].empty()) << "rank " << rank << " ended without a word";
      EXPECT_TRUE(!done[rank] || read(folder / rank_name(rank)) == expected[rank]) << "rank " << rank;
    }
    EXPECT_TRUE(done[0] || !done[1]);
    // Who has failed is known at once, also while groups are being made.
    EXPECT_TRUE(done[0] || words[0].starts_with("peer: rank 1 has ended"));
    if (!done[1]) ended.insert(function);
  }
  for (const std::string function : {"ncclCommInitRank", "ncclBroadcast"})
    EXPECT_TRUE(ended.contains(function)) << function;
  EXPECT_GE(ended.size(), 4u) << testing::PrintToString(ended);
}

INSTANTIATE_TEST_SUITE_P(States, FailedRanks, testing::Values("whole", "sharded"),
                         [](const auto& i) { return i.param; });

}  // namespace
}  // namespace tern::dist

int main(int argc, char** argv) {
  const char *rank = std::getenv("RANK"), *function = std::getenv("TERN_TEST_FUNCTION");
  if (rank && function && std::atoi(rank) == tern::dist::kFailing)
    tern::standin::fail_call(function, std::atoi(std::getenv("TERN_TEST_TURN")), 1);
  return tern::dist::run_program(argc, argv, tern::dist::kScenarios);
}

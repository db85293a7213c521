// Resources of a rank: a context (hundreds of MB of GPU memory) only on the rank's GPU, and a listening port only at
// the address that the other ranks need.

#include <thread>

#include "tern/core/device/backend.h"
#include "tern/core/memory/allocator.h"
#include "tern/core/memory/stream.h"
#include "tern/core/ops/tensor/transfer.h"
#include "tern/dist/gradients/sharded_optimizer.h"
#include "tern/tests/cuda/ranks.h"
#include "tern/tests/cuda/small_net.h"
#include "tern/tests/dist/tcp_stranger.h"

namespace tern::dist {
namespace {

void require_contexts(const std::set<int>& expected, const std::string& when) {
  require(standin::contexts() == expected, when + ": contexts on " + testing::PrintToString(standin::contexts()));
}

/// Work of threads that never chose a device: pinned memory, events, and releasing tensors that other streams used.
void use_from_other_threads(Device device) {
  std::thread([&] {
    Tensor x = ones({1000}, {.dtype = float32}).to(device);
    const HostCopy copy(add(x, x));
    copy.wait();
    require(copy.values()[0] == 2, "copy");
  }).join();
  const Stream side(device);
  Tensor x = ones({1 << 20}, {.device = device});
  x.storage()->record_stream(side.handle());
  std::thread([y = std::exchange(x, Tensor())]() mutable { y = Tensor(); }).join();
  allocator(device).empty_cache();
  Event event(device);
  event.record();
  std::thread([&] { event.done(); }).join();
  std::thread([&] { event.synchronize(); }).join();
  std::thread([e = std::move(event)] {}).join();
}

void train(World& world) {
  Communicator& group = *world.group();
  const Device device = group.device();
  const std::set<int> own = {device.index};
  require_contexts(own, "after the start");
  use_from_other_threads(device);
  require_contexts(own, "after other threads");
  SmallNet net(nn::Scope({.device = device, .generator = Generator(shared_seed())}), 7, 19);
  DataParallel parallel(net, world.group(), {.bucket_bytes = 300, .first_bucket_bytes = 1});
  optim::AdamW optimizer(net.parameters(), {.lr = 1e-2, .capturable = true});
  four_steps(net, optimizer, device, shared_seed() + 1 + static_cast<uint64_t>(group.rank()));
  require_contexts(own, "after the training");
}

/// Listing devices and checking their properties initialises none; device_problem() initialises one.
void ask(World& world) {
  const int own = world.group()->device().index;
  for (int i = 0; i < cuda::listed_device_count(); ++i) require(!cuda::listed_device(i).name.empty(), "name");
  require(cuda::suitable_device_count() == 3, "suitable devices");
  require_contexts({own}, "after the list");
  require(cuda::device_problem(2).empty(), "device 2");
  require_contexts({own, 2}, "after device 2");
}

/// When all ranks are on this machine, all listening sockets of this process are at the loopback address.
void listens(World& world) {
  int sockets = 0;
  for (const Listening& listening : listening_sockets()) {
    ++sockets;
    require(listening.address == "127.0.0.1", "rank 0 listens at " + listening.address);
  }
  require(sockets == (world.group()->rank() == 0 ? 1 : 0), std::to_string(sockets) + " sockets listen");
  require(world.notice().empty(), world.notice());
}

const Scenarios kScenarios = {{"trains", train}, {"asks", ask}, {"listens", listens}};

using Contexts = RanksTest;

TEST_F(Contexts, ARankHasOneOnItsDevice) {
  expect_done("trains", 2, {{"TERN_STANDIN_DEVICES", "2"}, {"TERN_TEST_OWN_DEVICES", "1"}});
}

TEST_F(Contexts, AListOfDevicesStartsNone) {
  expect_done("asks", 2, {{"TERN_STANDIN_DEVICES", "3"}, {"TERN_TEST_OWN_DEVICES", "1"}});
}

TEST_F(Contexts, RanksOnOneMachineUseTheLoopback) {
  expect_done("listens", 2);
  for (const char* address : {"localhost", "192.0.2.1"})  // the second is not an address of this machine
    expect_done("listens", 2, {{"MASTER_ADDR", address}, {"LOCAL_WORLD_SIZE", "2"}});
}

TEST_F(Contexts, RanksMeetWithTheSecretFromTheEnvironment) {
  expect_done("listens", 2, {{"TERN_DIST_SECRET", random_secret()}});
}

}  // namespace
}  // namespace tern::dist

int main(int argc, char** argv) { return tern::dist::run_program(argc, argv, tern::dist::kScenarios); }

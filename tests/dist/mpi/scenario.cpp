// One of several processes in which something fails. failures.cpp starts it through mpirun: SCENARIO FOLDER. Each rank
// writes its errors to FOLDER/<rank>.

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "tern/dist/loop/world.h"
#include "tern/tests/dist/tcp_stranger.h"

namespace tern::dist {
namespace {

void sleep_seconds(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

void together(Communicator& group) {
  Tensor x = ones({3});
  group.all_reduce(x);
}

/// Check mode: each time rank 2 makes a different call. All ranks get an error and continue with the next call.
void disagree(Communicator& group, std::ostream& words) {
  Tensor x = ones({4}), square = ones({2, 2}), half = ones({4}, {.dtype = float16});
  using Calls = std::function<void()>;
  const std::pair<Calls, Calls> pairs[] = {
      {[&] { group.all_reduce(x); }, [&] { group.broadcast(x); }},
      {[&] { group.barrier(); }, [&] { group.all_reduce(x); }},
      {[&] { group.all_reduce(x); }, [&] { group.all_reduce(square); }},
      {[&] { group.all_reduce(x); }, [&] { group.all_reduce(half); }},
      {[&] { group.all_reduce(x); }, [&] { group.all_reduce(x, ReduceOp::kMean); }},
      {[&] { group.broadcast(x); }, [&] { group.broadcast(x, 1); }}};
  for (const auto& [usual, other] : pairs) {
    try {
      (group.rank() == 2 ? other : usual)();
      words << "no error" << std::endl;
    } catch (const PeerError& error) {
      words << error.what() << std::endl;
    }
  }
}

const std::map<std::string, void (*)(Communicator& group)> kScenarios = {
    {"fine", together},
    // rank 1 does not join
    {"late",
     [](Communicator& group) {
       together(group);
       Tensor x = ones({4});
       if (group.rank() == 1) sleep_seconds(2.5);
       group.all_reduce(x, ReduceOp::kMax);
     }},
    {"late-message",
     [](Communicator& group) {
       Tensor x = ones({4});
       if (group.rank() == 0) group.receive(x, 1);
       if (group.rank() != 0) sleep_seconds(2.5);
       together(group);
     }},
    {"late-async",
     [](Communicator& group) {
       Tensor x = ones({100'000}), y = ones({5});
       if (group.rank() == 1) sleep_seconds(2.5);
       Work first = group.all_reduce_async(x), second = group.broadcast_async(y);
       second.wait();
     }},
    {"message",
     [](Communicator& group) {
       Tensor x = ones({4}), y = ones({5});
       if (group.rank() == 0) group.send(x, 2);
       if (group.rank() == 2) group.receive(y, 0);
     }},
    // length mismatch without check mode
    {"length",
     [](Communicator& group) {
       Tensor x = ones({4}), y = ones({5});
       group.all_reduce(group.rank() == 2 ? y : x);
     }},
    {"killed",
     [](Communicator& group) {
       together(group);
       if (group.rank() == 1) std::raise(SIGKILL);
       together(group);
     }},
    {"error",
     [](Communicator& group) {
       together(group);
       if (group.rank() == 1) fail("the disk is full");
       together(group);
     }},
    // stopped like a process in a debugger or on a hanging machine
    {"stopped",
     [](Communicator& group) {
       together(group);
       if (group.rank() == 0) std::raise(SIGSTOP);
       together(group);
     }},
    // ranks of one machine listen only on the loopback
    {"listens",
     [](Communicator& group) {
       int stores = 0;
       for (const Listening& listening : listening_sockets()) {
         if (listening.address != "127.0.0.1") continue;  // a socket of MPI
         const RawConnection raw(listening.port);
         raw.say(framed(hello_of({1, group.size(), "mpi"})));
         stores += raw.hear().find(tcp::kMagic) != std::string::npos;
       }
       TERN_CHECK(stores == (group.rank() == 0 ? 1 : 0), "rank ", group.rank(), " serves ", stores, " stores there");
       together(group);
     }},
};

/// Waits a few seconds until every rank has written something; a rank may be killed or stopped.
void wait_for_words(const std::string& folder, int ranks) {
  for (int tries = 0; tries < 40; ++tries) {
    int written = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      std::error_code error;
      const auto bytes = std::filesystem::file_size(folder + "/" + std::to_string(rank), error);
      written += !error && bytes > 0;
    }
    if (written == ranks) return;
    sleep_seconds(0.1);
  }
}

int run(const std::string& name, const std::string& folder) {
  const Launch launch = detect_launch();
  std::ofstream file(folder + "/" + std::to_string(launch.rank));
  try {
    WorldOptions options;
    options.group = with_environment(options.group);
    options.start_seconds = name == "absent" ? 1 : 60;
    options.facts = name == "facts" && launch.rank == 1 ? "model base" : "model tiny";
    if (name == "absent" && launch.rank == 1) sleep_seconds(2.5);
    World world(launch, cpu, options);
    if (kScenarios.contains(name)) kScenarios.at(name)(*world.group());
    if (name == "disagree") disagree(*world.group(), file);
    world.finish();
    file << "done" << std::endl;
    return 0;
  } catch (const PeerError& error) {
    file << "peer: " << error.what() << std::endl;
    wait_for_words(folder, launch.size);  // mpirun ends all ranks when one ends
    return 3;
  } catch (const std::exception& error) {
    file << "error: " << error.what() << std::endl;
    return 1;
  }
}

}  // namespace
}  // namespace tern::dist

int main(int argc, char** argv) { return argc == 3 ? tern::dist::run(argv[1], argv[2]) : 2; }

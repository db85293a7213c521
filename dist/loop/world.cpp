#include "tern/dist/loop/world.h"

#include <chrono>
#include <cstdlib>
#include <sstream>

#include "tern/dist/collectives/nccl.h"
#include "tern/dist/mpi/mpi_communicator.h"
#include "tern/dist/store/addresses.h"

namespace tern::dist {
namespace {

/// Rank 0 broadcasts it through MPI: the secret, the port, the addresses.
struct Meeting {
  std::string secret;
  int port = 0;
  std::vector<std::string> hosts;

  std::string text() const {
    std::string all = secret + " " + std::to_string(port);
    for (const std::string& host : hosts) all += " " + host;
    return all;
  }
  static Meeting parse(const std::string& text) {
    Meeting meeting;
    std::istringstream in(text);
    in >> meeting.secret >> meeting.port;
    for (std::string host; in >> host;) meeting.hosts.push_back(host);
    return meeting;
  }
};

}  // namespace

struct World::Parts {
  std::unique_ptr<TcpStoreServer> server;  // in rank 0; destroyed last
  std::shared_ptr<mpi::Engine> engine;
  std::shared_ptr<Session> session;

  void start_mpi(const Launch& launch, double seconds) {
    engine = mpi::Engine::start(seconds);
    TERN_CHECK(engine->size() == launch.size && engine->rank() == launch.rank, launch.name, " says that this is rank ",
               launch.rank, " of ", launch.size, ", and MPI (", engine->functions().library(), ") that it is rank ",
               engine->rank(), " of ", engine->size(),
               ": the processes were not started by this MPI; use its mpirun, or srun --mpi=pmix");
  }

  /// With MPI: MPI distributes rank 0's addresses and the secret.
  std::unique_ptr<Store> meet_by_mpi(const Launch& launch, Member& member, double seconds) {
    Meeting meeting;
    member.job = "mpi";
    if (member.rank == 0) {
      member.secret = random_secret();
      const auto addresses = listening_addresses(launch.master_host, launch.one_host);
      server = std::make_unique<TcpStoreServer>(addresses, 0, member);
      meeting = {member.secret, server->port(), server->addresses()};
    }
    meeting = Meeting::parse(engine->broadcast_text(meeting.text(), seconds));
    member.secret = meeting.secret;
    return connect_tcp_store(meeting.hosts, meeting.port, member, seconds);
  }

  /// Connects at the address that the launcher gives.
  std::unique_ptr<Store> meet_at_master(const Launch& launch, const Member& member, double seconds) {
    const std::vector<std::string> hosts = {launch.one_host ? "127.0.0.1" : launch.master_host};
    const auto serve = [&](int port) {
      server = std::make_unique<TcpStoreServer>(listening_addresses(launch.master_host, launch.one_host), port, member);
    };
    if (!launch.master_port_taken) {
      if (member.rank == 0) serve(launch.master_port);
      return connect_tcp_store(server ? server->addresses() : hosts, launch.master_port, member, seconds);
    }
    // Rank 0 takes the first free one of the next ports; the others recognise it by the job's id.
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    std::string problem;
    do {
      for (int port = launch.master_port + 1; port <= launch.master_port + kPortsToTry; ++port) {
        try {
          if (member.rank == 0 && !server) serve(port);
          return connect_tcp_store(server ? server->addresses() : hosts, server ? server->port() : port, member,
                                   server ? seconds : 0.2);
        } catch (const Error& error) {
          problem = error.what();
        }
      }
    } while (std::chrono::steady_clock::now() < end && (member.rank != 0 || server));
    throw PeerError(detail::concatenate("no store of rank 0 was found at ", launch.master_host, ", ports ",
                                        launch.master_port + 1, " to ", launch.master_port + kPortsToTry, ", within ",
                                        seconds, " s; the last answer: ", problem));
  }

  std::unique_ptr<Store> meet(const Launch& launch, Device device, Member& member, double seconds) {
    if (!device.is_cuda()) {
      start_mpi(launch, seconds);
      return meet_by_mpi(launch, member, seconds);
    }
    const char* const chosen = std::getenv("TERN_DIST_STORE");
    if (const std::string word = chosen ? chosen : ""; !word.empty()) {
      TERN_CHECK(word.starts_with("file:") && word.size() > 5, "TERN_DIST_STORE: expected file:FOLDER, got '", word,
                 "'");
      return open_file_store(word.substr(5), member);
    }
    if (!launch.master_host.empty() && launch.master_port > 0 && !launch.job.empty())
      return meet_at_master(launch, member, seconds);
    start_mpi(launch, seconds);
    return meet_by_mpi(launch, member, seconds);
  }
};

World::World(const Launch& launch, Device device, const WorldOptions& options) : parts_(std::make_unique<Parts>()) {
  if (!launch.is_parallel()) {
    group_ = std::make_shared<SingleProcess>();
    return;
  }
  TERN_CHECK(device.is_cuda() || launch.launcher != Launcher::kVariables, "this process was started by ", launch.name,
             " as rank ", launch.rank, " of ", launch.size,
             ", which serves GPUs (NCCL); on the CPU Tern's processes exchange tensors over MPI: start them with "
             "'tern launch --nproc ",
             launch.size, " -- train ...', or 'mpirun -n ", launch.size, " tern train ...'");
  Member member{launch.rank, launch.size, launch.job, launch.secret};
  std::unique_ptr<Store> store = parts_->meet(launch, device, member, options.start_seconds);
  const std::string facts =
      detail::concatenate(options.facts, options.facts.empty() ? "" : "\n", "on ",
                          device.is_cuda() ? "cuda" : "cpu at the level " + std::string(name_of(kernels::cpu_level())),
                          options.group.check ? ", check mode" : "");
  parts_->session = std::make_shared<Session>(std::move(store), member, options.group, facts, options.start_seconds);
  if (parts_->engine) parts_->engine->set_session(parts_->session);
  if (device.is_cuda()) {
    group_ = nccl::make_world_group(parts_->session, device);
    transport_ = nccl::version();
    return;
  }
  group_ = mpi::make_world_group(parts_->engine, parts_->session);
  const std::string library = parts_->engine->functions().library();
  transport_ = "MPI (" + library.substr(0, library.find(',')) + ")";
}

World::~World() = default;

std::string World::notice() const {
  const auto& server = parts_->server;
  if (!server || !parts_->session->member().secret.empty() || are_loopback(server->addresses())) return "";
  return detail::concatenate("the ranks meet at ", server->addresses()[0], " port ", server->port(),
                             " without a secret, so that others in this network could join or disturb the job: set "
                             "TERN_DIST_SECRET to the same random text in all ranks (openssl rand -hex 16)");
}

Store* World::store() const { return parts_->session ? &parts_->session->store() : nullptr; }

void World::finish() {
  if (!parts_->session) return;
  group_->barrier();  // on CUDA all queued work has run after it
  parts_->session->finish();
  if (parts_->engine) parts_->engine->finish(parts_->session->options().timeout_seconds);
}

}  // namespace tern::dist

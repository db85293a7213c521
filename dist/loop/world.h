#pragma once
// Connects the processes of this job.

#include "tern/dist/collectives/communicator.h"
#include "tern/dist/store/rendezvous.h"

namespace tern::dist {

struct WorldOptions {
  GroupOptions group = {};
  /// Time to wait for the other ranks at the start.
  double start_seconds = 120;
  /// Text that must be equal in all ranks (version, model, options, data), one fact per line: compared at the start.
  std::string facts = "";
};

/// At most one per process. All ranks create it, and call finish() at their end: if a World is destroyed without it (by
/// an exception), the others learn that this rank has failed, and the destructor does not wait.
///
///   World world(detect_launch(), device);
///   DataParallel ddp(net, world.group());
///   ...
///   world.finish();
class World {
 public:
  /// A job of one process needs no connection. Otherwise the ranks exchange tensors over MPI on the CPU and over NCCL
  /// on CUDA. On the CPU MPI distributes the store's address; on CUDA the store is TERN_DIST_STORE=file:FOLDER (a
  /// folder that all ranks share), or at MASTER_ADDR, or distributed by MPI. Throws Error if MPI or NCCL is missing or
  /// was not started as the launcher says, and PeerError naming ranks that do not join or whose facts differ.
  World(const Launch& launch, Device device, const WorldOptions& options = {});
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// The group of all ranks.
  const std::shared_ptr<Communicator>& group() const { return group_; }
  /// The transport: "MPI (Open MPI v4.1.4)", "NCCL 2.27.3", "one process".
  const std::string& transport() const { return transport_; }
  /// A safety notice for the user who started the job, in rank 0; "": nothing.
  std::string notice() const;
  /// Null in a job of one process.
  Store* store() const;
  /// Ends the job normally: returns when all ranks have called it.
  void finish();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
  std::shared_ptr<Communicator> group_;
  std::string transport_ = "one process";
};

}  // namespace tern::dist

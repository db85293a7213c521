#pragma once
// The processes of this job, connected.

#include "tern/dist/communicator.h"
#include "tern/dist/rendezvous.h"

namespace tern::dist {

struct WorldOptions {
  GroupOptions group = {};
  /// How long to wait for the other ranks at the start.
  double start_seconds = 120;
  /// What must be the same in all ranks (version, model, options, data), a line each: compared at the start.
  std::string facts = "";
};

/// One in a process, and once. All ranks make it, and call finish() at their end: a World that goes away without it (by
/// an exception) tells the others that this rank has failed, and waits for nobody.
///
///   World world(detect_launch(), device);
///   DataParallel ddp(net, world.group());
///   ...
///   world.finish();
class World {
 public:
  /// A job of one process needs nothing. Otherwise on the CPU the ranks exchange tensors over MPI, on CUDA over NCCL.
  /// The store that they meet at: on the CPU MPI tells where; on CUDA it is TERN_DIST_STORE=file:FOLDER (a folder that
  /// all ranks see), or at MASTER_ADDR, or MPI tells. Throws Error when MPI or NCCL is missing or was not started as
  /// the launcher says, and PeerError naming ranks that do not come or whose facts differ.
  World(const Launch& launch, Device device, const WorldOptions& options = {});
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// Of all ranks.
  const std::shared_ptr<Communicator>& group() const { return group_; }
  /// What the processes exchange over: "MPI (Open MPI v4.1.4)", "NCCL 2.27.3", "one process".
  const std::string& transport() const { return transport_; }
  /// What whoever started the job should know about its safety, of rank 0; "": nothing.
  std::string notice() const;
  /// Null in a job of one process.
  Store* store() const;
  /// Ends the job in order: returns when all ranks have called it.
  void finish();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
  std::shared_ptr<Communicator> group_;
  std::string transport_ = "one process";
};

}  // namespace tern::dist

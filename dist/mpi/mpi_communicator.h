#pragma once
// The CPU's communicator: MPI messages, sums in rank order.

#include "tern/dist/mpi/engine.h"

namespace tern::dist::mpi {

/// The group of all ranks of the engine's job, all of which the session has seen join.
std::shared_ptr<Communicator> make_world_group(std::shared_ptr<Engine> engine, std::shared_ptr<Session> session);

}  // namespace tern::dist::mpi

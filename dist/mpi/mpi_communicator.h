#pragma once
// The group of the CPU: messages of MPI, sums in rank order.

#include "tern/dist/mpi/engine.h"

namespace tern::dist::mpi {

/// The group of all ranks of the engine's job; they have come, as the session knows.
std::shared_ptr<Communicator> make_world_group(std::shared_ptr<Engine> engine, std::shared_ptr<Session> session);

}  // namespace tern::dist::mpi

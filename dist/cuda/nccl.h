#pragma once
// The group of GPUs: NCCL, loaded when it is first needed.

#include "tern/dist/session.h"

namespace tern::dist::nccl {

/// The group of all ranks of the session's job, each on its own GPU. Throws Error when NCCL is missing or does not
/// start. Called by all ranks.
std::shared_ptr<Communicator> make_world_group(std::shared_ptr<Session> session, Device device);
/// "NCCL 2.27.3".
std::string version();

}  // namespace tern::dist::nccl

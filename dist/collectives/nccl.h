#pragma once
// The communicator of GPUs. NCCL is loaded on first use. Defined in dist/cuda, or in dist/no_cuda.

#include "tern/dist/loop/session.h"
#include "tern/kernels/cuda/support/library.h"

namespace tern::dist::nccl {

/// The group of all ranks of the session's job, one GPU each. Throws Error if NCCL is missing or fails to start. Called
/// by all ranks.
std::shared_ptr<Communicator> make_world_group(std::shared_ptr<Session> session, Device device);
/// "NCCL 2.27.3".
std::string version();
/// For `tern info`: where NCCL was found, or why not.
const kernels::cuda::LibraryInfo& library();

}  // namespace tern::dist::nccl

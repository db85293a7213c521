// Replaces dist/cuda in a build without CUDA.

#include "tern/dist/collectives/nccl.h"

#include "tern/core/no_cuda/no_cuda.h"

namespace tern::dist::nccl {

std::shared_ptr<Communicator> make_world_group(std::shared_ptr<Session>, Device) { cuda::fail_without_cuda("NCCL"); }
std::string version() { cuda::fail_without_cuda("NCCL"); }
const kernels::cuda::LibraryInfo& library() { cuda::fail_without_cuda("NCCL"); }

}  // namespace tern::dist::nccl

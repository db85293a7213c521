#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cstdlib>

#include "tern/kernels/base/address_space.h"
#include "tern/models/cli/program.h"

namespace {

/// The main thread's stack grows while it is used, and the system ends the process by SIGSEGV where a limit of the
/// address space (ulimit -v) forbids that. Grows it now, to more than the program uses, so that an allocation is what
/// fails where memory is short. Takes address space alone.
[[gnu::noinline]] void grow_stack() {
  constexpr size_t kBytes = size_t{1} << 20;
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur < 2 * kBytes) return;
  void* const room = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return;
  munmap(room, kBytes);
  volatile char bytes[kBytes];
  bytes[0] = 0;
  static_cast<void>(bytes[0]);
}

}  // namespace

int main(int argc, char** argv) {
  grow_stack();
  // Otherwise each thread takes 64 MiB of addresses for its small blocks, at any time.
  if (tern::kernels::address_space_limit() != INT64_MAX) mallopt(M_ARENA_MAX, 1);
  // One buffer size of cuBLAS, with which cuDNN's recurrent layers give the same bits in every run
  // (kernels/cuda/cudnn/recurrent.h). It must be set before a library of CUDA is loaded.
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  return tern::cli::run_program({argv + 1, argv + argc});
}

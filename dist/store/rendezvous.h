#pragma once
// Finds this process's place in its job from the launcher's environment variables.

#include <functional>
#include <string>

namespace tern::dist {

/// The program that started this process. kVariables: torchrun, or any launcher that sets RANK and WORLD_SIZE.
enum class Launcher { kNone, kVariables, kSlurm, kMpi };

struct Launch {
  Launcher launcher = Launcher::kNone;
  std::string name = "none";  // "torchrun", "Slurm", "mpirun" ...: for messages
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // among the ranks on this machine; selects the GPU
  std::string master_host = "";        // host of rank 0; empty: unknown (MPI can provide it)
  int master_port = 0;
  /// torchrun uses the master's port itself: rank 0 takes one of the next kPortsToTry.
  bool master_port_taken = false;
  /// Equal in all ranks of this job and unique among jobs on the same master; empty: unknown.
  std::string job = "";
  /// TERN_DIST_SECRET: random text known only to the ranks; empty: not set.
  std::string secret = "";
  /// True if the launcher states that all ranks are on this machine.
  bool one_host = false;

  bool is_parallel() const { return size > 1; }
};
inline constexpr int kPortsToTry = 16;
/// 128 bits in base64.
inline constexpr size_t kMinSecretBytes = 22;

/// The value of an environment variable; null when it is not set.
using Environment = std::function<const char*(const char*)>;

/// Checks, in this order: torchrun (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT,
/// TORCHELASTIC_*), Open MPI's mpirun (OMPI_COMM_WORLD_*; mpirun within a Slurm job counts as mpirun, and if RANK and
/// WORLD_SIZE agree with it, both are used), srun (SLURM_PROCID, SLURM_NTASKS, ..., where SLURM_STEP_ID is a step of
/// srun: a batch script and a shell of salloc are one process; the master is the first host of SLURM_NODELIST at port
/// 15000 + the last four digits of the job id, as in Lightning), other MPIs (PMI_RANK, PMI_SIZE). An empty variable
/// counts as not set. Throws Error, which names the variable, on values that are not numbers, out of range or
/// contradictory, and on a TERN_DIST_SECRET of fewer than kMinSecretBytes.
Launch detect_launch(const Environment& environment);
/// detect_launch() with the environment of this process.
Launch detect_launch();

/// The first host of a Slurm node list: "node07" for "node[07-09,12],other".
std::string first_host(const std::string& slurm_list);

/// The number of cores for each of `local_size` processes on this machine: at least 1.
int threads_per_process(int cores, int local_size);

}  // namespace tern::dist

#pragma once
// Which processes make up this job: what the launcher says in the environment.

#include <functional>
#include <string>
#include <vector>

namespace tern::dist {

/// Who started this process. kVariables: torchrun, or another that sets its variables RANK and WORLD_SIZE.
enum class Launcher { kNone, kVariables, kSlurm, kMpi };

struct Launch {
  Launcher launcher = Launcher::kNone;
  std::string name = "none";  // "torchrun", "Slurm", "mpirun" ...: for messages
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // among those on this machine; which GPU to take
  std::string master_host = "";        // where rank 0 is; empty: unknown (MPI can tell)
  int master_port = 0;
  /// torchrun itself has the master's port: rank 0 takes one of the next kPortsToTry.
  bool master_port_taken = false;
  /// The same in all ranks of this job and in no other on the same master; empty: unknown.
  std::string job = "";
  /// TERN_DIST_SECRET: random text that all ranks are given and nobody else knows; empty: not set.
  std::string secret = "";
  /// The launcher says that all ranks are on this machine.
  bool one_host = false;

  bool is_parallel() const { return size > 1; }
};
inline constexpr int kPortsToTry = 16;
/// 128 bits in base64.
inline constexpr size_t kMinSecretBytes = 22;

/// The value of an environment variable; null when it is not set.
using Environment = std::function<const char*(const char*)>;

/// Looks for, in this order: torchrun (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT,
/// TORCHELASTIC_*), Open MPI's mpirun (OMPI_COMM_WORLD_*; mpirun within a Slurm job counts as mpirun, and where RANK
/// and WORLD_SIZE say the same both serve), srun (SLURM_PROCID, SLURM_NTASKS, ...; the master is the first host of
/// SLURM_NODELIST at port 15000 + the last four digits of the job's number, as Lightning has it), other MPIs (PMI_RANK,
/// PMI_SIZE). A variable that is set to the empty word counts as not set. Throws Error on values that are no numbers,
/// out of range or contradict each other, and on a TERN_DIST_SECRET of fewer than kMinSecretBytes, and names the
/// variable.
Launch detect_launch(const Environment& environment);
/// Of this process.
Launch detect_launch();

/// "node07" of "node[07-09,12],other".
std::string first_host(const std::string& slurm_list);

/// The cores of this machine that fall to one of `local_size` processes: at least 1.
int threads_per_process(int cores, int local_size);

}  // namespace tern::dist

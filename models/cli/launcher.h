#pragma once
// Several processes of a program on this machine, started by mpirun and watched.

#include <string>
#include <vector>

namespace tern::cli {

struct LaunchPlan {
  std::string program;                 // path
  std::vector<std::string> arguments;  // of the program
  int processes = 2;
  int threads = 1;        // of each
  std::string logs = "";  // folder, is made; see rank_process.h
  bool quiet = false;
};

/// Runs the processes; their rank 0's stdout and stderr become this one's. The first SIGINT, SIGTERM or SIGUSR1 is
/// passed on to all, once and not before they can end in order; a SIGINT or SIGTERM more than a second after it kills
/// them. So signals may go to this process, to its process group, or to every process of the job. When this process is
/// killed, the others are ended. When a rank fails the others are ended within 10 s. Returns the exit status: 0 when
/// all returned 0; 128 + signal when they ended on one that was passed on; otherwise that of the rank that failed
/// first, whose error has then been written to stderr, once. Throws Error when mpirun is missing, or the folder cannot
/// be written, holds the logs of another job, or has something else than a file where a log belongs.
int launch_processes(const LaunchPlan& plan);

}  // namespace tern::cli

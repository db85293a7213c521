#pragma once
// Starts several processes of a program on this machine through mpirun and supervises them.

#include <string>
#include <vector>

namespace tern::cli {

struct LaunchPlan {
  std::string program;                 // path
  std::vector<std::string> arguments;  // of the program
  int processes = 2;
  int threads = 1;        // per process
  std::string logs = "";  // folder, created; see rank_process.h
};

/// Runs the processes; the stdout and stderr of rank 0 become this process's. The first SIGINT, SIGTERM or SIGUSR1 is
/// forwarded to all, once and not before they can end normally; a SIGINT or SIGTERM more than a second later kills
/// them. So signals may be sent to this process, its process group, or every process of the job. If this process is
/// killed, or a rank fails, the others are ended (after a failure within 10 s). Returns the exit status: 0 if all
/// returned 0; 128 + signal if they ended on a forwarded signal; otherwise that of the rank that failed first, whose
/// error has then been written to stderr, once. Throws Error if mpirun is missing, or if the folder cannot be written,
/// has logs of another job, or has something other than a file in place of a log.
int launch_processes(const LaunchPlan& plan);

}  // namespace tern::cli

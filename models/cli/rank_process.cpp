#include "tern/models/cli/rank_process.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>
#include <utility>

#include "tern/core/check.h"
#include "tern/dist/rendezvous.h"
#include "tern/kernels/kernel.h"

namespace tern::cli {
namespace {

struct Rank {
  int number = -1;  // one process: none
  std::string folder;
  int error_output = STDERR_FILENO;  // where ranks without a folder tell of their last error
};
Rank self;

void redirect(const std::string& path, int to) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  TERN_CHECK(file >= 0, kRankLogs, ": ", path, " cannot be written");
  dup2(file, to);
  close(file);
}

/// Processes on one machine share its cores, unless the launcher gave each its own or somebody chose a number.
void share_cores(const dist::Launch& launch) {
  if (const char* chosen = std::getenv("OMP_NUM_THREADS"); chosen && *chosen) return;
  cpu_set_t own;
  const bool bound = sched_getaffinity(0, sizeof own, &own) == 0 &&
                     CPU_COUNT(&own) < static_cast<int>(std::thread::hardware_concurrency());
  if (!bound) kernels::set_num_threads(dist::threads_per_process(kernels::num_threads(), launch.local_size));
}

}  // namespace

std::string rank_file(const std::string& folder, int rank, const char* extension) {
  return folder + "/rank-" + std::to_string(rank) + extension;
}

void begin_rank() {
  dist::Launch launch;
  try {
    launch = dist::detect_launch();
  } catch (const Error&) {
    return;  // commands that need to know say so
  }
  if (!launch.is_parallel()) return;
  self.number = launch.rank;
  share_cores(launch);
  if (const char* folder = std::getenv(kRankLogs); folder && *folder) {
    self.folder = folder;
    redirect(rank_file(folder, launch.rank, ".log"), STDERR_FILENO);
    redirect(rank_file(folder, launch.rank, launch.rank == 0 ? ".out" : ".log"), STDOUT_FILENO);
  } else if (launch.rank != 0) {
    self.error_output = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    redirect("/dev/null", STDERR_FILENO);
    redirect("/dev/null", STDOUT_FILENO);
  }
}

void report_error(const std::string& line) {
  const bool shared = self.number >= 0 && self.folder.empty();
  dprintf(shared ? self.error_output : STDERR_FILENO, "tern: error: %s%s\n",
          shared ? ("rank " + std::to_string(self.number) + ": ").c_str() : "", line.c_str());
}

void end_rank(int status, const std::string& error, bool of_peer) {
  static bool noted = false;
  if (self.folder.empty() || std::exchange(noted, true)) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::string path = rank_file(self.folder, self.number, ".end"), temporary = path + ".new";
  {
    std::ofstream file(temporary);
    file << status << ' ' << of_peer << ' ' << std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() << '\n'
         << error << '\n';
  }
  std::rename(temporary.c_str(), path.c_str());  // the launcher reads it whole; without it, the log tells the same
}

RankEnd read_rank_end(const std::string& folder, int rank) {
  RankEnd end;
  end.rank = rank;
  std::ifstream file(rank_file(folder, rank, ".end"));
  end.known = static_cast<bool>(file >> end.status >> end.of_peer >> end.nanoseconds);
  file.ignore(1);
  std::getline(file, end.error);
  return end;
}

}  // namespace tern::cli

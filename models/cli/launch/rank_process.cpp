#include "tern/models/cli/launch/rank_process.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "tern/core/io/atomic_file.h"
#include "tern/core/io/file_kind.h"
#include "tern/dist/store/placement.h"
#include "tern/kernels/base/check.h"

namespace tern::cli {
namespace {

struct Rank {
  int number = -1;  // -1: the only process
  std::string folder;
  int error_output = STDERR_FILENO;  // where ranks without a log folder report their fatal error
};
Rank self;

void redirect(int file, int to) {
  dup2(file, to);
  close(file);
}

}  // namespace

int open_log(const std::string& path) {
  detail::refuse_to_write_other_kinds(path);
  // O_NONBLOCK: if the path has become a pipe, open() must not wait for a reader.
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
  TERN_CHECK(file >= 0, path, ": cannot be written: ", std::strerror(errno));
  return file;
}

std::string rank_file(const std::string& folder, int rank, const char* extension) {
  return folder + "/rank-" + std::to_string(rank) + extension;
}

bool begin_rank() {
  dist::Launch launch;
  try {
    launch = dist::detect_launch();
  } catch (const Error&) {
    return false;  // commands that need the launch information report the error
  }
  if (!launch.is_parallel()) return false;
  self.number = launch.rank;
  dist::share_cores(launch);
  if (const char* folder = std::getenv(kRankLogs); folder && *folder) {
    self.folder = folder;
    redirect(open_log(rank_file(folder, launch.rank, ".log")), STDERR_FILENO);
    redirect(open_log(rank_file(folder, launch.rank, launch.rank == 0 ? ".out" : ".log")), STDOUT_FILENO);
  } else if (launch.rank != 0) {
    self.error_output = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    for (const int output : {STDERR_FILENO, STDOUT_FILENO}) redirect(open("/dev/null", O_WRONLY | O_CLOEXEC), output);
  }
  return true;
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
  try {  // atomic, since the launcher reads it; if this fails, the log has the same error
    write_atomically(
        rank_file(self.folder, self.number, ".end"),
        detail::concatenate(status, ' ', of_peer, ' ',
                            std::chrono::duration_cast<std::chrono::nanoseconds>(now).count(), '\n', error, '\n'));
  } catch (const std::exception&) {
  }
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

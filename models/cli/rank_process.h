#pragma once
// This process as one of several: where its output goes, and how it ends. Rank 0 alone writes to the terminal. The
// folder that TERN_RANK_LOGS names (`tern launch` sets it) gets of every rank N
//   rank-N.log   what it writes to stderr and, but for rank 0, to stdout
//   rank-N.end   how it ended
// and of rank 0, whose results the launcher passes on, rank-0.out. Without that folder (plain mpirun, srun) ranks other
// than 0 are silent but for the error that ends them.

#include <string>

namespace tern::cli {

inline constexpr const char* kRankLogs = "TERN_RANK_LOGS";

/// To be called first in main. Of no effect in a job of one process. Returns whether this process is one of several.
bool begin_rank();
/// The line that tells of the error which ends this process: to stderr; with "rank N: " where ranks share a terminal.
void report_error(const std::string& line);
/// To be called last, the first call counts: notes how this rank ends. `error` is "" when there is none; `of_peer`: it
/// only tells that another rank has failed.
void end_rank(int status, const std::string& error, bool of_peer);

/// What end_rank() has noted.
struct RankEnd {
  bool known = false;
  int rank = 0, status = 0;
  bool of_peer = false;
  std::string error;
  long long nanoseconds = 0;  // when, on the machine's clock
};
/// Opens a file of the logs to append to it; what is no regular file is refused. Throws Error.
int open_log(const std::string& path);
std::string rank_file(const std::string& folder, int rank, const char* extension);
RankEnd read_rank_end(const std::string& folder, int rank);

}  // namespace tern::cli

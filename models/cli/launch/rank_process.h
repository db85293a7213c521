#pragma once
// This process as one rank of several: its output and its end. Only rank 0 writes to the terminal. The folder
// TERN_RANK_LOGS (set by `tern launch`) gets for every rank N
//   rank-N.log   its stderr and, except for rank 0, its stdout
//   rank-N.end   how it ended
// and rank-0.out, the results of rank 0, which the launcher forwards. Without that folder (plain mpirun, srun) the
// other ranks are silent except for the error that ends them.

#include <string>

namespace tern::cli {

inline constexpr const char* kRankLogs = "TERN_RANK_LOGS";

/// Must be called first in main. Has no effect in a job of one process. Returns whether this process is one of several.
bool begin_rank();
/// Writes the line of the error that ends this process to stderr; with "rank N: " if ranks share a terminal.
void report_error(const std::string& line);
/// Records how this rank ends; call it last (only the first call counts). `error` is "" if there is none; `of_peer`:
/// the error only reports that another rank has failed.
void end_rank(int status, const std::string& error, bool of_peer);

/// The record that end_rank() wrote.
struct RankEnd {
  bool known = false;
  int rank = 0, status = 0;
  bool of_peer = false;
  std::string error;
  long long nanoseconds = 0;  // time of the end, by the machine's clock
};
/// Opens a log file for appending. Throws Error if it is not a regular file or cannot be opened.
int open_log(const std::string& path);
std::string rank_file(const std::string& folder, int rank, const char* extension);
RankEnd read_rank_end(const std::string& folder, int rank);

}  // namespace tern::cli

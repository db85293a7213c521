#pragma once
// A program of the user as one rank of `tern launch -- PROGRAM ARGUMENTS`: mpirun starts this program, which starts it.
// So its output and its end are in the folder of logs as those of tern's own commands are (rank_process.h).

#include <string>
#include <vector>

namespace tern::cli {

/// The first argument of such a rank; the program and its arguments follow.
inline constexpr const char* kRankProgram = "--rank-program";

/// The program's file: itself if it has a slash, else looked up in PATH. "" if there is none in PATH. Throws Error for
/// a path that cannot be executed.
std::string find_program(const std::string& name);

/// Runs the program, forwards SIGINT, SIGTERM and SIGUSR1 to it, and returns its exit status, 128 + N if signal N ended
/// it. It ends with this process. Its end is recorded (end_rank) with the last words of its log.
int run_rank_program(const std::vector<std::string>& command);

}  // namespace tern::cli

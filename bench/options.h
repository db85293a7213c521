#pragma once
// The command line of a benchmark program.

#include <string>
#include <vector>

#include "tern/bench/benchmark.h"

namespace tern::bench {

/// The time that a comparison compares: that which passes, or that of the process's threads.
enum class Clock { kWall, kCpu };

struct Options {
  std::string program;   // the file of this program
  std::string rows;      // comma-separated
  std::string baseline;  // a program; empty: no comparison
  std::string json;      // a file; empty: none
  double seconds = 0.3;  // of samples of a row
  int rounds = 10;
  double noise_limit = 0.03;
  Clock clock = Clock::kWall;
  bool list = false, serve = false, help = false;
  /// Words of the command line that choose how rows are made: every process of a comparison gets them.
  std::vector<std::string> for_sides;
};

/// The confidence of the intervals of a comparison.
inline constexpr double kConfidence = 0.95;

/// Sets setting() and the number of threads, too. Throws Error for what is unknown or outside its range, and for a
/// device that cannot be used.
Options parse_options(int argc, char** argv, const std::vector<Flag>& flags);
std::string help_text(const std::string& program, const std::vector<Flag>& flags);

/// The rows that --rows names: comma-separated parts of names; with one that starts with "-" not those. Throws Error
/// when no row is left or two rows have one name.
std::vector<Row> chosen_rows(const std::vector<Row>& all, const std::string& wanted);

}  // namespace tern::bench

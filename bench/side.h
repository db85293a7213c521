#pragma once
// The processes of a comparison. One process, which does not time, starts the others with --serve and sends them line
// by line what to do. They answer with one line of JSON each:
//   (start)       {"setting": {...}, "program": ..., "libraries": [...], "rows": [...]}
//   prepare NAME  {"work": {...}} when the row is ready to be timed
//   sample        {"items": ..., "seconds": ..., "cpu_seconds": ...}
// or {"error": ...}. The end of the input ends the process.

#include <sys/types.h>

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tern/bench/options.h"
#include "tern/bench/timing.h"
#include "tern/kernels/base/check.h"

namespace tern::bench {

/// Answers on standard output until standard input ends.
void serve(const std::vector<Row>& rows);

/// What decides the times besides the program: device, CPU level, threads, optimisation.
nlohmann::json describe_setting();

/// A row could not be prepared or timed; the process goes on.
class RowError : public Error {
 public:
  using Error::Error;
};

/// A process that serves. Errors begin with the program's path.
class Side {
 public:
  /// Starts the program and reads its first line. Throws Error when it is no benchmark program. The process and those
  /// that it starts are stopped while it has nothing to do, so that their threads disturb no other side.
  Side(std::string program, const std::vector<std::string>& arguments, Clock clock = Clock::kWall);
  ~Side();
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  /// The first line.
  const nlohmann::json& hello() const { return *hello_; }
  /// The row's work, as JSON; the next samples are of this row.
  nlohmann::json prepare(const std::string& row);
  /// With Clock::kCpu the seconds are those of the processor.
  Sample sample();

 private:
  nlohmann::json ask(const std::string& line);
  nlohmann::json answer(int seconds);
  std::string read_line(int seconds);
  std::string end_text();
  void end();
  int wait_for_end();

  std::string program_, unread_;
  Clock clock_;
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1;
  std::unique_ptr<nlohmann::json> hello_;
};

}  // namespace tern::bench

#pragma once
// What a benchmark program writes about its rows.

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tern/bench/timing.h"

namespace tern::bench {

using Json = nlohmann::json;

/// A file with one JSON object for each row, written as soon as the row is done. The first line describes the machine.
class JsonLines {
 public:
  /// An empty path: nothing is written; "-": to standard output. Throws Error when the file cannot be written.
  explicit JsonLines(const std::string& path);
  void add(const Json& line);

 private:
  std::string path_;
  std::ofstream file_;
};

/// "12.3 us"
std::string time_text(double seconds);

/// Measures the rows one by one and prints a table; returns the number of rows that failed.
int measure_rows(const std::vector<Row>& rows, double seconds, JsonLines& lines);

}  // namespace tern::bench

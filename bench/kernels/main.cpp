// tern-bench-kernels: Google Benchmark's main program. On a GPU it prints a separate table and, if TERN_BENCH_LINES
// names a file, writes one JSON line per benchmark as soon as it is done.

#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "tern/bench/kernels/measure.h"
#include "tern/core/check.h"

namespace tern::bench {
namespace {

using Json = nlohmann::json;

class LineReporter final : public benchmark::BenchmarkReporter {
 public:
  LineReporter() {
    if (const char* path = std::getenv("TERN_BENCH_LINES")) {
      lines_.open(path, std::ios::trunc);
      TERN_CHECK(lines_.is_open(), "TERN_BENCH_LINES: ", path, " cannot be written");
    }
  }

  bool ReportContext(const Context&) override {
    std::printf("%-52s %12s %10s %10s %8s %8s\n", "kernel", "time, us", "GB/s", "TFLOP/s", "share", "budget");
    return true;
  }

  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      std::string name = run.run_name.function_name;
      if (!run.run_name.args.empty()) name += "/" + run.run_name.args;
      Json line = {{"name", name}};
      if (const std::string error = take_error(); !error.empty()) {
        ++failures_;
        line["error"] = error;
        std::printf("%-52s FAILED: %s\n", name.c_str(), error.c_str());
      } else {
        for (const auto& [counter, value] : run.counters) line[counter] = static_cast<double>(value);
        show(name, line);
      }
      if (lines_.is_open()) lines_ << line.dump() << std::endl;
      std::fflush(stdout);
    }
  }

  int failures() const { return failures_; }

 private:
  static std::string number(const Json& line, const char* key, double scale, const char* format) {
    if (!line.contains(key)) return "-";
    char text[32];
    std::snprintf(text, sizeof(text), format, line[key].get<double>() * scale);
    return text;
  }
  /// The budget is a share of the roofline or a rate; rates are printed in TFLOP/s.
  static void show(const std::string& name, Json& line) {
    std::string budget = number(line, "share_budget", 100, "%.0f %%");
    if (line.contains("FLOP/s_budget")) budget = number(line, "FLOP/s_budget", 1e-12, "%.0f T");
    bool met = true;
    if (line.contains("share_budget")) met = line["share"] >= line["share_budget"];
    if (line.contains("FLOP/s_budget")) met = met && line["FLOP/s"] >= line["FLOP/s_budget"];
    if (budget != "-") line["met"] = met;
    std::printf("%-52s %12s %10s %10s %8s %8s%s\n", name.c_str(), number(line, "seconds", 1e6, "%.2f").c_str(),
                number(line, "bytes/s", 1e-9, "%.0f").c_str(), number(line, "FLOP/s", 1e-12, "%.1f").c_str(),
                number(line, "share", 100, "%.1f %%").c_str(), budget.c_str(), met ? "" : "  below");
  }

  std::ofstream lines_;
  int failures_ = 0;
};

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  check_setting();
  if (device().is_cpu()) {
    benchmark::RunSpecifiedBenchmarks();
    return 0;
  }
  LineReporter reporter;
  const size_t count = benchmark::RunSpecifiedBenchmarks(&reporter);
  return count == 0 || reporter.failures() > 0 ? 1 : 0;
}

}  // namespace
}  // namespace tern::bench

int main(int argc, char** argv) {
  try {
    return tern::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tern-bench-kernels: %s\n", error.what());
    return 1;
  }
}

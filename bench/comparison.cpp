#include "tern/bench/comparison.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>

#include "tern/bench/side.h"
#include "tern/bench/statistics.h"
#include "tern/kernels/base/check.h"

namespace tern::bench {
namespace {

namespace fs = std::filesystem;

constexpr int kMinTurns = 2, kMaxTurns = 6;  // of samples in a round; six turns have every order of three sides
enum Who { kNew, kBaseline, kControl };

/// One row in all rounds.
struct Compared {
  Compared(const std::string& name, bool steps) : name(name), steps(steps) {}

  std::string name, problem;
  bool steps;
  std::vector<double> seconds[3];      // of each side, a round each
  std::vector<double> ratio, control;  // of the new program's time to the other's, a round each
};

std::string canonical(const std::string& path) {
  std::error_code unknown;
  const fs::path found = fs::canonical(path, unknown);
  return unknown ? path : found.string();
}

/// Throws Error unless the file can be a benchmark program.
void check_file(const std::string& path) {
  std::error_code unknown;
  const std::string what = "--baseline: " + path;
  TERN_CHECK(fs::exists(path, unknown), what, ": no such file; build the other version in a folder and name its ",
             "benchmark program");
  TERN_CHECK(!fs::is_directory(path, unknown), what, ": is a folder; name the benchmark program in it");
  std::ifstream file(path, std::ios::binary);
  TERN_CHECK(file.get() != '{', what, ": is a stored result, not a program. Times of another moment are not compared ",
             "with those of now: build the other version and name its benchmark program");
  TERN_CHECK(access(path.c_str(), X_OK) == 0, what, ": is no program");
}

bool equal_files(const std::string& a, const std::string& b) {
  std::ifstream one(a, std::ios::binary), other(b, std::ios::binary);
  return one && other && std::equal(std::istreambuf_iterator<char>(one), {}, std::istreambuf_iterator<char>(other), {});
}

/// Throws Error when the times of the two programs could not be compared; prints what limits the comparison.
void check_sides(const Json& mine, const Json& other, const std::string& path) {
  // A side that is not Tern (bench/compare) has neither CPU levels nor a build.
  for (const auto& [name, value] : mine["setting"].items())
    if (const Json found = other["setting"].value(name, value); found != value)
      throw Error(tern::detail::concatenate(
          "--baseline: ", path, " runs with ", name, " = ", found.dump(), ", this program with ", value.dump(),
          name == "cpu_level" ? ": set TERN_CPU_LEVEL to a level that both builds have"
                              : ": build and run both in the same way"));
  const std::string here = mine.value("program", ""), there = other.value("program", "");
  if (here == there) {
    std::fprintf(stderr, "--baseline: %s is this program: a difference can only be noise\n", path.c_str());
    return;
  }
  std::string shared;
  for (const Json& library : mine["libraries"])
    if (std::find(other["libraries"].begin(), other["libraries"].end(), library) != other["libraries"].end())
      shared = library.get<std::string>();
  if (shared.empty()) return;
  TERN_CHECK(!equal_files(here, there), "--baseline: ", path,
             " is a copy of this program and loads the same libraries (", shared,
             "): name the program in the other build's folder");
  std::fprintf(stderr, "--baseline: both programs load %s: changes in it are not compared\n", shared.c_str());
}

std::vector<std::string> names_in(const Json& hello) {
  std::vector<std::string> names;
  for (const Json& name : hello["rows"])
    if (name.is_string()) names.push_back(name.get<std::string>());
  return names;
}

class Run {
 public:
  Run(const Options& options, const std::vector<Row>& rows) : options_(options) {
    check_file(options.baseline);
    const Side mine(options.program, options.for_sides), other(canonical(options.baseline), options.for_sides);
    check_sides(mine.hello(), other.hello(), options.baseline);
    const std::vector<std::string> known = names_in(other.hello());
    for (const Row& row : rows) {
      if (std::find(known.begin(), known.end(), row.name) != known.end())
        compared_.emplace_back(row.name, row.make_steps != nullptr);
      else
        std::printf("%s: the baseline has no such row\n", row.name.c_str());
    }
    const std::vector<std::string> own = names_in(mine.hello());
    for (const std::string& name : known)
      if (std::find(own.begin(), own.end(), name) == own.end())
        std::printf("%s: only the baseline has this row\n", name.c_str());
    TERN_CHECK(!compared_.empty(), "--baseline: ", options.baseline, " has none of the rows");
  }

  void measure() {
    for (int round = 0; round < options_.rounds; ++round) {
      std::fprintf(stderr, "round %d of %d\n", round + 1, options_.rounds);
      std::unique_ptr<Side> sides[3];
      for (const Who who : {kNew, kBaseline, kControl})
        sides[who] = std::make_unique<Side>(who == kBaseline ? canonical(options_.baseline) : options_.program,
                                            options_.for_sides, options_.clock);
      for (Compared& row : compared_)
        if (row.problem.empty()) measure(row, round, sides);
    }
  }

  std::vector<Compared>& rows() { return compared_; }

 private:
  void measure(Compared& row, int round, std::unique_ptr<Side>* sides) {
    try {
      Json work[3];
      for (const Who who : {kNew, kBaseline, kControl}) work[who] = sides[who]->prepare(row.name);
      if (work[kNew] != work[kBaseline])
        throw RowError("the baseline's row is other work: " + work[kBaseline].dump() + ", here " + work[kNew].dump());
      take_turns(row, round, sides);
    } catch (const RowError& error) {
      row.problem = error.what();
    }
  }

  /// One sample of each side in a turn; the order changes with every turn and round.
  void take_turns(Compared& row, int round, std::unique_ptr<Side>* sides) {
    std::vector<Sample> samples[3];
    double spent = 0;
    for (int turn = 0; turn < kMinTurns || (turn < kMaxTurns && spent < 3 * options_.seconds); ++turn) {
      const int first = turn + round, direction = first / 3 % 2 == 0 ? 1 : 2;
      for (int i = 0; i < 3; ++i) {
        const int who = (first + i * direction) % 3;
        samples[who].push_back(sides[who]->sample());
        spent += samples[who].back().seconds;
      }
    }
    for (const Who who : {kNew, kBaseline, kControl})
      row.seconds[who].push_back(seconds_per_item(samples[who], row.steps));
    row.ratio.push_back(ratio_of(samples[kNew], samples[kBaseline], row));
    row.control.push_back(ratio_of(samples[kNew], samples[kControl], row));
  }

  /// Samples of one turn are a pair. Steps may differ, so of those all are put together.
  static double ratio_of(const std::vector<Sample>& one, const std::vector<Sample>& other, const Compared& row) {
    if (row.steps) return seconds_per_item(one, true) / seconds_per_item(other, true);
    std::vector<double> ratios;
    for (size_t i = 0; i < one.size(); ++i) ratios.push_back(one[i].per_item() / other[i].per_item());
    return median(ratios);
  }

  const Options& options_;
  std::vector<Compared> compared_;
};

Json pair_of(const Interval& interval) { return {interval.low, interval.high}; }

/// Prints the row's line; counts its verdict.
void conclude(const Compared& row, const Options& options, JsonLines& lines, std::map<std::string, int>& counts) {
  if (!row.problem.empty()) {
    ++counts["failed"];
    std::printf("%-56s FAILED: %s\n", row.name.c_str(), row.problem.c_str());
    lines.add({{"name", row.name}, {"error", row.problem}});
    return;
  }
  const Interval ratio = median_interval(row.ratio, kConfidence), control = median_interval(row.control, kConfidence);
  const Verdict verdict = verdict_of(ratio, control, options.noise_limit);
  ++counts[name_of(verdict)];
  std::printf("%-56s %11s %11s %7.3f  %.3f - %.3f  %.3f - %.3f  %s\n", row.name.c_str(),
              time_text(median(row.seconds[kNew])).c_str(), time_text(median(row.seconds[kBaseline])).c_str(),
              ratio.middle, ratio.low, ratio.high, control.low, control.high, name_of(verdict));
  lines.add({{"name", row.name},
             {"verdict", name_of(verdict)},
             {"seconds", median(row.seconds[kNew])},
             {"baseline_seconds", median(row.seconds[kBaseline])},
             {"ratio", ratio.middle},
             {"interval", pair_of(ratio)},
             {"control", pair_of(control)},
             {"ratios", row.ratio},
             {"control_ratios", row.control}});
}

}  // namespace

int compare_with_baseline(const Options& options, const std::vector<Row>& rows, JsonLines& lines) {
  Run run(options, rows);
  run.measure();
  std::printf("%-56s %11s %11s %7s  %-13s  %-13s\n", "row", "time", "baseline", "ratio", "interval", "control");
  std::map<std::string, int> counts;
  for (const Compared& row : run.rows()) conclude(row, options, lines, counts);
  const int noisy = counts[name_of(Verdict::kTooNoisy)], slower = counts[name_of(Verdict::kSlower)];
  lines.add({{"counts", counts}, {"rounds", options.rounds}, {"noise_limit", options.noise_limit}});
  std::printf("%zu rows: %d slower, %d faster, %d the same, %d failed", run.rows().size(), slower,
              counts[name_of(Verdict::kFaster)], counts[name_of(Verdict::kSame)], counts["failed"]);
  if (noisy > 0)
    std::printf(", %d without a verdict: the machine is too noisy (the same program differs by more than %g %%)", noisy,
                100 * options.noise_limit);
  std::printf("\n");
  return slower + counts["failed"] > 0 ? 1 : noisy > 0 ? 3 : 0;
}

}  // namespace tern::bench

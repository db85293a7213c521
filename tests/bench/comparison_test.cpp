// Comparisons of benchmark programs. The programs are scripts that answer with written-down times, so that no result
// depends on this machine.

#include "tern/bench/comparison.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tern/tests/errors.h"
#include "tern/tests/support/temporary_folder.h"

namespace tern::bench {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::expect_contains;

struct Script {
  std::string name;
  std::string sample = "echo '{\"items\": 1, \"seconds\": 0.010, \"cpu_seconds\": 0.020}'";  // answers "sample"
  std::string rows = "\"one\", \"two\"";
  std::string work = "{\"bytes\": 8}";
  std::string setting = "{\"device\": \"cpu\", \"cpu_level\": \"v3\", \"threads\": 2, \"tiny\": false}";
  std::string libraries = "";
};

class Comparison : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* row : {"one", "two"}) rows_.push_back({row, {}, [](Work&) { return Call(); }, "", nullptr});
    options_.program = write({.name = "new"});
    options_.rounds = 6;
  }

  std::string write(const Script& s) {
    const std::string path = folder_ / s.name;
    std::ofstream(path) << "#!/bin/bash\n"
                        << "name=" << s.name << " folder=" << folder_.string() << "\n"
                        << "echo \"$name $*\" >>$folder/started\n"
                        << "starts=$(grep -c \"^$name \" $folder/started)\n"
                        << "echo '{\"setting\": " << s.setting << ", \"program\": \"'$0'\", \"libraries\": ["
                        << s.libraries << "], \"rows\": [" << s.rows << "]}'\n"
                        << "while read -r word row; do\n"
                        << "  echo \"$name $word $row\" >>$folder/asked\n"
                        << "  case $word in\n"
                        << "    prepare) current=$row; echo '{\"work\": " << s.work << "}' ;;\n"
                        << "    sample) " << s.sample << " ;;\n"
                        << "  esac\n"
                        << "done\n";
    chmod(path.c_str(), 0755);
    return path;
  }
  static std::string answer(const char* seconds) {
    return std::string("echo '{\"items\": 2, \"seconds\": ") + seconds + ", \"cpu_seconds\": 0.020}'";
  }
  /// Compares with the script; the lines of JSON are in lines_.
  int compare(const Script& baseline) {
    options_.baseline = write(baseline);
    return compare();
  }
  int compare() {
    JsonLines lines(folder_ / "lines");
    testing::internal::CaptureStdout();
    struct Captured {
      ~Captured() { *text = testing::internal::GetCapturedStdout(); }
      std::string* text;
    } const captured{&said_};
    const int status = compare_with_baseline(options_, rows_, lines);
    lines_.clear();
    for (const std::string& line : lines_of("lines")) lines_.push_back(Json::parse(line));
    return status;
  }
  std::string error_with(const Script& baseline) {
    return error_of([&] { compare(baseline); });
  }
  std::string last_line() const {
    const std::string text = said_.substr(0, said_.size() - 1);
    return text.substr(text.rfind('\n') + 1);
  }
  /// The lines of a file in the folder: "started" has the arguments of each start, "asked" the words of each question.
  std::vector<std::string> lines_of(const char* name) const {
    std::ifstream file(folder_ / name);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

  const test::TemporaryFolder temporary_;
  const fs::path& folder_ = temporary_.path();
  Options options_;
  std::vector<Row> rows_;
  std::vector<Json> lines_;
  std::string said_;
};

TEST_F(Comparison, FindsSlowerFasterAndEqualRows) {
  EXPECT_EQ(compare({.name = "old", .sample = answer("0.020")}), 0);  // two items: 10 ms each, as the new program's one
  ASSERT_EQ(lines_.size(), 4u);                                       // the machine, two rows, the end
  EXPECT_EQ(lines_[1]["verdict"], "same");
  EXPECT_EQ(lines_[1]["interval"], Json({1.0, 1.0}));
  EXPECT_EQ(last_line(), "2 rows: 0 slower, 0 faster, 2 the same, 0 failed");

  EXPECT_EQ(compare({.name = "old", .sample = answer("0.016")}), 1);
  EXPECT_EQ(lines_[2]["name"], "two");
  EXPECT_EQ(lines_[2]["verdict"], "slower");
  EXPECT_DOUBLE_EQ(lines_[2]["ratio"].get<double>(), 0.010 / 0.008);
  EXPECT_EQ(last_line(), "2 rows: 2 slower, 0 faster, 0 the same, 0 failed");

  EXPECT_EQ(
      compare({.name = "old", .sample = "[[ $current == one ]] && " + answer("0.040") + " || " + answer("0.020")}), 0);
  EXPECT_EQ(lines_[1]["verdict"], "faster");
  EXPECT_EQ(lines_[2]["verdict"], "same");
  EXPECT_EQ(lines_[3]["counts"]["faster"], 1);
}

// The new program's processes differ by a tenth: the control is one of them in every round, so that only a difference
// of more than twice as much is a verdict.
TEST_F(Comparison, RefusesAVerdictWhereTheMachineIsTooNoisy) {
  options_.program =
      write({.name = "new", .sample = "((starts % 2)) && " + answer("0.020") + " || " + answer("0.022")});
  const Script slower{.name = "old", .sample = answer("0.0192")};  // than that by 15 %
  EXPECT_EQ(compare(slower), 3);
  EXPECT_EQ(lines_[1]["verdict"], "too noisy");
  expect_contains(last_line(),
                  {"2 without a verdict: the machine is too noisy (the same program differs by more than 3 %)"});
  options_.noise_limit = 0.2;
  EXPECT_EQ(compare(slower), 1);
  EXPECT_EQ(lines_[1]["verdict"], "slower");
  options_.noise_limit = 0.03;
  EXPECT_EQ(compare({.name = "old", .sample = answer("0.010")}), 1);  // 2.2 times as slow
  EXPECT_EQ(lines_[1]["verdict"], "slower");
}

TEST_F(Comparison, StartsNewProcessesInEachRoundAndChangesTheOrder) {
  options_.seconds = 100;  // so that a round has all turns
  ASSERT_EQ(compare({.name = "old"}), 0);
  const std::vector<std::string> started = lines_of("started");
  for (const std::string& line : started) expect_contains(line, {"--serve"});
  EXPECT_EQ(started.size(), 2u + 6 * 3);  // two to see whether they can be compared
  // In the turns of one round the baseline is first, second and last equally often.
  std::vector<std::string> samples;
  for (const std::string& line : lines_of("asked"))
    if (line.find(" sample ") != std::string::npos) samples.push_back(line.substr(0, 3));
  ASSERT_EQ(samples.size(), 6u * 2 * 6 * 3);  // rounds, rows, turns, sides
  std::array places = {0, 0, 0};
  for (size_t i = 0; i < 18; ++i) places[i % 3] += samples[i] == "old";
  EXPECT_EQ(places, (std::array{2, 2, 2}));
}

TEST_F(Comparison, ComparesProcessorTimeWhenAsked) {
  options_.clock = Clock::kCpu;  // equal, though the clock's time is not
  EXPECT_EQ(compare({.name = "old", .sample = "echo '{\"items\": 1, \"seconds\": 5, \"cpu_seconds\": 0.020}'"}), 0);
  EXPECT_EQ(lines_[1]["verdict"], "same");
}

TEST_F(Comparison, PassesTheSettingsOn) {
  options_.for_sides = {"--threads=3", "--tiny"};
  compare({.name = "old"});
  for (const std::string& line : lines_of("started")) expect_contains(line, {"--serve --threads=3 --tiny"});
}

TEST_F(Comparison, RowsOfOneProgramAloneAreNamed) {
  EXPECT_EQ(compare({.name = "old", .rows = "\"two\", \"gone\""}), 0);
  expect_contains(said_, {"one: the baseline has no such row", "gone: only the baseline has this row"});
  EXPECT_EQ(last_line().substr(0, 7), "1 rows:");
  expect_contains(error_with({.name = "old", .rows = "\"gone\""}), {"has none of the rows"});
}

TEST_F(Comparison, ARowThatFailsOrIsOtherWorkHasNoVerdict) {
  EXPECT_EQ(compare({.name = "old", .work = "{\"bytes\": 16}"}), 1);
  expect_contains(lines_[1]["error"].get<std::string>(), {"the baseline's row is other work"});
  EXPECT_EQ(compare({.name = "old",
                     .sample = "[[ $current == one ]] && echo '{\"error\": \"no memory\"}' || " + answer("0.020")}),
            1);
  expect_contains(lines_[1]["error"].get<std::string>(), {"no memory"});
  EXPECT_EQ(lines_[2]["verdict"], "same");
  EXPECT_EQ(last_line(), "2 rows: 0 slower, 0 faster, 1 the same, 1 failed");
}

TEST_F(Comparison, ErrorsOfTheFile) {
  const auto error = [&](const std::string& path) {
    options_.baseline = path;
    return error_of([&] { compare(); });
  };
  expect_contains(error(folder_ / "missing"), {"no such file"});
  expect_contains(error(folder_), {"is a folder"});
  std::ofstream(folder_ / "stored.json") << "{\"name\": \"one\", \"seconds\": 1}\n";
  expect_contains(error(folder_ / "stored.json"), {"is a stored result, not a program"});
  std::ofstream(folder_ / "text") << "one\n";
  expect_contains(error(folder_ / "text"), {"is no program"});
  expect_contains(error("/bin/true"), {"is it a benchmark program?"});
  expect_contains(error("/bin/pwd"), {"is it a benchmark program?"});
}

TEST_F(Comparison, ErrorsOfOtherSettings) {
  const auto error = [&](const char* level, int threads) {
    return error_with({.name = "old",
                       .setting = std::string("{\"device\": \"cpu\", \"cpu_level\": \"") + level +
                                  "\", \"threads\": " + std::to_string(threads) + ", \"tiny\": false}"});
  };
  expect_contains(error("v4", 2), {"runs with cpu_level = \"v4\", this program with \"v3\": set TERN_CPU_LEVEL"});
  expect_contains(error("v3", 1), {"runs with threads = 1, this program with 2"});
}

// A copied program loads the libraries of the build that it comes from.
TEST_F(Comparison, RefusesACopyOfTheProgram) {
  const std::string library = "\"/lib/libtern_kernels_v3.so\"";
  options_.program = write({.name = "new", .libraries = library});
  testing::internal::CaptureStderr();
  EXPECT_EQ(compare({.name = "old", .libraries = library}), 0);  // only the program differs
  expect_contains(testing::internal::GetCapturedStderr(), {"both programs load /lib/libtern_kernels_v3.so"});
  fs::copy_file(options_.program, folder_ / "copy");
  options_.baseline = folder_ / "copy";
  test::expect_error([&] { compare(); }, {"is a copy of this program"});
  options_.baseline = options_.program;
  testing::internal::CaptureStderr();
  EXPECT_EQ(compare(), 0);
  expect_contains(testing::internal::GetCapturedStderr(), {"is this program: a difference can only be noise"});
}

TEST_F(Comparison, AProcessThatEndsIsAnError) {
  expect_contains(error_with({.name = "old", .sample = "exit 7"}), {"old: ended with status 7"});
  expect_contains(error_with({.name = "old", .sample = "kill -KILL $$"}), {"old: ended with signal 9"});
  for (const char* bad : {"echo '{\"items\": 0, \"seconds\": 1}'", "echo '{\"seconds\": 1}'",
                          "echo '{\"items\": 1, \"seconds\": \"long\"}'", "echo '{\"items\": 1, \"seconds\": -1}'"})
    expect_contains(error_with({.name = "old", .sample = bad}), {"expected a sample"});
}

}  // namespace
}  // namespace tern::bench

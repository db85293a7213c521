// Comparisons of benchmark programs. The programs are scripts that answer with written-down times, so that no result
// depends on this machine.

#include "tern/bench/comparison.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tern/tests/errors.h"

namespace tern::bench {
namespace {

namespace fs = std::filesystem;
using test::error_of;

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
    std::string name = testing::TempDir() + "tern-comparison-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    for (const char* row : {"one", "two"}) rows_.push_back({row, {}, [](Work&) { return Call(); }, "", nullptr});
    options_.program = write({.name = "new"});
    options_.rounds = 6;
  }
  void TearDown() override { fs::remove_all(folder_); }

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
    const std::string path = folder_ / "lines";
    JsonLines lines(path);
    testing::internal::CaptureStdout();
    struct Captured {
      ~Captured() { *text = testing::internal::GetCapturedStdout(); }
      std::string* text;
    } const captured{&said_};
    const int status = compare_with_baseline(options_, rows_, lines);
    lines_.clear();
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) lines_.push_back(Json::parse(line));
    return status;
  }
  std::string error_with(const Script& baseline) {
    return error_of([&] { compare(baseline); });
  }
  std::string last_line() const {
    const std::string text = said_.substr(0, said_.size() - 1);
    return text.substr(text.rfind('\n') + 1);
  }
  std::vector<std::string> asked() const {
    std::ifstream file(folder_ / "asked");
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

  fs::path folder_;
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

// The new program's processes differ by a tenth: the control is one of them in every round, so no row has a verdict.
TEST_F(Comparison, RefusesAVerdictWhereTheMachineIsTooNoisy) {
  options_.program =
      write({.name = "new", .sample = "((starts % 2)) && " + answer("0.020") + " || " + answer("0.022")});
  const Script much_slower{.name = "old", .sample = answer("0.002")};
  EXPECT_EQ(compare(much_slower), 3);
  EXPECT_EQ(lines_[1]["verdict"], "too noisy");
  EXPECT_NE(
      last_line().find("2 without a verdict: the machine is too noisy (the same program differs by more than 3 %)"),
      std::string::npos)
      << last_line();
  options_.noise_limit = 0.2;
  EXPECT_EQ(compare(much_slower), 1);
  EXPECT_EQ(lines_[1]["verdict"], "slower");
}

TEST_F(Comparison, StartsNewProcessesInEachRoundAndChangesTheOrder) {
  options_.seconds = 100;  // so that a round has all turns
  ASSERT_EQ(compare({.name = "old"}), 0);
  std::ifstream file(folder_ / "started");
  int starts = 0;
  for (std::string line; std::getline(file, line); ++starts) EXPECT_NE(line.find("--serve"), std::string::npos);
  EXPECT_EQ(starts, 2 + 6 * 3);  // two to see whether they can be compared
  // In the turns of one round the baseline is first, second and last equally often.
  std::vector<std::string> samples;
  for (const std::string& line : asked())
    if (line.find(" sample ") != std::string::npos) samples.push_back(line.substr(0, 3));
  ASSERT_EQ(samples.size(), 6u * 2 * 6 * 3);  // rounds, rows, turns, sides
  int places[3] = {0, 0, 0};
  for (size_t i = 0; i < 18; ++i) places[i % 3] += samples[i] == "old";
  EXPECT_EQ(places[0], 2);
  EXPECT_EQ(places[1], 2);
  EXPECT_EQ(places[2], 2);
}

TEST_F(Comparison, ComparesProcessorTimeWhenAsked) {
  options_.clock = Clock::kCpu;  // equal, though the clock's time is not
  EXPECT_EQ(compare({.name = "old", .sample = "echo '{\"items\": 1, \"seconds\": 5, \"cpu_seconds\": 0.020}'"}), 0);
  EXPECT_EQ(lines_[1]["verdict"], "same");
}

TEST_F(Comparison, PassesTheSettingsOn) {
  options_.for_sides = {"--threads=3", "--tiny"};
  compare({.name = "old"});
  std::ifstream file(folder_ / "started");
  for (std::string line; std::getline(file, line);)
    EXPECT_NE(line.find("--serve --threads=3 --tiny"), std::string::npos) << line;
}

TEST_F(Comparison, RowsOfOneProgramAloneAreNamed) {
  EXPECT_EQ(compare({.name = "old", .rows = "\"two\", \"gone\""}), 0);
  EXPECT_NE(said_.find("one: the baseline has no such row"), std::string::npos);
  EXPECT_NE(said_.find("gone: only the baseline has this row"), std::string::npos);
  EXPECT_EQ(last_line().substr(0, 7), "1 rows:");
  EXPECT_NE(error_with({.name = "old", .rows = "\"gone\""}).find("has none of the rows"), std::string::npos);
}

TEST_F(Comparison, ARowThatFailsOrIsOtherWorkHasNoVerdict) {
  EXPECT_EQ(compare({.name = "old", .work = "{\"bytes\": 16}"}), 1);
  EXPECT_NE(lines_[1]["error"].get<std::string>().find("the baseline's row is other work"), std::string::npos);
  EXPECT_EQ(compare({.name = "old",
                     .sample = "[[ $current == one ]] && echo '{\"error\": \"no memory\"}' || " + answer("0.020")}),
            1);
  EXPECT_NE(lines_[1]["error"].get<std::string>().find("no memory"), std::string::npos);
  EXPECT_EQ(lines_[2]["verdict"], "same");
  EXPECT_EQ(last_line(), "2 rows: 0 slower, 0 faster, 1 the same, 1 failed");
}

TEST_F(Comparison, ErrorsOfTheFile) {
  const auto error = [&](const std::string& path) {
    options_.baseline = path;
    return error_of([&] { compare(); });
  };
  EXPECT_NE(error(folder_ / "missing").find("no such file"), std::string::npos);
  EXPECT_NE(error(folder_).find("is a folder"), std::string::npos);
  std::ofstream(folder_ / "stored.json") << "{\"name\": \"one\", \"seconds\": 1}\n";
  EXPECT_NE(error(folder_ / "stored.json").find("is a stored result, not a program"), std::string::npos);
  std::ofstream(folder_ / "text") << "one\n";
  EXPECT_NE(error(folder_ / "text").find("is no program"), std::string::npos);
  EXPECT_NE(error("/bin/true").find("is it a benchmark program?"), std::string::npos);
  EXPECT_NE(error("/bin/pwd").find("is it a benchmark program?"), std::string::npos);
}

TEST_F(Comparison, ErrorsOfOtherSettings) {
  const std::string level = error_with(
      {.name = "old", .setting = "{\"device\": \"cpu\", \"cpu_level\": \"v4\", \"threads\": 2, \"tiny\": false}"});
  EXPECT_NE(level.find("runs with cpu_level = \"v4\", this program with \"v3\": set TERN_CPU_LEVEL"), std::string::npos)
      << level;
  const std::string threads = error_with(
      {.name = "old", .setting = "{\"device\": \"cpu\", \"cpu_level\": \"v3\", \"threads\": 1, \"tiny\": false}"});
  EXPECT_NE(threads.find("runs with threads = 1, this program with 2"), std::string::npos) << threads;
}

// A copied program loads the libraries of the build that it comes from.
TEST_F(Comparison, RefusesACopyOfTheProgram) {
  const std::string library = "\"/lib/libtern_kernels_v3.so\"";
  options_.program = write({.name = "new", .libraries = library});
  testing::internal::CaptureStderr();
  EXPECT_EQ(compare({.name = "old", .libraries = library}), 0);  // only the program differs
  EXPECT_NE(testing::internal::GetCapturedStderr().find("both programs load /lib/libtern_kernels_v3.so"),
            std::string::npos);
  fs::copy_file(options_.program, folder_ / "copy");
  options_.baseline = folder_ / "copy";
  EXPECT_NE(error_of([&] { compare(); }).find("is a copy of this program"), std::string::npos);
  options_.baseline = options_.program;
  testing::internal::CaptureStderr();
  EXPECT_EQ(compare(), 0);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("is this program: a difference can only be noise"),
            std::string::npos);
}

TEST_F(Comparison, AProcessThatEndsIsAnError) {
  const std::string error = error_with({.name = "old", .sample = "exit 7"});
  EXPECT_NE(error.find("old: ended with status 7"), std::string::npos) << error;
  const std::string killed = error_with({.name = "old", .sample = "kill -KILL $$"});
  EXPECT_NE(killed.find("old: ended with signal 9"), std::string::npos) << killed;
  for (const char* bad : {"echo '{\"items\": 0, \"seconds\": 1}'", "echo '{\"seconds\": 1}'",
                          "echo '{\"items\": 1, \"seconds\": \"long\"}'", "echo '{\"items\": 1, \"seconds\": -1}'"})
    EXPECT_NE(error_with({.name = "old", .sample = bad}).find("expected a sample"), std::string::npos) << bad;
}

}  // namespace
}  // namespace tern::bench

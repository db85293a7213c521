// Rows registered in one line each, and what a benchmark program does with them.

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tern/bench/side.h"
#include "tern/core/ops/ops.h"
#include "tern/tests/errors.h"

namespace tern::bench {
namespace {

using Json = nlohmann::json;
using test::expect_contains;

bool twice = false;

Tensor product(const Tensor& a, const Tensor& b) { return matmul(a, b); }

const Rows rows([] {
  add_op(
      "square", [](const Tensor& x) { return square(x); }, Shape{3, 5});
  add_op("product", product, Shape{7, 11}, Shape{11, 13});
  add_op(
      "look-up", [](const Tensor& x, const Tensor& ids) { return index_select(x, 0, ids); }, Input({9, 4}, bfloat16),
      Input({6}, int64, 9));
  add_op_with_backward("product/backward", product, Shape{7, 11}, Shape{11, 13});
  add("kernel", {.bytes = 40}, [] { return Call([] {}); });
  add("fails", {}, []() -> Call { throw Error("no memory"); });
  add_steps("steps", "words", [] { return Step([] { return int64_t{50}; }); });
  if (twice) add("kernel", {}, [] { return Call([] {}); });
});

class Registration : public testing::Test {
 protected:
  /// Runs the program with these arguments; its lines of JSON by the row's name.
  int run(std::vector<std::string> words) {
    const std::string path = testing::TempDir() + "tern-registration-" + std::to_string(getpid());
    words.insert(words.begin(), {"program", "--json", path});
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int status = bench::run(static_cast<int>(argv.size()), argv.data(), flags_);
    out_ = testing::internal::GetCapturedStdout();
    error_ = testing::internal::GetCapturedStderr();
    lines_.clear();
    std::ifstream file(path);
    for (std::string text; std::getline(file, text);)
      if (const Json line = Json::parse(text); line.contains("name")) lines_[line["name"].get<std::string>()] = line;
    std::filesystem::remove(path);
    setting() = {};
    return status;
  }

  std::vector<Flag> flags_;
  std::map<std::string, Json> lines_;
  std::string out_, error_;
};

TEST_F(Registration, OneLineGivesTheTimeAndTheWorkOfAnOp) {
  EXPECT_EQ(run({"--tiny", "--seconds", "0", "--rows=-fails"}), 0) << error_;
  ASSERT_EQ(lines_.size(), 6u);
  for (const auto& [name, line] : lines_) EXPECT_GT(line["seconds"].get<double>(), 0) << name;
  const auto work = [&](const char* row, const char* what) {
    return lines_.at(row).at(what).get<double>() * lines_.at(row).at("seconds").get<double>();
  };
  EXPECT_NEAR(work("square", "bytes/s"), 2 * 15 * 4, 1e-6);
  EXPECT_NEAR(work("product", "bytes/s"), (77 + 143 + 91) * 4, 1e-6);
  EXPECT_NEAR(work("product", "FLOP/s"), 2 * 7 * 11 * 13, 1e-6);
  EXPECT_NEAR(work("look-up", "bytes/s"), 36 * 2 + 6 * 8 + 24 * 2, 1e-6);
  EXPECT_NEAR(work("product/backward", "bytes/s"), 2 * (77 + 143 + 91) * 4, 1e-6);
  EXPECT_NEAR(work("product/backward", "FLOP/s"), 3 * 2 * 7 * 11 * 13, 1e-6);
  EXPECT_NEAR(work("kernel", "bytes/s"), 40, 1e-6);
  EXPECT_EQ(lines_["steps"]["unit"], "words");
  EXPECT_NEAR(work("steps", "per_second"), 1, 1e-9);
  expect_contains(out_, {"words/s"});
}

TEST_F(Registration, ARowThatFailsIsReportedAndTheOthersRun) {
  EXPECT_EQ(run({"--tiny", "--seconds", "0", "--rows", "fails,kernel"}), 1);
  EXPECT_EQ(lines_["fails"]["error"], "no memory");
  EXPECT_TRUE(lines_["kernel"].contains("seconds"));
  expect_contains(out_, {"FAILED: no memory"});
}

TEST_F(Registration, RowsAreListedAndChosen) {
  EXPECT_EQ(run({"--list", "--rows", "product,steps,-backward"}), 0);
  EXPECT_EQ(out_, "product\nsteps\n");
  EXPECT_EQ(run({"--list", "--rows", "nothing"}), 2);
  expect_contains(error_, {"no row matches --rows nothing"});
  twice = true;
  EXPECT_EQ(run({"--list"}), 2);
  expect_contains(error_, {"two rows have the name kernel"});
  twice = false;
}

TEST_F(Registration, ArgumentsAreChecked) {
  const auto error = [&](const std::vector<std::string>& words) {
    EXPECT_EQ(run(words), 2);
    return error_;
  };
  expect_contains(error({"--row", "a"}), {"unknown argument '--row'"});
  expect_contains(error({"--rows"}), {"--rows needs a value"});
  expect_contains(error({"--tiny=1"}), {"--tiny takes no value"});
  expect_contains(error({"--rounds", "5"}), {"--rounds: expected a number from 6"});
  expect_contains(error({"--seconds", "nan"}), {"--seconds: expected a number"});
  expect_contains(error({"--noise", "0.03x"}), {"--noise: expected a number"});
  expect_contains(error({"--clock", "sun"}), {"--clock: expected wall or cpu"});
  expect_contains(error({"--device", "gpu"}), {"gpu"});
  expect_contains(error({"--baseline", "/missing"}), {"--baseline: /missing: no such file"});
  expect_contains(error({"--json", "/missing/file"}), {"--json: /missing/file cannot be written"});
}

TEST_F(Registration, AProgramMayHaveFurtherOptions) {
  std::string width;
  flags_ = {{"--width", "N", "of the layers", [&](const std::string& value) { width = value; }}};
  EXPECT_EQ(run({"--width=12", "--list"}), 0);
  EXPECT_EQ(width, "12");
  EXPECT_EQ(run({"--help"}), 0);
  expect_contains(out_, {"--width N", "--baseline PROGRAM"});
}

/// The lines of JSON with which serve() answers.
std::vector<Json> answers(const std::vector<Row>& served, const std::string& input) {
  std::istringstream in(input);
  std::streambuf* const before = std::cin.rdbuf(in.rdbuf());
  std::cin.clear();
  testing::internal::CaptureStdout();
  serve(served);
  std::cin.rdbuf(before);
  std::vector<Json> lines;
  std::istringstream text(testing::internal::GetCapturedStdout());
  for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
  return lines;
}

TEST_F(Registration, AServedRowIsPreparedAndSampled) {
  setting().tiny = true;
  const std::vector<Row> served = {{"kernel", {.bytes = 40}, [](Work&) { return Call([] {}); }, "", nullptr},
                                   {"steps", {}, nullptr, "words", [] { return Step([] { return int64_t{50}; }); }},
                                   {"fails", {}, [](Work&) -> Call { throw Error("no memory"); }, "", nullptr}};
  const std::vector<Json> lines = answers(
      served, "sample\nprepare kernel\nsample\nprepare fails\nsample\nprepare steps\nsample\nprepare gone\nstop\n");
  setting() = {};
  ASSERT_EQ(lines.size(), 10u);
  EXPECT_EQ(lines[0]["rows"], Json({"kernel", "steps", "fails"}));
  EXPECT_EQ(lines[0]["setting"]["tiny"], true);
  EXPECT_TRUE(std::filesystem::exists(lines[0]["program"].get<std::string>()));
  expect_contains(lines[1]["error"].get<std::string>(), {"no row is prepared"});
  EXPECT_EQ(lines[2]["work"]["bytes"], 40);
  EXPECT_EQ(lines[3]["items"], 1);
  EXPECT_GT(lines[3]["seconds"].get<double>(), 0);
  EXPECT_EQ(lines[4]["error"], "no memory");
  expect_contains(lines[5]["error"].get<std::string>(), {"no row is prepared"});  // not the row before
  EXPECT_EQ(lines[6]["work"]["unit"], "words");
  EXPECT_EQ(lines[7]["items"], 50);
  expect_contains(lines[8]["error"].get<std::string>(), {"there is no row gone"});
  expect_contains(lines[9]["error"].get<std::string>(), {"expected prepare NAME or sample"});
}

TEST_F(Registration, StepsAreCountedByTheirItems) {
  const Row row{"steps", {}, nullptr, "words", [count = int64_t{0}] {
                  return Step([count]() mutable { return ++count % 2 == 0 ? int64_t{10} : int64_t{30}; });
                }};
  setting().tiny = true;
  Timer timer(row);
  const std::vector<Sample> samples = take_samples(timer, 0);
  setting() = {};
  ASSERT_EQ(samples.size(), 3u);
  double items = 0, seconds = 0;
  for (const Sample& sample : samples) {
    items += sample.items;
    seconds += sample.seconds;
  }
  EXPECT_EQ(items, 30 + 10 + 30);
  EXPECT_DOUBLE_EQ(seconds_per_item(samples, true), seconds / items);
}

TEST(Samples, MedianOfCallsAndSumOfSteps) {
  const std::vector<Sample> samples = {{2, 0.2, 0}, {1, 0.4, 0}, {4, 0.1, 0}};  // 0.1, 0.4 and 0.025 each
  EXPECT_DOUBLE_EQ(seconds_per_item(samples, false), 0.1);
  EXPECT_DOUBLE_EQ(seconds_per_item(samples, true), 0.7 / 7);
  test::expect_error([] { seconds_per_item({}, true); }, {"no samples"});
}

}  // namespace
}  // namespace tern::bench

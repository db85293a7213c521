#include "tern/tests/support/results.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tern/tests/support/seed.h"

namespace tern {
namespace {

std::string one_line(std::string text) {
  text = text.substr(0, 300);
  for (char& c : text)
    if (c == '\n' || c == '\t' || c == '\r') c = ' ';
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

std::string name_of(const testing::TestInfo& test) { return std::string(test.test_suite_name()) + "." + test.name(); }

/// Writes each line with one write() to a file opened for appending, so that lines remain when the program is killed.
class Recorder final : public testing::EmptyTestEventListener {
 public:
  explicit Recorder(const std::string& path)
      : file_(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644)) {
    if (file_ < 0) std::fprintf(stderr, "TERN_TEST_RESULTS: %s cannot be written\n", path.c_str());
  }
  ~Recorder() override {
    if (file_ >= 0) close(file_);
  }
  bool works() const { return file_ >= 0; }

  void OnTestIterationStart(const testing::UnitTest& all, int) override {
    add("program", std::to_string(all.test_to_run_count()));
  }
  void OnTestStart(const testing::TestInfo& test) override { add("started", name_of(test)); }
  void OnTestEnd(const testing::TestInfo& test) override {
    const testing::TestResult& result = *test.result();
    if (result.Failed()) {
      add("failed", name_of(test));
    } else if (result.Skipped()) {
      add("skipped", name_of(test), reason_of(result));
    } else {
      add("passed", name_of(test));
      for (int i = 0; i < result.test_property_count(); ++i)
        if (std::string(result.GetTestProperty(i).key()) == "left_out")
          add("partly", name_of(test), result.GetTestProperty(i).value());
    }
  }

 private:
  static std::string reason_of(const testing::TestResult& result) {
    for (int i = 0; i < result.total_part_count(); ++i)
      if (result.GetTestPartResult(i).skipped()) return result.GetTestPartResult(i).message();
    return "";
  }
  void add(const std::string& verdict, const std::string& name, const std::string& reason = "") {
    const std::string line = verdict + "\t" + one_line(name) + "\t" + one_line(reason) + "\n";
    if (write(file_, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
      std::fprintf(stderr, "TERN_TEST_RESULTS: a line could not be written\n");
  }
  int file_;
};

/// Prints with each failure how to draw the same numbers again.
class SeedPrinter final : public testing::EmptyTestEventListener {
 public:
  void OnTestEnd(const testing::TestInfo& test) override {
    if (!test.result()->Failed()) return;
    std::printf("repeat with TERN_TEST_SEED=%llu and --gtest_filter=%s\n",
                static_cast<unsigned long long>(fresh_seed()), name_of(test).c_str());
    std::fflush(stdout);
  }
};

}  // namespace

void left_out(const std::string& reason) { testing::Test::RecordProperty("left_out", reason); }

int run_all_tests(const std::string& name) {
  testing::UnitTest& all = *testing::UnitTest::GetInstance();
  if (GTEST_FLAG_GET(list_tests)) return RUN_ALL_TESTS();
  const char* folder = std::getenv("TERN_TEST_RESULTS");
  bool recorded = true;
  if (folder && !testing::internal::InDeathTestChild()) {
    auto* recorder = new Recorder(std::string(folder) + "/" + name);
    recorded = recorder->works();
    if (recorded)
      all.listeners().Append(recorder);
    else
      delete recorder;
  }
  unsetenv("TERN_TEST_RESULTS");  // programs that a test starts must not record cases
  all.listeners().Append(new SeedPrinter);
  std::printf("TERN_TEST_SEED=%llu\n", static_cast<unsigned long long>(fresh_seed()));
  std::fflush(stdout);
  const int status = RUN_ALL_TESTS();
  if (all.test_to_run_count() == 0) std::fprintf(stderr, "%s: no case was selected\n", name.c_str());
  return status == 0 && recorded && all.test_to_run_count() > 0 ? 0 : 1;
}

}  // namespace tern

#pragma once
// Fixture of the tests of hostile input: a trained run and malicious data.

#include <sys/stat.h>

#include "tern/tests/program/program.h"

namespace tern::program {

inline std::string repeated(int times, const std::string& text) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

/// 200,000 nesting levels.
inline const std::string& deep() {
  static const std::string text = repeated(200'000, "[") + repeated(200'000, "]");
  return text;
}

class HostileTest : public ProgramTest {
 protected:
  /// A run of one step, created once for all tests of this program.
  static void SetUpTestSuite() {
    std::string name = (fs::temp_directory_path() / "tern-hostile-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    trained_ = name;
    write_text(trained_ / "data.csv", easy_csv(40));
    const Result run = Process({"train", "distilbert", "--data", "data.csv", "--max-steps", "1", "--out", "run",
                                "--checkpoint-every", "1", "--quiet"},
                               trained_)
                           .finish();
    ASSERT_EQ(run.status, 0) << run.err;
  }
  static void TearDownTestSuite() { fs::remove_all(trained_); }
  HostileTest() {
    fs::copy(trained_ / "run", file("run"), fs::copy_options::recursive);
    fs::copy(trained_ / "data.csv", file("data.csv"));
  }

  void pipe(const std::string& name) const {
    fs::remove_all(file(name));
    ASSERT_EQ(mkfifo(file(name).c_str(), 0600), 0);
  }
  std::string checkpoint() const {
    return (fs::path("run/checkpoints") / *fs::begin(fs::directory_iterator(file("run/checkpoints"))))
        .filename()
        .string();
  }

  static inline fs::path trained_;
};

}  // namespace tern::program

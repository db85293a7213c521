#pragma once
// Fixture of the tests of hostile input: a trained run and malicious data.

#include <sys/stat.h>

#include <memory>

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
    trained_ = std::make_unique<test::TemporaryFolder>();
    write_text(*trained_ / "data.csv", easy_csv(40));
    const Words train = "train distilbert --data data.csv --max-steps 1 --out run --checkpoint-every 1 --quiet";
    const Result run = Process(train, trained_->path()).finish();
    ASSERT_EQ(run.status, 0) << run.err;
  }
  static void TearDownTestSuite() { trained_.reset(); }
  HostileTest() {
    restore("run");
    restore("data.csv");
  }

  /// Replaces a file or folder by the trained run's; without it, removes it.
  void restore(const std::string& name) const {
    fs::remove_all(file(name));
    if (fs::exists(*trained_ / name)) fs::copy(*trained_ / name, file(name), fs::copy_options::recursive);
  }
  void pipe(const std::string& name) const {
    fs::remove_all(file(name));
    ASSERT_EQ(mkfifo(file(name).c_str(), 0600), 0);
  }
  std::string checkpoint() const { return "run/checkpoints/" + names_in("run/checkpoints")[0]; }

  static inline std::unique_ptr<test::TemporaryFolder> trained_;
};

}  // namespace tern::program

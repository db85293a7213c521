#pragma once
// Running the test programs: each prints its seed and writes the results of its cases to a file for tests/run.sh.

#include <string>

namespace tern {

/// RUN_ALL_TESTS() after InitGoogleTest; returns the program's exit status. A program without cases fails. When the
/// environment variable TERN_TEST_RESULTS names a folder, the file `name` in it gets one line at the start and one at
/// the end of each case, so that a killed program leaves its results:
///   program      number of cases
///   started      CASE
///   passed|failed|skipped   CASE   reason
///   partly       CASE   reason     passed, with the reason given to left_out()
/// The reason of a skip starts with the name of what is missing and a colon (`data: ...`); tests/run.sh lists the
/// names.
int run_all_tests(const std::string& name);

/// Records that the current case leaves something out, and why, in the form of a skip's reason.
void left_out(const std::string& reason);

}  // namespace tern

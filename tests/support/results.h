#pragma once
// How the test programs run: each prints its seed, and writes what became of its cases where tests/run.sh reads it.

#include <string>

namespace tern {

/// RUN_ALL_TESTS() after InitGoogleTest, and the program's exit status; a program without a case fails. Where the
/// environment variable TERN_TEST_RESULTS names a folder, the file `name` in it gets one line for each case when it
/// starts and one when it ends, so that a program that is killed leaves what it did:
///   program      number of cases
///   started      CASE
///   passed|failed|skipped   CASE   reason
///   partly       CASE   reason     passed, with what left_out() was told
/// The reason of a skip starts with the name of what is missing and a colon (`data: ...`); tests/run.sh lists the
/// names.
int run_all_tests(const std::string& name);

/// Says that the case that runs leaves something out, and why, in the form of a skip's reason.
void left_out(const std::string& reason);

}  // namespace tern

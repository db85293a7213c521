// The default main() of the test programs.

#include <errno.h>
#include <gtest/gtest.h>

#include "tern/tests/support/results.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return tern::run_all_tests(program_invocation_short_name);
}

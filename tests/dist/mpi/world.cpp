// main() of the tests that run in several processes.

#include <cerrno>

#include "tern/tests/dist/mpi/world_test.h"
#include "tern/tests/support/results.h"

namespace tern::dist {
namespace {

struct Failures final : testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.failed())
      fprintf(stderr, "rank %d: %s:%d: %s\n", detect_launch().rank, result.file_name(), result.line_number(),
              result.message());
  }
};

/// Returns the exit status: 0 if no test failed on this rank.
int run_tests() {
  const Launch launch = detect_launch();
  if (launch.rank != 0) {  // only rank 0 prints successes
    testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new Failures);
  }
  World all(launch, cpu, {.group = {.timeout_seconds = 60}, .start_seconds = 60});
  world = &all;
  if (size() > 1) {  // all ranks use rank 0's seed
    Tensor seed = from_vector<int64_t>({rank() == 0 ? static_cast<int64_t>(fresh_seed()) : 0}, {1});
    group().broadcast(seed);
    if (rank() != 0) set_test_seed(static_cast<uint64_t>(seed.item<int64_t>()));
  }
  // Rank 0 counts the cases. A case that fails only on another rank makes the program fail.
  std::string name = program_invocation_short_name;  // dist_mpi_NAME_test; its ctest test is dist_mpi_NAME_PROCESSES
  name = name.substr(0, name.rfind("_test")) + "_" + std::to_string(size());
  const int status = rank() == 0 ? run_all_tests(name) : RUN_ALL_TESTS();
  all.finish();
  return status;
}

}  // namespace
}  // namespace tern::dist

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return tern::dist::run_tests();
}

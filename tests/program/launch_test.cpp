// tern launch, and the program as one of several processes. tests/models/launcher_test.cpp tests faulty ranks.

#include "tern/tests/program/program.h"

namespace tern::program {
namespace {

using LaunchTest = ProgramTest;

TEST_F(LaunchTest, ConnectsItsProcesses) {
  if (!has_mpi()) GTEST_SKIP() << "mpi: there is no MPI";
  const Result result = succeeds("launch --nproc 2 --logs logs -- info");
  EXPECT_TRUE(has(result.out, "job: 2 ranks by mpirun, over MPI (Open MPI"));
  const std::vector<std::string> lines = lines_of(result.err);
  ASSERT_EQ(lines.size(), 1u) << result.err;
  EXPECT_TRUE(lines[0].starts_with("launch: 2 processes of ")) << lines[0];
  EXPECT_EQ(listing("logs"), "mpirun.log rank-0.end rank-0.log rank-0.out rank-1.end rank-1.log");
  EXPECT_TRUE(has(read("logs/rank-1.log"), "job: 2 ranks"));
}

TEST_F(LaunchTest, AnErrorOfAllIsOneLine) {
  if (!has_mpi()) GTEST_SKIP() << "mpi: there is no MPI";
  expect_error(tern("launch --nproc 2 --quiet -- info --frobnicate"), 2, {"unknown flag '--frobnicate'"});
  expect_error(tern("launch --nproc 2 --quiet -- info no/such/file"), 1, {"no/such/file"});
}

TEST_F(LaunchTest, WithoutMpirun) {
  const Setting no_path{.in_child = [] { setenv("PATH", "", 1); }};
  const std::string part = has_mpi() ? "apt-get install openmpi-bin" : "libtern_mpi.so";
  expect_error(tern("launch --nproc 2 -- info", no_path), 1, {part});
}

TEST_F(LaunchTest, AnMpirunThatDoesNotNoticeADeadRankIsEnded) {
  if (!has_mpi()) GTEST_SKIP() << "mpi: there is no MPI";
  // A child that is never reaped: Open MPI's mpirun hangs like this if a rank is killed while starting.
  write("fake/mpirun", "#!/bin/sh\nsleep 0.1 &\nexec sleep 100\n");
  fs::permissions(file("fake/mpirun"), fs::perms(0755));
  const std::string path = file("fake").string() + ":" + std::getenv("PATH");
  const Setting setting{.in_child = [&] { setenv("PATH", path.c_str(), 1); }, .seconds = 30};
  const auto start = std::chrono::steady_clock::now();
  expect_error(tern("launch --nproc 2 --quiet -- info", setting), 1, {"a rank was ended by signal"});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15 * test::kPatience));
}

TEST_F(LaunchTest, TheLibraryIsMissing) {
  const Setting other{.in_child = [] { setenv("TERN_MPI_LIBRARY", "/no/such/file.so", 1); }};
  expect_error(tern("launch --nproc 2 -- info", other), 1,
               {"MPI is needed", "/no/such/file.so", "apt-get install libopenmpi-dev"});
}

TEST_F(LaunchTest, TorchrunIsForGpus) {
  const Setting torchrun{.in_child = [] {
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("MASTER_ADDR", "localhost", 1);
    setenv("MASTER_PORT", "29500", 1);
  }};
  const Result result = tern("info --device cpu", torchrun);
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(has(result.err, "'tern launch --nproc 2 -- train ...', or 'mpirun -n 2 tern train ...'"));
}

TEST_F(LaunchTest, WrongUsage) {
  expect_error(tern("launch"), 2, {"--nproc"});
  expect_error(tern("launch --nproc 2"), 2, {"tern launch --nproc 2 -- train"});
  expect_error(tern("launch --nproc 2 --"), 2, {"nothing to start"});
  expect_error(tern("launch --nproc 2 info"), 2, {"'info'"});
  expect_error(tern("launch --nporc 2 -- info"), 2, {"--nproc"});
  expect_error(tern("launch --nproc 2 -- launch"), 2, {"'launch'"});
  succeeds("launch --help");
  EXPECT_EQ(listing("."), "curve");
}

}  // namespace
}  // namespace tern::program

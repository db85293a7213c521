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

/// A program of the user: here a script, and the built program itself.
TEST_F(LaunchTest, StartsAProgramOfTheUser) {
  if (!has_mpi()) GTEST_SKIP() << "mpi: there is no MPI";
  write("ranks", "#!/bin/sh\necho \"$OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE: $1|$2\"\n");
  fs::permissions(file("ranks"), fs::perms(0755));
  const Result own =
      succeeds(Words{"launch", "--nproc", "3", "--quiet", "--logs", "logs", "--", "./ranks", "a b", "-c"});
  EXPECT_EQ(own.out, "0 of 3: a b|-c\n");
  EXPECT_EQ(own.err, "");
  EXPECT_EQ(read("logs/rank-2.log"), "2 of 3: a b|-c\n");
  const Result joined = succeeds(Words{"launch", "--nproc", "2", "--quiet", "--", kProgram, "info"});
  EXPECT_TRUE(has(joined.out, "job: 2 ranks by mpirun, over MPI"));
}

TEST_F(LaunchTest, AFailedProgramOfTheUserIsExplained) {
  if (!has_mpi()) GTEST_SKIP() << "mpi: there is no MPI";
  const struct {
    int status;
    const char *script, *error;
  } cases[] = {{3, "[ $OMPI_COMM_WORLD_RANK = 1 ] && { echo first; echo 'no data' >&2; exit 3; }; sleep 60",
                "rank 1: ended with status 3: no data (its log is "},
               {134,
                // Rank 0 reports rank 1's failure before that has ended; mpirun may send SIGTERM meanwhile.
                "trap '' TERM\n"
                "if [ $OMPI_COMM_WORLD_RANK = 0 ]; then\n"
                "  echo \"terminate called after throwing an instance of 'tern::dist::PeerError'\" >&2\n"
                "  echo '  what():  rank 1 has ended' >&2; touch reported; kill -ABRT $$\n"
                "fi\n"
                "while [ ! -e reported ]; do sleep 0.02; done\n"
                "sleep 0.2; echo '  what():  no shape' >&2; echo 'core dumped' >&2; kill -ABRT $$",
                "rank 1: ended by signal 6 (Aborted): no shape (its log is "},
               {139, "[ $OMPI_COMM_WORLD_RANK = 1 ] && kill -SEGV $$; sleep 60", "rank 1: ended by signal 11"},
               {143, "kill -TERM $$", "ended by signal 15"}};
  for (const auto& c : cases) {
    write("fails", std::string("#!/bin/sh\n") + c.script + "\n");
    fs::permissions(file("fails"), fs::perms(0755));
    SCOPED_TRACE(c.script);
    const Result result = tern("launch --nproc 2 --quiet -- ./fails");
    EXPECT_EQ(result.status, c.status);
    EXPECT_TRUE(has(result.err, c.error));
  }
}

/// The ranks of a program get one signal each and may end by themselves, or are ended by it.
TEST_F(LaunchTest, SignalsReachAProgramOfTheUser) {
  if (!has_mpi()) GTEST_SKIP() << "mpi: there is no MPI";
  for (const bool saves : {true, false}) {
    write("waits", std::string("#!/bin/sh\n") + (saves ? "trap 'echo saved; exit 0' TERM\n" : "") +
                       "echo ready >&2\nwhile :; do sleep 0.05; done\n");
    fs::permissions(file("waits"), fs::perms(0755));
    Process process("launch --nproc 2 --quiet --logs logs -- ./waits", file("."));
    ASSERT_TRUE(process.wait_for("ready"));
    while (!exists("logs/rank-1.log") || read("logs/rank-1.log").empty()) usleep(5000);
    process.send(SIGTERM);
    const Result result = process.finish();
    EXPECT_EQ(result.status, saves ? 0 : 128 + SIGTERM);
    EXPECT_EQ(result.err, "ready\n");
    EXPECT_EQ(read("logs/rank-1.log"), saves ? "ready\nsaved\n" : "ready\n");
    fs::remove_all(file("logs"));
  }
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
  expect_error(tern("launch --nproc 2 -- no_such_program"), 2, {"'no_such_program' is neither train", "./no_such"});
  expect_error(tern("launch --nproc 2 -- ./no_such_program"), 1, {"./no_such_program: cannot be executed", "No such"});
  expect_error(tern("launch --nproc 2 -- ./curve"), 1, {"./curve is a folder, not a program"});
  succeeds("launch --help");
  EXPECT_EQ(listing("."), "curve");
}

}  // namespace
}  // namespace tern::program

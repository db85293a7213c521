#include "tern/dist/store/rendezvous.h"

#include <map>

#include "tern/tests/dist/support.h"

namespace tern::dist {
namespace {

using Variables = std::map<std::string, std::string>;

Launch detect(const Variables& variables) {
  return detect_launch([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

/// launcher, rank, size, local rank and local size.
void expect_place(const Launch& launch, Launcher launcher, const std::vector<int>& numbers) {
  EXPECT_EQ(launch.launcher, launcher);
  EXPECT_EQ((std::vector<int>{launch.rank, launch.size, launch.local_rank, launch.local_size}), numbers);
}

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"GROUP_RANK", "1"},
                             {"MASTER_ADDR", "head"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RUN_ID", "abc"},
                             {"TORCHELASTIC_RESTART_COUNT", "2"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "3"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
const Variables kSlurm = {{"SLURM_PROCID", "6"},
                          {"SLURM_NTASKS", "8"},
                          {"SLURM_LOCALID", "2"},
                          {"SLURM_NODEID", "1"},
                          {"SLURM_NODELIST", "node[07-08]"},
                          {"SLURM_TASKS_PER_NODE", "4(x2)"},
                          {"SLURM_JOB_ID", "1234567"},
                          {"SLURM_STEP_ID", "0"}};

const Variables kPmi = {{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}};
const Variables kByHand = {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "5"}};

TEST(Rendezvous, NothingIsOneProcess) {
  const Launch launch = detect({});
  EXPECT_EQ(launch.launcher, Launcher::kNone);
  EXPECT_EQ(launch.size, 1);
  EXPECT_FALSE(launch.is_parallel());
  EXPECT_EQ(detect({{"RANK", ""}, {"WORLD_SIZE", ""}}).size, 1);
}

TEST(Rendezvous, Torchrun) {
  const Launch launch = detect(kTorchrun);
  expect_place(launch, Launcher::kVariables, {5, 8, 1, 4});
  EXPECT_EQ(launch.name, "torchrun");
  EXPECT_EQ(launch.master_host, "head");
  EXPECT_EQ(launch.master_port, 29500);
  EXPECT_TRUE(launch.master_port_taken);
  // A restart of the same run is another job.
  EXPECT_NE(launch.job, detect(with(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "3"}})).job);
  EXPECT_EQ(launch.job, detect(with(kTorchrun, {{"RANK", "0"}, {"LOCAL_RANK", "0"}})).job);
  // torchrun on the nodes of a Slurm job, or started by mpirun.
  EXPECT_EQ(detect(with(kTorchrun, kSlurm)).rank, 5);
  EXPECT_EQ(detect(with(kTorchrun, kOpenMpi)).rank, 5);
}

TEST(Rendezvous, VariablesByHand) {
  const Launch launch = detect(kByHand);
  expect_place(launch, Launcher::kVariables, {1, 2, 1, 2});
  EXPECT_FALSE(launch.master_port_taken);
  EXPECT_NE(launch.name, "torchrun");
  EXPECT_EQ(detect({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).size, 1);
}

TEST(Rendezvous, OpenMpi) {
  expect_place(detect(kOpenMpi), Launcher::kMpi, {3, 4, 1, 2});
  // In a Slurm job the batch script's variables are also set, but do not describe mpirun's processes.
  expect_place(detect(with(kSlurm, kOpenMpi)), Launcher::kMpi, {3, 4, 1, 2});
  // A script that derives torchrun's variables from mpirun's.
  const Launch both =
      detect(with(kOpenMpi, {{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}}));
  EXPECT_EQ(both.launcher, Launcher::kMpi);
  EXPECT_EQ(both.master_host, "h");
}

TEST(Rendezvous, Slurm) {
  const Launch launch = detect(kSlurm);
  expect_place(launch, Launcher::kSlurm, {6, 8, 2, 4});
  EXPECT_EQ(launch.master_host, "node07");
  EXPECT_EQ(launch.master_port, 15000 + 4567);
  EXPECT_EQ(detect(with(kSlurm, {{"SLURM_JOB_ID", "12"}})).master_port, 15012);
  EXPECT_EQ(detect(with(kSlurm, {{"SLURM_JOB_ID", ""}})).master_port, 12910);
  EXPECT_EQ(detect(with(kSlurm, {{"MASTER_ADDR", "h"}, {"MASTER_PORT", "77"}})).master_port, 77);
}

// Tasks that srun starts from a shell of salloc inherit the job's name; a batch script has every variable but the step.
TEST(Rendezvous, TheStepDecidesWhatIsATaskOfSrun) {
  for (const char* name : {"interactive", "bash", "tern"})
    EXPECT_EQ(detect(with(kSlurm, {{"SLURM_JOB_NAME", name}})).rank, 6) << name;
  for (const char* step : {"1", "17", "4294967279"})
    EXPECT_EQ(detect(with(kSlurm, {{"SLURM_STEP_ID", step}})).size, 8) << step;
  // The batch script, an interactive step, and those that Slurm makes for itself.
  for (const char* step : {"", "4294967280", "4294967290", "4294967291", "4294967294"}) {
    const Launch launch = detect(with(kSlurm, {{"SLURM_STEP_ID", step}, {"SLURM_PROCID", "0"}}));
    EXPECT_EQ(launch.launcher, Launcher::kNone) << step;
    EXPECT_EQ(launch.size, 1) << step;
  }
  // The older name.
  EXPECT_EQ(detect(with(kSlurm, {{"SLURM_STEP_ID", ""}, {"SLURM_STEPID", "0"}})).size, 8);
  EXPECT_EQ(detect({{"SLURM_NTASKS", "4"}}).size, 1);
  // Without srun's variables nothing is checked: those of a batch script may be of any kind.
  EXPECT_EQ(detect(with(kSlurm, {{"SLURM_STEP_ID", ""}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "x"}})).size, 1);
}

TEST(Rendezvous, OtherMpis) { expect_place(detect(kPmi), Launcher::kMpi, {1, 3, 1, 3}); }

TEST(Rendezvous, FirstHost) {
  EXPECT_EQ(first_host("node07"), "node07");
  EXPECT_EQ(first_host("a,b"), "a");
  EXPECT_EQ(first_host("node[07-09,12],other"), "node07");
  EXPECT_EQ(first_host("n[3,5]"), "n3");
  EXPECT_EQ(first_host("r[1-2]n[10-12].x,y"), "r1n10.x");
  EXPECT_EQ(first_host("broken[1-2"), "");
  EXPECT_EQ(first_host(""), "");
}

TEST(Rendezvous, BadValuesNameTheVariable) {
  const std::vector<std::pair<Variables, std::string>> cases = {
      {{{"RANK", "1"}}, "RANK is set and WORLD_SIZE is not"},
      {{{"WORLD_SIZE", "2"}}, "WORLD_SIZE is set and RANK is not"},
      {with(kTorchrun, {{"RANK", "8"}}), "RANK is 8 and WORLD_SIZE 8"},
      {with(kTorchrun, {{"RANK", "-1"}}), "RANK: expected a whole number from 0"},
      {with(kTorchrun, {{"RANK", "one"}}), "got 'one'"},
      {with(kTorchrun, {{"RANK", "1 "}}), "got '1 '"},
      {with(kTorchrun, {{"WORLD_SIZE", "0"}}), "WORLD_SIZE: expected"},
      {with(kTorchrun, {{"WORLD_SIZE", "99999999999999999999"}}), "WORLD_SIZE: expected"},
      {with(kTorchrun, {{"LOCAL_RANK", "4"}}), "LOCAL_RANK is 4 and LOCAL_WORLD_SIZE 4"},
      {with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}}), "LOCAL_WORLD_SIZE is 9"},
      {with(kTorchrun, {{"MASTER_PORT", "0"}}), "MASTER_PORT: expected"},
      {with(kTorchrun, {{"MASTER_PORT", "65536"}}), "MASTER_PORT: expected"},
      {with(kTorchrun, {{"MASTER_ADDR", ""}}), "MASTER_ADDR or MASTER_PORT is not"},
      {with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "4"}}), "OMPI_COMM_WORLD_RANK is 4"},
      {with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", ""}}), "OMPI_COMM_WORLD_SIZE is not"},
      {with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "2"}}), "OMPI_COMM_WORLD_LOCAL_RANK is 2"},
      {with(kOpenMpi, {{"RANK", "0"}, {"WORLD_SIZE", "2"}}), "say rank 0 of 2"},
      {with(kSlurm, {{"SLURM_PROCID", "8"}}), "SLURM_PROCID is 8"},
      {with(kSlurm, {{"SLURM_NTASKS", "x"}}), "SLURM_NTASKS: expected"},
      {with(kSlurm, {{"SLURM_NTASKS", ""}}), "SLURM_NTASKS is not"},
      {with(kSlurm, {{"SLURM_LOCALID", "9"}}), "SLURM_LOCALID is 9"},
      {with(kSlurm, {{"SLURM_STEP_ID", "batch"}}), "SLURM_STEP_ID: expected"},
      {with(kSlurm, {{"SLURM_STEP_ID", "-1"}}), "SLURM_STEP_ID: expected"},
      {with(kSlurm, {{"SLURM_NODELIST", "n[1"}}), "SLURM_NODELIST: expected"},
      {{{"PMI_RANK", "1"}}, "PMI_SIZE is not"},
  };
  for (const auto& [variables, part] : cases) expect_error([&variables = variables] { detect(variables); }, {part});
}

TEST(Rendezvous, OneHostIsWhatTheLauncherSays) {
  EXPECT_FALSE(detect(kTorchrun).one_host);
  EXPECT_TRUE(detect(with(kTorchrun, {{"LOCAL_RANK", "5"}, {"LOCAL_WORLD_SIZE", "8"}})).one_host);
  EXPECT_FALSE(detect(kOpenMpi).one_host);
  EXPECT_TRUE(detect(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}})).one_host);
  EXPECT_FALSE(detect(kSlurm).one_host);
  EXPECT_TRUE(detect(with(kSlurm, {{"SLURM_TASKS_PER_NODE", "8"}})).one_host);
  EXPECT_FALSE(detect(with(kSlurm, {{"SLURM_TASKS_PER_NODE", ""}})).one_host);
  EXPECT_FALSE(detect(kPmi).one_host);
  EXPECT_TRUE(detect(with(kPmi, {{"MPI_LOCALNRANKS", "3"}})).one_host);
  // Without a statement of the launcher one_host stays false.
  EXPECT_FALSE(detect(kByHand).one_host);
}

TEST(Rendezvous, TheSecretOfTheEnvironment) {
  const std::string secret = "0123456789abcdefABCDEF";
  EXPECT_EQ(detect(kTorchrun).secret, "");
  for (const Variables& job : {kTorchrun, kSlurm, kOpenMpi, Variables{}})
    EXPECT_EQ(detect(with(job, {{"TERN_DIST_SECRET", secret}})).secret, secret);
  expect_error(
      [&] {
        detect(with(kTorchrun, {{"TERN_DIST_SECRET", secret.substr(1)}}));
      },
      {"TERN_DIST_SECRET: expected at least 22 random characters"}, {secret.substr(1)});
}

TEST(Rendezvous, ThreadsAreSharedOut) {
  EXPECT_EQ(threads_per_process(8, 2), 4);
  EXPECT_EQ(threads_per_process(7, 2), 3);
  EXPECT_EQ(threads_per_process(2, 4), 1);
  EXPECT_EQ(threads_per_process(0, 0), 1);
}

}  // namespace
}  // namespace tern::dist

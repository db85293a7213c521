#include "tern/dist/store/rendezvous.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "tern/kernels/base/check.h"

namespace tern::dist {
namespace {

constexpr int kMaxRanks = 1 << 20;

/// The environment, with conversions whose errors name the variable.
class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  std::string text(const char* name) const {
    const char* value = environment_(name);
    return value ? value : "";
  }
  bool has(const char* name) const { return !text(name).empty(); }

  std::optional<int> number(const char* name, int minimum, int maximum) const {
    const std::string value = text(name);
    if (value.empty()) return std::nullopt;
    int result = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    TERN_CHECK(error == std::errc() && end == value.data() + value.size() && result >= minimum && result <= maximum,
               name, ": expected a whole number from ", minimum, " to ", maximum, ", got '", value, "'");
    return result;
  }
  int number_or(const char* name, int minimum, int maximum, int otherwise) const {
    return number(name, minimum, maximum).value_or(otherwise);
  }

  /// Rank and size, or nothing if neither is set. Throws Error if only one is.
  std::optional<std::pair<int, int>> place(const char* rank_name, const char* size_name) const {
    if (!has(rank_name) && !has(size_name)) return std::nullopt;
    TERN_CHECK(has(rank_name) && has(size_name), has(rank_name) ? rank_name : size_name, " is set and ",
               has(rank_name) ? size_name : rank_name,
               " is not: a launcher sets both; unset it to train in one process");
    const int size = *number(size_name, 1, kMaxRanks);
    const int rank = *number(rank_name, 0, kMaxRanks);
    TERN_CHECK(rank < size, rank_name, " is ", rank, " and ", size_name, " ", size, ": ranks are counted from 0");
    return std::pair(rank, size);
  }

 private:
  const Environment& environment_;
};

void take_master(const Variables& v, Launch& launch) {
  if (v.has("MASTER_ADDR")) launch.master_host = v.text("MASTER_ADDR");
  if (const auto port = v.number("MASTER_PORT", 1, 65535)) launch.master_port = *port;
}

void check_local(const Launch& launch, const char* rank_name, const char* size_name) {
  TERN_CHECK(launch.local_size <= launch.size, size_name, " is ", launch.local_size, ", more than the ", launch.size,
             " processes of the job");
  TERN_CHECK(launch.local_rank < launch.local_size, rank_name, " is ", launch.local_rank, " and ", size_name, " ",
             launch.local_size, ": ranks are counted from 0");
}

Launch from_variables(const Variables& v, int rank, int size) {
  Launch launch{.launcher = Launcher::kVariables, .name = "torchrun", .rank = rank, .size = size};
  if (!v.has("TORCHELASTIC_RUN_ID")) launch.name = "RANK and WORLD_SIZE";
  launch.local_rank = v.number_or("LOCAL_RANK", 0, kMaxRanks, rank);
  launch.local_size =
      v.number_or("LOCAL_WORLD_SIZE", 1, kMaxRanks, std::max(launch.local_rank + 1, v.has("LOCAL_RANK") ? 1 : size));
  check_local(launch, "LOCAL_RANK", "LOCAL_WORLD_SIZE");
  launch.one_host = v.has("LOCAL_WORLD_SIZE") && launch.local_size == size;
  take_master(v, launch);
  if (size > 1)
    TERN_CHECK(!launch.master_host.empty() && launch.master_port > 0,
               "RANK and WORLD_SIZE are set and MASTER_ADDR or MASTER_PORT is not: rank 0's address is needed");
  launch.master_port_taken = v.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  launch.job = detail::concatenate("torchrun ", v.text("TORCHELASTIC_RUN_ID"), " ",
                                   v.text("TORCHELASTIC_RESTART_COUNT"), " ", launch.master_port);
  return launch;
}

/// An MPI's launcher; the variables with the place on this machine have these names.
Launch from_mpi(const Variables& v, const char* name, std::pair<int, int> place, const char* local_rank,
                const char* local_size) {
  Launch launch{.launcher = Launcher::kMpi, .name = name, .rank = place.first, .size = place.second};
  launch.local_rank = v.number_or(local_rank, 0, kMaxRanks, launch.rank);
  launch.local_size = v.number_or(local_size, 1, kMaxRanks, std::max(launch.size, launch.local_rank + 1));
  check_local(launch, local_rank, local_size);
  launch.one_host = v.has(local_size) && launch.local_size == launch.size;
  take_master(v, launch);
  return launch;
}

/// Tasks on the first node: 4 for "4(x3),2".
int first_number(const std::string& text) { return std::max(1, std::atoi(text.c_str())); }

Launch from_slurm(const Variables& v, int rank, int size) {
  Launch launch{.launcher = Launcher::kSlurm, .name = "Slurm", .rank = rank, .size = size};
  launch.local_rank = v.number_or("SLURM_LOCALID", 0, kMaxRanks, rank);
  const std::string per_node =
      v.text(v.has("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE");
  launch.local_size = std::clamp(per_node.empty() ? size : first_number(per_node), launch.local_rank + 1, size);
  launch.one_host = !per_node.empty() && first_number(per_node) == size;
  TERN_CHECK(launch.local_rank < size, "SLURM_LOCALID is ", launch.local_rank, " and SLURM_NTASKS ", size,
             ": ranks are counted from 0");
  const char* const list_name = v.has("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_NODELIST";
  if (v.has(list_name)) {
    launch.master_host = first_host(v.text(list_name));
    TERN_CHECK(!launch.master_host.empty(), list_name, ": expected a list of hosts such as node[01-04], got '",
               v.text(list_name), "'");
  } else {
    launch.master_host = "127.0.0.1";
  }
  const std::string id = v.text("SLURM_JOB_ID").empty() ? v.text("SLURM_JOBID") : v.text("SLURM_JOB_ID");
  const std::string digits = id.size() > 4 ? id.substr(id.size() - 4) : id;
  const bool is_number =
      !digits.empty() && std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  launch.master_port = is_number ? 15000 + std::atoi(digits.c_str()) : 12910;
  take_master(v, launch);
  launch.job = detail::concatenate("slurm ", id, ".", v.text("SLURM_STEP_ID"), ".", v.text("SLURM_RESTART_COUNT"));
  return launch;
}

/// Only srun's tasks are processes of a parallel job, and only they have the id of a step. The batch script and a shell
/// of salloc have the job's other variables, and each is one process; the job's name says nothing, because the tasks
/// that srun starts from a shell inherit it.
bool is_task_of_step(const Variables& v) {
  constexpr uint32_t kFirstReserved =
      0xFFFFFFF0;  // steps that are none of srun's: the batch script, an interactive one
  const char* const name = v.has("SLURM_STEP_ID") ? "SLURM_STEP_ID" : "SLURM_STEPID";
  const std::string step = v.text(name);
  if (step.empty()) return false;
  uint32_t id = 0;
  const auto [end, error] = std::from_chars(step.data(), step.data() + step.size(), id);
  TERN_CHECK(error == std::errc() && end == step.data() + step.size(), name,
             ": expected the number of a step of srun, got '", step, "'; unset it to train in one process");
  return id < kFirstReserved;
}

Launch detect_place(const Variables& v) {
  const auto open_mpi = v.place("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  if (const auto place = v.place("RANK", "WORLD_SIZE")) {
    if (!open_mpi || v.has("TORCHELASTIC_RUN_ID")) return from_variables(v, place->first, place->second);
    TERN_CHECK(*open_mpi == *place, "RANK and WORLD_SIZE say rank ", place->first, " of ", place->second,
               ", and mpirun's OMPI_COMM_WORLD_RANK and _SIZE rank ", open_mpi->first, " of ", open_mpi->second,
               ": unset those that are left from elsewhere");
  }
  if (open_mpi) return from_mpi(v, "mpirun", *open_mpi, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
  if (v.has("SLURM_PROCID") && is_task_of_step(v)) {
    const char* const size_name = v.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    if (const auto place = v.place("SLURM_PROCID", size_name)) return from_slurm(v, place->first, place->second);
  }
  if (const auto place = v.place("PMI_RANK", "PMI_SIZE"))
    return from_mpi(v, "MPI", *place, "MPI_LOCALRANKID", "MPI_LOCALNRANKS");
  return {};
}

}  // namespace

Launch detect_launch(const Environment& environment) {
  const Variables v(environment);
  Launch launch = detect_place(v);
  launch.secret = v.text("TERN_DIST_SECRET");
  TERN_CHECK(launch.secret.empty() || launch.secret.size() >= kMinSecretBytes, "TERN_DIST_SECRET: expected at least ",
             kMinSecretBytes, " random characters, the same in all ranks of the job (openssl rand -hex 16), got ",
             launch.secret.size());
  return launch;
}

Launch detect_launch() {
  return detect_launch([](const char* name) { return static_cast<const char*>(std::getenv(name)); });
}

std::string first_host(const std::string& list) {
  std::string host;
  for (size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      host += list[i];
      continue;
    }
    const size_t end = list.find(']', i);
    if (end == std::string::npos) return "";
    const size_t number_end = list.find_first_of("-,]", i);
    host += list.substr(i + 1, number_end - i - 1);
    i = end;
  }
  return host;
}

int threads_per_process(int cores, int local_size) { return std::max(1, cores / std::max(1, local_size)); }

}  // namespace tern::dist

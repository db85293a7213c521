// `tern train` in several processes: equal losses to one process with the joined batch, one run folder, and the results
// of stopping, killing or failing ranks.

#include "tern/core/io/safetensors.h"
#include "tern/tests/core/core_test.h"
#include "tern/tests/program/resume.h"
#include "tern/tests/support/seed.h"

namespace tern::program {
namespace {

class LaunchTrainTest : public InterruptedRuns {
 protected:
  LaunchTrainTest() { unequal_ = unequal_ + "model_state_bytes model_state_bytes_expected"; }
  void SetUp() override {
    if (!has_mpi()) GTEST_SKIP() << "mpi: there is no MPI";
  }

  static Words texts(const std::string& out, const Words& more = {}) {
    return InterruptedRuns::texts(out, with_defaults("--epochs 3 --checkpoint-every 5", more));
  }
  Words launched(int processes, const Words& command) {
    const std::string logs = "logs-" + std::to_string(++launches_);
    return "launch --quiet --threads 1 --nproc " + std::to_string(processes) + Words{"--logs", logs, "--"} + command;
  }
  Result launch(int processes, const Words& command) { return tern(launched(processes, command)); }

  /// Compares all numbers of metrics.jsonl, and all weights.
  void expect_near(const std::string& run, const std::string& reference, double tolerance) const {
    const std::vector<Json> got = history(run), want = history(reference);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].size(), want[i].size()) << got[i] << want[i];
      for (const auto& [name, value] : want[i].items()) {
        if (!value.is_number()) {
          EXPECT_EQ(got[i].at(name), value);
          continue;
        }
        const double limit = tolerance * std::max(1.0, std::abs(value.get<double>()));
        ASSERT_NEAR(got[i].at(name).get<double>(), value.get<double>(), limit) << name << " in " << want[i];
      }
    }
    const StateView a = load_safetensors(file(run + "/model.safetensors")).tensors,
                    b = load_safetensors(file(reference + "/model.safetensors")).tensors;
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      SCOPED_TRACE(a[i].name);
      // softmax does not depend on the keys' bias: its gradient is rounding errors, which Adam makes whole steps of.
      test::expect_near(a[i].tensor, b[i].tensor, a[i].name.ends_with("key.bias") ? 0.1 : tolerance * 10);
    }
  }

  /// The processes that run in this test's folder: launcher, mpirun, ranks.
  std::vector<pid_t> processes() const {
    std::vector<pid_t> found;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator("/proc", error))
      if (fs::read_symlink(entry.path() / "cwd", error) == folder_ && !error)
        found.push_back(std::stoi(entry.path().filename().string()));
    return found;
  }
  /// Waits for the process of a rank in this test's folder and returns it.
  pid_t process_of(int rank) const {
    const std::string wanted = "OMPI_COMM_WORLD_RANK=" + std::to_string(rank);
    for (int i = 0; i < 3000 * test::kPatience; ++i, usleep(10'000))
      for (const pid_t process : processes()) {
        std::ifstream file("/proc/" + std::to_string(process) + "/environ", std::ios::binary);
        for (std::string variable; std::getline(file, variable, '\0');)
          if (variable == wanted) return process;
      }
    return -1;
  }
  /// The part of mpirun's command line for a rank that runs the program in a folder.
  std::string one_rank(const std::string& folder, const Words& arguments) const {
    std::string line = " -n 1 --wdir " + file(folder).string() + " " + kProgram;
    for (const std::string& word : arguments) line += " " + word;
    return line;
  }
  /// What mpirun writes when both ranks fail.
  std::string mpirun(const std::string& first, const std::string& second) const {
    const std::string command = "timeout 60 mpirun --allow-run-as-root --oversubscribe" + first + " :" + second;
    EXPECT_NE(system((command + " >" + file("mpirun.log").string() + " 2>&1").c_str()), 0);
    return read("mpirun.log");
  }
  static void expect_stopped(const Result& result, int status, const std::string& out) {
    EXPECT_EQ(result.status, status) << result.err;
    EXPECT_FALSE(has(result.err, "tern: error"));
    EXPECT_TRUE(has(result.err, "tern resume " + out));
  }

  int launches_ = 0;
};

TEST_F(LaunchTrainTest, IsOneProcessWithTheJoinedBatch) {
  // 36 rows make 18 batches of 2: the last step of an epoch has fewer batches than ranks.
  succeeds(texts("joined", "--batch-size 2 --accumulate 4"));
  const Result four = succeeds(launched(4, texts("four", "--batch-size 2")));
  expect_near("four", "joined", 1e-5);
  EXPECT_EQ(lines_of(four.out).size(), 1u) << four.out;
  EXPECT_TRUE(has(four.err, "in each of 4 processes, over MPI"));
  EXPECT_EQ(listing("four"), listing("joined"));
  EXPECT_EQ(listing("four/checkpoints"), listing("joined/checkpoints"));
  // Packed batches have different numbers of sequences; there are fewer validation and test rows than ranks.
  const Words packed = "--batch-tokens 40 --optimizer sgd --ema 0.9";
  succeeds(texts("packed", packed + "--accumulate 5"));
  const Result five = succeeds(launched(5, texts("five", packed)));
  expect_near("five", "packed", 1e-5);
}

/// Steps so small that they change no weight: what is left of the number of ranks is the evaluation of epochs and test,
/// and its bits are the same.
TEST_F(LaunchTrainTest, EvaluationHasTheSameBitsForAnyNumberOfRanks) {
  const auto evaluations = [&](const std::string& run) {
    std::vector<Json> lines;
    for (const Json& line : metrics(run))
      for (const char* name : {"val_loss", "val_accuracy", "test_loss", "test_accuracy"})
        if (line.contains(name)) lines.push_back({name, line.at(name)});
    return lines;
  };
  const Words frozen = "--optimizer sgd --lr 1e-44 --weight-decay 0 --batch-size 1 --split 0.2/0.4/0.4";
  const Words digits =
      "train vit --data digits --max-steps 1 --optimizer sgd --lr 1e-44 --weight-decay 0 --threads 1 --out ";
  for (const bool images : {false, true}) {
    const std::string name = images ? "images-" : "texts-";
    for (int ranks = 1; ranks <= 3; ++ranks) {
      const std::string run = name + std::to_string(ranks);
      const Words train = images ? digits + Words(run) : texts(run, frozen);
      succeeds(ranks == 1 ? train : launched(ranks, train));
      EXPECT_GE(evaluations(run).size(), 4u);
      EXPECT_EQ(evaluations(run), evaluations(name + "1")) << ranks;
    }
  }
}

TEST_F(LaunchTrainTest, ImagesInHalfPrecision) {  // fixed seed: Adam makes whole steps of rounding errors
  const auto images = [](const std::string& out, const std::string& batch) {
    return Words("train vit --data digits --max-steps 12 --mixup 0 --dtype fp16 --seed 7 --threads 1 --out " + out +
                 " --batch-size " + batch);
  };
  succeeds(images("joined", "32"));
  const Result two = succeeds(launched(2, images("two", "16")));
  expect_near("two", "joined", 1e-3);  // 16-bit products of other shapes
}

TEST_F(LaunchTrainTest, ARankThatIsKilledAndTheRunAgain) {
  const Words arguments = "--batch-size 2 --ema 0.9", again = arguments + "--resume auto";
  succeeds(launched(2, texts("whole", arguments)));
  std::mt19937_64 random = fresh_random();
  int kills = 0;
  for (int attempt = 0; attempt < 3; ++attempt) {
    Process job(launched(2, texts("killed", again)), folder_);
    const pid_t rank = process_of(static_cast<int>(random() % 2));
    ASSERT_GT(rank, 0);
    if (attempt > 0) {
      ASSERT_TRUE(job.wait_for("step "));
    }
    usleep(static_cast<useconds_t>(random() % 100'000));
    kill(rank, SIGKILL);
    const auto start = std::chrono::steady_clock::now();
    const Result result = job.finish();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20 * test::kPatience));
    kills += result.status != 0;
    if (result.status == 0) break;
    EXPECT_TRUE(has(result.err, "tern: error: "));
  }
  EXPECT_GT(kills, 0);
  succeeds(launched(2, texts("killed", again)));
  expect_same("killed", "whole");
}

TEST_F(LaunchTrainTest, ASignalToOneRankStopsAll) {
  succeeds(launched(2, texts("whole", "--batch-size 2")));
  for (const bool to_all : {false, true}) {
    const int number = to_all ? SIGUSR1 : SIGTERM, status = to_all ? 75 : 143;
    const std::string out = to_all ? "all" : "one";
    Process job(launched(2, texts(out, "--batch-size 2")), folder_);
    ASSERT_TRUE(job.wait_for("step "));
    if (to_all) {
      for (int i = 0; i < 20; ++i, usleep(5000)) job.send(number);  // several SIGUSR1 count as one
    } else {
      kill(process_of(1), number);
    }
    const Result stopped = job.finish();
    if (stopped.status == 0) continue;  // it had already ended
    expect_stopped(stopped, status, out);
    succeeds(launched(2, resume(out)));
    expect_same(out, "whole");
  }
}

/// The test after training is a part of the run for all ranks, and so is its end.
TEST_F(LaunchTrainTest, ASignalToOneRankInTheTest) {
  write("many.csv", easy_csv(6000));
  const Words few = "--data many.csv --epochs 1 --batch-size 10 --split 40/20/5940";
  const auto run = [&](const std::string& out) { return InterruptedRuns::texts(out, few); };
  succeeds(launched(2, run("whole")));
  int stops = 0;
  for (int attempt = 0; attempt < 5 && stops < 2; ++attempt) {
    fs::remove_all(file("cut"));
    Process job(launched(2, run("cut")), folder_);
    const pid_t rank = process_of(attempt % 2);
    ASSERT_TRUE(job.wait_for("epoch 1: validation"));
    kill(rank, SIGUSR1);
    const Result stopped = job.finish();
    if (stopped.status == 0) continue;  // it had already ended
    ++stops;
    expect_stopped(stopped, 75, "cut");
    EXPECT_EQ(checkpoints("cut").size(), 1u);
    EXPECT_TRUE(weights("cut") == weights("whole"));
    EXPECT_FALSE(has(succeeds(launched(2, resume("cut"))).err, "epoch 1"));
    EXPECT_EQ(history("cut"), history("whole"));
    const auto before = contents("cut");
    EXPECT_TRUE(has(succeeds(launched(2, resume("cut"))).err, "cut is finished"));
    EXPECT_TRUE(contents("cut") == before);
  }
  EXPECT_GT(stops, 0);
}

TEST_F(LaunchTrainTest, RanksOfDifferentCpuLevels) {
  for (const char* level : {"v3", "v4"})
    if (tern("tokenize", {.input = "a\n", .in_child = [=] { setenv("TERN_CPU_LEVEL", level, 1); }}).status != 0)
      GTEST_SKIP() << "levels: this machine or build lacks the CPU level " << level;
  const auto rank = [&](const std::string& level) {
    std::string line = one_rank(".", texts("run", "--batch-size 2"));
    return line.replace(line.find(kProgram), kProgram.size(), "env TERN_CPU_LEVEL=" + level + " " + kProgram);
  };
  const std::string said = mpirun(rank("v3"), rank("v4"));
  EXPECT_TRUE(has(said, "on cpu at the level v3")) << said;
  EXPECT_TRUE(has(said, "on cpu at the level v4")) << said;
}

/// As sent by batch systems, service managers and container runtimes.
TEST_F(LaunchTrainTest, ASignalToEveryProcessSavesOnce) {
  std::mt19937_64 random = fresh_random();
  for (const int number : {SIGTERM, SIGINT, SIGUSR1}) {
    const std::string out = "run-" + std::to_string(number);
    Process job(launched(2, texts(out, "--batch-size 2 --epochs 5000")), folder_);
    ASSERT_TRUE(job.wait_for("step "));
    std::vector<pid_t> all = processes();
    EXPECT_EQ(all.size(), 4u);
    std::erase(all, job.id());
    for (int i = 0; i < 2; ++i) {  // only the launcher counts signals
      std::shuffle(all.begin(), all.end(), random);
      for (const pid_t process : all) kill(process, number);
      if (i == 0) job.send(number);
    }
    expect_stopped(job.finish(), number == SIGUSR1 ? 75 : 128 + number, out);
    EXPECT_FALSE(fs::is_empty(file(out + "/checkpoints")));
    EXPECT_TRUE(exists(out + "/model.safetensors"));
    EXPECT_TRUE(processes().empty());
  }
}

/// Also for signals seconds apart: a rank that waits for another cannot save earlier.
TEST_F(LaunchTrainTest, ARankSavesForAnyNumberOfSignals) {
  Process job(launched(2, texts("run", "--batch-size 2 --epochs 5000")), folder_);
  ASSERT_TRUE(job.wait_for("step "));
  const pid_t first = process_of(0), second = process_of(1);
  kill(first, SIGSTOP);
  for (int i = 0; i < 16; ++i, usleep(100'000)) kill(second, SIGTERM);
  kill(first, SIGCONT);
  expect_stopped(job.finish(), 143, "run");
  EXPECT_TRUE(exists("run/model.safetensors"));
}

TEST_F(LaunchTrainTest, GoesOnWithAnotherNumberOfRanks) {
  succeeds(launched(2, texts("run", "--batch-size 2 --accumulate 2 --keep 9")));
  copy("run", "one");
  copy("run", "four");
  const Result one = succeeds(resume("one/checkpoints/step-00000010"));
  expect_near("one", "run", 1e-5);
  const Result four = succeeds(launched(4, resume("four/checkpoints/step-00000010")));
  expect_near("four", "run", 1e-5);
  // Then again with other numbers of processes, from the run and from the middle of the previous continuation.
  for (const auto& [ranks, from] : {std::pair(2, "one"), {4, "one/checkpoints/step-00000015"}, {1, "one"}}) {
    succeeds(ranks == 1 ? resume(from) : launched(ranks, resume(from)));
    expect_near("one", "run", 1e-5);
    EXPECT_EQ(listing("one/checkpoints"), listing("run/checkpoints"));
  }
  expect_error(launch(3, "resume run"), 1, {"4 batches a step", "3 processes cannot share"});
  unfinish("run");
  expect_error(launch(4, texts("run", "--batch-size 2 --resume auto --accumulate 2")), 1,
               {"a step of the run had 4 batches", "would have 8", "give --accumulate 1"});
}

TEST_F(LaunchTrainTest, AnErrorOfARankIsShownOnce) {
  expect_error(launch(2, texts("diverged", "--batch-size 2 --lr 1e30 --optimizer sgd")), 1,
               {"the loss is nan", "try a lower --lr"});
  // Rank 0's disk is full.
  Process job(launched(2, texts("full", "--batch-size 2 --epochs 5000")), folder_);
  ASSERT_TRUE(job.wait_for("train: "));
  const rlimit limit{2000, 2000};
  ASSERT_EQ(prlimit(process_of(0), RLIMIT_FSIZE, &limit, nullptr), 0);
  const auto start = std::chrono::steady_clock::now();
  const Result full = job.finish();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20 * test::kPatience));
  expect_error(full, 1, {"rank 0: full/", ": cannot be written"});
}

TEST_F(LaunchTrainTest, RanksThatDiffer) {
  write("a/data.csv", read("curve/data.csv"));
  write("b/data.csv", read("curve/data.csv") + "one more,mixed feelings\n");
  const auto text = [&](const std::string& folder, const std::string& rate) {
    return one_rank(folder, texts(file("out").string(), {"--init", kCurve, "--batch-size", "2", "--lr", rate}));
  };
  const std::string options = mpirun(text("a", "1e-3"), text("a", "2e-3"));
  EXPECT_TRUE(has(options, "start: rank 1 has --lr 0.002, but rank 0 has --lr 0.001"));
  const std::string data = mpirun(text("a", "1e-3"), text("b", "1e-3"));
  EXPECT_TRUE(has(data, "the data and the model: rank 1 has the data's "));
  EXPECT_FALSE(exists("out"));
}

TEST_F(LaunchTrainTest, EvaluationIsSharedOut) {
  succeeds(texts("run", "--batch-size 2"));
  write("two.csv", "text,label\none text,5 stars\nanother,mixed feelings\n");
  for (const auto& [data, ranks] : {std::pair("data.csv", 2), std::pair("data.csv", 3), std::pair("two.csv", 3)}) {
    const Words eval = {"eval", "run", "--data", data, "--batch-tokens", "64", "--json", "--threads", "1"};
    EXPECT_EQ(json_lines(succeeds(launched(ranks, eval)).out), std::vector<Json>{answer(eval)});
  }
  // Ranks that have different rows.
  std::string other = read("data.csv");  // same number of rows
  other[other.find('\n') + 3] = 'x';
  write("b/data.csv", other);
  const Words eval = {"eval", file("run").string(), "--data", "data.csv", "--threads", "1"};
  EXPECT_TRUE(has(mpirun(one_rank("", eval), one_rank("b", eval)), "the data: rank 1 has "));
  expect_error(launch(2, "predict run data.csv"), 2, {"'predict'", "in one process"});
}

TEST_F(LaunchTrainTest, TheOptimizersStateDivided) {
  const Words arguments = "--batch-size 2 --optimizer adamw --dtype fp16-true --ema 0.9";
  succeeds(launched(3, texts("ddp", arguments)));
  const Result divided = succeeds(launched(3, texts("zero1", arguments + "--strategy zero1 --keep 9")));
  expect_same("zero1", "ddp");
  EXPECT_TRUE(has(divided.err, "each with a part of the optimizer's state (zero1)"));
  EXPECT_TRUE(has(divided.err, "model state of this process: "));
  const auto bytes = [&](const char* run, const char* name) {
    return metrics(std::string(run)).back().at(name).get<double>();
  };
  EXPECT_LT(bytes("zero1", "model_state_bytes_expected"), 0.55 * bytes("ddp", "model_state_bytes_expected"));
  EXPECT_LT(bytes("zero1", "model_state_bytes"), bytes("ddp", "model_state_bytes"));

  // The newest checkpoint is the same file, and either strategy resumes from the other's.
  copy("zero1", "again");
  copy("zero1", "as_ddp");
  const auto optimizer = [&](const std::string& run, const std::string& name) {
    return read(run + "/checkpoints/" + name + "/optimizer.safetensors");
  };
  for (const std::string& name : checkpoints("ddp"))
    EXPECT_TRUE(optimizer("zero1", name) == optimizer("ddp", name)) << name;
  const Result again = succeeds(launched(3, resume("again/checkpoints/step-00000010")));
  expect_same("again", "ddp");
  const Result as_ddp =
      succeeds(launched(3, texts("as_ddp", arguments + "--strategy ddp --resume as_ddp/checkpoints/step-00000010")));
  expect_same("as_ddp", "ddp");

  // An optimizer of whole parameters.
  const std::string whole = fresh_random()() % 2 == 0 ? "lamb" : "adafactor";
  const Words common = "--batch-size 2 --max-steps 12 --checkpoint-every 6 --optimizer " + whole;
  succeeds(launched(3, texts("whole_ddp", common)));
  EXPECT_TRUE(has(succeeds(launched(3, texts("whole_zero1", common + "--strategy zero1 --keep 9"))).err, "(zero1)"));
  expect_same("whole_zero1", "whole_ddp");
  EXPECT_LT(bytes("whole_zero1", "model_state_bytes"), bytes("whole_ddp", "model_state_bytes"));
  copy("whole_zero1", "whole_again");
  succeeds(launched(3, resume("whole_again/checkpoints/step-00000006")));
  expect_same("whole_again", "whole_ddp");

  const Result alone = succeeds(texts("alone", "--strategy zero1 --max-steps 1"));
  EXPECT_TRUE(has(alone.err, "there is one process, so nothing is divided"));
}

}  // namespace
}  // namespace tern::program

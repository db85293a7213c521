// Failures during a run: folders and disks that cannot be written, numeric overflow, lack of memory, signals. No
// partial or leftover file remains, and the program never crashes.

#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <set>

#include "tern/core/io/safetensors.h"
#include "tern/tests/program/program.h"

namespace tern::program {
namespace {

class FailureTest : public ProgramTest {
 protected:
  FailureTest() { write("data.csv", easy_csv(60)); }
  static Words train(const Words& more) { return "train distilbert --data data.csv --threads 1" + more; }
  static std::function<void()> limit(__rlimit_resource_t what, rlim_t value) {
    return [what, value] {
      const rlimit limits{value, value};
      setrlimit(what, &limits);
    };
  }
  static Words endless() { return train("--out run --epochs 100000 --split all"); }
  void expect_loadable(const std::string& run) const {
    EXPECT_EQ(lines_of(succeeds({"predict", run}, "a great film\n").out).size(), 1u);
  }
  void expect_no_temporary_files() const {
    for (const auto& entry : fs::recursive_directory_iterator(folder_))
      EXPECT_FALSE(has(entry.path().string(), "tern-tmp"));
  }
  /// Checks what a run in the folder "run" leaves that a signal has stopped.
  void expect_saved(const Result& result) const {
    EXPECT_EQ(result.out, "");
    EXPECT_TRUE(has(result.err, "the weights are in run"));
    EXPECT_EQ(listing("run"), std::string("checkpoints ") + kRunFiles);
    EXPECT_FALSE(fs::is_empty(file("run/checkpoints")));
    EXPECT_FALSE(metrics("run").empty());
    expect_loadable("run");
    expect_no_temporary_files();
  }
};

TEST_F(FailureTest, OutputFolders) {
  write("used/notes.txt", "mine");
  expect_error(tern(train("--out used")), 1, {"used", "--out"});
  EXPECT_EQ(listing("used"), "notes.txt");
  write("plain", "mine");
  expect_error(tern(train("--out plain")), 1, {"plain", "not a folder"});
  expect_error(tern(train("--out plain/run")), 1, {"plain/run"});
  EXPECT_EQ(read("plain"), "mine");
  fs::create_directories(file("empty"));
  succeeds(train("--out empty --max-steps 1"));
  EXPECT_EQ(listing("empty"), kRunFiles);
  // A later failure removes what the run created, and only that.
  fs::create_directories(file("mine"));
  expect_error(tern(train("--out mine --batch-tokens 3")), 1, {"--batch-tokens"});
  EXPECT_EQ(listing("mine"), "");
  // By default the run uses a new folder below runs/.
  for (int run = 0; run < 2; ++run) succeeds(train("--max-steps 1"));
  EXPECT_EQ(names_in("runs").size(), 2u);
}

TEST_F(FailureTest, FolderWithoutPermission) {
  Setting setting;
  if (geteuid() == 0) {
    setting = as_another_user();
    if (tern("--version", setting).status != 0) GTEST_SKIP() << "user: another user cannot run the program";
  } else {
    fs::permissions(folder_, fs::perms(0555));
  }
  expect_error(tern(train("--out run --max-steps 1"), setting), 1, {"run", "ermission denied"});
  fs::permissions(folder_, fs::perms(0755));
  EXPECT_FALSE(exists("run"));
}

/// A limit on file size makes writes fail as on a full disk, at any point of the run.
TEST_F(FailureTest, FullDisk) {
  for (const rlim_t bytes : {0, 700, 3000, 100'000, 1'000'000}) {
    if (bytes == 0 && test::kThreadSanitized) continue;  // TSan writes a file before main() sets the signal's action
    SCOPED_TRACE(bytes);
    fs::remove_all(file("run"));
    const Result result = tern(train("--out run --epochs 2"), Setting{.in_child = limit(RLIMIT_FSIZE, bytes)});
    expect_error(result, 1, {"run/", "cannot be written"});
    expect_no_temporary_files();
    if (!exists("run")) continue;
    EXPECT_FALSE(exists("run/model.safetensors"));
    for (const Json& line : metrics("run")) EXPECT_TRUE(line.is_object());
    EXPECT_TRUE(json("run/run.json").is_object());
  }
  EXPECT_TRUE(exists("run/metrics.jsonl"));  // with the last limit the steps succeeded
}

TEST_F(FailureTest, DivergenceNamesStepAndOp) {
  const Result result = tern(train("--out run --lr 1e30 --clip 0 --warmup 0 --dtype fp32 --epochs 5"));
  expect_error(result, 1, {"step ", "--lr"});
  EXPECT_TRUE(has(result.err, "nan"));
  EXPECT_EQ(listing("run"), kRunFiles);
  for (const Json& line : metrics("run")) EXPECT_TRUE(line.is_object());
  // Weights of 1e30 load, and what they overflow to is not printed as a prediction.
  expect_error(tern("predict run", "a great film\n"), 1, {"a great film", "NaN"});
  for (const NamedTensor& entry : load_safetensors(file("run/model.safetensors").string()).tensors)
    for (const double value : entry.tensor.to_vector<double>()) ASSERT_TRUE(std::isfinite(value)) << entry.name;
}

/// No loss of a step shows it: the first update is the last one.
TEST_F(FailureTest, ARunThatEndsWithoutNumbersFails) {
  std::string numbers = "text,label\n", several = "text,labels\n";
  for (int row = 0; row < 40; ++row) {
    numbers += "word " + std::to_string(row) + "," + std::to_string(row % 7) + "\n";
    several += "word " + std::to_string(row) + "," + (row % 2 ? "a;b" : "b") + "\n";
  }
  write("numbers.csv", numbers);
  write("several.csv", several);
  const Words wild = "--out run --lr 1e30 --clip 0 --warmup 0 --dtype fp32 --max-steps 1 --optimizer adamw";
  const std::vector<Words> runs = {"train distilbert --data data.csv", "train distilbert --data several.csv",
                                   "train vit --data digits", "train distilbert --data numbers.csv --task regression",
                                   "train distilbert --data data.csv --split 50/0/50"};
  for (const Words& run : runs) {
    SCOPED_TRACE(testing::PrintToString(run));
    fs::remove_all(file("run"));
    const Result result = tern(run + wild);
    EXPECT_EQ(result.status, 1) << result.err;
    EXPECT_EQ(result.out, "");  // no metric
    EXPECT_TRUE(has(result.err, "step 1")) << result.err;
    EXPECT_TRUE(has(result.err, "nan") || has(result.err, "NaN")) << result.err;
    EXPECT_FALSE(has(tern("resume run").err, "is finished"));  // such a run has no results
  }
}

/// What was good stays, and is named.
TEST_F(FailureTest, ADivergedRunKeepsItsCheckpoints) {
  write("start.toml", "data = \"data.csv\"\nout = \"run\"\nthreads = 1\nlr = 1e30\nclip = 0\ndtype = \"fp32\"\n");
  const Result result =
      tern("train distilbert --config start.toml --epochs 9 --batch-size 8 --warmup 3 --checkpoint-every 1");
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_TRUE(has(result.err, "the newest checkpoint, with finite weights, is run/checkpoints/step-")) << result.err;
  for (const std::string& name : names_in("run/checkpoints"))
    for (const NamedTensor& entry :
         load_safetensors(file("run/checkpoints/" + name + "/model.safetensors").string()).tensors)
      for (const double value : entry.tensor.to_vector<double>()) ASSERT_TRUE(std::isfinite(value)) << name;
}

TEST_F(FailureTest, WeightsThatAreNotFinite) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    copy("curve", "model");
    StateView state = load_safetensors(kCurve + "/model.safetensors").tensors;
    for (NamedTensor& entry : state)
      if (entry.name.ends_with("layer.1.ffn.lin1.weight")) {
        entry.tensor = entry.tensor.clone();
        entry.tensor.data<float>()[5] = static_cast<float>(bad);
      }
    save_safetensors(state, file("model/model.safetensors").string(), {});
    expect_error(tern("train distilbert --init model --data curve/data.csv --out run"), 1, {"step 1", "loss"});
    EXPECT_FALSE(exists("run"));  // no step was completed, so nothing is kept
    expect_error(tern("predict model --jsonl", "{\"text\": \"x\"}\n"), 1, {"x: the model's output is NaN"});
    expect_error(tern("eval model --data curve/data.csv"), 1,
                 {"eval: the model's outputs for ", "encoder.layer.1.feed_forward.lin1.weight"});
  }
}

TEST_F(FailureTest, MoreMemoryThanThereIs) {
  if (test::kSanitized) GTEST_SKIP() << "sanitizer: it needs address space without limit";
  const Setting little{.in_child = limit(RLIMIT_AS, rlim_t{900} << 20)};
  for (const rlim_t mebibytes : {300, 500, 600, 700, 900})
    expect_error(tern(train("--out run --preset base"), {.in_child = limit(RLIMIT_AS, mebibytes << 20)}), 1,
                 {"memory", "try"});
  expect_error(tern(train("--out run --max-length 16000000"), little), 1, {"memory", "try"});
  EXPECT_FALSE(exists("run"));
  std::string csv = "label,text\n", words;
  for (int i = 0; i < 500; ++i) words += "long text ";
  for (int i = 0; i < 600; ++i) csv += (i % 2 ? "a," : "b,") + words + "\n";
  write("long.csv", csv);
  const Words texts = "train distilbert --data long.csv --out run";
  const Words batch = "--max-length 512 --preset small --batch-tokens 1000000000 --threads 1";
  expect_error(tern(texts + batch, little), 1, {"memory", "try a smaller batch"});
  EXPECT_FALSE(exists("run"));
  expect_no_temporary_files();
}

/// Batches are planned an epoch at a time, so that many epochs take no memory; packed ones are counted before.
TEST_F(FailureTest, ManyEpochs) {
  std::string csv = "label,text\n";
  for (int i = 0; i < 600; ++i) csv += (i % 2 ? "a," : "b,") + ("text " + std::to_string(i)) + "\n";
  write("data.csv", csv);
  const Words texts = "train distilbert --preset tiny --data data.csv --out run --threads 1 --epochs 1000000";
  {
    Process process(texts, folder_);
    ASSERT_TRUE(process.wait_for("counting the batches"));
    process.send(SIGTERM);
    const Result result = process.finish();
    EXPECT_EQ(result.status, 143) << result.err;
    EXPECT_FALSE(exists("run/model.safetensors"));
  }
  if (test::kSanitized) GTEST_SKIP() << "sanitizer: it needs address space without limit";
  Process process(texts + "--batch-size 2", folder_, {.in_child = limit(RLIMIT_AS, rlim_t{1200} << 20)});
  ASSERT_TRUE(process.wait_for("step 1/"));
  process.send(SIGTERM);
  const Result result = process.finish();
  EXPECT_EQ(result.status, 143) << result.err;
  EXPECT_TRUE(exists("run/model.safetensors"));
}

/// Also where oneDNN has no room for the code of a product or convolution, or a thread none for its stack.
TEST_F(FailureTest, LittleAddressSpace) {
  if (test::kSanitized) GTEST_SKIP() << "sanitizer: it needs address space without limit";
  for (const char* model : {"vit", "cnn"})
    for (rlim_t mebibytes = 200; mebibytes <= 500; mebibytes += mebibytes < 300 ? 20 : 100) {
      SCOPED_TRACE(std::string(model) + " with " + std::to_string(mebibytes) + " MiB");
      fs::remove_all(file("run"));
      const Words command =
          Words{"train", model} + "--data digits --max-steps 1 --batch-size 64 --dtype fp32 --out run";
      const Result result = tern(command, {.in_child = limit(RLIMIT_AS, mebibytes << 20)});
      if (result.status != 0) expect_error(result, 1, {});
    }
}

/// The system ends a process whose main thread's stack it cannot grow: it has grown before memory is short.
TEST_F(FailureTest, TheStackIsGrownAtTheBeginning) {
  Process process(endless(), folder_);
  ASSERT_TRUE(process.wait_for("step 1/"));
  std::ifstream maps("/proc/" + std::to_string(process.id()) + "/maps");
  std::string line;
  while (std::getline(maps, line) && line.find("[stack]") == std::string::npos) continue;
  unsigned long first = 0, last = 0;
  ASSERT_EQ(std::sscanf(line.c_str(), "%lx-%lx", &first, &last), 2) << line;
  EXPECT_GE(last - first, 1ul << 20);
}

/// SIGUSR1 requests a save: batch systems send it to several processes of a job, which forward it, and send it again if
/// the run continues. The run is saved for any number of them, and also if one other signal follows.
TEST_F(FailureTest, SignalsSaveAndEnd) {
  // Signals that are pending together arrive in any order: the status is that of the first.
  const std::vector<std::pair<std::vector<int>, std::set<int>>> cases = {
      {std::vector<int>(50, SIGUSR1), {75}},
      {{SIGUSR1, SIGTERM, SIGUSR1}, {75, 143}},
      {{SIGINT, SIGUSR1, SIGUSR1}, {75, 130}},
  };
  for (const auto& [numbers, statuses] : cases) {
    SCOPED_TRACE(testing::PrintToString(numbers));
    fs::remove_all(file("run"));
    Process process(endless(), folder_);
    ASSERT_TRUE(process.wait_for("step 1/"));
    for (const int number : numbers) {
      process.send(number);
      usleep(1000);
    }
    const Result result = process.finish();
    EXPECT_TRUE(statuses.count(result.status)) << result.status << result.err;
    expect_saved(result);
  }
}

/// `timeout` signals the process and also its process group; Ctrl-C and others do the same.
TEST_F(FailureTest, OneRequestSentTwiceSavesAndEnds) {
  for (const int number : {SIGTERM, SIGINT, SIGUSR1})
    for (bool in_time = false; !in_time;) {
      fs::remove_all(file("run"));
      Process process(endless(), folder_, {.in_child = [] { setpgid(0, 0); }});
      ASSERT_TRUE(process.wait_for("step 1/"));
      const auto start = std::chrono::steady_clock::now();
      process.send(number);
      usleep(1000);  // so that both are delivered
      kill(-process.id(), number);
      // If the machine delayed this process by more, they are two requests.
      in_time = std::chrono::steady_clock::now() - start < std::chrono::milliseconds(900);
      const Result result = process.finish();
      if (!in_time) continue;
      EXPECT_EQ(result.status, number == SIGUSR1 ? 75 : 128 + number) << result.err;
      expect_saved(result);
    }
}

TEST_F(FailureTest, SecondSignalEndsAtOnce) {
  // Steps take many seconds: only the second signal can end the program in time.
  write("data.csv", easy_csv(3000));
  const auto threads_may_run = [] {  // while ThreadSanitizer reports at exit
    const char* const options = std::getenv("TSAN_OPTIONS");
    setenv("TSAN_OPTIONS", ((options ? options : "") + std::string(":report_thread_leaks=0")).c_str(), 1);
  };
  Process process(train("--out run --preset base --batch-size 1000 --epochs 9"), folder_,
                  Setting{.in_child = threads_may_run});
  ASSERT_TRUE(process.wait_for("parameters"));
  for (; !process.has_ended(); usleep(100'000)) process.send(SIGINT);  // after more than a second it is another request
  const Result result = process.finish();
  EXPECT_EQ(result.status, 130) << result.err;
  EXPECT_FALSE(has(result.err, "the weights are in"));
  EXPECT_FALSE(exists("run/model.safetensors"));
}

TEST_F(FailureTest, SignalDuringTokenization) {
  std::string csv = "label,text\n", words;
  for (int i = 0; i < 4000; ++i) words += "uncharacteristically " + std::to_string(i) + "xqz ";
  for (int i = 0; i < 1500; ++i) csv += (i % 2 ? "a," : "b,") + words + "\n";
  write("data.csv", csv);
  Process process(train("--out run --max-length 8 --split all"), folder_);
  ASSERT_TRUE(process.wait_until_it_handles(SIGINT));
  usleep(700'000);
  process.send(SIGINT);
  const Result result = process.finish();
  EXPECT_EQ(result.status, 130) << result.err;
  EXPECT_FALSE(has(result.err, "tern: error"));
  EXPECT_FALSE(exists("run")) << result.err;
  expect_no_temporary_files();
}

TEST_F(FailureTest, SignalsOfCommandsThatReadInput) {
  for (const char* command : {"predict curve", "tokenize"}) {
    int in[2];
    ASSERT_EQ(pipe(in), 0);
    // One character without a line end, and a pipe that is never written to nor closed: the program waits.
    Process process(command, folder_, {.input = "x", .in_child = [&] { dup2(in[0], 0); }});
    ASSERT_TRUE(process.wait_until_it_handles(SIGINT));
    usleep(300'000);
    process.send(SIGINT);
    EXPECT_EQ(process.finish().status, 130) << command;
    close(in[0]);
    close(in[1]);
  }
}

}  // namespace
}  // namespace tern::program

// Killed, stopped and damaged runs that are resumed: weights and losses equal those of an uninterrupted run.

#include "tern/tests/program/resume.h"
#include "tern/data/files/sha256.h"

namespace tern::program {
namespace {

using ResumeTest = InterruptedRuns;

TEST_F(ResumeTest, KilledAtRandomMoments) {
  succeeds(arguments("whole"));
  const Words again = arguments("killed", "--resume auto");
  int kills = 0;
  for (int attempt = 0; attempt < 7; ++attempt) {
    Process process(again, folder_);
    if (attempt % 2 == 0) process.wait_for("step ");
    usleep(static_cast<useconds_t>(random_() % 150'000));
    process.send(SIGKILL);
    const Result result = process.finish();
    kills += result.status == 1000 + SIGKILL;
    if (result.status == 0) break;
  }
  EXPECT_GT(kills, 0);
  succeeds(again);
  expect_same("killed", "whole");
}

/// The machine crashes in a call that changes the run's folder, mostly while a checkpoint is written; bytes not yet
/// fsynced are lost.
TEST_F(ResumeTest, AFailingMachine) {
  const int64_t calls = static_cast<int64_t>(calls_of(arguments("whole"), "whole").size());
  for (int i = 0; i < 4; ++i) {
    const int64_t at = calls / 3 + static_cast<int64_t>(random_() % static_cast<uint64_t>(calls / 2));
    SCOPED_TRACE("at call " + std::to_string(at) + " of " + std::to_string(calls));
    expect_ends_at(arguments("cut"), "cut", "crash:" + std::to_string(at));
    expect_all_are_whole("cut");
    succeeds(resume("cut"));
    expect_same("cut", "whole");
    fs::remove_all(file("cut"));
  }
}

TEST_F(ResumeTest, SignalsSaveAndTheStatusSaysWhich) {
  succeeds(arguments("whole"));
  for (const auto& [number, status] : {std::pair(SIGINT, 130), std::pair(SIGTERM, 143), std::pair(SIGUSR1, 75)}) {
    SCOPED_TRACE(number);
    const std::string out = "run" + std::to_string(number);
    const Result stopped = interrupted(arguments(out), "step ", number);
    if (stopped.status == 0) continue;  // it had already ended
    EXPECT_EQ(stopped.status, status) << stopped.err;
    EXPECT_TRUE(has(stopped.err, "tern resume " + out));
    EXPECT_TRUE(has(succeeds(resume(out)).err, "resume: "));
    expect_same(out, "whole");
  }
}

TEST_F(ResumeTest, HalfPrecisionWithALossScaleAndAccumulation) {
  const auto half = [&](const std::string& out) {
    return arguments(out, "--dtype fp16 --checkpoint-every 1 --accumulate 3 --resume auto");
  };
  succeeds(half("whole"));
  bool killed = false;
  for (int attempt = 0; attempt < 10 && !killed; ++attempt) {  // a run may end before the signal arrives
    fs::remove_all(file("cut"));
    // In the first epoch each step wrote a checkpoint.
    killed = interrupted(half("cut"), "validation loss", SIGKILL).status == 1000 + SIGKILL;
  }
  ASSERT_TRUE(killed);
  const Result resumed = succeeds(half("cut"));
  EXPECT_TRUE(has(resumed.err, "resume: "));
  EXPECT_TRUE(has(resumed.err, ", step "));  // the checkpoint's step
  expect_same("cut", "whole");
}

TEST_F(ResumeTest, AveragesOfTheWeights) {
  const auto averaged = [&](const std::string& out) { return arguments(out, "--ema 0.9 --resume auto"); };
  succeeds(averaged("whole"));
  succeeds(arguments("plain"));
  EXPECT_FALSE(weights("whole") == weights("plain"));
  interrupted(averaged("cut"), "validation loss", SIGKILL);
  succeeds(averaged("cut"));
  expect_same("cut", "whole");
  EXPECT_EQ(answer("eval whole --json --threads 1")["loss"], metrics("whole").back()["test_loss"]);
}

TEST_F(ResumeTest, ADamagedNewestCheckpoint) {
  succeeds(arguments("whole", "--keep 4"));
  const std::vector<std::string> all = checkpoints("whole");
  ASSERT_GE(all.size(), 4u);
  copy("whole", "damaged");
  unfinish("damaged");
  const fs::path optimizer = file("damaged/checkpoints/" + all.back() + "/optimizer.safetensors");
  fs::resize_file(optimizer, fs::file_size(optimizer) / 2);
  EXPECT_TRUE(has(succeeds(resume("damaged")).err, "the one before it is used"));
  expect_same("damaged", "whole");
}

TEST_F(ResumeTest, AFullDiskKeepsWhatWasThere) {
  succeeds(arguments("whole"));
  const Setting full{.in_child = [] {  // only the optimizer's file exceeds the limit
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{80u << 10, 80u << 10};
    setrlimit(RLIMIT_FSIZE, &limit);
  }};
  const Result limited = succeeds(arguments("limited"), full);
  EXPECT_TRUE(has(limited.err, "training continues"));
  EXPECT_TRUE(fs::is_empty(file("limited/checkpoints")));
  EXPECT_TRUE(weights("limited") == weights("whole"));
}

TEST_F(ResumeTest, WhatCannotBeResumed) {
  succeeds(arguments("run"));
  expect_error(tern(arguments("run")), 1, {"already holds files", "--resume auto"});
  expect_error(tern("resume nothing"), 1, {"nothing: no such folder"});
  fs::create_directories(file("empty"));
  expect_error(tern("resume empty"), 1, {"run.json", "is empty the folder of a run?"});
  expect_error(tern("train distilbert --resume auto"), 2, {"--out"});
  unfinish("run");
  // Other rows under the same file name.
  write("data.csv", read("curve/data.csv") + "one more,mixed feelings\n");
  expect_error(tern("resume run"), 1, {"the data's texts_sha256"});
  // A label of another name, in the same rows.
  std::string renamed = read("curve/data.csv");
  const Json labels = Json::parse(json("run/run.json")["rows"]["labels"].get<std::string>());
  const std::string label = labels.back();
  for (size_t at = 0; (at = renamed.find("," + label, at)) != std::string::npos; ++at)
    renamed.replace(at + 1, label.size(), label + "!");
  write("data.csv", renamed);
  expect_error(tern("resume run"), 1, {"the data's labels was [", "\"" + label + "!\""});
  write("data.csv", read("curve/data.csv"));
  // A checkpoint with another model.
  for (const std::string& name : checkpoints("run"))
    write("run/checkpoints/" + name + "/config.json", R"({"model_type": "vit"})");
  expect_error(tern("resume run"), 1, {"no checkpoint is whole"});
}

/// Complete checkpoints with valid checksums, in a folder of another run.
TEST_F(ResumeTest, CheckpointsOfOthers) {
  const auto digits = [&](const std::string& out, const Words& more) {
    succeeds("train vit --data digits --max-steps 2 --checkpoint-every 2 --split all --threads 1 --out " + out + more);
  };
  digits("patch2", {});
  digits("patch6", {"--init", kGolden + "vit_hf"});
  succeeds(arguments("texts", "--max-steps 10"));
  const std::string name = "step-00000002";
  for (const char* run : {"patch2", "patch6", "texts"}) unfinish(run);
  copy("patch2", "mixed");
  copy("patch6/checkpoints", "mixed/checkpoints");
  expect_error(tern("resume mixed"), 1, {"no checkpoint is whole", name + ": was written by another run"});
  expect_error(tern("resume mixed/checkpoints/" + name), 1, {name + ": was written by another run"});
  /// A checkpoint's state.json with a valid checksum.
  const auto write_state = [&](const std::string& checkpoint, const Json& state) {
    Json checksums = json(checkpoint + "/checksums.json");
    checksums["state.json"] = {{"bytes", state.dump().size()}, {"sha256", data::sha256(state.dump())}};
    write(checkpoint + "/state.json", state.dump());
    write(checkpoint + "/checksums.json", checksums.dump());
  };
  const auto swap = [&](const std::string& run, const std::string& from) {
    copy(from + "/checkpoints", run + "/checkpoints");
    for (const std::string& each : checkpoints(run)) {  // as programs wrote them that gave runs no ids
      const std::string checkpoint = run + "/checkpoints/" + each;
      Json state = json(checkpoint + "/state.json");
      state.erase("run");
      write_state(checkpoint, state);
    }
  };
  swap("mixed", "patch6");
  expect_error(tern("resume mixed"), 1, {"the model's patch_size was 2 and is 6"});
  swap("mixed", "texts");
  expect_error(tern("resume mixed"), 1, {"mixed/checkpoints/step-00000010", "Vision Transformer"});
  swap("texts", "patch2");
  expect_error(tern("resume texts"), 1, {"texts/checkpoints/" + name, "distilbert"});

  // An earlier and a later version of the format.
  swap("mixed", "patch2");
  const std::string checkpoint = "mixed/checkpoints/" + name;
  Json state = json(checkpoint + "/state.json");
  for (const int version : {1, 3}) {
    state["version"] = version;
    write_state(checkpoint, state);
    expect_error(tern("resume mixed"), 1,
                 {"state.json: is of version " + std::to_string(version) + ", this program reads version 2", "--init"});
  }
}

/// A run that has come to its end says so, with and without checkpoints, and stays as it is.
TEST_F(ResumeTest, AFinishedRunIsFinished) {
  const auto run = [](const std::string& out, const Words& more) {
    return texts(out, with_defaults("--epochs 2 --batch-size 2", more));
  };
  for (const Words& checkpoints : {Words(), Words("--checkpoint-every 4")}) {
    fs::remove_all(file("run"));
    succeeds(run("run", checkpoints));
    const auto before = contents("run");
    const std::string accuracy = metrics("run").back()["test_accuracy"].dump();
    for (const Words& again : {resume("run"), run("run", checkpoints + "--resume auto"), run("run", "--resume run")}) {
      const Result result = succeeds(again);
      EXPECT_EQ(lines_of(result.err).size(), 1u) << result.err;
      EXPECT_TRUE(has(result.err, "run is finished (36 steps, test_accuracy " + accuracy + ")"));
      EXPECT_TRUE(has(result.err, "--init run"));
      EXPECT_TRUE(contents("run") == before);
    }
    // It needs no data for that, and another run is refused by what it differs in.
    expect_error(tern(run("run", "--resume auto --epochs 3")), 1,
                 {"is finished", "--epochs was 2 and is 3", "--init run"});
    fs::rename(file("data.csv"), file("away.csv"));
    succeeds(resume("run"));
    fs::rename(file("away.csv"), file("data.csv"));
    EXPECT_TRUE(contents("run") == before);
  }
  // One that is not finished says how it would be trained further, too.
  unfinish("run");
  expect_error(tern(run("run", "--resume auto --epochs 3")), 1, {"--epochs was 2 and is 3", "--init RUN"});
  // From an earlier checkpoint it goes back.
  copy("run", "again");
  const std::string newest = "again/checkpoints/" + checkpoints("again").back();
  EXPECT_TRUE(has(succeeds(resume(newest)).err, checkpoints("again").back() + ", step 36"));
}

/// A signal in the test after training: what the exit status promises is there, and the test alone is made again.
TEST_F(ResumeTest, ASignalInTheTestAfterTraining) {
  write("many.csv", easy_csv(6000));
  const auto run = [](const std::string& out, const Words& more) {
    return texts(out,
                 with_defaults("--data many.csv --init curve --epochs 2 --batch-size 10 --split 40/20/5940", more));
  };
  for (const Words& more : {Words(), Words("--ema 0.9"), Words("--split 60/0/5940 --ema 0.5"), Words("--patience 1")}) {
    SCOPED_TRACE(testing::PrintToString(more));
    const std::string last = has(testing::PrintToString(more), "60/0") ? "step 12/12" : "epoch 2: validation";
    for (const std::string out : {"whole", "cut"}) fs::remove_all(file(out));
    succeeds(run("whole", more));
    for (const auto& [number, status] : {std::pair(SIGTERM, 143), std::pair(SIGINT, 130), std::pair(SIGUSR1, 75)}) {
      fs::remove_all(file("cut"));
      const Result stopped = interrupted(run("cut", more), last, number);
      if (stopped.status == 0) continue;  // it had already ended
      EXPECT_EQ(stopped.status, status) << stopped.err;
      EXPECT_EQ(stopped.out, "");
      ASSERT_EQ(checkpoints("cut").size(), 1u);
      EXPECT_TRUE(weights("cut") == weights("whole"));
      const Result resumed = succeeds(resume("cut"));
      EXPECT_FALSE(has(resumed.err, "epoch 1"));  // nothing is trained again
      EXPECT_TRUE(weights("cut") == weights("whole"));
      EXPECT_EQ(history("cut"), history("whole"));
      EXPECT_TRUE(has(succeeds(resume("cut")).err, "cut is finished"));
    }
  }
}

/// Where the next steps would have other bits than before it is said.
TEST_F(ResumeTest, AnotherCpuLevel) {
  const auto at = [](const char* level) {
    return Setting{.in_child = [level] { setenv("TERN_CPU_LEVEL", level, 1); }};
  };
  for (const char* level : {"v3", "v4"})
    if (tern("tokenize", {.input = "a\n", .in_child = at(level).in_child}).status != 0)
      GTEST_SKIP() << "levels: this machine or build lacks the CPU level " << level;
  succeeds(arguments("run"), at("v4"));
  unfinish("run");
  copy("run", "same");
  EXPECT_FALSE(has(succeeds(resume("same"), at("v4")).err, "CPU level"));
  const Result other = succeeds(resume("run"), at("v3"));
  EXPECT_TRUE(has(other.err, "CPU level v4 and goes on on CPU level v3"));
  unfinish("run");
  EXPECT_FALSE(has(succeeds(resume("run"), at("v3")).err, "CPU level"));
}

/// Commands that load a checkpoint's model verify its files.
TEST_F(ResumeTest, ADamagedModelOfACheckpoint) {
  succeeds(arguments("run", "--max-steps 10"));
  const std::string checkpoint = "run/checkpoints/step-00000010";
  const Words commands[] = {{"eval", checkpoint, "--data", "data.csv"},
                            {"predict", checkpoint, "data.csv"},
                            texts("new", {"--init", checkpoint})};
  for (const std::string name : {"model.safetensors", "config.json", "vocab.txt"}) {
    const std::string whole = read(checkpoint + "/" + name);
    std::string damaged = whole;
    char& digit = damaged[damaged.find_last_of("0123456789")];  // so that a .json file stays one
    digit = static_cast<char>(digit ^ 1);
    write(checkpoint + "/" + name, damaged);
    for (const Words& command : commands) expect_error(tern(command), 1, {name, "damaged"});
    EXPECT_FALSE(exists("new"));
    write(checkpoint + "/" + name, whole);
  }
  for (const Words& command : commands) succeeds(command);
}

TEST_F(ResumeTest, KilledBeforeTheFirstWordWasWritten) {
  succeeds(arguments("whole"));
  write("killed/metrics.jsonl", "");
  write("killed/run.json.tern-tmp-0123456789abcdef", "{");
  succeeds(arguments("killed", "--resume auto"));
  expect_same("killed", "whole");
  EXPECT_EQ(listing("killed"), listing("whole"));
}

TEST_F(ResumeTest, TwoRunsInOneFolder) {
  const Words endless = arguments("run", "--resume auto --epochs 100000");
  Process first(endless, folder_);
  ASSERT_TRUE(first.wait_for("step "));
  expect_error(tern(endless), 1, {"another process is training in this folder"});
  first.send(SIGTERM);
  EXPECT_EQ(first.finish().status, 143);
}

}  // namespace
}  // namespace tern::program

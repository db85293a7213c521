// Killed, stopped and damaged runs that are resumed: weights and losses equal those of an uninterrupted run.

#include "tern/tests/program/resume.h"
#include "tern/data/datasets/sha256.h"

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
  // Other rows under the same file name.
  write("data.csv", read("curve/data.csv") + "one more,mixed feelings\n");
  expect_error(tern("resume run"), 1, {"the data's"});
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
  const auto swap = [&](const std::string& run, const std::string& from) {
    copy(from + "/checkpoints", run + "/checkpoints");
  };
  copy("patch2", "mixed");
  swap("mixed", "patch6");
  expect_error(tern("resume mixed"), 1, {"the model's patch_size was 2 and is 6"});
  swap("mixed", "texts");
  expect_error(tern("resume mixed"), 1, {"mixed/checkpoints/step-00000010", "Vision Transformer"});
  swap("texts", "patch2");
  expect_error(tern("resume texts"), 1, {"texts/checkpoints/" + name, "distilbert"});

  // An earlier and a later version of the format.
  swap("mixed", "patch2");
  const std::string checkpoint = "mixed/checkpoints/" + name;
  Json state = json(checkpoint + "/state.json"), checksums = json(checkpoint + "/checksums.json");
  for (const int version : {1, 3}) {
    state["version"] = version;
    write(checkpoint + "/state.json", state.dump());
    checksums["state.json"] = {{"bytes", state.dump().size()}, {"sha256", data::sha256(state.dump())}};
    write(checkpoint + "/checksums.json", checksums.dump());
    expect_error(tern("resume mixed"), 1,
                 {"state.json: is of version " + std::to_string(version) + ", this program reads version 2", "--init"});
  }
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

// Killed, stopped and damaged runs that are resumed: weights and losses equal those of an uninterrupted run.

#include "tern/tests/program/resume.h"
#include "tern/data/datasets/sha256.h"

namespace tern::program {
namespace {

using ResumeTest = InterruptedRuns;

TEST_F(ResumeTest, KilledAtRandomMoments) {
  ASSERT_EQ(tern(arguments("whole")).status, 0);
  const std::vector<std::string> again = arguments("killed", {"--resume", "auto"});
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
  const Result last = tern(again);
  ASSERT_EQ(last.status, 0) << last.err;
  expect_same("killed", "whole");
}

/// The machine crashes in a call that changes the run's folder, mostly while a checkpoint is written; bytes not yet
/// fsynced are lost.
TEST_F(ResumeTest, AFailingMachine) {
  const int64_t calls = static_cast<int64_t>(calls_of(arguments("whole"), "whole").size());
  for (int i = 0; i < 4; ++i) {
    const int64_t at = calls / 3 + static_cast<int64_t>(random_() % static_cast<uint64_t>(calls / 2));
    SCOPED_TRACE("at call " + std::to_string(at) + " of " + std::to_string(calls));
    EXPECT_EQ(tern(arguments("cut"), failing("cut", "crash:" + std::to_string(at))).status, 1000 + SIGKILL);
    expect_all_are_whole("cut");
    const Result resumed = tern({"resume", "cut", "--threads", "1"});
    ASSERT_EQ(resumed.status, 0) << resumed.err;
    expect_same("cut", "whole");
    fs::remove_all(file("cut"));
  }
}

TEST_F(ResumeTest, SignalsSaveAndTheStatusSaysWhich) {
  ASSERT_EQ(tern(arguments("whole")).status, 0);
  for (const auto& [number, status] : {std::pair(SIGINT, 130), std::pair(SIGTERM, 143), std::pair(SIGUSR1, 75)}) {
    SCOPED_TRACE(number);
    const std::string out = "run" + std::to_string(number);
    Process process(arguments(out), folder_);
    ASSERT_TRUE(process.wait_for("step "));
    process.send(number);
    const Result stopped = process.finish();
    if (stopped.status == 0) continue;  // it had already ended
    EXPECT_EQ(stopped.status, status) << stopped.err;
    EXPECT_NE(stopped.err.find("tern resume " + out), std::string::npos) << stopped.err;
    const Result resumed = tern({"resume", out, "--threads", "1"});
    EXPECT_EQ(resumed.status, 0) << resumed.err;
    EXPECT_NE(resumed.err.find("resume: "), std::string::npos);
    expect_same(out, "whole");
  }
}

TEST_F(ResumeTest, HalfPrecisionWithALossScaleAndAccumulation) {
  const auto half = [&](const std::string& out) {
    std::vector<std::string> a = arguments(out, {"--accumulate", "3", "--resume", "auto"});
    *(std::find(a.begin(), a.end(), "--dtype") + 1) = "fp16";
    *(std::find(a.begin(), a.end(), "--checkpoint-every") + 1) = "1";
    return a;
  };
  ASSERT_EQ(tern(half("whole")).status, 0);
  bool killed = false;
  for (int attempt = 0; attempt < 10 && !killed; ++attempt) {  // a run may end before the signal arrives
    fs::remove_all(file("cut"));
    Process process(half("cut"), folder_);
    ASSERT_TRUE(process.wait_for("validation loss"));  // of the first epoch, each step of which wrote a checkpoint
    process.send(SIGKILL);
    killed = process.finish().status == 1000 + SIGKILL;
  }
  ASSERT_TRUE(killed);
  const Result resumed = tern(half("cut"));
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("resume: "), std::string::npos) << resumed.err;
  EXPECT_NE(resumed.err.find(", step "), std::string::npos) << resumed.err;  // the checkpoint's step
  expect_same("cut", "whole");
}

TEST_F(ResumeTest, AveragesOfTheWeights) {
  const auto averaged = [&](const std::string& out) { return arguments(out, {"--ema", "0.9", "--resume", "auto"}); };
  ASSERT_EQ(tern(averaged("whole")).status, 0);
  ASSERT_EQ(tern(arguments("plain")).status, 0);
  EXPECT_FALSE(weights("whole") == weights("plain"));
  const Result eval = tern({"eval", "whole", "--json", "--threads", "1"});
  ASSERT_EQ(eval.status, 0) << eval.err;
  EXPECT_EQ(Json::parse(eval.out)["loss"], metrics("whole").back()["test_loss"]);
  Process process(averaged("cut"), folder_);
  ASSERT_TRUE(process.wait_for("validation loss"));
  process.send(SIGKILL);
  process.finish();
  const Result resumed = tern(averaged("cut"));
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  expect_same("cut", "whole");
  expect_error(tern(arguments("whole", {"--resume", "auto"})), 1, {"--ema was 0.9 and is 0"});
  expect_error(tern(arguments("other", {"--ema", "1"})), 2, {"--ema"});
}

TEST_F(ResumeTest, ADamagedNewestCheckpoint) {
  ASSERT_EQ(tern(arguments("whole", {"--keep", "4"})).status, 0);
  std::vector<fs::path> all;
  for (const auto& entry : fs::directory_iterator(file("whole/checkpoints"))) all.push_back(entry.path());
  std::sort(all.begin(), all.end());
  ASSERT_GE(all.size(), 4u);
  fs::copy(file("whole"), file("damaged"), fs::copy_options::recursive);
  const fs::path newest = file("damaged/checkpoints") / all.back().filename();
  fs::resize_file(newest / "optimizer.safetensors", fs::file_size(newest / "optimizer.safetensors") / 2);
  const Result resumed = tern({"resume", "damaged", "--threads", "1"});
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("the one before it is used"), std::string::npos) << resumed.err;
  expect_same("damaged", "whole");
  // A given checkpoint, older than the newest.
  const Result older = tern({"resume", "whole/checkpoints/" + all.front().filename().string(), "--threads", "1"});
  EXPECT_EQ(older.status, 0) << older.err;
  expect_same("whole", "damaged");
}

TEST_F(ResumeTest, AFullDiskKeepsWhatWasThere) {
  ASSERT_EQ(tern(arguments("whole")).status, 0);
  Setting full;
  full.in_child = [] {  // only the optimizer's file exceeds the limit
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{80u << 10, 80u << 10};
    setrlimit(RLIMIT_FSIZE, &limit);
  };
  const Result limited = tern(arguments("limited"), full);
  EXPECT_EQ(limited.status, 0) << limited.err;
  EXPECT_NE(limited.err.find("training continues"), std::string::npos) << limited.err;
  EXPECT_TRUE(fs::is_empty(file("limited/checkpoints")));
  EXPECT_TRUE(weights("limited") == weights("whole"));
}

TEST_F(ResumeTest, WhatCannotBeResumed) {
  ASSERT_EQ(tern(arguments("run")).status, 0);
  expect_error(tern(arguments("run")), 1, {"already holds files", "--resume auto"});
  std::vector<std::string> other = arguments("run", {"--resume", "auto"});
  *(std::find(other.begin(), other.end(), "--lr") + 1) = "2e-3";
  expect_error(tern(other), 1, {"--lr was 0.001 and is 0.002"});
  expect_error(tern({"resume", "nothing"}), 1, {"nothing: no such folder"});
  fs::create_directories(file("empty"));
  expect_error(tern({"resume", "empty"}), 1, {"run.json", "is empty the folder of a run?"});
  expect_error(tern({"resume", "run", "--seed", "1"}), 2, {"--seed"});
  expect_error(tern({"train", "distilbert", "--resume", "auto"}), 2, {"--out"});
  expect_error(tern({"train", "distilbert", "--checkpoint-every", "5x"}), 2, {"--checkpoint-every", "'5x'"});
  // Other rows under the same file name.
  write("data.csv", read_text(kModel + "/data.csv") + "one more,mixed feelings\n");
  expect_error(tern({"resume", "run"}), 1, {"the data's"});
  write("data.csv", read_text(kModel + "/data.csv"));
  // A checkpoint with another model.
  std::vector<fs::path> all;
  for (const auto& entry : fs::directory_iterator(file("run/checkpoints"))) {
    write_text(entry.path() / "config.json", R"({"model_type": "vit"})");
    all.push_back(entry.path());
  }
  expect_error(tern({"resume", "run"}), 1, {"no checkpoint is whole"});
}

/// Complete checkpoints with valid checksums, in a folder of another run.
TEST_F(ResumeTest, CheckpointsOfOthers) {
  const auto digits = [](const std::string& out, const std::vector<std::string>& more) {
    std::vector<std::string> all = {"train",   "vit", "--data", "digits", "--max-steps", "2", "--checkpoint-every", "2",
                                    "--split", "all", "--out",  out,      "--threads",   "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  ASSERT_EQ(tern(digits("patch2", {})).status, 0);
  const Result other = tern(digits("patch6", {"--init", kGolden + "vit_hf"}));
  ASSERT_EQ(other.status, 0) << other.err;
  ASSERT_EQ(tern(arguments("texts", {"--max-steps", "10"})).status, 0);
  const std::string name = "step-00000002";
  const auto swap = [&](const std::string& run, const std::string& from) {
    fs::remove_all(file(run + "/checkpoints"));
    fs::copy(file(from + "/checkpoints"), file(run + "/checkpoints"), fs::copy_options::recursive);
  };
  fs::copy(file("patch2"), file("mixed"), fs::copy_options::recursive);
  swap("mixed", "patch6");
  expect_error(tern({"resume", "mixed"}), 1, {"the model's patch_size was 2 and is 6"});
  swap("mixed", "texts");
  expect_error(tern({"resume", "mixed"}), 1, {"mixed/checkpoints/step-00000010", "Vision Transformer"});
  swap("texts", "patch2");
  expect_error(tern({"resume", "texts"}), 1, {"texts/checkpoints/" + name, "distilbert"});

  // An earlier and a later version of the format.
  swap("mixed", "patch2");
  const fs::path checkpoint = file("mixed/checkpoints/" + name);
  Json state = Json::parse(read_text(checkpoint / "state.json")),
       checksums = Json::parse(read_text(checkpoint / "checksums.json"));
  for (const char* version : {"1", "3"}) {
    state["version"] = std::stoi(version);
    write_text(checkpoint / "state.json", state.dump());
    checksums["state.json"] = {{"bytes", state.dump().size()}, {"sha256", data::sha256(state.dump())}};
    write_text(checkpoint / "checksums.json", checksums.dump());
    expect_error(tern({"resume", "mixed"}), 1,
                 {std::string("state.json: is of version ") + version + ", this program reads version 2", "--init"});
  }
}

TEST_F(ResumeTest, KilledBeforeTheFirstWordWasWritten) {
  ASSERT_EQ(tern(arguments("whole")).status, 0);
  write("killed/metrics.jsonl", "");
  write("killed/run.json.tern-tmp-0123456789abcdef", "{");
  const Result anew = tern(arguments("killed", {"--resume", "auto"}));
  ASSERT_EQ(anew.status, 0) << anew.err;
  expect_same("killed", "whole");
  EXPECT_EQ(listing("killed"), listing("whole"));
  // Files of others do not count as a run.
  write("other/metrics.jsonl", "");
  write("other/letter.txt", "Dear");
  expect_error(tern(arguments("other", {"--resume", "auto"})), 1, {"other/run.json", "the folder of a run?"});
  EXPECT_EQ(listing("other"), "letter.txt metrics.jsonl");
}

TEST_F(ResumeTest, TwoRunsInOneFolder) {
  std::vector<std::string> endless = arguments("run", {"--resume", "auto"});
  *(std::find(endless.begin(), endless.end(), "--epochs") + 1) = "100000";
  Process first(endless, folder_);
  ASSERT_TRUE(first.wait_for("step "));
  expect_error(tern(endless), 1, {"another process is training in this folder"});
  first.send(SIGTERM);
  EXPECT_EQ(first.finish().status, 143);
}

}  // namespace
}  // namespace tern::program

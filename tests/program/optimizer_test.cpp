// Every --optimizer: what a run records, and that it goes on bit for bit.

#include "tern/core/io/safetensors.h"
#include "tern/models/trainer/trainer.h"
#include "tern/tests/program/resume.h"

namespace tern::program {
namespace {

class OptimizerProgramTest : public InterruptedRuns {
 protected:
  static Words run(const std::string& out, const Words& more) {
    return arguments(out, with_defaults("--keep 9 --max-steps 20 --schedule constant", more));
  }
};

TEST_F(OptimizerProgramTest, ARunGoesOnWithEach) {
  std::vector<std::string> runs;
  for (const std::string& name : models::optimizer_names()) {
    SCOPED_TRACE(name);
    const std::string whole = "whole-" + name;
    succeeds(run(whole, {"--optimizer", name}));
    EXPECT_EQ(json(whole + "/run.json")["options"]["optimizer"], name);
    copy(whole, name);
    succeeds(resume(name + "/checkpoints/step-00000010"));
    expect_same(name, whole);
    for (const std::string& other : runs) EXPECT_FALSE(weights(other) == weights(name)) << other;
    runs.push_back(name);
  }
}

TEST_F(OptimizerProgramTest, LookaheadAroundSeveral) {
  for (const std::string name : {"adamw", "sgd", "muon", "adafactor"}) {
    SCOPED_TRACE(name);
    const std::string whole = "whole-" + name;
    succeeds(run(whole, {"--optimizer", name, "--lookahead", "3", "--ema", "0.9"}));
    copy(whole, name);
    succeeds(resume(name + "/checkpoints/step-00000010"));  // between two steps of the slow weights
    expect_same(name, whole);
  }
  succeeds(run("plain", "--ema 0.9"));
  EXPECT_FALSE(weights("plain") == weights("adamw"));
  succeeds(run("all", "--ema 0.9 --lookahead 3 --lookahead-alpha 1"));  // goes all the way: no change but rounding
  EXPECT_EQ(json("all/run.json")["options"]["lookahead_alpha"], 1);
  EXPECT_FALSE(weights("all") == weights("adamw"));
  unfinish("all");
  expect_error(tern(run("all", "--ema 0.9 --lookahead 3 --resume all")), 1, {"--lookahead-alpha was 1"});
  expect_error(tern(run("x", "--lookahead-alpha 0.3")), 2, {"--lookahead-alpha requires --lookahead"});
}

TEST_F(OptimizerProgramTest, LookaheadInSeveralProcesses) {
  if (!has_mpi()) GTEST_SKIP() << "mpi: there is no MPI";
  const auto launched = [&](const std::string& out, const Words& more) {
    return tern(Words{"launch", "--quiet", "--threads", "1", "--nproc", "2", "--logs", "logs-" + out, "--"} +
                run(out, Words{"--lookahead", "3", "--keep", "9"} + more));
  };
  for (const std::string strategy : {"ddp", "zero1"})
    EXPECT_EQ(launched(strategy, {"--strategy", strategy}).status, 0) << strategy;
  EXPECT_TRUE(weights("ddp") == weights("zero1"));
  copy("zero1", "again");
  succeeds(Words("launch --quiet --threads 1 --nproc 2 --logs logs-again -- resume again/checkpoints/step-00000010"));
  EXPECT_TRUE(weights("again") == weights("zero1"));
  EXPECT_NE(launched("low", "--strategy zero1 --dtype bf16-true").status, 0);
}

TEST_F(OptimizerProgramTest, MomentumIsRecordedAndCompared) {
  succeeds(run("plain", "--optimizer sgd --momentum 0.8"));
  succeeds(run("nesterov", "--optimizer sgd --momentum 0.8 --nesterov"));
  EXPECT_FALSE(weights("plain") == weights("nesterov"));
  EXPECT_EQ(json("nesterov/run.json")["options"]["momentum"], 0.8);
  EXPECT_EQ(json("nesterov/run.json")["options"]["nesterov"], true);
  copy("nesterov", "again");
  succeeds(resume("again/checkpoints/step-00000010"));
  expect_same("again", "nesterov");
  expect_error(tern(run("plain", "--optimizer sgd --momentum 0.7 --resume plain")), 1,
               {"--momentum was 0.8 and is 0.7"});
  expect_error(tern("train distilbert --momentum 0.5"), 2,
               {"momentum is for the optimizers sgd, rmsprop, muon, not for adamw"});
  expect_error(tern("train distilbert --optimizer muon --nesterov"), 2, {"nesterov is for the optimizer sgd"});
  expect_error(tern("train distilbert --optimizer sgd --momentum 0 --nesterov"), 2, {"needs a momentum above 0"});
  expect_error(tern("train distilbert --optimizer muon --kahan --dtype bf16-true"), 2, {"kahan is not for", "muon"});
}

/// Muon's part is the hidden layers' matrices; embeddings, the head and vectors are AdamW's.
TEST_F(OptimizerProgramTest, MuonTakesTheHiddenLayers) {
  succeeds(run("run", "--optimizer muon --max-steps 10"));
  const StateView state =
      load_safetensors(file("run/checkpoints/step-00000010/optimizer.safetensors").string()).tensors;
  int buffers = 0;
  for (const NamedTensor& entry : state) {
    if (!entry.name.starts_with("momentum_buffer.")) continue;
    ++buffers;
    EXPECT_TRUE(entry.name.starts_with("momentum_buffer.encoder.layer.") && entry.tensor.dim() == 2) << entry.name;
  }
  EXPECT_EQ(buffers % 4, 0);  // of each layer: qkv, out, lin1, lin2
  EXPECT_GT(buffers, 0);
  for (const char* name : {"word.weight", "position.weight", "pre_classifier.weight", "classifier.weight",
                           "encoder.layer.0.attention.qkv.bias", "embedding_norm.weight"})
    EXPECT_TRUE(find(state, std::string("exp_avg_sq.") + name).defined()) << name;
}

/// A rank's part of Muon's and AdamW's state gives the bits of all of it.
TEST_F(OptimizerProgramTest, MuonDividedAmongProcesses) {
  if (!has_mpi()) GTEST_SKIP() << "mpi: there is no MPI";
  for (const char* strategy : {"ddp", "zero1"})
    succeeds(
        Words{"launch", "--quiet", "--threads", "1", "--nproc", "2", "--logs", std::string("logs-") + strategy, "--"} +
        run(strategy, Words{"--optimizer", "muon", "--strategy", strategy}));
  EXPECT_TRUE(weights("ddp") == weights("zero1"));
}

}  // namespace
}  // namespace tern::program

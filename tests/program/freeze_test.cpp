// --freeze: what stays as it was, what has no state, and that the run is the same however it is divided or interrupted.

#include "tern/core/io/safetensors.h"
#include "tern/tests/program/resume.h"

namespace tern::program {
namespace {

class FreezeTest : public InterruptedRuns {
 protected:
  StateView state(const std::string& path) const { return load_safetensors(file(path).string()).tensors; }
  /// The entries of two folders' weights that differ, by name.
  std::vector<std::string> changed(const std::string& before, const std::string& after) const {
    const StateView old = state(before + "/model.safetensors");
    std::vector<std::string> names;
    for (const NamedTensor& entry : state(after + "/model.safetensors"))
      if (find(old, entry.name).to_vector<double>() != entry.tensor.to_vector<double>()) names.push_back(entry.name);
    return names;
  }
  static bool any_begins(const std::vector<std::string>& names, const std::string& begin) {
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return name.starts_with(begin); });
  }
};

const Words kBody = {"--freeze", "word.*,position.*,encoder.*"};

TEST_F(FreezeTest, TheBodyOfATextModel) {
  const Words more = kBody + "--keep 9 --max-steps 20 --ema 0.9 --weight-decay 0.5";
  succeeds(arguments("whole", more));
  EXPECT_EQ(json("whole/run.json")["options"]["freeze"], kBody[1]);
  for (const std::string& name : changed("curve", "whole"))
    EXPECT_TRUE(name.starts_with("distilbert.embeddings.LayerNorm.") || name.starts_with("pre_classifier.") ||
                name.starts_with("classifier."))
        << name;
  EXPECT_EQ(changed("curve", "whole").size(), 6u);
  for (const NamedTensor& entry : state("whole/checkpoints/step-00000010/optimizer.safetensors"))
    EXPECT_FALSE(has(entry.name, "word.") || has(entry.name, "position.") || has(entry.name, "encoder.")) << entry.name;

  copy("whole", "again");
  succeeds(resume("again/checkpoints/step-00000010"));
  expect_same("again", "whole");
  succeeds(arguments("recomputed", more + "--recompute block"));
  EXPECT_TRUE(weights("recomputed") == weights("whole"));
  expect_error(tern(arguments("whole", {"--freeze", "word.*", "--resume", "whole"})), 1,
               {"--freeze was " + kBody[1] + " and is word.*"});
}

/// A frozen layer below trained ones, with every kind of group: the gradient passes through it.
TEST_F(FreezeTest, ALayerBelowTrainedOnes) {
  for (const char* optimizer : {"muon", "lamb"}) {
    const std::string run = std::string("run-") + optimizer;
    succeeds(
        arguments(run, Words{"--freeze", "*.bias,encoder.layer.1.*", "--optimizer", optimizer, "--max-steps", "6"}));
    const std::vector<std::string> names = changed("curve", run);
    EXPECT_FALSE(any_begins(names, "distilbert.transformer.layer.1."));
    EXPECT_TRUE(any_begins(names, "distilbert.transformer.layer.0.attention.q_lin.weight"));
    for (const std::string& name : names) EXPECT_FALSE(name.ends_with(".bias")) << name;
  }
}

TEST_F(FreezeTest, SeveralProcesses) {
  if (!has_mpi()) GTEST_SKIP() << "mpi: there is no MPI";
  const Words launch = "launch --quiet --threads 1 --nproc 2 --logs";
  for (const std::string strategy : {"ddp", "zero1"})
    succeeds(launch + Words{"logs-" + strategy, "--"} +
             arguments(strategy, kBody + Words{"--max-steps", "12", "--ema", "0.9", "--strategy", strategy}));
  EXPECT_TRUE(weights("ddp") == weights("zero1"));
  EXPECT_EQ(changed("curve", "ddp").size(), 6u);
}

/// The norms of frozen parts keep their statistics, those of trained parts follow the batches.
TEST_F(FreezeTest, ImagesAndBatchNorms) {
  const std::string few = "--data digits --threads 1 --batch-size 4 --seed " + std::to_string(fresh_seed());
  succeeds("train cnn --max-steps 1 --out first " + few);
  const Result body =
      succeeds("train cnn --init first --max-steps 2 --out body --freeze conv1.*,bn1.*,layer[1-4].* " + few);
  EXPECT_TRUE(has(body.err, " of them trained")) << body.err;
  EXPECT_EQ(changed("first", "body"), (std::vector<std::string>{"fc.bias", "fc.weight"}));
  succeeds("train cnn --init first --max-steps 2 --out lower --freeze conv1.*,bn1.*,layer[1-3].* --recompute block " +
           few);
  const std::vector<std::string> names = changed("first", "lower");
  EXPECT_TRUE(any_begins(names, "layer4.0.bn1.running_mean") && any_begins(names, "layer4.0.conv1.weight"));
  for (const std::string& name : names) EXPECT_TRUE(name.starts_with("layer4.") || name.starts_with("fc.")) << name;

  succeeds("train vit --max-steps 2 --out eyes " + few);
  succeeds("train vit --init eyes --max-steps 2 --out head --freeze position,patch_*,class_token,encoder.* " + few);
  EXPECT_EQ(changed("eyes", "head"), (std::vector<std::string>{"classifier.bias", "classifier.weight"}));
}

TEST_F(FreezeTest, AnLstm) {
  const Words few = "--data data.csv --max-steps 3 --threads 1 --batch-size 4";
  succeeds(Words("train lstm --out first") + few);
  succeeds(Words{"train", "lstm", "--init", "first", "--out", "run", "--freeze", "word.*,lstm.weight_hh_l0"} + few);
  const std::vector<std::string> names = changed("first", "run");
  EXPECT_TRUE(any_begins(names, "lstm.weight_ih_l0") && any_begins(names, "classifier."));
  EXPECT_EQ(std::count(names.begin(), names.end(), "lstm.weight_hh_l0"), 0);
  EXPECT_EQ(std::count(names.begin(), names.end(), "word.weight"), 0);
}

TEST_F(FreezeTest, PatternsThatCannotBe) {
  expect_error(tern(arguments("run", {"--freeze", "encodre.*"})), 2,
               {"no parameter of the model matches 'encodre.*', did you mean 'encoder.*'?", "its parts are word.*"});
  expect_error(tern(arguments("run", {"--freeze", "word.*,x"})), 2, {"matches 'x'; its parts are"});
  expect_error(tern(arguments("run", {"--freeze", "*"})), 2, {"matches every parameter", "nothing is left to train"});
  for (const char* text : {",", "word.*,", ",word.*", ""})
    expect_error(tern(arguments("run", {"--freeze", text})), 2, {"--freeze: must be patterns of parameter names"});
}

}  // namespace
}  // namespace tern::program

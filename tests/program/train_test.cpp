// Training runs from outside: transformers' loss curve, determinism, the run folder's contract, eval and predict.

#include <cmath>

#include "tern/core/io/safetensors.h"
#include "tern/data/datasets/text_set.h"
#include "tern/tests/program/program.h"
#include "tern/tests/support/seed.h"

namespace tern::program {
namespace {

class TrainTest : public ProgramTest {
 protected:
  static Words command(const std::string& out, const Words& more) {
    return Words{"train", "distilbert", "--out", out} +
           with_defaults("--init curve --data curve/data.csv --dtype fp32", more);
  }
  Result train(const std::string& out, const Words& more) const {
    const Result result = succeeds(command(out, more));
    EXPECT_EQ(listing(out), kRunFiles);
    return result;
  }
  void expect_equal_steps(const std::vector<Json>& got, const std::vector<Json>& want, size_t count,
                          const std::vector<std::pair<std::string, double>>& fields_and_tolerances) const {
    ASSERT_EQ(got.size(), count);
    ASSERT_EQ(want.size(), count);
    for (size_t i = 0; i < count; ++i)
      for (const auto& [name, tolerance] : fields_and_tolerances)
        EXPECT_NEAR(got[i].at(name).get<double>(), want[i].at(name).get<double>(), tolerance) << name << " " << i;
  }
};

TEST_F(TrainTest, FiftyStepsAsTransformers) {
  const Words common =
      "--split all --no-shuffle --dropout 0 --batch-size 8 --max-steps 50 --lr 2e-3 --schedule linear --warmup 5 "
      "--clip 1 --weight-decay 0.01 --epochs 9";
  EXPECT_EQ(train("run", common).out, "test accuracy: none, there are no test rows\n");
  expect_equal_steps(steps("run"), json_lines(read("curve/losses.jsonl")), 50,
                     {{"step", 0}, {"loss", 1e-5}, {"grad_norm", 1e-4}, {"lr", 1e-12}});
}

TEST_F(TrainTest, SameBitsForTheSameSeedAndAnyWorkers) {
  const Words common = "--max-steps 200 --epochs 200 --batch-tokens 256 --lr 1e-3 --quiet --threads 2";
  EXPECT_EQ(train("a", common + "--workers 0").err, "");  // --quiet
  EXPECT_EQ(steps("a").size(), 200u);
  for (const char* workers : {"0", "1", "4"}) {
    train(std::string("b") + workers, common + Words{"--workers", workers});
    EXPECT_TRUE(weights("a") == weights(std::string("b") + workers)) << workers;
  }
  train("e", common + Words{"--seed", std::to_string(43 + fresh_seed() % 1000)});  // not 42, the default
  EXPECT_FALSE(weights("a") == weights("e"));
  EXPECT_FALSE(weights("a") == weights("curve"));
}

TEST_F(TrainTest, HalfPrecisionWithALossScale) {
  write("data.csv", easy_csv(120));
  succeeds(
      "train distilbert --data data.csv --out half --dtype fp16 --lr 1e-3 --epochs 12 --batch-size 8 --dropout 0 "
      "--threads 1 --quiet");
  double first = 0, last = 0;
  for (const Json& line : steps("half")) {
    EXPECT_GT(line["loss_scale"], 0);
    EXPECT_TRUE(line["skipped"].is_boolean());
    last = line["loss"];
    if (first == 0) first = last;
  }
  EXPECT_LT(last, 0.7 * first);
  EXPECT_EQ(options_of("half")["dtype"], "fp16");
}

/// 16-bit weights: the losses follow fp32's, the weights are stored as such, the folder says so, and eval and predict
/// take it.
TEST_F(TrainTest, SixteenBitWeights) {
  const Words common = "--max-steps 50 --lr 2e-3 --batch-size 8 --dropout 0";
  train("full", common);
  const std::vector<Json> full = steps("full");
  for (const std::string mode : {"bf16-true", "bf16-true --kahan", "fp16-true"}) {
    SCOPED_TRACE(mode);
    const std::string out = "run of " + mode, dtype = mode.substr(0, 9);
    const bool kahan = mode.size() > 9, half = dtype == "fp16-true";
    train(out, common + "--quiet --dtype " + mode);
    const std::vector<Json> lines = steps(out);
    ASSERT_EQ(lines.size(), full.size());
    for (size_t i = 0; i < full.size(); ++i) EXPECT_NEAR(lines[i]["loss"], full[i]["loss"], half ? 0.01 : 0.05) << i;
    for (const Json& line : lines) {
      EXPECT_EQ(line.contains("loss_scale"), half);
      EXPECT_TRUE(!half || line["loss_scale"] > 1);
    }
    const Json options = options_of(out);
    EXPECT_EQ(options["dtype"], dtype);
    EXPECT_EQ(options["kahan"], kahan);
    const DType stored = half ? float16 : bfloat16;
    EXPECT_EQ(json(out + "/config.json")["torch_dtype"], name_of(stored));
    for (const NamedTensor& entry : load_safetensors(file(out + "/model.safetensors")).tensors)
      EXPECT_EQ(entry.tensor.dtype(), stored) << entry.name;
    // The same weights, computed in fp32.
    EXPECT_NEAR(answer({"eval", out, "--json"})["loss"], metrics(out).back()["test_loss"], 0.02);
    write("lines.txt", "a good film\n");
    succeeds({"predict", out, "lines.txt"});
    // Training goes on from such a folder in any mode.
    train("more of " + mode, {"--init", out, "--max-steps", "2", "--dtype", half ? "fp32" : "fp16-true", "--quiet"});
  }
  EXPECT_FALSE(weights("run of bf16-true") == weights("run of bf16-true --kahan"));
}

TEST_F(TrainTest, RecomputationChangesNoBit) {
  const auto with = [&](const std::string& recompute) {
    return train(recompute, {"--max-steps", "20", "--dropout", "0.3", "--recompute", recompute});
  };
  with("none");
  for (const std::string recompute : {"block", "every-2", "every-100"}) {
    EXPECT_TRUE(has(with(recompute).err, "recompute " + recompute + ": activations "));
    EXPECT_TRUE(weights(recompute) == weights("none")) << recompute;
  }
}

TEST_F(TrainTest, ProfileWritesItsFilesAndChangesNoBit) {
  const Words common = "--lr 1e-3 --threads 2 --batch-size 8 --max-steps";
  train("plain", common + "12");
  const Result shown = succeeds(command("on", common + "12 --profile --profile-steps 5"));
  EXPECT_EQ(listing("on"),
            "config.json metrics.jsonl model.safetensors profile.txt run.json tokenizer_config.json "
            "trace.json vocab.txt");
  const std::string table = read("on/profile.txt");
  EXPECT_TRUE(table.starts_with("steps 3 to 7 of 12, ")) << table;
  for (const char* op : {"\nlinear ", "\nlinear backward ", "\nattention ", "\nattention backward ", "\nlayer_norm ",
                         "\nadamw ", "\ngradient_norm ", "\noutside ops ", "\nforward ", "\nbackward ", "\noptimizer ",
                         "\ndata ", "\nencoder.layer.0.attention.qkv ", "roofline: "})
    EXPECT_TRUE(has(table, op));
  EXPECT_TRUE(has(shown.err, "\nlinear backward "));  // a table, line by line
  std::map<std::string, int> events;
  const Json trace = json("on/trace.json");
  for (const Json& event : trace["traceEvents"]) ++events[event["name"]];
  EXPECT_GE(events["data"], 5);  // once more where an epoch ends
  for (const char* phase : {"forward", "backward", "optimizer", "adamw"}) EXPECT_EQ(events[phase], 5) << phase;

  // A run that ends before the profile, and files elsewhere.
  train("short", common + "2 --profile=p --quiet");
  EXPECT_TRUE(read("p.profile.txt").starts_with("steps 2 to 2 of 2, "));
  EXPECT_TRUE(json("p.trace.json")["traceEvents"].is_array());

  expect_equal_steps(steps("on"), steps("plain"), 12, {{"loss", 0}, {"grad_norm", 0}});
  EXPECT_TRUE(weights("plain") == weights("on"));
}

/// Settings of CUDA change nothing on the CPU, and are said to.
TEST_F(TrainTest, SettingsOfCudaOnTheCpu) {
  const Words common = "--device cpu --max-steps 3 --lr 1e-3";
  train("plain", common);
  const Result result = train("set", common + "--tf32 --autotune");
  EXPECT_TRUE(has(result.err, "--tf32 has no effect on cpu"));
  EXPECT_TRUE(has(result.err, "--autotune has no effect on cpu"));
  EXPECT_EQ(weights("plain"), weights("set"));
  const Json options = options_of("set");
  EXPECT_EQ(options["tf32"], true);
  EXPECT_EQ(options["autotune"], true);
  write("set/autotune.txt", "damaged");  // of no use here, so it is not read
  EXPECT_TRUE(has(succeeds("eval set --device cpu --tf32").err, "--tf32 has no effect on cpu"));
  EXPECT_EQ(succeeds("predict set --device cpu --tf32 --quiet", "a line\n").err, "");
}

TEST_F(TrainTest, AProfileThatCannotBeWritten) {
  const auto with = [&](const std::string& profile) {
    return tern(command("run", {"--max-steps", "3", "--profile=" + profile, "--quiet"}));
  };
  // Known before any work.
  expect_error(with("no/such/folder/p"), 1, {"no/such/folder/p.profile.txt", "cannot be written: no folder"});
  write("p.trace.json", "mine");
  expect_error(with("p"), 1, {"p.trace.json: exists", "nothing is overwritten"});
  EXPECT_EQ(read("p.trace.json"), "mine");
  EXPECT_FALSE(exists("run"));
  // Known at the end alone: the file's name is short enough, that of its temporary file is not. The run is kept.
  const Result late = with(std::string(240, 'p'));
  EXPECT_EQ(late.status, 1);
  EXPECT_TRUE(has(late.err, "tern: error: the run is complete, but its profile is not: "));
  EXPECT_TRUE(has(late.err, "File name too long"));
  EXPECT_TRUE(late.out.starts_with("test accuracy ")) << late.out;
  EXPECT_EQ(listing("run"), kRunFiles);
  EXPECT_EQ(steps("run").size(), 3u);
}

/// One batch of all rows, packed or padded: the same loss, norm and steps, with dropout.
TEST_F(TrainTest, PackedEqualsPadded) {
  const Words common = "--split all --epochs 12 --lr 1e-3 --dropout 0.3";
  train("packed", common + "--batch-tokens 5000");
  train("padded", common + "--batch-size 100");
  const std::vector<Json> packed = steps("packed");
  expect_equal_steps(packed, steps("padded"), 12, {{"loss", 1e-4}, {"tokens", 0}});
  EXPECT_GT(std::abs(packed[0]["loss"].get<double>() - packed[1]["loss"].get<double>()), 1e-4);  // other masks
}

TEST_F(TrainTest, RunFolderKeepsItsContract) {
  const Result result =
      train("run", {"--epochs", "3", "--lr", "2e-3", "--seed", std::to_string(fresh_seed()), "--batch-tokens", "128"});
  const std::vector<Json> lines = metrics("run");
  int64_t step = 0, epochs = 0, best_epoch = 0;
  double best = INFINITY;
  for (size_t i = 0; i + 1 < lines.size(); ++i) {
    const Json& line = lines[i];
    if (line.contains("epoch")) {
      EXPECT_EQ(line["epoch"], ++epochs);
      EXPECT_GE(line["val_loss"].get<double>(), 0);
      if (line["val_loss"] < best) best_epoch = epochs;
      best = std::min(best, line["val_loss"].get<double>());
      EXPECT_GE(line["val_accuracy"].get<double>(), 0);
      EXPECT_EQ(line.size(), 3u);
      continue;
    }
    EXPECT_EQ(line["step"], ++step);
    for (const char* name : {"loss", "lr", "grad_norm", "tokens", "seconds"})
      EXPECT_GE(line[name].get<double>(), 0) << name;
    EXPECT_EQ(line.size(), 6u);
  }
  EXPECT_EQ(epochs, 3);
  EXPECT_GE(step, 9);
  const Json& last = lines.back();
  for (const char* name : {"test_accuracy", "test_loss", "best_epoch", "best_val_accuracy", "train_seconds",
                           "tokens_per_second", "model_flops_utilization", "peak_memory_bytes"})
    EXPECT_TRUE(last.contains(name) && last[name].is_number()) << name;
  EXPECT_EQ(last["steps"], step);
  EXPECT_EQ(last["best_epoch"], best_epoch);

  const Json record = json("run/run.json");
  EXPECT_EQ(record["command"][0], "train");
  EXPECT_EQ(record["command"].size(), 18u);
  EXPECT_TRUE(record["version"].is_string() && record["commit"].is_string());
  for (const char* name : {"system", "cpu_level", "threads", "memory_bytes"})
    EXPECT_TRUE(record["machine"].contains(name));
  EXPECT_EQ(record["seed"], fresh_seed());
  const Json& options = record["options"];
  EXPECT_EQ(options["lr"], 2e-3);
  EXPECT_EQ(options["epochs"], 3);

  // eval of the run gives the accuracy that train printed, and predict agrees row by row.
  ASSERT_TRUE(result.out.starts_with("test accuracy ")) << result.out;
  const Result eval = succeeds("eval run");
  EXPECT_TRUE(("test " + eval.out).starts_with(result.out)) << eval.out;
  EXPECT_EQ(answer("eval run --json")["accuracy"], last["test_accuracy"]);

  const Json whole = answer("eval run --data curve/data.csv --json");
  EXPECT_EQ(whole["examples"], 44);
  const data::TextSet rows = data::load_text(kCurve + "/data.csv");
  std::string texts;
  for (int64_t i = 0; i < rows.size(); ++i) texts += std::string(rows.text(i)) + "\n";
  const std::vector<std::string> answers = lines_of(succeeds("predict run", texts).out);
  ASSERT_EQ(answers.size(), 44u);
  int correct = 0;
  for (size_t i = 0; i < answers.size(); ++i)
    correct += answers[i].substr(0, answers[i].find('\t')) == rows.label_names[static_cast<size_t>(rows.labels[i])];
  EXPECT_NEAR(whole["accuracy"].get<double>(), correct / 44.0, 1e-12);
}

TEST_F(TrainTest, LearnsAnEasyFileFromScratch) {
  write("easy.csv", easy_csv(300));
  const Result result =
      succeeds("train distilbert --data easy.csv --out run --epochs 10 --max-length 32 --lr 1e-3 --batch-tokens 512");
  EXPECT_EQ(metrics("run").back()["test_accuracy"], 1.0) << result.out;
  const Result answers =
      tern("predict run --jsonl", "{\"text\": \"it was awful\"}\n\n{\"text\": \"scene after scene great\"}\n");
  ASSERT_EQ(lines_of(answers.out).size(), 2u) << answers.err;
  EXPECT_EQ(json_lines(answers.out)[0]["label"], "neg");
  EXPECT_EQ(json_lines(answers.out)[1]["label"], "pos");
}

TEST_F(TrainTest, FoldsCoverEveryRowOnce) {
  int64_t tested = 0;
  for (const std::string fold : {"1/3", "2/3", "3/3"}) {
    const std::string out = "fold" + fold.substr(0, 1);
    train(out, {"--fold", fold, "--max-steps", "1"});
    const Json eval = answer({"eval", out, "--json"});
    EXPECT_EQ(eval["examples"], json(out + "/run.json")["rows"]["test"]);
    tested += eval["examples"].get<int64_t>();
  }
  EXPECT_EQ(tested, 44);
}

}  // namespace
}  // namespace tern::program

// Wrong usage: status 2, one line that lists the valid choices, and no files.

#include "tern/tests/program/program.h"

namespace tern::program {
namespace {

using UsageTest = ProgramTest;

TEST_F(UsageTest, WrongWordsAndNumbers) {
  write("data.csv", easy_csv(40));
  fs::remove_all(file("cache"));
  const struct {
    std::vector<std::string> arguments;
    std::vector<std::string> parts;
  } cases[] = {
      {{"trian"}, {"unknown command 'trian'", "'train'"}},
      {{"frobnicate"}, {"unknown command", "tern --help"}},
      {{"--frobnicate"}, {"--frobnicate"}},
      {{"train"}, {"model"}},
      {{"train", "distilbret"}, {"'distilbret'", "distilbert"}},
      {{"train", "cnn"}, {"'cnn' is not in this version"}},
      {{"train", "distilbert", "extra"}, {"'extra'"}},
      {{"train", "distilbert", "--ephocs", "3"}, {"'--ephocs'", "'--epochs'"}},
      {{"train", "distilbert", "--ephocs=3"}, {"'--ephocs'", "'--epochs'"}},
      {{"train", "distilbert", "-x"}, {"'-x'"}},
      {{"train", "distilbert", "--epochs"}, {"--epochs"}},
      {{"train", "distilbert", "--epochs", "0"}, {"--epochs", "0"}},
      {{"train", "distilbert", "--epochs", "2.5"}, {"--epochs", "2.5"}},
      {{"train", "distilbert", "--epochs", "three"}, {"--epochs", "three"}},
      {{"train", "distilbert", "--max-steps", "0"}, {"--max-steps"}},
      {{"train", "distilbert", "--max-steps", "99999999999999999999"}, {"--max-steps"}},
      {{"train", "distilbert", "--lr", "nan"}, {"--lr", "nan"}},
      {{"train", "distilbert", "--lr", "inf"}, {"--lr", "inf"}},
      {{"train", "distilbert", "--lr", "-1"}, {"--lr", "-1"}},
      {{"train", "distilbert", "--lr", "1", "--lr", "2"}, {"--lr"}},
      {{"train", "distilbert", "--weight-decay", "nan"}, {"--weight-decay"}},
      {{"train", "distilbert", "--warmup", "-0.1"}, {"--warmup"}},
      {{"train", "distilbert", "--clip", "nan"}, {"--clip"}},
      {{"train", "distilbert", "--dropout", "2"}, {"--dropout", "2"}},
      {{"train", "distilbert", "--dropout", "nan"}, {"--dropout", "nan"}},
      {{"train", "distilbert", "--threads", "-1"}, {"--threads"}},
      {{"train", "distilbert", "--workers", "-1"}, {"--workers"}},
      {{"train", "distilbert", "--seed", "-1"}, {"--seed", "-1"}},
      {{"train", "distilbert", "--seed", "99999999999999999999999"}, {"--seed"}},
      {{"train", "distilbert", "--batch-size", "0"}, {"--batch-size"}},
      {{"train", "distilbert", "--batch-tokens", "0"}, {"--batch-tokens"}},
      {{"train", "distilbert", "--max-length", "1"}, {"--max-length"}},
      {{"train", "distilbert", "--max-length", "999999999999"}, {"--max-length"}},
      {{"train", "distilbert", "--preset", "tinny"}, {"--preset", "'tinny'", "'tiny'"}},
      {{"train", "distilbert", "--optimizer", "adamv"}, {"--optimizer", "'adamw'"}},
      {{"train", "distilbert", "--schedule", "step"}, {"--schedule", "linear, cosine, constant"}},
      {{"train", "distilbert", "--dtype", "fp8"}, {"--dtype", "'fp8'"}},
      {{"train", "distilbert", "--device", "gpu"}, {"--device", "'gpu'"}},
      {{"train", "distilbert", "--split", "50/50"}, {"--split", "50/50", "80/10/10"}},
      {{"train", "distilbert", "--fold", "three"}, {"--fold", "three", "i/k"}},
      {{"train", "distilbert", "--fold", "1/5", "--split", "all"}, {"--split", "--fold"}},
      {{"train", "distilbert", "--preset", "tiny", "--init", "x"}, {"--preset", "--init"}},
      {{"train", "distilbert", "--batch-size", "4", "--batch-tokens", "99"}, {"--batch-size", "--batch-tokens"}},
      {{"train", "distilbert", "--group-by-length"}, {"--group-by-length", "--batch-size"}},
      {{"train", "distilbert", "--dtype", "bf16-treu"}, {"'bf16-treu'", "did you mean 'bf16-true'", "fp16-true"}},
      {{"train", "distilbert", "--kahan"}, {"--kahan", "--dtype bf16-true"}},
      {{"train", "distilbert", "--kahan", "--dtype", "bf16"}, {"--kahan", "--dtype bf16-true"}},
      {{"train", "distilbert", "--kahan", "--dtype", "fp16-true"}, {"--kahan", "--dtype bf16-true"}},
      {{"train", "distilbert", "--recompute", "all"}, {"--recompute", "none, block or every-N", "'all'"}},
      {{"train", "distilbert", "--recompute", "every-0"}, {"--recompute", "'every-0'"}},
      {{"train", "distilbert", "--recompute", "every-2x"}, {"--recompute", "'every-2x'"}},
      {{"train", "distilbert", "--tf23"}, {"'--tf23'", "'--tf32'"}},
      {{"eval"}, {"dir"}},
      {{"eval", "DIR", "--autotune"}, {"'--autotune'"}},
      {{"eval", "DIR", "--jsom"}, {"'--jsom'", "'--json'"}},
      {{"eval", "DIR", "--max-length", "-5"}, {"--max-length"}},
      {{"eval", "DIR", "--batch-tokens", "0"}, {"--batch-tokens"}},
      {{"eval", "DIR", "--dtype", "fp8"}, {"--dtype", "fp8"}},
      {{"eval", "DIR", "--split", "half"}, {"--split", "half"}},
      {{"predict"}, {"dir"}},
      {{"predict", "DIR", "--josnl"}, {"'--josnl'", "'--jsonl'"}},
      {{"tokenize", "--vcoab", "x"}, {"'--vcoab'", "'--vocab'"}},
      {{"tokenize", "--max-length", "1"}, {"--max-length"}},
      {{"info", "a", "b"}, {"'b'"}},
  };
  for (const auto& c : cases) {
    std::vector<std::string> arguments = c.arguments;
    std::string shown;
    for (const std::string& a : arguments) shown += a + " ";
    SCOPED_TRACE(shown);
    if (arguments.size() > 1 && arguments[0] == "train")
      arguments.insert(arguments.end(), {"--data", "data.csv", "--out", "run"});
    expect_error(tern(arguments), 2, c.parts);
  }
  EXPECT_EQ(listing("."), "data.csv");
}

TEST_F(UsageTest, HelpShowsDefaultsAndAnExample) {
  for (const std::string command : {"train", "resume", "eval", "predict", "tokenize", "info"}) {
    const Result result = succeeds({command, "--help"});
    EXPECT_EQ(result.err, "");
    for (const std::string& part : {"Usage: tern " + command, std::string("Example"), std::string("--device TEXT=auto"),
                                    std::string("--seed UINT=42"), std::string("--config"), std::string("--quiet")})
      EXPECT_TRUE(has(result.out, part)) << command << ": " << part;
  }
  const Result result = succeeds("--help");
  for (const std::string command : {"train", "resume", "eval", "predict", "tokenize", "info"})
    EXPECT_TRUE(has(result.out, command));
  EXPECT_EQ(tern({}).status, 2);
  succeeds("--version");
  EXPECT_EQ(tern("--version").out.substr(0, 5), "tern ");
  succeeds("info");
}

TEST_F(UsageTest, OptionFile) {
  const std::string common =
      "data = \"data.csv\"\nsplit = \"all\"\nmax_steps = 2\nbatch-size = 4\nquiet = true\nthreads = 1\n";
  write("data.csv", easy_csv(40));
  write("good.toml", common + "lr = 2e-3\nepochs = 3\nno-shuffle = true\n");
  const Result good = succeeds("train distilbert --config good.toml --lr 1e-3 --max-steps=1 --out run");
  EXPECT_EQ(good.err, "");
  const Json options = json("run/run.json")["options"];
  EXPECT_EQ(options["lr"], 1e-3);  // command-line flags take precedence
  EXPECT_EQ(options["max_steps"], 1);
  EXPECT_EQ(options["epochs"], 3);
  EXPECT_EQ(options["batch_size"], 4);
  EXPECT_EQ(options["shuffle"], false);
  EXPECT_EQ(options["config"], "good.toml");

  const struct {
    std::string text;
    std::vector<std::string> parts;
  } cases[] = {
      {"learning-rate = 1\n", {"bad.toml", "'learning-rate'"}},
      {"ephocs = 1\n", {"bad.toml", "'ephocs'", "'epochs'"}},
      {"[train]\nlr = 1\n", {"bad.toml", "'train'"}},
      {"lr = [1, 2]\n", {"bad.toml", "'lr'"}},
      {"lr = true\n", {"bad.toml", "'lr'"}},
      {"lr = \"fast\"\n", {"--lr", "fast"}},
      {"lr = nan\n", {"--lr", "nan"}},
      {"epochs = 2.5\n", {"--epochs", "2.5"}},
      {"quiet = 3\n", {"bad.toml", "'quiet'", "true or false"}},
      {"config = \"other.toml\"\n", {"'config'"}},
      {"help = true\n", {"'help'"}},
      {"lr = \n", {"bad.toml:1"}},
      {"a = 1\na = 2\n", {"bad.toml:2"}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.text);
    write("bad.toml", c.text);
    expect_error(tern("train distilbert --config=bad.toml --data data.csv --out other"), 2, c.parts);
  }
  expect_error(tern("train distilbert --config missing.toml"), 2, {"missing.toml"});
  EXPECT_FALSE(exists("other"));
}

}  // namespace
}  // namespace tern::program

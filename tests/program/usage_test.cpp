// Wrong usage: status 2, one line that lists the valid choices, and no files.

#include "tern/tests/program/program.h"

namespace tern::program {
namespace {

using UsageTest = ProgramTest;

TEST_F(UsageTest, WrongWordsAndNumbers) {
  write("data.csv", easy_csv(40));
  const std::pair<Words, std::vector<std::string>> cases[] = {
      {"trian", {"unknown command 'trian'", "'train'"}},
      {"frobnicate", {"unknown command", "tern --help"}},
      {"--frobnicate", {"--frobnicate"}},
      {"train", {"model"}},
      {"train distilbret", {"'distilbret'", "distilbert"}},
      {"train gpt", {"unknown model 'gpt'", "bert"}},
      {"train distilbert extra", {"'extra'"}},
      {"train distilbert --ephocs 3", {"'--ephocs'", "'--epochs'"}},
      {"train distilbert --ephocs=3", {"'--ephocs'", "'--epochs'"}},
      {"train distilbert -x", {"'-x'"}},
      {"train distilbert --learning-rate 1", {"'--learning-rate'", "'--lr'"}},
      {"train distilbert --num_train_epochs=2", {"'--num_train_epochs'", "'--epochs'"}},
      {"launch -n 2", {"'-n'", "'--nproc'"}},
      {"launch --num-processes=2", {"'--num-processes'", "'--nproc'"}},
      {"train distilbert --epochs", {"--epochs"}},
      {"train distilbert --lr 1 --lr 2", {"--lr: is given twice"}},
      {"train distilbert --lr=1 --lr=1", {"--lr: is given twice"}},
      {"eval DIR --data a --json --data=b", {"--data: is given twice"}},
      {"train distilbert --preset tinny", {"--preset", "'tinny'", "'tiny'"}},
      {"train distilbert --split 50/50", {"--split", "50/50", "80/10/10"}},
      {"train distilbert --fold three", {"--fold", "three", "i/k"}},
      {"train distilbert --fold 1/5 --split all", {"--split", "--fold"}},
      {"train distilbert --preset tiny --init x", {"--preset", "--init"}},
      {"train distilbert --batch-size 4 --batch-tokens 99", {"--batch-size", "--batch-tokens"}},
      {"train distilbert --group-by-length", {"--group-by-length", "--batch-size"}},
      {"train distilbert --kahan", {"--kahan", "--dtype bf16-true"}},
      {"train distilbert --kahan --dtype bf16", {"--kahan", "--dtype bf16-true"}},
      {"train distilbert --kahan --dtype fp16-true", {"--kahan", "--dtype bf16-true"}},
      {"train distilbert --recompute all", {"--recompute", "none, block or every-N", "'all'"}},
      {"train distilbert --recompute every-0", {"--recompute", "'every-0'"}},
      {"train distilbert --recompute every-2x", {"--recompute", "'every-2x'"}},
      {"train distilbert --schedule stepp", {"--schedule", "'stepp'", "'step'"}},
      {"train distilbert --schedule step", {"--schedule step requires --schedule-step"}},
      {"train distilbert --schedule multi-step", {"--schedule multi-step requires --schedule-milestones"}},
      {"train distilbert --schedule exponential", {"--schedule exponential requires --schedule-gamma"}},
      {"train distilbert --schedule cosine-restarts", {"--schedule cosine-restarts requires --schedule-period"}},
      {"train distilbert --schedule step --schedule-step 1.5", {"--schedule-step: ", "whole number of steps", "1.5"}},
      {"train distilbert --schedule step --schedule-step 0", {"--schedule-step: ", "'0'"}},
      {"train distilbert --schedule-gamma 1.1", {"--schedule-gamma: ", "from 0 to 1", "'1.1'"}},
      {"train distilbert --schedule-milestones 5,,9", {"--schedule-milestones: ", "'5,,9'"}},
      {"train distilbert --schedule-milestones 5,9.5", {"--schedule-milestones: ", "'5,9.5'"}},
      {"train distilbert --schedule-milestones 0", {"--schedule-milestones: ", "'0'"}},
      {"train distilbert --schedule-milestones 0.5,", {"--schedule-milestones: ", "'0.5,'"}},
      {"train distilbert --schedule-gamma 0.5", {"--schedule-gamma is for --schedule step, ", "not for linear"}},
      {"train distilbert --schedule-step 5 --schedule cosine",
       {"--schedule-step is for --schedule step, not for cosi"}},
      {"train distilbert --schedule-milestones 5 --schedule step", {"--schedule-milestones is for --schedule multi-"}},
      {"train distilbert --schedule-power 2", {"--schedule-power is for --schedule polynomial, not for linear"}},
      {"train distilbert --schedule-period 5", {"--schedule-period is for --schedule cosine-restarts"}},
      {"train distilbert --schedule-period-factor 2", {"--schedule-period-factor is for --schedule cosine-restarts"}},
      {"train distilbert --schedule-rise 0.5", {"--schedule-rise is for --schedule one-cycle"}},
      {"train distilbert --schedule-timescale 5", {"--schedule-timescale is for --schedule inverse-sqrt"}},
      {"train distilbert --schedule one-cycle --warmup 5", {"--warmup is for --schedule linear", "not for one-cycle"}},
      {"train distilbert --warmup 1.5", {"--warmup: must be a whole number of steps or a fraction", "1.5"}},
      {"train distilbert --tf23", {"'--tf23'", "'--tf32'"}},
      {"eval", {"dir"}},
      {"eval DIR --autotune", {"'--autotune'"}},
      {"eval DIR --jsom", {"'--jsom'", "'--json'"}},
      {"predict", {"dir"}},
      {"predict DIR --josnl", {"'--josnl'", "'--jsonl'"}},
      {"tokenize --vcoab x", {"'--vcoab'", "'--vocab'"}},
      {"info a b", {"'b'"}},
  };
  for (const auto& [arguments, parts] : cases) {
    SCOPED_TRACE(testing::PrintToString(arguments));
    const bool train = arguments.size() > 1 && arguments[0] == "train";
    expect_error(tern(arguments + (train ? "--data data.csv --out run" : "")), 2, parts);
  }
  EXPECT_EQ(listing("."), "curve data.csv");
}

TEST_F(UsageTest, HelpShowsDefaultsAndAnExample) {
  for (const std::string command : {"train", "resume", "eval", "predict", "tokenize", "fetch", "info"}) {
    const Result result = succeeds({command, "--help"});
    EXPECT_EQ(result.err, "");
    for (const char* part : {"Example", "--device TEXT=auto", "--seed UINT=42", "--config", "--quiet"})
      EXPECT_TRUE(has(result.out, part)) << command;
    EXPECT_TRUE(has(result.out, "Usage: tern " + command));
    EXPECT_EQ(succeeds({"help", command}).out, result.out);
  }
  const Result result = succeeds("--help");
  for (const std::string command : {"train", "resume", "eval", "predict", "tokenize", "fetch", "info"})
    EXPECT_TRUE(has(result.out, command));
  EXPECT_EQ(succeeds("help").out, result.out);
  EXPECT_EQ(tern({}).status, 2);
  EXPECT_EQ(succeeds("--version").out.substr(0, 5), "tern ");
  succeeds("info");
}

/// What `| head -1` does to a long text.
TEST_F(UsageTest, AReaderThatGoesAwayIsNoError) {
  for (const Words& command : {Words("--help"), Words("train --help"), Words("info"), Words("info curve")}) {
    const Result result = tern(command, Setting{.in_child = [] {
                                 int ends[2];
                                 if (pipe(ends) != 0 || dup2(ends[1], STDOUT_FILENO) < 0) _exit(125);
                                 close(ends[0]);
                                 close(ends[1]);
                               }});
    EXPECT_EQ(result.status, 128 + SIGPIPE) << testing::PrintToString(command);
    EXPECT_EQ(result.err, "");
  }
}

TEST_F(UsageTest, InfoOfAFileOfData) {
  write("good.csv", easy_csv(4));
  write("c.tsv", "c\td\na\tb\n");
  write("d.jsonl", "{}\n");
  for (const char* name : {"good.csv", "c.tsv", "d.jsonl"}) {
    const Result result = tern(Words("info") + name);
    expect_error(result, 1, {std::string(name) + ": a file of data", std::string("--data ") + name});
    EXPECT_FALSE(has(result.err, "pickle")) << result.err;
  }
  expect_error(tern("info missing.csv"), 1, {"cannot open missing.csv"});
  // A text with another name is no pickle either.
  write("c", "column,d\na,b\n");
  write("l", "label,text\na,b\n");
  for (const char* name : {"c", "l"}) {
    const Result result = tern(Words("info") + name);
    expect_error(result, 1, {std::string(name) + ": neither a safetensors file nor one that PyTorch or NumPy writes"});
    EXPECT_FALSE(has(result.err, "pickle")) << result.err;
  }
}

TEST_F(UsageTest, OptionFile) {
  const std::string common =
      "data = \"data.csv\"\nsplit = \"all\"\nmax_steps = 2\nbatch-size = 4\nquiet = true\nthreads = 1\n";
  write("data.csv", easy_csv(40));
  write("good.toml", common + "lr = 2e-3\nepochs = 3\nno-shuffle = true\n");
  const Result good = succeeds("train distilbert --config good.toml --lr 1e-3 --max-steps=1 --out run");
  EXPECT_EQ(good.err, "");
  const Json options = options_of("run");
  const Json expected = {{"lr", 1e-3},  {"max_steps", 1},  // flags take precedence
                         {"epochs", 3}, {"batch_size", 4}, {"shuffle", false}, {"config", "good.toml"}};
  for (const auto& [name, value] : expected.items()) EXPECT_EQ(options[name], value) << name;

  const std::pair<std::string, std::vector<std::string>> cases[] = {
      {"learning-rate = 1\n", {"bad.toml", "'learning-rate'", "'lr'"}},
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
  for (const auto& [text, parts] : cases) {
    SCOPED_TRACE(text);
    write("bad.toml", text);
    expect_error(tern("train distilbert --config=bad.toml --data data.csv --out other"), 2, parts);
  }
  expect_error(tern("train distilbert --config missing.toml"), 2, {"missing.toml"});
  EXPECT_FALSE(exists("other"));
}

}  // namespace
}  // namespace tern::program

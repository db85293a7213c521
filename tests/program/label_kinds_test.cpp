// Texts with several labels and with numbers: train, resume, eval, predict, and what is refused.

#include <cmath>
#include <map>

#include "tern/tests/program/resume.h"

namespace tern::program {
namespace {

class LabelKindsProgramTest : public InterruptedRuns {
 protected:
  LabelKindsProgramTest() {
    // Each label and each part of the number is a word. Fixed texts: runs must learn them to some degree.
    std::mt19937_64 fixed(11);
    const std::vector<std::string> words = {"great", "movie", "plot"}, labels = {"b", "a", "c d"};
    std::string multi = "labels,text\n", lists, numbers = "text\tlabel\n";
    for (int row = 0; row < 60; ++row) {
      std::string text, joined;
      Json list = Json::array();
      double number = -1;
      for (size_t i = 0; i < 3; ++i) {
        text += std::string(1, static_cast<char>('a' + fixed() % 20)) + " ";
        if (fixed() % 2 == 0) continue;
        text += words[i] + " ";
        joined += (joined.empty() ? "" : "; ") + labels[i];
        list.push_back(labels[i]);
        number += 0.75 * static_cast<double>(i + 1);
      }
      multi += joined + "," + text + "\n";
      lists += Json{{"text", text}, {"labels", list}}.dump() + "\n";
      numbers += text + "\t" + std::to_string(number) + "\n";
    }
    write("multi.csv", multi);
    write("multi.jsonl", lists);
    write("numbers.tsv", numbers);
  }

  static Words several(const std::string& out, const Words& more = {}) {
    return arguments(out, with_defaults("--data multi.csv --lr 1e-2 --dropout 0 --keep 9", more));
  }
  static Words regression(const std::string& out, const Words& more = {}) {
    return several(out, with_defaults("--data numbers.tsv --task regression", more));
  }
  /// The answers of `predict --jsonl` for the texts of multi.jsonl, which are those of the other files.
  std::vector<Json> predictions(const std::string& run) const {
    std::vector<Json> answers;
    return json_lines(succeeds({"predict", run, "multi.jsonl", "--jsonl", "--threads", "1"}).out);
  }
  void expect_resumes(const std::string& run) {
    const std::vector<std::string> all = checkpoints(run);
    ASSERT_GE(all.size(), 4u);
    copy(run, "again");
    succeeds(resume("again/checkpoints/" + all[1 + random_() % (all.size() - 1)]));
    expect_same("again", run);
  }
};

TEST_F(LabelKindsProgramTest, SeveralLabels) {
  const Result trained = succeeds(several("run"));
  EXPECT_TRUE(trained.out.starts_with("test F1 (micro) ")) << trained.out;
  EXPECT_TRUE(has(trained.err, ", F1 (micro) "));
  EXPECT_EQ(json("run/config.json")["problem_type"], "multi_label_classification");
  EXPECT_EQ(json("run/config.json")["label2id"], (Json{{"a", 0}, {"b", 1}, {"c d", 2}}));
  EXPECT_EQ(options_of("run")["task"], "auto");
  EXPECT_EQ(json("run/run.json")["model"]["problem_type"], "multi_label_classification");
  expect_resumes("run");

  const Json last = metrics("run").back(), test = answer("eval run --json --threads 1");
  EXPECT_EQ(test["loss"], last["test_loss"]);
  EXPECT_EQ(test["f1_micro"], last["test_f1_micro"]);
  EXPECT_GT(last["best_val_f1_micro"], 0);

  // What eval finds is what predict's answers give.
  const Json whole = answer("eval run --data multi.jsonl --json --threads 1");
  EXPECT_EQ(whole, answer("eval run --data multi.csv --json --threads 1"));
  const std::vector<Json> wanted = json_lines(read("multi.jsonl")), found = predictions("run");
  ASSERT_EQ(found.size(), wanted.size());
  double right = 0, predicted = 0, targets = 0, loss = 0, exact = 0;
  std::map<std::string, double> agree;
  for (size_t row = 0; row < found.size(); ++row) {
    bool all = true;
    for (const auto& [label, column] : {std::pair("a", 0), std::pair("b", 1), std::pair("c d", 2)}) {
      const auto holds = [&, &label = label](const Json& list) {
        return std::count(list.begin(), list.end(), Json(label)) == 1;
      };
      const double logit = found[row]["logits"][column], t = holds(wanted[row]["labels"]);
      const double p = holds(found[row]["labels"]);
      EXPECT_EQ(p, logit > 0);
      right += p * t;
      predicted += p;
      targets += t;
      agree[label] += p == t;
      all = all && p == t;
      loss += (std::log1p(std::exp(-std::abs(logit))) + std::max(logit, 0.0) - logit * t) / 3;
    }
    exact += all;
    ASSERT_EQ(found[row]["scores"].size(), found[row]["labels"].size());
  }
  const double n = static_cast<double>(found.size());
  EXPECT_NEAR(whole["f1_micro"].get<double>(), 2 * right / (predicted + targets), 1e-9);
  EXPECT_NEAR(whole["accuracy"].get<double>(), exact / n, 1e-9);
  EXPECT_NEAR(whole["loss"].get<double>(), loss / n, 1e-4);
  for (const auto& [label, count] : agree)
    EXPECT_NEAR(whole["labels"][label]["accuracy"].get<double>(), count / n, 1e-9) << label;
  EXPECT_GT(whole["f1_micro"], 0.5);  // it has learnt something

  const std::string lines = succeeds("predict run --threads 1", std::string("great movie plot\nx\n")).out;
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2);
  EXPECT_TRUE(has(succeeds("eval run --data multi.csv --threads 1 --quiet").out, "\n  c d    "));
}

TEST_F(LabelKindsProgramTest, Numbers) {
  const Result trained = succeeds(regression("run"));
  EXPECT_TRUE(trained.out.starts_with("test R2 ")) << trained.out;
  EXPECT_EQ(json("run/config.json")["problem_type"], "regression");
  EXPECT_EQ(json("run/config.json")["id2label"], (Json{{"0", "LABEL_0"}}));
  EXPECT_EQ(options_of("run")["task"], "regression");
  expect_resumes("run");
  EXPECT_EQ(answer("eval run --json --threads 1")["r2"], metrics("run").back()["test_r2"]);

  const Json whole = answer("eval run --data numbers.tsv --json --threads 1");
  std::vector<double> wanted, found;
  for (const std::string& line : lines_of(read("numbers.tsv")))
    if (line != "text\tlabel") wanted.push_back(std::stod(line.substr(line.find('\t'))));
  for (const Json& line : predictions("run")) found.push_back(line["value"]);
  ASSERT_EQ(found.size(), wanted.size());
  const double n = static_cast<double>(found.size());
  double mean = 0, error = 0, absolute = 0, spread = 0;
  for (const double y : wanted) mean += y / n;
  for (size_t i = 0; i < found.size(); ++i) {
    error += (found[i] - wanted[i]) * (found[i] - wanted[i]);
    absolute += std::abs(found[i] - wanted[i]);
    spread += (wanted[i] - mean) * (wanted[i] - mean);
  }
  EXPECT_NEAR(whole["mse"].get<double>(), error / n, 1e-4);
  EXPECT_EQ(whole["examples"], 60);
  EXPECT_NEAR(whole["loss"].get<double>(), error / n, 1e-4);
  EXPECT_NEAR(whole["mae"].get<double>(), absolute / n, 1e-4);
  EXPECT_NEAR(whole["r2"].get<double>(), 1 - error / spread, 1e-4);
  EXPECT_GT(whole["pearson"], 0.3);  // it has learnt something
  EXPECT_GT(whole["spearman"], 0.3);
  const std::vector<std::string> lines = lines_of(succeeds("predict run --threads 1", std::string("great\n")).out);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NO_THROW(std::stod(lines[0]));
  EXPECT_TRUE(has(succeeds("eval run --threads 1 --quiet").out, ", Spearman "));
}

TEST_F(LabelKindsProgramTest, R2OfOneRowIsNotDefined) {
  const Result result = succeeds(regression("run", "--split 58/1/1 --epochs 1"));
  EXPECT_TRUE(has(result.err, "58 rows, validate 1, test 1; ")) << result.err;
  EXPECT_TRUE(has(result.err, ", 1 epoch\n") || has(result.err, ", 1 epoch;")) << result.err;
  EXPECT_TRUE(result.out.starts_with("test R2 (not defined for one row) (1 row, loss ")) << result.out;
  EXPECT_FALSE(has(result.err, "R2 0.0000"));
  EXPECT_TRUE(metrics("run").back()["test_r2"].is_null());
  EXPECT_TRUE(has(succeeds("eval run --threads 1 --quiet").out, ", R2 -, Pearson -, Spearman - (1 row)"));
}

/// By the columns of a terminal: ideographs have two, accents of their own none.
TEST_F(LabelKindsProgramTest, TablesAreAlignedByColumns) {
  const std::vector<std::pair<std::string, size_t>> names = {{"caf\xc3\xa9", 4},
                                                             {"cafe\xcc\x81s", 5},
                                                             {"\xe5\x96\x9c\xe3\x81\xb3", 4},
                                                             {"\xf0\x9f\x98\x80", 2},
                                                             {"plain name", 10}};
  std::string csv = "label,text\n", several = "labels,text\n";
  for (size_t row = 0; row < 40; ++row) {
    csv += names[row % names.size()].first + ",text\n";
    several += names[row % names.size()].first + ";" + names[(row + 1) % names.size()].first + ",text\n";
  }
  write("wide.csv", csv);
  write("several.csv", several);
  for (const std::string data : {"wide.csv", "several.csv"}) {
    fs::remove_all(file("run"));
    succeeds({"train", "distilbert", "--data", data, "--max-steps", "1", "--out", "run", "--threads", "1"});
    const std::string table = succeeds({"eval", "run", "--data", data, "--threads", "1"}).out;
    for (const auto& [name, columns] : names)
      EXPECT_TRUE(has(table, "\n  " + name + std::string(10 - columns + 2, ' '))) << table;
  }
}

TEST_F(LabelKindsProgramTest, AModelOfAnotherKindGetsANewHead) {
  succeeds(several("several", "--max-steps 10"));
  const auto from = [&](const Words& run) { return with_defaults("--init several --max-steps 10", run); };
  const Result again = succeeds(texts("more", from("--data multi.jsonl --epochs 1 --batch-size 2")));
  EXPECT_FALSE(has(again.err, "classification head"));
  EXPECT_TRUE(has(succeeds(texts("numbers", from("--data numbers.tsv --task regression --batch-size 2"))).err,
                  "a new classification head for 1 label is initialized: the model has labels and the data numbers"));
  // The model's order of the labels is kept: with a rate of 0 it finds what eval finds.
  Json config = json("several/config.json");
  config["id2label"] = {{"0", "c d"}, {"1", "a"}, {"2", "b"}};
  config["label2id"] = {{"c d", 0}, {"a", 1}, {"b", 2}};
  write("several/config.json", config.dump());
  succeeds(texts("turned", from("--data multi.jsonl --lr 0 --epochs 1 --batch-size 2")));
  EXPECT_EQ(json("turned/config.json")["id2label"], config["id2label"]);
  EXPECT_EQ(answer("eval turned --json --threads 1")["loss"], metrics("turned").back()["test_loss"]);
  // A model of one label for each text, given lists.
  expect_error(tern("eval curve --data multi.csv"), 1, {"multi.csv:1: no label column"});
  expect_error(tern("eval several --data numbers.tsv"), 1, {"unknown label"});
  expect_error(tern("eval several --data sentences"), 1, {"sentences", ".csv, .tsv or .jsonl"});
  expect_error(tern("eval numbers --data multi.csv"), 1, {"multi.csv:1: no number column (label or score)"});
}

TEST_F(LabelKindsProgramTest, WhatIsRefused) {
  expect_error(tern("train vit --task regression"), 2, {"--task is for models that take texts"});
  expect_error(tern("train distilbert --task regression --label-smoothing 0.1"), 2, {"--label-smoothing"});
  expect_error(tern("train distilbert --task multi_label --out new"), 2, {"--data is needed"});
  expect_error(tern("train distilbert --task regression --data sentences --out new"), 1, {"\"sentences\""});
  expect_error(tern("train distilbert --task single_label --data multi.csv --out new"), 1, {"no label column"});
  expect_error(tern("train distilbert --task single_label --data multi.jsonl --out new"), 1, {"no label column"});
  write("mixed.jsonl", "{\"text\": \"a\", \"label\": \"x\"}\n{\"text\": \"b\", \"label\": [\"y\"]}\n");
  expect_error(tern("train distilbert --data mixed.jsonl --out new"), 1,
               {"mixed.jsonl:2: the label must be a string, a number, true or false, got array", "--task multi_label"});
  write("bad.csv", "text,label\na,1\nb,nan\n");
  expect_error(tern("train distilbert --task regression --data bad.csv --out new"), 1, {"bad.csv:3", "not finite"});
  write("bad.csv", "text,label\na,1\nb,good\n");
  expect_error(tern("train distilbert --task regression --data bad.csv --out new"), 1, {"bad.csv:3", "\"good\""});
  write("empty.jsonl", "{\"text\": \"a\", \"labels\": []}\n");
  expect_error(tern("train distilbert --data empty.jsonl --out new"), 1, {"no row has a label"});
  write("blank.csv", "text,labels\n ,a\n");
  expect_error(tern("train distilbert --data blank.csv --out new"), 1, {"all 1 texts are empty"});

  succeeds(regression("run", "--max-steps 10"));
  const Words other = Words("--resume run --max-steps 10") + Words{"--task", "multi_label"};
  expect_error(tern(several("run", other)), 1, {"--task was regression and is multi_label"});
  unfinish("run");
  write("numbers.tsv", read("numbers.tsv") + "one more\t7\n");
  expect_error(tern("resume run"), 1, {"the data's"});
}

/// What eval says of each class is what predict's answers give; a class without examples has no numbers.
TEST_F(LabelKindsProgramTest, EveryClassOfSingleLabels) {
  std::string rows = "text,label\n", texts;
  for (const char* label : {"good", "bad", "none"})
    for (int i = 0; i < 8; ++i) rows += std::string(label) + " number " + std::to_string(i) + "," + label + "\n";
  write("three.csv", rows);
  succeeds("train distilbert --data three.csv --out run --max-steps 4 --split all --threads 1 --quiet");
  write("two.csv", "text,label\ngood day,good\nbad day,bad\nbad night,bad\ngood and bad,good\nnone here,good\n");
  for (const char* text : {"good day", "bad day", "bad night", "good and bad", "none here"})
    texts += text + std::string("\n");
  const std::vector<std::string> wanted = {"good", "bad", "bad", "good", "good"};
  std::map<std::string, std::map<std::string, int>> counts;  // of labels and predictions
  const std::vector<Json> predicted = json_lines(tern("predict run --threads 1 --jsonl",
                                                      [&] {
                                                        std::string lines;
                                                        for (const std::string& text : lines_of(texts))
                                                          lines += Json{{"text", text}}.dump() + "\n";
                                                        return lines;
                                                      }())
                                                     .out);
  ASSERT_EQ(predicted.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) ++counts[wanted[i]][predicted[i]["label"]];

  const Json found = answer("eval run --data two.csv --json --threads 1");
  std::vector<std::string> names;
  for (const auto& [name, ignored] : found["labels"].items()) names.push_back(name);
  ASSERT_EQ(names.size(), 3u);
  const Json info = json("run/config.json")["id2label"];
  for (size_t row = 0; row < 3; ++row)
    for (size_t column = 0; column < 3; ++column)
      EXPECT_EQ(found["confusion_matrix"][row][column], counts[info[std::to_string(row)]][info[std::to_string(column)]])
          << row << column;
  EXPECT_TRUE(found["labels"]["none"]["recall"].is_null());
  EXPECT_EQ(found["labels"]["none"]["rows"], 0);
  EXPECT_EQ(found["labels"]["good"]["rows"], 3);
  EXPECT_TRUE(found["f1_macro"].is_number());
  const Result text = succeeds("eval run --data two.csv --threads 1");
  EXPECT_TRUE(has(text.out, " rows, loss ") && has(text.out, "precision  recall      F1  rows"));
  EXPECT_TRUE(has(text.out, "       -") && has(text.out, "predicted\n"));
  EXPECT_TRUE(has(text.err, "confusion matrix: run/confusion_matrix_other.svg"));
  EXPECT_FALSE(exists("run/confusion_matrix.svg"));

  // A folder that is no run's is left as it is; a run whose folder takes no file is evaluated all the same.
  copy("run", "model");
  for (const char* name : {"run.json", "confusion_matrix.svg", "confusion_matrix_other.svg"})
    fs::remove(file(std::string("model/") + name));
  EXPECT_EQ(tern("eval model --data two.csv --threads 1").out, text.out);
  EXPECT_FALSE(exists("model/confusion_matrix.svg") || exists("model/confusion_matrix_other.svg"));
  fs::remove(file("run/confusion_matrix_other.svg"));
  fs::create_directory(file("run/confusion_matrix_other.svg"));
  const Result unwritable = succeeds("eval run --data two.csv --threads 1");
  EXPECT_EQ(unwritable.out, text.out);
  EXPECT_TRUE(has(unwritable.err, "was not written: run/confusion_matrix_other.svg"));
}

/// Other rows than the run's own test rows have a picture of their own.
TEST_F(LabelKindsProgramTest, ThePictureOfTheTestRowsIsKept) {
  write("easy.csv", easy_csv(40));
  succeeds("train distilbert --data easy.csv --out run --max-steps 1 --threads 1 --quiet");
  EXPECT_TRUE(has(succeeds("eval run --threads 1").err, "confusion matrix: run/confusion_matrix.svg"));
  const std::string own = read("run/confusion_matrix.svg");
  EXPECT_TRUE(has(own, "</svg>"));
  for (const char* more : {"--data easy.csv", "--split 10/10/80", "--fold 1/2", "--seed 77"}) {
    fs::remove(file("run/confusion_matrix_other.svg"));
    EXPECT_TRUE(has(succeeds(Words("eval run --threads 1") + more).err, "run/confusion_matrix_other.svg")) << more;
    EXPECT_TRUE(has(read("run/confusion_matrix_other.svg"), "</svg>"));
    EXPECT_EQ(read("run/confusion_matrix.svg"), own) << more;
  }
}

/// Ranks without validation rows too.
TEST_F(LabelKindsProgramTest, SeveralProcesses) {
  if (!has_mpi()) GTEST_SKIP() << "mpi: there is no MPI";
  int launches = 0;
  const auto launched = [&](const Words& command) {
    return Words("launch --quiet --threads 1 --nproc 3 --logs logs" + std::to_string(++launches) + " --") + command;
  };
  for (const bool numbers : {false, true}) {
    SCOPED_TRACE(numbers);
    const std::string one = numbers ? "one-n" : "one-s", three = numbers ? "three-n" : "three-s";
    const Words common = "--split 50/2/8 --batch-size 4 --epochs 3 --schedule constant --accumulate ";
    const auto run = [&](const std::string& out, const char* accumulate) {
      const Words more = common + Words{accumulate};
      return numbers ? regression(out, more) : several(out, more);
    };
    succeeds(run(one, "3"));
    succeeds(launched(run(three, "1")));
    const std::vector<Json> expected = metrics(one), found = metrics(three);
    ASSERT_EQ(found.size(), expected.size());
    const char* const metric = numbers ? "val_r2" : "val_f1_micro";
    for (size_t i = 0; i < found.size(); ++i) {
      if (!expected[i].contains(metric)) continue;
      EXPECT_NEAR(found[i]["val_loss"].get<double>(), expected[i]["val_loss"].get<double>(), 1e-3);
    }
    const Words eval = {"eval", one, "--data", numbers ? "numbers.tsv" : "multi.csv", "--json", "--threads", "1"};
    EXPECT_EQ(Json::parse(succeeds(launched(eval)).out), answer(eval));  // bit for bit
  }
}

}  // namespace
}  // namespace tern::program

// Data sets as users provide them: a damaged file gives an error with file and line and no folder; unusual texts work.

#include "tern/tests/program/program.h"

namespace tern::program {
namespace {

class DataTest : public ProgramTest {
 protected:
  static Words train(const std::string& data, const Words& more = {}) {
    return "train distilbert --out run --threads 1 --max-steps 2" + Words{"--data", data} + more;
  }
  void expect_rejected(const std::string& name, const std::string& text, const std::vector<std::string>& parts,
                       const Words& more = {}) const {
    SCOPED_TRACE(name + ": " + text.substr(0, 60));
    write(name, text);
    expect_error(tern(train(name, more)), 1, parts);
    EXPECT_FALSE(exists("run"));
  }
};

/// A label that only the test rows have is named, and training rows of one label alone are an error.
TEST_F(DataTest, LabelsWithoutTrainingRows) {
  for (const char* label : {"a", "b"})
    for (int i = 0; i < 12; ++i) write("set/train/" + std::string(label) + "/" + std::to_string(i) + ".txt", "a word");
  for (const char* label : {"a", "b", "c"}) write("set/test/" + std::string(label) + "/0.txt", "a word");
  EXPECT_TRUE(has(succeeds(train("set")).err, "no training row has the label 'c', so the model cannot learn it"));
  fs::remove_all(file("run"));
  fs::remove_all(file("set/test/c"));
  EXPECT_FALSE(has(succeeds(train("set")).err, "no training row"));
  fs::remove_all(file("run"));
  fs::remove_all(file("set/train/b"));
  expect_error(tern(train("set")), 1, {"training rows have one label alone", "--split"});
  // A set with several labels. One of its rows is for training, and each row has a label that no other row has.
  std::string several = "text,labels\n";
  for (int i = 0; i < 5; ++i) several += "a word,label" + std::to_string(i) + ";all\n";
  write("several.csv", several);
  fs::remove_all(file("run"));
  const std::string err = succeeds(train("several.csv", "--split 1/2/2")).err;
  EXPECT_TRUE(has(err, "no training row has the label 'label")) << err;
  EXPECT_FALSE(has(err, "'all'")) << err;
}

/// One line says what was decided, and no rows are merged or lost.
TEST_F(DataTest, FilesOfOtherPrograms) {
  std::string quotes = "label\ttext\npos\t\"a stray one\n";
  for (int i = 0; i < 20; ++i) quotes += i % 2 == 0 ? "neg\tbad\n" : "pos\tgood\n";
  write("quotes.tsv", quotes + "neg\tthe end is \"\n");
  const Result stray = succeeds(train("quotes.tsv", "--split all"));
  EXPECT_TRUE(has(stray.err, "quotes.tsv: double quotes are part of the text")) << stray.err;
  EXPECT_EQ(json("run/run.json")["rows"]["train"], 22);
  std::string excel = easy_csv(20), old = excel;
  std::replace(excel.begin(), excel.end(), ',', ';');
  std::replace(old.begin(), old.end(), '\n', '\r');
  write("excel.csv", excel);
  write("old.csv", old);
  EXPECT_TRUE(has(succeeds("eval run --data excel.csv").err, "separated by semicolons"));
  for (const char* name : {"excel.csv", "old.csv"})
    EXPECT_EQ(answer(Words("eval run --json --data") + name)["examples"], 20) << name;
  write("returns.csv", "a,b\r" + std::string(4'000'000, 'x') + "\r");
  const Result wrong = tern("eval run --data returns.csv");
  expect_error(wrong, 1, {"returns.csv:1: no text column"});
  EXPECT_LT(wrong.err.size(), 10'000u);
}

/// A few; tests/data/text_set_test.cpp has the others.
TEST_F(DataTest, DamagedFiles) {
  expect_rejected("a.csv", "label,text\n0,x\n1,y,z\n", {"a.csv:3"});
  expect_rejected("a.csv", "label,text\n0,x\n0,y\n0,z\n", {"a.csv", "'0'", "two"});
  expect_rejected("a.jsonl", "{\"label\": 0, \"text\": \"x\"}\n{\"label\": 1\n", {"a.jsonl:2"});
  fs::create_directories(file("empty/train"));
  expect_error(tern(train("empty")), 1, {"empty"});
  expect_error(tern(train("missing.csv")), 1, {"missing.csv"});
  EXPECT_FALSE(exists("run"));
}

TEST_F(DataTest, SplitsThatDoNotFit) {
  expect_rejected("a.csv", easy_csv(10), {"split", "10"}, "--split 8/8/8");
  expect_rejected("a.csv", easy_csv(10), {"--batch-tokens", "--max-length"}, "--batch-tokens 4");
  // Without test and validation rows it trains and reports that.
  const Result result = succeeds(train("a.csv", "--split 8/0/0"));
  EXPECT_TRUE(result.out.starts_with("test accuracy: none")) << result.out;
  EXPECT_EQ(listing("run"), kRunFiles);
  expect_error(tern("eval run"), 1, {"no test rows", "--split"});
  EXPECT_EQ(tern("eval run --split all --data a.csv").status, 1);
  succeeds("eval run --data a.csv");
}

TEST_F(DataTest, OddTexts) {
  std::string csv = easy_csv(40);
  csv += "neg,\npos,\"\"\nneg,\xff\xfe broken \xc3(\n";
  csv += "pos,\"" + std::string(10 << 20, 'x') + "\"\nneg,\"";
  for (int i = 0; i < 1 << 20; ++i) csv += "long text ";
  csv += "\"\npos,\"line one\nline two, \"\"quoted\"\"\"\r\n";
  write("odd.csv", csv);
  EXPECT_TRUE(has(succeeds(train("odd.csv", "--split all")).err, "3 invalid UTF-8"));
  EXPECT_EQ(json("run/run.json")["rows"]["train"], 46);
  EXPECT_EQ(answer("eval run --data odd.csv --json")["examples"], 46);
}

TEST_F(DataTest, LabelsOfTheRunDecideAtEvaluation) {
  write("a.csv", easy_csv(20));
  succeeds(train("a.csv"));
  write("b.csv", "text,label\nx,neg\ny,neutral\n");
  expect_error(tern("eval run --data b.csv"), 1, {"b.csv:3", "neutral", "neg", "pos"});
  write("c.csv", "review,sentiment\nx,Positive\ny,NEG\nz,1\n");
  succeeds("eval run --data c.csv");
  write("d.csv", "text,label\nx,2\n");
  expect_error(tern("eval run --data d.csv"), 1, {"d.csv:2", "2"});
  fs::remove(file("a.csv"));
  expect_error(tern("eval run"), 1, {"a.csv"});
  fs::remove(file("run/run.json"));
  expect_error(tern("eval run"), 2, {"--data", "run.json"});
}

TEST_F(DataTest, AFolderWithItsOwnParts) {
  for (int i = 0; i < 20; ++i)
    for (const std::string part : {"train/bad/", "train/good/", "test/good/"})
      write("set/" + part + std::to_string(i) + ".txt", part);
  succeeds(train("set"));
  const Json rows = json("run/run.json")["rows"];
  for (const auto& [part, count] : {std::pair("train", 36), {"validation", 4}, {"test", 20}})
    EXPECT_EQ(rows[part], count) << part;
  EXPECT_EQ(answer("eval run --json")["examples"], 20);
}

}  // namespace
}  // namespace tern::program

// Texts with several labels or a number: .jsonl, known labels, numbers, and what a file is labelled with.

#include "tern/data/datasets/target_set.h"

#include <cmath>
#include <sstream>

#include "tern/tests/data/support.h"
#include "tern/tests/support/seed.h"

namespace tern::data {
namespace {

using Names = std::vector<std::string>;
using Floats = std::vector<float>;

class TargetSetTest : public FolderTest {
 protected:
  /// The error of reading `text` as a file of that name.
  std::string labels_error(const std::string& name, const std::string& text, const Names& known = {}) const {
    const std::string path = write(name, text);
    return error_of([&] { read_multi_label(path, {.known_labels = known}); });
  }
  std::string numbers_error(const std::string& name, const std::string& text) const {
    const std::string path = write(name, text);
    return error_of([&] { read_numbers(path); });
  }
};

TEST_F(TargetSetTest, ListsOfLabels) {
  const std::string path = write("m.jsonl",
                                 "\xef\xbb\xbf{\"text\": \"one\", \"labels\": [\"red\", 7, \" big \"]}\n\n"
                                 "{\"labels\": [], \"Review\": \"two\"}\r\n"
                                 "{\"text\": \"three\", \"label\": \"big; red;;\"}");
  const TargetSet set = read_multi_label(path);
  EXPECT_EQ(set.label_names, (Names{"7", "big", "red"}));
  EXPECT_EQ(set.targets.shape(), (Shape{3, 3}));
  EXPECT_EQ(set.targets.to_vector<float>(), (Floats{1, 1, 1, 0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(set.texts.text(1), "two");
  const TargetSet known = read_multi_label(path, {.known_labels = {"red", "none", "big", "7"}});
  EXPECT_EQ(known.label_names, (Names{"red", "none", "big", "7"}));
  EXPECT_EQ(known.targets.to_vector<float>(), (Floats{1, 0, 1, 1, 0, 0, 0, 0, 1, 0, 1, 0}));
}

/// Labels of a model are matched by the rule of one label for each text.
TEST_F(TargetSetTest, KnownLabelsByTheOneRule) {
  const std::string path = write("m.csv", "text,labels\na,Red;POS\nb,\nc,red\n");
  Names log;
  const auto keep = [&](const std::string& line) { log.push_back(line); };
  const TargetSet set = read_multi_label(path, {.known_labels = {"positive", "blue", "red"}, .log = keep});
  EXPECT_EQ(set.label_names, (Names{"positive", "blue", "red"}));
  EXPECT_EQ(set.targets.to_vector<float>(), (Floats{1, 0, 1, 0, 0, 0, 0, 0, 1}));
  ASSERT_EQ(log.size(), 1u);
  EXPECT_TRUE(contains(log[0], {"m.csv", "without case", "POS = positive", "Red = red"}));
  EXPECT_TRUE(contains(error_of([&] {
                         read_multi_label(path, {.known_labels = {"LABEL_0", "LABEL_1"}});
                       }),
                       {"m.csv: ", "the labels POS, Red, red, ", "LABEL_0, LABEL_1"}));
}

/// Sorted as texts they would be 0, 1, 10, 2, ...
TEST_F(TargetSetTest, NumbersOfOutputsWithoutNames) {
  Names outputs;
  std::string text = "text,labels\n";
  for (int i = 0; i < 11; ++i) {
    outputs.push_back("LABEL_" + std::to_string(i));
    text += "a," + std::to_string(i) + "\n";
  }
  const TargetSet set = read_multi_label(write("m.csv", text), {.known_labels = outputs});
  EXPECT_EQ(set.label_names, outputs);
  for (int64_t row = 0; row < 11; ++row)
    for (int64_t label = 0; label < 11; ++label)
      EXPECT_EQ(set.targets.to_vector<float>()[static_cast<size_t>(row * 11 + label)], row == label ? 1 : 0);
}

TEST_F(TargetSetTest, TextsAlone) {
  const auto texts_of = [&](const std::string& name, const std::string& bytes) {
    Names texts;
    const std::string path = write(name, bytes);
    EXPECT_TRUE(is_text_table(path));
    const std::string error =
        error_of([&] { read_texts(path, [&](const TextRow& row) { texts.emplace_back(row.text); }); });
    if (contains(error, {name})) texts.push_back("error: " + error.substr(error.find(name)));
    return texts;
  };
  EXPECT_EQ(texts_of("a.csv", "n,Review\n1,\"a, b\"\n2,\n"), (Names{"a, b", ""}));
  EXPECT_EQ(texts_of("a.TSV", "text\nx, y\n"), (Names{"x, y"}));
  EXPECT_EQ(texts_of("a.jsonl", "{\"text\":\"a\\nb\"}\n\n{\"sentence\":\"c\",\"label\":[]}"), (Names{"a\nb", "c"}));
  EXPECT_TRUE(contains(texts_of("a.jsonl", "{\"text\":\"a\"}\n{\"text\":1}").back(), {"a.jsonl:2: the text must be"}));
  EXPECT_TRUE(contains(texts_of("a.csv", "text,label\na,1\nb\n").back(), {"a.csv:3: expected 2 fields"}));
  EXPECT_EQ(texts_of("a.csv", "text,label\na,1\nb\n").size(), 2u);  // the first text, and the error
  for (const char* name : {"a.txt", "csv", "a.csv.gz", "-"}) EXPECT_FALSE(is_text_table(name));
}

TEST_F(TargetSetTest, WrongLabels) {
  const auto wrong = [&](const std::string& labels) {
    return labels_error("m.jsonl",
                        "{\"text\": \"a\", \"labels\": [\"x\"]}\n{\"text\": \"b\", \"labels\": " + labels + "}");
  };
  for (const auto& [labels, part] :
       {std::pair("3", "the labels must be a list or a string of names separated by ';', got number"),
        std::pair("null", "got null"),
        std::pair("[null]", "each label must be a string, a number, true or false, got null"),
        std::pair("[[\"x\"]]", "each label must be"), std::pair("[\" \"]", "a label is empty"),
        std::pair("{}", "got object")})
    EXPECT_TRUE(contains(wrong(labels), {"m.jsonl:2: ", part})) << labels;
  EXPECT_TRUE(contains(labels_error("m.jsonl", "{\"text\": \"a\", \"labels\": []}"), {"no row has a label"}));
  EXPECT_TRUE(contains(labels_error("m.jsonl", "\n"), {"no rows; expected one JSON object a line"}));
  EXPECT_TRUE(contains(labels_error("m.jsonl", "{\"text\": 1, \"labels\": []}"), {"m.jsonl:1: the text must be"}));
  EXPECT_TRUE(contains(labels_error("m.jsonl", "{\"labels\": []}"), {"m.jsonl:1: no text column"}));
  EXPECT_TRUE(contains(labels_error("m.csv", "text,labels\na,x\nb,y;z\n", {"x", "y"}),
                       {"m.csv:3: unknown label \"z\"; the model has: x, y"}));
  EXPECT_TRUE(contains(labels_error("m.csv", "text,labels,label\na,x,y\n"), {"more than one labels column"}));
  EXPECT_TRUE(contains(labels_error("m.txt", "text,labels\n"), {"m.txt", ".csv, .tsv or .jsonl"}));
  const std::string path = write("m.jsonl", "{}");
  EXPECT_TRUE(contains(error_of([&] { read_multi_label(path, {.columns = {"a"}}); }), {"columns of 0 and 1 are for"}));
}

/// Random numbers come back as float32 rounds them, from every kind of file.
TEST_F(TargetSetTest, Numbers) {
  std::mt19937_64 random = fresh_random();
  for (const std::string name : {"n.csv", "n.tsv", "n.jsonl"}) {
    const char between = name == "n.tsv" ? '\t' : ',';
    std::ostringstream text;
    text.precision(17);
    if (name != "n.jsonl") text << " Score " << between << "text\n";
    Floats expected;
    for (int row = 0; row < 30; ++row) {
      const double value =
          std::ldexp(static_cast<double>(static_cast<int64_t>(random())), static_cast<int>(random() % 80) - 70);
      expected.push_back(static_cast<float>(value));
      if (name == "n.jsonl")
        text << "{\"text\": \"t" << row << "\", \"label\": " << value << "}\n";
      else
        text << value << between << "t" << row << "\n";
    }
    const TargetSet set = read_numbers(write(name, text.str()));
    EXPECT_EQ(set.targets.shape(), (Shape{30, 1})) << name;
    EXPECT_EQ(set.targets.to_vector<float>(), expected) << name;
    EXPECT_EQ(set.label_names, Names{"LABEL_0"});
    EXPECT_EQ(set.texts.text(29), "t29");
    EXPECT_EQ(set.texts.size(), 30);
  }
}

TEST_F(TargetSetTest, WhatIsNoNumber) {
  for (const auto& [field, part] :
       {std::pair("good", "the label must be a number, got \"good\""), std::pair("", "the label is empty"),
        std::pair("nan", "\"nan\" is not finite in float32"), std::pair("-inf", "not finite"),
        std::pair("1e39", "not finite"), std::pair("1;2", "must be a number"), std::pair("0x10", "must be a number")})
    EXPECT_TRUE(
        contains(numbers_error("n.csv", std::string("text,label\na,1\nb,") + field + "\n"), {"n.csv:3: ", part}))
        << field;
  for (const auto& [value, part] :
       {std::pair("\"1\"", "the label must be a number, got \"1\""), std::pair("null", "must be a number, got null"),
        std::pair("true", "must be a number"), std::pair("[1]", "must be a number"), std::pair("1e39", "not finite")})
    EXPECT_TRUE(contains(
        numbers_error("n.jsonl",
                      std::string("{\"text\": \"a\", \"label\": 1}\n{\"text\": \"b\", \"label\": ") + value + "}"),
        {"n.jsonl:2: ", part}))
        << value;
  EXPECT_TRUE(contains(numbers_error("n.csv", "text,labels\n"), {"n.csv:1: no number column (label or score)"}));
  EXPECT_TRUE(contains(numbers_error("n.csv", "text,label\n"), {"no rows after the header"}));
}

TEST_F(TargetSetTest, WhatAFileIsLabelledWith) {
  const auto kind = [&](const std::string& name, const std::string& text) { return label_kind_of(write(name, text)); };
  EXPECT_EQ(kind("k.csv", "text,Labels\n"), LabelKind::kSeveral);
  EXPECT_EQ(kind("k.csv", "text,label\n"), LabelKind::kOne);
  EXPECT_EQ(kind("k.csv", "text,labels,sentiment\n"), LabelKind::kOne);
  EXPECT_EQ(kind("k.csv", ""), LabelKind::kOne);
  EXPECT_EQ(kind("k.tsv", "text\tlabels\n"), LabelKind::kSeveral);
  EXPECT_EQ(kind("k.jsonl", "\n{\"text\": \"a\", \"labels\": 1}\nnot read"), LabelKind::kSeveral);
  EXPECT_EQ(kind("k.jsonl", "{\"label\": [\"a\"]}"), LabelKind::kSeveral);
  EXPECT_EQ(kind("k.jsonl", "{\"label\": \"a\"}"), LabelKind::kOne);
  EXPECT_EQ(label_kind_of("imdb"), LabelKind::kOne);
  EXPECT_EQ(label_kind_of(root()), LabelKind::kOne);
  EXPECT_EQ(label_kind_of(""), LabelKind::kOne);
}

}  // namespace
}  // namespace tern::data

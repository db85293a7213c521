// Tables of numbers, texts with several labels, tagged words, and plain text for language models.

#include <cmath>
#include <random>
#include <sstream>

#include "tern/data/datasets/documents.h"
#include "tern/data/datasets/table.h"
#include "tern/data/datasets/tagged_set.h"
#include "tern/data/datasets/target_set.h"
#include "tern/data/loaders/loader.h"
#include "tern/data/loaders/token_loader.h"
#include "tern/tests/data/support.h"
#include "tern/tests/support/seed.h"

namespace tern::data {
namespace {

using Names = std::vector<std::string>;
using Floats = std::vector<float>;
using Ids = std::vector<int32_t>;

class Reader : public FolderTest {
 protected:
  std::string table_error(const std::string& text, const TableOptions& options = {}) const {
    const std::string path = write("t.csv", text);
    return error_of([&] { read_table(path, options); });
  }
};

TEST_F(Reader, TablesOfNumbers) {
  std::mt19937_64 random = fresh_random();
  std::ostringstream text;
  text.precision(17);
  text << " a ,id,\"b, c\",y,z\n";
  std::vector<double> values;
  for (int row = 0; row < 20; ++row) {
    for (int i = 0; i < 4; ++i) values.push_back(std::ldexp(static_cast<double>(random()) - 9e18, -60 - 8 * (i % 2)));
    const double* v = &values[values.size() - 4];
    text << v[0] << ",r" << row << ",\" " << v[1] << "\"," << v[2] << "," << v[3] << "\r\n";
  }
  const std::string path = write("t.csv", text.str());
  const Table table = read_table(path, {.targets = {"z", "y"}, .features = {"b, c", "a"}});
  EXPECT_EQ(table.feature_names, (Names{"b, c", "a"}));
  EXPECT_EQ(table.target_names, (Names{"z", "y"}));
  Floats features, targets;
  for (size_t i = 0; i < values.size(); i += 4) {
    for (const size_t column : {1, 0}) features.push_back(static_cast<float>(values[i + column]));
    for (const size_t column : {3, 2}) targets.push_back(static_cast<float>(values[i + column]));
  }
  EXPECT_EQ(table.features.shape(), (Shape{20, 2}));
  EXPECT_EQ(table.features.to_vector<float>(), features);
  EXPECT_EQ(table.targets.to_vector<float>(), targets);
  EXPECT_EQ(table.dataset().size(), 20);

  const std::string small = write("t.tsv", "a\tb\ty\n+1\t-2.5e-3\t.5\n1e-400\t-1e-50\t-0\n");
  const Table defaults = read_table(small);
  EXPECT_EQ(defaults.feature_names, (Names{"a", "b"}));
  EXPECT_EQ(defaults.features.to_vector<float>(), (Floats{1, -2.5e-3f, 0, 0}));
  EXPECT_EQ(defaults.targets.to_vector<float>(), (Floats{0.5, -0.f}));
}

TEST_F(Reader, NumbersThatAreNotFinite) {
  const Names texts = {"nan", "-NaN", "", "inf", "-Infinity", "1e39", "-1e400", "1e999999"};
  for (const std::string& text : texts) {
    const std::string file = "a,y\n1,2\n" + text + ",3\n";
    EXPECT_TRUE(contains(table_error(file), {"t.csv:3: column 1 (a): ", "non_finite"}) ||
                table_error(file).find("expected a number") != std::string::npos);
    if (text == "1e999999") continue;  // beyond long double
    const float value = read_table(write("t.csv", file), {.non_finite = true}).features.to_vector<float>()[1];
    EXPECT_EQ(std::isnan(value), text.empty() || text.ends_with("n") || text.ends_with("N")) << text;
    EXPECT_TRUE(std::isnan(value) || value == (text[0] == '-' ? -INFINITY : INFINITY)) << text;
  }
  for (const char* text : {"x", "1 2", "0x10", "--1", "+-1", "1e", "nan(1)", "1,5", "."})
    EXPECT_TRUE(contains(table_error(std::string("a,y\n\"") + text + "\",3\n", {.non_finite = true}),
                         {"t.csv:2: column 1 (a): expected a number, got \"", text}));
}

TEST_F(Reader, TableErrors) {
  EXPECT_TRUE(contains(table_error(""), {"t.csv: the file is empty"}));
  EXPECT_TRUE(contains(table_error("1,2\n3,4\n"), {"t.csv:1: all fields are numbers"}));
  EXPECT_TRUE(contains(table_error("a,y\n"), {"no rows after the header"}));
  EXPECT_TRUE(contains(table_error("y\n1\n"), {"t.csv:1: no column is left"}));
  EXPECT_TRUE(contains(table_error("a,y\n\"1\n\",2\n1\n"), {"t.csv:4: expected 2 fields", "got 1"}));
  const std::string file = "a,b,a,y\n1,2,3,4\n";
  EXPECT_TRUE(contains(table_error(file, {.targets = {"z"}}), {"no column \"z\"; found: a, b, a, y"}));
  EXPECT_TRUE(contains(table_error(file, {.targets = {"a"}}), {"more than one column \"a\""}));
  EXPECT_TRUE(contains(table_error(file, {.targets = {"y"}, .features = {"y"}}), {"\"y\" is a target and a feature"}));
  EXPECT_TRUE(contains(table_error(file, {.features = {"b", "b"}}), {"\"b\" is chosen twice"}));
}

TEST_F(Reader, TextsWithSeveralLabels) {
  const std::string lists = write("m.csv", "labels,Text\nred; big,one\n,two\nbig;;big,\"three\nlines\"\n");
  const TargetSet set = read_multi_label(lists);
  EXPECT_EQ(set.label_names, (Names{"big", "red"}));
  EXPECT_EQ(set.targets.shape(), (Shape{3, 2}));
  EXPECT_EQ(set.targets.to_vector<float>(), (Floats{1, 1, 0, 0, 1, 0}));
  EXPECT_EQ(set.texts.text(2), "three\nlines");
  EXPECT_EQ(set.texts.size(), 3);
  const std::string columns = write("m.tsv", "review\tRed\tn\tBig\na\t0\t7\t1\nb\t1\t8\t1\n");
  const TargetSet chosen = read_multi_label(columns, {.columns = {"Big", "Red"}});
  EXPECT_EQ(chosen.label_names, (Names{"Big", "Red"}));
  EXPECT_EQ(chosen.targets.to_vector<float>(), (Floats{1, 0, 1, 1}));
  EXPECT_TRUE(fails([&] { read_multi_label(columns, {.columns = {"n"}}); },
                    {"m.tsv:2: column 3 (n): expected 0 or 1, got \"7\""}));
  EXPECT_TRUE(fails([&] { read_multi_label(columns, {.columns = {"q"}}); },
                    {"m.tsv:1: no label column (q); found: review, Red"}));
  EXPECT_TRUE(fails([&] { read_multi_label(columns); }, {"no labels column (labels or label)"}));
  for (const auto& [text, error] : {std::pair("", "is empty"), std::pair("text,labels\n", "no rows"),
                                    std::pair("text,labels\na,\n", "no row has a label"),
                                    std::pair("text,labels\na\n", "m.csv:2: expected 2 fields"),
                                    std::pair("labels\na\n", "no text column (text or sentence or review;")}) {
    const std::string path = write("m.csv", text);
    EXPECT_TRUE(fails([&] { read_multi_label(path); }, {error}));
  }
}

constexpr const char* kConll =
    "\xef\xbb\xbf-DOCSTART- -X- O O\n\nEU NNP I-NP B-ORG\nrejects VBZ I-VP O\n\n\n"
    "unaffable\tJJ\tI-NP\tB-MISC\r\n. . O O";

TEST_F(Reader, TaggedWordsAndTheirTokens) {
  const TaggedSet set = read_conll(write("ner.txt", kConll));
  EXPECT_EQ(set.words, (Names{"EU", "rejects", "unaffable", "."}));
  EXPECT_EQ(set.offsets, (std::vector<int64_t>{0, 2, 4}));
  EXPECT_EQ(set.tag_names, (Names{"B-MISC", "B-ORG", "O"}));
  EXPECT_EQ(set.tags, (Ids{1, 2, 0, 2}));
  EXPECT_EQ(read_conll(root() / "ner.txt", {"O", "B-ORG", "B-MISC"}).tags, (Ids{1, 0, 2, 0}));
  EXPECT_TRUE(fails([&] { read_conll(root() / "ner.txt", {"O", "X"}); }, {"ner.txt:3", "B-ORG", "O, X"}));
  for (const auto& [text, error] :
       {std::pair("a b\nc\n", "ner.txt:2: expected a word and its tag"),
        std::pair("a b\n\nc d e\n", "ner.txt:3: expected 2 columns"), std::pair("\n\n", "no words")})
    EXPECT_TRUE(fails([&, &text = text] { read_conll(write("ner.txt", text)); }, {error}));

  const WordPiece tokenizer = WordPiece::from_embedded();
  ASSERT_GT(tokenizer.encode("unaffable").size(), 2u);
  for (const int64_t limit : {2, 3, 4, 5, 100}) {
    const TaggedTokens tagged = tokenize(set, tokenizer, limit);
    Ids labels;
    for (int64_t s = 0; s < 2; ++s) {
      std::string text;
      Ids expected = {kIgnoredLabel};
      for (int64_t word = 2 * s; word < 2 * s + 2; ++word) {
        text += set.words[static_cast<size_t>(word)] + " ";
        expected.push_back(set.tags[static_cast<size_t>(word)]);
        expected.resize(expected.size() + tokenizer.encode(set.words[static_cast<size_t>(word)]).size() - 1,
                        kIgnoredLabel);
      }
      expected.resize(std::min(expected.size(), static_cast<size_t>(limit - 1)));
      expected.push_back(kIgnoredLabel);
      labels.insert(labels.end(), expected.begin(), expected.end());
      const auto row = tagged.tokens.row(s);
      EXPECT_EQ(Ids(row.begin(), row.end()), tokenizer.encode_special(text, static_cast<size_t>(limit)));
    }
    EXPECT_EQ(tagged.labels, labels);
  }
  EXPECT_TRUE(fails([&] { tokenize(set, tokenizer, 1); }, {"at least 2", "got 1"}));
}

TEST_F(Reader, LabelsOfTokensAndRowsInBatches) {
  const TaggedSet set = read_conll(write("ner.txt", kConll));
  const auto tagged = std::make_shared<const TaggedTokens>(tokenize(set, WordPiece::from_embedded(), 100));
  const auto tokens = std::shared_ptr<const TokenSet>(tagged, &tagged->tokens);
  const Tensor targets = from_vector(Floats{1, 2, 3, 4, 5, 6}, {2, 3});
  for (const bool packed : {false, true}) {
    const BatchPlanOptions plan{.batch_size = packed ? 0 : 3, .batch_tokens = packed ? 64 : 0, .seed = fresh_seed()};
    for (const auto& transform : {TaggedTokens::labels_of(tagged), row_targets(targets)}) {
      const TokenLoader loader(tokens, {}, BatchPlan(rows_below(2), tokens->lengths(), plan, 1),
                               {.fixed_capacity = true, .transform = transform});
      const TokenBatch batch = loader.batch(0, 0);
      const bool of_tokens = batch.labels.dim() == 1;
      const std::vector<int64_t> keys = batch.layout.row_keys.to_vector<int64_t>();
      if (of_tokens) {
        const std::vector<int64_t> labels = batch.labels.to_vector<int64_t>();
        ASSERT_EQ(labels.size(), keys.size());
        for (size_t i = 0; i < keys.size(); ++i) {  // a key is the data set's row and the position in it
          const int64_t row = keys[i] >> 32, position = keys[i] & 0xffffffff;
          const bool real = row >= 0 && position < static_cast<int64_t>(tokens->row(row).size());
          EXPECT_EQ(labels[i], real ? tagged->labels[static_cast<size_t>(tokens->offsets[row] + position)]
                                    : int32_t{kIgnoredLabel});
        }
        continue;
      }
      ASSERT_EQ(batch.labels.shape(), (Shape{batch.sequences(), 3}));
      for (int64_t i = 0; i < batch.sequences(); ++i)
        for (int64_t column = 0; column < 3; ++column)
          EXPECT_EQ(batch.labels.select(0, i).select(0, column).item<float>(),
                    i < 2 ? static_cast<float>(batch.rows[static_cast<size_t>(i)] * 3 + column + 1) : -100);
    }
  }
  EXPECT_TRUE(fails([] { row_targets(zeros({3})); }, {"[rows, columns]", "[3]"}));
}

TEST_F(Reader, DocumentsOfFilesAndFolders) {
  write("b/x.txt",
        "\xef\xbb\xbf"
        "first\nline\n");
  write("b/a.txt", "one\n\n \t\ntwo\nthree\n\n");
  write("c.TXT", "last\xff");
  write("b/no.md", "not text");
  write("empty.txt", " \n");
  const std::string folder = root().string();
  EXPECT_EQ(read_documents(folder), (Names{"one\n\n \t\ntwo\nthree\n\n", "first\nline\n", "last\xef\xbf\xbd"}));
  EXPECT_EQ(read_documents(folder + "/b/a.txt", DocumentEnd::kBlankLine), (Names{"one\n", "two\nthree\n"}));
  EXPECT_TRUE(fails([&] { read_documents(folder + "/empty.txt"); }, {"empty.txt: no text"}));
  EXPECT_TRUE(fails([&] { read_documents(folder + "/missing.txt"); }, {"missing.txt", "No such file"}));
}

TEST(Blocks, InputsAndShiftedTargets) {
  const Encode letters = [](std::string_view text, Ids& ids) { ids.insert(ids.end(), text.begin(), text.end()); };
  const Ids stream = token_stream({"abc", "d", "ef"}, letters, 0);
  EXPECT_EQ(stream, (Ids{'a', 'b', 'c', 0, 'd', 0, 'e', 'f', 0}));
  for (int64_t length = 1; length <= 8; ++length)
    for (int64_t stride = 0; stride <= 9; ++stride) {
      const TokenBlocks blocks(stream, length, stride);
      const int64_t step = stride == 0 ? length : stride;
      int64_t count = 0;
      for (int64_t begin = 0; begin + length < 9; begin += step) ++count;
      ASSERT_EQ(blocks.size(), count);
      const auto batch = Loader(blocks, {.batch_size = count}).batch(0, 0);
      EXPECT_EQ(batch[0].shape(), (Shape{count, length}));
      for (int64_t b = 0; b < count; ++b)
        for (int64_t i = 0; i < length; ++i)
          for (int64_t shift : {0, 1})
            EXPECT_EQ(batch[static_cast<size_t>(shift)].select(0, b).select(0, i).item<int64_t>(),
                      stream[static_cast<size_t>(b * step + i + shift)]);
    }
  EXPECT_TRUE(fails([&] { TokenBlocks(stream, 9); }, {"9 ids", "block of 9"}));
  EXPECT_TRUE(fails([&] { TokenBlocks(stream, 0); }, {"got 0"}));
  EXPECT_TRUE(fails([&] { TokenBlocks(stream, 8).get({.row = 1}); }, {"block 1 of 1"}));
}

TEST(Characters, IdsAndText) {
  const CharVocabulary vocabulary(
      "za\xc3\xa4"
      "a\n\xf0\x9f\x98\x80");
  EXPECT_EQ(vocabulary.size(), 5);
  Ids ids;
  vocabulary("\na\xc3\xa4\xf0\x9f\x98\x80z", ids);
  EXPECT_EQ(ids, (Ids{0, 1, 3, 4, 2}));
  EXPECT_EQ(vocabulary.decode(ids), "\na\xc3\xa4\xf0\x9f\x98\x80z");
  EXPECT_TRUE(fails([&] { vocabulary("\xe2\x82\xac", ids); }, {"U+20AC is not in the vocabulary"}));
  EXPECT_TRUE(fails([&] { vocabulary("a\xff", ids); }, {"byte 1"}));
  EXPECT_TRUE(fails([&] { vocabulary.decode(Ids{5}); }, {"id 5 of 5"}));
  EXPECT_TRUE(fails([] { CharVocabulary(""); }, {"empty"}));
}

}  // namespace
}  // namespace tern::data

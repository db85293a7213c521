// Text sets: UTF-8 repair, labels, CSV, TSV, JSONL, folders, the embedded sentences and IMDB.

#include "tern/data/datasets/text_set.h"

#include <sys/stat.h>

#include <map>
#include <set>

#include "tern/data/datasets/imdb.h"
#include "tern/data/datasets/label_index.h"
#include "tern/data/files/sha256.h"
#include "tern/data/files/utf8.h"
#include "tern/tests/data/support.h"

namespace tern::data {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;
using Labels = std::vector<int32_t>;

Strings texts(const TextSet& set) {
  Strings all;
  for (int64_t row = 0; row < set.size(); ++row) all.emplace_back(set.text(row));
  return all;
}

void expect_set(const TextSet& set, const Strings& expected, const Labels& labels, const Strings& label_names) {
  EXPECT_EQ(texts(set), expected);
  EXPECT_EQ(set.labels, labels);
  EXPECT_EQ(set.label_names, label_names);
}

std::string load_error(const std::string& source, const Strings& known = {}) {
  return error_of([&] { load_text(source, {.known_labels = known, .allow_download = false}); });
}

std::string repaired(const std::string& text, int64_t expected) {
  std::string out;
  EXPECT_EQ(append_valid_utf8(text, out), expected) << testing::PrintToString(text);
  return out;
}

TEST(Sha256, KnownAnswers) {  // FIPS 180-4, examples
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Utf8, KeepsWhatIsWellFormed) {
  const std::string good = std::string("plain \0 ", 8) +
                           "\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf" +
                           "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf and text that is longer than a word";
  EXPECT_EQ(repaired(good, 0), good);
  EXPECT_EQ(repaired("", 0), "");
}

TEST(Utf8, ReplacesMaximalParts) {
  const std::string r = "\xef\xbf\xbd";
  EXPECT_EQ(repaired("a\x80z", 1), "a" + r + "z");
  EXPECT_EQ(repaired("\xc0\xaf", 2), r + r);          // overlong
  EXPECT_EQ(repaired("\xed\xa0\x80", 3), r + r + r);  // a surrogate
  EXPECT_EQ(repaired("\xf4\x90\x80\x80", 4), r + r + r + r);
  EXPECT_EQ(repaired("\xe2\x82", 1), r);  // cut off
  EXPECT_EQ(repaired("\xf0\x9f\x98\x61", 1), r + "a");
  // Unicode 15, table 3-8, and the examples 3-9 to 3-11.
  EXPECT_EQ(repaired("\x61\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63\x80\xbf\x64", 6),
            "a" + r + r + r + "b" + r + "c" + r + r + "d");
  EXPECT_EQ(repaired("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", 4), r + r + r + r + "A");
}

class Csv : public FolderTest {
 protected:
  TextSet load(const std::string& contents, const Strings& known = {}) const {
    return load_text(write("x.csv", contents), {.known_labels = known});
  }
  std::string fails(const std::string& contents, const Strings& known = {}) const {
    return load_error(write("x.csv", contents), known);
  }
};

TEST_F(Csv, ColumnsByNameInAnyOrderAndCase) {
  for (const std::string header : {"text,label", "Sentence,SENTIMENT", " review , Label ", "\"text\",\"sentiment\""}) {
    SCOPED_TRACE(header);
    const TextSet set = load(header + "\nsome words,1\n,0\n");
    expect_set(set, {"some words", ""}, {1, 0}, {"0", "1"});
    EXPECT_TRUE(set.parts.empty());
  }
  expect_set(load("id,sentiment,url,review\r\n7,b,http,\"x, \"\"y\"\"\r\nz\"\r\n8,a,,w"), {"x, \"y\"\r\nz", "w"},
             {1, 0}, {"a", "b"});
}

TEST_F(Csv, TabSeparated) {
  const std::string path = write("y.TSV", "label\ttext\n2\ta, b\n10\t\"c\td\"\n");
  expect_set(load_text(path), {"a, b", "c\td"}, {0, 1}, {"2", "10"});  // numbers by value, not by spelling
}

TEST_F(Csv, LabelsAreSortedNames) {
  const Strings rows = {"a", "b", "c", "d"};
  expect_set(load("label,text\nten,a\nTwo,b\nten,c\n01,d\n"), rows, {2, 1, 2, 0}, {"01", "Two", "ten"});
  expect_set(load("label,text\n3,a\n-1,b\n 0 ,c\n10,d\n"), rows, {2, 0, 1, 3}, {"-1", "0", "3", "10"});
}

TEST_F(Csv, KnownLabels) {
  const std::string rows = "label,text\npos,a\nneg,b\n";
  EXPECT_EQ(load(rows, {"pos", "neg"}).labels, (Labels{0, 1}));
  EXPECT_EQ(load(rows, {"NEGATIVE", "POSITIVE"}).labels, (Labels{1, 0}));
  EXPECT_EQ(load("label,text\n1,a\n0,b\n", {"neg", "pos"}).labels, (Labels{1, 0}));
  EXPECT_EQ(load("label,text\n1,a\n", {"1", "2"}).labels, (Labels{0}));
  EXPECT_EQ(load(rows, {"pos", "neg"}).label_names, (Strings{"pos", "neg"}));
  EXPECT_TRUE(contains(fails("label,text\npos,a\n\"neutral\",b\n", {"neg", "pos"}),
                       {"x.csv:3:", "unknown label \"neutral\"", "neg, pos"}));
  EXPECT_TRUE(contains(fails("label,text\n2,a\n", {"neg", "pos"}), {"x.csv:2:", "\"2\""}));
  EXPECT_TRUE(contains(fails("label,text\n0,a\n", {"1", "2"}), {"x.csv:2:", "\"0\"", "1, 2"}));
}

TEST_F(Csv, OutputsWithoutNames) {
  const Strings model = {"LABEL_0", "LABEL_1", "LABEL_2"};
  EXPECT_EQ(load("label,text\n2,a\n1,b\n", model).labels, (Labels{2, 1}));
  EXPECT_EQ(load("label,text\nz,a\ny,b\nx,c\n", model).labels, (Labels{2, 1, 0}));
  EXPECT_EQ(load("label,text\nz,a\ny,b\nx,c\n", model).label_names, model);
  EXPECT_TRUE(contains(fails("label,text\n3,a\n", model), {"x.csv", "3 outputs"}));
  EXPECT_TRUE(contains(fails("label,text\na,a\nb,a\nc,a\nd,a\n", model), {"a, b, c, d", "3 outputs without names"}));
}

/// A part of the labels says nothing about outputs without names, unless it is numbers or the names themselves.
TEST_F(Csv, SomeLabelsOfOutputsWithoutNames) {
  const Strings model = {"LABEL_0", "LABEL_1", "LABEL_2"};
  EXPECT_TRUE(contains(fails("label,text\npos,a\npos,b\n", model),
                       {"x.csv: the data has the labels pos, ", "LABEL_0, LABEL_1, LABEL_2", "id2label"}));
  EXPECT_TRUE(contains(fails("label,text\nz,a\ny,b\n", model), {"the labels y, z, "}));
  EXPECT_EQ(load("label,text\nLABEL_2,a\nlabel_1,b\n", model).labels, (Labels{2, 1}));
  EXPECT_EQ(load("label,text\n3,a\n1,b\n2,c\n", model).labels, (Labels{2, 0, 1}));  // not from 0: in order
}

TEST(KnownLabels, OneRule) {
  struct Case {
    Strings model, data;
    std::vector<int32_t> outputs;  // empty: no match
    Strings said;
  };
  const Case cases[] = {
      {{"joy", "sad"}, {"joy", "sad"}, {0, 1}, {}},
      {{"sad", "joy"}, {"joy"}, {1}, {}},
      {{"sad", "joy"}, {"Joy", "SAD"}, {1, 0}, {"without case", "Joy = joy", "SAD = sad"}},
      {{"joy", "Joy"}, {"Joy", "joy"}, {1, 0}, {}},            // the same name first
      {{"joy", "Joy"}, {"JOY"}, {}, {"\"JOY\"", "joy, Joy"}},  // it could be either
      {{"joy", "sad"}, {"Joy", "joy"}, {0, 0}, {"Joy = joy"}},
      {{"NEGATIVE", "POSITIVE"}, {"neg", "pos"}, {0, 1}, {"neg = NEGATIVE"}},
      {{"joy", "sad"}, {"1", "0"}, {1, 0}, {"numbers are the model's outputs: 1 = sad, 0 = joy"}},
      {{"joy", "sad"}, {"0", "2"}, {}, {"\"2\"", "joy, sad"}},
      {{"joy", "1"}, {"0"}, {}, {"\"0\"", "joy, 1"}},
      {{"joy", "sad"}, {"cat", "dog"}, {}, {"\"cat\"", "joy, sad"}},
      {{"LABEL_0", "LABEL_1"}, {"cat", "dog"}, {0, 1}, {"in order: cat = LABEL_0, dog = LABEL_1"}},
      {{"LABEL_0", "LABEL_1"}, {"LABEL_1"}, {1}, {}},
      {{"LABEL_0", "LABEL_1"}, {"1"}, {1}, {"1 = LABEL_1"}},
      {{"LABEL_0", "LABEL_1"}, {"cat"}, {}, {"the labels cat, ", "LABEL_0, LABEL_1"}},
      {{"LABEL_0", "LABEL_1"}, {"a", "b", "c"}, {}, {"a, b, c"}},
      {{"LABEL_0", "LABEL_1", "LABEL_2"}, {"1", "0", "2"}, {0, 1, 2}, {"1 = LABEL_0"}},  // a folder's own order
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(join(c.model, ", ") + " / " + join(c.data, ", "));
    const LabelMatch match = KnownLabels(c.model).match(c.data);
    EXPECT_EQ(match.outputs, c.outputs);
    for (const std::string& part : c.said) EXPECT_TRUE(contains(match.how, {part}));
    EXPECT_EQ(match.how.empty(), c.said.empty()) << match.how;
  }
}

/// One line says how names that differ were matched.
TEST_F(Csv, TheMatchIsSaid) {
  const auto said = [&](const std::string& rows, const Strings& known) {
    Strings log;
    load_text(write("x.csv", "label,text\n" + rows),
              {.known_labels = known, .log = [&](const std::string& line) { log.push_back(line); }});
    return join(log, "\n");
  };
  EXPECT_EQ(said("joy,a\n", {"sad", "joy"}), "");
  EXPECT_TRUE(contains(said("Joy,a\njoy,b\n", {"sad", "joy"}), {"x.csv: labels are matched without case: Joy = joy"}));
  EXPECT_TRUE(contains(said("b,a\na,b\n", {"LABEL_0", "LABEL_1"}), {"x.csv: the model's outputs have no names"}));
}

TEST_F(Csv, Errors) {
  EXPECT_TRUE(contains(fails(""), {"x.csv", "empty"}));
  EXPECT_TRUE(contains(fails("\n\r\n"), {"x.csv", "empty"}));
  EXPECT_TRUE(contains(fails("label,text\n"), {"x.csv", "no rows"}));
  EXPECT_TRUE(contains(fails("a,text\n1,2\n"), {"x.csv:1:", "no label column", "label or sentiment", "a, text"}));
  EXPECT_TRUE(contains(fails("label,words\n1,2\n"), {"x.csv:1:", "no text column", "label, words"}));
  EXPECT_TRUE(
      contains(fails("label,text,Review\n1,2,3\n"), {"x.csv:1:", "more than one text column", "text and Review"}));
  EXPECT_TRUE(contains(fails("label,text\n1,a\n1,b,c\n"), {"x.csv:3:", "expected 2 fields", "got 3"}));
  EXPECT_TRUE(contains(fails("label,text\n1,\"a\nb\"\n1\n"), {"x.csv:4:", "expected 2 fields", "got 1"}));
  EXPECT_TRUE(contains(fails("label,text\n,a\n"), {"x.csv:2:", "label is empty"}));
  EXPECT_TRUE(contains(fails("label,text\n1,\"a\n"), {"x.csv:2:", "never closed"}));
  EXPECT_TRUE(contains(fails("label,text\n1,\"a\"b\n"), {"x.csv:2:", "closing quote"}));
}

TEST_F(Csv, OddTexts) {
  const std::string nul("a\0b", 3), big(10'000'000, 'w');
  const TextSet set = load("text,label\n\xff\xfe,0\n" + nul + ",0\n" + big + ",1\n\xef\xbb\xbf,1\n");
  EXPECT_EQ(texts(set), (Strings{"\xef\xbf\xbd\xef\xbf\xbd", nul, big, "\xef\xbb\xbf"}));
  EXPECT_EQ(set.invalid_utf8, 2);
}

TEST_F(Csv, ContentHashIsOfTexts) {
  const std::string base = load("text,label\nab,0\nc,1\n").content_hash();
  EXPECT_EQ(load("label,text\n1,ab\n1,c\n").content_hash(), base);
  EXPECT_NE(load("text,label\na,0\nbc,1\n").content_hash(), base);
  EXPECT_NE(load("text,label\nab,0\nc,1\n,1\n").content_hash(), base);
}

class Jsonl : public FolderTest {
 protected:
  std::string load(const std::string& contents) const { return load_error(write("x.jsonl", contents)); }
  /// The error of a third line.
  std::string third(const std::string& line) const { return load("{\"text\":\"a\",\"label\":1}\n\n" + line); }
};

TEST_F(Jsonl, LineEnds) {
  const std::string first = "{\"text\": \"a\", \"label\": 0}", second = "{\"text\": \"b\", \"label\": 1}";
  for (const std::string end : {"\n", "\r\n", "\r", "\r\r", "\n\r\n"})
    expect_set(load_text(write("x.jsonl", first + end + second + end)), {"a", "b"}, {0, 1}, {"0", "1"});
  EXPECT_TRUE(contains(load_error(write("x.jsonl", first + "\r\r" + second + "\r{}")), {"x.jsonl:4: "}));
  EXPECT_TRUE(contains(load_error(write("x.jsonl", first + "\r\n\r\n{}\r\n")), {"x.jsonl:3: "}));
}

TEST_F(Jsonl, ObjectsPerLine) {
  const TextSet set = load_text(write(
      "x.jsonl",
      "\xef\xbb\xbf{\"text\":\"a\\nb\",\"label\":1}\n\n \t\r\n{\"Sentiment\":\"0\",\"x\":[{}],\"review\":\"\"}\r\n"
      "{\"sentence\":\"\xff\\u00e9\",\"label\":1}"));
  expect_set(set, {"a\nb", "", "\xef\xbf\xbd\xc3\xa9"}, {1, 0, 1}, {"0", "1"});
  EXPECT_EQ(set.invalid_utf8, 1);
}

TEST_F(Jsonl, LabelsOfEveryKind) {
  const auto names = [&](const Strings& labels) {
    std::string lines;
    for (const std::string& label : labels) lines += "{\"text\":\"a\",\"label\":" + label + "}\n";
    return load_text(write("x.jsonl", lines)).label_names;
  };
  EXPECT_EQ(names({"true", "false", "true"}), (Strings{"false", "true"}));
  EXPECT_EQ(names({"1.0", "0.0", "1", "-2.0"}), (Strings{"-2", "0", "1"}));  // integers, as some tools write them
  EXPECT_EQ(names({"2.5", "\"x\"", "-0.0", "1e300"}), (Strings{"0", "1e+300", "2.5", "x"}));
}

TEST_F(Jsonl, Errors) {
  EXPECT_TRUE(contains(load(""), {"x.jsonl", "no rows"}));
  EXPECT_TRUE(contains(load("\n\n"), {"x.jsonl", "no rows"}));
  EXPECT_TRUE(contains(third("{\"text\":\n"), {"x.jsonl:3:", "not valid JSON"}));
  EXPECT_TRUE(contains(third("{\"text\":\"\\ud800\",\"label\":1}"), {"x.jsonl:3:", "not valid JSON"}));
  EXPECT_TRUE(contains(third("[1]"), {"x.jsonl:3:", "expected a JSON object", "array"}));
  EXPECT_TRUE(contains(third("{\"label\":1,\"words\":2}"), {"x.jsonl:3:", "no text column", "label, words"}));
  EXPECT_TRUE(contains(third("{\"text\":\"\"}"), {"x.jsonl:3:", "no label column", "found: text"}));
  EXPECT_TRUE(contains(third("{\"text\":7,\"label\":1}"), {"x.jsonl:3:", "text must be a string", "number"}));
  EXPECT_TRUE(contains(third("{\"text\":\"\",\"label\":[true]}"), {"x.jsonl:3:", "array", "--task multi_label"}));
  EXPECT_TRUE(contains(third("{\"text\":\"\",\"label\":{}}"), {"x.jsonl:3:", "a number, true or false", "object"}));
  EXPECT_TRUE(contains(third("{\"text\":\"\",\"label\":null}"), {"x.jsonl:3:", "null"}));
  EXPECT_TRUE(contains(third("{\"text\":\"\",\"label\":\"\"}"), {"x.jsonl:3:", "empty"}));
  EXPECT_TRUE(contains(third(std::string(100'000, '[')), {"x.jsonl:3:", "nested more than 128"}));
  EXPECT_TRUE(contains(third("{\"text\":\"a\",\"label\":1,\"n\":1e999}"), {"x.jsonl:3: ", "1e999"}));
  EXPECT_TRUE(contains(third("{\"text\":\"a\",\"label\":1,\"text\":\"b\"}"), {"x.jsonl:3: ", "'text'", "twice"}));
}

using Folder = FolderTest;

TEST_F(Folder, LabelsWithoutParts) {
  write("pos/b.txt", "two");
  write("pos/a.txt", "one");
  write("neg/10.TXT", "");
  write("neg/notes.md", "ignored");
  write("neg/.hidden.txt", "ignored");
  write("readme.txt", "ignored");
  const TextSet set = load_text(root().string());
  expect_set(set, {"", "one", "two"}, {0, 1, 1}, {"neg", "pos"});
  EXPECT_TRUE(set.parts.empty());
}

TEST_F(Folder, OfficialParts) {
  write("test/b/1.txt", "t");
  write("train/b/1.txt", "r\xff");
  write("train/a/2.txt", "s");
  write("train/unsup/2.txt", "no label");
  write("val/a/1.txt", "v");
  Strings lines;
  const TextSet set = load_text(root().string(), {.log = log_to(lines)});
  expect_set(set, {"s", "r\xef\xbf\xbd", "v", "t"}, {0, 1, 0, 1}, {"a", "b"});
  EXPECT_EQ(set.parts, (std::vector<Part>{Part::kTrain, Part::kTrain, Part::kValidation, Part::kTest}));
  EXPECT_TRUE(contains(lines.at(0), {"unsup", "skipped"}));
}

TEST_F(Folder, TrainAloneIsNoSplit) {
  write("train/a/1.txt", "x");
  EXPECT_TRUE(load_text(root().string()).parts.empty());
}

TEST_F(Folder, Errors) {
  EXPECT_TRUE(contains(load_error(root().string()), {"no texts found", "train/LABEL/*.txt"}));
  write("train/a/1.txt", "x");
  fs::create_symlink(root() / "nowhere", root() / "train" / "a" / "2.txt");
  EXPECT_TRUE(contains(load_error(root().string()), {"cannot open", "train/a/2.txt", "No such file"}));
  fs::remove(root() / "train" / "a" / "2.txt");
  fs::create_directory(root() / "train" / "a" / "3.txt");
  EXPECT_TRUE(contains(load_error(root().string()), {"cannot read", "train/a/3.txt", "not a regular file"}));
  fs::remove(root() / "train" / "a" / "3.txt");
  ASSERT_EQ(::mkfifo((root() / "train" / "a" / "4.txt").c_str(), 0600), 0);
  EXPECT_TRUE(contains(load_error(root().string()), {"train/a/4.txt", "not a regular file"}));
  fs::remove(root() / "train" / "a" / "4.txt");
  EXPECT_TRUE(contains(load_error(root().string(), {"b", "c"}), {"train/a", "unknown label \"a\"", "b, c"}));
}

TEST_F(Folder, UnknownSources) {
  EXPECT_TRUE(contains(load_error("imbd"), {"\"imbd\"", "imdb, sentences"}));
  EXPECT_TRUE(contains(load_error(write("x.txt", "")), {"x.txt", ".csv, .tsv or .jsonl"}));
  EXPECT_TRUE(contains(load_error((root() / "none.csv").string()), {"cannot open", "none.csv", "No such file"}));
  EXPECT_TRUE(contains(load_error((root() / "none.jsonl").string()), {"cannot open", "none.jsonl", "No such file"}));
  ASSERT_EQ(::mkfifo((root() / "pipe.csv").c_str(), 0600), 0);
  EXPECT_TRUE(contains(load_error((root() / "pipe.csv").string()), {"pipe.csv", "not a regular file"}));
}

TEST(Sentences, AreWhatWasPublished) {
  const TextSet set = load_text("sentences");
  ASSERT_EQ(set.size(), 3000);
  EXPECT_EQ(set.label_names, (Strings{"neg", "pos"}));
  EXPECT_EQ(std::count(set.labels.begin(), set.labels.end(), 1), 1500);
  EXPECT_EQ(set.text(0), "So there is no way for me to plug it in here in the US unless I go by a converter.");
  EXPECT_EQ(set.labels[0], 0);
  EXPECT_TRUE(set.text(2999).ends_with("the time it took to bring the check."));
  int with_next_line = 0;
  for (int64_t row = 0; row < 3000; ++row) with_next_line += set.text(row).find("\xc2\x85") != std::string_view::npos;
  EXPECT_EQ(with_next_line, 2);
  EXPECT_EQ(set.invalid_utf8, 0);
  EXPECT_EQ(load_text("sentences", {.known_labels = {"POSITIVE", "NEGATIVE"}}).labels[0], 1);
}

TEST_F(Folder, ImdbIsFoundByEnvironmentThenCache) {
  const Environment cache("XDG_CACHE_HOME", (root() / "cache").string());
  const Environment none("TERN_DATA", std::nullopt);
  EXPECT_FALSE(find_imdb());
  EXPECT_TRUE(contains(load_error("imdb"), {"imdb: not found", "TERN_DATA"}));
  for (const std::string place : {"cache/tern", "data"}) {
    for (const char* part : {"train/neg", "train/pos", "test/neg", "test/pos"})
      write(place + "/aclImdb/" + part + "/0_1.txt", part);
    write(place + "/aclImdb/train/unsup/0_0.txt", "no label");
    const Environment data("TERN_DATA", (root() / "data").string());
    EXPECT_EQ(find_imdb(), (root() / place / "aclImdb").string());
    const TextSet set = load_text("imdb");
    EXPECT_EQ(set.name, "imdb");
    expect_set(set, {"train/neg", "train/pos", "test/neg", "test/pos"}, {0, 1, 0, 1}, {"neg", "pos"});
  }
}

TEST_F(Folder, ImdbIsComparedWithWhatWasPublished) {
  const Environment cache("XDG_CACHE_HOME", (root() / "cache").string());
  const Environment data("TERN_DATA", root().string());
  Strings lines;
  const LoadOptions options{.log = log_to(lines)};
  for (const char* part : {"train/neg", "train/pos", "test/neg", "test/pos"})
    write(std::string("aclImdb/") + part + "/0_1.txt", "");
  for (const std::string& source : {std::string("imdb"), (root() / "aclImdb").string()})
    EXPECT_TRUE(fails([&] { load_text(source, options); }, {"all 4 texts are empty"}));
  write("aclImdb/train/neg/1_1.txt", " \n\t");
  EXPECT_TRUE(fails([&] { load_text("imdb", options); }, {"imdb: all 5 texts are empty"}));
  EXPECT_EQ(lines, Strings{});
  write("aclImdb/train/neg/2_1.txt", "A text.");
  EXPECT_EQ(load_text("imdb", options).size(), 6);
  EXPECT_EQ(lines, Strings{"imdb: not the published set: train/neg has 3 texts instead of 12500, train/pos has 1 text "
                           "instead of 12500, test/neg has 1 text instead of 12500, test/pos has 1 text instead of "
                           "12500, 5 texts are empty"});
  for (const char* end : {"", "/", "//"}) {
    lines.clear();
    const std::string path = (root() / "aclImdb").string() + end;
    load_text(path, options);
    ASSERT_EQ(lines.size(), 1u) << end;
    EXPECT_TRUE(lines[0].starts_with(path + ": not the published set: train/neg has 3 texts")) << lines[0];
  }
}

/// Sizes and labels alone decide; the texts are "x".
TEST(Imdb, DifferenceOfSetsNearTheFullSize) {
  TextSet set;
  set.label_names = {"neg", "pos"};
  for (const Part part : {Part::kTrain, Part::kTest})
    for (int32_t label = 0; label < 2; ++label)
      for (int i = 0; i < 12'500; ++i) {
        set.add("x", label);
        set.parts.push_back(part);
      }
  EXPECT_EQ(imdb_difference(set), "");
  TextSet other = set;
  other.labels.back() = 0;
  EXPECT_EQ(imdb_difference(other),
            "test/neg has 12501 texts instead of 12500, test/pos has 12499 texts instead of 12500");
  other = set;
  other.parts[0] = Part::kValidation;
  EXPECT_EQ(imdb_difference(other), "train/neg has 12499 texts instead of 12500");
  other = set;
  other.label_names = {"0", "1"};
  EXPECT_EQ(imdb_difference(other), "its labels are 0, 1 instead of neg, pos");
  other = set;
  other.bytes.front() = '\n';
  EXPECT_EQ(imdb_difference(other), "1 text is empty");
}

TEST_F(Folder, EmptyTexts) {
  Strings lines;
  const LoadOptions options{.log = log_to(lines)};
  const std::string some = write("some.csv", "label,text\n0,a\n1,\n0,  \n1,b\n");
  EXPECT_EQ(load_text(some, options).size(), 4);
  EXPECT_EQ(lines, Strings{some + ": 2 of 4 texts are empty"});
  lines.clear();
  load_text(write("none.csv", "label,text\n0,a\n1,b\n"), options);
  load_text("sentences", options);
  EXPECT_EQ(lines, Strings{});
  const std::string empty = (root() / "empty").string();
  for (const auto& [name, text] :
       {std::pair("empty.csv", "label,text\n0,\n1,\n"), std::pair("empty.tsv", "label\ttext\n0\t\n1\t \n"),
        std::pair("empty.jsonl", "{\"text\":\"\",\"label\":0}\n{\"text\":\"\\n\",\"label\":1}")})
    EXPECT_TRUE(contains(load_error(write(name, text)), {name, "all 2 texts are empty"})) << name;
  write("empty/a/1.txt", "");
  write("empty/b/1.txt", "");
  EXPECT_TRUE(contains(load_error(empty), {"empty: all 2 texts are empty"}));
}

TEST_F(Csv, SaysHowAFileIsRead) {
  Strings log;
  const auto load = [&](const std::string& source) {
    log.clear();
    return load_text(source, {.log = [&](const std::string& line) { log.push_back(line); }});
  };
  const std::string quotes = write("quotes.tsv", "label\ttext\nneg\ta\npos\t\"b, says\nneg\tc\npos\td \"\n");
  expect_set(load(quotes), {"a", "\"b, says", "c", "d \""}, {0, 1, 0, 1}, {"neg", "pos"});
  ASSERT_EQ(log.size(), 1u);
  EXPECT_TRUE(contains(log[0], {quotes + ": double quotes are part of the text"}));
  expect_set(load(write("excel.csv", "text;label\r\na,b;neg\r\nc;pos\r\n")), {"a,b", "c"}, {0, 1}, {"neg", "pos"});
  ASSERT_EQ(log.size(), 1u);
  EXPECT_TRUE(contains(log[0], {"excel.csv: the fields are separated by semicolons"}));
  expect_set(load(write("old.csv", "text,label\ra,neg\rb,pos\r")), {"a", "b"}, {0, 1}, {"neg", "pos"});
  write("folder/neg/1.txt", "a");
  write("folder/neg/2.md", "b");
  write("folder/pos/1.txt", "c");
  write("folder/neutral/1.html", "d");
  const std::string folder = (root() / "folder").string();
  expect_set(load(folder), {"a", "c"}, {0, 1}, {"neg", "pos"});
  EXPECT_EQ(log, (Strings{folder + "/neg: files that are not .txt are skipped: 1",
                          folder + "/neutral: no .txt file, so it is no label"}));
}

TEST_F(Csv, MessagesAreShortWhateverTheHeaderIs) {
  std::string header = "id" + std::string(3'000'000, 'x');
  for (int i = 0; i < 100'000; ++i) header += ",column" + std::to_string(i);
  const std::string error = load_error(write("long.csv", header + "\n1,2\n"));
  EXPECT_TRUE(contains(error, {"long.csv:1: no text column", "(100001 in all)"}));
  EXPECT_LT(error.size(), 3000u);
  const std::string label(3'000'000, 'y');
  EXPECT_LT(load_error(write("label.csv", "text,label\na," + label + "\n"), {"neg", "pos"}).size(), 1000u);
}

TEST(Imdb, RealTree) {
  if (std::getenv("TERN_DATA") == nullptr || !find_imdb())
    GTEST_SKIP() << "data: TERN_DATA names no folder with aclImdb";
  const TextSet set = load_text("imdb");
  ASSERT_EQ(set.size(), 50'000);
  std::map<std::pair<Part, int32_t>, int> counts;
  for (int64_t row = 0; row < set.size(); ++row) ++counts[{set.parts[row], set.labels[row]}];
  EXPECT_EQ(counts.size(), 4u);
  for (const auto& [kind, count] : counts) EXPECT_EQ(count, 12'500);
  EXPECT_EQ(set.label_names, (Strings{"neg", "pos"}));
  const Strings all = texts(set);
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 49'582u);
  EXPECT_EQ(set.invalid_utf8, 0);
  EXPECT_EQ(imdb_difference(set), "");
}

TEST(LabelledSet, LabelsInTheOrderOfAModel) {
  LabelledSet set{"here", {2, 0, 1, 1}, {"a", "b", "c"}};
  set.order_labels({"b", "c", "x", "a"});
  EXPECT_EQ(set.labels, (std::vector<int32_t>{1, 3, 0, 0}));
  EXPECT_EQ(set.label_names[3], "a");
  EXPECT_TRUE(fails([&] { set.order_labels({"b", "c", "a"}); }, {"here", "\"x\"", "b, c, a"}));
}

TEST(NamedSets, AreListedWithTheirNotes) {
  const std::string plain = names_of(named_text_sets()), noted = names_of(named_text_sets(), true);
  EXPECT_TRUE(contains(plain, {"imdb, ", "sentences"}));
  EXPECT_FALSE(contains(plain, {"embedded"}));
  EXPECT_TRUE(contains(noted, {"imdb, ", "sentences (embedded)"}));
}

}  // namespace
}  // namespace tern::data

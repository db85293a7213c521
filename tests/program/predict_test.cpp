// predict and tokenize: order, formats, endless and damaged input.

#include <cmath>

#include "tern/core/io/safetensors.h"
#include "tern/core/ops/ops.h"
#include "tern/tests/program/program.h"

namespace tern::program {
namespace {

using PredictTest = ProgramTest;

std::vector<std::string> words() {
  std::vector<std::string> found;
  for (const std::string& line : lines_of(read_text(kCurve + "/vocab.txt")))
    if (line.find_first_not_of("abcdefghijklmnopqrstuvwxyz") == std::string::npos && line.size() > 1)
      found.push_back(line);
  return found;
}

/// A text's prediction does not depend on the other texts and their lengths.
TEST_F(PredictTest, KeepsTheOrder) {
  const std::vector<std::string> vocabulary = words();
  std::string input;
  std::vector<std::string> texts;
  for (size_t i = 0; i < 700; ++i) {
    std::string text;
    for (size_t j = 0; j < i * 7 % 23; ++j) text += vocabulary[(i * 31 + j * 17) % vocabulary.size()] + " ";
    texts.push_back(text);
    input += Json({{"text", text}}).dump() + "\n";
  }
  const std::vector<Json> answers = json_lines(succeeds("predict curve --jsonl", input).out);
  ASSERT_EQ(answers.size(), texts.size());
  for (const size_t i : {size_t{0}, size_t{1}, size_t{255}, size_t{256}, size_t{257}, size_t{499}, size_t{699}}) {
    const Json alone = answer("predict curve --jsonl", Json({{"text", texts[i]}}).dump());
    for (size_t k = 0; k < 3; ++k) EXPECT_NEAR(alone["logits"][k], answers[i]["logits"][k], 1e-5) << i;
    EXPECT_EQ(alone["label"], answers[i]["label"]);
  }
  // The same texts as plain lines, from a file and from stdin.
  std::string plain;
  for (const std::string& text : texts) plain += text + "\n";
  write("texts.txt", plain);
  const Result lines = tern("predict curve texts.txt");
  EXPECT_EQ(lines.out, tern("predict curve", plain).out);
  EXPECT_EQ(lines.out, tern("predict curve -", plain).out);
  const std::vector<std::string> rows = lines_of(lines.out);
  ASSERT_EQ(rows.size(), texts.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].substr(0, rows[i].find('\t')), answers[i]["label"]);
    EXPECT_NEAR(std::stod(rows[i].substr(rows[i].find('\t'))), answers[i]["score"], 1e-5);
  }
}

TEST_F(PredictTest, AnOutputThatIsNoNumber) {
  copy("curve", "broken");
  StateView state;
  for (const NamedTensor& t : load_safetensors(file("curve/model.safetensors").string()).tensors)
    state.push_back({t.name, t.name == "classifier.bias" ? full(t.tensor.shape(), NAN) : t.tensor.clone()});
  save_safetensors(state, file("broken/model.safetensors").string());
  expect_error(tern("predict broken", "a good film\n"), 1, {"a good film", "NaN"});
  expect_error(tern("eval broken --data curve/data.csv"), 1, {"44 of 44 rows are NaN", "'classifier.bias' has NaN"});
  EXPECT_FALSE(has(tern("eval broken --data curve/data.csv").out, "accuracy"));
}

/// What the last layer reads is not finite, though the numbers of a line could be printed.
TEST_F(PredictTest, AFeatureThatIsNoNumber) {
  copy("curve", "broken");
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    StateView state;
    for (const NamedTensor& t : load_safetensors(kCurve + "/model.safetensors").tensors) {
      state.push_back({t.name, t.tensor.clone()});
      if (t.name == "pre_classifier.bias") state.back().tensor.data<float>()[3] = bad;
    }
    save_safetensors(state, file("broken/model.safetensors").string());
    const bool passes = bad == -INFINITY;  // ReLU makes it 0
    for (const char* command : {"predict broken --features", "predict broken --features --jsonl"}) {
      const bool json = has(command, "jsonl");
      const Result result = tern(command, json ? "{\"text\": \"good\"}\n" : "good\n");
      EXPECT_EQ(result.status, passes ? 0 : 1) << bad;
      if (!passes) expect_error(result, 1, {"good: a feature is ", std::isnan(bad) ? "NaN" : "infinite"});
    }
  }
}

/// A file of rows is read as --data reads it, by its text column alone; lines of stdin stay lines.
TEST_F(PredictTest, FilesOfRows) {
  const std::vector<std::string> texts = {"the movie, was great", "a \"bad\" plot", ""};
  std::string plain, csv = "id,Text,label\r\n", tsv = "sentence\tnumber\n", jsonl;
  for (const std::string& text : texts) {
    plain += text + "\n";
    std::string quoted = text;
    for (size_t at = 0; (at = quoted.find('"', at)) != std::string::npos; at += 2) quoted.insert(at, "\"");
    csv += "7,\"" + quoted + "\",unheard of\r\n";
    tsv += "\"" + quoted + "\"\t1\n";
    jsonl += Json({{"review", text}, {"label", nullptr}}).dump() + "\n\n";
  }
  write("a.CSV", csv);
  write("b.tsv", tsv);
  write("c.jsonl", jsonl);
  const std::string wanted = succeeds("predict curve", plain).out;
  ASSERT_EQ(lines_of(wanted).size(), 3u);
  for (const char* name : {"a.CSV", "b.tsv", "c.jsonl"}) EXPECT_EQ(succeeds({"predict", "curve", name}).out, wanted);
  EXPECT_EQ(lines_of(succeeds("predict curve a.CSV b.tsv c.jsonl --jsonl").out).size(), 9u);
  EXPECT_EQ(lines_of(succeeds("predict curve", csv).out).size(), 4u);
  EXPECT_EQ(succeeds("tokenize b.tsv").out, succeeds("tokenize", plain).out);
  write("bad.csv", "text,label\ngood,1\nbad\n");
  Result bad = tern("predict curve bad.csv");
  EXPECT_EQ(lines_of(bad.out).size(), 1u);  // what came before it
  bad.out.clear();
  expect_error(bad, 1, {"bad.csv:3: expected 2 fields"});
  write("none.csv", "words,label\ngood,1\n");
  expect_error(tern("predict curve none.csv"), 1, {"none.csv:1: no text column"});
}

TEST_F(PredictTest, FilesThatAreNoText) {
  const std::pair<std::string, std::string> files[] = {
      {"photo.png", "\x89PNG\r\n\x1a\n"}, {"photo.jpg", "\xff\xd8\xff\xe0 JFIF"},
      {"set.zip", "PK\x03\x04 and"},      {"text.gz", std::string("\x1f\x8b\x08\0", 4)},
      {"photo.txt", "\x89PNG\r\n\x1a\n"}, {"deep.bin", std::string("good\nb\0d\n", 9)}};
  for (const auto& [name, bytes] : files) {
    write(name, bytes);
    for (const char* command : {"predict", "tokenize"}) {
      Result result = tern(command == std::string("predict") ? Words{command, "curve", name} : Words{command, name});
      result.out.clear();
      expect_error(result, 1, {name, "expected lines of text, got ", "with a text column"});
    }
    if (name != "deep.bin") expect_error(tern("predict curve", bytes), 1, {"stdin", "expected lines of text"});
  }
}

TEST_F(PredictTest, LinesOfEveryKind) {
  const std::string input = "\n\n \nthe movie\r\n" + std::string(10 << 20, 'y') + "\n\xff\xfe\nno line end";
  const Result result = succeeds("predict curve", input);
  EXPECT_EQ(lines_of(result.out).size(), 7u);
  test::expect_peak_below(result.peak_kib, 300 << 10);
  EXPECT_EQ(succeeds("predict curve").out, "");
  expect_error(tern("predict curve missing.txt"), 1, {"missing.txt"});
  expect_error(tern("predict curve ."), 1, {"."});
}

TEST_F(PredictTest, DamagedJsonLineFailsAfterEarlierResults) {
  for (const auto& [bad, reason] : {std::pair<std::string, std::string>("{\"text\": ", "text"),
                                    {"[]", "text"},
                                    {"{\"txt\": \"x\"}", "text"},
                                    {"x", "text"},
                                    {"{\"text\": 5}", "expected an object with a string \"text\""},
                                    {"[\"text\"]", "expected an object with a string \"text\""},
                                    {"{\"text\": \"\xff\"}", "not valid JSON"},
                                    {"{\"text\": \"a\", \"n\": 1e999}", "the number 1e999"},
                                    {"{\"text\": \"a\", \"text\": \"b\"}", "the name 'text' occurs twice"}}) {
    for (const auto& [command, answers] : {std::pair("predict curve --jsonl", 2u), {"tokenize --jsonl", 1u}}) {
      const std::string good = "{\"text\": \"a\"}\n", more = answers == 2 ? "\n" + good : "";
      Result result = tern(command, good + more + bad + "\n" + good);
      EXPECT_EQ(json_lines(result.out).size(), answers) << bad;
      result.out.clear();
      expect_error(result, 1, {answers == 2 ? "stdin:4: " : "stdin:2: ", reason});
    }
  }
}

TEST_F(PredictTest, ManyLinesInBoundedMemory) {
  const std::vector<std::string> vocabulary = words();
  std::string some, many;
  for (size_t i = 0; i < 2000; ++i) some += vocabulary[i % vocabulary.size()] + "\n";
  for (int i = 0; i < 100; ++i) many += some;
  const Result small = tern("predict curve", some), large = tern("predict curve", many);
  ASSERT_EQ(large.status, 0) << large.err;
  EXPECT_EQ(lines_of(large.out).size(), 200'000u);
  EXPECT_TRUE(large.out.starts_with(small.out));
  test::expect_peak_below(large.peak_kib, small.peak_kib + (20 << 10));
}

/// As programs that SIGPIPE ends: without a word.
TEST_F(PredictTest, AReaderThatGoesAwayEndsItQuietly) {
  for (const char* command : {"predict curve --quiet", "tokenize"}) {
    std::string input;
    for (int i = 0; i < 20'000; ++i) input += "the movie was great\n";
    Process process(command, folder_, {.input = input});
    process.close_output();
    const Result result = process.finish();
    EXPECT_EQ(result.status, 128 + SIGPIPE) << command;
    EXPECT_EQ(result.err, "") << command;
  }
  expect_error(tern("tokenize", Setting{.input = "x\n", .in_child = [] { close(STDOUT_FILENO); }}), 1,
               {"stdout: cannot be written"});
}

/// A label is one field of a line, whatever is in it.
TEST_F(PredictTest, LabelsWithTabsAndLineEnds) {
  copy("curve", "odd");
  Json config = json("curve/config.json");
  const std::vector<std::string> names = {"a\tb", "c\nd \xc3\xa9", "\r"};
  config["id2label"] = config["label2id"] = Json::object();
  for (size_t i = 0; i < names.size(); ++i) {
    config["id2label"][std::to_string(i)] = names[i];
    config["label2id"][names[i]] = i;
  }
  write("odd/config.json", config.dump());
  const std::string texts = "the movie\na great plot\nbad\nworst\ngood\n";
  const std::vector<std::string> lines = lines_of(succeeds("predict odd", texts).out);
  EXPECT_EQ(lines.size(), 5u);
  for (const std::string& line : lines) {
    const std::string label = line.substr(0, line.find('\t'));
    EXPECT_EQ(std::count(line.begin(), line.end(), '\t'), 1) << line;
    EXPECT_TRUE(label == "a\\x09b" || label == "c\\x0ad \xc3\xa9" || label == "\\x0d") << line;
  }
  for (const Json& record : json_lines(succeeds("predict odd --jsonl", "{\"text\": \"the movie\"}\n").out))
    EXPECT_NE(std::find(names.begin(), names.end(), record["label"]), names.end()) << record;
}

/// A line of numbers for each text, the same in both forms; --tta has none.
TEST_F(PredictTest, Features) {
  const std::string texts = "the movie\n\na great plot\n", jsonl = "{\"text\": \"the movie\"}\n{\"text\": \"\"}\n";
  const std::vector<std::string> lines = lines_of(succeeds("predict curve --features", texts).out);
  const std::vector<Json> records = json_lines(succeeds("predict curve --features --jsonl", jsonl).out);
  ASSERT_EQ(lines.size(), 3u);
  ASSERT_EQ(records.size(), 2u);
  const size_t width = json("curve/config.json")["dim"];
  for (size_t i = 0; i < 2; ++i) {
    std::istringstream in(lines[i]);
    std::vector<float> numbers;
    for (float number = 0; in >> number;) numbers.push_back(number);
    EXPECT_EQ(numbers.size(), width);
    const auto recorded = records[i]["features"].get<std::vector<float>>();
    ASSERT_EQ(recorded.size(), width);
    for (size_t k = 0; k < width; ++k) EXPECT_NEAR(numbers[k], recorded[k], 1e-5);
  }
  EXPECT_NE(lines[0], lines[2]);
  EXPECT_EQ(succeeds("predict curve --features").out, "");
}

TEST_F(PredictTest, Tokenize) {
  const std::string text = "Hello, world! Unbelievable caf\xc3\xa9\n";
  EXPECT_EQ(tern("tokenize", text).out, "7592 1010 2088 999 23653 7668\n");
  EXPECT_EQ(tern("tokenize --special", text).out, "101 7592 1010 2088 999 23653 7668 102\n");
  EXPECT_EQ(tern("tokenize --special --max-length 4", text).out, "101 7592 1010 102\n");
  EXPECT_EQ(tern("tokenize --max-length 4", text).out, "7592 1010 2088 999\n");
  EXPECT_EQ(tern("tokenize --tokens", text).out, "hello , world ! unbelievable cafe\n");
  EXPECT_EQ(tern("tokenize --jsonl", "{\"text\": \"Hello\"}\n").out, "{\"ids\":[7592]}\n");
  EXPECT_EQ(tern("tokenize", "\n\nHello\r\n").out, "\n\n7592\n");
  EXPECT_EQ(tern("tokenize --cased --tokens", "hello HELLO\n").out, "hello [UNK]\n");
  expect_error(tern("tokenize --vocab missing.txt"), 1, {"missing.txt"});
  write("vocab.txt", "[UNK]\nhello\n##o\n");
  EXPECT_EQ(tern("tokenize --vocab vocab.txt", "hello helloo other\n").out, "1 1 2 0\n");
  expect_error(tern("tokenize --vocab vocab.txt --special", "hello\n"), 1, {"vocabulary", "[SEP]"});
}

}  // namespace
}  // namespace tern::program

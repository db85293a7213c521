// Malicious texts and files: each gives one line that names the file, in bounded time and memory.

#include <sys/stat.h>

#include <memory>
#include <thread>

#include "tern/tests/program/program.h"

namespace tern::program {
namespace {

std::string repeated(int times, const std::string& text) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

/// 200,000 nesting levels.
const std::string& deep() {
  static const std::string text = repeated(200'000, "[") + repeated(200'000, "]");
  return text;
}

class HostileTest : public ProgramTest {
 protected:
  /// A run of one step, created once for all tests of this program.
  static void SetUpTestSuite() {
    trained_ = std::make_unique<test::TemporaryFolder>();
    write_text(*trained_ / "data.csv", easy_csv(40));
    const Words train = "train distilbert --data data.csv --max-steps 1 --out run --checkpoint-every 1 --quiet";
    const Result run = Process(train, trained_->path()).finish();
    ASSERT_EQ(run.status, 0) << run.err;
  }
  static void TearDownTestSuite() { trained_.reset(); }
  HostileTest() {
    restore("run");
    restore("data.csv");
  }

  /// Replaces a file or folder by the trained run's; without it, removes it.
  void restore(const std::string& name) const {
    fs::remove_all(file(name));
    if (fs::exists(*trained_ / name)) fs::copy(*trained_ / name, file(name), fs::copy_options::recursive);
  }
  void pipe(const std::string& name) const {
    fs::remove_all(file(name));
    ASSERT_EQ(mkfifo(file(name).c_str(), 0600), 0);
  }
  std::string checkpoint() const { return "run/checkpoints/" + names_in("run/checkpoints")[0]; }

  static inline std::unique_ptr<test::TemporaryFolder> trained_;
};

TEST_F(HostileTest, DeepJson) {
  const std::string step = checkpoint();
  const struct {
    std::string file, text;
    Words arguments;
  } cases[] = {
      {"run/config.json", "{\"model_type\":\"distilbert\",\"dim\":" + deep() + "}", "predict run"},
      {"run/config.json", "{\"model_type\":\"vit\",\"size\":" + deep() + "}", "info run"},
      {"run/config.json", repeated(200'000, "{\"a\":"), "eval run"},
      {"run/tokenizer_config.json", "{\"do_lower_case\":" + deep() + "}", "predict run"},
      {"run/run.json", "{\"options\":{\"data\":" + deep() + "}}", "eval run"},
      {"run/run.json", "{\"options\":{\"data\":" + deep() + "}}", "resume run"},
      {"run/model.safetensors.index.json", "{\"weight_map\":" + deep() + "}", "predict run"},
      {step + "/checksums.json", "{\"a\":" + deep() + "}", {"resume", step}},
  };
  for (const auto& [name, text, arguments] : cases) {
    if (name.ends_with("index.json")) fs::remove(file("run/model.safetensors"));
    write(name, text);
    expect_error(tern(arguments), 1, {name, "nested more than 128 levels"});
    restore(name);
    restore("run/model.safetensors");
  }
}

TEST_F(HostileTest, DeepLinesOfJson) {
  const std::string good = "{\"text\": \"a\"}\n", bad = "{\"text\": \"a\", \"more\": " + deep() + "}\n";
  write("x.jsonl", good + bad);
  for (const Words command : {"predict run --jsonl", "tokenize --jsonl"}) {
    for (const auto& [result, name] :
         {std::pair(tern(command, good + bad), "stdin:2"), std::pair(tern(command + "x.jsonl"), "x.jsonl:2")}) {
      EXPECT_EQ(result.status, 1);
      EXPECT_EQ(lines_of(result.out).size(), 1u) << "what came before is answered";
      EXPECT_TRUE(has(result.err, std::string("tern: error: ") + name + ": nested more than"));
    }
  }
}

/// tests/models/options_test.cpp has every option.
TEST_F(HostileTest, WrongTypesInARecord) {
  const Json good = json("run/run.json");
  const std::pair<const char*, Json> cases[] = {{"epochs", 2.5}, {"warmup", Json::array()}, {"shuffle", 1},
                                                {"lr", -1},      {"processes", 0},          {"processes", "two"}};
  for (const auto& [option, value] : cases) {
    Json record = good;
    record["options"][option] = value;
    write("run/run.json", record.dump());
    expect_error(tern("resume run"), 1, {"run/run.json: ", option});
  }
  for (const auto& [text, problem] : {std::pair("{ broken", "not valid JSON (at byte 3)"),
                                      {"[]", ""},
                                      {"", "the file is empty"},
                                      {"{\"options\": 5, \"seed\": \"x\"}", "is not the record of a run"}}) {
    write("run/run.json", text);
    for (const char* command : {"resume", "eval"})
      expect_error(tern({command, "run"}), 1, {std::string("run/run.json: ") + problem});
  }
}

/// Options whose values Tern parses itself, with numbers of 100,000 digits.
TEST_F(HostileTest, LongNumbers) {
  const std::string digits(100'000, '1'), half(50'000, '1'), zeros(100'000, '0');
  const auto fails = [&](const char* flag, const std::string& value) {
    const Result result = tern("train distilbert --data data.csv --max-steps 1" + Words{flag, value, "--out", "other"});
    EXPECT_TRUE(result.status == 1 || result.status == 2) << flag << ": " << result.status;
    EXPECT_LT(result.err.size(), 2000u) << flag;
    EXPECT_TRUE(has(result.err, "tern: error: ")) << flag;
    EXPECT_FALSE(exists("other")) << flag;
  };
  for (const std::string& value : {digits + "/1/1", "1/" + digits + "/1", "1/1/" + digits, digits, half + "/" + half,
                                   repeated(50'000, "1/"), repeated(100'000, "/"), repeated(100'000, "."),
                                   repeated(50'000, "1.") + "/1/1", "0." + zeros + "1/1/1", digits + ".5/.1/.1"})
    fails("--split", value);
  for (const std::string& value : {digits + "/5", "1/" + digits, digits, repeated(50'000, "1/"), "1/5/" + digits})
    fails("--fold", value);
  for (const char* flag : {"--epochs", "--max-steps", "--lr", "--batch-tokens", "--keep", "--seed", "--workers",
                           "--accumulate", "--weight-decay", "--preset", "--dtype"})
    fails(flag, digits);
  for (const std::string& value : {"-" + digits, digits + "x"}) fails("--epochs", value);
  // Options that also take words and units.
  for (const char* flag : {"--checkpoint-every", "--warmup", "--recompute", "--image-cache"})
    for (const std::string& value : {digits, "-" + digits, digits + "h", "every-" + digits}) fails(flag, value);
  Json record = json("run/run.json");
  record["options"]["split"] = digits + "/1/1";
  write("run/run.json", record.dump());
  expect_error(tern("resume run"), 1, {"the option \"split\" is \"111", "it must be official"});
}

TEST_F(HostileTest, OptionFiles) {
  const auto fails = [&](const std::string& text, const std::string& place) {
    write("deep.toml", text);
    const Result result = tern("train distilbert --config deep.toml --data data.csv --out other");
    EXPECT_LT(result.err.size(), 1000u);
    expect_error(result, 2, {place});
  };
  const std::string deep_key = repeated(200'000, "a.") + "b", arrays = deep();
  const std::string tables = repeated(200'000, "{a = ") + "1" + repeated(200'000, "}");
  fails(deep_key + " = 1\n", "deep.toml:1: nested deeper");
  fails("epochs = 1\n\n" + deep_key + " = 1\n", "deep.toml:3: nested deeper");
  fails("[" + deep_key + "]\n", "deep.toml:1: nested deeper");
  fails("# [[[[\nlr = " + arrays + "\n", "deep.toml:2: nested deeper");
  fails("lr = " + tables + "\n", "deep.toml:1: nested deeper");
  fails(repeated(200'000, "\"a\".") + "b = 1\n", "deep.toml:1: nested deeper");
  fails(repeated(200'000, "'a' . ") + "b = 1\n", "deep.toml:1: nested deeper");
  fails("split = \"\"\"two\nlines\"\"\"\n" + deep_key + " = 1\n", "deep.toml:3: nested deeper");
  fails("split = \"\"\"x\"\"\"\"\", " + arrays, "deep.toml:1: nested deeper");
  fails("split = \"\\\"\"\nlr = " + arrays + "\n", "deep.toml:2: nested deeper");
  fails("split = '\\'\nlr = " + arrays + "\n", "deep.toml:2: nested deeper");
  fails("lr = " + repeated(200'000, "["), "deep.toml:1: nested deeper");
  fails("lr = \xff\n", "deep.toml:1");
  fails("epochs = " + std::string(100'000, '9') + "\n", "deep.toml:1");
  fails(std::string(100'000, 'a') + " = 1\n", "deep.toml: 'aaa");
  // Brackets and dots without nesting.
  write("flat.toml", "# " + deep_key + arrays +
                         "\nout = 'a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s.t[[[[[[[[[[[[[[[[[[[['\n"
                         "data = \"data.csv\" # '\nmax-steps = 1\nquiet = true\n");
  succeeds("train distilbert --config flat.toml");
}

TEST_F(HostileTest, FilesThatAreNotRegular) {
  pipe("f");
  pipe("f.csv");
  pipe("f.jsonl");
  const std::string what = "not a regular file but a named pipe";
  const std::pair<Words, std::string> commands[] = {{"info f", "f: "},
                                                    {"predict run f", "f: "},
                                                    {"predict run data.csv f", "f: "},
                                                    {"tokenize f", "f: "},
                                                    {"tokenize --vocab f", "f: "},
                                                    {"eval run --data f.csv", "f.csv: "},
                                                    {"train distilbert --data f.jsonl --out other", "f.jsonl: "}};
  for (const auto& [arguments, name] : commands) {
    const Result result = tern(arguments);
    EXPECT_EQ(result.status, 1) << result.err;
    EXPECT_TRUE(has(result.err, "tern: error: cannot read " + name + what)) << arguments[0];
  }
  expect_error(tern("train distilbert --config f"), 2, {"f: " + what});
  for (const std::string& name : Words("config.json model.safetensors vocab.txt tokenizer_config.json run.json")) {
    pipe("run/" + name);
    expect_error(tern("eval run"), 1, {"run/" + name, what});
    restore("run/" + name);
  }
  const std::string step = checkpoint();
  for (const std::string name : {"state.json", "checksums.json", "optimizer.safetensors", "model.safetensors"}) {
    pipe(step + "/" + name);
    expect_error(tern({"resume", step}), 1, {what});
    restore(step + "/" + name);
  }
  for (const auto& [name, kind] :
       {std::pair("/dev/zero", "a device"), std::pair("/dev/null", "a device"), std::pair("run", "a folder")})
    expect_error(tern({"tokenize", name}), 1, {name, std::string("not a regular file but ") + kind});
}

/// A dangling link, as in a model cache with a missing file, does not count as an absent file.
TEST_F(HostileTest, LinksThatLeadNowhere) {
  fs::create_symlink("loop", file("loop"));
  const std::string why = "Too many levels of symbolic links";
  for (const char* command : {"info", "predict", "resume"}) expect_error(tern({command, "loop"}), 1, {"loop: " + why});
  expect_error(tern("eval loop"), 1, {"loop/run.json: " + why});
  expect_error(tern("train vit --data digits --init loop --out other"), 1, {"loop: " + why});
  for (const std::string name : {"model.safetensors", "tokenizer_config.json", "vocab.txt"}) {
    fs::remove(file("run/" + name));
    fs::create_symlink("../blobs/0123", file("run/" + name));
    expect_error(tern("predict run"), 1, {"run/" + name + ": No such file or directory"});
    restore("run/" + name);
  }
  expect_error(tern("resume data.csv"), 1, {"data.csv: not a folder; --resume takes the folder of a run"});
}

/// Files that the program inherits open can be read under any of their names.
TEST_F(HostileTest, PipesThatAreGivenOpen) {
  const std::string text = "A great film.\nawful\n";
  const Result expected = succeeds("predict run", text);
  ASSERT_EQ(lines_of(expected.out).size(), 2u);
  const Result tokens = tern("tokenize", text);
  for (const char* name : {"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"}) {
    EXPECT_EQ(tern({"predict", "run", name}, text).out, expected.out) << name;
    EXPECT_EQ(tern({"tokenize", name}, text).out, tokens.out) << name;
  }
  succeeds("train distilbert --config /dev/stdin --out other", "data = 'data.csv'\nmax-steps = 1\nquiet = true\n");
  // A shell's <(...) is a pipe that the program inherits open.
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  close(ends[1]);
  EXPECT_EQ(tern({"predict", "run", "/dev/fd/" + std::to_string(ends[0])}).out, expected.out);
  close(ends[0]);
}

/// Without --data it is the set that is found; tests/data/text_set_test.cpp has what else may be wrong with it.
TEST_F(HostileTest, AnOfficialSetOfEmptyTexts) {
  const Setting with_data{.in_child = [&] { setenv("TERN_DATA", folder_.c_str(), 1); }};
  for (const std::string part : {"train/neg", "train/pos", "test/neg", "test/pos"})
    write("aclImdb/" + part + "/0_1.txt", "");
  expect_error(tern("train distilbert --max-steps 1 --out other", with_data), 1, {"imdb: all 4 texts are empty"});
}

/// A model file is truncated while the program runs: the file is loaded or being loaded, and the program waits for
/// input.
TEST_F(HostileTest, AFileThatIsCutWhileItIsRead) {
  for (int repetition = 0; repetition < 8; ++repetition) {
    restore("run/model.safetensors");
    Process process({"predict", "run"}, folder_, {.input = "a line\n"});
    std::this_thread::sleep_for(std::chrono::milliseconds(5 * repetition));
    fs::resize_file(file("run/model.safetensors"), 100);
    const Result result = process.finish();
    EXPECT_TRUE(result.status == 0 || result.status == 1) << result.status << result.err;
    if (result.status == 1) {
      EXPECT_TRUE(has(result.err, "model.safetensors: "));
    }
  }
}

}  // namespace
}  // namespace tern::program

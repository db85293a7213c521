// Input that is made to break the program: each ends with one line that names the file, in little time and memory.

#include <sys/stat.h>

#include <thread>

#include "tern/data/images/image.h"
#include "tern/tests/program/program.h"

namespace tern::program {
namespace {

std::string repeated(int times, const std::string& text) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

/// 200,000 levels.
const std::string& deep() {
  static const std::string text = repeated(200'000, "[") + repeated(200'000, "]");
  return text;
}

class HostileTest : public ProgramTest {
 protected:
  /// A run of one step, once for all tests of this program.
  static void SetUpTestSuite() {
    std::string name = (fs::temp_directory_path() / "tern-hostile-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    trained_ = name;
    write_text(trained_ / "data.csv", easy_csv(40));
    const Result run = Process({"train", "distilbert", "--data", "data.csv", "--max-steps", "1", "--out", "run",
                                "--checkpoint-every", "1", "--quiet"},
                               trained_)
                           .finish();
    ASSERT_EQ(run.status, 0) << run.err;
  }
  static void TearDownTestSuite() { fs::remove_all(trained_); }
  HostileTest() {
    fs::copy(trained_ / "run", file("run"), fs::copy_options::recursive);
    fs::copy(trained_ / "data.csv", file("data.csv"));
  }

  void pipe(const std::string& name) const {
    fs::remove_all(file(name));
    ASSERT_EQ(mkfifo(file(name).c_str(), 0600), 0);
  }
  std::string checkpoint() const {
    return (fs::path("run/checkpoints") / *fs::begin(fs::directory_iterator(file("run/checkpoints"))))
        .filename()
        .string();
  }

  static fs::path trained_;
};
fs::path HostileTest::trained_;

TEST_F(HostileTest, DeepJson) {
  const std::string step = "run/checkpoints/" + checkpoint();
  const struct {
    std::string file, text;
    std::vector<std::string> arguments;
  } cases[] = {
      {"run/config.json", "{\"model_type\":\"distilbert\",\"dim\":" + deep() + "}", {"predict", "run"}},
      {"run/config.json", "{\"model_type\":\"vit\",\"size\":" + deep() + "}", {"info", "run"}},
      {"run/config.json", repeated(200'000, "{\"a\":"), {"eval", "run"}},
      {"run/tokenizer_config.json", "{\"do_lower_case\":" + deep() + "}", {"predict", "run"}},
      {"run/run.json", "{\"options\":{\"data\":" + deep() + "}}", {"eval", "run"}},
      {"run/run.json", "{\"options\":{\"data\":" + deep() + "}}", {"resume", "run"}},
      {"run/model.safetensors.index.json", "{\"weight_map\":" + deep() + "}", {"predict", "run"}},
      {step + "/checksums.json", "{\"a\":" + deep() + "}", {"resume", step}},
  };
  for (const auto& [name, text, arguments] : cases) {
    const std::string before = fs::exists(file(name)) ? read_text(file(name)) : "";
    if (name.ends_with("index.json")) fs::remove(file("run/model.safetensors"));
    write(name, text);
    expect_error(tern(arguments), 1, {name, "nested more than 128 levels"});
    if (before.empty())
      fs::remove(file(name));
    else
      write(name, before);
    if (name.ends_with("index.json")) fs::copy(trained_ / "run/model.safetensors", file("run/model.safetensors"));
  }
}

TEST_F(HostileTest, DeepLinesOfJson) {
  const std::string good = "{\"text\": \"a\"}\n", bad = "{\"text\": \"a\", \"more\": " + deep() + "}\n";
  write("x.jsonl", good + bad);
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"predict", "run", "--jsonl"}, {"tokenize", "--jsonl"}}) {
    std::vector<std::string> with_file = command;
    with_file.push_back("x.jsonl");
    for (const auto& [result, name] :
         {std::pair(tern(command, good + bad), "stdin:2"), std::pair(tern(with_file), "x.jsonl:2")}) {
      EXPECT_EQ(result.status, 1);
      EXPECT_EQ(lines_of(result.out).size(), 1u) << "what came before is answered";
      EXPECT_NE(result.err.find(std::string("tern: error: ") + name + ": nested more than"), std::string::npos)
          << result.err;
    }
    for (const auto& [line, reason] : std::vector<std::pair<std::string, std::string>>{
             {"{\"text\": \"a\", \"n\": 1e999}", "stdin:1: the number 1e999"},
             {"{\"text\": \"a\", \"text\": \"b\"}", "stdin:1: the name 'text' comes twice"},
             {"{\"text\": \"\xff\"}", "stdin:1: not valid JSON"},
             {"{\"text\": 5}", "stdin:1: expected an object with a string \"text\""},
             {"[\"text\"]", "stdin:1: expected an object with a string \"text\""}})
      expect_error(tern(command, line + "\n"), 1, {reason});
  }
}

TEST_F(HostileTest, WrongTypesInARecord) {
  const Json good = Json::parse(read_text(file("run/run.json")));
  const auto with = [&](const char* option, const Json& value) {
    Json record = good;
    record["options"][option] = value;
    write("run/run.json", record.dump());
  };
  for (const auto& [option, value] : std::vector<std::pair<const char*, Json>>{{"epochs", 2.5},
                                                                               {"epochs", true},
                                                                               {"epochs", -1},
                                                                               {"keep", UINT64_MAX},
                                                                               {"workers", 1 << 20},
                                                                               {"seed", -1},
                                                                               {"shuffle", 1},
                                                                               {"lr", "fast"},
                                                                               {"lr", -1},
                                                                               {"warmup", Json::array()},
                                                                               {"data", 5},
                                                                               {"accumulate", 0},
                                                                               {"processes", 0},
                                                                               {"processes", "two"},
                                                                               {"device", 7}}) {
    with(option, value);
    expect_error(tern({"resume", "run"}), 1, {"run/run.json: ", option});
  }
  for (const char* text : {"{ broken", "[]", "", "{\"options\": 5}"}) {
    write("run/run.json", text);
    for (const char* command : {"resume", "eval"}) expect_error(tern({command, "run"}), 1, {"run/run.json: "});
  }
}

/// Options whose values Tern parses itself, given numbers of 100,000 digits.
TEST_F(HostileTest, LongNumbers) {
  const std::string digits(100'000, '1'), half(50'000, '1'), zeros(100'000, '0');
  const std::vector<std::string> train = {"train", "distilbert", "--data", "data.csv", "--max-steps", "1"};
  const auto fails = [&](const char* flag, const std::string& value) {
    std::vector<std::string> arguments = train;
    arguments.insert(arguments.end(), {flag, value, "--out", "other"});
    const Result result = tern(arguments);
    EXPECT_TRUE(result.status == 1 || result.status == 2) << flag << ": " << result.status;
    EXPECT_LT(result.err.size(), 2000u) << flag;
    EXPECT_NE(result.err.find("tern: error: "), std::string::npos) << flag << result.err;
    EXPECT_FALSE(fs::exists(file("other"))) << flag;
  };
  for (const std::string& value : {digits + "/1/1", "1/" + digits + "/1", "1/1/" + digits, digits, half + "/" + half,
                                   repeated(50'000, "1/"), repeated(100'000, "/"), repeated(100'000, "."),
                                   repeated(50'000, "1.") + "/1/1", "0." + zeros + "1/1/1", digits + ".5/.1/.1"})
    fails("--split", value);
  for (const std::string& value : {digits + "/5", "1/" + digits, digits, repeated(50'000, "1/"), "1/5/" + digits})
    fails("--fold", value);
  for (const char* flag :
       {"--checkpoint-every", "--warmup", "--epochs", "--max-steps", "--lr", "--batch-tokens", "--keep", "--seed",
        "--workers", "--accumulate", "--weight-decay", "--recompute", "--preset", "--dtype"})
    for (const std::string& value : {digits, "-" + digits, digits + "h", digits + "x"}) fails(flag, value);
  fails("--recompute", "every-" + digits);
  Json record = Json::parse(read_text(file("run/run.json")));
  record["options"]["split"] = digits + "/1/1";
  write("run/run.json", record.dump());
  const Result resumed = tern({"resume", "run"});
  expect_error(resumed, 1, {"split \"111", "is not understood"});
}

TEST_F(HostileTest, OptionFiles) {
  const auto fails = [&](const std::string& text, const std::string& place) {
    write("deep.toml", text);
    const Result result =
        tern({"train", "distilbert", "--config", "deep.toml", "--data", "data.csv", "--out", "other"});
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
  fails("lr = 1\nlr = 2\n", "deep.toml:2");
  fails("epochs = " + std::string(100'000, '9') + "\n", "deep.toml:1");
  fails(std::string(100'000, 'a') + " = 1\n", "deep.toml: 'aaa");
  // Brackets and dots that do not nest.
  write("flat.toml", "# " + deep_key + arrays +
                         "\nout = 'a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s.t[[[[[[[[[[[[[[[[[[[['\n"
                         "data = \"data.csv\" # '\nmax-steps = 1\nquiet = true\n");
  EXPECT_EQ(tern({"train", "distilbert", "--config", "flat.toml"}).status, 0);
}

TEST_F(HostileTest, FilesThatAreNotRegular) {
  pipe("f");
  pipe("f.csv");
  pipe("f.jsonl");
  const std::string what = "not a regular file but a named pipe";
  const std::vector<std::pair<std::vector<std::string>, std::string>> commands = {
      {{"info", "f"}, "f: "},
      {{"predict", "run", "f"}, "f: "},
      {{"predict", "run", "data.csv", "f"}, "f: "},
      {{"tokenize", "f"}, "f: "},
      {{"tokenize", "--vocab", "f"}, "f: "},
      {{"eval", "run", "--data", "f.csv"}, "f.csv: "},
      {{"train", "distilbert", "--data", "f.jsonl", "--out", "other"}, "f.jsonl: "}};
  for (const auto& [arguments, name] : commands) {
    const Result result = tern(arguments);
    EXPECT_EQ(result.status, 1) << result.err;
    EXPECT_NE(result.err.find("tern: error: cannot read " + name + what), std::string::npos)
        << arguments[0] << ": " << result.err;
  }
  expect_error(tern({"train", "distilbert", "--config", "f"}), 2, {"f: " + what});
  for (const std::string name :
       {"config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json", "run.json"}) {
    pipe(std::string("run/") + name);
    expect_error(tern({"eval", "run"}), 1, {std::string("run/") + name, what});
    fs::remove(file(std::string("run/") + name));
    fs::copy(trained_ / "run" / name, file(std::string("run/") + name));
  }
  const std::string step = "run/checkpoints/" + checkpoint();
  for (const char* name : {"state.json", "checksums.json", "optimizer.safetensors", "model.safetensors"}) {
    pipe(step + "/" + name);
    const Result resumed = tern({"resume", step});
    EXPECT_EQ(resumed.status, 1) << resumed.err;
    EXPECT_NE(resumed.err.find(what), std::string::npos) << name << ": " << resumed.err;
    fs::remove(file(step + "/" + name));
    fs::copy(trained_ / step / name, file(step + "/" + name));
  }
  for (const auto& [name, kind] :
       {std::pair("/dev/zero", "a device"), std::pair("/dev/null", "a device"), std::pair("run", "a folder")})
    expect_error(tern({"tokenize", name}), 1, {name, std::string("not a regular file but ") + kind});
}

/// What the program is given open stays readable, by any of its names.
TEST_F(HostileTest, PipesThatAreGivenOpen) {
  const std::string text = "A great film.\nawful\n";
  const Result expected = tern({"predict", "run"}, text);
  ASSERT_EQ(expected.status, 0) << expected.err;
  ASSERT_EQ(lines_of(expected.out).size(), 2u);
  for (const char* name : {"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"}) {
    EXPECT_EQ(tern({"predict", "run", name}, text).out, expected.out) << name;
    EXPECT_EQ(tern({"tokenize", name}, text).out, tern({"tokenize"}, text).out) << name;
  }
  const Result config = tern({"train", "distilbert", "--config", "/dev/stdin", "--out", "other"},
                             "data = 'data.csv'\nmax-steps = 1\nquiet = true\n");
  EXPECT_EQ(config.status, 0) << config.err;
  // A shell's <(...) is a pipe that the program finds open.
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  close(ends[1]);
  EXPECT_EQ(tern({"predict", "run", "/dev/fd/" + std::to_string(ends[0])}).out, expected.out);
  close(ends[0]);
}

TEST_F(HostileTest, OfficialSetsThatAreNot) {
  const Setting with_data{.in_child = [&] { setenv("TERN_DATA", folder_.c_str(), 1); }};
  for (const char* part : {"train/neg", "train/pos", "test/neg", "test/pos"})
    write(std::string("aclImdb/") + part + "/0_1.txt", "");
  expect_error(tern({"train", "distilbert", "--max-steps", "1", "--out", "other"}, with_data), 1,
               {"imdb: all 4 texts are empty"});
  for (const char* part : {"train/neg", "train/pos", "test/neg", "test/pos"})
    for (int i = 1; i < 20; ++i)
      write(std::string("aclImdb/") + part + "/" + std::to_string(i) + "_1.txt", i % 2 ? "awful" : "great");
  const Result result = tern({"train", "distilbert", "--max-steps", "1", "--out", "other"}, with_data);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.err.find("imdb: not the published set: train/neg has 20 texts instead of 12500, train/pos has 20 "
                            "texts instead of 12500, test/neg has 20 texts instead of 12500, test/pos has 20 texts "
                            "instead of 12500, 4 texts are empty\n"),
            std::string::npos)
      << result.err;
}

/// Large images are answered one after the other: those of a whole group must not wait in memory.
TEST_F(HostileTest, ManyLargeImagesTakeTheMemoryOfFew) {
  constexpr int64_t kSide = 2500;  // 19 MB of pixels
  const Result trained = tern({"train", "vit", "--data", "digits", "--max-steps", "1", "--out", "vit", "--quiet"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  data::write_png(file("0.png"), data::Image(kSide, kSide, 3));
  std::vector<std::string> one = {"predict", "vit", "0.png"}, many = one;
  for (int i = 1; i < 8; ++i) {
    many.push_back(std::to_string(i) + ".png");
    fs::create_symlink("0.png", file(many.back()));
  }
  const Result few = tern(one), all = tern(many);
  EXPECT_EQ(all.status, 0) << all.err;
  EXPECT_EQ(all.out, repeated(8, few.out));
  EXPECT_LT(all.peak_kib, few.peak_kib + (100 << 10)) << "8 images have 143 MiB of pixels";
  std::string names;
  for (size_t i = 2; i < many.size(); ++i) names += many[i] + "\n";
  const Result listed = tern({"predict", "vit"}, names);
  EXPECT_EQ(listed.out, all.out);
  EXPECT_LT(listed.peak_kib, few.peak_kib + (100 << 10));
}

TEST_F(HostileTest, AJpegHeaderThatClaimsMuch) {
  ASSERT_EQ(tern({"train", "vit", "--data", "digits", "--max-steps", "1", "--out", "vit", "--quiet"}).status, 0);
  std::string header("\xff\xd8\xff\xdb\0\x43\0", 7);
  header += std::string(64, '\1');
  header += std::string("\xff\xc0\0\x11\x08\x0a\xac\xff\xdc\3\1\x11\0\2\x11\0\3\x11\0", 19);  // 65500 x 2732
  header += std::string("\xff\xc4\0\x14\0\1", 6) + std::string(16, '\0');
  header += std::string("\xff\xda\0\x0c\3\1\0\2\0\3\0\0\x3f\0", 14) + std::string(100, '\0');
  write("claim.jpg", header);
  const Result result = tern({"predict", "vit", "claim.jpg"});
  expect_error(result, 1, {"claim.jpg: damaged JPEG image: 65500 x 2732 pixels cannot lie in "});
  EXPECT_LT(result.peak_kib, 400 << 10);
}

/// A model's file is cut while the program runs: the program waits for input with the file loaded or being loaded.
TEST_F(HostileTest, AFileThatIsCutWhileItIsRead) {
  for (int repetition = 0; repetition < 8; ++repetition) {
    fs::copy(trained_ / "run/model.safetensors", file("run/model.safetensors"), fs::copy_options::overwrite_existing);
    Process process({"predict", "run"}, folder_, {.input = "a line\n"});
    std::this_thread::sleep_for(std::chrono::milliseconds(5 * repetition));
    fs::resize_file(file("run/model.safetensors"), 100);
    const Result result = process.finish();
    EXPECT_TRUE(result.status == 0 || result.status == 1) << result.status << result.err;
    if (result.status == 1) {
      EXPECT_NE(result.err.find("model.safetensors: "), std::string::npos) << result.err;
    }
  }
}

}  // namespace
}  // namespace tern::program

// Malicious texts: each gives one line that names the file, in bounded time and memory.

#include "tern/tests/program/hostile.h"

namespace tern::program {
namespace {

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
    for (const auto& [line, reason] : std::vector<std::pair<std::string, std::string>>{
             {"{\"text\": \"a\", \"n\": 1e999}", "stdin:1: the number 1e999"},
             {"{\"text\": \"a\", \"text\": \"b\"}", "stdin:1: the name 'text' occurs twice"},
             {"{\"text\": \"\xff\"}", "stdin:1: not valid JSON"},
             {"{\"text\": 5}", "stdin:1: expected an object with a string \"text\""},
             {"[\"text\"]", "stdin:1: expected an object with a string \"text\""}})
      expect_error(tern(command, line + "\n"), 1, {reason});
  }
}

TEST_F(HostileTest, WrongTypesInARecord) {
  const Json good = json("run/run.json");
  const std::pair<const char*, Json> cases[] = {
      {"epochs", 2.5}, {"epochs", true},  {"epochs", -1},   {"keep", UINT64_MAX}, {"workers", 1 << 20},
      {"seed", -1},    {"shuffle", 1},    {"lr", "fast"},   {"lr", -1},           {"warmup", Json::array()},
      {"data", 5},     {"accumulate", 0}, {"processes", 0}, {"processes", "two"}, {"device", 7}};
  for (const auto& [option, value] : cases) {
    Json record = good;
    record["options"][option] = value;
    write("run/run.json", record.dump());
    expect_error(tern("resume run"), 1, {"run/run.json: ", option});
  }
  for (const char* text : {"{ broken", "[]", "", "{\"options\": 5}"}) {
    write("run/run.json", text);
    for (const char* command : {"resume", "eval"}) expect_error(tern({command, "run"}), 1, {"run/run.json: "});
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
  for (const char* flag : {"--checkpoint-every", "--warmup", "--recompute"})  // options that also take words and units
    for (const std::string& value : {digits, "-" + digits, digits + "h", "every-" + digits}) fails(flag, value);
  Json record = json("run/run.json");
  record["options"]["split"] = digits + "/1/1";
  write("run/run.json", record.dump());
  expect_error(tern("resume run"), 1, {"split \"111", "is not understood"});
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
  fails("lr = 1\nlr = 2\n", "deep.toml:2");
  fails("epochs = " + std::string(100'000, '9') + "\n", "deep.toml:1");
  fails(std::string(100'000, 'a') + " = 1\n", "deep.toml: 'aaa");
  // Brackets and dots without nesting.
  write("flat.toml", "# " + deep_key + arrays +
                         "\nout = 'a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s.t[[[[[[[[[[[[[[[[[[[['\n"
                         "data = \"data.csv\" # '\nmax-steps = 1\nquiet = true\n");
  succeeds("train distilbert --config flat.toml");
}

}  // namespace
}  // namespace tern::program

// Malicious files: each gives one line that names the file, in bounded time and memory.

#include <thread>

#include "tern/data/images/image.h"
#include "tern/tests/program/hostile.h"

namespace tern::program {
namespace {

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
    const Result resumed = tern({"resume", step});
    EXPECT_EQ(resumed.status, 1) << resumed.err;
    EXPECT_TRUE(has(resumed.err, what)) << name;
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

TEST_F(HostileTest, OfficialSetsThatAreNot) {
  const Setting with_data{.in_child = [&] { setenv("TERN_DATA", folder_.c_str(), 1); }};
  const Words parts = "aclImdb/train/neg aclImdb/train/pos aclImdb/test/neg aclImdb/test/pos";
  for (const std::string& part : parts) write(part + "/0_1.txt", "");
  expect_error(tern("train distilbert --max-steps 1 --out other", with_data), 1, {"imdb: all 4 texts are empty"});
  for (const std::string& part : parts)
    for (int i = 1; i < 20; ++i) write(part + "/" + std::to_string(i) + "_1.txt", i % 2 ? "awful" : "great");
  const Result result = succeeds("train distilbert --max-steps 1 --out other", with_data);
  EXPECT_TRUE(has(result.err,
                  "imdb: not the published set: train/neg has 20 texts instead of 12500, train/pos has 20 "
                  "texts instead of 12500, test/neg has 20 texts instead of 12500, test/pos has 20 texts "
                  "instead of 12500, 4 texts are empty\n"));
}

/// Large images are processed one at a time: a whole group must not be held in memory.
TEST_F(HostileTest, ManyLargeImagesTakeTheMemoryOfFew) {
  constexpr int64_t kSide = 2500;  // 19 MB of pixels
  succeeds("train vit --data digits --max-steps 1 --out vit --quiet");
  data::write_png(file("0.png"), data::Image(kSide, kSide, 3));
  Words one = "predict vit 0.png", many = one;
  for (int i = 1; i < 8; ++i) {
    many.push_back(std::to_string(i) + ".png");
    fs::create_symlink("0.png", file(many.back()));
  }
  const Result few = tern(one), all = tern(many);
  EXPECT_EQ(all.status, 0) << all.err;
  EXPECT_EQ(all.out, repeated(8, few.out));
  test::expect_peak_below(all.peak_kib, few.peak_kib + (100 << 10), "8 images have 143 MiB of pixels");
  std::string names;
  for (size_t i = 2; i < many.size(); ++i) names += many[i] + "\n";
  const Result listed = tern("predict vit", names);
  EXPECT_EQ(listed.out, all.out);
  test::expect_peak_below(listed.peak_kib, few.peak_kib + (100 << 10));
}

TEST_F(HostileTest, AJpegHeaderThatClaimsMuch) {
  succeeds("train vit --data digits --max-steps 1 --out vit --quiet");
  std::string header("\xff\xd8\xff\xdb\0\x43\0", 7);
  header += std::string(64, '\1');
  header += std::string("\xff\xc0\0\x11\x08\x0a\xac\xff\xdc\3\1\x11\0\2\x11\0\3\x11\0", 19);  // 65500 x 2732
  header += std::string("\xff\xc4\0\x14\0\1", 6) + std::string(16, '\0');
  header += std::string("\xff\xda\0\x0c\3\1\0\2\0\3\0\0\x3f\0", 14) + std::string(100, '\0');
  write("claim.jpg", header);
  const Result result = tern("predict vit claim.jpg");
  expect_error(result, 1, {"claim.jpg: damaged JPEG image: 65500 x 2732 pixels do not fit into "});
  test::expect_peak_below(result.peak_kib, 400 << 10);
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

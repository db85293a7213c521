// ONNX files through the program: exported, described, used, trained on texts and images, continued after a stop.

#include "tern/tests/program/program.h"

namespace tern::program {
namespace {

class OnnxProgram : public ProgramTest {
 protected:
  /// The logits of answers in JSON lines.
  static std::vector<double> logits_of(const std::string& out) {
    std::vector<double> all;
    for (const Json& answer : json_lines(out))
      for (const Json& value : answer["logits"]) all.push_back(value.get<double>());
    return all;
  }
  static void expect_near(const std::string& got, const std::string& want) {
    const auto a = logits_of(got), b = logits_of(want);
    ASSERT_EQ(a.size(), b.size());
    ASSERT_FALSE(a.empty());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 2e-5 * (1 + std::abs(b[i]))) << i;
  }
};

const std::string kTexts = "{\"text\": \"the film was great\"}\n{\"text\": \"awful\"}\n{\"text\": \"a b c d e f g\"}\n";

TEST_F(OnnxProgram, AFileOfTextsIsUsedAsTheFolderThatItIsFrom) {
  succeeds("export curve --onnx m.onnx");
  const std::string want = succeeds("predict curve --jsonl", kTexts).out;
  // Without a tokenizer beside the file another folder has it.
  expect_error(tern("predict m.onnx --jsonl", kTexts), 1, {"no tokenizer here", "--tokenizer"});
  const std::string got = succeeds("predict m.onnx --jsonl --tokenizer curve", kTexts).out;
  expect_near(got, want);
  EXPECT_EQ(json_lines(got)[1]["label"], json_lines(want)[1]["label"]);  // the names are in the file
  for (const char* name : {"vocab.txt", "tokenizer_config.json"}) fs::copy(file("curve") / name, file(name));
  expect_near(succeeds("predict m.onnx --jsonl", kTexts).out, want);
  const Json own = answer("eval curve --json --quiet --data curve/data.csv");
  const Json of_file = answer("eval m.onnx --json --quiet --data curve/data.csv");
  EXPECT_EQ(of_file["accuracy"], own["accuracy"]);
  EXPECT_NEAR(of_file["loss"].get<double>(), own["loss"].get<double>(), 1e-5);
  EXPECT_TRUE(has(succeeds("info m.onnx").out, "input: input_ids"));
}

TEST_F(OnnxProgram, TextsAreTrainedOnAndARunGoesOn) {
  write("data.csv", easy_csv(60));
  fs::create_directory(file("given"));
  succeeds("export curve --onnx given/m.onnx");
  for (const char* name : {"vocab.txt", "tokenizer_config.json"}) fs::copy(file("curve") / name, file("given") / name);
  const std::string options =
      "--data data.csv --epochs 20 --lr 1e-2 --batch-size 8 --threads 1 --checkpoint-every 7 --quiet --seed 3";
  succeeds("train onnx --init given/m.onnx --out whole " + options);
  EXPECT_GE(answer("eval whole --json --quiet --data data.csv")["accuracy"].get<double>(), 0.9);
  EXPECT_EQ(answer("predict whole --jsonl", R"({"text": "a film that was great"})")["label"], "pos");
  const Json config = json("whole/config.json");
  EXPECT_EQ(config["model_type"], "onnx");
  EXPECT_TRUE(config["id2label"].is_object());
  // Stopped, its source gone, and continued: the same bytes.
  Process process(Words("train onnx --init given/m.onnx --out part " + options), folder_);
  ASSERT_TRUE(process.wait_until_it_handles(SIGTERM));
  for (int i = 0; i < 60'000 && !process.has_ended() && !exists("part/checkpoints/step-00000007"); ++i) usleep(2000);
  process.send(SIGTERM);
  EXPECT_EQ(process.finish().status, 143);
  fs::remove_all(file("given"));
  succeeds("resume part --quiet");
  EXPECT_EQ(read("part/model.onnx"), read("whole/model.onnx"));
  // A run's folder is a model to start from, for other labels too.
  write("three.csv", "label,text\nx,the film\ny,a film\nz,it was\nx,the film was\ny,a great film\nz,it was awful\n");
  const Result more =
      tern("train onnx --init whole --data three.csv --split all --epochs 1 --out three --freeze *embed* --threads 1");
  EXPECT_EQ(more.status, 0) << more.err;
  EXPECT_TRUE(has(more.err, "a new classification head for 3 labels"));
  EXPECT_EQ(json("three/config.json")["id2label"].size(), 3u);
  succeeds("export three --onnx out.onnx");
  EXPECT_EQ(read("out.onnx"), read("three/model.onnx"));
  expect_error(tern("export three --onnx out.onnx --opset 17"), 2, {"--opset", "keeps its opset"});
}

TEST_F(OnnxProgram, ImagesAreTrainedOn) {
  succeeds("train cnn --data digits --preset mobilenet_v3_small --max-steps 4 --out cnn --threads 1 --quiet");
  succeeds("export cnn --onnx m.onnx");
  const Json own = answer("eval cnn --json --quiet --data digits");
  const Json of_file = answer("eval m.onnx --json --quiet --data digits");
  EXPECT_EQ(of_file["accuracy"], own["accuracy"]);
  EXPECT_NEAR(of_file["loss"].get<double>(), own["loss"].get<double>(), 1e-4);
  succeeds(
      "train onnx --init m.onnx --data digits --lr 1e-3 --batch-size 32 --max-steps 30 --out run --threads 1 --quiet");
  EXPECT_GT(answer("eval run --json --quiet --data digits")["accuracy"].get<double>(), own["accuracy"].get<double>());
  EXPECT_EQ(json("run/preprocessor_config.json")["size"]["height"], 8);
  EXPECT_TRUE(has(succeeds("info run").out, "OnnxImageClassifier"));
}

TEST_F(OnnxProgram, WrongCommandsSayWhatIsMissing) {
  expect_error(tern("train onnx --data sentences"), 2, {"train onnx: --init is needed"});
  expect_error(tern("train onnx --init none.onnx --data sentences"), 1, {"none.onnx"});
  expect_error(tern("train bert --data sentences --tokenizer curve"), 2, {"--tokenizer requires --init"});
  write("m.onnx", "no model");
  expect_error(tern("predict m.onnx", "a\n"), 1, {"m.onnx"});
  succeeds("export curve --onnx t.onnx");
  expect_error(tern("train onnx --init t.onnx --data sentences --image-size 8"), 2, {"--image-size", "images"});
  expect_error(tern("train onnx --init t.onnx --data sentences --tokenizer curve --dropout 0.1 --out run"), 1,
               {"leave --dropout out"});
  EXPECT_FALSE(exists("run"));
}

}  // namespace
}  // namespace tern::program

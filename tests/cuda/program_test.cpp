// The program on a CUDA device: settings of its matrix products, and what a run leaves of them.

#include "tern/tests/program/program.h"
#include "tern/tests/cuda/device_test.h"

namespace tern::program {
namespace {

const std::string kModel = kGolden + "train_curve", kData = kModel + "/data.csv";

class CudaProgram : public ProgramTest {
 protected:
  void SetUp() override {
    if (!best_device().is_cuda()) GTEST_SKIP() << "gpu: no CUDA device";
  }
  /// The words of a training with these options.
  static std::vector<std::string> training(const std::string& out, const std::string& init,
                                           const std::string& options) {
    std::vector<std::string> words = {"train", "distilbert", "--out", out, "--init", init, "--data", kData};
    std::istringstream more("--device cuda --lr 1e-3 " + options);
    words.insert(words.end(), std::istream_iterator<std::string>(more), {});
    return words;
  }
  Result train(const std::string& out, const std::string& init, const std::string& options = "") const {
    const Result result = tern(training(out, init, "--batch-size 8 --max-steps 3 --dtype fp32 " + options));
    EXPECT_EQ(result.status, 0) << result.err;
    return result;
  }
  bool tuned(const std::string& run) const { return fs::exists(file(run + "/autotune.txt")); }
};

TEST_F(CudaProgram, ChoicesOfAutotuneStayWithTheRun) {
  const Result plain = train("plain", kModel);
  EXPECT_FALSE(tuned("plain"));
  const Result timed = train("tuned", kModel, "--autotune");
  ASSERT_TRUE(tuned("tuned"));
  const std::string choices = read_text(file("tuned/autotune.txt"));
  EXPECT_TRUE(choices.starts_with("gemm choices, cuBLASLt ")) << choices;
  EXPECT_EQ(timed.err.find("no effect"), std::string::npos) << timed.err;

  // A run that starts from it uses them, and passes them on, without timing.
  train("next", file("tuned").string());
  ASSERT_TRUE(tuned("next"));
  EXPECT_EQ(read_text(file("next/autotune.txt")), choices);
  const Result good = tern({"eval", "tuned", "--device", "cuda", "--tf32"});
  EXPECT_EQ(good.status, 0) << good.err;
  EXPECT_EQ(good.err.find("is not used as a whole"), std::string::npos) << good.err;
  EXPECT_EQ(good.err.find("no effect"), std::string::npos) << good.err;

  // What cannot be used is said, and the answer comes all the same.
  write("tuned/autotune.txt", "gemm choices, cuBLASLt 1.2.3\n");
  for (const std::string command : {"eval", "predict"}) {
    const Result other = tern({command, "tuned", "--device", "cuda"}, "a line\n");
    EXPECT_EQ(other.status, 0) << other.err;
    expect_contains(other.err, {"tuned/autotune.txt is not used as a whole: "});
  }
}

TEST_F(CudaProgram, KilledRunsGoOnWithTheSameBits) {
  const auto arguments = [](const std::string& out) {
    return training(out, kModel,
                    "--batch-size 2 --max-steps 14 --dtype fp16 --ema 0.9 --dropout 0.2 --resume auto "
                    "--checkpoint-every 3");
  };
  const Setting patient{.seconds = 300};
  ASSERT_EQ(tern(arguments("whole"), patient).status, 0);
  {
    Process process(arguments("cut"), folder_, patient);
    for (int i = 0; i < 3000 && !fs::exists(file("cut/checkpoints/step-00000006")); ++i) usleep(20'000);
    process.send(SIGKILL);
    EXPECT_EQ(process.finish().status, 1000 + SIGKILL);
  }
  const Result resumed = tern(arguments("cut"), patient);
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("resume: cut/checkpoints/step-"), std::string::npos) << resumed.err;
  EXPECT_TRUE(read_text(file("cut/model.safetensors")) == read_text(file("whole/model.safetensors")));
  std::vector<Json> losses[2];
  for (const bool cut : {false, true})
    for (const Json& line : json_lines(read_text(file(cut ? "cut/metrics.jsonl" : "whole/metrics.jsonl"))))
      if (line.contains("loss"))
        losses[cut].push_back({line["step"], line["loss"], line["loss_scale"], line["skipped"]});
  EXPECT_EQ(losses[0], losses[1]);
}

TEST_F(CudaProgram, ProfileWithDeviceTimes) {
  train("run", kModel, "--profile");
  const std::string table = read_text(file("run/profile.txt"));
  expect_contains(table, {"linear", "attention", "device"});
  EXPECT_TRUE(Json::parse(read_text(file("run/trace.json"))).contains("traceEvents"));
}

}  // namespace
}  // namespace tern::program

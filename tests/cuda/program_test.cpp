// The program on a CUDA device: settings of its matrix products, and what a run leaves of them.

#include "tern/tests/program/program.h"
#include "tern/tests/cuda/device_test.h"

namespace tern::program {
namespace {

class CudaProgram : public ProgramTest {
 protected:
  void SetUp() override {
    if (!best_device().is_cuda()) GTEST_SKIP() << "gpu: no CUDA device";
  }
  /// The words of a training with these options.
  static Words training(const std::string& out, const std::string& init, const std::string& options) {
    return "train distilbert --data curve/data.csv --device cuda --lr 1e-3 --out " + out + " --init " + init + " " +
           options;
  }
  Result train(const std::string& out, const std::string& init, const std::string& options = "") const {
    return succeeds(training(out, init, "--batch-size 8 --max-steps 3 --dtype fp32 " + options));
  }
};

TEST_F(CudaProgram, ChoicesOfAutotuneStayWithTheRun) {
  train("plain", "curve");
  EXPECT_FALSE(exists("plain/autotune.txt"));
  const Result timed = train("tuned", "curve", "--autotune");
  ASSERT_TRUE(exists("tuned/autotune.txt"));
  const std::string choices = read("tuned/autotune.txt");
  EXPECT_TRUE(choices.starts_with("gemm choices, cuBLASLt ")) << choices;
  EXPECT_FALSE(has(timed.err, "no effect"));

  // A run that starts from it uses them, and passes them on, without timing.
  train("next", "tuned");
  EXPECT_EQ(read("next/autotune.txt"), choices);
  const Result good = succeeds("eval tuned --device cuda --tf32");
  EXPECT_FALSE(has(good.err, "is not used as a whole"));
  EXPECT_FALSE(has(good.err, "no effect"));

  // What cannot be used is said, and the answer comes all the same.
  write("tuned/autotune.txt", "gemm choices, cuBLASLt 1.2.3\n");
  for (const std::string command : {"eval", "predict"})
    EXPECT_TRUE(
        has(succeeds(command + " tuned --device cuda", "a line\n").err, "tuned/autotune.txt is not used as a whole: "));
}

TEST_F(CudaProgram, KilledRunsGoOnWithTheSameBits) {
  const auto arguments = [](const std::string& out) {
    return training(out, "curve",
                    "--batch-size 2 --max-steps 14 --dtype fp16 --ema 0.9 --dropout 0.2 --resume auto "
                    "--checkpoint-every 3");
  };
  const Setting patient{.seconds = 300};
  succeeds(arguments("whole"), patient);
  {
    Process process(arguments("cut"), folder_, patient);
    for (int i = 0; i < 3000 && !exists("cut/checkpoints/step-00000006"); ++i) usleep(20'000);
    process.send(SIGKILL);
    EXPECT_EQ(process.finish().status, 1000 + SIGKILL);
  }
  EXPECT_TRUE(has(succeeds(arguments("cut"), patient).err, "resume: cut/checkpoints/step-"));
  EXPECT_TRUE(weights("cut") == weights("whole"));
  std::vector<Json> losses[2];
  for (const bool cut : {false, true})
    for (const Json& line : metrics(cut ? "cut" : "whole"))
      if (line.contains("loss"))
        losses[cut].push_back({line["step"], line["loss"], line["loss_scale"], line["skipped"]});
  EXPECT_EQ(losses[0], losses[1]);
}

TEST_F(CudaProgram, ResumedRunsTakeTheChoicesOfAutotune) {
  const Words arguments = training(
      "cut", "curve", "--batch-size 2 --max-steps 14 --dtype fp32 --autotune --resume auto --checkpoint-every 3");
  const Setting patient{.seconds = 300};
  {
    Process process(arguments, folder_, patient);
    for (int i = 0; i < 3000 && !exists("cut/checkpoints/step-00000006"); ++i) usleep(20'000);
    process.send(SIGKILL);
    EXPECT_EQ(process.finish().status, 1000 + SIGKILL);
  }
  ASSERT_FALSE(exists("cut/autotune.txt"));
  std::istringstream choices(read("cut/checkpoints/step-00000006/autotune.txt"));
  succeeds(arguments, patient);
  const std::string kept = read("cut/autotune.txt");
  int lines = 0;
  for (std::string line; std::getline(choices, line); ++lines) EXPECT_TRUE(has(kept, line + "\n")) << line;
  EXPECT_GT(lines, 1);
}

/// Sequences of other lengths in each batch, which its layers read on the host.
TEST_F(CudaProgram, RecurrentModelTrains) {
  const Setting patient{.input = "a line\n", .seconds = 300};
  succeeds("train lstm --data curve/data.csv --device cuda --batch-size 4 --max-steps 3 --dtype bf16 --out recurrent",
           patient);
  EXPECT_TRUE(has(succeeds("predict recurrent --device cuda", patient).out, "\n"));
}

#ifdef TERN_STANDIN

/// The program itself asks for one buffer size of cuBLAS, where the user does not ask for something else.
TEST_F(CudaProgram, RecurrentLayersAreCudnns) {
  const auto weights = [&](const std::string& out, std::function<void()> set) {
    const Setting setting{.in_child = std::move(set), .seconds = 300};
    succeeds("train lstm --data curve/data.csv --device cuda --batch-size 4 --max-steps 2 --dtype bf16 --out " + out,
             setting);
    return read(out + "/model.safetensors");
  };
  const std::string by_default = weights("unset", [] { unsetenv("CUBLAS_WORKSPACE_CONFIG"); });
  const std::string own = weights("two-sizes", [] { setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8:4096:2", 1); });
  EXPECT_FALSE(by_default == own) << "the stand-in keeps cells in fp64";
  EXPECT_TRUE(own == weights("without", [] { setenv("TERN_CUDNN", "/nowhere/libcudnn.so.9", 1); }));
}

#endif

TEST_F(CudaProgram, ProfileWithDeviceTimes) {
  train("run", "curve", "--profile");
  expect_contains(read("run/profile.txt"), {"linear", "attention", "device"});
  EXPECT_TRUE(json("run/trace.json").contains("traceEvents"));
}

}  // namespace
}  // namespace tern::program

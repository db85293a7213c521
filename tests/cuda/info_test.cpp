// The emulated program on machines where a part of CUDA is missing: the output of `tern info`, and that training ends
// with one line and status 1, or uses the CPU.

#include <cstdlib>
#include <map>

#include "tern/core/device/backend.h"
#include "tern/tests/program/program.h"

namespace tern::program {
namespace {

using Environment = std::map<std::string, std::string>;

Words training(const std::string& device) {
  return "train distilbert --data sentences --max-steps 1 --max-length 32 --out run --batch-tokens 64 --quiet "
         "--device " +
         device;
}

std::string line_of(const std::string& text, const std::string& start) {
  for (const std::string& line : lines_of(text))
    if (line.starts_with(start)) return line;
  ADD_FAILURE() << "no line starts with '" << start << "' in\n" << text;
  return "";
}

/// A machine, and words that the program must print about it.
struct Machine {
  std::string name;
  std::string variable, value;  // of the environment
  std::string info_line;        // the beginning of a line
  std::string info_words;       // words in that line
  std::string error_words;      // words in the error of training with --device cuda
};

const Machine kMachines[] = {
    {"NoDriver", "TERN_STANDIN_STATE", "no-driver", "CUDA driver: ", "none (there is no NVIDIA driver",
     "no NVIDIA driver; install one, or use --device cpu"},
    {"OldDriver", "TERN_STANDIN_STATE", "old-driver", "CUDA driver: ",
     "12.2 (the NVIDIA driver runs CUDA 12.2, this build needs CUDA 13.", "update the driver, or use --device cpu"},
    {"NoDevice", "TERN_STANDIN_DEVICES", "0", "CUDA driver: ", "(the driver sees no GPU",
     "the driver sees no GPU (is CUDA_VISIBLE_DEVICES set to hide it?)"},
    {"Busy", "TERN_STANDIN_STATE", "busy", "cuda:0: ", "cannot be used: the GPU is busy",
     "free it, or use --device cpu"},
    {"BusyDevice", "TERN_STANDIN_FAIL", "cudaFree:1:46", "cuda:0: ", "cannot be used: the GPU is busy",
     "free it, or use --device cpu"},
    {"OldDevice", "TERN_STANDIN_CAPABILITY", "7.5", "cuda:0: ", "cannot be used: stand-in has compute capability 7.5",
     "need 8.0 (Ampere) or newer"},
    {"OtherArchitecture", "TERN_STANDIN_CAPABILITY", "12.0", "cuda:0: ", "this build has kernels for 80-real,90a-real",
     "build with -DCMAKE_CUDA_ARCHITECTURES=120"},
};

class Program : public ProgramTest {
 protected:
  Result run(const Environment& environment, const Words& arguments) const {
    const auto set = [&] {
      for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    };
    return tern(arguments, {.in_child = set, .seconds = 120});
  }
  /// What `tern info` prints.
  std::string info(const Environment& environment) const {
    const Result r = run(environment, "info");
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(r.err, "");
    return r.out;
  }
  static void expect_one_line(const Result& r, const std::vector<std::string>& words) {
    expect_error(r, 1, words);
    EXPECT_EQ(lines_of(r.err).size(), 1u) << r.err;
  }
  void expect_refused(const Result& r, const std::vector<std::string>& words) const {
    expect_one_line(r, words);
    EXPECT_FALSE(exists("run")) << "a refused training leaves no folder";
  }
};

class OnMachine : public Program, public testing::WithParamInterface<Machine> {};

TEST_P(OnMachine, InfoSaysWhyThereIsNoDevice) {
  const Machine& machine = GetParam();
  const std::string text = info({{machine.variable, machine.value}});
  EXPECT_TRUE(has(line_of(text, machine.info_line), machine.info_words));
  EXPECT_EQ(line_of(text, "device: "), "device: cpu");
  line_of(text, "cuBLASLt: ");  // libraries are listed all the same
}

TEST_P(OnMachine, TrainingOnTheDeviceIsRefused) {
  const Machine& machine = GetParam();
  expect_refused(run({{machine.variable, machine.value}}, training("cuda")), {machine.error_words});
}

INSTANTIATE_TEST_SUITE_P(Machines, OnMachine, testing::ValuesIn(kMachines),
                         [](const auto& instance) { return instance.param.name; });

TEST_F(Program, InfoDescribesDevicesAndLibraries) {
  const std::string text = info({{"TERN_STANDIN_DEVICES", "2"}, {"TERN_STANDIN_MEMORY", "3G"}});
  EXPECT_EQ(line_of(text, "CUDA: "), "CUDA: runtime " + cuda::runtime_version() + ", kernels for 80-real,90a-real");
  EXPECT_EQ(line_of(text, "CUDA driver: "), "CUDA driver: " + cuda::runtime_version());
  for (const std::string device : {"cuda:0: ", "cuda:1: "})
    EXPECT_EQ(line_of(text, device), device + "stand-in, compute capability 9.0, 132 multiprocessors, 3.0 GiB");
  EXPECT_TRUE(has(line_of(text, "cuBLASLt: "), "libtern_standin.so"));
  for (const char* library : {"cuDNN: ", "NCCL: ", "CUPTI: "}) line_of(text, library);
  EXPECT_EQ(line_of(text, "device: "), "device: cuda:0");
}

TEST_F(Program, InfoSaysWhatTheLoaderSaidOfAMissingLibrary) {
  const std::string text = info({{"TERN_CUBLASLT", "/no/cublas.so"},
                                 {"TERN_CUDNN", "/no/cudnn.so"},
                                 {"TERN_NCCL", "/no/nccl.so"},
                                 {"TERN_CUPTI", "/no/cupti.so"}});
  for (const char* start : {"cuBLASLt: not found: /no/cublas.so: ", "cuDNN: not found: /no/cudnn.so: ",
                            "NCCL: not found: /no/nccl.so: ", "CUPTI: not found: /no/cupti.so: "})
    line_of(text, start);
}

TEST_F(Program, ADeviceNumberTooLargeIsRefused) {
  expect_refused(run({}, training("cuda:1")), {"this machine has 1 GPU, numbered from 0; use cuda:0"});
}

TEST_F(Program, WithoutADriverAutoTrainsOnTheCpu) {
  const Result r = run({{"TERN_STANDIN_STATE", "no-driver"}}, training("auto"));
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(exists("run/model.safetensors"));
}

TEST_F(Program, OutOfMemoryAtTheStartSaysWhatHoldsIt) {
  expect_one_line(run({{"TERN_STANDIN_MEMORY", "4M"}}, training("cuda")), {"out of memory"});
  EXPECT_FALSE(exists("run/model.safetensors"));
}

TEST_F(Program, AFailedDeviceIsNotALackOfMemory) {
  const Result r = run({{"TERN_STANDIN_FAIL", "cudaMalloc:3:719"}}, training("cuda"));
  expect_error(r, 1, {"cudaErrorLaunchFailure", "the GPU can no longer be used by this process"});
  EXPECT_FALSE(has(r.err, "out of memory"));
}

TEST_F(Program, AFailedDeviceEndsTheTrainingAndKeepsTheBestWeights) {
  std::string rows = "label,text\n";
  for (int i = 0; i < 10; ++i) rows += (i % 2 ? "pos,good film " : "neg,bad film ") + std::to_string(i) + "\n";
  write("rows.csv", rows);
  const Words train =
      "train distilbert --data rows.csv --max-length 16 --batch-tokens 256 --epochs 100 --device cuda --out run";
  // An epoch is one step, and the third step is the first replay.
  for (const char* failure : {"cudaGraphLaunch:2:700", "cudaLaunchKernel:500:700", "cudaMemcpyAsync:120:700"}) {
    SCOPED_TRACE(failure);
    fs::remove_all(file("run"));
    const Result r = run({{"TERN_STANDIN_FAIL", failure}}, train);
    expect_error(r, 1, {"cudaErrorIllegalAddress", "the GPU can no longer be used by this process"});
    EXPECT_TRUE(has(r.err, "the device failed; the weights of epoch "));
    EXPECT_FALSE(has(r.err, "could not be saved"));
    EXPECT_FALSE(succeeds("predict run --device cpu rows.csv", Setting{.seconds = 120}).out.empty());
  }
}

// --- devices that a build supports ---

TEST(Architectures, ServeDevices) {
  const std::map<std::string, std::vector<std::pair<int, int>>> served = {
      {"80-real", {{8, 0}, {8, 9}}}, {"100-real,120-real", {{12, 1}}},  // machine code: its major version
      {"90a-real", {{9, 0}}},        {"90a", {{9, 0}}},                 // a letter: one device
      {"80,90a-real", {{12, 0}}},    {"80-virtual", {{9, 0}}},          // intermediate code: what is newer
      {"native", {{8, 6}}}};
  const std::map<std::string, std::vector<std::pair<int, int>>> not_served = {
      {"86-real", {{8, 0}}}, {"80-real", {{9, 0}}},    {"120-real", {{10, 0}}}, {"90a", {{10, 0}}},
      {"100a", {{10, 3}}},   {"90-virtual", {{8, 9}}}, {"", {{9, 0}}}};
  for (const bool expected : {true, false})
    for (const auto& [built, devices] : expected ? served : not_served)
      for (const auto& [major, minor] : devices)
        EXPECT_EQ(cuda::architectures_serve(built, major, minor), expected) << built << " " << major << "." << minor;
}

}  // namespace
}  // namespace tern::program

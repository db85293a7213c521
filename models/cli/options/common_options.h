#pragma once
// The options that almost every command has.

#include <string>

#include "tern/core/device/device.h"
#include "tern/kernels/base/thread_pool.h"
#include "tern/models/cli/options/options.h"

namespace tern::cli {

inline constexpr const char* kCommon = "Common options";  // the heading of --help

/// What --help says of a model to load.
inline constexpr const char* kModelHelp =
    "model folder, a .onnx file, or the name of a model on Hugging Face's hub: ORG/NAME[@REVISION], fetched as 'tern "
    "fetch' does";
inline constexpr const char* kTokenizerHelp =
    "folder with the tokenizer (tokenizer.json or vocab.txt), or a name on the hub; default: the model's folder";

/// True for what --device accepts.
bool is_device_option(const std::string& text);

struct CommonOptions : Options {
  using Self = CommonOptions;
  std::string device =
      option(&Self::device, "auto", "--device", "where to compute:", Form{"auto, cpu or cuda[:N]", is_device_option},
             Compared::kAtResume, Heading{kCommon});
  int threads = option(&Self::threads, 0, "--threads", "CPU threads; 0: all cores this process may use",
                       Bounds{0, kernels::ThreadPool::kMaxThreads}, Compared::kNowhere, Heading{kCommon});
  uint64_t seed = option(&Self::seed, 42, "--seed", "seed of everything random", Heading{kCommon});
  // Read by merge_option_file(): the parser only has to know the flag.
  std::string config = option(&Self::config, "", "--config", "TOML file of options, named like the flags; flags win",
                              Compared::kNowhere, Heading{kCommon});
  bool quiet = option(&Self::quiet, false, "--quiet", "no progress and no log, only results and errors",
                      Compared::kNowhere, Heading{kCommon});
};

/// Those of the commands that compute with a model.
struct ModelOptions : CommonOptions {
  using Self = ModelOptions;
  bool tf32 = option(&Self::tf32, false, "--tf32",
                     "on CUDA: fp32 matrix products may round their inputs to TF32 (10 bits of mantissa), which is "
                     "faster; on the CPU they stay fp32",
                     Heading{kCommon});
};

/// Sets the number of threads and returns the device. Throws Error when the device cannot be used.
Device apply_common(const CommonOptions& options);

}  // namespace tern::cli

#include <chrono>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tern/core/device/backend.h"
#include "tern/core/io/file_kind.h"
#include "tern/core/io/state_file.h"
#include "tern/core/memory/allocator.h"
#include "tern/core/memory/stream.h"
#include "tern/data/files/text.h"
#include "tern/data/hub/hub.h"
#include "tern/dist/collectives/nccl.h"
#include "tern/dist/loop/world.h"
#include "tern/kernels/gemm.h"
#include "tern/models/cli/commands/commands.h"
#include "tern/models/cli/launch/process_end.h"
#include "tern/models/cli/options/common_options.h"
#include "tern/models/cli/options/train_help.h"
#include "tern/models/cli/run/run_folder.h"
#include "tern/models/cli/run/version.h"
#include "tern/models/onnx/onnx.h"
#include "tern/models/pretrained.h"
#include "tern/nn/nn.h"

namespace tern::cli {
namespace {

struct InfoOptions : CommonOptions {
  using Self = InfoOptions;
  std::string path = option(
      &Self::path, "", "path",
      "model folder or file, or the name of a model on Hugging Face's hub (ORG/NAME[@REVISION]); none: this machine");
};

std::string gib(int64_t bytes) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << static_cast<double>(bytes) / (1 << 30) << " GiB";
  return text.str();
}

/// What the build has for CUDA, and what of it this machine has, or why not. In a job only `rank_device`, this rank's
/// device, is tried.
void describe_cuda(bool in_job, Device rank_device) {
  if (!cuda::in_this_program()) {
    std::cout << "CUDA: not in this build (./tern --cuda builds it in)\n";
    return;
  }
  std::cout << "CUDA: runtime " << cuda::runtime_version() << ", kernels for " << cuda::built_architectures()
            << "\nCUDA driver: " << cuda::driver_version();
  const int devices = cuda::listed_device_count();
  if (devices == 0) std::cout << " (" << cuda::device_problem(0) << ")";
  std::cout << "\n";
  for (int i = 0; i < devices; ++i) {
    const cuda::DeviceProperties p = cuda::listed_device(i);
    const bool tried = !in_job || (rank_device.is_cuda() && rank_device.index == i);
    const std::string problem = tried ? cuda::device_problem(i) : "";
    std::cout << "cuda:" << i << ": ";
    if (!p.name.empty())
      std::cout << p.name << ", compute capability " << p.major << "." << p.minor << ", " << p.multiprocessors
                << " multiprocessors, " << gib(p.total_bytes) << (problem.empty() ? "" : "; ");
    std::cout << (problem.empty() ? "" : "cannot be used: " + problem) << "\n";
  }
  std::vector<kernels::cuda::LibraryInfo> libraries = cuda::libraries();
  libraries.push_back(dist::nccl::library());
  for (const kernels::cuda::LibraryInfo& library : libraries)
    std::cout << library.name << ": "
              << (library.found ? library.version + ", " + library.path : "not found: " + library.reason) << "\n";
}

void describe_machine(bool in_job, Device device) {
  const Json machine = machine_record();
  std::cout << version_text() << "\n";
  for (const auto& [name, value] : machine.items())
    std::cout << name << ": " << (value.is_string() ? value.get<std::string>() : value.dump()) << "\n";
  std::cout << "cpu_levels:";
  for (const auto level : {kernels::CpuLevel::kV2, kernels::CpuLevel::kV3, kernels::CpuLevel::kV4})
    if (kernels::has_cpu_level(level)) std::cout << " " << kernels::name_of(level);
  std::cout << "\navailable_memory_bytes: " << tern::detail::available_system_memory()
            << "\nmatrix library: " << kernels::gemm_library(current_stream(cpu))
            << "\nautocast dtype: " << autocast_dtype(cpu) << "\n";
  describe_cuda(in_job, device);
  std::cout << "device: " << (in_job ? device : best_device()) << "\n";
}

void describe_file(const std::string& path) {
  const std::string extension = data::lower_ascii(std::filesystem::path(path).extension().string());
  for (const char* data : {".csv", ".tsv", ".jsonl"})
    TERN_CHECK(extension != data || !tern::detail::name_exists(path), path, ": a file of data; info describes folders ",
               "of models and files of weights. 'tern train MODEL --data ", path, "' reads it");
  const StateFile file = load_state_file(path, {.whole = true});
  std::cout << "format: " << file.format << "\n";
  const char* other = file.format == "safetensors" ? "metadata " : "";
  for (const auto& [key, value] : file.other_entries)
    std::cout << other << (key.empty() ? "value" : tern::detail::printable(key)) << ": "
              << tern::detail::printable(value, 1000) << "\n";
  int64_t elements = 0, bytes = 0;
  for (const NamedTensor& entry : file.tensors) {
    const auto stored = file.widened.find(entry.name);
    std::cout << tern::detail::printable(entry.name, 1000) << "  " << entry.tensor.dtype() << "  "
              << entry.tensor.shape() << "  " << entry.tensor.nbytes() << " bytes"
              << (stored == file.widened.end() ? "" : "  (" + stored->second + " in the file)") << "\n";
    elements += entry.tensor.numel();
    bytes += entry.tensor.nbytes();
  }
  for (const UnreadableTensor& entry : file.unreadable)
    std::cout << tern::detail::printable(entry.name, 1000) << "  cannot be read: " << entry.reason << "\n";
  std::cout << file.tensors.size() << " tensors, " << elements << " elements, " << bytes << " bytes\n";
  const StateFile weights = load_state_file(path);
  if (!weights.container.empty() || !weights.prefix.empty())
    std::cout << "a model's weights: " << weights.tensors.size() << " tensors"
              << (weights.container.empty() ? "" : " under " + tern::detail::printable(weights.container))
              << (weights.prefix.empty() ? "" : ", without the prefix " + weights.prefix) << "\n";
  for (const std::string& name : weights.other_containers)
    std::cout << "other weights: " << path << ":" << tern::detail::printable(name) << "\n";
}

void describe_world(dist::World& world, const dist::Launch& launch, Device device) {
  Tensor x = ones({1 << 20}, {.device = device});
  double seconds = 0;
  for (int i = 0; i < 3; ++i) {  // the first also opens connections
    world.group()->barrier();
    const auto start = std::chrono::steady_clock::now();
    world.group()->all_reduce(x, dist::ReduceOp::kMean);
    synchronize(device);
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  TERN_CHECK(x.slice(0, 0, 1).item<double>() == 1, "the ranks' reduction gave a wrong value");
  std::cout << "job: " << launch.size << " ranks by " << launch.name << ", over " << world.transport()
            << "; an all-reduce of 4 MiB takes " << std::setprecision(3) << seconds * 1e3 << " ms\n";
  if (const std::string notice = world.notice(); !notice.empty()) std::cout << "note: " << notice << "\n";
  world.finish();
}

/// Started as one of several: connects them, lets them reduce a tensor, and prints the transport and the speed. The
/// result is the exit status.
int describe_job(const dist::Launch& launch, Device device) {
  dist::World world(launch, device, {.group = dist::with_environment({}), .facts = version_text()});
  try {
    describe_world(world, launch, device);
    return 0;
  } catch (...) {
    return report_failure();
  }
}

/// A model in ONNX's format.
void describe_onnx(const std::string& path) {
  const onnx::Description d = onnx::describe(path);
  std::cout << "format: ONNX, IR version " << d.ir_version << "\n";
  for (const auto& [domain, version] : d.opsets)
    std::cout << "opset: " << (domain.empty() ? "" : tern::detail::printable(domain) + " ") << version << "\n";
  for (const auto& [key, value] : d.metadata)
    std::cout << "metadata " << tern::detail::printable(key) << ": " << tern::detail::printable(value, 1000) << "\n";
  const auto list = [](const char* kind, const std::vector<onnx::ValueInfo>& values) {
    for (const onnx::ValueInfo& value : values) {
      std::cout << kind << ": " << tern::detail::printable(value.name) << "  " << value.type << "  [";
      for (size_t i = 0; i < value.shape.size(); ++i) {
        const onnx::Dimension& dim = value.shape[i];
        const std::string name = dim.name.empty() ? "?" : tern::detail::printable(dim.name);
        std::cout << (i == 0 ? "" : ", ") << (dim.size >= 0 ? std::to_string(dim.size) : name);
      }
      std::cout << (value.has_shape ? "]\n" : "...]\n");
    }
  };
  list("input", d.inputs);
  list("output", d.outputs);
  int64_t nodes = 0;
  for (const auto& [op, count] : d.ops) nodes += count;
  std::cout << "nodes: " << nodes << "\n";
  for (const auto& [op, count] : d.ops) std::cout << "  " << tern::detail::printable(op) << "  " << count << "\n";
  std::cout << "parameters: " << d.parameters << " elements; all initializers: " << d.bytes << " bytes\n";
  if (d.flops >= 0) std::cout << "floating-point operations of one call: " << d.flops << "\n";
  for (const std::string& what : d.unsupported)
    std::cout << "not supported: " << tern::detail::printable(what, 1000) << "\n";
  std::cout << (d.unsupported.empty() ? "every node is supported\n" : "");
}

int info(const InfoOptions& a) {
  const Device device = apply_common(a);
  std::error_code error;
  const auto log = [&](const std::string& line) {
    if (!a.quiet) std::cerr << line << "\n";
  };
  const std::string path = data::local_model(a.path, data::HubUse::kModel, log);
  if (path.empty()) {
    const dist::Launch launch = dist::detect_launch();
    describe_machine(launch.is_parallel(), device);
    if (launch.is_parallel()) return describe_job(launch, device);
  } else if (std::filesystem::is_directory(path, error)) {
    const auto model = models::load_pretrained<models::Model>(path, {.log = log});
    std::cout << model->config_json() << nn::summary(*model);
  } else if (data::lower_ascii(std::filesystem::path(path).extension().string()) == ".onnx") {
    describe_onnx(path);
  } else {
    describe_file(path);
  }
  return 0;
}

}  // namespace

Command info_command() {
  const auto options = std::make_shared<InfoOptions>();
  return {"info",
          "this machine, a model folder, or a file of weights (safetensors, PyTorch's or NumPy's) or an ONNX model",
          "Example: tern info " + example_run(), options, [options] { return info(*options); }};
}

}  // namespace tern::cli

#include <filesystem>
#include <iostream>

#include "tern/core/allocator.h"
#include "tern/core/io/safetensors.h"
#include "tern/kernels/gemm.h"
#include "tern/models/cli/commands.h"
#include "tern/models/cli/run_folder.h"
#include "tern/models/cli/version.h"
#include "tern/models/text/text_classifier.h"

namespace tern::cli {
namespace {

struct InfoArguments {
  std::string path;
  CommonOptions common;
};

void describe_machine() {
  const Json machine = machine_record();
  std::cout << version_text() << "\n";
  for (const auto& [name, value] : machine.items())
    std::cout << name << ": " << (value.is_string() ? value.get<std::string>() : value.dump()) << "\n";
  std::cout << "cpu_levels:";
  for (const auto level : {kernels::CpuLevel::kV2, kernels::CpuLevel::kV3, kernels::CpuLevel::kV4})
    if (kernels::has_cpu_level(level)) std::cout << " " << kernels::name_of(level);
  std::cout << "\navailable_memory_bytes: " << available_system_memory()
            << "\nmatrix library: " << kernels::gemm_library(current_stream(cpu))
            << "\nautocast dtype: " << autocast_dtype(cpu) << "\nCUDA: not in this build\ndevice: " << best_device()
            << "\n";
}

void describe_file(const std::string& path) {
  const SafetensorsFile file = load_safetensors(path);
  int64_t elements = 0, bytes = 0;
  for (const auto& [key, value] : file.metadata) std::cout << "metadata " << key << ": " << value << "\n";
  for (const NamedTensor& entry : file.tensors) {
    std::cout << entry.name << "  " << entry.tensor.dtype() << "  " << entry.tensor.shape() << "\n";
    elements += entry.tensor.numel();
    bytes += entry.tensor.nbytes();
  }
  std::cout << file.tensors.size() << " tensors, " << elements << " elements, " << bytes << " bytes\n";
}

int info(const InfoArguments& a) {
  apply_common(a.common);
  if (a.path.empty()) {
    describe_machine();
  } else if (std::filesystem::is_directory(a.path)) {
    const auto model = models::DistilBert::from_pretrained(a.path);
    std::cout << model->config().to_json() << nn::summary(*model);
  } else {
    describe_file(a.path);
  }
  return 0;
}

}  // namespace

Command add_info(CLI::App& app) {
  CLI::App* c = app.add_subcommand("info", "this machine, a model folder or a .safetensors file");
  auto a = std::make_shared<InfoArguments>();
  c->add_option("path", a->path, "model folder or file; none: this machine");
  add_common(*c, a->common);
  c->footer("Example: tern info runs/distilbert-20250131-120000");
  return [a] { return info(*a); };
}

}  // namespace tern::cli

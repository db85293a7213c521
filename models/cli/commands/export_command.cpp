#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "tern/core/io/atomic_file.h"
#include "tern/data/hub/hub.h"
#include "tern/models/cli/commands/commands.h"
#include "tern/models/cli/options/common_options.h"
#include "tern/models/cli/options/option_record.h"
#include "tern/models/cli/options/train_help.h"
#include "tern/models/cli/run/run_folder.h"
#include "tern/models/image/image_pipeline.h"
#include "tern/models/model_graph.h"
#include "tern/models/onnx/classifiers/files.h"
#include "tern/models/onnx/classifiers/onnx_models.h"
#include "tern/models/onnx/export.h"
#include "tern/models/pretrained.h"

namespace tern::cli {
namespace {

struct ExportOptions : CommonOptions {
  using Self = ExportOptions;
  std::string dir = option(&Self::dir, "", "dir", kModelHelp, Required{});
  std::string onnx = option(&Self::onnx, "", "--onnx", "file to write in ONNX's format");
  int64_t opset =
      option(&Self::opset, onnx::SaveOptions().opset, "--opset",
             "version of ONNX's operators: from 20 on GELU is one node, from 23 on attention too", Bounds{17, 23});
  std::string svg = option(&Self::svg, "", "--svg", "file to draw the graph into");
  std::string dot = option(&Self::dot, "", "--dot", "file to write the graph into, for Graphviz");
  bool text = option(&Self::text, false, "--text", "print the graph");
};

std::string shape_text(const Graph& graph, const Graph::Value& value) {
  std::string text;
  for (const SymbolicSize& size : value.shape) text += (text.empty() ? "" : ", ") + size.str(graph.symbols());
  return tern::detail::concatenate(value.name, " ", value.dtype, " [", text, "]");
}

/// How images are prepared, which a run's folder says beside the model.
std::map<std::string, std::string> image_metadata(const models::Model& model, const std::string& dir) {
  const auto* const image = dynamic_cast<const models::ImageClassifier*>(&model);
  if (image == nullptr) return {};
  return {{"preprocessor_config", models::ImagePreprocessing::from_folder(dir, image->input()).to_json()}};
}

/// What predict, eval and train read again of the file (models/onnx/classifiers/files.h).
std::map<std::string, std::string> metadata_of(const models::Model& model, const std::string& dir) {
  std::map<std::string, std::string> metadata = image_metadata(model, dir);
  metadata.merge(models::onnx_metadata(model.labels(), model.label_kind()));
  if (const auto* const text = dynamic_cast<const models::TextModel*>(&model)) {
    metadata["max_position_embeddings"] = std::to_string(text->max_positions());
    metadata["vocab_size"] = std::to_string(text->vocab_size());
  }
  return metadata;
}

int export_model(const ExportOptions& a) {
  if (a.onnx.empty() && a.svg.empty() && a.dot.empty() && !a.text)
    throw UsageError("export: nothing to write; give --onnx FILE, --svg FILE, --dot FILE or --text");
  const Device device = apply_common(a);
  const auto log = [&](const std::string& line) {
    if (!a.quiet) std::cerr << line << "\n";
  };
  const std::string dir = data::local_model(a.dir, data::HubUse::kModel, log);
  const auto model = models::load_pretrained<models::Model>(dir, {.device = device, .log = log});
  model->eval();
  if (models::is_onnx_model(*model) && a.given("--opset"))
    throw UsageError("export: --opset: " + dir + " is in ONNX's format already and keeps its opset");
  const bool saved = !a.onnx.empty() && models::save_onnx_file(*model, a.onnx, image_metadata(*model, dir));
  if (saved && a.svg.empty() && a.dot.empty() && !a.text) return 0;
  Graph graph = models::graph_of(*model);
  if (a.text) std::cout << graph;
  if (!a.svg.empty()) write_atomically(a.svg, graph.svg());
  if (!a.dot.empty()) write_atomically(a.dot, graph.dot());
  if (a.onnx.empty() || saved) return 0;
  onnx::save(graph, a.onnx, {.opset = a.opset, .metadata = metadata_of(*model, dir)});
  const auto list = [&](const std::vector<int>& values) {
    std::string text;
    for (const int v : values)
      text += (text.empty() ? "" : ", ") + shape_text(graph, graph.values()[static_cast<size_t>(v)]);
    return text;
  };
  std::cout << a.onnx << ": opset " << a.opset << ", " << list(graph.inputs()) << " -> " << list(graph.outputs())
            << "\n";
  return 0;
}

}  // namespace

Command export_command() {
  const auto options = std::make_shared<ExportOptions>();
  return {"export", "a trained folder as an ONNX file, or its graph as text or a drawing",
          "Example: tern export " + example_run() + " --onnx model.onnx", options,
          [options] { return export_model(*options); }};
}

}  // namespace tern::cli

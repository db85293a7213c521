// A loaded model's head, its file, and what describe() says of a file.

#include <cmath>
#include <filesystem>
#include <set>
#include <unordered_map>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/profiler/profiler.h"
#include "tern/core/tensor/tensor_impl.h"
#include "tern/kernels/base/check.h"
#include "tern/models/onnx/ops/layers.h"
#include "tern/models/onnx/state.h"

namespace tern::onnx {
namespace {

/// The weight that a place is read from, or null.
Weight* weight_at(const detail::ModelState& state, int place) {
  for (const Source& source : state.program->sources)
    if (source.place == place && source.handle)
      for (const auto& weight : state.weights)
        if (weight->handle == source.handle) return weight.get();
  return nullptr;
}

const Step* step_that_gives(const Program& program, int place) {
  for (const Step& step : program.steps)
    for (const int output : step.outputs)
      if (output == place && place >= 0) return &step;
  return nullptr;
}

/// The last layer: its weight [out, in] or [in, out], of a convolution [out, in, kernel...], and its bias.
struct Head {
  Weight* weight = nullptr;
  Weight* bias = nullptr;
  bool rows_are_classes = false;
};

/// The last of the layers that a step computes (ops/layers.h).
Head head_of_layers(const detail::ModelState& state, const Step& step) {
  if (step.node->attributes.contains("epsilon")) return {};  // a norm comes behind it
  Head head;
  size_t next = 1;
  for (const int64_t flags : step.node->attributes.at("layers").ints) {
    head = {.weight = weight_at(state, step.inputs[next++]), .rows_are_classes = (flags & kByOutputs) != 0};
    if ((flags & kHasBias) != 0) head.bias = weight_at(state, step.inputs[next++]);
    if ((flags & (kHasRelu | kHasGelu)) != 0) head = {};
  }
  return head;
}

/// From an output back through nodes that keep classes apart.
Head find_head(const detail::ModelState& state, size_t output) {
  static const std::set<std::string> passed = {"Add",     "Identity", "Softmax",           "LogSoftmax",  "Sigmoid",
                                               "Reshape", "Flatten",  "Squeeze",           "Cast",        "Unsqueeze",
                                               "Relu",    "Dropout",  "GlobalAveragePool", "AveragePool", "ReduceMean"};
  const Program& program = *state.program;
  int place = program.outputs.size() <= output ? -1 : program.outputs[output];
  Head head;
  for (int i = 0; i < 32; ++i) {
    const Step* step = step_that_gives(program, place);
    if (step == nullptr) return {};
    const std::string& op = step->node->op;
    if (step->memory && step->node->attributes.contains("layers")) return head_of_layers(state, *step);
    if (op == "MatMul" || op == "Gemm") {
      const auto transposed = step->node->attributes.find("transB");
      head.rows_are_classes = transposed != step->node->attributes.end() && transposed->second.i != 0;
      head.weight = weight_at(state, step->inputs[1]);
      if (const Step* before = step_that_gives(program, step->inputs[1]);
          head.weight == nullptr && before != nullptr && before->node->op == "Transpose") {
        head.weight = weight_at(state, before->inputs[0]);
        head.rows_are_classes = !head.rows_are_classes;
      }
      if (op == "Gemm" && step->inputs.size() > 2) head.bias = weight_at(state, step->inputs[2]);
      return head;
    }
    if (op == "Conv") {
      const auto groups = step->node->attributes.find("group");
      const bool adds = step->inputs.size() > 3 && step->inputs[3] >= 0;  // what a fused step adds to the result
      if (adds || (groups != step->node->attributes.end() && groups->second.i != 1)) return {};
      head = {.weight = weight_at(state, step->inputs[1]), .rows_are_classes = true};
      if (step->inputs.size() > 2) head.bias = weight_at(state, step->inputs[2]);
      return head;
    }
    if (!passed.contains(op)) return {};
    place = step->inputs[0];
    if (op != "Add") continue;
    Weight* const second = weight_at(state, step->inputs[1]);
    head.bias = second != nullptr ? second : weight_at(state, step->inputs[0]);
    if (second == nullptr) place = step->inputs[1];
  }
  return {};
}

/// New elements for a parameter, uniform in [-bound, bound].
void renew(Weight& weight, const Shape& shape, double bound, Generator& generator) {
  NoGrad off;
  const Tensor& member = *weight.handle;
  const Tensor fresh =
      (rand(shape, generator, {.dtype = float32}) * (2 * bound) - bound).to(member.dtype()).to(member.device());
  tern::detail::TensorImpl& to = *member.impl();
  const tern::detail::TensorImpl& from = *fresh.impl();
  Tensor(member).set_grad({});
  to.storage = from.storage;
  to.offset = from.offset;
  to.shape = from.shape;
  to.strides = from.strides;
  to.contiguous = from.contiguous;
}

}  // namespace

std::string replace_head(detail::ModelState& state, int64_t classes, Generator& generator, size_t output) {
  TERN_CHECK(classes > 0 && classes < (int64_t{1} << 31), "onnx: a head for ", classes, " classes");
  const Head head = find_head(state, output);
  TERN_CHECK(head.weight != nullptr && head.weight->is_parameter && head.weight->handle->dim() >= 2,
             "onnx: the model does not end in a Gemm, MatMul or Conv whose weight is a parameter: its head cannot be "
             "replaced");
  const Tensor& old = *head.weight->handle;
  const int of_classes = head.rows_are_classes ? 0 : old.dim() - 1;
  const int64_t before = old.size(of_classes), inputs = old.numel() / std::max<int64_t>(1, before);
  const double bound = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, inputs)));
  renew(*head.weight, old.shape().with(of_classes, classes), bound, generator);
  if (head.bias != nullptr && head.bias->handle->numel() == before) {
    const Shape shape = head.bias->handle->shape();
    renew(*head.bias, shape.with(shape.dims() - 1, classes), bound, generator);
  }
  ValueInfo& info = state.outputs[output];
  // The classes are the last dimension, or the channels of an image.
  for (const size_t d : {info.shape.size() - 1, size_t{1}})
    if (d < info.shape.size() && info.shape[d].size == before) {
      info.shape[d].size = classes;
      break;
    }
  state.has_new_head = true;
  return head.weight->name;
}

namespace {

/// The data of a model is named after it, so that two models in a folder have each their own. A model that is written
/// where it came from keeps its names. Throws Error where the model would be written over data that it came with.
std::map<std::string, std::string> data_names(const detail::ModelState& state, const std::string& path) {
  namespace fs = std::filesystem;
  const auto same = [](const fs::path& a, const fs::path& b) {
    return fs::weakly_canonical(fs::absolute(a)) == fs::weakly_canonical(fs::absolute(b));
  };
  std::map<std::string, std::string> names;
  if (same(state.path, path)) return names;
  for (const auto& [name, file] : state.definition.files) {
    if (name.empty()) continue;
    TERN_CHECK(!same(fs::path(state.path).parent_path() / name, path), "onnx: cannot save ", path,
               ": it is where the data of ", state.path, " is");
    const std::string number = names.empty() ? "" : std::to_string(names.size() + 1);
    names[name] = fs::path(path).filename().string() + ".data" + number;
  }
  return names;
}

}  // namespace

void save(const detail::ModelState& state, const std::string& path,
          const std::map<std::string, std::string>& metadata) {
  const auto& files = state.definition.files;
  for (const auto& [name, file] : files)
    TERN_CHECK(!file->has_changed(), "onnx: cannot save ", path, ": ", state.path,
               name.empty() ? ", from which the model was loaded," : ": its data '" + name + "'",
               " has changed since it was loaded");
  std::vector<SavedTensor> tensors;
  bool in_place = !state.has_new_head;
  std::set<std::pair<std::string, int64_t>> places;
  for (const auto& weight : state.weights) {
    SavedTensor saved{.name = weight->name,
                      .source = weight->source,
                      .place = weight->place,
                      .element = weight->element,
                      .tensor = *weight->handle,
                      .is_new = weight->is_restored || weight->name != weight->source,
                      .inputs = weight->inputs};
    in_place = in_place && !saved.is_new && saved.place.offset >= 0;
    if (!saved.is_new)
      TERN_CHECK(saved.place.offset < 0 || places.emplace(saved.place.file, saved.place.offset).second,
                 "onnx: cannot save ", path, ": '", saved.name, "' is part of a function that is called several times");
    tensors.push_back(std::move(saved));
  }
  FileChanges changes{.data_files = data_names(state, path), .left_out = state.left_out};
  for (const auto& [key, value] : metadata) {
    const auto before = state.definition.metadata.find(key);
    if (before == state.definition.metadata.end() || before->second != value) changes.metadata[key] = value;
  }
  patch_external_files(files, path, tensors, changes);  // first: a model is useless without its data
  if (in_place && !changes.any())
    patch_file_of(*files.at(""), path, tensors);
  else
    rewrite_file(*files.at(""), path, tensors, changes);
}

std::string Model::replace_head(int64_t classes) { return onnx::replace_head(*state_, classes, generator()); }

void Model::save(const std::string& path) const { onnx::save(*state_, path, {}); }

namespace {

void count_ops(const GraphDef& graph, std::map<std::string, int64_t>& ops) {
  for (const auto& node : graph.nodes) {
    ++ops[node->domain.empty() ? node->op : node->domain + "." + node->op];
    for (const auto& [name, attribute] : node->attributes)
      if (attribute.graph) count_ops(*attribute.graph, ops);
  }
}

/// Of one call with zeros.
int64_t count_operations(const std::string& path, const std::vector<ValueInfo>& inputs) {
  try {
    const auto model = load(path, {.fuse = false});
    std::vector<std::vector<Tensor>> zeros_of;
    int64_t elements = 0;
    for (const ValueInfo& info : inputs) {
      if (!info.is_tensor || !info.has_shape) return -1;
      std::vector<int64_t> sizes;
      for (const Dimension& dimension : info.shape) sizes.push_back(dimension.size < 0 ? 1 : dimension.size);
      const Shape shape(sizes);
      elements += shape.numel();
      if (elements > (int64_t{1} << 28)) return -1;
      zeros_of.push_back({zeros(shape, {.dtype = info.dtype})});
    }
    NoGrad off;
    Profiler profiler;
    model->forward_lists(zeros_of);
    double flops = 0;
    for (const ProfileRow& row : profiler.stop().rows()) flops += row.flops;
    return static_cast<int64_t>(flops);
  } catch (const Error&) {
    return -1;
  }
}

}  // namespace

Description describe(const std::string& path) {
  Description result;
  const auto state = read_state(path, {}, result.unsupported);
  const ModelDef& model = state->definition;
  result.ir_version = model.ir_version;
  result.opsets = model.opsets;
  result.metadata = model.metadata;
  result.inputs = state->inputs;
  result.outputs = state->outputs;
  count_ops(model.graph, result.ops);
  for (const auto& weight : state->weights)
    if (weight->is_parameter && !weight->is_restored) result.parameters += weight->initial.numel();
  for (const auto& initializer : model.graph.initializers) result.bytes += initializer->bytes;
  if (result.unsupported.empty()) result.flops = count_operations(path, result.inputs);
  return result;
}

}  // namespace tern::onnx

// The C API's models: made, run, saved.

#include "tern/models/c_api/model.h"

#include <algorithm>
#include <cmath>

#include "tern/core/autograd/autocast.h"
#include "tern/core/io/safetensors.h"
#include "tern/data/samples/token_batch.h"
#include "tern/models/c_api/ops.h"
#include "tern/models/families.h"
#include "tern/models/model_graph.h"
#include "tern/models/onnx/export.h"

namespace tern::models::c_api {
namespace {

constexpr int64_t kMostLabels = int64_t{1} << 24;  // of which the names are made here

bool ends_in_onnx(const std::string& path) { return path.ends_with(".onnx"); }

std::vector<std::string> labels_of(const tern_model_options& options) {
  require(options.label_count >= 0 && options.label_count <= kMostLabels,
          "tern_model_options.label_count: expected 0 to ", kMostLabels, ", got ", options.label_count);
  std::vector<std::string> labels;
  for (int64_t i = 0; i < options.label_count; ++i)
    labels.push_back(options.labels == nullptr ? std::to_string(i)
                                               : text_of(options.labels[i], "tern_model_options.labels"));
  return labels;
}

BuildOptions build_options(const tern_model_options& options) {
  BuildOptions chosen{.device = device_named(options.device),
                      .generator = Generator(options.seed),
                      .labels = labels_of(options),
                      .max_length = options.max_length,
                      .image_size = options.image_size,
                      .allow_new_head = flag_of(options.new_head, "tern_model_options.new_head")};
  if (options.dtype != TERN_DTYPE_DEFAULT) chosen.dtype = dtype_of_code(options.dtype);
  if (flag_of(options.has_dropout, "tern_model_options.has_dropout")) chosen.dropout = options.dropout;
  require(!chosen.dropout || (*chosen.dropout >= 0 && *chosen.dropout < 1),
          "tern_model_options.dropout: expected a number in [0, 1), got ", options.dropout);
  require(options.image_size >= 0, "tern_model_options.image_size is ", options.image_size);
  require(options.max_length >= 0, "tern_model_options.max_length is ", options.max_length);
  return chosen;
}

void refuse_onnx_options(const tern_model_options& options) {
  require(options.train_inference_nodes == 0 && options.no_fusion == 0,
          "tern_model_options.train_inference_nodes and no_fusion are for ONNX files");
}

std::unique_ptr<ModelHandle> handle_of(std::unique_ptr<nn::Module> module, const Generator& generator) {
  auto shared = std::make_shared<SharedModel>();
  shared->generator = generator;
  shared->outputs = {"logits"};
  shared->required = 1;
  if ((shared->graph = dynamic_cast<onnx::Model*>(module.get()))) {
    shared->required = 0;
    shared->outputs.clear();
    for (const onnx::ValueInfo& input : shared->graph->inputs()) shared->inputs.push_back(input.name);
    for (const onnx::ValueInfo& output : shared->graph->outputs()) shared->outputs.push_back(output.name);
  } else if ((shared->texts = dynamic_cast<const SequenceClassifier*>(module.get()))) {
    shared->inputs = {"input_ids", "attention_mask"};
    if (shared->texts->token_types() > 1) shared->inputs.emplace_back("token_type_ids");
  } else if ((shared->images = dynamic_cast<const ImageClassifier*>(module.get()))) {
    shared->inputs = {"pixel_values"};
  } else if ((shared->layers = dynamic_cast<const Perceptron*>(module.get()))) {
    shared->inputs = {"x"};
    shared->outputs = {"y"};
  } else {
    fail(module->type_name(), " is no model of texts or images");
  }
  module->eval();
  shared->module = std::move(module);
  auto handle = std::make_unique<ModelHandle>();
  handle->model = std::move(shared);
  return handle;
}

std::unique_ptr<ModelHandle> loaded(const std::string& path, const tern_model_options& options) {
  BuildOptions chosen = build_options(options);
  if (!ends_in_onnx(path)) {
    refuse_onnx_options(options);
    return handle_of(load_by_family(path, chosen), chosen.generator);
  }
  require(
      options.dtype == TERN_DTYPE_DEFAULT || chosen.dtype == float32,
      "tern_model_options.dtype: an ONNX file has the types of its own; tern_model_set_autocast computes in bfloat16");
  require(options.label_count == 0 && options.new_head == 0,
          "tern_model_options.labels and new_head are not for ONNX files: use tern_model_replace_head");
  require(options.has_dropout == 0 && options.image_size == 0 && options.max_length == 0,
          "tern_model_options.dropout, image_size and max_length are not for ONNX files");
  const bool trains = flag_of(options.train_inference_nodes, "tern_model_options.train_inference_nodes");
  auto model = onnx::load(path, {.device = chosen.device,
                                 .generator = chosen.generator,
                                 .train_inference_nodes = trains,
                                 .fuse = !flag_of(options.no_fusion, "tern_model_options.no_fusion")});
  return handle_of(std::move(model), chosen.generator);
}

/// The place of an input or output by its name.
size_t place_of(const std::vector<std::string>& names, const char* name, const char* what) {
  const auto found = std::find(names.begin(), names.end(), text_of(name, what));
  if (found != names.end()) return static_cast<size_t>(found - names.begin());
  std::string known;
  for (const std::string& other : names) known += (known.empty() ? "'" : ", '") + other + "'";
  refuse(TERN_ERROR_ARGUMENT, what, ": the model has no '", name, "', but ", known);
}

const std::string& name_at(const std::vector<std::string>& names, int32_t index, const char* what) {
  require(index >= 0 && index < static_cast<int32_t>(names.size()), "index ", index, ": the model has ", names.size(),
          " ", what);
  return names[static_cast<size_t>(index)];
}

/// The graph of a model that was read from an ONNX file, with the dimensions that may vary in the file.
Graph graph_of_file(const SharedModel& model, const std::vector<Tensor>& examples) {
  const std::vector<onnx::ValueInfo>& inputs = model.graph->inputs();
  require(examples.size() == inputs.size(), "inputs: examples of all ", inputs.size(),
          " inputs of the file are needed to export it, got ", examples.size());
  TraceOptions options{.names = model.module->state_dict(), .input_names = model.inputs, .output_names = model.outputs};
  for (size_t i = 0; i < inputs.size(); ++i)
    for (size_t d = 0; d < inputs[i].shape.size(); ++d) {
      const onnx::Dimension& dimension = inputs[i].shape[d];
      if (dimension.size >= 0) continue;
      const std::string name = dimension.name.empty() ? inputs[i].name + "_" + std::to_string(d) : dimension.name;
      options.dynamic.push_back({static_cast<int>(i), static_cast<int>(d), name});
    }
  return trace([&](const std::vector<Tensor>& in) { return model.graph->forward(in); }, examples, options);
}

Graph graph_of_model(const SharedModel& model, const std::vector<Tensor>& examples) {
  TERN_CHECK(!model.module->is_training(),
             "the model is in training mode; call tern_model_set_training(model, 0, ...) first");
  if (model.graph != nullptr) return graph_of_file(model, examples);
  require(examples.empty(), "inputs: only the model of an ONNX file needs examples; give NULL and 0");
  if (model.layers == nullptr) return graph_of(*model.family_model());
  const Tensor x =
      zeros({2, model.layers->inputs()}, {.dtype = model.module->dtype(), .device = model.module->device()});
  return trace([&](const std::vector<Tensor>& in) { return std::vector<Tensor>{model.layers->forward(in[0])}; }, {x},
               {.names = model.module->state_dict(),
                .dynamic = {{0, 0, "batch"}},
                .input_names = model.inputs,
                .output_names = model.outputs});
}

template <class T>
std::unique_ptr<TensorList> list_of(T&& tensors) {
  auto list = std::make_unique<TensorList>();
  list->tensors = std::forward<T>(tensors);
  return list;
}

}  // namespace

Perceptron::Perceptron(const nn::Scope& scope, const std::vector<int64_t>& sizes, int32_t activation)
    : Module(scope), layers_(sub("layers")), activation_(activation), inputs_(sizes.front()) {
  for (size_t i = 1; i < sizes.size(); ++i) layers_.emplace_back(sizes[i - 1], sizes[i]);
}

Tensor Perceptron::forward(const Tensor& x) const {
  Tensor y = x;
  for (int64_t i = 0; i < layers_.size(); ++i) {
    y = layers_[i].forward(y);
    if (i + 1 < layers_.size()) y = unary_result(activation_, y);
  }
  return y;
}

const Model* SharedModel::family_model() const {
  return texts != nullptr ? static_cast<const Model*>(texts) : static_cast<const Model*>(images);
}

std::vector<Tensor> SharedModel::run(std::vector<Tensor> given) const {
  require(given.size() <= inputs.size(), "the model has ", inputs.size(), " inputs, got ", given.size());
  given.resize(inputs.size());
  for (size_t i = 0; i < required; ++i)
    require(given[i].defined(), "the input '", inputs[i], "' is missing: only those behind '", inputs[required - 1],
            "' may be left out");
  if (autocast == DType::kFloat32) return compute(given);
  const Autocast region(module->device(), autocast);
  return compute(given);
}

std::vector<Tensor> SharedModel::compute(const std::vector<Tensor>& given) const {
  if (graph != nullptr) return graph->forward(given);
  std::vector<Tensor> results(1);
  if (texts != nullptr)
    results[0] = texts->forward(data::padded_input(given[0], given[1], given.size() > 2 ? given[2] : Tensor()));
  else
    results[0] = images != nullptr ? images->forward(given[0]) : layers->forward(given[0]);
  return results;
}

SharedModel& model_of(Call& call, tern_model* model) {
  SharedModel& shared = *call.content(model, "model").model;
  call.take(shared.user, "model");
  return shared;
}

OptimizerHandle& optimizer_of(Call& call, tern_optimizer* optimizer) {
  OptimizerHandle& handle = call.content(optimizer, "optimizer");
  if (handle.model) call.take(handle.model->user, "the optimizer's model");
  return handle;
}

extern "C" {

tern_code tern_model_load(const char* path, const tern_model_options* options, tern_model** model,
                          tern_status* status) {
  return return_handle("tern_model_load", model, status,
                       [&](Call&) { return loaded(text_of(path, "path"), options_of(options, "tern_model_options")); });
}
tern_code tern_model_new(const char* family, const char* preset, const tern_model_options* options, tern_model** model,
                         tern_status* status) {
  return return_handle("tern_model_new", model, status, [&](Call&) {
    const tern_model_options given = options_of(options, "tern_model_options");
    refuse_onnx_options(given);
    const ModelFamily& chosen = family_named(text_of(family, "family"));
    require(chosen.make != nullptr, "family: ", chosen.name,
            " models are loaded from files; tern_model_load reads one");
    require(given.label_count > 0, "tern_model_options.label_count: a new model needs 1 or more classes");
    const BuildOptions built = build_options(given);
    return handle_of(chosen.make(preset == nullptr ? chosen.presets.front().name : preset, built), built.generator);
  });
}
tern_code tern_model_mlp(const int64_t* sizes, int32_t count, int32_t activation, const tern_model_options* options,
                         tern_model** model, tern_status* status) {
  return return_handle("tern_model_mlp", model, status, [&](Call&) {
    const tern_model_options given = options_of(options, "tern_model_options");
    require(sizes != nullptr, "sizes is NULL");
    require(count >= 2 && count <= 1024, "count: expected 2 to 1024 sizes, got ", count);
    for (int32_t i = 0; i < count; ++i) require(sizes[i] > 0, "sizes[", i, "] is ", sizes[i], "; expected 1 or more");
    require(activation >= TERN_NEG && activation <= TERN_SOFTPLUS,
            "activation: expected an op of tern_unary, TERN_NEG (1) to TERN_SOFTPLUS (15), got ", activation);
    refuse_onnx_options(given);
    require(given.label_count == 0 && given.has_dropout == 0 && given.new_head == 0 && given.image_size == 0 &&
                given.max_length == 0,
            "tern_model_options: tern_model_mlp reads dtype, device and seed, and no other member");
    const BuildOptions built = build_options(given);
    return handle_of(
        std::make_unique<Perceptron>(built.scope(), std::vector<int64_t>(sizes, sizes + count), activation),
        built.generator);
  });
}
tern_code tern_model_free(tern_model* model) { return free_handle("tern_model_free", model, "model"); }

tern_code tern_model_input_count(tern_model* model, int32_t* count, tern_status* status) {
  return return_value("tern_model_input_count", count, status,
                      [&](Call& call) { return static_cast<int32_t>(model_of(call, model).inputs.size()); });
}
tern_code tern_model_output_count(tern_model* model, int32_t* count, tern_status* status) {
  return return_value("tern_model_output_count", count, status,
                      [&](Call& call) { return static_cast<int32_t>(model_of(call, model).outputs.size()); });
}
tern_code tern_model_input_name(tern_model* model, int32_t index, const char** name, tern_status* status) {
  if (name != nullptr) *name = nullptr;
  return return_value("tern_model_input_name", name, status,
                      [&](Call& call) { return name_at(model_of(call, model).inputs, index, "inputs").c_str(); });
}
tern_code tern_model_output_name(tern_model* model, int32_t index, const char** name, tern_status* status) {
  if (name != nullptr) *name = nullptr;
  return return_value("tern_model_output_name", name, status,
                      [&](Call& call) { return name_at(model_of(call, model).outputs, index, "outputs").c_str(); });
}

tern_code tern_model_run(tern_model* model, tern_tensor* const* inputs, int32_t input_count, tern_tensor** outputs,
                         int32_t output_count, tern_status* status) {
  return return_tensors("tern_model_run", outputs, output_count, status, [&](Call& call) {
    const SharedModel& shared = model_of(call, model);
    require(static_cast<size_t>(output_count) <= shared.outputs.size(), "output_count is ", output_count,
            ", but the model has ", shared.outputs.size(), " outputs");
    std::vector<Tensor> results = shared.run(call.tensors(inputs, input_count, "inputs", true));
    results.resize(static_cast<size_t>(output_count));
    return results;
  });
}
tern_code tern_model_run_named(tern_model* model, const char* const* input_names, tern_tensor* const* inputs,
                               int32_t input_count, const char* const* output_names, tern_tensor** outputs,
                               int32_t output_count, tern_status* status) {
  return return_tensors("tern_model_run_named", outputs, output_count, status, [&](Call& call) {
    const SharedModel& shared = model_of(call, model);
    const std::vector<Tensor> given = call.tensors(inputs, input_count, "inputs", true);
    require(input_names != nullptr || input_count == 0, "input_names is NULL");
    require(output_names != nullptr || output_count == 0, "output_names is NULL");
    std::vector<Tensor> placed(shared.inputs.size());
    std::vector<bool> taken(placed.size());
    for (size_t i = 0; i < given.size(); ++i) {
      const size_t place = place_of(shared.inputs, input_names[i], "input_names");
      require(!taken[place], "input_names: '", input_names[i], "' is given twice");
      taken[place] = true;
      placed[place] = given[i];
    }
    std::vector<size_t> wanted;
    for (int32_t i = 0; i < output_count; ++i)
      wanted.push_back(place_of(shared.outputs, output_names[i], "output_names"));
    const std::vector<Tensor> all = shared.run(placed);
    std::vector<Tensor> results;
    for (const size_t place : wanted) results.push_back(all[place]);
    return results;
  });
}

tern_code tern_model_set_training(tern_model* model, int32_t training, tern_status* status) {
  return run_call("tern_model_set_training", status,
                  [&](Call& call) { model_of(call, model).module->train(flag_of(training, "training")); });
}
tern_code tern_model_is_training(tern_model* model, int32_t* training, tern_status* status) {
  return return_value("tern_model_is_training", training, status,
                      [&](Call& call) { return model_of(call, model).module->is_training() ? 1 : 0; });
}
tern_code tern_model_set_autocast(tern_model* model, tern_dtype dtype, tern_status* status) {
  return run_call("tern_model_set_autocast", status, [&](Call& call) {
    require(dtype == TERN_BFLOAT16 || dtype == TERN_FLOAT32,
            "dtype: expected TERN_BFLOAT16, or TERN_FLOAT32 for none, got ", dtype,
            " (float16 would need the loss to be scaled)");
    model_of(call, model).autocast = dtype_of_code(dtype);
  });
}
tern_code tern_model_to(tern_model* model, const char* device, tern_dtype dtype, tern_status* status) {
  return run_call("tern_model_to", status, [&](Call& call) {
    const SharedModel& shared = model_of(call, model);
    require(shared.graph == nullptr,
            "the model of an ONNX file has constants that cannot be moved: load it with tern_model_options.device");
    const DType type = dtype == TERN_DTYPE_DEFAULT ? shared.module->dtype() : dtype_of_code(dtype);
    const Device place = device == nullptr ? shared.module->device() : device_named(device);
    require_available(place);
    if (type != shared.module->dtype()) shared.module->to(type);
    if (place != shared.module->device()) shared.module->to(place);
  });
}

tern_code tern_model_parameters(tern_model* model, const char* pattern, tern_tensors** list, tern_status* status) {
  return return_handle("tern_model_parameters", list, status, [&](Call& call) {
    return list_of(model_of(call, model).module->parameters(pattern == nullptr ? "*" : pattern));
  });
}
tern_code tern_model_state(tern_model* model, tern_tensors** list, tern_status* status) {
  return return_handle("tern_model_state", list, status,
                       [&](Call& call) { return list_of(model_of(call, model).module->state_dict()); });
}
tern_code tern_model_parameter_count(tern_model* model, int64_t* tensors, int64_t* elements, tern_status* status) {
  return run_call("tern_model_parameter_count", status, [&](Call& call) {
    const nn::Module& module = *model_of(call, model).module;
    if (tensors != nullptr) *tensors = static_cast<int64_t>(module.parameters().size());
    if (elements != nullptr) *elements = module.num_parameters();
  });
}
tern_code tern_model_freeze(tern_model* model, const char* pattern, int32_t frozen, int64_t* count,
                            tern_status* status) {
  return run_call("tern_model_freeze", status, [&](Call& call) {
    nn::Module& module = *model_of(call, model).module;
    const bool freezes = flag_of(frozen, "frozen");
    const int64_t found =
        freezes ? module.freeze(text_of(pattern, "pattern")) : module.unfreeze(text_of(pattern, "pattern"));
    if (count != nullptr) *count = found;
  });
}
tern_code tern_model_replace_head(tern_model* model, int64_t classes, tern_status* status) {
  return run_call("tern_model_replace_head", status, [&](Call& call) {
    const SharedModel& shared = model_of(call, model);
    require(shared.graph != nullptr,
            "this is for models of ONNX files; folders get one by tern_model_options.new_head");
    shared.graph->replace_head(classes);
  });
}
tern_code tern_model_zero_grad(tern_model* model, tern_status* status) {
  return run_call("tern_model_zero_grad", status, [&](Call& call) { model_of(call, model).module->zero_grad(); });
}
tern_code tern_model_load_state(tern_model* model, tern_tensors* list, tern_status* status) {
  return run_call("tern_model_load_state", status, [&](Call& call) {
    const StateView& state = call.content(list, "list").tensors;
    model_of(call, model).module->load_state_dict(state);
  });
}

tern_code tern_model_save(tern_model* model, const char* path, tern_status* status) {
  return run_call("tern_model_save", status, [&](Call& call) {
    const SharedModel& shared = model_of(call, model);
    const std::string to = text_of(path, "path");
    if (shared.graph != nullptr) return shared.graph->save(to);
    TERN_CHECK(shared.layers == nullptr,
               "a model of tern_model_mlp has no folder: use tern_model_save_weights or tern_model_export_onnx");
    shared.family_model()->save_pretrained(to);
  });
}
tern_code tern_model_save_weights(tern_model* model, const char* path, tern_status* status) {
  return run_call("tern_model_save_weights", status, [&](Call& call) {
    save_safetensors(model_of(call, model).module->state_dict(), text_of(path, "path"));
  });
}
tern_code tern_model_export_onnx(tern_model* model, const char* path, int64_t opset, tern_tensor* const* inputs,
                                 int32_t input_count, tern_status* status) {
  return run_call("tern_model_export_onnx", status, [&](Call& call) {
    const SharedModel& shared = model_of(call, model);
    const std::vector<Tensor> examples = call.tensors(inputs, input_count, "inputs");
    const std::string to = text_of(path, "path");
    onnx::SaveOptions options;
    if (opset != 0) options.opset = opset;
    onnx::save(graph_of_model(shared, examples), to, options);
  });
}

}  // extern "C"
}  // namespace tern::models::c_api

#include "tern/models/model_graph.h"

#include "tern/data/samples/token_batch.h"

namespace tern::models {
namespace {

Graph graph_of_texts(const SequenceClassifier& model, const StateView& names, Device device) {
  TraceOptions options{.names = names,
                       .dynamic = {{0, 0, "batch"}, {0, 1, "length"}},
                       .input_names = {"input_ids"},
                       .output_names = {"logits"}};
  const Tensor ones_of = ones({2, 4}, {.dtype = int64, .device = device});
  std::vector<Tensor> inputs = {ones_of};
  if (!model.reads_lengths()) {
    inputs.push_back(ones_of.clone());
    options.dynamic.insert(options.dynamic.end(), {{1, 0, "batch"}, {1, 1, "length"}});
    options.input_names.emplace_back("attention_mask");
  }
  const bool typed = model.token_types() > 1;
  if (typed) {
    const auto at = static_cast<int>(inputs.size());
    inputs.push_back(zeros({2, 4}, {.dtype = int64, .device = device}));
    options.dynamic.insert(options.dynamic.end(), {{at, 0, "batch"}, {at, 1, "length"}});
    options.input_names.emplace_back("token_type_ids");
  }
  const auto forward = [&](const std::vector<Tensor>& in) {
    const Tensor mask = model.reads_lengths() ? Tensor() : in[1];
    return std::vector<Tensor>{model.forward(data::padded_input(in[0], mask, typed ? in.back() : Tensor()))};
  };
  return trace(forward, inputs, options);
}

Graph graph_of_images(const ImageClassifier& model, const StateView& names, const TensorOptions& tensors) {
  const ImageClassifier::Input input = model.input();
  const Tensor images = zeros({2, input.channels, input.size, input.size}, tensors);
  return trace(
      [&](const std::vector<Tensor>& in) { return std::vector<Tensor>{model.forward(in[0])}; }, {images},
      {.names = names, .dynamic = {{0, 0, "batch"}}, .input_names = {"pixel_values"}, .output_names = {"logits"}});
}

}  // namespace

Graph graph_of(const Model& model) {
  TERN_CHECK(!model.is_training(), "graph_of: the model is in training mode; call eval() first");
  const StateView names = model.state_dict();
  const StateView parameters = model.parameters();
  const TensorOptions tensors = parameters.empty() ? TensorOptions() : parameters.front().tensor.options();
  if (const auto* const text = dynamic_cast<const SequenceClassifier*>(&model))
    return graph_of_texts(*text, names, tensors.device);
  const auto* const image = dynamic_cast<const ImageClassifier*>(&model);
  TERN_CHECK(image, "graph_of: ", model.type_name(), " is no model of texts or images");
  return graph_of_images(*image, names, tensors);
}

}  // namespace tern::models

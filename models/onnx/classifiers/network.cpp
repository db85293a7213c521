#include "tern/models/onnx/classifiers/network.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/io/atomic_file.h"
#include "tern/core/io/folders.h"
#include "tern/core/ops/ops.h"
#include "tern/core/profiler/profiler.h"
#include "tern/data/files/text.h"
#include "tern/models/text/sequence_rows.h"

namespace tern::models {
namespace {

using onnx::ValueInfo;

/// "pixels float [batch, 3, 224, 224]".
std::string describe(const ValueInfo& value) {
  std::string text = tern::detail::printable(value.name) + " " + (value.type.empty() ? "?" : value.type) + " [";
  for (size_t d = 0; d < value.shape.size(); ++d) {
    const onnx::Dimension& dimension = value.shape[d];
    const std::string name = dimension.name.empty() ? "?" : tern::detail::printable(dimension.name);
    text += (d > 0 ? ", " : "") + (dimension.size >= 0 ? std::to_string(dimension.size) : name);
  }
  return text + (value.has_shape ? "]" : "...]");
}

std::string describe(const std::vector<ValueInfo>& values) {
  std::string text;
  for (const ValueInfo& value : values) text += (text.empty() ? "" : ", ") + describe(value);
  return text.empty() ? "none" : text;
}

bool has_rank(const ValueInfo& value, size_t rank) {
  return value.is_tensor && (!value.has_shape || value.shape.size() == rank);
}

/// The size of a dimension; 0 where it may vary.
int64_t size_of(const ValueInfo& value, size_t dimension) {
  return dimension < value.shape.size() ? std::max<int64_t>(0, value.shape[dimension].size) : 0;
}

/// Sets the roles of integer inputs [batch, length]. False: an input has none.
bool find_text_inputs(const std::vector<ValueInfo>& inputs, OnnxRoles& roles) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = data::lower_ascii(inputs[i].name);
    const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
    int* const role = has("mask")                     ? &roles.mask
                      : has("type") || has("segment") ? &roles.token_types
                      : has("position")               ? &roles.positions
                                                      : &roles.ids;
    const bool fits = has_rank(inputs[i], 2) && (!is_floating(inputs[i].dtype) || role == &roles.mask);
    if (!fits || *role >= 0) return false;
    *role = static_cast<int>(i);
    roles.batch = std::max(roles.batch, size_of(inputs[i], 0));
    roles.length = std::max(roles.length, size_of(inputs[i], 1));
  }
  return roles.ids >= 0;
}

/// Sets the role of one floating input of rank 4.
bool find_image_input(const std::vector<ValueInfo>& inputs, OnnxRoles& roles) {
  if (inputs.size() != 1 || !inputs[0].has_shape || !has_rank(inputs[0], 4) || !is_floating(inputs[0].dtype))
    return false;
  const ValueInfo& image = inputs[0];
  const auto is_color = [&](size_t d) { return size_of(image, d) == 3 || size_of(image, d) == 1; };
  roles.channels_last = !is_color(1) && is_color(3);
  const int64_t channels = size_of(image, roles.channels_last ? 3 : 1);
  const int64_t height = size_of(image, roles.channels_last ? 1 : 2),
                width = size_of(image, roles.channels_last ? 2 : 3);
  if ((channels != 0 && channels != 1 && channels != 3) || height != width) return false;
  roles.kind = ModelKind::kImages;
  roles.image = 0;
  roles.batch = size_of(image, 0);
  roles.channels = channels == 0 ? 3 : channels;
  roles.size = height;
  return true;
}

/// Of logits or, of an encoder, the states of tokens. -1: there is none.
int find_output(const std::vector<ValueInfo>& outputs, ModelKind kind) {
  for (const char* name : {"logits", "last_hidden_state", "token_embeddings"})
    for (size_t i = 0; i < outputs.size(); ++i)
      if (outputs[i].name == name) return static_cast<int>(i);
  for (size_t i = 0; i < outputs.size(); ++i)
    if (has_rank(outputs[i], 2) || has_rank(outputs[i], kind == ModelKind::kTexts ? 3 : 4)) return static_cast<int>(i);
  return -1;
}

/// One tensor of integers or floats as the file wants it.
Tensor converted(const Tensor& x, const ValueInfo& to) { return x.dtype() == to.dtype ? x : x.to(to.dtype); }

}  // namespace

OnnxRoles onnx_roles(const std::vector<ValueInfo>& inputs, const std::vector<ValueInfo>& outputs) {
  OnnxRoles roles, images;
  if (find_image_input(inputs, images))
    roles = images;
  else if (!find_text_inputs(inputs, roles))
    roles = {};
  roles.output = find_output(outputs, roles.kind);
  TERN_CHECK((roles.ids >= 0 || roles.image >= 0) && roles.output >= 0 && is_floating(outputs[roles.output].dtype),
             "onnx: the model has the inputs ", describe(inputs), " and the outputs ", describe(outputs),
             "; a model of texts has tokens as integers [batch, length], perhaps with a mask, token types and "
             "positions, one of images has floats [batch, channels, size, size] or [batch, size, size, channels], with "
             "1 or 3 channels, and both give logits; other models are run by onnx::load(), in C++ or C");
  roles.of_tokens = roles.kind == ModelKind::kTexts && outputs[roles.output].shape.size() == 3;
  return roles;
}

Tensor OnnxNetwork::run_once(const nn::Module& model, const std::vector<Tensor>& inputs) const {
  const Device device = model.device();
  // An op casts what it needs in another type, but no norm takes a weight of one 16-bit type beside x of the other.
  TERN_CHECK(!has_float16_ || !autocast_enabled(device) || autocast_active_dtype(device) == DType::kFloat16,
             "onnx: the weights of the file are float16, beside which ", autocast_active_dtype(device),
             " cannot be computed; give --dtype fp16 or fp32 (in C++ autocast to float16, or none)");
  return onnx::run(*state_, model, inputs).at(static_cast<size_t>(roles_.output));
}

void OnnxNetwork::check_result(const Tensor& result, int64_t rows, int64_t length) const {
  const int of_outputs = roles_.of_tokens ? 2 : 1;
  bool fits = result.dim() > of_outputs && result.size(0) == rows && is_floating(result.dtype());
  if (fits && roles_.of_tokens) fits = result.dim() == 3 && (length == 0 || result.size(1) == length);
  for (int d = of_outputs + 1; fits && d < result.dim(); ++d) fits = result.size(d) == 1;
  fits = fits && result.size(of_outputs) > 0 && (outputs_ == 0 || result.size(of_outputs) == outputs_);
  const std::string wanted = outputs_ > 0 ? std::to_string(outputs_) : "outputs";
  const std::string of_length = roles_.of_tokens ? (length > 0 ? std::to_string(length) : "length") + ", " : "";
  TERN_CHECK(fits, "onnx: the output '", output().name, "' is ", result.describe(), ", where floats [", rows, ", ",
             of_length, wanted, "] are expected");
}

Tensor OnnxNetwork::run(const nn::Module& model, const std::vector<Tensor>& inputs, int64_t length) const {
  const auto call = [&](const std::vector<Tensor>& some) {
    const Tensor result = run_once(model, some);
    check_result(result, some[0].size(0), length);
    return roles_.of_tokens ? result : result.reshape({result.size(0), result.size(1)});
  };
  const int64_t n = inputs[0].size(0), batch = roles_.batch;
  if (batch == 0 || n == batch) return call(inputs);
  std::vector<Tensor> results;
  for (int64_t first = 0; first < n; first += batch) {
    const int64_t rows = std::min(batch, n - first);
    std::vector<Tensor> part;
    for (const Tensor& input : inputs) {
      const Tensor some = input.slice(0, first, first + rows), last = some.slice(0, rows - 1);
      // What the last row gives again is dropped.
      part.push_back(rows < batch ? cat({some, repeat_interleave(last, batch - rows, 0)}, 0) : some);
    }
    results.push_back(call(part).slice(0, 0, rows));
  }
  TERN_CHECK(!results.empty(), "onnx: the model takes ", batch, " rows at a time, but none were given");
  return cat(results, 0);
}

Tensor OnnxNetwork::run_texts(const nn::Module& model, const data::TokenInput& input, const OnnxConfig& config,
                              int64_t n, int64_t length, const Tensor& real,
                              const std::function<Tensor(const Tensor& x, int64_t filler)>& lay_out) const {
  const TensorOptions whole{.dtype = int64, .device = input.tokens.device()};
  const Tensor place = arange(0, static_cast<double>(length), 1, whole).unsqueeze(0);
  std::vector<Tensor> inputs(state_->inputs.size());
  const auto set = [&](int role, const auto& make) {
    if (role >= 0) inputs[static_cast<size_t>(role)] = converted(make(), this->input(role));
  };
  set(roles_.ids, [&] { return lay_out(input.tokens, config.padding_id); });
  // A sequence without tokens, which fills up a batch, attends to its first place: a softmax over nothing is NaN.
  set(roles_.mask, [&] { return logical_or(real, eq(place, 0)); });
  set(roles_.token_types, [&] {
    return input.token_types.defined() ? lay_out(input.token_types, 0) : zeros({n, length}, whole);
  });
  set(roles_.positions, [&] {
    return (place + static_cast<double>(config.first_position)).expand({n, length}).contiguous();
  });
  return run(model, inputs, length);
}

Tensor OnnxNetwork::filled_up(const nn::Module& model, const data::TokenInput& input, const OnnxConfig& config) const {
  const SequenceLayout& layout = input.layout;
  const int64_t n = layout.sequences();
  // Padded sequences have as many rows each as the batch's longest, whatever the longest of the others in the step is.
  const bool has_padding = layout.key_mask.defined() && n > 0;
  const int64_t given = has_padding ? input.tokens.numel() / n : std::max<int64_t>(layout.max_length, 1);
  TERN_CHECK(roles_.length == 0 || given <= roles_.length, "onnx: a text has ", given,
             " tokens, but the model's input '", this->input(roles_.ids).name, "' takes ", roles_.length);
  const int64_t length = roles_.length > 0 ? roles_.length : given;
  const TensorOptions whole{.dtype = int64, .device = input.tokens.device()};
  if (has_padding && length == given)
    return run_texts(model, input, config, n, length, ne(layout.key_mask.reshape({n, length}), 0),
                     [&](const Tensor& x, int64_t /*filler*/) {
                       return x.reshape({n, length});
                     });
  const Tensor place = arange(0, static_cast<double>(length), 1, whole).unsqueeze(0);
  const Tensor begins = layout.offsets.slice(0, 0, n).unsqueeze(1), ends = layout.offsets.slice(0, 1).unsqueeze(1);
  const Tensor inside = lt(begins + place, ends), rows = where(inside, begins + place, 0.0);
  const Tensor real = has_padding ? logical_and(inside, ne(layout.key_mask.index({rows}), 0)) : inside;
  return run_texts(model, input, config, n, length, real, [&](const Tensor& x, int64_t filler) {
    return where(inside, x.index({rows}), static_cast<double>(filler));
  });
}

Tensor OnnxNetwork::by_length(const nn::Module& model, const data::TokenInput& input, const OnnxConfig& config) const {
  const std::vector<std::vector<int64_t>> rows = rows_of_sequences(input.layout);
  std::map<size_t, std::vector<size_t>> sequences;  // by their lengths
  for (size_t s = 0; s < rows.size(); ++s) sequences[std::max<size_t>(rows[s].size(), 1)].push_back(s);
  const Device device = input.tokens.device();
  std::vector<int64_t> places(roles_.of_tokens ? static_cast<size_t>(input.tokens.numel()) : rows.size(), 0);
  std::vector<Tensor> results;
  int64_t before = 0;
  for (const auto& [length, group] : sequences) {
    std::vector<int64_t> taken;
    for (const size_t s : group) {
      if (!roles_.of_tokens) places[s] = before + static_cast<int64_t>(taken.size() / length);
      for (size_t i = 0; i < length; ++i) {
        taken.push_back(i < rows[s].size() ? rows[s][i] : 0);  // an empty sequence reads any token
        if (roles_.of_tokens && i < rows[s].size())
          places[static_cast<size_t>(rows[s][i])] = before + static_cast<int64_t>(taken.size()) - 1;
      }
    }
    const auto n = std::ssize(group);
    const Tensor index = from_vector(taken, {n, static_cast<int64_t>(length)}).to(device);
    const Tensor y = run_texts(model, input, config, n, static_cast<int64_t>(length), {},
                               [&](const Tensor& x, int64_t /*filler*/) { return x.index({index}); });
    results.push_back(roles_.of_tokens ? y.reshape({-1, y.size(2)}) : y);
    before += results.back().size(0);
  }
  return cat(results, 0).index({from_vector(places, {std::ssize(places)}).to(device)});
}

Tensor OnnxNetwork::of_texts(const nn::Module& model, const data::TokenInput& input, const OnnxConfig& config) const {
  return reads_lengths() ? by_length(model, input, config) : filled_up(model, input, config);
}

Tensor OnnxNetwork::of_tokens(const nn::Module& model, const data::TokenInput& input, const OnnxConfig& config) const {
  if (reads_lengths()) return by_length(model, input, config);
  const Tensor result = filled_up(model, input, config);
  const int64_t length = result.size(1), width = result.size(2);
  const std::vector<int64_t> offsets = input.layout.offsets.to_vector<int64_t>();
  std::vector<int64_t> rows(static_cast<size_t>(input.tokens.numel()), 0);
  for (size_t s = 0; s + 1 < offsets.size(); ++s)
    for (int64_t row = offsets[s]; row < offsets[s + 1]; ++row)
      rows[static_cast<size_t>(row)] = static_cast<int64_t>(s) * length + row - offsets[s];
  const Tensor index = from_vector(rows, {std::ssize(rows)}).to(result.device());
  return result.reshape({-1, width}).index({index});
}

Tensor OnnxNetwork::of_images(const nn::Module& model, const Tensor& images) const {
  const ValueInfo& info = input(roles_.image);
  TERN_CHECK(images.dim() == 4 && images.size(1) == 3 && is_floating(images.dtype()),
             "onnx: images must be floating [n, 3, height, width], got ", images.describe());
  TERN_CHECK(roles_.size == 0 || (images.size(2) == roles_.size && images.size(3) == roles_.size),
             "onnx: the model's input '", info.name, "' takes images of ", roles_.size, " x ", roles_.size,
             " pixels, got ", images.size(2), " x ", images.size(3));
  Tensor x = images;
  if (roles_.channels == 1) {  // the luma of ITU-R BT.601, as PIL computes it
    const auto channel = [&](int64_t c) { return x.slice(1, c, c + 1); };
    x = channel(0) * 0.299 + channel(1) * 0.587 + channel(2) * 0.114;
  }
  if (roles_.channels_last) x = x.permute({0, 2, 3, 1}).contiguous();
  return run(model, {converted(x, info)});
}

std::vector<Tensor> OnnxNetwork::example(const nn::Module& model, int64_t size) const {
  const int64_t batch = std::max<int64_t>(1, roles_.batch);
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < state_->inputs.size(); ++i) {
    std::vector<int64_t> sizes = {batch, roles_.length > 0 ? roles_.length : size};
    if (roles_.image >= 0) {
      const int64_t side = roles_.size > 0 ? roles_.size : size;
      sizes = roles_.channels_last ? std::vector{batch, side, side, roles_.channels}
                                   : std::vector{batch, roles_.channels, side, side};
    }
    const TensorOptions options{.dtype = state_->inputs[i].dtype, .device = model.device()};
    inputs.push_back(static_cast<int>(i) == roles_.mask ? ones(Shape(sizes), options) : zeros(Shape(sizes), options));
  }
  return inputs;
}

int64_t OnnxNetwork::outputs(const nn::Module& model) const {
  constexpr int64_t kMost = 1 << 20;  // more are not believed without a call
  const size_t of_labels = roles_.of_tokens ? 2 : 1;
  const auto& shape = output().shape;
  if (shape.size() > of_labels && shape[of_labels].size > 0 && shape[of_labels].size <= kMost)
    return shape[of_labels].size;
  NoGrad off;
  const Tensor result = run_once(model, example(model, roles_.image >= 0 ? 224 : 8));
  check_result(result, std::max<int64_t>(1, roles_.batch), 0);
  return result.size(static_cast<int>(of_labels));
}

int64_t OnnxNetwork::vocab_size() const {
  std::vector<std::string> names = {state_->inputs[static_cast<size_t>(roles_.ids)].name};
  const onnx::GraphDef& graph = state_->definition.graph;
  for (const auto& node : graph.nodes) {  // in the order in which they are computed
    const auto reads = [&](size_t i) {
      return i < node->inputs.size() && std::find(names.begin(), names.end(), node->inputs[i]) != names.end();
    };
    const std::string& op = node->op;
    const bool keeps_values =
        op == "Cast" || op == "Identity" || op == "Reshape" || op == "Flatten" || op == "Squeeze" || op == "Unsqueeze";
    if (keeps_values && reads(0) && !node->outputs.empty()) names.push_back(node->outputs[0]);
    if (node->op != "Gather" || !reads(1)) continue;
    for (const auto& initializer : graph.initializers)
      if (initializer->name == node->inputs[0] && initializer->dims.size() == 2) return initializer->dims[0];
  }
  return 0;
}

double OnnxNetwork::count_flops(const nn::Module& model, int64_t size) const {
  try {
    NoGrad off;
    Profiler profiler;
    [[maybe_unused]] const Tensor result = run_once(model, example(model, size));
    double flops = 0;
    for (const ProfileRow& row : profiler.stop().rows()) flops += row.flops;
    return flops / static_cast<double>(std::max<int64_t>(1, roles_.batch));
  } catch (const OutOfMemoryError&) {
    throw;
  } catch (const Error&) {  // another profiler runs, or the network takes no such size
    return 0;
  }
}

std::string OnnxNetwork::activation() const {
  const auto found = state_->activations.find(output().name);
  return found == state_->activations.end() ? "" : found->second.op;
}

void OnnxNetwork::drop_activation() {
  if (const auto found = state_->activations.find(output().name); found != state_->activations.end())
    state_->left_out = found->second.nodes;
}

void OnnxNetwork::save_file(const std::string& path, const OnnxConfig& config,
                            std::map<std::string, std::string> metadata) const {
  const auto& before = state_->definition.metadata;
  const bool named = std::any_of(config.labels.begin(), config.labels.end(),
                                 [](const std::string& label) { return !label.starts_with("LABEL_"); });
  if (named || before.contains("labels") || before.contains("problem_type") || !state_->left_out.empty())
    metadata.merge(onnx_metadata(config.labels, config.label_kind));
  onnx::save(*state_, path, metadata);
}

void OnnxNetwork::save(const std::string& dir, const OnnxConfig& config) const {
  const std::filesystem::path folder(dir);
  create_folders(dir);
  // The weights first: a folder with a config.json is complete.
  save_file((folder / "model.onnx").string(), config, {});
  write_atomically((folder / "config.json").string(), onnx_config_json(config));
}

}  // namespace tern::models

#include "tern/models/onnx/classifiers/network.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/io/atomic_file.h"
#include "tern/core/io/folders.h"
#include "tern/core/ops/ops.h"
#include "tern/core/profiler/profiler.h"
#include "tern/data/files/text.h"

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
  return onnx::run(*state_, model, inputs).at(static_cast<size_t>(roles_.output));
}

Tensor OnnxNetwork::run(const nn::Module& model, const std::vector<Tensor>& inputs) const {
  const int64_t n = inputs[0].size(0), batch = roles_.batch;
  if (batch == 0 || n == batch || n == 0) return run_once(model, inputs);
  std::vector<Tensor> results;
  for (int64_t first = 0; first < n; first += batch) {
    const int64_t rows = std::min(batch, n - first);
    std::vector<Tensor> part;
    for (const Tensor& input : inputs) {
      Tensor some = input.slice(0, first, first + rows);
      if (rows < batch) {  // the last row again: what it gives is dropped
        std::vector<int64_t> sizes(some.shape().begin(), some.shape().end());
        sizes[0] = batch - rows;
        some = cat({some, some.slice(0, rows - 1, rows).expand(Shape(sizes))}, 0);
      }
      part.push_back(some);
    }
    results.push_back(run_once(model, part).slice(0, 0, rows));
  }
  return cat(results, 0);
}

Tensor OnnxNetwork::of_texts(const nn::Module& model, const data::TokenInput& input, int64_t padding_id) const {
  const SequenceLayout& layout = input.layout;
  const int64_t n = layout.sequences(), given = std::max<int64_t>(layout.max_length, 1);
  TERN_CHECK(roles_.length == 0 || given <= roles_.length, "onnx: a text has ", given,
             " tokens, but the model's input '", this->input(roles_.ids).name, "' takes ", roles_.length);
  const Device device = input.tokens.device();
  const int64_t length = roles_.length > 0 ? roles_.length : given;
  const Tensor place = arange(0, static_cast<double>(length), 1, {.dtype = int64, .device = device}).unsqueeze(0);
  Tensor rows, real;  // [n, length]: the row of each token, and whether there is one
  const bool padded = layout.key_mask.defined() && length == given;
  if (padded) {
    real = ne(layout.key_mask.reshape({n, length}), 0);
  } else {
    const Tensor begins = layout.offsets.slice(0, 0, n).unsqueeze(1), ends = layout.offsets.slice(0, 1).unsqueeze(1);
    rows = begins + place;
    real = lt(rows, ends);
    rows = where(real, rows, 0.0);
    if (layout.key_mask.defined()) real = logical_and(real, ne(layout.key_mask.index({rows}), 0));
  }
  const auto laid_out = [&](const Tensor& x, int64_t filler) {
    return padded ? x.reshape({n, length}) : where(real, x.index({rows}), static_cast<double>(filler));
  };
  std::vector<Tensor> inputs(state_->inputs.size());
  const auto set = [&](int role, const auto& make) {
    if (role >= 0) inputs[static_cast<size_t>(role)] = converted(make(), this->input(role));
  };
  set(roles_.ids, [&] { return laid_out(input.tokens, padding_id); });
  // A sequence without tokens, which fills up a batch, attends to its first place: a softmax over nothing is NaN.
  set(roles_.mask, [&] { return logical_or(real, eq(place, 0)); });
  set(roles_.token_types, [&] {
    return input.token_types.defined() ? laid_out(input.token_types, 0)
                                       : zeros({n, length}, {.dtype = int64, .device = device});
  });
  set(roles_.positions, [&] { return place.expand({n, length}).contiguous(); });
  return run(model, inputs);
}

Tensor OnnxNetwork::rows_of(const Tensor& result, const data::TokenInput& input) const {
  const int64_t length = result.size(1), width = result.size(2);
  const std::vector<int64_t> offsets = input.layout.offsets.to_vector<int64_t>();
  std::vector<int64_t> rows(static_cast<size_t>(input.tokens.numel()), 0);  // rows of no sequence have no meaning
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
  const Tensor result = run(model, {converted(x, info)});
  for (int d = 2; d < result.dim(); ++d)
    TERN_CHECK(result.size(d) == 1, "onnx: the output '", state_->outputs[static_cast<size_t>(roles_.output)].name,
               "' is ", result.shape(), ", which are no logits [images, labels]");
  return result.reshape({images.size(0), -1});
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
  const ValueInfo& output = state_->outputs[static_cast<size_t>(roles_.output)];
  const size_t of_labels = roles_.of_tokens ? 2 : 1;
  if (output.shape.size() > of_labels && output.shape[of_labels].size > 0) return output.shape[of_labels].size;
  NoGrad off;
  const Tensor result = run_once(model, example(model, roles_.image >= 0 ? 224 : 8));
  TERN_CHECK(result.dim() > static_cast<int>(of_labels), "onnx: the output '", output.name, "' is ", result.shape(),
             ", which are no logits [", roles_.image >= 0 ? "images" : "texts", ", labels]");
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

void OnnxNetwork::save(const std::string& dir, const OnnxConfig& config) const {
  const std::filesystem::path folder(dir);
  create_folders(dir);
  // The weights first: a folder with a config.json is complete.
  onnx::save(*state_, (folder / "model.onnx").string());
  write_atomically((folder / "config.json").string(), onnx_config_json(config));
}

}  // namespace tern::models

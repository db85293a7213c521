// Writing of ONNX files.

#include <onnx.pb.h>

#include <filesystem>

#include "tern/core/io/atomic_file.h"
#include "tern/kernels/base/check.h"
#include "tern/models/onnx/export/exporter.h"

namespace tern::onnx {
namespace {

namespace format = tern::onnx_format;
namespace fs = std::filesystem;

constexpr int64_t kExternalAlignment = 4096;  // so that a reader may map each tensor
constexpr int64_t kLeastExternalBytes = 1024;

void write_attribute(const std::string& name, const Attribute& from, format::AttributeProto& to) {
  to.set_name(name);
  switch (from.kind) {
    case AttributeKind::kInt:
      to.set_type(format::AttributeProto::INT);
      to.set_i(from.i);
      return;
    case AttributeKind::kFloat:
      to.set_type(format::AttributeProto::FLOAT);
      to.set_f(static_cast<float>(from.f));
      return;
    case AttributeKind::kString:
      to.set_type(format::AttributeProto::STRING);
      to.set_s(from.s);
      return;
    case AttributeKind::kInts:
      to.set_type(format::AttributeProto::INTS);
      for (const int64_t value : from.ints) to.add_ints(value);
      return;
    case AttributeKind::kStrings:
      to.set_type(format::AttributeProto::STRINGS);
      for (const std::string& value : from.strings) to.add_strings(value);
      return;
    default:
      fail("onnx: attribute '", name, "' has a type that is not written");
  }
}

void write_info(const ValueInfo& from, format::ValueInfoProto& to) {
  to.set_name(from.name);
  format::TypeProto::Tensor& type = *to.mutable_type()->mutable_tensor_type();
  type.set_elem_type(element_of(from.dtype));
  format::TensorShapeProto& shape = *type.mutable_shape();
  for (const Dimension& d : from.shape) {
    format::TensorShapeProto::Dimension& dim = *shape.add_dim();
    if (d.size >= 0)
      dim.set_dim_value(d.size);
    else
      dim.set_dim_param(d.name);
  }
}

/// The bytes of large tensors, one after another in a second file.
struct External {
  std::string file;  // its name beside the model; empty: there is none
  std::vector<const TensorData*> tensors;
  int64_t bytes = 0;
};

void write_tensor(const TensorData& from, External& external, format::TensorProto& to) {
  to.set_name(from.name);
  to.set_data_type(from.element);
  for (const int64_t d : from.dims) to.add_dims(d);
  if (external.file.empty() || from.bytes < kLeastExternalBytes) {
    to.set_raw_data(from.data, static_cast<size_t>(from.bytes));
    return;
  }
  external.bytes = (external.bytes + kExternalAlignment - 1) / kExternalAlignment * kExternalAlignment;
  to.set_data_location(format::TensorProto::EXTERNAL);
  const auto entry = [&](const char* key, const std::string& value) {
    format::StringStringEntryProto& pair = *to.add_external_data();
    pair.set_key(key);
    pair.set_value(value);
  };
  entry("location", external.file);
  entry("offset", std::to_string(external.bytes));
  entry("length", std::to_string(from.bytes));
  external.tensors.push_back(&from);
  external.bytes += from.bytes;
}

}  // namespace

void write_model(const ModelDef& model, const std::string& path, int64_t most_bytes_inside) {
  constexpr int64_t kMostMessageBytes = INT64_C(0x7fffffff);
  int64_t bytes = 0;
  for (const auto& tensor : model.graph.initializers) bytes += tensor->bytes;
  External external;
  if (bytes > std::min(most_bytes_inside, kMostMessageBytes))
    external.file = fs::path(path).filename().string() + ".data";

  format::ModelProto file;
  file.set_ir_version(model.ir_version);
  file.set_producer_name("tern");
  for (const auto& [domain, version] : model.opsets) {
    format::OperatorSetIdProto& opset = *file.add_opset_import();
    opset.set_domain(domain);
    opset.set_version(version);
  }
  for (const auto& [key, value] : model.metadata) {
    format::StringStringEntryProto& pair = *file.add_metadata_props();
    pair.set_key(key);
    pair.set_value(value);
  }
  format::GraphProto& graph = *file.mutable_graph();
  graph.set_name(model.graph.name);
  for (const ValueInfo& info : model.graph.inputs) write_info(info, *graph.add_input());
  for (const ValueInfo& info : model.graph.outputs) write_info(info, *graph.add_output());
  for (const auto& tensor : model.graph.initializers) write_tensor(*tensor, external, *graph.add_initializer());
  for (const auto& node : model.graph.nodes) {
    format::NodeProto& to = *graph.add_node();
    to.set_name(node->name);
    to.set_op_type(node->op);
    to.set_domain(node->domain);
    for (const std::string& input : node->inputs) to.add_input(input);
    for (const std::string& output : node->outputs) to.add_output(output);
    for (const auto& [name, value] : node->attributes) write_attribute(name, value, *to.add_attribute());
  }
  TERN_CHECK(file.ByteSizeLong() <= static_cast<size_t>(kMostMessageBytes), path,
             ": the model without its weights has more than 2 GiB, which an ONNX file cannot hold");
  // The weights first: a model that names them is there only when they are.
  if (!external.file.empty())
    write_atomically((fs::path(path).parent_path() / external.file).string(), [&](const auto& append) {
      int64_t at = 0;
      const std::string zeros(static_cast<size_t>(kExternalAlignment), '\0');
      for (const TensorData* tensor : external.tensors) {
        const int64_t gap = (at + kExternalAlignment - 1) / kExternalAlignment * kExternalAlignment - at;
        append(zeros.data(), static_cast<size_t>(gap));
        append(tensor->data, static_cast<size_t>(tensor->bytes));
        at += gap + tensor->bytes;
      }
    });
  write_atomically(path, [&](const auto& append) {
    const std::string text = file.SerializeAsString();
    append(text.data(), text.size());
  });
}

}  // namespace tern::onnx

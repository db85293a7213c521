#include "tern/models/onnx/model_file.h"

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <onnx.pb.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <set>

#include "tern/core/io/atomic_file.h"
#include "tern/core/io/mapped_file.h"
#include "tern/kernels/base/check.h"
#include "tern/models/onnx/weights.h"
#include "tern/models/onnx/wire.h"

namespace tern::onnx {
namespace {

namespace format = tern::onnx_format;
namespace fs = std::filesystem;

constexpr int64_t kMostFileBytes = INT64_C(0x7fffffff);  // of a protobuf message
constexpr int kMostNesting = 200;                        // of messages

/// Maps external files; each once.
class Folder {
 public:
  explicit Folder(const std::string& model)
      : path_(fs::path(model).parent_path()), real_(fs::weakly_canonical(model).parent_path()) {
    if (path_.empty()) path_ = ".";
  }

  const std::map<std::string, std::shared_ptr<MappedFile>>& files() const { return files_; }

  std::shared_ptr<MappedFile> file(const std::string& location) {
    auto& file = files_[location];
    if (!file) file = std::make_shared<MappedFile>(checked(location));
    return file;
  }

 private:
  /// A link may lead to where the model itself really is, as in the cache of Hugging Face.
  std::string checked(const std::string& location) const {
    const fs::path relative(location);
    TERN_CHECK(!location.empty() && relative.is_relative() && location.find('\0') == std::string::npos &&
                   std::none_of(relative.begin(), relative.end(), [](const fs::path& part) { return part == ".."; }),
               "its external data '", location, "' is not in the model's folder");
    const fs::path whole = path_ / relative, real = fs::weakly_canonical(whole);
    const auto within = [&](const fs::path& folder) {
      return std::mismatch(folder.begin(), folder.end(), real.begin(), real.end()).first == folder.end();
    };
    TERN_CHECK(within(fs::weakly_canonical(path_)) || within(real_), "its external data '", location,
               "' leads outside of the model's folder");
    return whole.string();
  }

  fs::path path_, real_;
  std::map<std::string, std::shared_ptr<MappedFile>> files_;
};

class Conversion {
 public:
  Conversion(const std::string& path, std::shared_ptr<MappedFile> file) : folder_(path), file_(std::move(file)) {}

  ModelDef model(const format::ModelProto& from) {
    ModelDef to;
    to.ir_version = from.ir_version();
    to.opsets = opsets(from.opset_import());
    if (!from.producer_name().empty())
      to.metadata["producer"] =
          from.producer_name() + (from.producer_version().empty() ? "" : " " + from.producer_version());
    for (const auto& entry : from.metadata_props()) to.metadata[entry.key()] = entry.value();
    for (const auto& function : from.functions()) to.functions.push_back(this->function(function));
    to.graph = graph(from.graph());
    to.files = folder_.files();
    to.files[""] = file_;
    return to;
  }

 private:
  template <class List>
  static std::map<std::string, int64_t> opsets(const List& list) {
    std::map<std::string, int64_t> result;
    for (const auto& entry : list) {
      auto& version = result[domain_of(entry.domain())];
      version = std::max<int64_t>(version, entry.version());
    }
    return result;
  }

  FunctionDef function(const format::FunctionProto& from) {
    FunctionDef to{.name = from.name(), .domain = domain_of(from.domain()), .overload = from.overload()};
    to.inputs.assign(from.input().begin(), from.input().end());
    to.outputs.assign(from.output().begin(), from.output().end());
    to.attributes.assign(from.attribute().begin(), from.attribute().end());
    for (const auto& entry : from.attribute_proto()) to.defaults[entry.name()] = attribute(entry);
    for (const auto& entry : from.node()) to.nodes.push_back(node(entry));
    to.opsets = opsets(from.opset_import());
    return to;
  }

  GraphDef graph(const format::GraphProto& from) {
    GraphDef to{.name = from.name()};
    to.nodes.reserve(static_cast<size_t>(from.node_size()));
    for (const auto& entry : from.node()) to.nodes.push_back(node(entry));
    for (const auto& entry : from.initializer()) to.initializers.push_back(tensor(entry));
    for (const auto& entry : from.sparse_initializer()) to.initializers.push_back(dense(entry));
    for (const auto& entry : from.input()) to.inputs.push_back(value_info(entry));
    for (const auto& entry : from.output()) to.outputs.push_back(value_info(entry));
    for (const auto& entry : from.metadata_props())
      if (entry.key() == "pkg.torch.export.ExportedProgram.graph_signature") note_torch_names(entry.value(), to);
    return to;
  }

  /// Lines like "p_fc_weight: PARAMETER target='fc.weight'".
  static void note_torch_names(const std::string& signature, GraphDef& to) {
    for (const bool parameter : {true, false}) {
      const std::string mark = parameter ? ": PARAMETER target='" : ": BUFFER target='";
      for (size_t at = signature.find(mark); at != std::string::npos; at = signature.find(mark, at)) {
        at += mark.size();
        const size_t end = signature.find('\'', at);
        if (end == std::string::npos) return;
        to.torch_names[signature.substr(at, end - at)] = parameter;
      }
    }
  }

  /// The last but one of "['', 'encoder', 'encoder.layer', 'linear']": a module's; the last is the op's.
  static std::string module_of(const std::string& scopes) {
    const size_t last = scopes.rfind(", '");
    if (last == std::string::npos || last < 2) return "";
    const size_t begin = scopes.rfind('\'', last - 2);
    return begin == std::string::npos ? "" : scopes.substr(begin + 1, last - begin - 2);
  }

  std::shared_ptr<NodeDef> node(const format::NodeProto& from) {
    auto to = std::make_shared<NodeDef>(NodeDef{
        .name = from.name(), .op = from.op_type(), .domain = domain_of(from.domain()), .overload = from.overload()});
    to->inputs.assign(from.input().begin(), from.input().end());
    to->outputs.assign(from.output().begin(), from.output().end());
    for (const auto& entry : from.attribute())
      TERN_CHECK(to->attributes.emplace(entry.name(), attribute(entry)).second, "node '", to->name, "' (", to->op,
                 ") has the attribute '", entry.name(), "' twice");
    for (const auto& entry : from.metadata_props())
      if (entry.key() == "pkg.torch.onnx.name_scopes") to->scope = module_of(entry.value());
    return to;
  }

  Attribute attribute(const format::AttributeProto& from) {
    Attribute to{.reference = from.ref_attr_name()};
    switch (kind_of(from)) {
      case format::AttributeProto::FLOAT:
        to.kind = AttributeKind::kFloat;
        to.f = static_cast<double>(from.f());
        break;
      case format::AttributeProto::INT:
        to.kind = AttributeKind::kInt;
        to.i = from.i();
        break;
      case format::AttributeProto::STRING:
        to.kind = AttributeKind::kString;
        to.s = from.s();
        break;
      case format::AttributeProto::TENSOR:
        to.kind = AttributeKind::kTensor;
        to.tensor = tensor(from.t());
        break;
      case format::AttributeProto::SPARSE_TENSOR:
        to.kind = AttributeKind::kTensor;
        to.tensor = dense(from.sparse_tensor());
        break;
      case format::AttributeProto::GRAPH:
        to.kind = AttributeKind::kGraph;
        to.graph = std::make_shared<GraphDef>(graph(from.g()));
        break;
      case format::AttributeProto::FLOATS:
        to.kind = AttributeKind::kFloats;
        to.floats.assign(from.floats().begin(), from.floats().end());
        break;
      case format::AttributeProto::INTS:
        to.kind = AttributeKind::kInts;
        to.ints.assign(from.ints().begin(), from.ints().end());
        break;
      case format::AttributeProto::STRINGS:
        to.kind = AttributeKind::kStrings;
        to.strings.assign(from.strings().begin(), from.strings().end());
        break;
      default:
        to.what = "a list of tensors or graphs, or a type";
    }
    return to;
  }

  /// Files of the first versions do not say the type.
  static int kind_of(const format::AttributeProto& from) {
    using Proto = format::AttributeProto;
    if (from.type() != Proto::UNDEFINED) return from.type();
    if (from.has_f()) return Proto::FLOAT;
    if (from.has_i()) return Proto::INT;
    if (from.has_s()) return Proto::STRING;
    if (from.has_t()) return Proto::TENSOR;
    if (from.has_g()) return Proto::GRAPH;
    if (from.floats_size() > 0) return Proto::FLOATS;
    if (from.ints_size() > 0) return Proto::INTS;
    if (from.strings_size() > 0) return Proto::STRINGS;
    return Proto::UNDEFINED;
  }

  ValueInfo value_info(const format::ValueInfoProto& from) {
    ValueInfo to{.name = from.name()};
    const format::TypeProto* type = &from.type();
    for (int depth = 0; type->has_optional_type() || type->has_sequence_type(); ++depth) {
      TERN_CHECK(depth < 8, "the type of '", to.name, "' is nested too deeply");
      to.is_tensor = false;
      to.is_sequence = to.is_sequence || type->has_sequence_type();
      type = type->has_optional_type() ? &type->optional_type().elem_type() : &type->sequence_type().elem_type();
    }
    if (!type->has_tensor_type()) {
      to.is_tensor = to.is_tensor && !type->has_map_type() && !type->has_sparse_tensor_type();
      to.type = type->has_map_type() ? "map" : type->has_sparse_tensor_type() ? "sparse" : "";
      return to;
    }
    const auto& tensor = type->tensor_type();
    to.type = tensor.elem_type() == 0 ? "" : element_name(tensor.elem_type());
    if (is_supported(tensor.elem_type())) to.dtype = storage_of(tensor.elem_type());
    to.has_shape = tensor.has_shape();
    for (const auto& dim : tensor.shape().dim()) {
      if (dim.has_dim_value() && dim.dim_value() >= 0)
        to.shape.push_back({dim.dim_value(), ""});
      else
        to.shape.push_back({-1, dim.dim_param()});
    }
    return to;
  }

  std::shared_ptr<TensorData> tensor(const format::TensorProto& from) {
    auto to = std::make_shared<TensorData>(TensorData{.name = from.name(), .element = from.data_type()});
    to->dims.assign(from.dims().begin(), from.dims().end());
    TERN_CHECK(!from.has_segment(), "tensor '", to->name, "' is in segments, which is not supported");
    const int64_t expected = bytes_of(*to);
    if (from.data_location() == format::TensorProto::EXTERNAL)
      external(from, expected, *to);
    else if (from.has_place_offset())
      place(from, *to);
    else
      typed(from, *to);
    if (to->element == kString) {
      TERN_CHECK(static_cast<int64_t>(to->strings.size()) == to->numel(), "tensor '", to->name, "' has ",
                 to->strings.size(), " strings for ", to->numel(), " elements");
      return to;
    }
    TERN_CHECK(to->bytes == expected, "tensor '", to->name, "' (", element_name(to->element), " ", shape_text(to->dims),
               ") needs ", expected, " bytes of data, but has ", to->bytes);
    return to;
  }

  static std::string shape_text(const std::vector<int64_t>& dims) {
    std::string text = "[";
    for (const int64_t size : dims) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
    return text + "]";
  }

  /// Of all elements; checks the dims.
  static int64_t bytes_of(const TensorData& data) {
    TERN_CHECK(data.element > 0 && data.element <= kInt2, "tensor '", data.name, "' has elements of unknown ",
               element_name(data.element));
    int64_t bits = std::max(1, element_bits(data.element));
    bool none = false;
    for (const int64_t size : data.dims) {
      TERN_CHECK(size >= 0, "tensor '", data.name, "' has the shape ", shape_text(data.dims));
      none = none || size == 0;
      TERN_CHECK(size == 0 || bits <= INT64_MAX / 16 / size, "tensor '", data.name, "' has the shape ",
                 shape_text(data.dims), ", which is too large");
      bits *= std::max<int64_t>(size, 1);
    }
    return none ? 0 : (bits + 7) / 8;
  }

  void place(const format::TensorProto& from, TensorData& to) {
    to.place = {"", from.place_offset(), from.place_bytes()};
    TERN_CHECK(to.place.offset >= 0 && to.place.bytes >= 0 &&
                   static_cast<uint64_t>(to.place.offset) + static_cast<uint64_t>(to.place.bytes) <= file_->bytes(),
               "tensor '", to.name, "' is damaged");
    to.data = file_->data() + to.place.offset;
    to.bytes = to.place.bytes;
    to.owner = file_;
  }

  void external(const format::TensorProto& from, int64_t expected, TensorData& to) {
    std::string location;
    int64_t offset = 0, length = -1;
    for (const auto& entry : from.external_data()) {
      if (entry.key() == "location") location = entry.value();
      if (entry.key() == "offset") offset = number(to, entry);
      if (entry.key() == "length") length = number(to, entry);
    }
    TERN_CHECK(to.element != kString, "tensor '", to.name, "': strings cannot be external data");
    try {
      const std::shared_ptr<MappedFile> file = folder_.file(location);
      const auto bytes = static_cast<int64_t>(file->bytes());
      if (length < 0) length = expected;
      TERN_CHECK(offset <= bytes && length <= bytes - offset, "its data is bytes ", offset, " to ", offset, " + ",
                 length, " of '", location, "', which has only ", bytes);
      to.place = {location, offset, length};
      to.data = file->data() + offset;
      to.bytes = length;
      to.owner = file;
    } catch (const Error& error) {
      fail("tensor '", to.name, "': ", error.what());
    }
  }

  static int64_t number(const TensorData& tensor, const format::StringStringEntryProto& entry) {
    const std::string& text = entry.value();
    const bool digits = !text.empty() && text.size() < 19 && text.find_first_not_of("0123456789") == std::string::npos;
    TERN_CHECK(digits, "tensor '", tensor.name, "': '", text, "' is no ", entry.key(), " of external data");
    return std::stoll(text);
  }

  /// Data in a field of numbers.
  static void typed(const format::TensorProto& from, TensorData& to) {
    auto bytes = std::make_shared<std::string>();
    const auto add = [&](const auto& list, auto convert) {
      for (const auto value : list) {
        const auto converted = convert(value);
        bytes->append(reinterpret_cast<const char*>(&converted), sizeof(converted));
      }
    };
    const int bits = element_bits(to.element);
    if (!from.raw_data().empty()) {
      *bytes = from.raw_data();
    } else if (to.element == kString) {
      to.strings.assign(from.string_data().begin(), from.string_data().end());
    } else if (to.element == kFloat) {
      add(from.float_data(), [](float x) { return x; });
    } else if (to.element == kDouble) {
      add(from.double_data(), [](double x) { return x; });
    } else if (to.element == kInt64) {
      add(from.int64_data(), [](int64_t x) { return x; });
    } else if (to.element == kUInt64) {
      add(from.uint64_data(), [](uint64_t x) { return x; });
    } else if (to.element == kUInt32) {
      add(from.uint64_data(), [](uint64_t x) { return static_cast<uint32_t>(x); });
    } else if (bits == 32) {
      add(from.int32_data(), [](int32_t x) { return x; });
    } else if (bits == 16) {
      add(from.int32_data(), [](int32_t x) { return static_cast<uint16_t>(x); });
    } else if (bits > 0 && bits <= 8) {
      add(from.int32_data(), [](int32_t x) { return static_cast<uint8_t>(x); });
    }
    to.data = bytes->data();
    to.bytes = static_cast<int64_t>(bytes->size());
    to.owner = bytes;
  }

  /// A sparse tensor written out, if that is not much larger than its values.
  std::shared_ptr<TensorData> dense(const format::SparseTensorProto& from) {
    const auto values = tensor(from.values()), indices = tensor(from.indices());
    auto to = std::make_shared<TensorData>(TensorData{.name = values->name, .element = values->element});
    to->dims.assign(from.dims().begin(), from.dims().end());
    to->bytes = bytes_of(*to);
    const int bits = element_bits(to->element);
    const int64_t count = values->numel(), rank = static_cast<int64_t>(to->dims.size());
    TERN_CHECK(bits >= 8 && indices->element == kInt64 && values->dims.size() == 1 &&
                   to->bytes <= 64 * (values->bytes + indices->bytes) + (1 << 20),
               "sparse tensor '", to->name, "' of ", to->bytes, " bytes is not supported");
    const bool flat = indices->dims.size() == 1;
    TERN_CHECK(indices->numel() == count * (flat ? 1 : rank) && (flat || indices->dims[0] == count), "sparse tensor '",
               to->name, "' has ", count, " values and indices ", shape_text(indices->dims));
    auto bytes = std::make_shared<std::string>(static_cast<size_t>(to->bytes), '\0');
    const int64_t size = bits / 8;
    const auto index = [&](int64_t i) {
      int64_t value = 0;
      std::memcpy(&value, indices->data + i * 8, 8);
      return value;
    };
    for (int64_t i = 0; i < count; ++i) {
      int64_t at = 0;
      if (flat) at = index(i);
      for (int64_t d = 0; d < rank && !flat; ++d) {
        const int64_t place = index(i * rank + d), most = to->dims[static_cast<size_t>(d)];
        TERN_CHECK(place >= 0 && place < most, "sparse tensor '", to->name, "' has the index ", place, " of ", most);
        at = at * most + place;
      }
      TERN_CHECK(at >= 0 && at < to->bytes / size, "sparse tensor '", to->name, "' has the index ", at);
      std::memcpy(bytes->data() + at * size, values->data + i * size, static_cast<size_t>(size));
    }
    to->data = bytes->data();
    to->owner = bytes;
    return to;
  }

  Folder folder_;
  std::shared_ptr<MappedFile> file_;
};

}  // namespace

ModelDef read_model(const std::string& path) {
  const auto file = std::make_shared<MappedFile>(path);
  try {
    TERN_CHECK(file->bytes() > 0, "it is empty");
    TERN_CHECK(file->bytes() <= kMostFileBytes, "it has ", file->bytes(),
               " bytes, but a protobuf message ends at 2 GiB: large weights belong into external data");
    const std::string text = without_tensor_bytes({file->data(), static_cast<size_t>(file->bytes())});
    TERN_CHECK(text.size() <= static_cast<size_t>(kMostFileBytes), "it has too many tensors");
    format::ModelProto proto;
    google::protobuf::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
    google::protobuf::io::CodedInputStream input(&stream);
    input.SetRecursionLimit(kMostNesting);
    TERN_CHECK(proto.ParseFromCodedStream(&input) && input.ConsumedEntireMessage(), "it is no protobuf message");
    TERN_CHECK(proto.has_graph() && proto.ir_version() > 0, "it has no graph or no version");
    ModelDef model = Conversion(path, file).model(proto);
    file->check();
    return model;
  } catch (const OutOfMemoryError&) {
    throw;
  } catch (const Error& error) {
    fail("onnx: cannot read ", path, ": ", error.what());
  }
}

namespace {

/// Puts a weight into a tensor of the file.
void put_tensor(const SavedTensor& saved, format::TensorProto& to) {
  const Tensor x = tensor_as_saved(saved);
  const bool external = to.data_location() == format::TensorProto::EXTERNAL && x.nbytes() == saved.place.bytes;
  to.clear_dims();
  for (const int64_t size : x.shape()) to.add_dims(size);
  to.set_data_type(saved.element);
  if (external) return;  // its bytes are written to that file
  to.clear_float_data();
  to.clear_double_data();
  to.clear_int32_data();
  to.clear_external_data();
  to.clear_data_location();
  to.set_raw_data(x.raw_data(), static_cast<size_t>(x.nbytes()));
}

void rename_data(format::TensorProto& tensor, const std::map<std::string, std::string>& names) {
  if (tensor.data_location() != format::TensorProto::EXTERNAL) return;
  for (auto& entry : *tensor.mutable_external_data())
    if (const auto found = names.find(entry.value()); entry.key() == "location" && found != names.end())
      entry.set_value(found->second);
}

template <class Nodes>
void rename_data_of(Nodes& nodes, const std::map<std::string, std::string>& names);

void rename_data(format::GraphProto& graph, const std::map<std::string, std::string>& names) {
  for (auto& initializer : *graph.mutable_initializer()) rename_data(initializer, names);
  rename_data_of(*graph.mutable_node(), names);
}

template <class Nodes>
void rename_data_of(Nodes& nodes, const std::map<std::string, std::string>& names) {
  for (auto& node : nodes)
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_t()) rename_data(*attribute.mutable_t(), names);
      if (attribute.has_g()) rename_data(*attribute.mutable_g(), names);
    }
}

void set_metadata(format::ModelProto& model, const std::string& key, const std::string& value) {
  for (auto& entry : *model.mutable_metadata_props())
    if (entry.key() == key) return entry.set_value(value);
  auto& entry = *model.add_metadata_props();
  entry.set_key(key);
  entry.set_value(value);
}

}  // namespace

void rewrite_file(const MappedFile& source, const std::string& target, const std::vector<SavedTensor>& tensors,
                  const FileChanges& changes) {
  format::ModelProto model;
  google::protobuf::io::ArrayInputStream stream(source.data(), static_cast<int>(source.bytes()));
  google::protobuf::io::CodedInputStream input(&stream);
  input.SetRecursionLimit(kMostNesting);
  TERN_CHECK(model.ParseFromCodedStream(&input), "onnx: cannot save ", target,
             ": the file that the model was loaded from is no protobuf message any more");
  source.check();
  format::GraphProto& graph = *model.mutable_graph();
  std::map<std::string, format::TensorProto*> own;
  std::map<std::string, format::NodeProto*> nodes;  // by their first outputs
  for (auto& initializer : *graph.mutable_initializer()) own[initializer.name()] = &initializer;
  for (auto& node : *graph.mutable_node()) {
    if (node.output_size() > 0) nodes[node.output(0)] = &node;
    if (node.op_type() != "Constant" || node.output_size() != 1) continue;
    for (auto& attribute : *node.mutable_attribute())
      if (attribute.name() == "value") own[node.output(0)] = attribute.mutable_t();
  }
  std::vector<std::pair<std::string, format::TensorProto>> added;
  for (const SavedTensor& saved : tensors) {
    if (!saved.is_new) {
      const auto found = own.find(saved.source);
      TERN_CHECK(found != own.end(), "onnx: cannot save '", saved.name, "', which is part of a function");
      put_tensor(saved, *found->second);
      continue;
    }
    format::TensorProto tensor;
    put_tensor(saved, tensor);
    tensor.set_name(saved.name);
    for (const auto& [output, input] : saved.inputs) {
      const auto found = nodes.find(output);
      TERN_CHECK(found != nodes.end(), "onnx: cannot save '", saved.name, "', which is part of a function");
      while (found->second->input_size() <= static_cast<int>(input)) found->second->add_input("");
      found->second->set_input(static_cast<int>(input), saved.name);
    }
    added.emplace_back(saved.name, std::move(tensor));
  }
  for (auto& [name, tensor] : added) *graph.add_initializer() = std::move(tensor);
  for (const std::string& output : changes.left_out) {
    const auto found = nodes.find(output);
    TERN_CHECK(found != nodes.end(), "onnx: cannot leave out what gives '", output, "', which is part of a function");
    format::NodeProto& node = *found->second;
    const std::string input = node.input(0);
    node.set_op_type("Identity");
    node.clear_attribute();
    node.clear_input();
    node.add_input(input);
  }
  if (!changes.data_files.empty()) {
    rename_data(graph, changes.data_files);
    for (auto& function : *model.mutable_functions()) rename_data_of(*function.mutable_node(), changes.data_files);
  }
  for (const auto& [key, value] : changes.metadata) set_metadata(model, key, value);
  graph.clear_value_info();  // shapes within the graph may be others now
  for (auto& output : *graph.mutable_output())
    if (output.type().has_tensor_type() && output.type().tensor_type().has_shape())
      for (auto& dim : *output.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim())
        if (dim.has_dim_value()) dim.clear_dim_value();
  std::string text;
  TERN_CHECK(model.ByteSizeLong() <= static_cast<size_t>(kMostFileBytes) && model.SerializeToString(&text),
             "onnx: cannot save ", target, ": the graph is larger than 2 GiB");
  write_atomically(target, text);
}

}  // namespace tern::onnx

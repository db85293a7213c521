#pragma once
// ONNX files that tests make, by their encoding alone.

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace tern::test {

/// A protobuf message; field numbers are those of onnx.proto.
class Message {
 public:
  Message& number(int field, uint64_t value) {
    varint(static_cast<uint64_t>(field) << 3);
    varint(value);
    return *this;
  }
  Message& text(int field, const std::string& value) {
    varint(static_cast<uint64_t>(field) << 3 | 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& real(int field, float value) {
    varint(static_cast<uint64_t>(field) << 3 | 5);
    char bytes[4];
    std::memcpy(bytes, &value, 4);
    bytes_.append(bytes, 4);
    return *this;
  }
  Message& message(int field, const Message& value) { return text(field, value.bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  void varint(uint64_t value) {
    for (; value >= 128; value >>= 7) bytes_.push_back(static_cast<char>((value & 127) | 128));
    bytes_.push_back(static_cast<char>(value));
  }
  std::string bytes_;
};

inline Message onnx_node(const std::string& op, const std::vector<std::string>& inputs,
                         const std::vector<std::string>& outputs, const std::string& name = "") {
  Message node;
  for (const std::string& input : inputs) node.text(1, input);
  for (const std::string& output : outputs) node.text(2, output);
  return node.text(3, name).text(4, op);
}

inline Message onnx_attribute(const std::string& name, int64_t value) {
  return Message().text(1, name).number(3, static_cast<uint64_t>(value)).number(20, 2);
}

inline Message onnx_real(const std::string& name, float value) {
  return Message().text(1, name).real(2, value).number(20, 1);
}

inline Message onnx_list(const std::string& name, const std::vector<int64_t>& values) {
  Message attribute = Message().text(1, name);
  for (const int64_t value : values) attribute.number(8, static_cast<uint64_t>(value));
  return attribute.number(20, 7);
}

inline Message onnx_floats(const std::string& name, const std::vector<int64_t>& dims,
                           const std::vector<float>& values) {
  Message tensor;
  for (const int64_t size : dims) tensor.number(1, static_cast<uint64_t>(size));
  std::string bytes(values.size() * 4, '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return tensor.number(2, 1).text(8, name).text(9, bytes);
}

/// A value of floats; a size of -1 is a dimension "n" that varies.
inline Message onnx_value(const std::string& name, const std::vector<int64_t>& dims, int type = 1) {
  Message shape;
  for (const int64_t size : dims)
    shape.message(1, size < 0 ? Message().text(2, "n") : Message().number(1, static_cast<uint64_t>(size)));
  return Message().text(1, name).message(
      2, Message().message(1, Message().number(1, static_cast<uint64_t>(type)).message(2, shape)));
}

inline Message onnx_model(const Message& graph, int64_t opset = 20) {
  return Message().number(1, 9).message(7, graph).message(
      8, Message().text(1, "").number(2, static_cast<uint64_t>(opset)));
}

inline void write_onnx(const std::string& path, const Message& model) {
  std::ofstream(path, std::ios::binary) << model.bytes();
}

}  // namespace tern::test

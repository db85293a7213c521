#include "tern/models/onnx/wire.h"

#include <utility>

#include "tern/kernels/base/check.h"

namespace tern::onnx {
namespace {

constexpr int kMostNestedGraphs = 64;
constexpr uint32_t kPlaceOffset = 100001, kPlaceBytes = 100002;  // of onnx.proto

/// Messages that lead to tensors.
enum class Message { kNone, kModel, kGraph, kNode, kAttribute, kFunction, kTensor, kSparse };

/// The message in a field.
Message message_of(Message in, uint32_t field) {
  switch (in) {
    case Message::kModel:
      return field == 7 ? Message::kGraph : field == 25 ? Message::kFunction : Message::kNone;
    case Message::kGraph:
      return field == 1    ? Message::kNode
             : field == 5  ? Message::kTensor
             : field == 15 ? Message::kSparse
                           : Message::kNone;
    case Message::kNode:
      return field == 5 ? Message::kAttribute : Message::kNone;
    case Message::kAttribute:
      return field == 5 || field == 10    ? Message::kTensor
             : field == 6 || field == 11  ? Message::kGraph
             : field == 22 || field == 23 ? Message::kSparse
                                          : Message::kNone;
    case Message::kFunction:
      return field == 7 ? Message::kNode : field == 11 ? Message::kAttribute : Message::kNone;
    case Message::kSparse:
      return field == 1 || field == 2 ? Message::kTensor : Message::kNone;
    default:
      return Message::kNone;
  }
}

struct Field {
  uint32_t number = 0, wire = 0;
  std::string_view whole = {};    // with its tag
  std::string_view payload = {};  // of wire type 2
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  bool next(Field& field) {
    if (at_ == bytes_.size()) return false;
    const size_t begin = at_;
    const uint64_t tag = varint();
    TERN_CHECK(tag >> 3 > 0 && tag >> 3 < (1u << 29), "it is no protobuf message");
    field = {static_cast<uint32_t>(tag >> 3), static_cast<uint32_t>(tag & 7)};
    switch (field.wire) {
      case 0:
        varint();
        break;
      case 1:
        skip(8);
        break;
      case 2: {
        const uint64_t length = varint();
        const size_t start = at_;
        skip(length);
        field.payload = bytes_.substr(start, length);
        break;
      }
      case 5:
        skip(4);
        break;
      default:
        fail("it is no protobuf message");
    }
    field.whole = bytes_.substr(begin, at_ - begin);
    return true;
  }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      TERN_CHECK(at_ < bytes_.size(), "it ends within a number: the file is cut");
      const auto byte = static_cast<uint8_t>(bytes_[at_++]);
      value |= static_cast<uint64_t>(byte & 127) << shift;
      if (byte < 128) return value;
    }
    fail("it is no protobuf message");
  }
  void skip(uint64_t count) {
    TERN_CHECK(count <= bytes_.size() - at_, "a field of ", count, " bytes has only ", bytes_.size() - at_,
               ": the file is cut or damaged");
    at_ += count;
  }

  std::string_view bytes_;
  size_t at_ = 0;
};

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 128; value >>= 7) out.push_back(static_cast<char>((value & 127) | 128));
  out.push_back(static_cast<char>(value));
}

class Scan {
 public:
  explicit Scan(std::string_view file) : file_(file) {}

  void message(std::string_view bytes, Message kind, int graphs, std::string& out) {
    TERN_CHECK(graphs <= kMostNestedGraphs, "its graphs are nested deeper than ", kMostNestedGraphs);
    if (kind == Message::kTensor) return tensor(bytes, out);
    Reader reader(bytes);
    for (Field field; reader.next(field);) {
      const Message inner = field.wire == 2 ? message_of(kind, field.number) : Message::kNone;
      if (inner == Message::kNone) {
        out.append(field.whole);
        continue;
      }
      std::string text;
      message(field.payload, inner, graphs + (inner == Message::kGraph), text);
      append_varint(out, field.number << 3 | 2);
      append_varint(out, text.size());
      out += text;
    }
  }

 private:
  void tensor(std::string_view bytes, std::string& out) {
    const auto holds_bytes = [](const Field& field) {
      return field.wire == 2 && (field.number == 9 || field.number == 4 || field.number == 10);
    };
    int places = 0;
    Reader first(bytes);
    for (Field field; first.next(field);) places += holds_bytes(field);
    Reader reader(bytes);
    for (Field field; reader.next(field);) {
      if (field.number == kPlaceOffset || field.number == kPlaceBytes) continue;
      if (places != 1 || !holds_bytes(field)) {
        out.append(field.whole);
        continue;
      }
      append_varint(out, kPlaceOffset << 3);
      append_varint(out, static_cast<uint64_t>(field.payload.data() - file_.data()));
      append_varint(out, kPlaceBytes << 3);
      append_varint(out, field.payload.size());
    }
  }

  std::string_view file_;
};

}  // namespace

std::string without_tensor_bytes(std::string_view file) {
  std::string out;
  Scan(file).message(file, Message::kModel, 0, out);
  return out;
}

}  // namespace tern::onnx

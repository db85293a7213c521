#include "tern/core/io/pickle.h"

#include <sstream>

#include "tern/core/io/pickle_reader.h"

namespace tern {

using pickle::Id;
using pickle::kNoId;

const char* name_of(PickleKind kind) {
  constexpr const char* names[] = {
      "None", "bool",  "integer", "big integer", "complex number", "float",   "text",        "bytes",
      "list", "tuple", "set",     "dict",        "tensor",         "storage", "numpy dtype", "global"};
  return names[static_cast<int>(kind)];
}

const pickle::Node& PickleValue::node() const {
  TERN_CHECK(tree_, "pickle: there is no such value");
  return (*tree_)[id_];
}

const pickle::Node& PickleValue::expect(PickleKind wanted) const {
  const pickle::Node& n = node();
  TERN_CHECK(n.kind == wanted, tree_->path, ": expected ", name_of(wanted), ", got ", describe());
  return n;
}

PickleKind PickleValue::kind() const { return node().kind; }
bool PickleValue::as_bool() const { return expect(PickleKind::kBool).integer != 0; }
int64_t PickleValue::as_integer() const { return expect(PickleKind::kInteger).integer; }

double PickleValue::as_float() const {
  return is(PickleKind::kInteger) ? static_cast<double>(node().integer) : expect(PickleKind::kFloat).number;
}

std::string_view PickleValue::as_text() const {
  const pickle::Node& n = node();
  if (n.kind == PickleKind::kGlobal || n.kind == PickleKind::kBytes || n.kind == PickleKind::kComplex) return n.view();
  return expect(PickleKind::kText).view();
}

Tensor PickleValue::as_tensor() const {
  const pickle::TensorSpec& spec = tree_->tensors[expect(PickleKind::kTensor).index];
  TERN_CHECK(spec.problem.empty(), tree_->path, ": a tensor cannot be read: ", spec.problem);
  return spec.tensor;
}

std::string_view PickleValue::tensor_problem() const {
  return tree_->tensors[expect(PickleKind::kTensor).index].problem;
}

std::string_view PickleValue::stored_dtype() const {
  const pickle::ElementType* element = tree_->tensors[expect(PickleKind::kTensor).index].element;
  return element ? element->name : "";
}

size_t PickleValue::size() const {
  switch (kind()) {
    case PickleKind::kList:
    case PickleKind::kTuple:
    case PickleKind::kSet:
      return tree_->items(id_).size();
    case PickleKind::kDict:
      return tree_->items(id_).size() / 2;
    default:
      fail(tree_->path, ": expected a container, got ", describe());
  }
}

PickleValue PickleValue::operator[](size_t i) const {
  TERN_CHECK(i < size(), tree_->path, ": item ", i, " of ", describe());
  return {tree_, tree_->items(id_)[is(PickleKind::kDict) ? 2 * i + 1 : i]};
}

PickleValue PickleValue::key(size_t i) const {
  expect(PickleKind::kDict);
  TERN_CHECK(i < size(), tree_->path, ": entry ", i, " of ", describe());
  return {tree_, tree_->items(id_)[2 * i]};
}

PickleValue PickleValue::find(std::string_view key) const {
  expect(PickleKind::kDict);
  const Id found = tree_->find(id_, key);
  return found == kNoId ? PickleValue() : PickleValue(tree_, found);
}

namespace {

void describe_tensor(std::ostream& out, const pickle::TensorSpec& spec) {
  const bool shaped = spec.element && spec.dims >= 0;
  if (shaped) {
    out << spec.element->name << " [";
    for (int d = 0; d < spec.dims; ++d) out << (d ? ", " : "") << spec.sizes[d];
    out << "]";
  }
  if (!spec.problem.empty()) out << (shaped ? ": " : "") << spec.problem;
}

}  // namespace

std::string PickleValue::describe() const {
  const pickle::Node& n = node();
  std::ostringstream out;
  switch (n.kind) {
    case PickleKind::kBool:
      out << (n.integer ? "True" : "False");
      break;
    case PickleKind::kInteger:
      out << n.integer;
      break;
    case PickleKind::kFloat:
      out << n.number;
      break;
    case PickleKind::kText:
      out << "'" << detail::printable(n.view()) << "'";
      break;
    case PickleKind::kBytes:
      if (n.length > 100)
        out << n.length << " bytes";
      else
        out << "b'" << detail::printable(n.view()) << "'";
      break;
    case PickleKind::kBigInteger:
    case PickleKind::kComplex:
    case PickleKind::kGlobal:
      out << detail::printable(n.view());
      break;
    case PickleKind::kTensor:
      describe_tensor(out, tree_->tensors[n.index]);
      break;
    case PickleKind::kNone:
    case PickleKind::kStorage:
    case PickleKind::kNumpyType:
      out << name_of(n.kind);
      break;
    default:
      out << name_of(n.kind) << " of " << size();
  }
  return out.str();
}

std::string detail::printable(std::string_view text, size_t limit) {
  const bool cut = text.size() > limit;
  const bool utf8 = pickle::is_utf8(text);
  if (cut) text = text.substr(0, limit);
  while (cut && utf8 && !text.empty() && !pickle::is_utf8(text)) text.remove_suffix(1);
  std::string out;
  const auto append_escaped = [&](uint8_t byte) {
    out += "\\x";
    for (const int shift : {4, 0}) out += "0123456789abcdef"[(byte >> shift) & 15];
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    const bool second_control = byte == 0xc2 && i + 1 < text.size() && static_cast<uint8_t>(text[i + 1]) < 0xa0;
    if (byte >= 0x20 && byte != 0x7f && (byte < 0x80 || utf8) && !second_control) {
      out += text[i];
      continue;
    }
    append_escaped(byte);
    // The second byte of a two-byte control character must not remain alone.
    if (second_control && utf8) append_escaped(static_cast<uint8_t>(text[++i]));
  }
  return out + (cut ? "..." : "");
}

PickleValue load_pickle(const std::string& path) {
  auto tree = std::make_shared<pickle::Tree>();
  tree->path = path;
  tree->file = std::make_shared<MappedFile>(path);
  TERN_CHECK(tree->file->bytes() > 0, path, ": the file is empty");
  const char* begin = tree->file->data();
  tree->root = pickle::Reader(*tree, path, begin, begin + tree->file->bytes(), false).read();
  pickle::build_tensors(*tree);
  tree->file->check();
  return {tree, tree->root};
}

}  // namespace tern

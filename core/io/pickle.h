#pragma once
// Python pickles as data. A pickle is a program for a small stack machine that may call any Python function; this
// reader has no Python interpreter and never runs code:
//
//   * None, numbers, text, bytes, lists, tuples, sets and dicts are built as they are. OrderedDict, defaultdict,
//     Counter and argparse.Namespace become dicts, a deque a list, torch.Size a tuple, paths and torch.device text.
//   * Functions that rebuild tensors, parameters and numpy arrays are recognised by name and implemented here. Tensors
//     that Tern cannot hold (sparse, quantised, nested, meta, of an unknown subclass) are described and not read.
//   * A mention of any other class or function is an Error that names it, even without a call.
//   * Memory is bounded by a multiple of the file's size; nesting costs no recursion.
//
// All protocols (0 to 5) are read; text of Python 2 is kBytes. https://docs.python.org/3/library/pickletools.html

#include <memory>
#include <string>
#include <string_view>

#include "tern/core/tensor.h"

namespace tern {

namespace pickle {
struct Tree;
struct Node;
}  // namespace pickle

enum class PickleKind : uint8_t {
  kNone,
  kBool,
  kInteger,     // fits 64 bits
  kBigInteger,  // larger
  kComplex,     // as_text(): "(1+2j)"
  kFloat,
  kText,
  kBytes,
  kList,
  kTuple,
  kSet,
  kDict,
  kTensor,     // PyTorch's or numpy's
  kStorage,    // PyTorch's, without a tensor
  kNumpyType,  // a numpy.dtype
  kGlobal      // the name of a dtype, or of a listed class or function
};

/// "list", "integer", ...
const char* name_of(PickleKind kind);

/// A value of a pickle: a cheap handle that keeps the file open. Lists may contain themselves. Reading a value as
/// another kind, or an index that does not exist, is an Error that names the file.
class PickleValue {
 public:
  PickleValue() = default;
  PickleValue(std::shared_ptr<const pickle::Tree> tree, uint32_t id) : tree_(std::move(tree)), id_(id) {}

  bool defined() const { return tree_ != nullptr; }
  PickleKind kind() const;
  bool is(PickleKind wanted) const { return defined() && kind() == wanted; }

  bool as_bool() const;
  int64_t as_integer() const;
  /// Integers are converted.
  double as_float() const;
  /// Text (UTF-8), bytes, a complex number, or a kGlobal's "module.name". Valid as long as the value's handle.
  std::string_view as_text() const;
  /// A view of the file where its bytes are aligned. Throws Error for a tensor that cannot be read.
  Tensor as_tensor() const;
  /// Why a tensor cannot be read: "int16 [2, 3]: ..."; empty when it can.
  std::string_view tensor_problem() const;
  /// A tensor's type in the file, such as "int16" (read as int32). Empty when it is unknown.
  std::string_view stored_dtype() const;

  /// The number of items of a list, tuple or set, or of entries of a dict.
  size_t size() const;
  /// Item i, or the value of a dict's entry i in the file's order.
  PickleValue operator[](size_t i) const;
  PickleValue key(size_t i) const;
  /// A dict's value with this text as key; an undefined handle when there is none.
  PickleValue find(std::string_view key) const;

  /// One printable line: "7", "'adam'", "dict of 3", "float32 [2, 3]".
  std::string describe() const;
  uint32_t id() const { return id_; }

 private:
  const pickle::Node& node() const;
  const pickle::Node& expect(PickleKind wanted) const;

  std::shared_ptr<const pickle::Tree> tree_;
  uint32_t id_ = 0;
};

/// Reads a file of one pickle, for example one of the CIFAR-10 Python batches: a dict of "data", a uint8 tensor [10000,
/// 3072], and "labels", a list. numpy arrays become tensors. Errors, which name the file and the byte: truncated,
/// damaged, more than 10,000,000 values, a class or function that is not listed.
PickleValue load_pickle(const std::string& path);

namespace detail {
/// Text for one terminal line: control characters and bytes that are not UTF-8 as \xNN, cut after `limit` bytes.
std::string printable(std::string_view text, size_t limit = 100);
}  // namespace detail

}  // namespace tern

#pragma once
// The stack machine that converts a pickle's instructions to a Tree, and the Tree: nodes in one vector that refer to
// each other by index, so that cycles, sharing and nesting of any depth need no recursion and no more memory than a
// multiple of the file's size. Internal to core/io.

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "tern/core/io/element_type.h"
#include "tern/core/io/mapped_file.h"
#include "tern/core/io/pickle.h"

namespace tern::pickle {

using Id = uint32_t;
inline constexpr Id kNoId = UINT32_MAX;

using detail::element_by_name, detail::element_by_numpy, detail::element_by_storage, detail::ElementType;

struct Node {
  PickleKind kind = PickleKind::kNone;
  uint32_t index = 0;  // list, tuple, set, dict: in containers; tensor: in tensors; storage: in storages; numpy type: 1
                       // when bytes are swapped
  union {
    int64_t integer = 0;  // bool, integer; dict: 1 for a Namespace, whose entries follow as its state
    double number;
    const char* text;  // text, bytes, global; big integer: its digits; numpy type: its code
  };
  uint64_t length = 0;  // of text

  std::string_view view() const { return {text, length}; }
};

/// A storage as described in the pickle; its bytes are elsewhere in the file.
struct StorageSpec {
  const ElementType* element = nullptr;  // null: untyped, counted in bytes
  std::string key;
  int64_t numel = 0;
  int64_t view_offset = 0, view_numel = -1;  // the older format's views of storages; -1: all

  int64_t element_bytes() const { return element ? element->bytes : 1; }
};

inline constexpr int kUnbuilt = -1;  // dims of a numpy array before its state is read

/// A tensor as described in the pickle, and the tensor once its bytes are found.
struct TensorSpec {
  Id source = kNoId;  // a storage, or bytes for a numpy array
  const ElementType* element = nullptr;
  int dims = 0;
  int64_t offset = 0;  // in elements
  int64_t sizes[kMaxDims] = {}, strides[kMaxDims] = {};
  bool swapped = false;  // numpy's big-endian arrays
  std::string problem;   // why it cannot be read
  Tensor tensor;
};

struct Tree {
  std::string path;
  std::shared_ptr<MappedFile> file;
  std::vector<Node> nodes;
  std::vector<std::vector<Id>> containers;  // of a dict: key, value, key, value, ...
  std::vector<StorageSpec> storages;
  std::vector<TensorSpec> tensors;
  std::deque<std::string> owned;  // text that is not in the file in this form
  Id root = 0;

  const Node& operator[](Id id) const { return nodes[id]; }
  const std::vector<Id>& items(Id id) const { return containers[nodes[id].index]; }
  bool is_text(Id id) const { return nodes[id].kind == PickleKind::kText || nodes[id].kind == PickleKind::kBytes; }
  /// The last value of a dict with this text as key; kNoId: none.
  Id find(Id id, std::string_view key) const;
};

/// Accepts surrogates, because Python's pickles contain them.
bool is_utf8(std::string_view text);

/// Creates all tensors: numpy's arrays from bytes of the pickle, PyTorch's from the bytes that `find` returns for their
/// storages (null: the pickle can have none). `swapped`: the storages are big-endian. An Error names the tensor by its
/// path in the tree.
using FindStorage = std::function<std::string_view(const StorageSpec&)>;
void build_tensors(Tree& tree, bool swapped = false, const FindStorage& find = nullptr);

inline constexpr size_t kMaxValues = 10'000'000;
inline constexpr size_t kMaxTensors = 1'000'000;

/// Reads one pickle from [begin, end), which must be inside the tree's file. A file of several pickles needs one reader
/// after another with the same tree.
class Reader {
 public:
  /// `torch`: persistent ids are PyTorch's storages; otherwise they are an Error. `where` begins every message.
  Reader(Tree& tree, std::string where, const char* begin, const char* end, bool torch);

  /// The pickle's value. Throws Error unless the pickle is complete, valid and uses only supported names.
  Id read();
  /// The byte after the pickle.
  const char* position() const { return at_; }

 private:
  struct Arguments {
    std::string name;  // of the function, for messages
    std::span<const Id> items;
  };
  using Handler = Id (Reader::*)(const Arguments&);
  static const std::unordered_map<std::string_view, Handler>& handlers();
  static bool is_listed(std::string_view name);

  template <class... Parts>
  [[noreturn]] void damaged(const Parts&... parts) const {
    fail(where_, ": at byte ", at_ - begin_, " of the pickle: ", parts...);
  }

  // Instructions (pickle_reader.cpp). Each returns whether it handles the instruction.
  bool constant(char op);
  bool counted_text(char op);
  bool line(char op);
  bool collect(char op);
  bool memoize(char op);
  bool call(char op);

  // Bytes.
  void need(uint64_t bytes) const;
  uint64_t number(int bytes);
  std::string_view take(uint64_t bytes);
  std::string_view take_line();
  void long_integer(std::string_view little_endian);
  void decimal(std::string_view digits);

  // The stack. Items below the last mark are not accessible.
  void push(Id id) { stack_.push_back(id); }
  Id pop();
  Id top() const;
  std::vector<Id> pop_mark();
  void pop_value_or_mark();

  // Values (pickle_values.cpp).
  Node& add(PickleKind kind);
  Id last() const { return static_cast<Id>(tree_.nodes.size() - 1); }
  Id integer(PickleKind kind, int64_t value);
  Id text(PickleKind kind, std::string_view view);
  Id own(PickleKind kind, std::string value);
  Id container(PickleKind kind, std::vector<Id> items);
  Id global(std::string_view module, std::string_view name);
  Id tensor(TensorSpec spec);
  void append(Id target, std::span<const Id> items);
  void set_items(Id target, std::span<const Id> pairs);
  void build(Id target, Id state);
  Id persistent(Id id);
  Id storage(std::span<const Id> items);

  // Calls (pickle_calls.cpp): the results of the functions with these names.
  Id call_global(Id function, std::span<const Id> arguments);
  std::span<const Id> sequence(Id id, const char* what) const;
  int64_t as_integer(Id id, const char* what) const;
  std::string_view as_text(Id id, const char* what) const;
  Id argument(const Arguments& a, size_t i) const;
  Id first_tensor(const Arguments& a);
  Id make_dict(const Arguments& a);
  Id make_default_dict(const Arguments& a);
  Id make_set(const Arguments& a);
  Id make_list(const Arguments& a);
  Id make_plain(const Arguments& a);
  Id make_complex(const Arguments& a);
  Id complex_number(double real, double imaginary);
  Id make_size(const Arguments& a);
  Id make_bytes(const Arguments& a);
  Id make_path(const Arguments& a);
  Id make_device(const Arguments& a);
  Id make_namespace(const Arguments& a);
  Id encode(const Arguments& a);
  Id rebuild_tensor(const Arguments& a);
  const char* pending_flag(Id metadata);
  Id rebuild_tensor_v3(const Arguments& a);
  Id rebuild_subclass(const Arguments& a);
  Id unreadable_tensor(std::string problem, const ElementType* element = nullptr, Id size = kNoId);
  Id rebuild_sparse(const Arguments& a);
  Id rebuild_quantized(const Arguments& a);
  Id rebuild_meta(const Arguments& a);
  Id rebuild_nested(const Arguments& a);
  Id rebuild_wrapper(const Arguments& a);
  Id uninitialized(const Arguments& a);
  Id tensor_of_storage(const Arguments& a, const ElementType* element);
  const ElementType* dtype_named(Id dtype) const;
  void set_layout(TensorSpec& spec, std::span<const Id> sizes, std::span<const Id> strides);
  Id numpy_type(const Arguments& a);
  Id numpy_array(const Arguments& a);
  Id numpy_from_buffer(const Arguments& a);
  Id numpy_scalar(const Arguments& a);
  void set_array(TensorSpec& spec, Id bytes, Id type, Id shape, bool fortran);
  void build_array(TensorSpec& spec, Id state);

  Tree& tree_;
  const std::string where_;
  const char* const begin_;
  const char* at_;
  const char* const end_;
  const bool torch_;
  void account(size_t references, size_t text_bytes);
  size_t references_ = 0, text_bytes_ = 0;
  std::vector<Id> stack_;
  std::vector<size_t> marks_;
  std::vector<Id> memo_;                          // the usual case: numbered in order
  std::unordered_map<uint32_t, Id> sparse_memo_;  // all other numbers
  /// For a dict that many tensors may share: the last entries with these names among the first `seen` items.
  struct PendingFlags {
    size_t seen = 0;
    Id conj = kNoId, neg = kNoId;
  };
  std::unordered_map<Id, PendingFlags> pending_flags_;
  std::unordered_map<Id, Id> encoded_;  // text to its bytes: a repeated call must not take more memory
};

}  // namespace tern::pickle

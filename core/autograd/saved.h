#pragma once
// Tensors saved for backward, as members of a Function. They are checked against in-place changes, and the engine drops
// them as soon as the op's backward has run.

#include "tern/core/autograd/node.h"

namespace tern {

namespace detail {

class Recomputation;

/// A saved tensor with its version, or a place in a function that checkpoint() will run again.
class Kept {
 public:
  /// Saves nothing when the tensor is undefined. op: what saves it, a constant.
  void keep(const Tensor& tensor, const char* op);
  bool defined() const { return tensor_.defined() || recomputation_; }
  /// Throws Error naming `op` when nothing is saved or when the tensor was modified in place since.
  Tensor get(const char* op) const;
  void drop();
  /// The tensor, unchecked; undefined when none is saved or when a checkpoint will compute it again.
  const Tensor& held() const { return tensor_; }

 private:
  Tensor tensor_;
  uint32_t version_ = 0;
  int64_t place_ = 0;
  std::shared_ptr<Recomputation> recomputation_;
};

class SavedBase {
 public:
  SavedBase();  // attaches itself to the node under construction
  virtual ~SavedBase() = default;
  SavedBase(const SavedBase&) = delete;
  SavedBase& operator=(const SavedBase&) = delete;
  /// True when something was saved (an optional input may have been undefined).
  bool defined() const { return kept_.defined(); }

 protected:
  friend class Node;
  void store(const Tensor& tensor);
  Tensor kept() const;
  Node* node_;
  SavedBase* next_;  // in the node's list
  Kept kept_;
};

}  // namespace detail

/// An input, or any other tensor that is not an output of the op. Assign it in forward, where needed; nothing is saved
/// when the op is not recorded. get() throws Error when the tensor was modified in place or already released.
class Saved : public detail::SavedBase {
 public:
  Saved& operator=(const Tensor& tensor) {
    store(tensor);
    return *this;
  }
  Tensor get() const;
  /// get(), or an undefined tensor when nothing was saved.
  Tensor get_or_none() const { return defined() || node_->released() ? get() : Tensor(); }
};

/// Output `index` of the op, saved without a reference cycle.
class SavedOutput : public detail::SavedBase {
 public:
  void save(const Tensor& output, int index = 0);
  SavedOutput& operator=(const Tensor& output) {
    save(output);
    return *this;
  }
  Tensor get() const;
  Tensor get_or_none() const { return defined() || node_->released() ? get() : Tensor(); }

 private:
  int index_ = 0;
};

}  // namespace tern

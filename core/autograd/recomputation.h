#pragma once
// Behind checkpoint(): one run of a function whose saved tensors can be computed again.

#include <functional>
#include <memory>
#include <vector>

#include "tern/core/autograd/saved.h"
#include "tern/core/device.h"
#include "tern/kernels/random.h"

namespace tern::detail {

/// While it runs fn, tensors saved for backward (Kept) become places, numbered in the order of their saving. The first
/// place that is opened runs fn again, in which tensors are collected in the same order; it ends with the last of them.
class Recomputation : public std::enable_shared_from_this<Recomputation> {
 public:
  using Fn = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
  Recomputation(Fn fn, const std::vector<Tensor>& inputs);

  std::vector<Tensor> run(const std::vector<Tensor>& inputs);
  /// The tensor of a place, for `op`'s backward.
  Tensor value(int64_t place, const char* op);
  /// The place will not be opened again.
  void drop(int64_t place);

  /// What Kept asks when a tensor is saved: the place it gets, or null when nothing is being run for the first time.
  static std::shared_ptr<Recomputation> save(const Tensor& tensor, int64_t& place);
  /// Ends the function being run again once all of its places are there: what it would still compute, nobody reads. An
  /// op may call this between what it saves, if that is filled already, and its work. Throws what run_again() catches.
  static void end_if_complete();
  /// Called as an op begins: ends what is complete, and remembers the versions of the leaves that the op will use.
  static void begin_op(const Tensor* const* inputs, int count);
  /// The next draw of a generator, whose offset advances.
  static kernels::RandomKey draw(kernels::RandomKey& next);

 private:
  struct Frame;
  class Scope;
  struct Complete {};  // thrown; no std::exception, which fn might catch
  struct Place {
    Shape shape;
    DType dtype;
  };
  struct Leaf {
    std::weak_ptr<Storage> storage;
    uint32_t version;
  };

  void run_again(const char* op);
  void check_leaves() const;

  Fn fn_;
  std::vector<Kept> inputs_;
  std::vector<bool> inputs_require_grad_;
  DType autocast_[2];  // by DeviceType
  std::vector<Place> places_;
  std::vector<kernels::RandomKey> draws_;
  std::vector<Leaf> leaves_;
  std::vector<Tensor> values_;  // of places; empty until the second run

  static constinit thread_local Frame* top_;  // the innermost function being run on this thread
};

}  // namespace tern::detail

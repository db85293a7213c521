#pragma once
// The implementation of checkpoint(): a run of a function whose saved tensors can be computed again.

#include <functional>
#include <memory>
#include <vector>

#include "tern/core/autograd/replaced_handles.h"
#include "tern/core/autograd/saved.h"
#include "tern/core/device/device.h"
#include "tern/kernels/random.h"

namespace tern::detail {

/// While fn runs, each tensor saved for backward (Kept) becomes a place, numbered in the order of saving. The first
/// access to a place runs fn again and collects the tensors in the same order; that run ends with the last of them.
class Recomputation : public std::enable_shared_from_this<Recomputation> {
 public:
  using Fn = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
  Recomputation(Fn fn, const std::vector<Tensor>& inputs);

  std::vector<Tensor> run(const std::vector<Tensor>& inputs);
  /// The tensor of a place, for `op`'s backward.
  Tensor value(int64_t place, const char* op);
  /// The tensor of the place is no longer needed.
  void drop(int64_t place);

  /// Called when `op` saves a tensor: assigns a place; null when no function is in its first run.
  static std::shared_ptr<Recomputation> save(const Tensor& tensor, const char* op, int64_t& place);
  /// Ends the second run once all of its places are filled, because its further results are not used. An op may call
  /// this after filling its saved tensors and before its remaining work. Throws; run_again() catches it.
  static void end_if_complete();
  /// Called when an op begins: ends a complete run and records the versions of the leaves that the op uses.
  static void begin_op(const Tensor* const* inputs, int count);
  /// Returns the next key of a generator and advances its offset.
  static kernels::RandomKey draw(kernels::RandomKey& next);
  static bool running_again() { return innermost_rerun() != nullptr; }

 private:
  struct Frame;
  static Frame* innermost_rerun();
  class Scope;
  struct Complete {};  // thrown; not derived from std::exception, which fn might catch
  struct Place {
    const char* op;  // that saved it
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
  DType autocast_[2];  // indexed by DeviceType
  ReplacedHandles::List handles_ = ReplacedHandles::now();
  std::vector<Place> places_;
  std::vector<kernels::RandomKey> draws_;
  std::vector<Leaf> leaves_;
  std::vector<Tensor> values_;  // indexed by place; empty until the second run

  static constinit thread_local Frame* top_;  // the innermost running function of this thread
};

}  // namespace tern::detail

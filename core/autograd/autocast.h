#pragma once
// Mixed precision: in an autocast region matrix products run in 16 bits, everything else in the type of its inputs.
//
// A table (kCastTable in autocast.cpp) gives the policy of each op: low precision (matmul, linear, attention), fp32
// (exp, log, pow, sums, squares), the widest of the inputs' types, or unchanged. Norms, softmax and losses keep 16-bit
// storage and compute in fp32 inside their kernels. Never cast are fp64 and integer tensors, the operands of in-place
// ops, and the input of to(dtype). Weights (leaves that require a gradient) are cast once per outermost region; the
// copies are kept, and the next region updates all copies that earlier regions used in one kernel.

#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "tern/core/tensor.h"

namespace tern {

namespace detail {
enum class CastPolicy { kLow, kFp32, kWidest, kAsIs };
/// The policy of the op with this name; kAsIs for unknown names.
CastPolicy cast_policy(const char* op);
}  // namespace detail

/// True inside an enabled region of this thread for this type of device.
bool autocast_enabled(Device device);
DType autocast_active_dtype(Device device);

/// Enables autocast for a device in a scope or, with float32, disables it. Regions nest.
class Autocast {
 public:
  [[nodiscard]] Autocast(Device device, DType dtype);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  Device device_;
  DType previous_;
};

/// Runs fn in a region: Tensor loss = autocast(device, bfloat16, [&] { return ...; });
template <class F>
decltype(auto) autocast(Device device, DType dtype, F&& fn) {
  Autocast region(device, dtype);
  return std::forward<F>(fn)();
}

namespace detail {
/// For ops: casts the inputs by the policy of `op`. Undefined tensors stay undefined.
void autocast_inputs(const char* op, std::span<Tensor* const> inputs);
inline void autocast_inputs(const char* op, std::initializer_list<Tensor*> inputs) {
  autocast_inputs(op, std::span<Tensor* const>(inputs.begin(), inputs.size()));
}

/// For ops that compute in another type than their weight's and return its gradient in the weight's type: x in `dtype`,
/// without history. For a weight inside a region this is the copy that the region keeps.
Tensor autocast_copy(const Tensor& x, DType dtype);
/// The advice that ends an op's Error about input types that cannot be mixed: autocast converts neither float64 nor
/// integers.
std::string dtype_hint(const std::vector<Tensor>& inputs);
/// For captured steps, whose replays change weights without the host: this thread's copies, and a function that marks
/// all of them as out of date.
std::vector<Tensor> weight_copies();
void expire_weight_copies();
}  // namespace detail

}  // namespace tern

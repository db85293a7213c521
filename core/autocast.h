#pragma once
// Mixed precision: in an autocast region matrix products run in 16 bits, everything else in the type its inputs have.
//
// A table (kCastTable in autocast.cpp) says per op: low precision (matmul, linear, attention), fp32 (exp, log, pow,
// sums, squares), the widest of the inputs' types, or as is. Norms, softmax and losses keep 16-bit storage and compute
// in fp32 inside their kernels. Never cast: fp64 and integer tensors, what an op in place writes and reads, and
// to(dtype). Weights (leaves that require a gradient) are cast once per outermost region; their copies stay, and all
// that earlier regions used are renewed together when the next begins.

#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "tern/core/tensor.h"

namespace tern {

namespace detail {
enum class CastPolicy { kLow, kFp32, kWidest, kAsIs };
/// The policy of an op by name; kAsIs for unknown names.
CastPolicy cast_policy(const char* op);
}  // namespace detail

/// True inside an enabled region (on this thread) for the device's kind.
bool autocast_enabled(Device device);
DType autocast_active_dtype(Device device);

/// Enables (or, with float32, disables) autocast for a device in a scope. Regions nest.
class Autocast {
 public:
  Autocast(Device device, DType dtype);
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
/// For ops: the inputs as the table wants them for `op`. Undefined tensors pass through.
void autocast_inputs(const char* op, std::span<Tensor* const> inputs);
inline void autocast_inputs(const char* op, std::initializer_list<Tensor*> inputs) {
  autocast_inputs(op, std::span<Tensor* const>(inputs.begin(), inputs.size()));
}

/// For ops that compute in another type than their weight's and give its gradient in the weight's type themselves: x in
/// `dtype`, without history. That of a weight inside a region is the region's one copy.
Tensor autocast_copy(const Tensor& x, DType dtype);
/// What to do when an op got tensors of these types that it cannot take together, to end its Error with: autocast
/// converts neither float64 nor integers.
std::string dtype_hint(const std::vector<Tensor>& inputs);
/// For captured steps, which write weights without passing through the host: the copies that this thread holds, and
/// the order to take none of them for current.
std::vector<Tensor> weight_copies();
void expire_weight_copies();
}  // namespace detail

}  // namespace tern

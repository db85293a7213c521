#include "tern/core/autocast.h"

#include <cstring>
#include <map>
#include <string_view>
#include <unordered_map>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/autograd/node.h"

namespace tern {
namespace {

// Every op asks whether autocast is on: plain members, so that the question costs no initialisation of thread storage.
struct State {
  DType dtype[2] = {DType::kFloat32, DType::kFloat32};  // by DeviceType; float32 means off
  int depth = 0;
};
constinit thread_local State state;

struct CastWeight {
  Tensor leaf;  // kept alive, so that its address cannot be reused meanwhile
  Tensor cast;
  uint32_t version = 0;  // of the leaf when it was cast: an optimizer may step inside the region
};
thread_local std::unordered_map<TensorImpl*, CastWeight> cast_weights;

Tensor cast_cached(const Tensor& x, DType dtype) {
  if (!(x.is_leaf() && x.requires_grad() && grad_enabled())) return x.to(dtype);
  CastWeight& weight = cast_weights[x.impl()];
  if (!weight.cast.defined() || weight.cast.dtype() != dtype || weight.version != x.version())
    weight = {x, x.to(dtype), x.version()};
  return weight.cast;
}

bool castable(const Tensor& x) { return x.defined() && is_floating(x.dtype()) && x.dtype() != DType::kFloat64; }

DType widest(const std::vector<Tensor*>& inputs) {
  DType result = DType::kFloat16;
  bool first = true;
  for (const Tensor* x : inputs) {
    if (!castable(*x)) continue;
    if (first)
      result = x->dtype();
    else if (x->dtype() != result)
      result = DType::kFloat32;
    first = false;
  }
  return result;
}

}  // namespace

CastPolicy cast_policy(const char* op) {
  static const std::map<std::string_view, CastPolicy> table = {{"matmul", CastPolicy::kLow},
                                                               {"linear", CastPolicy::kLow},
                                                               {"attention", CastPolicy::kLow},
                                                               {"exp", CastPolicy::kFp32},
                                                               {"log", CastPolicy::kFp32},
                                                               {"pow", CastPolicy::kFp32},
                                                               {"pow_scalar", CastPolicy::kFp32},
                                                               {"rsqrt", CastPolicy::kFp32},
                                                               {"reciprocal", CastPolicy::kFp32},
                                                               {"sum", CastPolicy::kFp32},
                                                               {"norm", CastPolicy::kFp32},
                                                               {"mse_loss", CastPolicy::kFp32},
                                                               {"add", CastPolicy::kWidest},
                                                               {"sub", CastPolicy::kWidest},
                                                               {"mul", CastPolicy::kWidest},
                                                               {"div", CastPolicy::kWidest},
                                                               {"where", CastPolicy::kWidest},
                                                               {"cat", CastPolicy::kWidest},
                                                               {"dropout_residual_layer_norm", CastPolicy::kWidest}};
  const auto found = table.find(op);
  return found == table.end() ? CastPolicy::kAsIs : found->second;
}

bool autocast_enabled(Device device) { return autocast_active_dtype(device) != DType::kFloat32; }
DType autocast_active_dtype(Device device) { return state.dtype[static_cast<int>(device.type)]; }

Autocast::Autocast(Device device, DType dtype) : device_(device), previous_(autocast_active_dtype(device)) {
  TERN_CHECK(dtype == float32 || is_low_precision(dtype), "autocast: expected bfloat16, float16 or float32 (off), got ",
             dtype);
  state.dtype[static_cast<int>(device.type)] = dtype;
  ++state.depth;
}

Autocast::~Autocast() {
  state.dtype[static_cast<int>(device_.type)] = previous_;
  if (--state.depth == 0) cast_weights.clear();
}

void autocast_inputs(const char* op, std::vector<Tensor*> inputs) {
  Device device;
  for (const Tensor* x : inputs)
    if (x->defined()) device = x->device();
  if (!autocast_enabled(device)) return;
  const CastPolicy policy = cast_policy(op);
  if (policy == CastPolicy::kAsIs) return;
  const DType dtype = policy == CastPolicy::kLow    ? autocast_active_dtype(device)
                      : policy == CastPolicy::kFp32 ? DType::kFloat32
                                                    : widest(inputs);
  for (Tensor* x : inputs)
    if (castable(*x) && x->dtype() != dtype) *x = cast_cached(*x, dtype);
}

}  // namespace tern

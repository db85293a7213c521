#include "tern/core/autocast.h"

#include <initializer_list>
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

struct CastRow {
  CastPolicy policy;
  std::initializer_list<const char*> ops;
};
/// The table, the same on every device and for both 16-bit types: PyTorch's (docs/source/amp.rst) but for softmax,
/// log_softmax, layer_norm and cross_entropy, which keep 16-bit storage and compute in fp32 inside the kernel. What is
/// not listed takes its inputs as they are; those of several types meet by promotion (add, mul, where, cat...).
const CastRow kCastTable[] = {
    {CastPolicy::kLow, {"matmul", "linear", "attention"}},
    {CastPolicy::kFp32,
     {"exp", "expm1", "log", "log1p", "pow", "pow_scalar", "square", "reciprocal", "rsqrt", "softplus", "sum", "norm",
      "mse_loss"}},
    {CastPolicy::kWidest, {"addcmul", "dropout_residual_layer_norm"}},
};

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
  static const std::map<std::string_view, CastPolicy> policies = [] {
    std::map<std::string_view, CastPolicy> result;
    for (const CastRow& row : kCastTable)
      for (const char* name : row.ops) result[name] = row.policy;
    return result;
  }();
  const auto found = policies.find(op);
  return found == policies.end() ? CastPolicy::kAsIs : found->second;
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

#include "tern/core/autograd/autocast.h"

#include <initializer_list>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "tern/core/autograd/function.h"
#include "tern/core/memory/allocator.h"
#include "tern/core/profiler/profiler.h"
#include "tern/kernels/copy.h"

namespace tern {
namespace {

// Every op checks whether autocast is on. Plain members make thread-local access need no initialisation check.
struct State {
  DType dtype[2] = {DType::kFloat32, DType::kFloat32};  // indexed by DeviceType; float32 means off
  int depth = 0;
};
constinit thread_local State state;

struct CastRow {
  detail::CastPolicy policy;
  std::initializer_list<const char*> ops;
};
/// PyTorch's table (docs/source/amp.rst), the same on every device and for both 16-bit types, except that softmax,
/// log_softmax, layer_norm and cross_entropy keep 16-bit storage and compute in fp32 inside the kernel. Ops that are
/// not listed take their inputs as they are; mixed types are resolved by promotion (add, mul, where, cat...).
const CastRow kCastTable[] = {
    {detail::CastPolicy::kLow, {"matmul", "linear", "attention", "convolution", "recurrent"}},
    {detail::CastPolicy::kFp32, {"exp",      "expm1",      "log",   "log1p",  "log2", "log10",    "pow",  "pow_scalar",
                                 "square",   "reciprocal", "rsqrt", "acos",   "asin", "cosh",     "sinh", "tan",
                                 "softplus", "sum",        "prod",  "cumsum", "norm", "nll_loss", "loss"}},
    {detail::CastPolicy::kWidest, {"addcmul", "atan2", "dropout_residual_layer_norm"}},
};

/// A copy of a weight in another type.
struct WeightCopy {
  std::weak_ptr<detail::TensorImpl> weight;
  Tensor copy;
  uint32_t version = 0;  // of the weight when it was copied: an optimizer may step inside the region
  bool current = true;
  int idle = 0;  // outermost regions begun since the last use
};
constexpr int kMaxIdle = 8;
thread_local std::unordered_map<detail::TensorImpl*, WeightCopy> copies;

/// Updates all copies of this device and dtype in place, in one kernel, and erases those that are no longer used.
void renew_copies(Device device, DType dtype) {
  std::vector<kernels::ConstView> from;
  std::vector<kernels::View> to;
  for (auto at = copies.begin(); at != copies.end();) {
    WeightCopy& kept = at->second;
    const Tensor weight(kept.weight.lock());
    const bool chosen = kept.copy.device() == device && kept.copy.dtype() == dtype;
    const bool alive = weight.defined() && weight.is_contiguous() && weight.shape() == kept.copy.shape() &&
                       weight.device() == kept.copy.device() && is_floating(weight.dtype());
    if (!alive || (chosen && ++kept.idle > kMaxIdle)) {
      at = copies.erase(at);
      continue;
    }
    if (chosen) {
      // Values saved for backward are out of date if the weight changed.
      if (!kept.current || kept.version != weight.version()) kept.copy.bump_version();
      kept.version = weight.version();
      kept.current = true;
      from.push_back(weight.const_view());
      to.push_back(kept.copy.view());
    }
    ++at;
  }
  if (from.empty()) return;
  const ProfileRange range("cast_weights", RangeKind::kOp);
  if (profiling())
    for (size_t i = 0; i < from.size(); ++i)
      profile_bytes(static_cast<double>(from[i].numel() * (size_of(from[i].dtype) + size_of(to[i].dtype))));
  kernels::copy_many(current_stream(device), from.data(), to.data(), static_cast<int64_t>(from.size()));
}

/// Returns the copy of a weight, with a backward that leads to the weight.
struct CastWeight final : TwiceDifferentiable<CastWeight> {
  static constexpr const char* kName = "to";
  Tensor forward(const Tensor& x, DType dtype) { return detail::alias(detail::autocast_copy(x, dtype)); }
  Grads backward(const Tensor& dy) override { return {dy}; }  // the engine converts the type
};

Tensor cast(const Tensor& x, DType dtype) {
  return x.is_leaf() && x.requires_grad() ? CastWeight::apply(x, dtype) : x.to(dtype);
}

bool castable(const Tensor& x) { return x.defined() && is_floating(x.dtype()) && x.dtype() != DType::kFloat64; }

DType widest(std::span<Tensor* const> inputs) {
  std::optional<DType> result;
  for (const Tensor* x : inputs)
    if (castable(*x)) result = result.value_or(x->dtype()) == x->dtype() ? x->dtype() : DType::kFloat32;
  return result.value_or(DType::kFloat16);
}

}  // namespace

detail::CastPolicy detail::cast_policy(const char* op) {
  static const std::map<std::string_view, detail::CastPolicy> policies = [] {
    std::map<std::string_view, detail::CastPolicy> result;
    for (const CastRow& row : kCastTable)
      for (const char* name : row.ops) result[name] = row.policy;
    return result;
  }();
  const auto found = policies.find(op);
  return found == policies.end() ? detail::CastPolicy::kAsIs : found->second;
}

bool autocast_enabled(Device device) { return autocast_active_dtype(device) != DType::kFloat32; }
DType autocast_active_dtype(Device device) { return state.dtype[static_cast<int>(device.type)]; }

Autocast::Autocast(Device device, DType dtype) : device_(device), previous_(autocast_active_dtype(device)) {
  TERN_CHECK(dtype == float32 || is_low_precision(dtype), "autocast: expected bfloat16, float16 or float32 (off), got ",
             dtype);
  if (state.depth == 0 && dtype != float32) renew_copies(device, dtype);
  state.dtype[static_cast<int>(device.type)] = dtype;
  ++state.depth;
}

Autocast::~Autocast() {
  state.dtype[static_cast<int>(device_.type)] = previous_;
  --state.depth;
}

void detail::autocast_inputs(const char* op, std::span<Tensor* const> inputs) {
  Device device;
  for (const Tensor* x : inputs)
    if (x->defined()) device = x->device();
  if (!autocast_enabled(device)) return;
  const detail::CastPolicy policy = detail::cast_policy(op);
  if (policy == detail::CastPolicy::kAsIs) return;
  const DType dtype = policy == detail::CastPolicy::kLow    ? autocast_active_dtype(device)
                      : policy == detail::CastPolicy::kFp32 ? DType::kFloat32
                                                            : widest(inputs);
  for (Tensor* x : inputs)
    if (castable(*x) && x->dtype() != dtype) *x = cast(*x, dtype);
}

Tensor detail::autocast_copy(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  const NoGrad off;
  if (state.depth == 0 || !x.is_leaf() || !x.requires_grad() || !x.is_contiguous()) return x.to(dtype);
  const auto at = copies.find(x.impl());
  if (at != copies.end()) {
    WeightCopy& kept = at->second;
    const bool same_weight = kept.weight.lock() == x.shared_impl() && kept.copy.dtype() == dtype;
    if (same_weight && kept.current && kept.version == x.version() && kept.copy.device() == x.device()) {
      kept.idle = 0;
      return kept.copy;
    }
  }
  const AllocationTag tag("weights in 16 bits", true);
  const Tensor copy = x.to(dtype);  // may run out of memory: then no copy is stored
  copies.insert_or_assign(x.impl(), WeightCopy{x.shared_impl(), copy, x.version()});
  return copy;
}

namespace detail {

std::string dtype_hint(const std::vector<Tensor>& inputs) {
  bool integral = false, wide = false;
  Device device;
  for (const Tensor& x : inputs) {
    if (!x.defined()) continue;
    device = x.device();
    integral = integral || !is_floating(x.dtype());
    wide = wide || x.dtype() == DType::kFloat64;
  }
  if (integral) return "; convert integers with to(float32)";
  if (!wide) return "; convert one with to(dtype), or compute in an autocast region, which converts both";
  return autocast_enabled(device)
             ? "; autocast never converts float64: convert it with to(float32), or compute outside of the region"
             : "; convert one of them with to(dtype)";
}

std::vector<Tensor> weight_copies() {
  std::vector<Tensor> result;
  for (const auto& [weight, kept] : copies) result.push_back(kept.copy);
  return result;
}

void expire_weight_copies() {
  for (auto& [weight, kept] : copies) kept.current = false;
}

}  // namespace detail

}  // namespace tern

#include "tern/models/c_api/ops.h"

#include "tern/core/autograd/engine.h"
#include "tern/core/ops/ops.h"
#include "tern/models/c_api/call.h"

namespace tern::models::c_api {
namespace {

Tensor binary_result(int32_t op, const Tensor& a, const Tensor& b) {
  switch (op) {
    case TERN_ADD:
      return add(a, b);
    case TERN_SUB:
      return sub(a, b);
    case TERN_MUL:
      return mul(a, b);
    case TERN_DIV:
      return div(a, b);
    case TERN_POW:
      return pow(a, b);
    case TERN_MAXIMUM:
      return maximum(a, b);
    case TERN_MINIMUM:
      return minimum(a, b);
    case TERN_EQUAL:
      return eq(a, b);
    case TERN_LESS:
      return lt(a, b);
  }
  refuse(TERN_ERROR_ARGUMENT, "op: expected TERN_ADD (1) to TERN_LESS (9), got ", op);
}

Tensor reduction_result(int32_t op, const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  switch (op) {
    case TERN_SUM:
      return sum(x, dims, keepdim);
    case TERN_MEAN:
      return mean(x, dims, keepdim);
    case TERN_MAX:
      return max(x, dims, keepdim);
    case TERN_MIN:
      return min(x, dims, keepdim);
  }
  refuse(TERN_ERROR_ARGUMENT, "op: expected TERN_SUM (1) to TERN_MIN (4), got ", op);
}

struct GraphFlags {
  bool retain, create, unused;
};
GraphFlags graph_flags(uint32_t flags, uint32_t allowed) {
  require((flags & ~allowed) == 0, "flags: ", flags, " has bits that this function does not know");
  return {(flags & TERN_RETAIN_GRAPH) != 0, (flags & TERN_CREATE_GRAPH) != 0, (flags & TERN_ALLOW_UNUSED) != 0};
}

/// The gradients of `count` outputs, of which any may be left out.
std::vector<Tensor> output_gradients(Call& call, tern_tensor* const* gradients, int32_t count) {
  if (gradients == nullptr) return {};
  return call.tensors(gradients, count, "gradients", true);
}

}  // namespace

Tensor unary_result(int32_t op, const Tensor& x) {
  switch (op) {
    case TERN_NEG:
      return neg(x);
    case TERN_ABS:
      return abs(x);
    case TERN_EXP:
      return exp(x);
    case TERN_LOG:
      return log(x);
    case TERN_SQRT:
      return sqrt(x);
    case TERN_SQUARE:
      return square(x);
    case TERN_RECIPROCAL:
      return reciprocal(x);
    case TERN_SIN:
      return sin(x);
    case TERN_COS:
      return cos(x);
    case TERN_TANH:
      return tanh(x);
    case TERN_SIGMOID:
      return sigmoid(x);
    case TERN_RELU:
      return relu(x);
    case TERN_GELU:
      return gelu(x);
    case TERN_SILU:
      return silu(x);
    case TERN_SOFTPLUS:
      return softplus(x);
  }
  refuse(TERN_ERROR_ARGUMENT, "op: expected TERN_NEG (1) to TERN_SOFTPLUS (15), got ", op);
}

Tensor loss_result(int32_t loss, const Tensor& prediction, const Tensor& target, const tern_loss_options& options) {
  require(options.reduction >= TERN_REDUCE_MEAN && options.reduction <= TERN_REDUCE_NONE,
          "tern_loss_options.reduction: expected TERN_REDUCE_MEAN (0), _SUM (1) or _NONE (2), got ", options.reduction);
  require(options.reserved == 0, "tern_loss_options.reserved must be 0, got ", options.reserved);
  const bool of_classes = loss == TERN_CROSS_ENTROPY;
  require(of_classes || options.label_smoothing == 0, "tern_loss_options.label_smoothing is for TERN_CROSS_ENTROPY");
  require(of_classes || options.has_ignore_index == 0, "tern_loss_options.ignore_index is for TERN_CROSS_ENTROPY");
  require(loss == TERN_HUBER || options.delta == 0, "tern_loss_options.delta is for TERN_HUBER");
  const auto reduction = static_cast<LossReduction>(options.reduction);
  switch (loss) {
    case TERN_CROSS_ENTROPY: {
      CrossEntropyOptions chosen{.label_smoothing = options.label_smoothing, .reduction = reduction};
      if (flag_of(options.has_ignore_index, "tern_loss_options.has_ignore_index"))
        chosen.ignore_index = options.ignore_index;
      return cross_entropy(prediction, target.dtype() == int32 ? target.to(int64) : target, chosen);
    }
    case TERN_MSE:
      return mse_loss(prediction, target, reduction);
    case TERN_L1:
      return l1_loss(prediction, target, reduction);
    case TERN_HUBER:
      return huber_loss(prediction, target, options.delta == 0 ? 1 : options.delta, reduction);
    case TERN_BCE_WITH_LOGITS:
      return binary_cross_entropy_with_logits(prediction, target, {.reduction = reduction});
  }
  refuse(TERN_ERROR_ARGUMENT, "loss: expected TERN_CROSS_ENTROPY (1) to TERN_BCE_WITH_LOGITS (5), got ", loss);
}
static_assert(static_cast<int>(LossReduction::kMean) == TERN_REDUCE_MEAN &&
              static_cast<int>(LossReduction::kSum) == TERN_REDUCE_SUM &&
              static_cast<int>(LossReduction::kNone) == TERN_REDUCE_NONE);

extern "C" {

tern_code tern_tensor_set_requires_grad(tern_tensor* tensor, int32_t requires_grad, tern_status* status) {
  return run_call("tern_tensor_set_requires_grad", status, [&](Call& call) {
    Tensor x = call.tensor(tensor, "tensor");
    x.set_requires_grad(flag_of(requires_grad, "requires_grad"));
  });
}
tern_code tern_tensor_requires_grad(tern_tensor* tensor, int32_t* requires_grad, tern_status* status) {
  return return_value("tern_tensor_requires_grad", requires_grad, status,
                      [&](Call& call) { return call.tensor(tensor, "tensor").requires_grad() ? 1 : 0; });
}
tern_code tern_tensor_grad(tern_tensor* tensor, tern_tensor** gradient, tern_status* status) {
  return return_tensors("tern_tensor_grad", gradient, 1, status,
                        [&](Call& call) { return std::vector<Tensor>{call.tensor(tensor, "tensor").grad()}; });
}
tern_code tern_tensor_zero_grad(tern_tensor* tensor, tern_status* status) {
  return run_call("tern_tensor_zero_grad", status, [&](Call& call) {
    Tensor x = call.tensor(tensor, "tensor");
    x.set_grad({});
  });
}
tern_code tern_set_grad_enabled(int32_t enabled, int32_t* previous, tern_status* status) {
  return run_call("tern_set_grad_enabled", status, [&](Call&) {
    const bool before = std::exchange(records_gradients(), flag_of(enabled, "enabled"));
    if (previous != nullptr) *previous = before ? 1 : 0;
  });
}

tern_code tern_backward(tern_tensor* const* outputs, tern_tensor* const* gradients, int32_t count, uint32_t flags,
                        tern_status* status) {
  return run_call("tern_backward", status, [&](Call& call) {
    const GraphFlags chosen = graph_flags(flags, TERN_RETAIN_GRAPH | TERN_CREATE_GRAPH);
    require(count > 0, "count: expected 1 or more outputs, got ", count);
    const std::vector<Tensor> of = call.tensors(outputs, count, "outputs");
    backward(of, output_gradients(call, gradients, count), chosen.retain || chosen.create, chosen.create);
  });
}
tern_code tern_grad(tern_tensor* const* outputs, tern_tensor* const* gradients, int32_t output_count,
                    tern_tensor* const* inputs, int32_t input_count, uint32_t flags, tern_tensor** results,
                    tern_status* status) {
  return return_tensors("tern_grad", results, input_count, status, [&](Call& call) {
    const GraphFlags chosen = graph_flags(flags, TERN_RETAIN_GRAPH | TERN_CREATE_GRAPH | TERN_ALLOW_UNUSED);
    require(output_count > 0, "output_count: expected 1 or more outputs, got ", output_count);
    const std::vector<Tensor> of = call.tensors(outputs, output_count, "outputs");
    return grad(of, call.tensors(inputs, input_count, "inputs"),
                {.gradients = output_gradients(call, gradients, output_count),
                 .retain_graph = chosen.retain,
                 .create_graph = chosen.create,
                 .allow_unused = chosen.unused});
  });
}

tern_code tern_unary(int32_t op, tern_tensor* x, tern_tensor** result, tern_status* status) {
  return return_handle("tern_unary", result, status, [&](Call& call) { return unary_result(op, call.tensor(x, "x")); });
}
tern_code tern_binary(int32_t op, tern_tensor* a, tern_tensor* b, tern_tensor** result, tern_status* status) {
  return return_handle("tern_binary", result, status,
                       [&](Call& call) { return binary_result(op, call.tensor(a, "a"), call.tensor(b, "b")); });
}
tern_code tern_scale(tern_tensor* x, double factor, double offset, tern_tensor** result, tern_status* status) {
  return return_handle("tern_scale", result, status, [&](Call& call) {
    const Tensor scaled = mul(call.tensor(x, "x"), factor);
    return offset == 0 ? scaled : add(scaled, offset);
  });
}
tern_code tern_reduce(int32_t op, tern_tensor* x, const int32_t* dims, int32_t count, int32_t keepdim,
                      tern_tensor** result, tern_status* status) {
  return return_handle("tern_reduce", result, status, [&](Call& call) {
    return reduction_result(op, call.tensor(x, "x"), dims_of(dims, count, "dims"), flag_of(keepdim, "keepdim"));
  });
}
tern_code tern_argmax(tern_tensor* x, int32_t dim, tern_tensor** result, tern_status* status) {
  return return_handle("tern_argmax", result, status, [&](Call& call) { return argmax(call.tensor(x, "x"), dim); });
}
tern_code tern_softmax(tern_tensor* x, int32_t dim, tern_tensor** result, tern_status* status) {
  return return_handle("tern_softmax", result, status, [&](Call& call) { return softmax(call.tensor(x, "x"), dim); });
}
tern_code tern_matmul(tern_tensor* a, tern_tensor* b, tern_tensor** result, tern_status* status) {
  return return_handle("tern_matmul", result, status,
                       [&](Call& call) { return matmul(call.tensor(a, "a"), call.tensor(b, "b")); });
}
tern_code tern_linear(tern_tensor* x, tern_tensor* weight, tern_tensor* bias, tern_tensor** result,
                      tern_status* status) {
  return return_handle("tern_linear", result, status, [&](Call& call) {
    return linear(call.tensor(x, "x"), call.tensor(weight, "weight"), call.optional_tensor(bias, "bias"));
  });
}
tern_code tern_reshape(tern_tensor* x, const int64_t* shape, int32_t ndim, tern_tensor** result, tern_status* status) {
  return return_handle("tern_reshape", result, status, [&](Call& call) {
    require(ndim >= 0 && ndim <= kMaxDims, "ndim: expected 0 to ", kMaxDims, ", got ", ndim);
    require(shape != nullptr || ndim == 0, "shape is NULL");
    return call.tensor(x, "x").reshape(std::vector<int64_t>(shape, shape + ndim));
  });
}
tern_code tern_permute(tern_tensor* x, const int32_t* order, int32_t ndim, tern_tensor** result, tern_status* status) {
  return return_handle("tern_permute", result, status,
                       [&](Call& call) { return call.tensor(x, "x").permute(dims_of(order, ndim, "order")); });
}
tern_code tern_slice(tern_tensor* x, int32_t dim, int64_t begin, int64_t end, int64_t step, tern_tensor** result,
                     tern_status* status) {
  return return_handle("tern_slice", result, status,
                       [&](Call& call) { return call.tensor(x, "x").slice(dim, begin, end, step); });
}
tern_code tern_index_select(tern_tensor* x, int32_t dim, tern_tensor* index, tern_tensor** result,
                            tern_status* status) {
  return return_handle("tern_index_select", result, status,
                       [&](Call& call) { return index_select(call.tensor(x, "x"), dim, call.tensor(index, "index")); });
}
tern_code tern_concatenate(tern_tensor* const* tensors, int32_t count, int32_t dim, tern_tensor** result,
                           tern_status* status) {
  return return_handle("tern_concatenate", result, status, [&](Call& call) {
    require(count > 0, "count: expected 1 or more tensors, got ", count);
    return cat(call.tensors(tensors, count, "tensors"), dim);
  });
}

tern_code tern_loss(int32_t loss, tern_tensor* prediction, tern_tensor* target, const tern_loss_options* options,
                    tern_tensor** result, tern_status* status) {
  return return_handle("tern_loss", result, status, [&](Call& call) {
    return loss_result(loss, call.tensor(prediction, "prediction"), call.tensor(target, "target"),
                       options_of(options, "tern_loss_options"));
  });
}

}  // extern "C"
}  // namespace tern::models::c_api

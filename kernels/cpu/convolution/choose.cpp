// The choice among the methods that compute convolutions.

#include <memory>

#include "tern/kernels/cpu/convolution/methods.h"

namespace tern::kernels::TERN_CPU {
namespace {

using Pass = ConvolutionPass;
using Plan = std::shared_ptr<const ConvolutionPlan>;

const ConvolutionMethod& choose(const ConvolutionCase& c) {
  const ConvolutionMethod* const* method = kConvolutionMethods;
  while (!(*method)->can(c) || !(*method)->pays(c)) ++method;
  return **method;
}

/// A call asks for its workspace first: a thread keeps its last plan.
Plan plan_of(const ConvolutionCase& c) {
  struct Last {
    ConvolutionCase of;
    int threads = 0;
    Plan plan;
  };
  thread_local Last last;
  if (!last.plan || last.of != c || last.threads != num_threads())
    last = {c, num_threads(), std::make_shared<const ConvolutionPlan>(choose(c).make(c))};
  return last.plan;
}

}  // namespace

const ConvolutionMethod* const* convolution_methods(Stream) { return kConvolutionMethods; }

int64_t convolution_workspace(Stream, const ConvolutionShape& shape, DType dtype, bool packed) {
  return plan_of({Pass::kForward, dtype, shape, packed})->workspace_bytes(packed);
}
void convolution_forward(Stream, const ConvolutionShape& shape, ConstView x, ConstView weight,
                         const ConvolutionEpilogue& epilogue, View y, void* workspace) {
  (*plan_of({Pass::kForward, x.dtype, shape, epilogue.packed_weight != nullptr}))(x, weight, epilogue, y, workspace);
}
int64_t convolution_packed_bytes(Stream, const ConvolutionShape& shape, DType dtype) {
  return ConvolutionPlan::room_for(plan_of({Pass::kForward, dtype, shape, true})->packed_bytes);
}
void convolution_pack(Stream, const ConvolutionShape& shape, ConstView weight, void* packed) {
  const Plan plan = plan_of({Pass::kForward, weight.dtype, shape, true});
  if (plan->pack) plan->pack(weight, ConvolutionPlan::aligned(packed));
}

int64_t convolution_backward_input_workspace(Stream, const ConvolutionShape& shape, DType dtype) {
  return plan_of({Pass::kBackwardInput, dtype, shape})->workspace_bytes(false);
}
void convolution_backward_input(Stream, const ConvolutionShape& shape, ConstView dy, ConstView weight, View dx,
                                void* workspace) {
  (*plan_of({Pass::kBackwardInput, dx.dtype, shape}))(dy, weight, {}, dx, workspace);
}

int64_t convolution_backward_weight_workspace(Stream, const ConvolutionShape& shape, DType dtype) {
  return plan_of({Pass::kBackwardWeight, dtype, shape})->workspace_bytes(false);
}
void convolution_backward_weight(Stream, const ConvolutionShape& shape, ConstView dy, ConstView x, View dweight,
                                 void* workspace) {
  (*plan_of({Pass::kBackwardWeight, x.dtype, shape}))(dy, x, {}, dweight, workspace);
}

}  // namespace tern::kernels::TERN_CPU

#include "tern/dist/communicator.h"

#include "tern/core/autograd/grad_mode.h"

namespace tern::dist {
namespace {

void check_writable(const char* operation, const Tensor& tensor) {
  TERN_CHECK(tensor.defined(), operation, ": the tensor is undefined");
  TERN_CHECK(!grad_enabled() || !tensor.requires_grad(), operation,
             ": the tensor is recorded by autograd; pass tensor.detach(), or call it under NoGrad");
}

}  // namespace

void Communicator::all_reduce(Tensor& tensor, ReduceOp op) {
  check_writable("all_reduce", tensor);
  TERN_CHECK(op != ReduceOp::kMean || is_floating(tensor.dtype()), "all_reduce: the mean needs a floating dtype, got ",
             tensor.dtype());
  run_all_reduce(tensor, op);
}

void Communicator::broadcast(Tensor& tensor, int root) {
  check_writable("broadcast", tensor);
  TERN_CHECK(root >= 0 && root < size(), "broadcast: root must be in [0, ", size(), "), got ", root);
  run_broadcast(tensor, root);
}

std::vector<Tensor> Communicator::all_gather(const Tensor& tensor) {
  TERN_CHECK(tensor.defined(), "all_gather: the tensor is undefined");
  return run_all_gather(tensor);
}

}  // namespace tern::dist

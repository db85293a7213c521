#pragma once
// Communicators: how the processes of a data-parallel job exchange tensors.

#include <vector>

#include "tern/core/tensor.h"

namespace tern::dist {

enum class ReduceOp { kSum, kMean, kMax, kMin };

/// A group of size() processes, numbered by rank. Every operation is called by all of them in the same order, on
/// tensors of the same shape and dtype; it returns when this process's tensor holds the result. Tensors are written in
/// place and must not be recorded by autograd (use detach(), or NoGrad for leaves). Throws Error on an undefined
/// tensor, on kMean of a tensor that is not floating, and on a rank outside the group.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Every process's tensor becomes the reduction of all.
  void all_reduce(Tensor& tensor, ReduceOp op = ReduceOp::kSum);
  /// Every process's tensor becomes that of `root`.
  void broadcast(Tensor& tensor, int root = 0);
  /// The tensors of all processes, in the order of their ranks.
  std::vector<Tensor> all_gather(const Tensor& tensor);
  /// Returns when every process has called it.
  virtual void barrier() = 0;

 protected:
  // Arguments have been checked.
  virtual void run_all_reduce(Tensor& tensor, ReduceOp op) = 0;
  virtual void run_broadcast(Tensor& tensor, int root) = 0;
  virtual std::vector<Tensor> run_all_gather(const Tensor& tensor) = 0;
};

/// The group of one process: every operation is the identity.
class SingleProcess final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void barrier() override {}

 protected:
  void run_all_reduce(Tensor&, ReduceOp) override {}
  void run_broadcast(Tensor&, int) override {}
  /// A copy, as from a group of many: changing it leaves the argument as it is.
  std::vector<Tensor> run_all_gather(const Tensor& tensor) override { return {tensor.detach().clone()}; }
};

}  // namespace tern::dist

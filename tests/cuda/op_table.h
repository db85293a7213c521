#pragma once
// The rows of the table of docs/ops.md.

#include <functional>
#include <string>
#include <vector>

#include "tern/core/ops/ops.h"

namespace tern::test {

using OpCall = std::function<Tensor(const Tensor& x)>;
struct OpRow {
  std::string name, torch;  // PyTorch's name for it, or none
  OpCall call;
};

/// Adds rows; `prefix` of PyTorch's names, where they are the same: "torch.", "F.", "Tensor.".
class OpRows {
 public:
  void op(const std::string& name, const OpCall& call, const std::string& torch = "") {
    rows_.push_back({name, torch.empty() ? prefix_ + name : torch, call});
  }
  using One = Tensor (*)(const Tensor&);
  using Two = Tensor (*)(const Tensor&, const Tensor&);
  void one(const std::string& name, One fn, const std::string& torch = "") { op(name, fn, torch); }
  void two(const std::string& name, Two fn, const std::string& torch = "") {
    op(
        name, [fn](const Tensor& x) { return fn(x, x.detach() + ones_like(x)); }, torch);
  }
  void prefix(const std::string& prefix) { prefix_ = prefix; }
  const std::vector<OpRow>& rows() const { return rows_; }

 private:
  std::string prefix_ = "torch.";
  std::vector<OpRow> rows_;
};

}  // namespace tern::test

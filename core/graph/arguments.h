#pragma once
// Visitors of the arguments of recorded calls.

#include <functional>
#include <vector>

#include "tern/core/graph/graph.h"
#include "tern/core/tensor/recorded_call.h"

namespace tern::detail {

/// Looks at each argument, and may replace tensors and integers; what a derived class does not define does nothing.
class QuietVisitor : public ArgumentVisitor {
 public:
  void tensor(Tensor&) override {}
  void integer(int64_t&) override {}
  void number(double&) override {}
  void choice(int64_t) override {}
  void text(const std::string&) override {}
  void dtype(DType) override {}
  void device(Device&) override {}
  void begin_list(size_t) override {}
  void end_list() override {}
  void opaque(const char*) override {}
};

/// Gives the call these tensors, in their order.
void set_tensors(OpCall& call, const std::vector<Tensor>& tensors);
/// Gives the call these integers.
void set_integers(OpCall& call, const std::vector<int64_t>& integers);
/// Gives the call these other numbers.
void set_numbers(OpCall& call, const std::vector<double>& numbers);
/// The integers of a call, and its other numbers.
std::vector<int64_t> integers_of(OpCall& call);
std::vector<double> numbers_of(OpCall& call);

}  // namespace tern::detail

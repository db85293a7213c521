#include "tern/core/graph/arguments.h"

namespace tern {
namespace {

class TensorSetter final : public detail::QuietVisitor {
 public:
  explicit TensorSetter(const std::vector<Tensor>& tensors) : tensors_(tensors) {}
  void tensor(Tensor& x) override { x = tensors_.at(next_++); }

 private:
  const std::vector<Tensor>& tensors_;
  size_t next_ = 0;
};

class IntegerSetter final : public detail::QuietVisitor {
 public:
  explicit IntegerSetter(const std::vector<int64_t>& integers) : integers_(integers) {}
  void integer(int64_t& value) override { value = integers_.at(next_++); }

 private:
  const std::vector<int64_t>& integers_;
  size_t next_ = 0;
};

class NumberSetter final : public detail::QuietVisitor {
 public:
  explicit NumberSetter(const std::vector<double>& numbers) : numbers_(numbers) {}
  void number(double& value) override { value = numbers_.at(next_++); }

 private:
  const std::vector<double>& numbers_;
  size_t next_ = 0;
};

class NumberReader final : public detail::QuietVisitor {
 public:
  void integer(int64_t& value) override { integers.push_back(value); }
  void number(double& value) override { numbers.push_back(value); }
  std::vector<int64_t> integers;
  std::vector<double> numbers;
};

/// Collects the arguments as a tree.
class Collector final : public detail::ArgumentVisitor {
 public:
  explicit Collector(const Graph::Node& node) : node_(node) {}
  std::vector<GraphArgument> result() const { return open_[0]; }

  void tensor(Tensor&) override { add({.kind = GraphArgument::Kind::kTensor, .value = node_.inputs[tensors_++]}); }
  void integer(int64_t& value) override {
    add({.kind = GraphArgument::Kind::kInteger,
         .size = node_.sizes.empty() ? SymbolicSize(value) : node_.sizes[integers_++]});
  }
  void number(double& value) override {
    GraphArgument argument{.kind = GraphArgument::Kind::kNumber, .number = value};
    if (!node_.numbers.empty()) argument.text = node_.numbers[numbers_++].text;
    add(std::move(argument));
  }
  void choice(int64_t value) override { add({.kind = GraphArgument::Kind::kChoice, .size = value}); }
  void text(const std::string& value) override { add({.kind = GraphArgument::Kind::kText, .text = value}); }
  void dtype(DType value) override { add({.kind = GraphArgument::Kind::kDType, .dtype = value}); }
  void device(Device& value) override { add({.kind = GraphArgument::Kind::kDevice, .device = value}); }
  void begin_list(size_t) override { open_.emplace_back(); }
  void end_list() override {
    GraphArgument list{.kind = GraphArgument::Kind::kList, .list = open_.back()};
    open_.pop_back();
    add(std::move(list));
  }
  void opaque(const char*) override {}

 private:
  void add(GraphArgument argument) { open_.back().push_back(std::move(argument)); }
  const Graph::Node& node_;
  size_t tensors_ = 0, integers_ = 0, numbers_ = 0;
  std::vector<std::vector<GraphArgument>> open_{1};
};

}  // namespace

void detail::set_tensors(OpCall& call, const std::vector<Tensor>& tensors) {
  TensorSetter setter(tensors);
  call.visit(setter);
}
void detail::set_integers(OpCall& call, const std::vector<int64_t>& integers) {
  IntegerSetter setter(integers);
  call.visit(setter);
}
void detail::set_numbers(OpCall& call, const std::vector<double>& numbers) {
  NumberSetter setter(numbers);
  call.visit(setter);
}
std::vector<int64_t> detail::integers_of(OpCall& call) {
  NumberReader reader;
  call.visit(reader);
  return reader.integers;
}
std::vector<double> detail::numbers_of(OpCall& call) {
  NumberReader reader;
  call.visit(reader);
  return reader.numbers;
}

std::vector<GraphArgument> Graph::arguments(const Node& node) const {
  Collector collector(node);
  node.call->clone()->visit(collector);
  return collector.result();
}

}  // namespace tern

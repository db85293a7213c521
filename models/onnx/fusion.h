#pragma once
// Groups of steps that are replaced by one: what the searches for them share.

#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tern/models/onnx/program.h"

namespace tern::onnx {

/// A program's steps by what they read and make. A group is replaced where nothing else reads what lies within, and
/// only numbers (constants of one element) are assumed to be what they are when the model is loaded.
class StepGroups {
 public:
  explicit StepGroups(Program& program);

 protected:
  /// Whether the step is this op, with the inputs that it needs, of which a damaged file may lack some; and not of a
  /// layer that is one step already.
  static bool is(const Step& step, std::string_view op) {
    return !step.memory && step.node->domain.empty() && step.node->op == op && step.inputs.size() >= least_inputs(op);
  }
  static size_t least_inputs(std::string_view op);
  Step& at(size_t i) { return program_.steps[i]; }
  const Step& at(size_t i) const { return program_.steps[i]; }
  size_t steps() const { return program_.steps.size(); }

  /// The step that makes a place, if it is this op and nothing else reads the place (`readers` times).
  std::optional<size_t> before(int place, std::string_view op, int readers = 1) const;
  /// The step that alone reads a place.
  std::optional<size_t> only_reader(int place) const;
  /// The steps that read a place, if no graph within a step and no output does.
  std::vector<size_t> readers(int place) const;
  bool is_source(int place) const { return sources_.contains(place); }

  std::optional<double> number(int place) const;
  bool is_number(int place, double wanted) const {
    const auto value = number(place);
    return value && std::abs(*value - wanted) <= 1e-3 * std::abs(wanted);
  }
  /// The elements of a constant of integers.
  std::optional<std::vector<int64_t>> list(int place) const;
  /// Of a step with a number as one input: the other input.
  std::optional<int> other_than_number(const Step& step, double wanted) const;
  /// Of a step with two inputs, one of which is the place: the other input.
  static std::optional<int> other_than(const Step& step, int place);

  /// The step `last` takes the place of the group, with the row's op; the others are marked as replaced.
  void replace(size_t last, const std::vector<size_t>& group, const OpRow& row, std::vector<int> inputs,
               std::map<std::string, Attribute> attributes);
  bool is_replaced(size_t i) const { return at(i).op == nullptr; }
  /// Removes the steps that were replaced.
  void finish();

  static Attribute real(double value) { return {.kind = AttributeKind::kFloat, .f = value}; }
  static Attribute whole(int64_t value) { return {.kind = AttributeKind::kInt, .i = value}; }

 private:
  Program& program_;
  std::vector<int> uses_;  // 2 more for an output or a graph that reads it
  std::map<int, size_t> makers_;
  std::map<int, std::vector<size_t>> readers_;
  std::map<int, double> numbers_;
  std::map<int, const Source*> sources_;
};

}  // namespace tern::onnx

#include "tern/models/onnx/fusion.h"

#include <algorithm>

namespace tern::onnx {

StepGroups::StepGroups(Program& program) : program_(program), uses_(static_cast<size_t>(program.places)) {
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const Step& step = program.steps[i];
    for (const int place : step.outputs)
      if (place >= 0) makers_[place] = i;
    for (const int place : step.inputs) {
      if (place < 0) continue;
      ++uses_[static_cast<size_t>(place)];
      readers_[place].push_back(i);
    }
    for (const auto& [name, body] : step.bodies)
      for (const auto& [outside, inside] : body->captured) uses_[static_cast<size_t>(outside)] += 2;
  }
  for (const int place : program.outputs) uses_[static_cast<size_t>(place)] += 2;
  for (const Source& source : program.sources) {
    sources_[source.place] = &source;
    const Tensor& constant = source.constant.tensor;
    if (!source.handle && constant.defined() && constant.numel() == 1 && is_floating(constant.dtype()))
      numbers_[source.place] = constant.item<double>();
  }
}

size_t StepGroups::least_inputs(std::string_view op) {
  constexpr std::string_view two[] = {"Add",   "Sub",    "Mul",     "Div",      "Pow",
                                      "Conv",  "Gemm",   "MatMul",  "Expand",   "LayerNormalization",
                                      "Equal", "Gather", "Reshape", "Unsqueeze"};
  return op == "Where" ? 3 : std::ranges::find(two, op) != std::end(two) ? 2 : 1;
}

std::optional<size_t> StepGroups::before(int place, std::string_view op, int readers) const {
  const auto found = makers_.find(place);
  if (found == makers_.end() || is_replaced(found->second) || !is(at(found->second), op)) return {};
  if (uses_[static_cast<size_t>(place)] != readers) return {};
  return found->second;
}

std::vector<size_t> StepGroups::readers(int place) const {
  const auto found = readers_.find(place);
  if (place < 0 || found == readers_.end()) return {};
  return uses_[static_cast<size_t>(place)] == static_cast<int>(found->second.size()) ? found->second
                                                                                     : std::vector<size_t>();
}

std::optional<size_t> StepGroups::only_reader(int place) const {
  const std::vector<size_t> all = readers(place);
  return all.size() == 1 && !is_replaced(all[0]) ? std::optional(all[0]) : std::nullopt;
}

std::optional<double> StepGroups::number(int place) const {
  const auto found = numbers_.find(place);
  return found == numbers_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::vector<int64_t>> StepGroups::list(int place) const {
  const auto found = sources_.find(place);
  if (found == sources_.end() || found->second->handle) return {};
  const Tensor& constant = found->second->constant.tensor;
  if (!constant.defined() || is_floating(constant.dtype())) return {};
  return constant.to_vector<int64_t>();
}

std::optional<int> StepGroups::other_than_number(const Step& step, double wanted) const {
  if (step.inputs.size() != 2) return {};
  if (is_number(step.inputs[1], wanted)) return step.inputs[0];
  if (is_number(step.inputs[0], wanted)) return step.inputs[1];
  return {};
}

std::optional<int> StepGroups::other_than(const Step& step, int place) {
  if (step.inputs.size() != 2 || step.inputs[0] == step.inputs[1]) return {};
  if (step.inputs[0] == place) return step.inputs[1];
  if (step.inputs[1] == place) return step.inputs[0];
  return {};
}

void StepGroups::replace(size_t last, const std::vector<size_t>& group, const OpRow& row, std::vector<int> inputs,
                         std::map<std::string, Attribute> attributes) {
  for (const size_t i : group)
    if (i != last) at(i).op = nullptr;
  Step& step = at(last);
  auto node = std::make_shared<NodeDef>(*step.node);
  node->op = row.op;
  node->attributes = std::move(attributes);
  step.node = std::move(node);
  step.op = &row;
  step.inputs = std::move(inputs);
}

void StepGroups::finish() {
  std::erase_if(program_.steps, [](const Step& step) { return step.op == nullptr; });
  note_done(program_);
}

}  // namespace tern::onnx

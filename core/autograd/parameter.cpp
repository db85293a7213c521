#include "tern/core/autograd/parameter.h"

#include <map>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/autograd/node.h"
#include "tern/core/memory/allocator.h"
#include "tern/core/memory/file_fault.h"

namespace tern {

Parameter::Parameter(ParameterOwner* owner, const std::string& name, const Shape& shape, const Initializer& initializer)
    : name_(owner->qualified_name(name)) {
  TensorOptions options = owner->parameter_options();
  TERN_CHECK(is_floating(options.dtype), name_, ": parameters are floating tensors, not ", options.dtype);
  options.requires_grad = false;
  const AllocationTag tag("parameters", true);
  tensor_ = std::make_shared<Tensor>(zeros(shape, options));
  if (initializer) {
    NoGrad off;
    initializer(*tensor_, owner->parameter_generator());
  }
  tensor_->set_requires_grad(true);
  owner->add_parameter(*this);
}

Parameter::Parameter(ParameterOwner* owner, const std::string& name, const Shared& shared)
    : name_(owner->qualified_name(name)), tensor_(std::make_shared<Tensor>(shared.source.tensor())), shared_(true) {
  owner->add_parameter(*this);
}

void Parameter::set_few_gradient_rows() {
  TERN_CHECK(tensor_->dim() > 0, name_, ": a parameter without dimensions has no rows");
  tensor_->impl()->meta().few_gradient_rows = true;
}

void Parameter::copy_(const Tensor& source) {
  TERN_CHECK(source.shape() == shape(), name_, ": expected shape ", shape(), ", got ", source.shape());
  NoGrad off;
  tensor_->copy_(source);
}

void load_state(const StateView& target, const StateView& source, const LoadOptions& options) {
  std::map<std::string, Tensor> given;
  for (const NamedTensor& entry : source) given[entry.name] = entry.tensor;
  std::string missing, unexpected, shapes;
  const auto append = [](std::string& list, const std::string& item) { list += (list.empty() ? "" : ", ") + item; };
  std::vector<std::pair<Tensor, Tensor>> copies;
  for (const NamedTensor& entry : target) {
    const auto found = given.find(entry.name);
    if (found == given.end()) {
      append(missing, entry.name);
      continue;
    }
    TERN_CHECK(found->second.defined(), "load_state: the tensor given for ", entry.name, " is undefined");
    if (found->second.shape() != entry.tensor.shape())
      append(shapes, entry.name + " is " + found->second.shape().str() + ", expected " + entry.tensor.shape().str());
    else
      copies.emplace_back(entry.tensor, found->second);
    given.erase(found);
  }
  for (const auto& [name, tensor] : given) append(unexpected, name);

  std::string problem;
  if (options.strict && !missing.empty()) problem += "; missing: " + missing;
  if (options.strict && !unexpected.empty()) problem += "; unexpected: " + unexpected;
  if (!shapes.empty()) problem += "; wrong shape: " + shapes;
  TERN_CHECK(problem.empty(), "load_state: the given tensors do not fit", problem);
  NoGrad off;
  for (auto& [to, from] : copies) to.copy_(from);
  for (auto& [to, from] : copies)
    if (from.device().is_cpu()) verify_mapped_memory(from.raw_data());
}

}  // namespace tern

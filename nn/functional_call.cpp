#include "tern/nn/functional_call.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tern::detail {
namespace {

struct Replaceable {
  Tensor own;
  std::vector<std::shared_ptr<Tensor>> handles = {};  // several where the tensor is shared
};

/// By each of its full names, relative to the root; shared tensors have one Replaceable.
using ReplaceableNames = std::map<std::string, const TensorImpl*>;
using Replaceables = std::map<const TensorImpl*, Replaceable>;

void find_replaceable(const nn::Module& module, const std::string& prefix, ReplaceableNames& names,
                      Replaceables& tensors) {
  for (const nn::Module::Member& member : module.members()) {
    names.emplace(prefix + member.name, member.tensor.impl());
    Replaceable& entry = tensors[member.tensor.impl()];
    entry.own = member.tensor;
    entry.handles.push_back(member.handle);
  }
  for (const nn::Module* child : module.children())
    find_replaceable(*child, prefix + child->local_name() + ".", names, tensors);
}

}  // namespace

ReplacedHandles::List handles_of(const nn::Module& module, const StateView& tensors) {
  ReplaceableNames names;
  Replaceables own;
  find_replaceable(module, "", names, own);
  std::string problem;
  std::map<const TensorImpl*, Tensor> chosen;
  for (const NamedTensor& entry : tensors) {
    const auto found = names.find(entry.name);
    if (found == names.end()) {
      problem += "; unexpected: " + entry.name;
      continue;
    }
    const std::string expected = own[found->second].own.describe();
    const std::string given = entry.tensor.describe();
    if (given != expected) problem += "; " + entry.name + " is " + given + ", expected " + expected;
    if (!chosen.emplace(found->second, entry.tensor).second) problem += "; given twice: " + entry.name;
  }
  TERN_CHECK(problem.empty(), "nn::functional_call: the given tensors do not fit the module", problem);
  ReplacedHandles::List list;
  for (const auto& [impl, tensor] : chosen)
    for (const std::shared_ptr<Tensor>& handle : own[impl].handles) list.emplace_back(handle, tensor);
  return list;
}

}  // namespace tern::detail

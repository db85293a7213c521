#include "tern/dist/gradients/sharded_optimizer.h"

#include <algorithm>
#include <map>
#include <set>

#include "tern/core/autograd/grad_mode.h"
#include "tern/optim/gradient_norm.h"

namespace tern::dist {
namespace {

const std::string kStep = "step.";

/// The parameter of a state's entry: "exp_avg.encoder.weight" is encoder.weight's.
std::string parameter_of(const std::string& entry) { return entry.substr(entry.find('.') + 1); }

std::string foreign(const std::string& name) {
  return "ShardedOptimizer: parameter '" + name +
         "' is not of the module that DataParallel was made for, or did not require a gradient then";
}

int64_t blocks_of(int64_t elements, Device device) {
  const int64_t block = device.is_cpu() ? kernels::kGradientNormBlockOnCpu : kernels::kGradientNormBlock;
  return (elements + block - 1) / block;
}

}  // namespace

ShardedOptimizer::Divided ShardedOptimizer::divide(const DataParallel& parallel,
                                                   const std::vector<optim::ParameterGroup>& groups) {
  Divided divided{groups, {}};
  if (!parallel.is_sharded()) return divided;
  if (!parallel.sharded()) {
    for (const optim::ParameterGroup& group : groups)
      for (const auto& [name, tensor] : group.parameters)
        TERN_CHECK(!tensor.defined() || !tensor.requires_grad() || parallel.exchanges(tensor), foreign(name));
    return divided;
  }
  std::map<const tern::detail::TensorImpl*, ShardedExchange::Shard> shards;
  for (const ShardedExchange::Shard& shard : parallel.sharded()->shards()) shards[shard.parameter.impl()] = shard;
  for (optim::ParameterGroup& group : divided.groups)
    for (NamedTensor& parameter : group.parameters) {
      TERN_CHECK(parameter.tensor.defined(), "ShardedOptimizer: parameter '", parameter.name,
                 "' is an undefined tensor");
      const auto found = shards.find(parameter.tensor.impl());
      TERN_CHECK(found != shards.end() || !parameter.tensor.requires_grad(), foreign(parameter.name));
      Part part;
      if (found == shards.end())
        part.shard.parameter = part.shard.weight = parameter.tensor;
      else
        part.shard = found->second;
      part.shard.name = parameter.name;
      parameter.tensor = part.shard.weight;
      divided.parts.push_back(std::move(part));
    }
  return divided;
}

ShardedOptimizer::ShardedOptimizer(DataParallel& parallel, const Divided& divided, const optim::Algorithm& algorithm)
    : Optimizer(divided.groups, algorithm),
      parallel_(parallel),
      group_(*parallel.group()),
      shards_(parallel.sharded()),
      whole_(parallel.is_sharded() && !shards_),
      parts_(divided.parts) {
  if (whole_) assign_owners(0);
  if (!shards_) return;
  TERN_CHECK(
      !algorithm.needs_whole, algorithm.name,
      ": needs whole parameters, but DataParallel has cut them: give DataParallelOptions whole_parameters = true");
  std::vector<int32_t> trained;
  for (size_t p = 0; p < parts_.size(); ++p)
    if (parts_[p].bucket() >= 0) trained.push_back(static_cast<int32_t>(p));
  order_blocks(trained);
}

void ShardedOptimizer::add_param_group(const optim::ParameterGroup& group) {
  const Divided divided = divide(parallel_, {group});
  Optimizer::add_param_group(divided.groups.front());
  parts_.insert(parts_.end(), divided.parts.begin(), divided.parts.end());
  if (whole_) assign_owners(owners_.size());
}

void ShardedOptimizer::assign_owners(size_t first) {
  weights_.clear();
  for (const optim::GroupState& group : param_groups())
    for (const NamedTensor& parameter : group.parameters) weights_.push_back(parameter.tensor);
  loads_.resize(static_cast<size_t>(group_.size()), 0);
  owners_.resize(weights_.size(), 0);
  std::vector<size_t> order;
  for (size_t p = first; p < weights_.size(); ++p)
    if (weights_[p].requires_grad()) order.push_back(p);  // the others have no state
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return weights_[a].numel() > weights_[b].numel(); });
  for (const size_t p : order) {
    const auto least = std::min_element(loads_.begin(), loads_.end());
    owners_[p] = static_cast<int>(least - loads_.begin());
    *least += weights_[p].numel();
  }
}

bool ShardedOptimizer::is_own(int32_t parameter) const {
  return !whole_ || owners_[static_cast<size_t>(parameter)] == group_.rank();
}

void ShardedOptimizer::order_blocks(const std::vector<int32_t>& parameters) {
  const Device device = group_.device();
  const int ranks = group_.size();
  std::vector<std::vector<int64_t>> first(static_cast<size_t>(ranks));  // by rank and parameter
  int64_t max_blocks = 1;
  for (int r = 0; r < ranks; ++r) {
    int64_t blocks = 0;
    for (const int32_t p : parameters) {
      first[static_cast<size_t>(r)].push_back(blocks);
      blocks += blocks_of(parts_[static_cast<size_t>(p)].range(r).size(), device);
    }
    max_blocks = std::max(max_blocks, blocks);
  }
  std::vector<int64_t> order;
  for (size_t k = 0; k < parameters.size(); ++k)
    for (int r = 0; r < ranks; ++r) {
      const int64_t blocks = blocks_of(parts_[static_cast<size_t>(parameters[k])].range(r).size(), device);
      for (int64_t b = 0; b < blocks; ++b) order.push_back(r * max_blocks + first[static_cast<size_t>(r)][k] + b);
    }
  const auto bytes = static_cast<int64_t>(sizeof(kernels::GradientBlock)) * max_blocks;
  order_ = from_vector(order, {static_cast<int64_t>(order.size())}).to(device);
  all_blocks_ = zeros({bytes * ranks}, {.dtype = uint8, .device = device});
  own_blocks_ = all_blocks_.slice(0, bytes * group_.rank(), bytes * (group_.rank() + 1));
  ordered_ = parameters;
}

Tensor ShardedOptimizer::norm_of(const std::vector<Tensor>& gradients, const std::vector<int32_t>& parameters) {
  if (!shards_) return Optimizer::norm_of(gradients, parameters);
  if (parameters != ordered_) order_blocks(parameters);
  const Device device = group_.device();
  std::vector<kernels::ConstView> views;
  for (const Tensor& gradient : gradients) views.push_back(gradient.const_view());
  const kernels::Stream stream = current_stream(device);
  kernels::gradient_norm_blocks(stream, views.data(), static_cast<int64_t>(views.size()),
                                static_cast<kernels::GradientBlock*>(own_blocks_.raw_data()));
  group_.all_gather_async(all_blocks_, own_blocks_).wait();
  const Tensor norm = optim::empty_norm(device);
  kernels::gradient_norm_fold(stream, static_cast<const kernels::GradientBlock*>(all_blocks_.raw_data()),
                              static_cast<const int64_t*>(order_.raw_data()), order_.numel(),
                              static_cast<kernels::GradientNorm*>(norm.raw_data()));
  return norm;
}

int64_t ShardedOptimizer::bucket_of(int32_t parameter) const {
  return shards_ ? parts_[static_cast<size_t>(parameter)].bucket() : 0;
}

void ShardedOptimizer::on_updated(int64_t bucket) {
  if (shards_) gathering_.push_back(shards_->gather_weights(bucket));
}

void ShardedOptimizer::on_step_end() {
  for (size_t p = 0; p < owners_.size(); ++p)
    if (weights_[p].requires_grad() && weights_[p].numel() > 0)
      gathering_.push_back(group_.broadcast_async(weights_[p].detach(), owners_[p]));
  for (const Work& work : gathering_) work.wait();
  gathering_.clear();
  if (shards_) shards_->drop_gradients();
}

void ShardedOptimizer::zero_grad() {
  Optimizer::zero_grad();
  if (shards_) shards_->drop_gradients();
}

const ShardedOptimizer::Part* ShardedOptimizer::find_part(const std::string& entry) const {
  const std::string name = parameter_of(entry);
  for (const Part& part : parts_)
    if (part.shard.name == name) return &part;
  return nullptr;
}

Tensor ShardedOptimizer::gather(const Part& part, const Tensor& local) const {
  const bool is_first = group_.rank() == 0;
  if (part.bucket() < 0) return is_first ? local.to(cpu).clone() : Tensor();
  if (!is_first && part.range(group_.rank()).size() > 0) group_.send(local, 0);
  if (!is_first) return {};
  Tensor whole = empty({part.shard.parameter.numel()}, {.dtype = local.dtype()});
  for (int r = 0; r < group_.size(); ++r) {
    const ShardRange range = part.range(r);
    if (range.size() == 0) continue;
    Tensor theirs = r == 0 ? local : empty({range.size()}, local.options());
    if (r > 0) group_.receive(theirs, r);
    whole.slice(0, range.begin, range.end).copy_(theirs);
  }
  return whole.reshape(part.shard.parameter.shape());
}

StateView ShardedOptimizer::gather_whole() const {
  NoGrad off;
  StateView whole;
  for (size_t p = 0; p < owners_.size(); ++p) {
    const bool is_first = group_.rank() == 0, is_owner = owners_[p] == group_.rank();
    if (!is_first && !is_owner) continue;
    for (NamedTensor& entry : state_of(static_cast<int32_t>(p))) {
      const bool travels = owners_[p] != 0 && !entry.name.starts_with(kStep) && entry.tensor.numel() > 0;
      if (travels && is_first) group_.receive(entry.tensor, owners_[p]);
      if (travels && is_owner) group_.send(entry.tensor, 0);
      if (is_first) whole.push_back({entry.name, entry.tensor.to(cpu).clone()});
    }
  }
  return whole;
}

StateView ShardedOptimizer::state_dict() const {
  if (whole_) return gather_whole();
  if (!shards_) return Optimizer::state_dict();
  NoGrad off;
  StateView whole;
  for (const NamedTensor& entry : Optimizer::state_dict()) {
    const bool is_count = entry.name.starts_with(kStep);
    const Tensor gathered = is_count ? entry.tensor.to(cpu).clone() : gather(*find_part(entry.name), entry.tensor);
    if (group_.rank() == 0) whole.push_back({entry.name, gathered});
  }
  return whole;
}

void ShardedOptimizer::load_state_dict(const StateView& state) {
  if (!shards_) return Optimizer::load_state_dict(state);
  NoGrad off;
  StateView local;
  std::string shapes;
  for (const NamedTensor& entry : state) {
    const Part* part = find_part(entry.name);
    if (!part || part->bucket() < 0 || !entry.tensor.defined() || entry.name.starts_with(kStep)) {
      local.push_back(entry);
      continue;
    }
    const Shape& expected = part->shard.parameter.shape();
    if (entry.tensor.shape() == expected) {
      const ShardRange range = part->range(group_.rank());
      local.push_back({entry.name, entry.tensor.detach().reshape({-1}).slice(0, range.begin, range.end)});
    } else {
      shapes += (shapes.empty() ? "" : ", ") + entry.name + " is " + entry.tensor.shape().str() + ", expected " +
                expected.str();
    }
  }
  TERN_CHECK(shapes.empty(), "load_state: the given tensors do not fit; wrong shape: ", shapes);
  Optimizer::load_state_dict(local);
}

ModelStateMemory model_state_memory(const nn::Module& module, const optim::Optimizer& optimizer,
                                    const DataParallel* parallel) {
  ModelStateMemory memory;
  std::set<const Storage*> storages;
  const int64_t ranks = parallel && parallel->is_sharded() ? parallel->group()->size() : 1;
  int64_t state = 0, gradients = 0;
  for (const NamedTensor& parameter : module.parameters()) {
    const Tensor& tensor = parameter.tensor;
    if (storages.insert(tensor.storage().get()).second) memory.weights += tensor.storage()->bytes();
    memory.expected += tensor.nbytes();
    if (!tensor.requires_grad()) continue;
    gradients += tensor.nbytes();
    state += optimizer.state_bytes_of(tensor);
  }
  const bool in_buckets = parallel && parallel->group()->size() > 1;
  memory.gradients = in_buckets ? parallel->gradient_bytes() : gradients;
  memory.optimizer = optimizer.state_bytes();
  memory.expected += gradients + (state + ranks - 1) / ranks;
  return memory;
}

}  // namespace tern::dist

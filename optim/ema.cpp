#include "tern/optim/ema.h"

#include <cmath>
#include <string>
#include <unordered_set>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/memory/allocator.h"
#include "tern/core/profiler/profiler.h"
#include "tern/optim/gradient_norm.h"

namespace tern::optim {

namespace {

DType average_dtype(const Tensor& weight) { return weight.dtype() == float64 ? float64 : float32; }

}  // namespace

EMA::EMA(const std::vector<NamedTensor>& parameters, const EmaOptions& options)
    : options_(options), parameters_(parameters) {
  TERN_CHECK(options.decay >= 0 && options.decay < 1, "ema: decay must be in [0, 1), got ", options.decay);
  TERN_CHECK(options.warmup_gamma > 0 && std::isfinite(options.warmup_gamma) && options.warmup_power > 0 &&
                 std::isfinite(options.warmup_power),
             "ema: warmup_gamma and warmup_power must be finite numbers > 0, got ", options.warmup_gamma, " and ",
             options.warmup_power);
  TERN_CHECK(!parameters.empty(), "ema: there are no parameters");
  NoGrad off;
  const AllocationTag tag("averages of the weights", true);
  const Device device = parameters.front().tensor.device();
  std::unordered_set<std::string> names;
  for (const auto& [name, tensor] : parameters) {
    TERN_CHECK(tensor.defined(), "ema: parameter '", name, "' is an undefined tensor");
    TERN_CHECK(names.insert(name).second, "ema: the name '", name, "' is given twice, and averages are kept by name. ",
               "Parameters of several models need distinct names: optim::join_parameters({{\"generator\", "
               "generator.parameters()}, ...})");
    TERN_CHECK(is_floating(tensor.dtype()) && tensor.is_contiguous() && tensor.device() == device, "ema: parameter '",
               name, "' must be a contiguous floating tensor on ", device, ", got ", tensor.describe());
    averages_.push_back(tensor.detach().to(average_dtype(tensor)));
    if (averages_.back().storage() == tensor.storage()) averages_.back() = tensor.detach().clone();
  }
  updates_ = zeros({1}, {.dtype = int64, .device = device});
}

void EMA::update() { run({}); }

void EMA::update(const StepResult& step) {
  kernels::AverageStep average;
  if (step.skips_) average = {.norm = norm_data(step.norm_), .earlier = norm_data(step.earlier_)};
  run(average);
}

void EMA::run(kernels::AverageStep step) {
  const ProfileRange range("ema", RangeKind::kOp);
  const NoGrad off;
  step.updates = static_cast<int64_t*>(updates_.raw_data());
  step.equal = options_.equal;
  step.decay = options_.decay;
  step.warmup_gamma = options_.warmup ? options_.warmup_gamma : 0;
  step.warmup_power = options_.warmup_power;
  std::vector<kernels::AverageTensor> tensors;
  int64_t bytes = 0;  // weights are read, averages read and written
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& weight = parameters_[i].tensor;
    Tensor& average = averages_[i];
    TERN_CHECK(weight.device() == updates_.device(), "ema: parameter '", parameters_[i].name, "' is now on ",
               weight.device(), ", but its average is on ", updates_.device(),
               "; after Module::to(device) make a new EMA, and load this one's state_dict() into it");
    average = average.to(average_dtype(weight));
    tensors.push_back({average.raw_data(), weight.raw_data(), weight.numel(), weight.dtype()});
    bytes += weight.nbytes() + 2 * average.nbytes();
  }
  kernels::average_weights(current_stream(updates_.device()), tensors.data(), static_cast<int64_t>(tensors.size()),
                           step);
  if (range.recording()) profile_bytes(static_cast<double>(bytes));
}

EMA::InPlace::InPlace(const EMA& ema) : ema_(ema) {
  NoGrad off;
  for (const NamedTensor& parameter : ema.parameters_) weights_.push_back(parameter.tensor.detach().clone());
  ema.copy_to_parameters();
}

EMA::InPlace::~InPlace() {
  try {
    NoGrad off;
    for (size_t i = 0; i < weights_.size(); ++i) Tensor(ema_.parameters_[i].tensor).copy_(weights_[i]);
  } catch (const Error&) {  // after a device failure the weights are lost, and other calls throw its error
  }
}

void EMA::copy_to_parameters() const {
  NoGrad off;
  for (size_t i = 0; i < parameters_.size(); ++i) Tensor(parameters_[i].tensor).copy_(averages_[i]);
}

StateView EMA::state_dict() const {
  StateView state = {{"updates", updates_}};
  for (size_t i = 0; i < parameters_.size(); ++i) state.push_back({"average." + parameters_[i].name, averages_[i]});
  return state;
}

void EMA::load_state_dict(const StateView& state) {
  const Tensor updates = find(state, "updates");
  TERN_CHECK(!updates.defined() || updates.numel() != 1 || updates.item<int64_t>() >= 0,
             "ema: the state's updates must be >= 0, got ", updates.item<int64_t>());
  load_state(state_dict(), state);
}

}  // namespace tern::optim

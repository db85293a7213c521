#include "tern/dist/loop/accelerator.h"

#include <algorithm>
#include <cmath>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/dist/store/placement.h"

namespace tern::dist {
namespace {

AcceleratorOptions checked(const AcceleratorOptions& options) {
  TERN_CHECK(options.precision == float32 || is_low_precision(options.precision),
             "Accelerator: precision must be float32, bfloat16 or float16, got ", options.precision);
  TERN_CHECK(options.accumulate >= 1, "Accelerator: accumulate must be 1 or more, got ", options.accumulate);
  TERN_CHECK(options.clip_norm >= 0 && std::isfinite(options.clip_norm),
             "Accelerator: clip_norm must be a finite number >= 0, got ", options.clip_norm);
  return options;
}

std::unique_ptr<World> make_world(const AcceleratorOptions& options) {
  const Launch launch = detect_launch();
  const Device device = options.device ? *options.device : best_rank_device(launch);
  require_available(device);
  share_cores(launch);
  return std::make_unique<World>(launch, device, options.world);
}

optim::GradScalerOptions scaler_of(const AcceleratorOptions& options) {
  optim::GradScalerOptions scaler = options.scaler;
  scaler.enabled = options.precision == float16;
  return scaler;
}

}  // namespace

Accelerator::Accelerator(const AcceleratorOptions& options) : Accelerator(nullptr, options) {}

Accelerator::Accelerator(std::shared_ptr<Communicator> group, const AcceleratorOptions& options)
    : options_(checked(options)),
      world_(group ? nullptr : make_world(options_)),
      group_(group ? std::move(group) : world_->group()),
      device_(group_->device()),
      accumulation_(scaler_of(options_), options_.clip_norm) {
  begin_round(0, 1, size());
}

DataParallel& Accelerator::prepare(nn::Module& module) {
  for (const NamedTensor& entry : module.state_dict()) {
    TERN_CHECK(entry.tensor.device() == device_, "Accelerator::prepare: '", entry.name, "' is on ",
               entry.tensor.device(), ", the accelerator on ", device_,
               ": make the module with nn::Scope({.device = accelerator.device()}), or call module.to(device) before");
    TERN_CHECK(entry.tensor.dtype() != float16 || accumulation_.scaler().enabled(), "Accelerator::prepare: '",
               entry.name, "' is float16, whose gradients underflow without a scaled loss: use precision float16");
  }
  modules_.push_back(std::make_unique<DataParallel>(module, group(), options_.parallel));
  accumulation_.add(*modules_.back());
  return *modules_.back();
}

int64_t Accelerator::rounds_of(int64_t batches, int64_t first) const {
  const int64_t all = rounds(batches);
  TERN_CHECK(first >= 0 && first <= all && (first % options_.accumulate == 0 || first == all),
             "Accelerator::train_batches: round ", first, " of ", all, "; it must be a multiple of ",
             options_.accumulate, ", the batches of a step");
  return all;
}

void Accelerator::begin_round(int64_t round, int64_t rounds, int64_t last_round) {
  TERN_CHECK(round >= 0 && round < rounds && last_round >= 1 && last_round <= size(),
             "Accelerator::begin_round: expected a round from 0 to ", rounds - 1, " and 1 to ", size(),
             " batches in the last one, got round ", round, " and ", last_round, " batches");
  const int64_t in_step = std::min(options_.accumulate, rounds), step = round / in_step;
  const StepPlan plan{(rounds - 1) * size() + last_round, in_step, size()};
  step_begin_ = round % in_step == 0;
  step_end_ = round + 1 == rounds || (round + 1) % in_step == 0;
  const bool has_batch = round * size() + rank() < plan.batches;
  weight_ = plan.weight(has_batch ? 1 : 0, plan.end(step) - plan.begin(step));  // every batch counts alike
}

void Accelerator::backward(const Tensor& loss) {
  TERN_CHECK(loss.defined() && loss.numel() == 1, "Accelerator::backward: the loss must be one number, got ",
             loss.defined() ? loss.shape().str() : "an undefined tensor");
  if (step_begin_) accumulation_.update_scale();
  accumulation_.backward(weight_ == 1 ? loss : mul(loss, weight_), step_end_);
}

std::optional<optim::StepResult> Accelerator::step(optim::Optimizer& optimizer) {
  if (!step_end_) return std::nullopt;
  return accumulation_.step(optimizer);
}

Tensor Accelerator::mean(const Tensor& value) const {
  NoGrad off;
  Tensor result = value.detach().clone();
  group()->all_reduce(result, ReduceOp::kMean);
  return result;
}

bool Accelerator::any(bool here) const {
  NoGrad off;
  Tensor found = from_vector<int32_t>({here}, {1}).to(device_);
  group()->all_reduce(found, ReduceOp::kMax);
  return found.item<int32_t>() != 0;
}

StateView Accelerator::state_dict() const {
  accumulation_.update_scale();
  return accumulation_.scaler().state_dict();
}

void Accelerator::load_state_dict(const StateView& state) {
  const bool scaled = accumulation_.scaler().enabled();
  TERN_CHECK(scaled || state.empty(), "Accelerator: the state is that of a loss scaler, which precision ",
             options_.precision, " does not have");
  if (scaled) accumulation_.load_scaler(state);
}

double Accelerator::loss_scale() const {
  if (!accumulation_.scaler().enabled()) return 1;
  accumulation_.update_scale();
  return accumulation_.scaler().current_scale();
}

void Accelerator::finish() {
  accumulation_.update_scale();
  if (accumulation_.scaler().enabled()) accumulation_.scaler().check();
  if (world_) world_->finish();
}

}  // namespace tern::dist

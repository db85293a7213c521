#include "tern/models/trainer/training_step.h"

#include <algorithm>
#include <cmath>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/profiler/profiler.h"
#include "tern/optim/gradient_norm.h"

namespace tern::models {
namespace {

const std::string kScaler = "scaler/", kEma = "ema/", kPlateau = "plateau/";

/// 16-bit gradients underflow without a scaled loss; bfloat16 has fp32's range.
bool needs_loss_scale(const nn::Module& module, const TrainOptions& options) {
  if (options.dtype == float16) return true;
  for (const NamedTensor& parameter : module.parameters())
    if (parameter.tensor.dtype() == float16) return true;
  return false;
}

/// The examples of a part whose inputs are not finite, or else all of them.
std::vector<std::string> suspects(const StepInput& batch, const std::vector<std::string>& names, bool& not_finite) {
  std::vector<bool> bad(names.size());
  for (const Tensor& tensor : batch.tensors) {
    if (!tensor.defined() || !is_floating(tensor.dtype()) || tensor.dim() == 0) continue;
    if (tensor.size(0) < std::ssize(names) || names.empty()) continue;
    const std::vector<float> values = tensor.detach().to(DType::kFloat32).to_vector<float>();
    const size_t width = values.size() / static_cast<size_t>(tensor.size(0));
    for (size_t i = 0; i < width * names.size(); ++i) bad[i / width] = bad[i / width] || !std::isfinite(values[i]);
  }
  std::vector<std::string> found;
  for (size_t i = 0; i < names.size(); ++i)
    if (bad[i]) found.push_back(names[i]);
  not_finite = !found.empty();
  return not_finite ? found : names;
}

/// What the step was made of: "; the batch: photos/a.png, photos/b.png and 62 more".
std::string examples_text(const TrainingTask& task, const TrainingStep::Pending& pending) {
  constexpr size_t kShown = 16;
  std::vector<std::string> all, bad;
  for (const TrainingStep::Part& part : pending.parts) {
    const int64_t epoch = pending.metrics.epoch - 1;
    if (part.number >= task.steps(epoch)) continue;  // only fills the last step
    bool not_finite = false;
    const std::vector<std::string> names = suspects(part.batch, task.example_names(epoch, part.number), not_finite);
    std::vector<std::string>& to = not_finite ? bad : all;
    to.insert(to.end(), names.begin(), names.end());
  }
  const std::vector<std::string>& shown = bad.empty() ? all : bad;
  if (shown.empty()) return "";
  std::string text = bad.empty() ? "; the batch: " : "; inputs that are not finite: ";
  for (size_t i = 0; i < std::min(shown.size(), kShown); ++i) text += (i > 0 ? ", " : "") + shown[i];
  return shown.size() > kShown ? text + " and " + std::to_string(shown.size() - kShown) + " more" : text;
}

/// Frozen parameters have neither state nor averages.
std::vector<NamedTensor> trained_parameters(const nn::Module& module) {
  std::vector<NamedTensor> parameters = module.parameters();
  std::erase_if(parameters, [](const NamedTensor& parameter) { return !parameter.tensor.requires_grad(); });
  TERN_CHECK(!parameters.empty(), "train: all parameters of the module are frozen, so that nothing is left to train");
  return parameters;
}

optim::Schedule schedule_of(const TrainOptions& options, int64_t total_steps) {
  if (options.rate_factor) return optim::Schedule(options.rate_factor);
  return optim::schedule_by_name(options.schedule, {.total_steps = total_steps, .warmup = options.warmup},
                                 options.schedule_parameters);
}

}  // namespace

TrainingStep::TrainingStep(TrainingTask& task, const TrainOptions& options, int64_t total_steps)
    : task_(task),
      options_(options),
      total_steps_(total_steps),
      // Without clipping the norm is still wanted: an infinite limit measures it and changes nothing.
      accumulation_({.enabled = needs_loss_scale(task.module(), options)},
                    options.clip > 0 ? options.clip : std::numeric_limits<double>::infinity()),
      schedule_(schedule_of(options, total_steps)),
      captured_([this](const std::vector<Tensor>& inputs) { return run(inputs); },
                {.enabled = options.capture && options.device.is_cuda() && options.lookahead == 0 &&
                            task.fixed_shapes() && algorithm_of(options).capturable}) {
  const std::vector<NamedTensor> trained = trained_parameters(task.module());
  if (options.parallel) accumulation_.add(*options.parallel);
  const auto groups = parameter_groups(trained, options);
  if (options.parallel)
    optimizer_ = std::make_unique<dist::ShardedOptimizer>(*options.parallel, groups, algorithm_of(options));
  else
    optimizer_ = std::make_unique<optim::Optimizer>(groups, algorithm_of(options));
  if (options.lookahead > 0)
    lookahead_.emplace(*optimizer_, trained,
                       optim::LookAheadOptions{.steps = options.lookahead, .alpha = options.lookahead_alpha});
  if (options.ema > 0) ema_.emplace(trained, optim::EmaOptions{.decay = options.ema});
  if (options.schedule == "plateau" && !options.rate_factor) {
    plateau_.emplace(*optimizer_, optim::plateau_options(options.schedule_parameters));
    plateau_rates_ = plateau_->get_last_lr();
  }
}

void TrainingStep::set_rates(int64_t step) {
  if (!plateau_) return schedule_.apply(*optimizer_, step);
  std::vector<double> rates;
  for (const double rate : plateau_rates_) rates.push_back(schedule_.rate(step, rate));
  optimizer_->set_group_lr(rates);
}

void TrainingStep::on_validation(double metric) {
  if (!plateau_) return;
  optimizer_->set_group_lr(plateau_rates_);
  plateau_->step(metric);
  plateau_rates_ = plateau_->get_last_lr();
}

Tensor TrainingStep::forward(const StepInput& batch, std::span<const Tensor> tensors, int64_t max_length) const {
  const ProfileRange range("forward");
  return autocast(options_.device, options_.dtype, [&] { return batch.loss_of(tensors, max_length); });
}

/// Forward, backward and update. Nothing in it waits for the device or depends on what the device finds.
std::vector<Tensor> TrainingStep::run(const std::vector<Tensor>& inputs) {
  const size_t tensors = inputs.size() / static_cast<size_t>(parts_);
  Generator& generator = task_.module().generator();
  const uint64_t offset = generator.offset();
  // Shapes depend on the longest sequence: all parts run with the same.
  int64_t longest = 0;
  for (const Part& part : *work_) longest = std::max(longest, part.batch.max_length);
  Tensor loss;
  for (int64_t i = 0; i < parts_; ++i) {
    // Masks keyed by the data are those of the joined batch, whatever part a row is in.
    if (task_.keyed_dropout()) generator.set_offset(offset);
    const auto number = static_cast<size_t>(i);
    Tensor part = forward((*work_)[number].batch, std::span(inputs).subspan(tensors * number, tensors), longest);
    if (is_weighted()) part = part * inputs.back().slice(0, i, i + 1).reshape({});
    const ProfileRange range("backward");
    accumulation_.backward(part, i + 1 == parts_);
    loss = loss.defined() ? loss + part.detach() : part.detach();
  }
  if (is_parallel()) {
    NoGrad off;
    options_.parallel->group()->all_reduce(loss, dist::ReduceOp::kMean);
  }
  const ProfileRange range("optimizer");
  // A loss that is not finite skips the update too, whatever its gradients are.
  optim::StepOptions unscaled{.skip_non_finite = true};
  if (!accumulation_.scaler().enabled()) unscaled.earlier_norm = optim::gradient_norm({loss}, loss.device());
  update_ = accumulation_.step(*optimizer_, unscaled);
  accumulation_.update_scale();
  if (lookahead_) lookahead_->after_step();
  if (ema_) ema_->update(update_);
  return {loss};
}

TrainingStep::Pending TrainingStep::queue(int64_t number, int64_t epoch, std::vector<Part> parts) {
  Generator& generator = task_.module().generator();
  // Masks keyed by the data differ between epochs through the draw's number alone.
  if (task_.keyed_dropout()) generator.set_offset(static_cast<uint64_t>(epoch + 1) << 32);
  set_rates(number - 1);

  Pending pending;
  pending.offset = generator.offset();
  pending.parts = std::move(parts);
  StepMetrics& metrics = pending.metrics;
  std::vector<Tensor> inputs;
  std::vector<float> weights;
  work_ = &pending.parts;
  parts_ = static_cast<int64_t>(pending.parts.size());
  for (const Part& part : pending.parts) {
    inputs.insert(inputs.end(), part.batch.tensors.begin(), part.batch.tensors.end());
    weights.push_back(static_cast<float>(part.weight));
  }
  if (is_weighted()) inputs.push_back(from_vector(weights, {parts_}).to(options_.device));
  // The epoch's last step may have fewer parts than the recorded one: it runs by itself.
  const bool recordable = recorded_parts_ == 0 || recorded_parts_ == parts_;
  if (recordable) recorded_parts_ = parts_;
  const optim::StepResult recorded = update_;
  pending.loss.emplace(recordable ? captured_(inputs)[0] : run(inputs)[0]);
  pending.update = update_.fetch();
  if (!recordable) update_ = recorded;
  metrics.step = number;
  metrics.total_steps = total_steps_;
  metrics.epoch = epoch + 1;
  metrics.lr = optimizer_->lr();
  return pending;
}

StepMetrics TrainingStep::finish(Pending& pending) {
  StepMetrics metrics = pending.metrics;
  metrics.loss = pending.loss->values()[0];
  metrics.grad_norm = pending.update.grad_norm();
  if (accumulation_.scaler().enabled()) {
    metrics.loss_scale = pending.update.loss_scale();
    metrics.skipped = pending.update.skipped();
    if (!options_.explain_non_finite) return metrics;
    if (metrics.skipped && options_.device.is_cuda()) accumulation_.scaler().check();
    if (std::isnan(metrics.loss) && !metrics.skipped) explain(pending, "the loss is " + std::to_string(metrics.loss));
  } else if (!options_.explain_non_finite) {
    metrics.skipped = pending.update.skipped();
  } else if (!std::isfinite(metrics.loss)) {
    explain(pending, "the loss is " + std::to_string(metrics.loss));
  } else if (pending.update.skipped()) {
    explain(pending, "the gradient of " + pending.update.first_non_finite() + " is not finite");
  }
  return metrics;
}

StateView TrainingStep::state() const {
  StateView state = lookahead_ ? lookahead_->state_dict() : optimizer_->state_dict();
  for (const NamedTensor& entry : accumulation_.scaler().state_dict())
    state.push_back({kScaler + entry.name, entry.tensor});
  if (ema_)
    for (const NamedTensor& entry : ema_->state_dict()) state.push_back({kEma + entry.name, entry.tensor});
  if (plateau_) {
    optimizer_->set_group_lr(plateau_rates_);  // its state has them
    for (const NamedTensor& entry : plateau_->state_dict()) state.push_back({kPlateau + entry.name, entry.tensor});
  }
  return state;
}

void TrainingStep::load_state(const StateView& state) {
  StateView optimizer, scaler, ema, plateau;
  const std::pair<const std::string&, StateView&> parts[] = {{kScaler, scaler}, {kEma, ema}, {kPlateau, plateau}};
  for (const NamedTensor& entry : state) {
    const auto* const part = std::find_if(std::begin(parts), std::end(parts),
                                          [&](const auto& p) { return entry.name.starts_with(p.first); });
    if (part == std::end(parts))
      optimizer.push_back(entry);
    else
      part->second.push_back({entry.name.substr(part->first.size()), entry.tensor});
  }
  const bool scaled = accumulation_.scaler().enabled();
  TERN_CHECK(scaler.empty() != scaled, "resume: the checkpoint ", scaler.empty() ? "has no" : "has a",
             " loss scaler's state, this run ", scaled ? "needs one" : "has no scaler",
             ": it was made with another --dtype");
  TERN_CHECK(ema.empty() != ema_.has_value(), "resume: the checkpoint ", ema.empty() ? "has no" : "has",
             " averages of the weights, this run ", ema_ ? "needs them" : "has none",
             ": it was made with another --ema");
  TERN_CHECK(plateau.empty() != plateau_.has_value(), "resume: the checkpoint ", plateau.empty() ? "has no" : "has a",
             " state of the schedule plateau, this run ", plateau_ ? "needs one" : "has another schedule",
             ": it was made with another --schedule");
  if (lookahead_)
    lookahead_->load_state_dict(optimizer);
  else
    optimizer_->load_state_dict(optimizer);
  if (ema_) ema_->load_state_dict(ema);
  if (scaled) accumulation_.load_scaler(scaler);
  if (plateau_) {
    plateau_->load_state_dict(plateau);
    plateau_rates_ = plateau_->get_last_lr();
  }
}

/// On CUDA the ranks may have queued different numbers of steps and cannot ask each other: yes.
bool TrainingStep::found_on_any_rank(bool found) const {
  if (options_.device.is_cuda()) return true;
  Tensor any = from_vector<int32_t>({found}, {1});
  options_.parallel->group()->all_reduce(any, dist::ReduceOp::kMax);
  return any.item<int32_t>() != 0;
}

/// Repeats the step under anomaly mode, which names the op, and throws. Its own update was left out.
void TrainingStep::explain(Pending& pending, const std::string& what) {
  optimizer_->zero_grad();
  Generator& generator = task_.module().generator();
  generator.set_offset(pending.offset);
  std::string reason = "repeating the step found no single op as the cause";
  bool found = false;
  try {
    DetectAnomaly anomaly(Anomaly::kNonFinite);
    const auto local = accumulation_.no_sync();
    for (const Part& part : pending.parts) {
      if (task_.keyed_dropout()) generator.set_offset(pending.offset);
      forward(part.batch, part.batch.tensors, part.batch.max_length).backward();
    }
  } catch (const Error& error) {
    reason = error.what();
    found = true;
  }
  optimizer_->zero_grad();
  const std::string step = "step " + std::to_string(pending.metrics.step) + ": " + what + "; ";
  const bool elsewhere = is_parallel() && found_on_any_rank(found);
  if (!found && elsewhere) throw dist::PeerError(step + "another rank's error names the op");
  fail(step, reason, examples_text(task_, pending), "; try a lower --lr, a longer --warmup or --dtype fp32");
}

}  // namespace tern::models

#pragma once
// Moving averages of the weights, for validation and saving: those of torch.optim.swa_utils.AveragedModel, exponential
// (get_ema_multi_avg_fn) or equal (stochastic weight averaging), and, with warmup, of timm's ModelEmaV3.
//
//   optim::EMA ema(net.parameters(), {.decay = 0.999});
//   ...
//   ema.update(optimizer.step({.max_norm = 1, .skip_non_finite = true}));
//   ...
//   {
//     const optim::EMA::InPlace averaged = ema.in_place();  // the parameters hold the averages
//     validate(net);
//   }                                                       // and the weights again
//
// A teacher (of BYOL, or a target network) without a second module, for fp32 weights:
//
//   nn::functional_call(net, nn::without_prefix(ema.state_dict(), "average."), [&] { return net.forward(x); })

#include <vector>

#include "tern/optim/optimizer.h"

namespace tern::optim {

struct EmaOptions {
  double decay = 0.999;  // in [0, 1): average += (1 - decay) * (weight - average)
  /// Update n, from 1, uses min(decay, 1 - (1 + (n - 1) / warmup_gamma) ^ -warmup_power) instead, so that the averages
  /// follow the weights closely at first. Without warmup the decay applies from the second update on. The first update
  /// always copies the weights.
  bool warmup = false;
  double warmup_gamma = 1, warmup_power = 2.0 / 3;
  /// The mean of the weights at all updates instead: stochastic weight averaging (Izmailov et al., arXiv:1803.05407).
  /// decay and warmup are not used. Call update() once an epoch, from the epoch on where averaging is to begin.
  bool equal = false;
};

class EMA {
 public:
  /// The averages start as copies of the weights on their device, in fp32 for 16-bit weights, otherwise in the same
  /// type, which follows nn::Module::to(dtype) with the next update. Throws Error on invalid options and when there are
  /// no parameters.
  explicit EMA(const std::vector<NamedTensor>& parameters, const EmaOptions& options = {});

  /// Call it after every optimizer step. With the step's result, a skipped step leaves the averages unchanged; this is
  /// decided on the device without waiting. Throws Error when a weight has been moved to another device than its
  /// average.
  void update();
  void update(const StepResult& step);

  /// During its lifetime the parameters hold the averages; the destructor restores the weights bit for bit.
  class [[nodiscard]] InPlace {
   public:
    explicit InPlace(const EMA& ema);
    ~InPlace();
    InPlace(const InPlace&) = delete;
    InPlace& operator=(const InPlace&) = delete;

   private:
    const EMA& ema_;
    std::vector<Tensor> weights_;
  };
  InPlace in_place() const { return InPlace(*this); }
  /// Overwrites the weights permanently.
  void copy_to_parameters() const;

  /// "updates" (int64 [1], without skipped ones) and "average.<name>". Handles to live tensors.
  StateView state_dict() const;
  /// Missing, unexpected and mis-shaped entries are listed in one Error, and then nothing is written.
  void load_state_dict(const StateView& state);

 private:
  void run(kernels::AverageStep step);

  EmaOptions options_;
  std::vector<NamedTensor> parameters_;
  std::vector<Tensor> averages_;
  Tensor updates_;
};

}  // namespace tern::optim

#pragma once
// Exponential moving averages of the weights, to validate and to save instead of the weights themselves: the averages
// of torch.optim.swa_utils (get_ema_multi_avg_fn) and, with warmup, of timm's ModelEmaV3.
//
//   optim::EMA ema(net.parameters(), {.decay = 0.999});
//   ...
//   ema.update(optimizer.step({.max_norm = 1, .skip_non_finite = true}));
//   ...
//   {
//     const optim::EMA::InPlace averaged = ema.in_place();  // the parameters hold the averages
//     validate(net);
//   }                                                       // and the weights again

#include <vector>

#include "tern/optim/optimizer.h"

namespace tern::optim {

struct EmaOptions {
  double decay = 0.999;  // in [0, 1): average += (1 - decay) * (weight - average)
  /// Update n, from 1, takes min(decay, 1 - (1 + (n - 1) / warmup_gamma) ^ -warmup_power) instead: averages follow
  /// closely at first. Without it the decay holds from the second update on. The first one copies the weights, always.
  bool warmup = false;
  double warmup_gamma = 1, warmup_power = 2.0 / 3;
};

class EMA {
 public:
  /// The averages begin as the weights are: fp32 for 16-bit weights, otherwise of their type, on their device. Throws
  /// Error on options that cannot work and when there are no parameters.
  explicit EMA(const std::vector<NamedTensor>& parameters, const EmaOptions& options = {});

  /// After every optimizer step. With its result: averages stay as they are where that step was skipped, which is
  /// decided on the device; nothing waits for it.
  void update();
  void update(const StepResult& step);

  /// While it lives, the parameters hold the averages; its end gives them their weights back, bit for bit.
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
  /// For good.
  void copy_to_parameters() const;

  /// "updates" (int64 [1], those that were not skipped) and "average.<name>". Handles on live tensors.
  StateView state_dict() const;
  /// Missing, unexpected and mis-shaped entries are listed in one Error, and nothing is written then.
  void load_state_dict(const StateView& state);

 private:
  void run(kernels::AverageStep step);

  EmaOptions options_;
  std::vector<NamedTensor> parameters_;
  std::vector<Tensor> averages_;
  Tensor updates_;
};

}  // namespace tern::optim

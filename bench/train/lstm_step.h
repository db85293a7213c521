#pragma once
// A hand-written LSTM: a sequence of many small kernels.

#include "tern/bench/train/model_step.h"
#include "tern/nn/layers/linear.h"

namespace tern::bench {

/// One LSTM layer of `width` units over inputs of size `input`, and a classifier on the last state.
class Lstm final : public nn::Module {
 public:
  Lstm(const nn::Scope& s, int64_t input, int64_t width, int64_t classes);
  /// x: [batch, steps, input]; result: [batch, classes].
  Tensor forward(const Tensor& x) const;

 private:
  int64_t width_;
  nn::Linear input_, state_, classifier_;
};

class LstmStep final : public ModelStep {
 public:
  static constexpr int64_t kInput = 128, kWidth = 256, kClasses = 10;

  explicit LstmStep(const ModelOptions& options);
  void run(const Tensor& sequences, const Tensor& labels);
  /// Floating-point operations in matrix products of one time step of one sequence, forward and backward.
  static double flops() { return 3.0 * 2 * 4 * kWidth * (kInput + kWidth); }

 private:
  Tensor logits(const std::vector<Tensor>& batch) override;

  Lstm model_;
};

}  // namespace tern::bench

#pragma once
// Initialisers of new parameters. The formulas are PyTorch's (torch.nn.init); values come from the module's generator
// and are equal on every device.

#include "tern/core/autograd/parameter.h"

namespace tern::nn::init {

Initializer constant(double value);
Initializer zeros();
Initializer ones();
/// Uniform in [low, high).
Initializer uniform(double low = 0, double high = 1);
Initializer normal(double mean = 0, double std = 1);
/// The normal distribution restricted to [low, high], both absolute values.
Initializer truncated_normal(double mean = 0, double std = 1, double low = -2, double high = 2);

/// Numbers of inputs and outputs of one unit, for a weight [out, in, kernel...]. Throws Error below two dimensions.
struct Fans {
  int64_t in = 0, out = 0;
};
Fans fans(const Shape& shape);

enum class Nonlinearity { kLinear, kSigmoid, kTanh, kRelu, kLeakyRelu, kSelu };
/// The factor that preserves the variance through a nonlinearity; slope is leaky ReLU's.
double gain(Nonlinearity nonlinearity, double slope = 0.01);

/// Variance gain^2 * 2 / (fan_in + fan_out) (Glorot & Bengio, AISTATS 2010).
Initializer xavier_uniform(double gain = 1);
Initializer xavier_normal(double gain = 1);

enum class FanMode { kIn, kOut };
struct KaimingOptions {
  double slope = 0;  // of leaky ReLU, PyTorch's `a`
  FanMode mode = FanMode::kIn;
  Nonlinearity nonlinearity = Nonlinearity::kLeakyRelu;
};
/// Variance gain^2 / fan (He et al., arXiv:1502.01852).
Initializer kaiming_uniform(const KaimingOptions& options = {});
Initializer kaiming_normal(const KaimingOptions& options = {});

/// A random matrix with orthonormal rows (columns, when there are more rows), times gain; dimensions after the first
/// are flattened (Saxe et al., arXiv:1312.6120).
Initializer orthogonal(double gain = 1);

}  // namespace tern::nn::init

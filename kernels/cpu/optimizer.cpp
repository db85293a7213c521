#include "tern/kernels/optimizer.h"

#include <cmath>

#include "tern/kernels/cpu/rows.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

/// Elements of one block of work. Blocks run over the tensors as if they lay end to end: small ones share a block.
constexpr int64_t kBlock = 65536;

/// piece(tensor, begin, n) for every part of a tensor that a block holds.
template <class Size, class Piece>
void for_each_piece(int64_t count, const Size& size, const Piece& piece) {
  int64_t total = 0;
  for (int64_t t = 0; t < count; ++t) total += size(t);
  parallel_for(total, kBlock, [&](int64_t begin, int64_t end) {
    int64_t tensor = 0, first = 0;  // first: where the tensor begins in the line of all
    while (first + size(tensor) <= begin) first += size(tensor++);
    while (begin < end) {
      const int64_t stop = std::min(end, first + size(tensor));
      if (begin < stop) piece(tensor, begin - first, stop - begin);
      begin = stop;
      first += size(tensor++);
    }
  });
}

/// min(1, max_norm / (norm + 1e-6)) as clip_grad_norm_; NaN stays NaN.
double clip_factor(double norm, double max_norm) {
  const double ratio = max_norm / (norm + 1e-6);
  return ratio >= 1 ? 1 : ratio;
}

/// What gradients are multiplied by: 1 / loss scale and the clipping factor. The norm was taken of gradients as they
/// lie in memory, that is, times the loss scale.
double gradient_factor(const OptimizerStep& step) {
  const double unscale = step.inverse_scale ? static_cast<double>(*step.inverse_scale) : 1;
  if (!step.norm || step.max_norm <= 0) return unscale;
  return unscale * clip_factor(std::sqrt(step.norm->sum_of_squares) * unscale, step.max_norm);
}

/// True when the update is left out; otherwise counts it.
bool is_skipped(const OptimizerStep& step) {
  if (step.is_skipped()) return true;
  ++*step.step;
  return false;
}

/// A group with the rate that this step has for it.
template <class Group>
Group group_of_step(const Group* groups, int32_t index, const OptimizerStep& step) {
  Group group = groups[index];
  if (step.lr) group.lr = step.lr[index];
  return group;
}

/// values = weight + compensation, and back: the weight rounded, and what that took.
inline void load_compensated(const BFloat16* weight, const BFloat16* compensation, float* values, int64_t n) {
  for (int64_t i = 0; i < n; ++i) values[i] = static_cast<float>(weight[i]) + static_cast<float>(compensation[i]);
}
inline void store_compensated(const float* values, BFloat16* weight, BFloat16* compensation, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    weight[i] = BFloat16(values[i]);
    compensation[i] = BFloat16(values[i] - static_cast<float>(weight[i]));
  }
}

/// Updates `size` <= kTile elements of a tensor at `at`: update(weights) gets them in compute type.
template <class F, class W, class Update>
void update_weights(const OptimizerTensor& tensor, int64_t at, int64_t size, const Update& update) {
  W* stored = static_cast<W*>(tensor.weight) + at;
  if constexpr (std::is_same_v<W, F>) {
    update(stored);
  } else if (tensor.master) {
    F* master = static_cast<F*>(tensor.master) + at;
    update(master);
    narrow(master, stored, size);
  } else {
    F values[kTile];
    if constexpr (std::is_same_v<W, BFloat16>) {
      if (tensor.compensation) {
        BFloat16* compensation = static_cast<BFloat16*>(tensor.compensation) + at;
        load_compensated(stored, compensation, values, size);
        update(values);
        return store_compensated(values, stored, compensation, size);
      }
    }
    for (int64_t i = 0; i < size; ++i) values[i] = static_cast<F>(stored[i]);
    update(values);
    narrow(values, stored, size);
  }
}

/// Updates n elements of one tensor, tile by tile: update(weights, gradients, begin, n) gets them in compute type, the
/// gradients multiplied by `factor`.
template <class F, class G, class W, class Update>
void update_piece(const OptimizerTensor& tensor, int64_t begin, int64_t n, F factor, const Update& update) {
  F gradients[kTile];
  for (const int64_t end = begin + n; begin < end; begin += kTile) {
    const int64_t size = std::min(kTile, end - begin);
    const G* from = static_cast<const G*>(tensor.gradient) + begin;
    for (int64_t i = 0; i < size; ++i) gradients[i] = factor * static_cast<F>(static_cast<ComputeType<G>>(from[i]));
    update_weights<F, W>(tensor, begin, size, [&](F* weights) { update(weights, gradients, begin, size); });
  }
}

template <class F, class Update>
void update_piece(const OptimizerTensor& tensor, int64_t begin, int64_t n, F factor, const Update& update) {
  dispatch_float(tensor.gradient_dtype, [&]<class G>() {
    dispatch_float(tensor.weight_dtype, [&]<class W>() {
      // fp64 weights are the ones computed in double.
      if constexpr (std::is_same_v<W, double> == std::is_same_v<F, double>)
        update_piece<F, G, W>(tensor, begin, n, factor, update);
    });
  });
}

/// Calls f.operator()<F>() with the type a tensor's update is computed in.
template <class Function>
void dispatch_compute(const OptimizerTensor& tensor, const Function& f) {
  if (tensor.weight_dtype == DType::kFloat64)
    f.template operator()<double>();
  else
    f.template operator()<float>();
}

// ---- Adam ----

/// A group's constants for one step, computed in double as PyTorch does.
struct AdamConstants {
  AdamConstants(const AdamGroup& group, int64_t step)
      : g(group),
        step_size(group.lr / (1 - std::pow(group.beta1, static_cast<double>(step)))),
        root_correction(std::sqrt(1 - std::pow(group.beta2, static_cast<double>(step)))) {}
  AdamGroup g;
  double step_size, root_correction;
};

template <bool kAmsgrad, class F>
void adam_tile(const AdamConstants& c, F* weight, F* gradient, F* average, F* square, F* largest, int64_t n) {
  const F sign = c.g.maximize ? F(-1) : F(1);
  const F coupled = c.g.decoupled ? F(0) : static_cast<F>(c.g.weight_decay);
  const F keep = c.g.decoupled ? static_cast<F>(1 - c.g.lr * c.g.weight_decay) : F(1);
  const F first = static_cast<F>(1 - c.g.beta1), beta2 = static_cast<F>(c.g.beta2),
          second = static_cast<F>(1 - c.g.beta2);
  const F correction = static_cast<F>(c.root_correction), eps = static_cast<F>(c.g.eps);
  const F rate = static_cast<F>(c.step_size);
  if (coupled != F(0))
    for (int64_t i = 0; i < n; ++i) gradient[i] += sign * coupled * weight[i];
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const F g = sign * gradient[i];
    const F m = average[i] + first * (g - average[i]);
    const F v = square[i] * beta2 + second * g * g;
    average[i] = m;
    square[i] = v;
    F root = v;
    if constexpr (kAmsgrad) {
      root = math::max(largest[i], v);
      largest[i] = root;
    }
    weight[i] = weight[i] * keep - rate * m / (std::sqrt(root) / correction + eps);
  }
}

template <class F>
void adam_piece(const OptimizerTensor& tensor, const AdamConstants& constants, F factor, int64_t begin, int64_t n) {
  update_piece<F>(tensor, begin, n, factor, [&](F* weight, F* gradient, int64_t at, int64_t size) {
    F* average = static_cast<F*>(tensor.state1) + at;
    F* square = static_cast<F*>(tensor.state2) + at;
    if (constants.g.amsgrad)
      adam_tile<true>(constants, weight, gradient, average, square, static_cast<F*>(tensor.state3) + at, size);
    else
      adam_tile<false, F>(constants, weight, gradient, average, square, nullptr, size);
  });
}

// ---- SGD ----

template <class F>
void sgd_tile(const SgdGroup& group, bool first_step, F* weight, F* gradient, F* momentum, int64_t n) {
  const F sign = group.maximize ? F(-1) : F(1);
  const F decay = static_cast<F>(group.weight_decay), rate = static_cast<F>(group.lr);
  const F keep = static_cast<F>(group.momentum), add = static_cast<F>(1 - group.dampening);
  for (int64_t i = 0; i < n; ++i) gradient[i] *= sign;
  if (decay != F(0))
    for (int64_t i = 0; i < n; ++i) gradient[i] += decay * weight[i];
  if (momentum) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) momentum[i] = first_step ? gradient[i] : keep * momentum[i] + add * gradient[i];
    if (group.nesterov)
      for (int64_t i = 0; i < n; ++i) gradient[i] += keep * momentum[i];
    else
      std::copy_n(momentum, n, gradient);
  }
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) weight[i] -= rate * gradient[i];
}

}  // namespace

void adam(Stream, const OptimizerTensor* tensors, int64_t count, const AdamGroup* groups, int64_t, OptimizerStep step) {
  if (is_skipped(step)) return;
  const double factor = gradient_factor(step);
  for_each_piece(
      count, [=](int64_t t) { return tensors[t].size; },
      [&](int64_t t, int64_t begin, int64_t n) {
        const AdamConstants constants(group_of_step(groups, tensors[t].group, step), *step.step);
        dispatch_compute(tensors[t],
                         [&]<class F>() { adam_piece(tensors[t], constants, static_cast<F>(factor), begin, n); });
      });
}

void sgd(Stream, const OptimizerTensor* tensors, int64_t count, const SgdGroup* groups, int64_t, OptimizerStep step) {
  if (is_skipped(step)) return;
  const double factor = gradient_factor(step);
  const bool first_step = *step.step == 1;
  for_each_piece(
      count, [=](int64_t t) { return tensors[t].size; },
      [&](int64_t t, int64_t begin, int64_t n) {
        const OptimizerTensor& tensor = tensors[t];
        const SgdGroup group = group_of_step(groups, tensor.group, step);
        dispatch_compute(tensor, [&]<class F>() {
          update_piece<F>(
              tensor, begin, n, static_cast<F>(factor), [&](F* weight, F* gradient, int64_t at, int64_t size) {
                F* momentum = group.momentum != 0 && tensor.state1 ? static_cast<F*>(tensor.state1) + at : nullptr;
                sgd_tile(group, first_step, weight, gradient, momentum, size);
              });
        });
      });
}

void average_weights(Stream, const AverageTensor* tensors, int64_t count, AverageStep step) {
  if (step.is_skipped()) return;
  const double share = step.share(++*step.updates);
  for_each_piece(
      count, [=](int64_t t) { return tensors[t].size; },
      [&](int64_t t, int64_t begin, int64_t n) {
        dispatch_float(tensors[t].weight_dtype, [&]<class W>() {
          using F = ComputeType<W>;
          F* average = static_cast<F*>(tensors[t].average) + begin;
          const W* weight = static_cast<const W*>(tensors[t].weight) + begin;
          const F near = static_cast<F>(share), far = static_cast<F>(1 - share);
          if (share < 0.5)
            for (int64_t i = 0; i < n; ++i) average[i] += near * (static_cast<F>(weight[i]) - average[i]);
          else
            for (int64_t i = 0; i < n; ++i) {
              const F w = static_cast<F>(weight[i]);
              average[i] = w - far * (w - average[i]);
            }
        });
      });
}

void scale_by_norm(Stream, const View* tensors, int64_t count, const GradientNorm* norm, double max_norm) {
  const double factor = clip_factor(std::sqrt(norm->sum_of_squares), max_norm);
  if (factor == 1) return;
  for_each_piece(
      count, [=](int64_t t) { return tensors[t].numel(); },
      [&](int64_t t, int64_t begin, int64_t n) {
        dispatch_float(tensors[t].dtype, [&]<class T>() {
          using F = ComputeType<T>;
          T* x = tensors[t].as<T>() + begin;
          for (int64_t i = 0; i < n; ++i) x[i] = static_cast<T>(static_cast<F>(x[i]) * static_cast<F>(factor));
        });
      });
}

}  // namespace tern::kernels::TERN_CPU

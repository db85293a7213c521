#include "tern/kernels/optimizer/optimizer.h"

#include "tern/kernels/cpu/optimizer/weights.h"
#include "tern/kernels/optimizer/tiles.h"
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

/// Updates n elements of one tensor, tile by tile.
template <class F>
void update_piece(const OptimizerTensor& tensor, const PreparedRule<F>& rule, int64_t begin, int64_t n) {
  alignas(64) F gradients[kTile];
  for (const int64_t end = begin + n; begin < end; begin += kTile) {
    const int64_t size = std::min(kTile, end - begin);
    load_gradients(tensor, begin, size, rule.factor, gradients);
    F* states[kMaxOptimizerStates] = {};
    for (int k = 0; k < kMaxOptimizerStates; ++k)
      if (tensor.states[k]) states[k] = static_cast<F*>(tensor.states[k]) + begin;
    update_stored<F>(tensor, begin, size, [&](F* weights) { rule.tile(rule.step, weights, gradients, states, size); });
  }
}

template <class... Rules>
RuleFunctions builtin_functions(int index, TypeList<Rules...>) {
  static constexpr RuleFunctions kFunctions[] = {rule_functions<Rules>()...};
  return kFunctions[index];
}

}  // namespace

void update_weights(Stream, const OptimizerRules& rules, const OptimizerTensor* tensors, int64_t count,
                    const OptimizerStep& step) {
  if (step.is_skipped()) return;
  ++step.count();
  const RuleFunctions functions = rules.builtin >= 0 ? builtin_functions(rules.builtin, BuiltinRules()) : rules.custom;
  for_each_piece(
      count, [=](int64_t t) { return tensors[t].size; },
      [&](int64_t t, int64_t begin, int64_t n) {
        const auto update = [&]<class F>(PrepareRule<F> prepare) {
          PreparedRule<F> rule;
          prepare(rules.groups, tensors[t].group, step, rule);
          update_piece<F>(tensors[t], rule, begin, n);
        };
        if (tensors[t].weight_dtype == DType::kFloat64)
          update(functions.f64);
        else
          update(functions.f32);
      });
}

void average_weights(Stream, const AverageTensor* tensors, int64_t count, AverageStep step) {
  if (step.is_skipped()) return;
  const double share = step.share(++step.count());
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
  const double factor = clip_factor(math::sqrt(norm->sum_of_squares), max_norm);
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

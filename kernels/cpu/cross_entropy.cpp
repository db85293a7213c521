
#include "tern/kernels/cpu/softmax_rows.h"
#include "tern/kernels/parallel.h"
#include "tern/kernels/reduce.h"
#include "tern/kernels/softmax.h"

namespace tern::kernels::TERN_CPU {
namespace {

/// Returns the loss of one row and writes its log-sum-exp. Logits are taken relative to the largest, so 1e30 is fine.
template <class T, class F>
F row_loss(const T* logits, int64_t classes, int64_t target, bool counts, F smoothing, F& log_sum_exp) {
  const RowExponentials<F> row = sum_exponentials<F, T>(logits, classes, nullptr);
  const F log_sum = math::log(row.sum);
  log_sum_exp = row.largest + log_sum;
  if (!counts) return F(0);
  const F target_loss = log_sum - (static_cast<F>(logits[target]) - row.largest);
  if (smoothing == F(0)) return target_loss;
  LaneSum<F> sum;
  F buffer[kTile];
  const F largest = row.largest;
  for (int64_t j = 0; j < classes; j += kTile) {
    const int64_t n = std::min(kTile, classes - j);
    sum.add(
        n, [=](auto v) { return v - largest; }, widen(logits + j, buffer, n));
  }
  return (F(1) - smoothing) * target_loss + smoothing * (log_sum - sum.total() / static_cast<F>(classes));
}

template <class T, class F>
void row_gradient(const T* logits, int64_t classes, int64_t target, F log_sum_exp, F scale, F smoothing, T* dlogits) {
  const F everywhere = smoothing / static_cast<F>(classes);
#pragma GCC ivdep
  for (int64_t c = 0; c < classes; ++c)
    dlogits[c] = static_cast<T>(scale * (math::exp(static_cast<F>(logits[c]) - log_sum_exp) - everywhere));
  // The target's entry is computed again from its logit, because dlogits may already be rounded to 16 bits.
  const F probability = math::exp(static_cast<F>(logits[target]) - log_sum_exp);
  dlogits[target] = static_cast<T>(scale * (probability - everywhere - (F(1) - smoothing)));
}

}  // namespace

void cross_entropy_forward(Stream, ConstView logits, ConstView targets, ConstView row_weights, int64_t ignore_index,
                           double label_smoothing, View losses, View log_sum_exp, IndexFault* fault) {
  const int64_t rows = logits.rows(), classes = logits.cols();
  dispatch_float(logits.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    parallel_for(rows, softmax_grain(std::max<int64_t>(classes, 1)), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t target = targets.as<int64_t>()[r];
        const bool inside = target >= 0 && target < classes;
        if (!inside && target != ignore_index) fault->report(r);
        const bool counts = inside && target != ignore_index;
        const F loss = row_loss(logits.as<T>() + r * classes, classes, target, counts, static_cast<F>(label_smoothing),
                                log_sum_exp.as<F>()[r]);
        losses.as<F>()[r] = row_weights && counts ? row_weights.as<F>()[r] * loss : loss;
      }
    });
  });
}

void cross_entropy_backward(Stream, ConstView logits, ConstView targets, ConstView log_sum_exp, ConstView scale,
                            int64_t ignore_index, double label_smoothing, View dlogits) {
  const int64_t rows = logits.rows(), classes = logits.cols();
  if (classes == 0) return;
  dispatch_float(logits.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    parallel_for(rows, softmax_grain(classes), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t target = targets.as<int64_t>()[r];
        const F factor = scale.as<F>()[r];
        T* out = dlogits.as<T>() + r * classes;
        // An ignored row gives 0 even when its logits are not finite.
        if (target < 0 || target >= classes || target == ignore_index || factor == F(0)) {
          std::fill_n(out, classes, static_cast<T>(F(0)));
        } else {
          row_gradient(logits.as<T>() + r * classes, classes, target, log_sum_exp.as<F>()[r], factor,
                       static_cast<F>(label_smoothing), out);
        }
      }
    });
  });
}

void cross_entropy_mean(Stream stream, ConstView losses, ConstView targets, ConstView row_weights, int64_t ignore_index,
                        View loss, View divisor) {
  const auto run = [&]<class F>() {
    F& total = *loss.as<F>();
    reduce(stream, Reduction::kSum, losses, 1, nullptr, make_view(&total, 1));
    double count = 0;
    for (int64_t r = 0; r < losses.numel(); ++r)
      if (targets.as<int64_t>()[r] != ignore_index)
        count += row_weights ? static_cast<double>(row_weights.as<F>()[r]) : 1;
    const F divided = static_cast<F>(count == 0 ? 1 : count);
    *divisor.as<F>() = divided;
    total /= divided;
  };
  losses.dtype == DType::kFloat64 ? run.template operator()<double>() : run.template operator()<float>();
}

void cross_entropy_scale(Stream, ConstView dy, ConstView divisor, ConstView targets, ConstView row_weights,
                         int64_t ignore_index, View scale) {
  const auto run = [&]<class F>() {
    const F divided = divisor ? *divisor.as<F>() : F(1);
    const int64_t step = dy.numel() == 1 ? 0 : 1;
    for (int64_t r = 0; r < scale.numel(); ++r) {
      const F weight = row_weights ? row_weights.as<F>()[r] : F(1);
      scale.as<F>()[r] = targets.as<int64_t>()[r] == ignore_index ? F(0) : dy.as<F>()[r * step] / divided * weight;
    }
  };
  scale.dtype == DType::kFloat64 ? run.template operator()<double>() : run.template operator()<float>();
}

}  // namespace tern::kernels::TERN_CPU

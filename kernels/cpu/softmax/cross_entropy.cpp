
#include "tern/kernels/cpu/softmax/rows.h"
#include "tern/kernels/parallel.h"
#include "tern/kernels/reduce.h"
#include "tern/kernels/softmax.h"

namespace tern::kernels::TERN_CPU {
namespace {

/// The loss of a row from its largest logit and log(sum of exp(logit - largest)). Logits are taken relative to the
/// largest, so 1e30 is fine.
template <class T, class F>
F row_loss(const T* logits, int64_t classes, int64_t target, F smoothing, F largest, F log_sum) {
  const F target_loss = log_sum - (static_cast<F>(logits[target]) - largest);
  if (smoothing == F(0)) return target_loss;
  LaneSum<F> sum;
  F buffer[kTile];
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
  map_row<F>(
      dlogits, classes, [=](F logit) { return scale * (math::exp(logit - log_sum_exp) - everywhere); }, logits);
  // The target's entry is computed again from its logit, because dlogits may already be rounded to 16 bits.
  const F probability = math::exp(static_cast<F>(logits[target]) - log_sum_exp);
  dlogits[target] = static_cast<T>(scale * (probability - everywhere - (F(1) - smoothing)));
}

/// The losses of a block of short rows.
template <class T>
class ShortRowLosses {
 public:
  using F = ComputeType<T>;
  ShortRowLosses(const T* x, int64_t rows, int64_t classes, F smoothing)
      : logits_(x, rows, classes), exponentials_(logits_, false), smoothing_(smoothing) {
    for (int64_t r = 0; r < kRows; ++r) log_sums_[r] = math::log(exponentials_.sum[r]);
    if (smoothing == F(0)) return;
    BlockSums<F> sums;
    alignas(64) F differences[kRows];
    for (int64_t c = 0; c < classes; ++c) {
      const F* const values = logits_.column(c);
      for (int64_t r = 0; r < kRows; ++r) differences[r] = values[r] - exponentials_.largest[r];
      sums.add(c, differences);
    }
    std::copy_n(sums.totals(classes), kRows, sums_);
  }
  F log_sum_exp(int64_t r) const { return exponentials_.largest[r] + log_sums_[r]; }
  F loss(int64_t r, int64_t target) const {
    const F target_loss = log_sums_[r] - (logits_.column(target)[r] - exponentials_.largest[r]);
    if (smoothing_ == F(0)) return target_loss;
    const F mean = sums_[r] / static_cast<F>(logits_.columns());
    return (F(1) - smoothing_) * target_loss + smoothing_ * (log_sums_[r] - mean);
  }

 private:
  static constexpr int64_t kRows = kBlockRows<F>;
  ShortRows<T> logits_;
  BlockExponentials<F> exponentials_;
  alignas(64) F log_sums_[kRows], sums_[kRows];  // sums_: of the differences from the largest logit
  F smoothing_;
};

/// row_gradient for a block of n short rows; rows whose scale is 0 get 0.
template <class T, class F>
void short_row_gradients(const T* logits, int64_t n, int64_t classes, const int64_t* targets, const F* log_sum_exp,
                         const F* scale, F smoothing, T* dlogits) {
  constexpr int64_t kRows = kBlockRows<F>;
  ShortRows<T> rows(logits, n, classes);
  const F everywhere = smoothing / static_cast<F>(classes);
  alignas(64) F gradients[kRows];
  for (int64_t c = 0; c < classes; ++c) {
    F* const values = rows.column(c);
    for (int64_t r = 0; r < kRows; ++r) gradients[r] = math::exp(values[r] - log_sum_exp[r]) - everywhere;
    std::copy_n(gradients, kRows, values);
  }
  for (int64_t r = 0; r < n; ++r)
    if (scale[r] != F(0)) rows.column(targets[r])[r] -= F(1) - smoothing;
  for (int64_t c = 0; c < classes; ++c) {
    F* const values = rows.column(c);
    for (int64_t r = 0; r < kRows; ++r) gradients[r] = scale[r] == F(0) ? F(0) : scale[r] * values[r];
    std::copy_n(gradients, kRows, values);
  }
  rows.store(dlogits);
}

}  // namespace

void cross_entropy_forward(Stream, ConstView logits, ConstView targets, ConstView row_weights, int64_t ignore_index,
                           double label_smoothing, View losses, View log_sum_exp, IndexFault* fault) {
  const int64_t rows = logits.rows(), classes = logits.cols();
  dispatch_float(logits.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    parallel_for(rows, softmax_grain(std::max<int64_t>(classes, 1)), [&](int64_t begin, int64_t end) {
      // Writes the loss of row r; loss_of(target) is called when the row counts.
      const auto write = [&](int64_t r, const auto& loss_of) {
        const int64_t target = targets.as<int64_t>()[r];
        const bool inside = target >= 0 && target < classes;
        if (!inside && target != ignore_index) fault->report(r);
        const bool counts = inside && target != ignore_index;
        const F loss = counts ? loss_of(target) : F(0);
        losses.as<F>()[r] = row_weights && counts ? row_weights.as<F>()[r] * loss : loss;
      };
      const F smoothing = static_cast<F>(label_smoothing);
      F* const log_sums = log_sum_exp.as<F>();
      if (classes > 0 && classes <= kShortRow) {
        return for_row_blocks<F>(begin, end, [&](int64_t first, int64_t n) {
          const ShortRowLosses<T> block(logits.as<T>() + first * classes, n, classes, smoothing);
          for (int64_t r = 0; r < n; ++r) {
            log_sums[first + r] = block.log_sum_exp(r);
            write(first + r, [&](int64_t target) { return block.loss(r, target); });
          }
        });
      }
      for (int64_t r = begin; r < end; ++r) {
        const T* const x = logits.as<T>() + r * classes;
        const RowExponentials<F> row = sum_exponentials<F, T>(x, classes, nullptr);
        const F log_sum = math::log(row.sum);
        log_sums[r] = row.largest + log_sum;
        write(r, [&](int64_t target) { return row_loss(x, classes, target, smoothing, row.largest, log_sum); });
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
    const F smoothing = static_cast<F>(label_smoothing);
    // 0 for an ignored row, which gives 0 even when its logits are not finite.
    const auto scale_of = [&](int64_t r) {
      const int64_t target = targets.as<int64_t>()[r];
      return target < 0 || target >= classes || target == ignore_index ? F(0) : scale.as<F>()[r];
    };
    parallel_for(rows, softmax_grain(classes), [&](int64_t begin, int64_t end) {
      if (classes <= kShortRow) {
        return for_row_blocks<F>(begin, end, [&](int64_t first, int64_t n) {
          F factors[kBlockRows<F>] = {}, log_sums[kBlockRows<F>] = {};
          for (int64_t r = 0; r < n; ++r) factors[r] = scale_of(first + r);
          std::copy_n(log_sum_exp.as<F>() + first, n, log_sums);
          const int64_t at = first * classes;
          short_row_gradients(logits.as<T>() + at, n, classes, targets.as<int64_t>() + first, log_sums, factors,
                              smoothing, dlogits.as<T>() + at);
        });
      }
      for (int64_t r = begin; r < end; ++r) {
        const F factor = scale_of(r);
        T* const out = dlogits.as<T>() + r * classes;
        if (factor == F(0))
          std::fill_n(out, classes, static_cast<T>(F(0)));
        else
          row_gradient(logits.as<T>() + r * classes, classes, targets.as<int64_t>()[r], log_sum_exp.as<F>()[r], factor,
                       smoothing, out);
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

#include "tern/core/ops/loss/ctc.h"

#include <algorithm>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/engine.h"
#include "tern/core/autograd/function.h"
#include "tern/core/ops/indexing/gather.h"
#include "tern/core/ops/indexing/join.h"
#include "tern/core/ops/indexing/rearrange.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"
#include "tern/core/ops/reduce/statistics.h"
#include "tern/core/ops/workspace.h"
#include "tern/kernels/ctc.h"

namespace tern {
namespace {

constexpr const char* kCtc = "ctc_loss";

/// The losses of x [frames, batch, states], the log-probabilities of states. `lengths` and `skips` are the kernel's.
struct CtcAlignments final : TwiceDifferentiable<CtcAlignments> {
  static constexpr const char* kName = kCtc;
  Saved x_, lengths_, skips_, alpha_;
  SavedOutput losses_;

  Tensor forward(const Tensor& x, const Constant& lengths, const Constant& skips) {
    const Tensor alpha = empty_like(x), losses = empty({x.size(1)}, x.options());
    kernels::ctc_forward(current_stream(x.device()), x.view(), lengths.tensor.view(), skips.tensor.view(), alpha.view(),
                         losses.view());
    x_ = x;
    lengths_ = lengths.tensor;
    skips_ = skips.tensor;
    alpha_ = alpha;
    losses_ = losses;
    return losses;
  }
  Grads backward(const Tensor& dy) override { return {grad_enabled() ? by_ops(dy) : by_kernel(dy)}; }

  Tensor by_kernel(const Tensor& dy) {
    const Tensor x = x_.get(), dx = empty_like(x);
    const kernels::Stream stream = current_stream(x.device());
    const Workspace workspace(x.device(),
                              [&] { return kernels::ctc_backward_workspace(stream, x.size(1), x.size(2), x.dtype()); });
    kernels::ctc_backward(stream, x.view(), lengths_.get().view(), skips_.get().view(), alpha_.get().view(),
                          losses_.get().view(), dy.contiguous().view(), workspace.data(), dx.view());
    return dx;
  }
  /// The gradient as a function that can be differentiated: that of the same losses made of ops.
  Tensor by_ops(const Tensor& dy) {
    const Tensor x = x_.get(), fits = logical_not(isinf(losses_.get().detach()));
    const Tensor ignored = dy.detach() == 0.0;
    const Tensor losses = losses_of_ops(x, lengths_.get(), skips_.get());
    const Tensor dx = grad({losses}, {x}, {.gradients = {dy}, .create_graph = true, .allow_unused = true})[0];
    if (!dx.defined()) return zeros_like(x);
    return where(ignored.unsqueeze(1), 0.0, where(fits.unsqueeze(1), dx, NAN));
  }

 private:
  /// A number in place of -infinity, whose differences are 0 and not NaN.
  static constexpr double kNever = -1e30;

  /// The states before each by `distance`.
  static Tensor before(const Tensor& row, int64_t distance) {
    const int64_t cut = std::min(distance, row.size(1));
    return pad(row.slice(1, 0, row.size(1) - cut), {cut, 0}, PadMode::kConstant, kNever);
  }
  static Tensor losses_of_ops(const Tensor& x, const Tensor& lengths, const Tensor& skips) {
    const Tensor frames = lengths.select(1, 0).unsqueeze(1), states = lengths.select(1, 1).unsqueeze(1);
    const Tensor state = arange(0, static_cast<double>(x.size(2)), 1, lengths.options());
    const Tensor emitted = clamp(x, kNever, INFINITY);
    const Tensor start = pad(zeros({x.size(1), 1}, x.options()), {0, x.size(2) - 1}, PadMode::kConstant, kNever);
    Tensor row = start;  // with no frame, an alignment is in the first state
    for (int64_t t = 0; t < x.size(0); ++t) {
      const Tensor skipping = t == 0 ? full_like(row, kNever) : where(skips, before(row, 2), kNever);
      const Tensor sums = logsumexp(stack({row, before(row, 1), skipping}), {0}) + emitted[t];
      row = where(gt(frames, static_cast<double>(t)), sums, row);
    }
    const Tensor is_last = logical_and(lt(state, states), ge(state, states - 2.0));
    return neg(logsumexp(where(is_last, row, kNever), {1}));
  }
};

/// Lengths [batch] or [] as numbers of the host; each at most `most`.
std::vector<int64_t> lengths_on_host(const char* name, const Tensor& lengths, int64_t batch, int64_t most) {
  const bool integers = lengths.defined() && (lengths.dtype() == DType::kInt64 || lengths.dtype() == DType::kInt32);
  TERN_CHECK(integers && lengths.dim() <= 1 && lengths.numel() == batch, kCtc, ": ", name, " must be int64 or int32 [",
             batch, "], got ", lengths.defined() ? lengths.describe() : "no tensor");
  const std::vector<int64_t> result = lengths.to_vector<int64_t>();
  for (size_t b = 0; b < result.size(); ++b)
    TERN_CHECK(result[b] >= 0 && result[b] <= most, kCtc, ": ", name, "[", b, "] is ", result[b], ", expected 0 to ",
               most);
  return result;
}

/// What the kernel reads of targets.
struct CtcStates {
  std::vector<int64_t> labels;   // [batch, states], the class of each state
  std::vector<bool> skips;       // [batch, states]
  std::vector<int64_t> lengths;  // [batch, 2]
  int64_t states = 1;
};
CtcStates states_of(const Tensor& targets, const std::vector<int64_t>& frames, const std::vector<int64_t>& counts,
                    int64_t classes, int64_t blank) {
  const bool padded = targets.dim() == 2;
  const std::vector<int64_t> all = targets.to_vector<int64_t>();
  CtcStates result;
  for (const int64_t count : counts) result.states = std::max(result.states, 2 * count + 1);
  result.labels.assign(counts.size() * static_cast<size_t>(result.states), blank);
  result.skips.assign(result.labels.size(), false);
  for (size_t b = 0, begin = 0, row = 0; b < counts.size(); ++b, row += static_cast<size_t>(result.states)) {
    const auto count = static_cast<size_t>(counts[b]);
    if (padded) begin = b * static_cast<size_t>(targets.size(1));
    for (size_t i = 0; i < count; ++i) {
      const int64_t label = all[begin + i];
      TERN_CHECK(label >= 0 && label < classes && label != blank, kCtc, ": label ", i, " of sequence ", b, " is ",
                 label, ", expected a class in [0, ", classes, ") other than the blank ", blank);
      result.labels[row + 2 * i + 1] = label;
      result.skips[row + 2 * i + 1] = i > 0 && label != all[begin + i - 1];
    }
    begin += count;
    result.lengths.insert(result.lengths.end(), {frames[b], 2 * counts[b] + 1});
  }
  return result;
}

void check_targets(const Tensor& targets, int64_t batch, const std::vector<int64_t>& counts) {
  const bool integers = targets.defined() && !is_floating(targets.dtype()) && targets.dtype() != DType::kBool;
  TERN_CHECK(integers && (targets.dim() == 1 || targets.dim() == 2), kCtc,
             ": targets must be integers [batch, most labels] or [sum of target_lengths], got ",
             targets.defined() ? targets.describe() : "no tensor");
  int64_t most = 0, sum = 0;
  for (const int64_t count : counts) {
    most = std::max(most, count);
    sum += count;
  }
  TERN_CHECK(targets.dim() == 1 ? targets.size(0) == sum : targets.size(0) == batch && targets.size(1) >= most, kCtc,
             ": targets are ", targets.shape(), ", expected [", batch, ", ", most, " or more] or [", sum,
             "] by target_lengths");
}

}  // namespace

Tensor ctc_loss(const Tensor& log_probabilities, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, const CtcOptions& options) {
  Tensor x = log_probabilities;
  TERN_CHECK(is_floating(x.dtype()) && (x.dim() == 2 || x.dim() == 3), kCtc,
             ": log_probabilities must be floating [frames, batch, classes] or [frames, classes], got ", x.describe());
  detail::autocast_inputs("loss", {&x});
  if (is_low_precision(x.dtype())) x = x.to(DType::kFloat32);
  if (log_probabilities.dim() == 2) x = x.unsqueeze(1);
  const int64_t batch = x.size(1), classes = x.size(2);
  TERN_CHECK(options.blank >= 0 && options.blank < classes, kCtc, ": the blank must be a class in [0, ", classes,
             "), got ", options.blank);
  const std::vector<int64_t> frames = lengths_on_host("input_lengths", input_lengths, batch, x.size(0));
  const std::vector<int64_t> counts = lengths_on_host("target_lengths", target_lengths, batch, INT32_MAX);
  check_targets(targets, batch, counts);
  const CtcStates states = states_of(targets, frames, counts, classes, options.blank);

  const auto on_device = [&]<class T>(const std::vector<T>& values, const Shape& shape) {
    return from_vector(values, shape).to(x.device());
  };
  const Tensor labels = on_device(states.labels, {1, batch, states.states});
  const Tensor of_states = gather(x, 2, labels.expand({x.size(0), batch, states.states}));
  Tensor losses = CtcAlignments::apply(of_states, Constant{on_device(states.lengths, {batch, 2})},
                                       Constant{on_device(states.skips, {batch, states.states})});
  if (options.zero_infinity) losses = where(isinf(losses.detach()), 0.0, losses);
  if (options.reduction == LossReduction::kSum) return sum(losses);
  if (options.reduction == LossReduction::kNone) return log_probabilities.dim() == 2 ? losses.squeeze(0) : losses;
  std::vector<double> divisors;
  for (const int64_t count : counts) divisors.push_back(static_cast<double>(std::max<int64_t>(count, 1)));
  return mean(losses / on_device(divisors, {batch}).to(x.dtype()));
}

}  // namespace tern

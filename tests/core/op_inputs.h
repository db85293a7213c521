#pragma once
// Calls of every op with whatever tensors, most of them such that the op takes them: all dtypes, strides and shapes,
// empty, undefined, with NaN, of the wrong kind.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/engine.h"
#include "tern/core/memory/stream.h"
#include "tern/tests/core/indexing_calls.h"
#include "tern/tests/core/inputs.h"
#include "tern/tests/core/tolerance.h"

namespace tern::test {

inline SequenceLayout layout(Inputs& in) {
  const Device device = in.options().device;
  SequenceLayout result = in.one_in(3)   ? packed_layout({in.below(3), in.below(4)}, device)
                          : in.one_in(2) ? padded_layout(1, in.below(6), in.one_in(3) ? in.any() : Tensor(), device)
                                         : packed_layout({4}, device);
  if (in.options().hostile && in.one_in(8)) result.offsets = in.any();
  if (in.options().hostile && in.one_in(8)) result.max_length = in.below(5) - 1;
  // Both must be contiguous: only copies of views would be accepted.
  if (in.one_in(8)) result.row_keys = in.any().contiguous();
  if (in.one_in(8)) result.key_mask = in.any().contiguous();
  in.use(result.offsets);
  return result;
}
inline AttentionOptions attention_options(Inputs& in) {
  return {.causal = in.one_in(2),
          .window = in.one_in(3) ? in.below(4) - 1 : -1,
          .dropout = in.one_in(3) ? 0.5 : 0,
          .generator = &in.generator(),
          .bias = in.one_in(3) ? in.like({1, 2, 4, 4}) : Tensor()};
}
inline DropoutOptions dropout_options(Inputs& in) {
  return {.p = in.one_in(3) ? 0 : 0.5,
          .generator = &in.generator(),
          .row_keys = in.one_in(3) ? in.like({5}, int64).contiguous() : Tensor()};
}
inline AddNormOptions add_norm_options(Inputs& in) {
  return {.residual = in.like({4, 2, 9}),
          .weight = in.like_or_none({9}),
          .bias = in.like({9}),
          .eps = 0.1,
          .dropout = dropout_options(in),
          .gives_sum = in.one_in(2)};
}
inline void pointwise_calls(const AddCall& op) {
  op("exp", [](Inputs& in) { return exp(in.any()); });
  op("gelu", [](Inputs& in) { return gelu(in.any()); });
  op("clamp", [](Inputs& in) { return clamp(in.any(), -1, 2); });
  op("isnan", [](Inputs& in) { return isnan(in.any()); });
  op("logical_not", [](Inputs& in) { return logical_not(in.any()); });
  op("add", [](Inputs& in) { return in.like({4, 6}) + in.any(); });
  op("div", [](Inputs& in) { return in.any() / in.any(); });
  op("pow", [](Inputs& in) { return pow(in.any(), in.any()); });
  op("maximum", [](Inputs& in) { return maximum(in.any(), in.any()); });
  op("logaddexp", [](Inputs& in) { return logaddexp(in.any(), in.any()); });
  op("copysign", [](Inputs& in) { return copysign(in.any(), in.any()); });
  op("nan_to_num", [](Inputs& in) { return nan_to_num(in.any(), 1, 2, -3); });
  op("isclose", [](Inputs& in) { return isclose(in.any(), in.any(), 0.1, 0.1, in.one_in(2)); });
  op("clamp between tensors", [](Inputs& in) { return clamp(in.any(), in.like_or_none({6}), in.any()); });
  op("lt", [](Inputs& in) { return lt(in.any(), in.any()); });
  op("pow by a number", [](Inputs& in) { return pow(in.any(), in.one_in(2) ? 3 : 2.5); });
  op("remainder", [](Inputs& in) { return remainder(in.any(), in.any()); });
  op("floor_divide", [](Inputs& in) { return floor_divide(in.any(), in.any()); });
  op("celu", [](Inputs& in) { return celu(in.any(), in.one_in(2) ? 0.7 : -2); });
  op("threshold", [](Inputs& in) { return threshold(in.any(), 0.5, -2); });
  op("xlogy", [](Inputs& in) { return xlogy(in.any(), in.any()); });
  op("xlog1py", [](Inputs& in) { return xlog1py(in.any(), in.any()); });
  op("logit", [](Inputs& in) { return in.one_in(2) ? logit(in.any(), 0.1) : logit(in.any()); });
  op("entr", [](Inputs& in) { return entr(in.any()); });
  op("sinc", [](Inputs& in) { return sinc(in.any()); });
  op("ndtr", [](Inputs& in) { return ndtr(in.any()); });
  op("polygamma", [](Inputs& in) { return polygamma(static_cast<int>(in.below(4)), in.any()); });
  op("lgamma", [](Inputs& in) { return lgamma(in.any()); });
  op("bessel", [](Inputs& in) {
    const Tensor x = in.any();
    return in.one_in(2) ? i0(x) + i1(x) : i0e(x) + i1e(x);
  });
  op("erfcx", [](Inputs& in) { return erfcx(in.any()); });
  op("log_ndtr", [](Inputs& in) { return log_ndtr(in.any()); });
  op("igamma", [](Inputs& in) { return igamma(in.any().detach(), in.any()); });
  op("igammac", [](Inputs& in) { return igammac(in.any().detach(), in.any()); });
  op("gcd", [](Inputs& in) { return gcd(in.like({4, 6}, int32), in.like({6}, int64)); });
  op("lcm", [](Inputs& in) { return lcm(in.like({4, 6}, int32), in.like({6}, int64)); });
  op("nextafter", [](Inputs& in) { return nextafter(in.any(), in.any()); });
  op("heaviside", [](Inputs& in) { return heaviside(in.any(), in.any()); });
  op("bitwise_and", [](Inputs& in) { return in.like({4, 6}, int32) & in.like({6}, int64); });
  op("bitwise_xor", [](Inputs& in) { return in.any() ^ in.any(); });
  op("shift", [](Inputs& in) {
    const Tensor x = in.any();
    return in.one_in(2) ? x << in.like({6}, int64) : x >> in.below(5);
  });
  op("prelu", [](Inputs& in) { return prelu(in.like({4, 6}), in.like({6})); });
  op("lerp", [](Inputs& in) { return lerp(in.any(), in.any(), 0.3); });
  op("masked_fill", [](Inputs& in) { return masked_fill(in.any(), in.like({4, 6}, boolean), 2); });
  op("above a number", [](Inputs& in) { return in.any() > 0.5; });
  op("logical_and", [](Inputs& in) { return logical_and(in.any(), in.any()); });
  op("add a number", [](Inputs& in) { return in.any() + 1.5; });
  op("where", [](Inputs& in) { return where(in.like({4, 6}, boolean), in.like({4, 6}), in.like({6})); });
  op("add_", [](Inputs& in) { return in.any().detach().clone().add_(in.any()); });
  op("mul_", [](Inputs& in) { return in.any().detach().clone().mul_(in.any()); });
  op("add_ to what others see", [](Inputs& in) {
    const Tensor x = in.any().detach(), y = in.any().detach();
    return in.options().in_place ? Tensor(x).add_(y) : x;
  });
  op("exp_", [](Inputs& in) { return in.any().detach().clone().exp_(); });
  op("clamp_", [](Inputs& in) { return in.any().detach().clone().clamp_(-0.5, 0.7); });
  op("lerp_", [](Inputs& in) { return in.any().detach().clone().lerp_(in.any(), 0.3); });
  op("tril_", [](Inputs& in) { return in.any().detach().clone().tril_(in.below(3) - 1); });
  op("fill_ of what others see", [](Inputs& in) {
    const Tensor x = in.any().detach();
    return in.options().in_place ? Tensor(x).fill_(in.one_in(2) ? 2.0 : 0.0) : x;
  });
  op("copy_", [](Inputs& in) { return in.any().detach().clone().copy_(in.any()); });
}
inline void reduction_and_index_calls(const AddCall& op) {
  op("sum", [](Inputs& in) { return sum(in.any(), dims(in), in.one_in(2)); });
  op("mean", [](Inputs& in) { return mean(in.any(), dims(in), in.one_in(2)); });
  op("max", [](Inputs& in) { return max(in.any(), dims(in), in.one_in(2)); });
  op("argmin", [](Inputs& in) { return argmin(in.any(), in.dim(), in.one_in(2)); });
  op("norm", [](Inputs& in) { return norm(in.any()); });
  op("vector_norm", [](Inputs& in) {
    constexpr double kOrders[] = {0, 0.5, 1, 2, 3, INFINITY, -INFINITY, -1, NAN};
    return vector_norm(in.any(), kOrders[in.below(9)], dims(in), in.one_in(2));
  });
  op("normalize", [](Inputs& in) { return normalize(in.any(), in.one_in(2) ? 1 : 2, in.dim()); });
  op("cosine_similarity", [](Inputs& in) { return cosine_similarity(in.like({4, 6}), in.like({4, 6}), in.dim()); });
  op("var", [](Inputs& in) { return var(in.any(), dims(in), in.one_in(2) ? 1 : 0.5, in.one_in(2)); });
  op("std", [](Inputs& in) { return tern::std(in.any(), dims(in), in.one_in(2) ? 1 : 0, in.one_in(2)); });
  op("logsumexp", [](Inputs& in) { return logsumexp(in.any(), dims(in), in.one_in(2)); });
  op("nansum", [](Inputs& in) { return nansum(in.any(), dims(in), in.one_in(2)); });
  op("nanmean", [](Inputs& in) { return nanmean(in.any(), dims(in), in.one_in(2)); });
  op("prod", [](Inputs& in) { return prod(in.any(), dims(in), in.one_in(2)); });
  op("all", [](Inputs& in) { return all(in.any(), dims(in), in.one_in(2)); });
  op("any", [](Inputs& in) { return any(in.any(), dims(in), in.one_in(2)); });
  op("count_nonzero", [](Inputs& in) { return count_nonzero(in.any(), dims(in), in.one_in(2)); });
  op("aminmax", [](Inputs& in) { return aminmax(in.any(), dims(in), in.one_in(2)).min; });
  op("std_mean", [](Inputs& in) { return std_mean(in.any(), dims(in), 0.5, in.one_in(2)).mean; });
  op("matrix_norm", [](Inputs& in) {
    constexpr double kOrders[] = {1, -1, 2, INFINITY, -INFINITY};
    return matrix_norm(in.any(), kOrders[in.below(5)], in.dim(), in.dim(), in.one_in(2));
  });
  op("sum_to", [](Inputs& in) { return sum_to(in.any(), in.any().shape()); });
  op("embedding", [](Inputs& in) {
    return embedding(in.like({3, 17}), in.like({4, 3}, int64), in.one_in(4) ? in.below(5) : -1);
  });
  op("index_select", [](Inputs& in) {
    return index_select(in.like({4, 6}), in.dim(), in.like({9}, in.one_in(2) ? int32 : int64));
  });
  op("gather", [](Inputs& in) { return gather(in.like({4, 6}), in.dim(), in.like({3, 5}, int64)); });
  op("cat with nothing", [](Inputs& in) { return cat({in.like({0}), in.like({4, 6}), in.like({0})}, in.dim()); });
  op("cat", [](Inputs& in) { return cat({in.like({4, 6}), in.like({4, 6})}, in.dim()); });
  op("stack", [](Inputs& in) { return stack({in.like({4, 6}), in.like({4, 6}), in.like({4, 6})}, in.dim()); });
  op("sort", [](Inputs& in) { return sort(in.any(), in.dim(), in.one_in(2)).values; });
  op("topk", [](Inputs& in) { return topk(in.any(), in.below(6) - 1, in.dim(), in.one_in(2), in.one_in(2)).values; });
  op("cumsum", [](Inputs& in) { return cumsum(in.any(), in.dim()); });
  op("nonzero", [](Inputs& in) { return nonzero(in.any()); });
  op("masked_select", [](Inputs& in) { return masked_select(in.any(), in.like({4, 6}, boolean)); });
}
inline void loss_calls(const AddCall& op) {
  using Loss = Tensor (*)(const Tensor&, const Tensor&, LossReduction);
  constexpr Loss kLosses[] = {
      mse_loss,
      l1_loss,
      soft_margin_loss,
      [](auto& x, auto& y, auto r) { return smooth_l1_loss(x, y, 0.7, r); },
      [](auto& x, auto& y, auto r) { return huber_loss(x, y, 0.7, r); },
      [](auto& x, auto& y, auto r) { return kl_div(x, y, {.reduction = r}); },
      [](auto& x, auto& y, auto r) { return poisson_nll_loss(x, y, {.full = true, .reduction = r}); },
      [](auto& x, auto& y, auto r) { return binary_cross_entropy_with_logits(x, y, {.reduction = r}); },
      [](auto& x, auto& y, auto r) { return binary_cross_entropy(x, y, {.reduction = r}); },
      [](auto& x, auto& y, auto r) { return sigmoid_focal_loss(x, y, {.reduction = r}); },
      [](auto& x, auto& y, auto r) { return hinge_embedding_loss(x, y, {.margin = 1, .reduction = r}); },
  };
  for (const Loss loss : kLosses)
    op("loss", [=](Inputs& in) {
      return loss(in.like({5, 3}), in.like({5, 3}), static_cast<LossReduction>(in.below(3)));
    });
  op("gaussian_nll_loss", [](Inputs& in) {
    return gaussian_nll_loss(in.like({5, 3}), in.like({5, 3}), 1.0 + square(in.like({5, 1})));
  });
  op("cosine_embedding_loss", [](Inputs& in) {
    return cosine_embedding_loss(in.like({5, 3}), in.like({5, 3}), in.like({5}));
  });
  op("multi_margin_loss", [](Inputs& in) {
    return multi_margin_loss(in.like({5, 3}), in.like({5}, int64),
                             {.p = in.one_in(2) ? 1 : 2, .weight = in.like_or_none({3})});
  });
  op("multilabel_margin_loss", [](Inputs& in) {
    return multilabel_margin_loss(in.like({5, 3}), in.like({5, 3}, int64));
  });
  op("multilabel_soft_margin_loss", [](Inputs& in) {
    return multilabel_soft_margin_loss(in.like({5, 3}), in.like({5, 3}), {.weight = in.like_or_none({3})});
  });
  op("ctc_loss", [](Inputs& in) {
    const Tensor targets = in.one_in(2) ? in.like({3, 2}, int64) : in.like({3}, int32);
    const Tensor counts = in.one_in(2) ? ones({3}, {.dtype = int64}) : in.like({3}, int64);
    return ctc_loss(in.like({5, 3, 4}), targets, in.one_in(2) ? full({3}, 4, {.dtype = int32}) : in.like({3}, int64),
                    counts, {.blank = in.below(5), .zero_infinity = in.one_in(2)});
  });
  op("margin_ranking_loss", [](Inputs& in) { return margin_ranking_loss(in.like({5}), in.like({5}), in.like({5})); });
  op("triplet_margin_with_distance_loss", [](Inputs& in) {
    return triplet_margin_with_distance_loss(in.like({5, 3}), in.like({5, 3}), in.like({5, 3}));
  });
  op("triplet_margin_loss", [](Inputs& in) {
    return triplet_margin_loss(in.like({5, 3}), in.like({5, 3}), in.like({5, 3}), {.swap = in.one_in(2)});
  });
}
inline void layer_calls(const AddCall& op) {
  op("matmul", [](Inputs& in) {
    return matmul(in.like({2, 4, 6}), in.one_in(2) ? in.like({6, 3}) : in.like({2, 6, 5}));
  });
  op("linear", [](Inputs& in) {
    constexpr Activation kActivations[] = {Activation::kNone, Activation::kGelu, Activation::kRelu};
    return linear(in.like({4, 2, 17}), in.like({9, 17}), in.like_or_none({9}), kActivations[in.below(3)]);
  });
  op("recurrent", [](Inputs& in) {
    const Tensor x = in.like({8, 5});
    const auto layout = RecurrentLayout::packed({3, 1, 4}, x.device());
    const RecurrentWeights weights{in.like({16, 5}), in.like({16, 4}), in.like_or_none({16}), in.like_or_none({16})};
    return recurrent(RecurrentKind::kLstm, x, layout, weights, in.like_or_none({3, 4}), in.like_or_none({3, 4}),
                     in.one_in(2))
        .output;
  });
  op("softmax", [](Inputs& in) { return softmax(in.any(), in.dim()); });
  op("log_softmax", [](Inputs& in) { return log_softmax(in.any(), in.dim()); });
  op("layer_norm", [](Inputs& in) { return layer_norm(in.like({5, 17}), in.like({17}), in.like_or_none({17}, 3)); });
  op("rms_norm", [](Inputs& in) { return rms_norm(in.like({5, 17}), in.like_or_none({17}, 3)); });
  op("dropout_residual_layer_norm", [](Inputs& in) {
    return dropout_residual_layer_norm(in.like({5, 17}), in.like({5, 17}), in.like({17}), in.like({17}), 1e-5,
                                       dropout_options(in));
  });
  op("conv2d", [](Inputs& in) {
    const ConvolutionOptions options{.stride = {1 + in.below(2), 1}, .padding = in.below(3), .dilation = {1, 2}};
    return conv2d(in.like({2, 4, 3, 5}), in.like({4, 4, 2, 2}), in.like_or_none({4}), options);
  });
  op("depthwise conv1d", [](Inputs& in) {
    return conv1d(in.like({2, 4, 6}), in.like({4, 1, 3}), in.like_or_none({4}), {.groups = 4, .same = in.one_in(2)});
  });
  op("conv_transpose2d", [](Inputs& in) {
    return conv_transpose2d(in.like({2, 4, 3, 2}), in.like({4, 3, 2, 2}), in.like_or_none({3}), {.stride = 2});
  });
  op("group_norm", [](Inputs& in) { return group_norm(in.any(), 1 + in.below(3), in.like_or_none({3}), {}, 0.1); });
  op("instance_norm", [](Inputs& in) { return instance_norm(in.any(), {}, {}, {}, in.like_or_none({3})); });
  op("local_response_norm", [](Inputs& in) { return local_response_norm(in.any(), in.below(4)); });
  op("interpolate", [](Inputs& in) {
    return interpolate(in.any(), {.size = in.below(5), .mode = static_cast<InterpolateMode>(in.below(5))});
  });
  op("unfold", [](Inputs& in) { return unfold(in.any(), {in.below(3), 2}, {.padding = in.below(2)}); });
  op("fold", [](Inputs& in) { return fold(in.any(), {2, in.below(4)}, 1 + in.below(2)); });
  op("pixel_shuffle", [](Inputs& in) { return pixel_shuffle(in.any(), in.below(3)); });
  op("pixel_unshuffle", [](Inputs& in) { return pixel_unshuffle(in.any(), in.below(3)); });
  op("channel_shuffle", [](Inputs& in) { return channel_shuffle(in.any(), in.below(4)); });
  op("max_unpool2d", [](Inputs& in) { return max_unpool2d(in.like({1, 2, 3, 3}), in.like({1, 2, 3, 3}, int64), 2); });
  op("lp_pool2d", [](Inputs& in) { return lp_pool2d(in.any(), 2, 1 + in.below(3)); });
  op("grid_sample", [](Inputs& in) {
    const GridSampleOptions options{static_cast<GridSampleMode>(in.below(3)), static_cast<GridPadding>(in.below(3)),
                                    in.one_in(2)};
    return grid_sample(in.like({2, 3, 4, 5}), in.like({2, 3, 3, 2}), options);
  });
  op("affine_grid", [](Inputs& in) { return affine_grid(in.like({2, 2, 3}), Shape{2, 1, 1 + in.below(3), 4}); });
  op("drop_block2d", [](Inputs& in) { return drop_block2d(in.any(), 2, {.p = 0.3, .generator = &in.generator()}); });
  op("stochastic_depth", [](Inputs& in) {
    const auto mode = in.one_in(2) ? StochasticDepthMode::kRow : StochasticDepthMode::kBatch;
    return stochastic_depth(in.any(), mode, {.p = 0.3, .generator = &in.generator()});
  });
  op("max_pool2d", [](Inputs& in) { return max_pool2d(in.any(), 1 + in.below(3), {.padding = in.below(2)}); });
  op("avg_pool1d", [](Inputs& in) { return avg_pool1d(in.any(), 1 + in.below(3), {.ceil_mode = in.one_in(2)}); });
  op("adaptive_avg_pool2d", [](Inputs& in) { return adaptive_avg_pool2d(in.any(), {in.below(4), in.below(3) - 1}); });
  op("rotary", [](Inputs& in) {
    const RotaryOptions options{.rotary_dim = 2 * in.below(3), .interleaved = in.one_in(2)};
    return rotary(in.like({4, 3, 6}), in.like({4}, int64), options);
  });
  op("feature_dropout", [](Inputs& in) { return feature_dropout(in.any(), {.p = 0.5, .generator = &in.generator()}); });
  op("alpha_dropout", [](Inputs& in) { return alpha_dropout(in.any(), {.p = 0.5, .generator = &in.generator()}); });
  op("gumbel_softmax", [](Inputs& in) { return gumbel_softmax(in.any(), in.generator(), 0.7, false, in.dim()); });
  op("dropout", [](Inputs& in) { return dropout(in.any(), dropout_options(in)); });
  op("cross_entropy", [](Inputs& in) {
    return cross_entropy(
        in.like({5, 3}), in.like({5}, int64),
        {.label_smoothing = in.one_in(3) ? 0.1 : 0, .row_weights = in.one_in(4) ? in.like({5}) : Tensor()});
  });
  op("cross_entropy of dimensions", [](Inputs& in) {
    const Shape targets = in.one_in(2) ? Shape{2, 4} : Shape{2, 3, 4};
    return cross_entropy(in.like({2, 3, 4}), in.like(targets, in.one_in(2) ? int64 : float32),
                         {.weight = in.like_or_none({3}), .label_smoothing = in.one_in(2) ? 0.1 : 0});
  });
  op("nll_loss", [](Inputs& in) {
    return nll_loss(in.like({5, 3}), in.like({5}, int64), {.weight = in.like_or_none({3})});
  });
  op("attention", [](Inputs& in) {
    return attention(in.like({4, 2, 8}), in.like({4, 2, 8}), in.like({4, 2, 8}), layout(in), layout(in),
                     attention_options(in));
  });
  op("cross_attention", [](Inputs& in) {
    return cross_attention(in.like({4, 2, 8}), in.like({4, 2, 2, 8}), layout(in), layout(in), attention_options(in));
  });
  op("self_attention", [](Inputs& in) {
    return self_attention(in.like({4, 3, 2, 8}), layout(in), attention_options(in));
  });
  op("chain of layers", [](Inputs& in) {
    RowChain chain(in.like({4, 2, 17}));
    chain.linear(in.like({9, 17}), in.like_or_none({9}), in.one_in(2) ? Activation::kGelu : Activation::kRelu);
    chain.linear(in.like({6, 9}), in.like_or_none({6}));
    return chain.result();
  });
  op("chain with attention", [](Inputs& in) {
    // Small: projections of numbers up to 1 would make scores so large that rounding shows in the gradients.
    RowChain chain(in.like({4, 17}) * 0.05);
    chain.linear(in.like({48, 17}), in.like_or_none({48}));
    chain.self_attention(2, layout(in), attention_options(in));
    return chain.result();
  });
  op("chain to a norm", [](Inputs& in) {
    RowChain chain(in.like({4, 2, 17}));
    if (in.one_in(2)) {
      chain.linear(in.like({9, 17}), in.like_or_none({9}));
    } else {
      chain.linear(in.like({12, 17}), in.like({12}), Activation::kGelu);
      chain.linear(in.like({9, 12}), in.like({9}));
    }
    const SumAndNorm result = chain.add_norm(add_norm_options(in));
    return result.sum.defined() && in.one_in(2) ? result.sum : result.norm;
  });
}
inline void view_calls(const AddCall& op) {
  op("reshape", [](Inputs& in) { return in.any().reshape({in.below(6) - 1, in.below(6) - 1}); });
  op("expand", [](Inputs& in) { return in.any().expand({in.below(5), in.below(5), in.below(5)}); });
  op("permute", [](Inputs& in) { return in.any().permute({in.dim(), in.dim()}); });
  op("flatten", [](Inputs& in) { return in.any().flatten(in.dim(), in.dim()); });
  op("squeeze", [](Inputs& in) { return in.any().squeeze(in.dim()); });
  op("slice", [](Inputs& in) { return in.any().slice(in.dim(), in.below(9) - 4, in.below(9) - 4, in.below(4)); });
  op("select", [](Inputs& in) { return in.any().select(in.dim(), in.below(9) - 4); });
  op("view of bits", [](Inputs& in) { return in.any().view(in.one_in(2) ? int32 : float16); });
  op("to", [](Inputs& in) { return in.any().to(in.one_in(2) ? int32 : float16); });
}

inline const Calls& calls() {
  static const Calls table = [] {
    Calls all;
    const AddCall add_call = [&](const char* name, const Call& call) { all.emplace_back(name, call); };
    pointwise_calls(add_call);
    reduction_and_index_calls(add_call);
    loss_calls(add_call);
    layer_calls(add_call);
    view_calls(add_call);
    rearranging_calls(add_call);
    scatter_calls(add_call);
    order_calls(add_call);
    product_calls(add_call);
    return all;
  }();
  return table;
}

struct Outcome {
  Tensor y;
  std::vector<Tensor> gradients;
  std::string error;
};

inline Outcome run(const Call& call, Inputs& in, DType autocast_dtype, bool backward) {
  in.begin();
  const Autocast region(in.options().device, autocast_dtype);
  Outcome outcome;
  try {
    outcome.y = call(in);
    if (backward && outcome.y.requires_grad()) {
      sum(outcome.y.to(float64)).backward();
      for (const Tensor& leaf : in.leaves()) outcome.gradients.push_back(leaf.grad());
    }
    synchronize(in.options().device);  // bad indices
  } catch (const Error& error) {
    outcome = {{}, {}, error.what()};
    try {
      synchronize(in.options().device);  // a second one must not show at the next call
    } catch (const Error&) {
    }
  }
  return outcome;
}

/// Equal shape, dtype and, but for rounding, values; a NaN equals a NaN alone.
inline void expect_alike(const Tensor& a, const Tensor& b, double tolerance, const std::string& what) {
  ASSERT_EQ(a.defined(), b.defined()) << what;
  if (!a.defined()) return;
  ASSERT_EQ(a.shape(), b.shape()) << what;
  ASSERT_EQ(a.dtype(), b.dtype()) << what;
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  double scale = is_floating(a.dtype()) ? 1 : 0;
  for (const double v : x) scale = std::isfinite(v) ? std::max(scale, std::abs(v)) : scale;
  for (size_t i = 0; i < x.size(); ++i) {
    const bool alike = std::isnan(x[i])      ? std::isnan(y[i])
                       : std::isfinite(x[i]) ? std::abs(x[i] - y[i]) <= tolerance * scale
                                             : x[i] == y[i];
    ASSERT_TRUE(alike) << what << ", element " << i << ": " << x[i] << " and " << y[i];
  }
}

/// Every op with the tensors of both sources, `rounds` times: the same results and gradients. `errors`: also an error
/// on both sides or on none. `slack`: how many times the tolerance of a device.
inline void expect_same_outcomes(uint64_t seed, const InputOptions& first, const InputOptions& second, int rounds,
                                 bool errors, double slack = 8) {
  std::mt19937_64 random(seed);
  Inputs a(seed, first), b(seed, second);
  for (int round = 0; round < rounds; ++round) {
    for (const auto& [name, call] : calls()) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", round " << round << ", " << name);
      constexpr DType kRegions[] = {float32, float32, float32, bfloat16, float16};
      const DType dtype = kRegions[random() % 5];
      const bool backward = random() % 2 == 0;
      const Outcome one = run(call, a, dtype, backward), other = run(call, b, dtype, backward);
      // The emulated device has less memory than the host.
      if ((one.error + other.error).find("out of memory") != std::string::npos) continue;
      ASSERT_TRUE(!errors || one.error.empty() == other.error.empty()) << one.error << "\n" << other.error;
      if (!one.error.empty() || !other.error.empty()) continue;
      const double tolerance = slack * std::max(device_tolerance(one.y.dtype()), device_tolerance(dtype));
      expect_alike(one.y, other.y, tolerance, name);
      ASSERT_EQ(one.gradients.size(), other.gradients.size());
      for (size_t i = 0; i < one.gradients.size(); ++i)
        expect_alike(one.gradients[i], other.gradients[i],
                     std::max(tolerance, slack * device_tolerance(a.leaves()[i].dtype())),
                     "gradient " + std::to_string(i));
      // The first's for both, so that what differs by rounding does not grow from op to op.
      if (random() % 2 == 0) b.keep(a.keep(one.y.detach().clone()).to(second.device));
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace tern::test

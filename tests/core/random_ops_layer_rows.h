#pragma once
// How Tern computes the ops of tests/golden/random_layer_cases.py: losses, products, norms, ops on images.

#include "tern/tests/core/random_ops.h"

namespace tern::test::random_ops {

inline LossReduction reduction_of(const Case& c) {
  const auto name = c.get<std::string>("reduction");
  return name == "mean" ? LossReduction::kMean : name == "sum" ? LossReduction::kSum : LossReduction::kNone;
}

inline void loss_rows(Table& t) {
  using Loss = Tensor (*)(const Tensor&, const Tensor&, const Case&);
  const std::pair<const char*, Loss> losses[] = {
      {"mse_loss", [](auto& x, auto& y, auto& c) { return mse_loss(x, y, reduction_of(c)); }},
      {"l1_loss", [](auto& x, auto& y, auto& c) { return l1_loss(x, y, reduction_of(c)); }},
      {"smooth_l1_loss",
       [](auto& x, auto& y, auto& c) { return smooth_l1_loss(x, y, c.number_of("beta"), reduction_of(c)); }},
      {"huber_loss", [](auto& x, auto& y, auto& c) { return huber_loss(x, y, c.number_of("delta"), reduction_of(c)); }},
      {"poisson_nll_loss",
       [](auto& x, auto& y, auto& c) {
         return poisson_nll_loss(
             x, y, {.log_input = c.flag("log"), .full = c.flag("full"), .reduction = reduction_of(c)});
       }},
      {"kl_div",
       [](auto& x, auto& y, auto& c) {
         return kl_div(x, y, {.log_target = c.flag("log"), .reduction = reduction_of(c)});
       }},
      {"binary_cross_entropy",
       [](auto& x, auto& y, auto& c) { return binary_cross_entropy(x, y, {.reduction = reduction_of(c)}); }},
      {"binary_cross_entropy_with_logits",
       [](auto& x, auto& y, auto& c) { return binary_cross_entropy_with_logits(x, y, {.reduction = reduction_of(c)}); }},
      {"soft_margin_loss", [](auto& x, auto& y, auto& c) { return soft_margin_loss(x, y, reduction_of(c)); }},
      {"hinge_embedding_loss",
       [](auto& x, auto& y, auto& c) {
         return hinge_embedding_loss(x, y, {.margin = c.number_of("margin"), .reduction = reduction_of(c)});
       }},
      {"multilabel_soft_margin_loss",
       [](auto& x, auto& y, auto& c) { return multilabel_soft_margin_loss(x, y, {.reduction = reduction_of(c)}); }},
      {"multilabel_margin_loss", [](auto& x, auto& y, auto& c) { return multilabel_margin_loss(x, y, reduction_of(c)); }},
      {"gaussian_nll_loss",
       [](auto& x, auto& y, auto& c) {
         return gaussian_nll_loss(x, y, c.in(2), {.full = c.flag("full"), .reduction = reduction_of(c)});
       }},
      {"cross_entropy",
       [](auto& x, auto& y, auto& c) {
         return cross_entropy(x, y,
                              {.weight = c.in(2),
                               .ignore_index = c.get("ignore_index"),
                               .label_smoothing = c.number_of("label_smoothing"),
                               .reduction = reduction_of(c)});
       }},
      {"nll_loss",
       [](auto& x, auto& y, auto& c) {
         return nll_loss(
             x, y, {.weight = c.in(2), .ignore_index = c.get("ignore_index"), .reduction = reduction_of(c)});
       }},
      {"multi_margin_loss",
       [](auto& x, auto& y, auto& c) {
         return multi_margin_loss(x, y,
                                  {.p = c.template get<int>("p"),
                                   .margin = c.number_of("margin"),
                                   .weight = c.in(2),
                                   .reduction = reduction_of(c)});
       }},
      {"cosine_embedding_loss",
       [](auto& a, auto& b, auto& c) {
         return cosine_embedding_loss(a, b, c.in(2), {.margin = c.number_of("margin"), .reduction = reduction_of(c)});
       }},
      {"margin_ranking_loss",
       [](auto& a, auto& b, auto& c) {
         return margin_ranking_loss(a, b, c.in(2), {.margin = c.number_of("margin"), .reduction = reduction_of(c)});
       }},
      {"triplet_margin_loss",
       [](auto& a, auto& b, auto& c) {
         return triplet_margin_loss(
             a, b, c.in(2), {.margin = c.number_of("margin"), .swap = c.flag("swap"), .reduction = reduction_of(c)});
       }},
      {"triplet_margin_with_distance_loss",
       [](auto& a, auto& b, auto& c) {
         return triplet_margin_with_distance_loss(
             a, b, c.in(2), {},
             {.margin = c.number_of("margin"), .swap = c.flag("swap"), .reduction = reduction_of(c)});
       }},
      {"ctc_loss", [](auto& x, auto& y, auto& c) {
         return ctc_loss(log_softmax(x, 2), y, c.in(2), c.in(3),
                         {.reduction = reduction_of(c), .zero_infinity = c.flag("zero_infinity")});
       }}};
  for (const auto& [name, f] : losses) t[name] = [f](const Case& c) { return Tensors{f(c.in(0), c.in(1), c)}; };
}

inline void product_rows(Table& t) {
  const std::pair<const char*, Tensor (*)(const Tensor&, const Tensor&)> functions[] = {
      {"matmul", matmul}, {"bmm", bmm}, {"mv", mv}, {"dot", dot}, {"outer", outer}, {"kron", kron}};
  for (const auto& [name, f] : functions) t[name] = [f](const Case& c) { return Tensors{f(c.in(0), c.in(1))}; };
  t["addmm"] = [](const Case& c) {
    return Tensors{addmm(c.in(0), c.in(1), c.in(2), c.number_of("beta"), c.number_of("alpha"))};
  };
  t["baddbmm"] = [](const Case& c) {
    return Tensors{baddbmm(c.in(0), c.in(1), c.in(2), c.number_of("beta"), c.number_of("alpha"))};
  };
  t["linear"] = [](const Case& c) { return Tensors{linear(c.in(0), c.in(1), c.in(2))}; };
  t["matrix_power"] = [](const Case& c) { return Tensors{matrix_power(c.in(0), c.get("n"))}; };
  t["cdist"] = [](const Case& c) { return Tensors{cdist(c.in(0), c.in(1), c.number_of("p"))}; };
  t["pdist"] = [](const Case& c) { return Tensors{pdist(c.in(0), c.number_of("p"))}; };
  t["tensordot"] = [](const Case& c) { return Tensors{tensordot(c.in(0), c.in(1), 2)}; };
  t["einsum"] = [](const Case& c) { return Tensors{einsum(c.get<std::string>("equation"), c.inputs)}; };
  t["vecdot"] = [](const Case& c) { return Tensors{vecdot(c.in(0), c.in(1), c.dim())}; };
  t["cross"] = [](const Case& c) { return Tensors{cross(c.in(0), c.in(1), c.dim())}; };
}

inline void norm_rows(Table& t) {
  t["layer_norm"] = [](const Case& c) { return Tensors{layer_norm(c.in(0), c.in(1), c.in(2), c.number_of("eps"))}; };
  t["rms_norm"] = [](const Case& c) {
    const auto eps = c.has("eps") ? std::optional<double>(c.number_of("eps")) : std::nullopt;
    return Tensors{rms_norm(c.in(0), c.in(1), eps)};
  };
  t["group_norm"] = [](const Case& c) {
    return Tensors{group_norm(c.in(0), c.get("groups"), c.in(1), c.in(2), c.number_of("eps"))};
  };
  t["instance_norm"] = [](const Case& c) {
    return Tensors{instance_norm(c.in(0), {}, {}, c.in(1), c.in(2), {.eps = c.number_of("eps")})};
  };
  t["batch_norm"] = [](const Case& c) {
    const BatchNormOptions options{.training = c.flag("training"), .momentum = 0.2, .eps = 0.1};
    return Tensors{batch_norm(c.in(0), c.in(1), c.in(2), c.in(3), c.in(4), options), c.in(1), c.in(2)};
  };
  t["local_response_norm"] = [](const Case& c) {
    return Tensors{
        local_response_norm(c.in(0), c.get("size"), {c.number_of("alpha"), c.number_of("beta"), c.number_of("k")})};
  };
}

inline SpatialSizes sizes_of(const Case& c, const char* name) {
  const Json& value = c.arguments.at(name);
  return value.is_array() ? SpatialSizes(value.get<std::vector<int64_t>>()) : SpatialSizes(value.get<int64_t>());
}
inline std::optional<SpatialSizes> stride_of(const Case& c) {
  return c.has("stride") ? std::optional(sizes_of(c, "stride")) : std::nullopt;
}

/// The ops that have a function for each number of dimensions.
inline void pool_and_convolution_rows(Table& t) {
  for (int dims = 1; dims <= 3; ++dims) {
    const std::string d = std::to_string(dims) + "d";
    const auto max_options = [](const Case& c) {
      return MaxPoolOptions{stride_of(c), sizes_of(c, "padding"), sizes_of(c, "dilation"), c.flag("ceil_mode")};
    };
    const auto max = dims == 1 ? max_pool1d : dims == 2 ? max_pool2d : max_pool3d;
    t["max_pool" + d] = [=](const Case& c) { return Tensors{max(c.in(0), sizes_of(c, "kernel"), max_options(c))}; };
    const auto both = dims == 1   ? max_pool1d_with_indices
                      : dims == 2 ? max_pool2d_with_indices
                                  : max_pool3d_with_indices;
    t["max_pool" + d + "_with_indices"] = [=](const Case& c) {
      const MaxPoolResult result = both(c.in(0), sizes_of(c, "kernel"), max_options(c));
      return Tensors{result.values, result.indices};
    };
    const auto mean = dims == 1 ? avg_pool1d : dims == 2 ? avg_pool2d : avg_pool3d;
    t["avg_pool" + d] = [=](const Case& c) {
      AvgPoolOptions options{stride_of(c), sizes_of(c, "padding"), c.flag("ceil_mode"), c.flag("count_include_pad")};
      if (c.has("divisor")) options.divisor_override = c.get("divisor");
      return Tensors{mean(c.in(0), sizes_of(c, "kernel"), options)};
    };
    const auto powers = dims == 1 ? lp_pool1d : dims == 2 ? lp_pool2d : lp_pool3d;
    t["lp_pool" + d] = [=](const Case& c) {
      return Tensors{powers(c.in(0), c.number_of("power"), sizes_of(c, "kernel"), {stride_of(c), c.flag("ceil_mode")})};
    };
    const auto adaptive = dims == 1 ? adaptive_avg_pool1d : dims == 2 ? adaptive_avg_pool2d : adaptive_avg_pool3d;
    t["adaptive_avg_pool" + d] = [=](const Case& c) { return Tensors{adaptive(c.in(0), sizes_of(c, "size"))}; };
    const auto adaptive_max = dims == 1 ? adaptive_max_pool1d : dims == 2 ? adaptive_max_pool2d : adaptive_max_pool3d;
    t["adaptive_max_pool" + d] = [=](const Case& c) { return Tensors{adaptive_max(c.in(0), sizes_of(c, "size"))}; };
    const auto unpool = dims == 1 ? max_unpool1d : dims == 2 ? max_unpool2d : max_unpool3d;
    t["max_unpool" + d] = [=](const Case& c) {
      return Tensors{unpool(c.in(0), c.in(1), sizes_of(c, "kernel"), {stride_of(c), 0, sizes_of(c, "size")})};
    };
    const auto convolve = dims == 1 ? conv1d : dims == 2 ? conv2d : conv3d;
    t["conv" + d] = [=](const Case& c) {
      const ConvolutionOptions options{sizes_of(c, "stride"), sizes_of(c, "padding"), sizes_of(c, "dilation"),
                                       c.get("groups")};
      return Tensors{convolve(c.in(0), c.in(1), c.in(2), options)};
    };
    const auto transposed = dims == 1 ? conv_transpose1d : dims == 2 ? conv_transpose2d : conv_transpose3d;
    t["conv_transpose" + d] = [=](const Case& c) {
      const TransposedConvolutionOptions options{sizes_of(c, "stride"), sizes_of(c, "padding"),
                                                 sizes_of(c, "output_padding"), sizes_of(c, "dilation"),
                                                 c.get("groups")};
      return Tensors{transposed(c.in(0), c.in(1), c.in(2), options)};
    };
  }
}

inline Tensor interpolated(const Case& c) {
  const auto mode = c.get<std::string>("mode");
  InterpolateOptions options;
  if (c.has("size")) options.size = c.list("size");
  if (c.has("scale_factor")) options.scale_factor = c.get<std::vector<double>>("scale_factor");
  options.mode = mode == "nearest"         ? InterpolateMode::kNearest
                 : mode == "nearest-exact" ? InterpolateMode::kNearestExact
                 : mode == "area"          ? InterpolateMode::kArea
                 : mode == "bicubic"       ? InterpolateMode::kCubic
                                           : InterpolateMode::kLinear;
  options.align_corners = c.has("align_corners") && c.flag("align_corners");
  options.antialias = c.flag("antialias");
  return interpolate(c.in(0), options);
}

inline Tensor sampled(const Case& c) {
  const auto mode = c.get<std::string>("mode"), padding = c.get<std::string>("padding_mode");
  return grid_sample(c.in(0), c.in(1),
                     {.mode = mode == "nearest"   ? GridSampleMode::kNearest
                              : mode == "bicubic" ? GridSampleMode::kCubic
                                                  : GridSampleMode::kLinear,
                      .padding = padding == "zeros"    ? GridPadding::kZeros
                                 : padding == "border" ? GridPadding::kBorder
                                                       : GridPadding::kReflection,
                      .align_corners = c.flag("align_corners")});
}

inline void image_rows(Table& t) {
  const auto window = [](const Case& c) {
    return UnfoldOptions{sizes_of(c, "dilation"), sizes_of(c, "padding"), sizes_of(c, "stride")};
  };
  t["unfold"] = [=](const Case& c) { return Tensors{unfold(c.in(0), sizes_of(c, "kernel"), window(c))}; };
  t["fold"] = [=](const Case& c) {
    return Tensors{fold(c.in(0), sizes_of(c, "size"), sizes_of(c, "kernel"), window(c))};
  };
  t["pixel_shuffle"] = [](const Case& c) { return Tensors{pixel_shuffle(c.in(0), c.get("factor"))}; };
  t["pixel_unshuffle"] = [](const Case& c) { return Tensors{pixel_unshuffle(c.in(0), c.get("factor"))}; };
  t["channel_shuffle"] = [](const Case& c) { return Tensors{channel_shuffle(c.in(0), c.get("groups"))}; };
  t["grid_sample"] = [](const Case& c) { return Tensors{sampled(c)}; };
  t["affine_grid"] = [](const Case& c) {
    return Tensors{affine_grid(c.in(0), Shape(c.list("size")), c.flag("align_corners"))};
  };
  t["interpolate"] = [](const Case& c) { return Tensors{interpolated(c)}; };
}

inline void attention_rows(Table& t) {
  t["attention"] = [](const Case& c) {
    // PyTorch's [sequences, heads, length, size] as tokens.
    const auto tokens = [](const Tensor& x) {
      return x.transpose(1, 2).reshape({x.size(0) * x.size(2), x.size(1), x.size(3)});
    };
    const Tensor &q = c.in(0), &k = c.in(1);
    const AttentionOptions options{.scale = c.has("scale") ? c.number_of("scale") : 0, .causal = c.flag("causal")};
    const Tensor y = attention(tokens(q), tokens(k), tokens(c.in(2)), padded_layout(q.size(0), q.size(2)),
                               padded_layout(k.size(0), k.size(2)), options);
    return Tensors{y.reshape({q.size(0), q.size(2), q.size(1), q.size(3)}).transpose(1, 2)};
  };
}

inline Table layer_rows() {
  Table t;
  loss_rows(t);
  product_rows(t);
  norm_rows(t);
  pool_and_convolution_rows(t);
  image_rows(t);
  attention_rows(t);
  return t;
}

}  // namespace tern::test::random_ops

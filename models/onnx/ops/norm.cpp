// Normalisation.

#include "tern/kernels/base/check.h"
#include "tern/models/onnx/registry.h"

namespace tern::onnx {
namespace {

/// Statistics of the batch where the file or the caller says training, otherwise the running ones.
void batch_norm_of(Call& c) {
  const Tensor x = c.in(0), scale = c.in(1), bias = c.in(2);
  const double eps = c.number("epsilon", 1e-5), keep = c.number("momentum", 0.9);
  const bool exported = c.opset() < 14 ? c.wants(1) : c.flag("training_mode");
  const bool training = c.context().training && (exported || c.context().train_inference);
  const Tensor mean = c.in(3), var = c.in(4);
  const bool keeps = training && c.value(3).is_buffer && c.value(4).is_buffer;  // the module's own
  if (exported && c.wants(1)) {
    if (training) {
      std::vector<int> dims = {0};
      for (int d = 2; d < x.dim(); ++d) dims.push_back(d);
      const VarMean batch = var_mean(x.detach(), dims, 0);
      c.set(1, mean * keep + batch.mean.to(mean.dtype()) * (1 - keep));
      c.set(2, var * keep + batch.var.to(var.dtype()) * (1 - keep));
    } else {
      c.set(1, mean);
      c.set(2, var);
    }
  }
  const BatchNormOptions options{.training = training, .momentum = 1 - keep, .eps = eps};
  const bool given = !training || keeps;
  c.set(0, batch_norm(x, given ? mean : Tensor(), given ? var : Tensor(), scale, bias, options));
}

/// x as rows of the elements from the axis on.
Tensor rows_of(const Tensor& x, int axis) {
  int64_t rows = 1;
  for (int d = 0; d < axis; ++d) rows *= x.size(d);
  return axis == x.dim() - 1 ? x : x.reshape({rows, rows == 0 ? 0 : x.numel() / rows});
}

/// Whether a weight has the shape of the elements that are normalised.
bool fits(const Tensor& weight, const Tensor& x, int axis) {
  if (!weight.defined()) return true;
  const std::vector<int64_t> sizes(x.shape().begin() + axis, x.shape().end());
  return weight.shape() == Shape(sizes);
}

void layer_norm_of(Call& c) {
  const Tensor x = c.in(0), scale = c.in(1), bias = c.in_or_none(2);
  const double eps = c.number("epsilon", 1e-5);
  const int axis = wrapped(c.integer("axis", -1), x.dim());
  const bool whole = fits(scale, x, axis) && fits(bias, x, axis);
  Tensor y = layer_norm(rows_of(x, axis), whole ? scale.flatten() : Tensor(),
                        whole && bias.defined() ? bias.flatten() : Tensor(), eps)
                 .reshape(x.shape());
  if (!whole) y = bias.defined() ? y * scale + bias : y * scale;
  c.set(0, y.to(x.dtype()));
  std::vector<int> dims;
  for (int dim = axis; dim < x.dim(); ++dim) dims.push_back(dim);
  const Tensor wide = is_low_precision(x.dtype()) ? x.to(float32) : x;
  if (c.wants(1)) c.set(1, mean(wide, dims, true));
  if (c.wants(2)) c.set(2, rsqrt(var(wide, dims, 0, true) + eps));
}

void rms_norm_of(Call& c) {
  const Tensor x = c.in(0), scale = c.in(1);
  const int axis = wrapped(c.integer("axis", -1), x.dim());
  const bool whole = fits(scale, x, axis);
  const double eps = c.number("epsilon", 1e-5);
  Tensor y = rms_norm(rows_of(x, axis), whole ? scale.flatten() : Tensor(), eps).reshape(x.shape());
  c.set((whole ? y : y * scale).to(x.dtype()));
}

void instance_norm_of(Call& c) {
  c.set(instance_norm(c.in(0), {}, {}, c.in(1), c.in(2), {.eps = c.number("epsilon", 1e-5)}));
}

/// Weights are of groups up to opset 20 and of channels from 21 on.
void group_norm_of(Call& c) {
  const Tensor x = c.in(0);
  const int64_t groups = c.integer("num_groups", 1);
  Tensor scale = c.in(1), bias = c.in(2);
  if (c.opset() < 21 && groups > 0 && scale.numel() == groups && x.dim() > 1) {
    scale = repeat_interleave(scale, x.size(1) / groups);
    bias = repeat_interleave(bias, x.size(1) / groups);
  }
  c.set(group_norm(x, groups, scale, bias, c.number("epsilon", 1e-5)));
}

void local_response(Call& c) {
  c.set(local_response_norm(c.in(0), c.integer("size", 1),
                            {c.number("alpha", 1e-4), c.number("beta", 0.75), c.number("bias", 1)}));
}

void lp_normalize(Call& c) {
  c.set(normalize(c.in(0), static_cast<double>(c.integer("p", 2)), wrapped(c.integer("axis", -1), c.in(0).dim())));
}

void mean_variance(Call& c) {
  const Tensor x = c.in(0);
  const std::vector<int> dims = wrapped(c.numbers("axes", {0, 2, 3}), x.dim());
  c.set((x - mean(x, dims, true)) / (tern::std(x, dims, 0, true) + 1e-9));
}

}  // namespace

void add_norm_ops(Rows& rows) {
  const Rows own = {
      {"BatchNormalization", 7, batch_norm_of},  {"LayerNormalization", 17, layer_norm_of},
      {"RMSNormalization", 23, rms_norm_of},     {"InstanceNormalization", 6, instance_norm_of},
      {"GroupNormalization", 18, group_norm_of}, {"LRN", 1, local_response},
      {"LpNormalization", 1, lp_normalize},      {"MeanVarianceNormalization", 9, mean_variance},
  };
  rows.insert(rows.end(), own.begin(), own.end());
}

}  // namespace tern::onnx

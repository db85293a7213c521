// Images of another size, and their values at any places. Each axis is a list of weights: what an output element takes
// of each input element.

#include <algorithm>
#include <cmath>

#include "tern/core/tensor/size_checks.h"
#include "tern/kernels/base/check.h"
#include "tern/models/onnx/registry.h"

namespace tern::onnx {
namespace {

struct ResizeRule {
  std::string mode = "nearest", transform = "half_pixel", nearest = "round_prefer_floor", policy = "stretch";
  double cubic = -0.75, extrapolation = 0;
  bool antialias = false, exclude_outside = false;
};

struct ResizedAxis {
  int axis = 0;
  int64_t in = 0, out = 0;
  double scale = 1, begin = 0, end = 1;  // begin, end: of the region of tf_crop_and_resize
};

/// The place in the input of element i of the output.
double source_place(const ResizeRule& rule, const ResizedAxis& a, int64_t i) {
  const auto x = static_cast<double>(i), in = static_cast<double>(a.in), out = static_cast<double>(a.out);
  const std::string& t = rule.transform;
  if (t == "asymmetric") return x / a.scale;
  if (t == "align_corners") {
    const double length = a.scale * in;
    return length == 1 ? 0 : x * (in - 1) / (length - 1);
  }
  if (t == "tf_crop_and_resize")
    return out > 1 ? a.begin * (in - 1) + x * (a.end - a.begin) * (in - 1) / (out - 1)
                   : 0.5 * (a.begin + a.end) * (in - 1);
  if (t == "pytorch_half_pixel") return out > 1 ? (x + 0.5) / a.scale - 0.5 : 0;
  if (t == "half_pixel_symmetric") {
    const double adjustment = out / (a.scale * in);
    return in / 2 * (1 - adjustment) + (x + 0.5) / a.scale - 0.5;
  }
  if (t == "tf_half_pixel_for_nn") return (x + 0.5) / a.scale;
  return (x + 0.5) / a.scale - 0.5;  // half_pixel
}

int64_t nearest_place(const ResizeRule& rule, double place) {
  if (rule.nearest == "floor") return static_cast<int64_t>(std::floor(place));
  if (rule.nearest == "ceil") return static_cast<int64_t>(std::ceil(place));
  if (rule.nearest == "round_prefer_ceil") return static_cast<int64_t>(std::floor(place + 0.5));
  return static_cast<int64_t>(std::ceil(place - 0.5));
}

double filter(const ResizeRule& rule, double distance) {
  const double d = std::abs(distance), a = rule.cubic;
  if (rule.mode == "linear") return std::max(0.0, 1 - d);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

/// [out, in]: the weights, and whether an output element lies outside of the input.
Tensor axis_weights(const ResizeRule& rule, const ResizedAxis& a, std::vector<bool>& outside) {
  tern::detail::check_host_list("Resize", tern::detail::checked_product("Resize", a.in, a.out));
  std::vector<double> weights(static_cast<size_t>(a.in * a.out));
  outside.assign(static_cast<size_t>(a.out), false);
  const double stretch = rule.antialias && a.scale < 1 ? a.scale : 1;  // of the filter, for fewer pixels
  const int64_t reach = static_cast<int64_t>(std::ceil((rule.mode == "linear" ? 1 : 2) / stretch));
  for (int64_t i = 0; i < a.out; ++i) {
    double* row = weights.data() + i * a.in;
    const double place = source_place(rule, a, i);
    outside[static_cast<size_t>(i)] =
        rule.transform == "tf_crop_and_resize" && (place < 0 || place > static_cast<double>(a.in - 1));
    const auto within = [&](int64_t k) { return std::clamp<int64_t>(k, 0, a.in - 1); };
    if (rule.mode == "nearest") {
      row[within(nearest_place(rule, place))] = 1;
      continue;
    }
    const auto first = static_cast<int64_t>(std::floor(place));
    double total = 0;
    for (int64_t k = first - reach; k <= first + reach + 1; ++k)
      if (!rule.exclude_outside || (k >= 0 && k < a.in))
        total += filter(rule, (static_cast<double>(k) - place) * stretch);
    for (int64_t k = first - reach; k <= first + reach + 1; ++k) {
      if (rule.exclude_outside && (k < 0 || k >= a.in)) continue;
      const double weight = filter(rule, (static_cast<double>(k) - place) * stretch);
      const bool normalised = rule.exclude_outside || rule.antialias;
      row[within(k)] += normalised ? weight / total : weight;
    }
  }
  return from_vector(weights, {a.out, a.in});
}

Tensor resized_along(const Tensor& x, const ResizeRule& rule, const ResizedAxis& a) {
  std::vector<bool> outside;
  if (rule.mode == "nearest") {
    tern::detail::check_host_list("Resize", a.out);
    Numbers places;
    std::vector<float> beyond;
    bool any = false;
    for (int64_t i = 0; i < a.out; ++i) {
      const double place = source_place(rule, a, i);
      places.push_back(std::clamp<int64_t>(nearest_place(rule, place), 0, a.in - 1));
      const bool out = rule.transform == "tf_crop_and_resize" && (place < 0 || place > static_cast<double>(a.in - 1));
      beyond.push_back(out ? 1 : 0);
      any = any || out;
    }
    const Tensor y = index_select(x, a.axis, from_vector(places, {a.out}).to(x.device()));
    if (!any) return y;
    std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
    sizes[static_cast<size_t>(a.axis)] = a.out;
    return where(from_vector(beyond, Shape(sizes)).to(x.device()) != 0.0, rule.extrapolation, y);
  }
  const Tensor weights = axis_weights(rule, a, outside).to(x.dtype()).to(x.device());
  Tensor y = matmul(x.transpose(a.axis, -1), weights.t()).transpose(a.axis, -1);
  if (std::find(outside.begin(), outside.end(), true) == outside.end()) return y;
  std::vector<float> mask(outside.begin(), outside.end());
  std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
  sizes[static_cast<size_t>(a.axis)] = a.out;
  return where(from_vector(mask, Shape(sizes)).to(x.device()) != 0.0, rule.extrapolation, y);
}

/// The whole of Tern's own op, where it computes the same in one pass.
bool by_interpolate(const Tensor& x, const ResizeRule& rule, const std::vector<ResizedAxis>& axes, Tensor& y) {
  if (x.dim() < 3 || x.dim() > 5 || !is_floating(x.dtype()) || rule.antialias || rule.exclude_outside) return false;
  InterpolateOptions options;
  std::vector<int64_t> sizes(x.shape().begin() + 2, x.shape().end());
  bool whole = true;  // factors are whole numbers
  for (const ResizedAxis& a : axes) {
    if (a.axis < 2) return false;
    sizes[static_cast<size_t>(a.axis - 2)] = a.out;
    if (rule.transform != "align_corners" && a.scale != static_cast<double>(a.out) / static_cast<double>(a.in))
      return false;
    whole = whole && a.out % a.in == 0;
  }
  if (axes.size() + 2 != static_cast<size_t>(x.dim())) return false;
  options.size = sizes;
  const bool half = rule.transform == "half_pixel" || rule.transform == "pytorch_half_pixel";
  for (const ResizedAxis& a : axes)
    if (a.out == 1) return false;
  if (rule.mode == "nearest") {
    if (!whole || rule.transform != "asymmetric" || rule.nearest != "floor") return false;
    options.mode = InterpolateMode::kNearest;
  } else {
    if (rule.mode == "cubic" && (x.dim() != 4 || rule.cubic != -0.75)) return false;
    if (!half && rule.transform != "align_corners") return false;
    for (const ResizedAxis& a : axes)  // sizes that are not whole
      if (std::abs(a.scale * static_cast<double>(a.in) - static_cast<double>(a.out)) > 1e-9) return false;
    options.mode = rule.mode == "cubic" ? InterpolateMode::kCubic : InterpolateMode::kLinear;
    options.align_corners = rule.transform == "align_corners";
  }
  y = interpolate(x, options);
  return true;
}

Tensor resized(const Tensor& given, const ResizeRule& rule, const std::vector<ResizedAxis>& axes) {
  const bool real = is_floating(given.dtype());
  TERN_CHECK(rule.mode == "nearest" || rule.mode == "linear" || rule.mode == "cubic", "the mode '", rule.mode, "'");
  const Tensor x = real || rule.mode == "nearest" ? given : given.to(float32);
  std::vector<ResizedAxis> changed;
  for (const ResizedAxis& a : axes) {
    TERN_CHECK(a.in > 0 && a.out >= 0 && a.scale > 0 && std::isfinite(a.scale), "axis ", a.axis, " of ", x.shape(),
               " cannot get ", a.out, " elements");
    if (a.in != a.out || a.scale != 1 || rule.transform == "tf_crop_and_resize") changed.push_back(a);
  }
  Tensor y;
  if (changed.empty()) return given;
  if (by_interpolate(x, rule, changed, y)) return y;
  y = x;
  for (const ResizedAxis& a : changed) y = resized_along(y, rule, a);
  if (real || rule.mode == "nearest") return y;
  return round(clamp(y, given.dtype() == uint8 ? 0 : -2147483648.0, given.dtype() == uint8 ? 255 : 2147483647.0))
      .to(given.dtype());
}

int64_t size_for(int64_t in, double scale) {
  const double out = std::floor(static_cast<double>(in) * scale);
  TERN_CHECK(out >= 0 && out < 1e9, "a size of ", out);
  return static_cast<int64_t>(out);
}

void resize_of(Call& c) {
  const Tensor x = c.in(0);
  ResizeRule rule;
  const bool old = c.opset() < 11;
  rule.mode = c.text("mode", "nearest");
  rule.transform = old ? "asymmetric" : c.text("coordinate_transformation_mode", "half_pixel");
  rule.nearest = old ? "floor" : c.text("nearest_mode", "round_prefer_floor");
  rule.policy = c.text("keep_aspect_ratio_policy", "stretch");
  rule.cubic = c.number("cubic_coeff_a", -0.75);
  rule.extrapolation = c.number("extrapolation_value", 0);
  rule.antialias = c.flag("antialias");
  rule.exclude_outside = c.flag("exclude_outside");
  Numbers all;
  for (int d = 0; d < x.dim(); ++d) all.push_back(d);
  const std::vector<int> dims = wrapped(c.numbers("axes", all), x.dim());
  const size_t scales_at = old ? 1 : 2;
  const bool by_size = !old && c.has(3) && c.value(3).tensor.numel() > 0;
  const std::vector<double> scales = by_size ? std::vector<double>() : c.in(scales_at).to_vector<double>();
  const Numbers sizes = by_size ? c.list(3) : Numbers();
  TERN_CHECK((by_size ? sizes.size() : scales.size()) == dims.size(), "there are ",
             by_size ? sizes.size() : scales.size(), " sizes or scales for ", dims.size(), " axes");
  double common = 0;  // of sizes that keep the ratio of the sides
  if (by_size && rule.policy != "stretch")
    for (size_t i = 0; i < dims.size(); ++i) {
      const double scale = static_cast<double>(sizes[i]) / static_cast<double>(x.size(dims[i]));
      if (i == 0 || (rule.policy == "not_larger") == (scale < common)) common = scale;
    }
  const std::vector<double> roi =
      rule.transform == "tf_crop_and_resize" ? c.in(1).to_vector<double>() : std::vector<double>();
  TERN_CHECK(roi.empty() || roi.size() == 2 * dims.size(), "the region has ", roi.size(), " numbers");
  std::vector<ResizedAxis> axes;
  for (size_t i = 0; i < dims.size(); ++i) {
    ResizedAxis a{.axis = dims[i], .in = x.size(dims[i])};
    if (common > 0) {
      a.scale = common;
      a.out = static_cast<int64_t>(std::floor(common * static_cast<double>(a.in) + 0.5));
    } else if (by_size) {
      a.out = sizes[i];
      a.scale = static_cast<double>(a.out) / static_cast<double>(std::max<int64_t>(1, a.in));
    } else {
      // A float's 0.6 is meant as the decimal number.
      a.scale = scales[i];
      a.out = size_for(a.in, a.scale);
    }
    if (!roi.empty()) {
      a.begin = roi[i];
      a.end = roi[dims.size() + i];
      if (!by_size) a.out = size_for(a.in, a.scale * (a.end - a.begin));
    }
    axes.push_back(a);
  }
  c.set(0, resized(x, rule, axes), c.element(0));
}

void upsample(Call& c) {
  const Tensor x = c.in(0);
  const std::vector<double> scales = c.opset() < 9 ? c.reals("scales") : c.in(1).to_vector<double>();
  TERN_CHECK(scales.size() == static_cast<size_t>(x.dim()), "there are ", scales.size(), " scales for ", x.describe());
  ResizeRule rule{.mode = c.text("mode", "nearest"), .transform = "asymmetric", .nearest = "floor"};
  std::vector<ResizedAxis> axes;
  for (int d = 0; d < x.dim(); ++d)
    axes.push_back({.axis = d,
                    .in = x.size(d),
                    .out = size_for(x.size(d), scales[static_cast<size_t>(d)]),
                    .scale = scales[static_cast<size_t>(d)]});
  c.set(0, resized(x, rule, axes), c.element(0));
}

void sample(Call& c) {
  const std::string mode = c.text("mode", "linear"), padding = c.text("padding_mode", "zeros");
  const bool linear = mode == "linear" || mode == "bilinear", cubic = mode == "cubic" || mode == "bicubic";
  TERN_CHECK(linear || cubic || mode == "nearest", "the mode '", mode, "'");
  TERN_CHECK(padding == "zeros" || padding == "border" || padding == "reflection", "the padding '", padding, "'");
  c.set(grid_sample(c.in(0), c.in(1),
                    {linear  ? GridSampleMode::kLinear
                     : cubic ? GridSampleMode::kCubic
                             : GridSampleMode::kNearest,
                     padding == "zeros"    ? GridPadding::kZeros
                     : padding == "border" ? GridPadding::kBorder
                                           : GridPadding::kReflection,
                     c.flag("align_corners")}));
}

void affine_grid_of(Call& c) { c.set(affine_grid(c.in(0), Shape(c.list(1)), c.flag("align_corners"))); }

}  // namespace

void add_resize_ops(Rows& rows) {
  const Rows own = {
      {"Resize", 10, resize_of},
      {"Upsample", 7, upsample},
      {"GridSample", 16, sample},
      {"AffineGrid", 20, affine_grid_of},
  };
  rows.insert(rows.end(), own.begin(), own.end());
}

}  // namespace tern::onnx

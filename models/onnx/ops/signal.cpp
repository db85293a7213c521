// Fourier transforms and windows, determinants, boxes of detectors, and the steps of optimizers.

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tern/core/tensor/size_checks.h"
#include "tern/kernels/base/check.h"
#include "tern/models/onnx/registry.h"

namespace tern::onnx {
namespace {

constexpr int64_t kMostLength = 1 << 16;  // of a transform, whose matrix is its square

/// Cosines and sines of 2 pi j k / length: [rows, cols].
std::pair<Tensor, Tensor> circle(int64_t rows, int64_t cols, int64_t length, const TensorOptions& options) {
  TERN_CHECK(rows > 0 && cols > 0 && length > 0 && length <= kMostLength && rows <= kMostLength && cols <= kMostLength,
             "a transform of length ", length, " is not supported");
  tern::detail::check_host_list("DFT", rows * cols, 16);
  std::vector<double> cosine, sine;
  for (int64_t j = 0; j < rows; ++j)
    for (int64_t k = 0; k < cols; ++k) {
      const double angle = 2 * std::numbers::pi * static_cast<double>(j * k % length) / static_cast<double>(length);
      cosine.push_back(std::cos(angle));
      sine.push_back(std::sin(angle));
    }
  return {from_vector(cosine, {rows, cols}).to(options.dtype).to(options.device),
          from_vector(sine, {rows, cols}).to(options.dtype).to(options.device)};
}

/// x [..., n, 1 or 2] along its second last dimension.
Tensor transformed(const Tensor& x, int64_t length, bool inverse, bool onesided) {
  const int64_t given = x.size(-2);
  const Tensor real = x.select(-1, 0), imaginary = x.size(-1) == 2 ? x.select(-1, 1) : Tensor();
  if (inverse && onesided) {  // of half a spectrum: real
    const int64_t half = length / 2 + 1, used = std::min(given, half);
    auto [cosine, sine] = circle(used, length, length, x.options());
    std::vector<double> weight(static_cast<size_t>(used), 2);
    weight[0] = 1;
    if (length % 2 == 0 && used == half) weight.back() = 1;
    const Tensor w = from_vector(weight, {used, 1}).to(x.dtype()).to(x.device());
    Tensor y = matmul(real.narrow(-1, 0, used), cosine * w);
    if (imaginary.defined()) y = y - matmul(imaginary.narrow(-1, 0, used), sine * w);
    return (y / static_cast<double>(length)).unsqueeze(-1);
  }
  const int64_t used = std::min(given, length), out = onesided ? length / 2 + 1 : length;
  auto [cosine, sine] = circle(used, out, length, x.options());
  if (!inverse) sine = -sine;
  const auto cut = [&](const Tensor& part) { return part.size(-1) == used ? part : part.narrow(-1, 0, used); };
  Tensor a = matmul(cut(real), cosine), b = matmul(cut(real), sine);
  if (imaginary.defined()) {
    a = a - matmul(cut(imaginary), sine);
    b = b + matmul(cut(imaginary), cosine);
  }
  const Tensor y = stack({a, b}, -1);
  return inverse ? y / static_cast<double>(length) : y;
}

void fourier(Call& c) {
  const Tensor x = c.in(0);
  TERN_CHECK(x.dim() >= 2 && (x.size(-1) == 1 || x.size(-1) == 2), "expected [..., n, 1 or 2], got ", x.describe());
  const int64_t given = c.opset() < 20 ? c.integer("axis", 1) : c.has(2) ? c.whole(2) : -2;
  const int axis = wrapped(given, x.dim());
  TERN_CHECK(axis < x.dim() - 1, "the axis is that of real and imaginary parts");
  const bool inverse = c.flag("inverse"), onesided = c.flag("onesided");
  const int64_t otherwise = inverse && onesided ? 2 * (x.size(axis) - 1) : x.size(axis);
  const int64_t length = c.has(1) ? c.whole(1) : otherwise;
  const Tensor y = transformed(x.transpose(axis, -2), length, inverse, onesided);
  c.set(y.transpose(axis, -2));
}

void short_time_fourier(Call& c) {
  const Tensor x = c.in(0).dim() == 2 ? c.in(0).unsqueeze(-1) : c.in(0);
  TERN_CHECK(x.dim() == 3, "expected [batch, length, 1 or 2], got ", x.describe());
  const int64_t step = c.whole(1);
  Tensor window = c.in_or_none(2);
  const int64_t length = c.has(3) ? c.whole(3) : window.defined() ? window.size(0) : 0;
  TERN_CHECK(step > 0 && length > 0 && length <= x.size(1), "frames of ", length, " at steps of ", step, " of ",
             x.describe());
  const int64_t frames = (x.size(1) - length) / step + 1;
  Tensors parts;
  for (int64_t f = 0; f < frames; ++f) {
    const Tensor part = x.narrow(1, f * step, length);
    parts.push_back(window.defined() ? part * window.to(x.dtype()).unsqueeze(-1) : part);
  }
  c.set(transformed(stack(parts, 1), length, false, c.flag("onesided", true)));
}

/// The sum of cosines of a window.
template <int kKind>
void window_of(Call& c) {
  const int64_t size = c.whole(0);
  TERN_CHECK(size > 0 && size < (1 << 24), "a window of ", size);
  const bool periodic = c.flag("periodic", true);
  const double length = static_cast<double>(periodic ? size : std::max<int64_t>(1, size - 1));
  std::vector<double> values;
  for (int64_t i = 0; i < size; ++i) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(i) / length;
    values.push_back(kKind == 0   ? 0.5 - 0.5 * std::cos(angle)
                     : kKind == 1 ? 25.0 / 46 - 21.0 / 46 * std::cos(angle)
                                  : 0.42 - 0.5 * std::cos(angle) + 0.08 * std::cos(2 * angle));
  }
  const auto element = static_cast<int32_t>(c.integer("output_datatype", kFloat));
  c.set(0, from_vector(values, {size}).to(storage_of(element)), element);
}

void mel_weights(Call& c) {
  const int64_t bins = c.whole(0), length = c.whole(1), rate = c.whole(2);
  const double low = 2595 * std::log10(1 + c.scalar(3) / 700), high = 2595 * std::log10(1 + c.scalar(4) / 700);
  TERN_CHECK(bins > 0 && length > 0 && rate > 0 && bins < 65536 && length < (1 << 20) && std::isfinite(low + high),
             "a matrix of ", bins, " bins for a length of ", length);
  const int64_t rows = length / 2 + 1;
  const double step = (high - low) / static_cast<double>(bins + 2);
  Numbers places;
  for (int64_t i = 0; i < bins + 2; ++i) {
    const double hertz = 700 * (std::pow(10, (static_cast<double>(i) * step + low) / 2595) - 1);
    places.push_back(
        static_cast<int64_t>(std::floor(static_cast<double>(length + 1) * hertz / static_cast<double>(rate))));
    TERN_CHECK(places.back() >= 0 && places.back() < rows, "an edge lies beyond half of the sample rate");
  }
  tern::detail::check_host_list("MelWeightMatrix", rows * bins);
  std::vector<double> weights(static_cast<size_t>(rows * bins));
  for (int64_t i = 0; i < bins; ++i) {
    const auto b = static_cast<size_t>(i);
    const int64_t left = places[b], centre = places[b + 1], right = places[b + 2];
    const auto put = [&](int64_t row, double value) { weights[static_cast<size_t>(row * bins + i)] = value; };
    if (centre == left) put(centre, 1);
    for (int64_t j = left; j <= centre && centre > left; ++j)
      put(j, static_cast<double>(j - left) / static_cast<double>(centre - left));
    for (int64_t j = centre; j < right; ++j)
      put(j, static_cast<double>(right - j) / static_cast<double>(right - centre));
  }
  const auto element = static_cast<int32_t>(c.integer("output_datatype", kFloat));
  c.set(0, from_vector(weights, {rows, bins}).to(storage_of(element)), element);
}

/// By elimination of one column after another, of the rows with the largest leading element.
Tensor determinant(const Tensor& x) {
  Tensor rest = x, result = ones({x.size(0)}, x.options());
  for (int64_t n = x.size(1); n > 0; --n) {
    const Tensor pivot = argmax(abs(rest.select(2, 0)), 1);  // [count]
    const Tensor place = pivot.reshape({-1, 1, 1}).expand({x.size(0), 1, n});
    const Tensor row = gather(rest, 1, place), first = rest.narrow(1, 0, 1);
    const Tensor lead = row.select(2, 0).squeeze(1);
    result = result * where(pivot == 0.0, lead, -lead);
    if (n == 1) break;
    const Tensor swapped = scatter(rest, 1, place, first);
    const Tensor safe = where(lead == 0.0, ones_like(lead), lead).reshape({-1, 1, 1});
    rest = (swapped - swapped.narrow(2, 0, 1) / safe * row).narrow(1, 1, n - 1).narrow(2, 1, n - 1);
  }
  return result;
}

void determinant_of(Call& c) {
  const Tensor x = c.in(0);
  TERN_CHECK(x.dim() >= 2 && x.size(-1) == x.size(-2) && x.size(-1) > 0 && x.size(-1) <= 4096,
             "expected square matrices, got ", x.describe());
  const std::vector<int64_t> sizes(x.shape().begin(), x.shape().end() - 2);
  c.set(determinant(x.reshape({Shape(sizes).numel(), x.size(-2), x.size(-1)})).reshape(Shape(sizes)));
}

struct Box {
  double top, left, bottom, right;
};

double overlap(const Box& a, const Box& b) {
  const double height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  const double width = std::min(a.right, b.right) - std::max(a.left, b.left);
  if (height <= 0 || width <= 0) return 0;
  const auto area = [](const Box& x) { return (x.bottom - x.top) * (x.right - x.left); };
  const double both = height * width;
  return both / (area(a) + area(b) - both);
}

void suppress_boxes(Call& c) {
  const Tensor boxes = c.in(0), scores = c.in(1);
  TERN_CHECK(boxes.dim() == 3 && scores.dim() == 3 && boxes.size(2) == 4 && boxes.size(0) == scores.size(0) &&
                 boxes.size(1) == scores.size(2),
             "boxes ", boxes.describe(), " and scores ", scores.describe());
  const int64_t most = c.has(2) ? c.whole(2) : 0;
  const double threshold = c.has(3) ? c.scalar(3) : 0, least = c.has(4) ? c.scalar(4) : -INFINITY;
  const bool centred = c.integer("center_point_box", 0) != 0;
  const std::vector<double> b = boxes.to_vector<double>(), s = scores.to_vector<double>();
  const int64_t batch = boxes.size(0), count = boxes.size(1), classes = scores.size(1);
  Numbers result;
  for (int64_t n = 0; n < batch; ++n)
    for (int64_t k = 0; k < classes; ++k) {
      const auto box = [&](int64_t i) {
        const double* v = b.data() + (n * count + i) * 4;
        if (centred) return Box{v[1] - v[3] / 2, v[0] - v[2] / 2, v[1] + v[3] / 2, v[0] + v[2] / 2};
        return Box{std::min(v[0], v[2]), std::min(v[1], v[3]), std::max(v[0], v[2]), std::max(v[1], v[3])};
      };
      const double* score = s.data() + (n * classes + k) * count;
      Numbers order;
      for (int64_t i = 0; i < count; ++i)
        if (score[i] > least) order.push_back(i);
      std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) { return score[i] > score[j]; });
      Numbers kept;
      for (const int64_t i : order) {
        if (static_cast<int64_t>(kept.size()) >= most) break;
        if (std::all_of(kept.begin(), kept.end(), [&](int64_t j) { return overlap(box(i), box(j)) <= threshold; }))
          kept.push_back(i);
      }
      for (const int64_t i : kept) result.insert(result.end(), {n, k, i});
    }
  const auto rows = static_cast<int64_t>(result.size() / 3);
  c.set(0, from_vector(result, {rows, 3}), kInt64);
}

/// One convolution with the pixels that offsets name (Dai et al., arXiv:1703.06211).
void deformed_convolution(Call& c) {
  const Tensor x = c.in(0), weight = c.in(1), offset = c.in(2);
  TERN_CHECK(x.dim() == 4 && weight.dim() == 4 && offset.dim() == 4, "images of two dimensions are supported, not ",
             x.describe());
  const Numbers stride = c.numbers("strides", {1, 1}), dilation = c.numbers("dilations", {1, 1});
  const Numbers pads = c.numbers("pads", {0, 0, 0, 0});
  TERN_CHECK(stride.size() == 2 && dilation.size() == 2 && pads.size() == 4, "strides, dilations or pads do not fit");
  const int64_t groups = c.integer("group", 1), parts = c.integer("offset_group", 1);
  const int64_t batch = x.size(0), channels = x.size(1), height = x.size(2), width = x.size(3);
  const int64_t kh = weight.size(2), kw = weight.size(3), oh = offset.size(2), ow = offset.size(3);
  TERN_CHECK(groups > 0 && parts > 0 && channels % parts == 0 && offset.size(1) == parts * kh * kw * 2 &&
                 channels == weight.size(1) * groups,
             "offsets ", offset.describe(), " or the weight ", weight.describe(), " do not fit ", x.describe());
  const auto places = [&](int64_t count, int64_t step, int64_t start) {
    return arange(0, static_cast<double>(count), 1, {int64, x.device()}).to(x.dtype()) * static_cast<double>(step) -
           static_cast<double>(start);
  };
  const Tensor shift = offset.reshape({batch, parts, kh, kw, 2, oh, ow});
  const Tensor row =
      places(kh, dilation[0], 0).reshape({kh, 1, 1, 1}) + places(oh, stride[0], pads[0]).reshape({oh, 1});
  const Tensor col = places(kw, dilation[1], 0).reshape({1, kw, 1, 1}) + places(ow, stride[1], pads[1]);
  const Tensor y = shift.select(4, 0) + row, z = shift.select(4, 1) + col;  // [batch, parts, kh, kw, oh, ow]
  const auto unit = [](const Tensor& place, int64_t size) {                 // -1 and 1 are the outer edges of the image
    return (place * 2.0 + 1.0) / static_cast<double>(size) - 1.0;
  };
  const Tensor grid = stack({unit(z, width), unit(y, height)}, -1).reshape({batch * parts, kh * kw * oh, ow, 2});
  const Tensor images = x.reshape({batch * parts, channels / parts, height, width});
  Tensor samples = grid_sample(images, grid).reshape({batch, parts, channels / parts, kh * kw, oh * ow});
  if (c.has(4)) samples = samples * c.in(4).reshape({batch, parts, 1, kh * kw, oh * ow});
  const Tensor columns = samples.reshape({batch, groups, channels / groups * kh * kw, oh * ow});
  const int64_t outputs = weight.size(0);
  const Tensor product = matmul(weight.reshape({groups, outputs / groups, channels / groups * kh * kw}), columns);
  Tensor result = product.reshape({batch, outputs, oh, ow});
  if (c.has(3)) result = result + c.in(3).reshape({outputs, 1, 1});
  c.set(result);
}

/// Rate, count, and for each tensor its value, gradient and states.
struct OptimizerCall {
  explicit OptimizerCall(const Call& c, size_t states) {
    TERN_CHECK(c.inputs() >= 2 && (c.inputs() - 2) % (2 + states) == 0, "it has ", c.inputs(), " inputs");
    count = (c.inputs() - 2) / (2 + states);
    rate = c.scalar(0);
    step = c.whole(1);
  }
  size_t count = 0;
  double rate = 0;
  int64_t step = 0;
};

void adagrad_step(Call& c) {
  const OptimizerCall o(c, 1);
  const double rate = o.rate / (1 + static_cast<double>(o.step) * c.number("decay_factor", 0));
  for (size_t i = 0; i < o.count; ++i) {
    const Tensor x = c.in(2 + i), g = c.in(2 + o.count + i) + x * c.number("norm_coefficient", 0);
    const Tensor h = c.in(2 + 2 * o.count + i) + square(g);
    c.set(i, x - g * rate / (sqrt(h) + c.number("epsilon", 0)));
    c.set(o.count + i, h);
  }
}

void adam_step(Call& c) {
  const OptimizerCall o(c, 2);
  const double alpha = c.number("alpha", 0.9), beta = c.number("beta", 0.999);
  double rate = o.rate;
  if (o.step > 0)
    rate *=
        std::sqrt(1 - std::pow(beta, static_cast<double>(o.step))) / (1 - std::pow(alpha, static_cast<double>(o.step)));
  for (size_t i = 0; i < o.count; ++i) {
    const Tensor x = c.in(2 + i), g = c.in(2 + o.count + i) + x * c.number("norm_coefficient", 0);
    const Tensor v = c.in(2 + 2 * o.count + i) * alpha + g * (1 - alpha);
    const Tensor h = c.in(2 + 3 * o.count + i) * beta + square(g) * (1 - beta);
    const Tensor moved = x - v * rate / (sqrt(h) + c.number("epsilon", 1e-6));
    c.set(i, moved * (1 - c.number("norm_coefficient_post", 0)));
    c.set(o.count + i, v);
    c.set(2 * o.count + i, h);
  }
}

void momentum_step(Call& c) {
  const OptimizerCall o(c, 1);
  const double alpha = c.number("alpha", 0), beta = o.step > 0 ? c.number("beta", 0) : 1;
  const bool nesterov = c.text("mode", "standard") == "nesterov";
  for (size_t i = 0; i < o.count; ++i) {
    const Tensor x = c.in(2 + i), g = c.in(2 + o.count + i) + x * c.number("norm_coefficient", 0);
    const Tensor v = c.in(2 + 2 * o.count + i) * alpha + g * beta;
    c.set(i, x - (nesterov ? g + v * alpha : v) * o.rate);
    c.set(o.count + i, v);
  }
}

}  // namespace

void add_signal_ops(Rows& rows) {
  const char* const training = "ai.onnx.preview.training";
  const Rows own = {
      {"DFT", 17, fourier},
      {"STFT", 17, short_time_fourier},
      {"HannWindow", 17, window_of<0>},
      {"HammingWindow", 17, window_of<1>},
      {"BlackmanWindow", 17, window_of<2>},
      {"MelWeightMatrix", 17, mel_weights},
      {"Det", 11, determinant_of},
      {"NonMaxSuppression", 10, suppress_boxes},
      {"DeformConv", 19, deformed_convolution},
      {"Adagrad", 1, adagrad_step, nullptr, training},
      {"Adam", 1, adam_step, nullptr, training},
      {"Momentum", 1, momentum_step, nullptr, training},
  };
  rows.insert(rows.end(), own.begin(), own.end());
}

}  // namespace tern::onnx

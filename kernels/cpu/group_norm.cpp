#include "tern/kernels/group_norm.h"

#include <algorithm>

#include "tern/kernels/cpu/norm_rows.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

constexpr int64_t kGroupBlock = 16384;  // elements of a block of parallel_for

/// Neighbouring channels that are summed over the pixels at a time.
template <class F>
constexpr int64_t kStrip = kLaneBytes / sizeof(F);

/// Up to kStrip numbers for each pixel, or the same ones for all (step 0).
template <class T>
struct Pixels {
  using F = ComputeType<T>;
  const T* first;
  int64_t step;
  alignas(64) F buffer[kStrip<F>] = {};

  const F* at(int64_t pixel, int64_t n) { return widen(first + pixel * step, buffer, n); }
};

/// sums[i] = the sum over pixels [begin, end) of map(x[i]...) for a whole strip, which stays in registers.
template <class F, class Map, class... T>
void sum_strip(int64_t begin, int64_t end, F* sums, const Map& map, Pixels<T>&... x) {
  constexpr int kWidth = kVectorBytes / sizeof(F), kVectors = kLaneBytes / kVectorBytes;
  Vector<F> totals[kVectors] = {};
  for (int64_t p = begin; p < end; ++p) {
    const auto add = [&](const auto*... row) __attribute__((always_inline)) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) totals[v] += map(load_vector(row + v * kWidth)...);
    };
    add(x.at(p, kStrip<F>)...);
  }
  for (int v = 0; v < kVectors; ++v) store_vector(sums + v * kWidth, totals[v]);
}

/// The same for the first n elements of a strip.
template <class F, class Map, class... T>
void sum_part(int64_t begin, int64_t end, int64_t n, F* sums, const Map& map, Pixels<T>&... x) {
  std::fill_n(sums, n, F(0));
  for (int64_t p = begin; p < end; ++p) {
    const auto add = [&](const auto*... row) {
      for (int64_t i = 0; i < n; ++i) sums[i] += map(row[i]...);
    };
    add(x.at(p, n)...);
  }
}

/// totals[i] += the sum over all pixels of map(x[i]...), n <= kStrip. Sums of blocks of pixels are added up in order.
template <class F, class Map, class... T>
void add_pixels(int64_t pixels, int64_t n, F* totals, const Map& map, Pixels<T>... x) {
  constexpr int64_t kBlock = 128;
  alignas(64) F sums[kStrip<F>];
  for (int64_t begin = 0; begin < pixels; begin += kBlock) {
    const int64_t end = std::min(pixels, begin + kBlock);
    if (n == kStrip<F>)
      sum_strip(begin, end, sums, map, x...);
    else
      sum_part(begin, end, n, sums, map, x...);
    add_to(totals, sums, n);
  }
}

/// gamma or beta at one channel.
template <class T>
ComputeType<T> at(const Affine<T>& parameter, int64_t channel, ComputeType<T> absent) {
  ComputeType<T> buffer;
  return parameter ? *parameter.tile(channel, &buffer, 1) : absent;
}

template <class T>
struct GroupForward {
  using F = ComputeType<T>;
  const GroupNormShape& s;
  const T* x;
  Affine<T> gamma, beta;
  double eps;
  T* y;
  F *mean, *rstd;

  /// Channels first: the group is one row.
  void group(int64_t n, int64_t g) const {
    const int64_t first = (n * s.groups + g) * s.group_size();
    const F center = row_mean(x + first, s.group_size());
    const F factor = row_rstd(x + first, s.group_size(), eps, center);
    mean[n * s.groups + g] = center;
    rstd[n * s.groups + g] = factor;
    for (int64_t m = 0; m < s.members(); ++m) {
      const int64_t channel = g * s.members() + m, begin = first + m * s.pixels;
      const F scale = factor * at(gamma, channel, F(1)), shift = at(beta, channel, F(0));
      map_row<F>(
          y + begin, s.pixels, [=](F v) { return (v - center) * scale + shift; }, x + begin);
    }
  }

  /// Channels last: groups [begin, end) of an image, a strip of channels at a time.
  void groups(int64_t n, int64_t begin, int64_t end) const {
    const int64_t first = begin * s.members(), last = end * s.members(), image = n * s.pixels * s.channels;
    const F count = static_cast<F>(s.group_size());
    F *means = mean + n * s.groups, *factors = rstd + n * s.groups;
    std::fill(means + begin, means + end, F(0));
    std::fill(factors + begin, factors + end, F(0));
    alignas(64) F totals[kStrip<F>], centers[kStrip<F>], scales[kStrip<F>], shifts[kStrip<F>];
    const auto for_strips = [&](const auto& body) {
      for (int64_t c = first; c < last; c += kStrip<F>) body(c, std::min(kStrip<F>, last - c));
    };
    const auto group_of = [&](int64_t channel) { return channel / s.members(); };
    for_strips([&](int64_t c, int64_t width) {
      std::fill_n(totals, kStrip<F>, F(0));
      add_pixels(
          s.pixels, width, totals, [](auto v) { return v; }, Pixels<T>{x + image + c, s.channels});
      for (int64_t i = 0; i < width; ++i) means[group_of(c + i)] += totals[i];
    });
    for (int64_t g = begin; g < end; ++g) means[g] /= count;
    for_strips([&](int64_t c, int64_t width) {
      for (int64_t i = 0; i < width; ++i) centers[i] = means[group_of(c + i)];
      std::fill_n(totals, kStrip<F>, F(0));
      add_pixels(
          s.pixels, width, totals, [](auto v, auto center) { return (v - center) * (v - center); },
          Pixels<T>{x + image + c, s.channels}, Pixels<F>{centers, 0});
      for (int64_t i = 0; i < width; ++i) factors[group_of(c + i)] += totals[i];
    });
    for (int64_t g = begin; g < end; ++g) factors[g] = F(1) / std::sqrt(factors[g] / count + static_cast<F>(eps));
    for_strips([&](int64_t c, int64_t width) {
      for (int64_t i = 0; i < width; ++i) {
        centers[i] = means[group_of(c + i)];
        scales[i] = factors[group_of(c + i)] * at(gamma, c + i, F(1));
        shifts[i] = at(beta, c + i, F(0));
      }
      for (int64_t p = 0; p < s.pixels; ++p) {
        const int64_t place = image + p * s.channels + c;
        map_row<F>(
            y + place, width, [](F v, F center, F scale, F shift) { return (v - center) * scale + shift; }, x + place,
            centers, scales, shifts);
      }
    });
  }
};

template <class T>
struct GroupBackward {
  using F = ComputeType<T>;
  const GroupNormShape& s;
  const T *dy, *x;
  Affine<T> gamma;
  const F *mean, *rstd;
  F* sums;  // [batch, 2, channels]: of dy, and of dy times the normalised x
  T* dx;    // may be null

  F* sums_of(int64_t n) const { return sums + n * 2 * s.channels; }
  /// The means over the group of dy * gamma and of dy * gamma times the normalised x.
  std::pair<F, F> group_means(int64_t n, int64_t g) const {
    F direct = 0, product = 0;
    for (int64_t c = g * s.members(); c < (g + 1) * s.members(); ++c) {
      direct += sums_of(n)[c] * at(gamma, c, F(1));
      product += sums_of(n)[s.channels + c] * at(gamma, c, F(1));
    }
    const F count = static_cast<F>(s.group_size());
    return {direct / count, product / count};
  }

  void group(int64_t n, int64_t g) const {
    const F center = mean[n * s.groups + g], factor = rstd[n * s.groups + g];
    for (int64_t c = g * s.members(); c < (g + 1) * s.members(); ++c) {
      const int64_t row = (n * s.channels + c) * s.pixels;
      F dy_buffer[kTile], x_buffer[kTile];
      LaneSum<F> direct, product;
      for (int64_t j = 0; j < s.pixels; j += kTile) {
        const int64_t count = std::min(kTile, s.pixels - j);
        const F *d = widen(dy + row + j, dy_buffer, count), *v = widen(x + row + j, x_buffer, count);
        direct.add(
            count, [](auto a) { return a; }, d);
        product.add(
            count, [=](auto a, auto b) { return a * ((b - center) * factor); }, d, v);
      }
      sums_of(n)[c] = direct.total();
      sums_of(n)[s.channels + c] = product.total();
    }
    if (!dx) return;
    const auto [direct, product] = group_means(n, g);
    for (int64_t c = g * s.members(); c < (g + 1) * s.members(); ++c) {
      const int64_t row = (n * s.channels + c) * s.pixels;
      const F weight = at(gamma, c, F(1));
      const auto gradient = [=, direct = direct, product = product](F d, F v) {
        return factor * (d * weight - direct - (v - center) * factor * product);
      };
      map_row<F>(dx + row, s.pixels, gradient, dy + row, x + row);
    }
  }

  void groups(int64_t n, int64_t begin, int64_t end) const {
    const int64_t first = begin * s.members(), last = end * s.members(), image = n * s.pixels * s.channels;
    alignas(64) F centers[kStrip<F>], factors[kStrip<F>], weights[kStrip<F>], direct[kStrip<F>], product[kStrip<F>];
    for (int64_t c = first; c < last; c += kStrip<F>) {
      const int64_t width = std::min(kStrip<F>, last - c);
      for (int64_t i = 0; i < width; ++i) {
        centers[i] = mean[n * s.groups + (c + i) / s.members()];
        factors[i] = rstd[n * s.groups + (c + i) / s.members()];
      }
      std::fill_n(sums_of(n) + c, width, F(0));
      std::fill_n(sums_of(n) + s.channels + c, width, F(0));
      const Pixels<T> gradients{dy + image + c, s.channels}, values{x + image + c, s.channels};
      add_pixels(
          s.pixels, width, sums_of(n) + c, [](auto a) { return a; }, gradients);
      add_pixels(
          s.pixels, width, sums_of(n) + s.channels + c,
          [](auto a, auto v, auto center, auto factor) { return a * ((v - center) * factor); }, gradients, values,
          Pixels<F>{centers, 0}, Pixels<F>{factors, 0});
    }
    if (!dx) return;
    for (int64_t c = first; c < last; c += kStrip<F>) {
      const int64_t width = std::min(kStrip<F>, last - c);
      for (int64_t i = 0; i < width; ++i) {
        const int64_t g = (c + i) / s.members();
        const F factor = rstd[n * s.groups + g];
        // dx = factors * dy * gamma - centers - products * x, with what does not depend on the pixel put together
        const auto [mean_gradient, mean_product] = group_means(n, g);
        centers[i] = mean[n * s.groups + g];
        weights[i] = factor * at(gamma, c + i, F(1));
        direct[i] = factor * mean_gradient;
        product[i] = factor * factor * mean_product;
      }
      for (int64_t p = 0; p < s.pixels; ++p) {
        const int64_t place = image + p * s.channels + c;
        map_row<F>(
            dx + place, width,
            [](F d, F v, F center, F weight, F shift, F slope) { return d * weight - shift - (v - center) * slope; },
            dy + place, x + place, centers, weights, direct, product);
      }
    }
  }
};

/// pass.group() or pass.groups() for all groups, on all threads.
template <class F, class Pass>
void for_groups(const GroupNormShape& s, const Pass& pass) {
  const int64_t together = s.channels_last ? std::max<int64_t>(1, kStrip<F> / s.members()) : 1;
  const int64_t items = (s.groups + together - 1) / together;
  const int64_t grain = std::max<int64_t>(1, kGroupBlock / std::max<int64_t>(1, s.group_size() * together));
  parallel_for(s.batch * items, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = i / items, g = i % items * together;
      if (s.channels_last)
        pass.groups(n, g, std::min(s.groups, g + together));
      else
        pass.group(n, g);
    }
  });
}

}  // namespace

int64_t group_norm_workspace(Stream, const GroupNormShape& s, DType) { return 64 + s.batch * 2 * s.channels * 8; }

void group_norm_forward(Stream, const GroupNormShape& s, ConstView x, ConstView gamma, ConstView beta, double eps,
                        void*, View y, View mean, View rstd) {
  if (x.numel() == 0) return;
  dispatch_float(x.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    for_groups<F>(s, GroupForward<T>{s, x.as<T>(), Affine<T>(gamma), Affine<T>(beta), eps, y.as<T>(), mean.as<F>(),
                                     rstd.as<F>()});
  });
}

void group_norm_backward(Stream, const GroupNormShape& s, ConstView dy, ConstView x, ConstView gamma, ConstView mean,
                         ConstView rstd, void* workspace, View dx, View dgamma, View dbeta) {
  if (s.channels == 0) return;
  dispatch_float(x.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    F* const sums = static_cast<F*>(workspace);
    for_groups<F>(s, GroupBackward<T>{s, dy.as<T>(), x.as<T>(), Affine<T>(gamma), mean.as<F>(), rstd.as<F>(), sums,
                                      dx ? dx.as<T>() : nullptr});
    add_partial_sums(sums, s.batch, s.channels, dbeta);
    add_partial_sums(sums + s.channels, s.batch, s.channels, dgamma);
  });
}

}  // namespace tern::kernels::TERN_CPU

#include "tern/kernels/pool.h"

#include <algorithm>

#include "tern/kernels/cpu/rows.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

constexpr int64_t kBlockElements = 16384;  // of a block of parallel_for
constexpr int64_t kChannels = 64;          // at a time, which stay in registers

struct Place {
  int64_t at[3];
  Place(int64_t pixel, const std::array<int64_t, 3>& size)
      : at{pixel / (size[1] * size[2]), pixel / size[2] % size[1], pixel % size[2]} {}
};

/// body(pixel) for all inputs of an output pixel's window, or all outputs whose windows may hold an input pixel.
template <class Body>
void for_window(const PoolWindow (&windows)[3], const std::array<int64_t, 3>& size, const Body& body) {
  for (int64_t z = windows[0].begin; z < windows[0].end; z += windows[0].step)
    for (int64_t y = windows[1].begin; y < windows[1].end; y += windows[1].step)
      for (int64_t x = windows[2].begin; x < windows[2].end; x += windows[2].step)
        body((z * size[1] + y) * size[2] + x);
}

/// body(image, pixel) for all pixels of all images, on all threads.
template <class Body>
void for_pixels(int64_t batch, int64_t pixels, int64_t channels, const Body& body) {
  parallel_for(batch * pixels, std::max<int64_t>(1, kBlockElements / std::max<int64_t>(channels, 1)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t p = begin; p < end; ++p) body(p / pixels, p % pixels);
               });
}

/// Whether each output has a window that holds input pixel `in`; for windows of several outputs.
bool holds(const PoolShape& s, const Place& out, const Place& in) {
  for (int d = 0; d < 3; ++d) {
    const PoolWindow window = pool_window(s, d, out.at[d]);
    const int64_t steps = in.at[d] - window.begin;
    if (steps < 0 || in.at[d] >= window.end || steps % window.step != 0) return false;
  }
  return true;
}

template <class T>
void max_of_pixel(const PoolShape& s, const Place& out, const T* image, T* y, int64_t* index) {
  using F = ComputeType<T>;
  const PoolWindow windows[] = {pool_window(s, 0, out.at[0]), pool_window(s, 1, out.at[1]),
                                pool_window(s, 2, out.at[2])};
  for (int64_t c = 0; c < s.channels; c += kChannels) {
    const int64_t n = std::min(kChannels, s.channels - c);
    alignas(64) F best[kChannels], buffer[kChannels];
    alignas(64) int64_t place[kChannels];
    bool first = true;
    for_window(windows, s.in, [&](int64_t pixel) {
      const F* values = widen(image + pixel * s.channels + c, buffer, n);
      if (first) {
        for (int64_t i = 0; i < n; ++i) best[i] = values[i];
        for (int64_t i = 0; i < n; ++i) place[i] = pixel;
        first = false;
        return;
      }
      for (int64_t i = 0; i < n; ++i) {
        const bool wins = values[i] > best[i] || values[i] != values[i];
        best[i] = wins ? values[i] : best[i];
        place[i] = wins ? pixel : place[i];
      }
    });
    narrow(best, y + c, n);
    if (index) std::copy_n(place, n, index + c);
  }
}

}  // namespace

void max_pool(Stream, const PoolShape& s, ConstView x, View y, View index) {
  if (y.numel() == 0) return;
  dispatch_float(x.dtype, [&]<class T>() {
    for_pixels(s.batch, s.out_pixels(), s.channels, [&](int64_t n, int64_t pixel) {
      const int64_t at = (n * s.out_pixels() + pixel) * s.channels;
      max_of_pixel(s, Place(pixel, s.out), x.as<T>() + n * s.in_pixels() * s.channels, y.as<T>() + at,
                   index ? index.as<int64_t>() + at : nullptr);
    });
  });
}

void max_pool_backward(Stream, const PoolShape& s, ConstView dy, ConstView index, View dx) {
  if (dx.numel() == 0) return;
  dispatch_float(dx.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    for_pixels(s.batch, s.in_pixels(), s.channels, [&](int64_t n, int64_t pixel) {
      const Place in(pixel, s.in);
      const PoolWindow outputs[] = {pool_outputs(s, 0, in.at[0]), pool_outputs(s, 1, in.at[1]),
                                    pool_outputs(s, 2, in.at[2])};
      for (int64_t c = 0; c < s.channels; c += kChannels) {
        const int64_t count = std::min(kChannels, s.channels - c);
        alignas(64) F sums[kChannels] = {}, buffer[kChannels];
        for_window(outputs, s.out, [&](int64_t out) {
          const int64_t at = (n * s.out_pixels() + out) * s.channels + c;
          const F* gradient = widen(dy.as<T>() + at, buffer, count);
          const int64_t* places = index.as<int64_t>() + at;
          for (int64_t i = 0; i < count; ++i) sums[i] += places[i] == pixel ? gradient[i] : F(0);
        });
        narrow(sums, dx.as<T>() + (n * s.in_pixels() + pixel) * s.channels + c, count);
      }
    });
  });
}

void mean_pool(Stream, const PoolShape& s, PoolDivisor divisor, ConstView x, View y) {
  if (y.numel() == 0) return;
  dispatch_float(x.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    for_pixels(s.batch, s.out_pixels(), s.channels, [&](int64_t n, int64_t pixel) {
      const Place out(pixel, s.out);
      const PoolWindow windows[] = {pool_window(s, 0, out.at[0]), pool_window(s, 1, out.at[1]),
                                    pool_window(s, 2, out.at[2])};
      const F size = static_cast<F>(pool_divisor(s, divisor, out.at));
      const T* image = x.as<T>() + n * s.in_pixels() * s.channels;
      for (int64_t c = 0; c < s.channels; c += kChannels) {
        const int64_t count = std::min(kChannels, s.channels - c);
        alignas(64) F sums[kChannels] = {}, buffer[kChannels];
        for_window(windows, s.in,
                   [&](int64_t in) { add_to(sums, widen(image + in * s.channels + c, buffer, count), count); });
        for (int64_t i = 0; i < count; ++i) sums[i] /= size;
        narrow(sums, y.as<T>() + (n * s.out_pixels() + pixel) * s.channels + c, count);
      }
    });
  });
}

void mean_pool_backward(Stream, const PoolShape& s, PoolDivisor divisor, ConstView dy, View dx) {
  if (dx.numel() == 0) return;
  dispatch_float(dx.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    for_pixels(s.batch, s.in_pixels(), s.channels, [&](int64_t n, int64_t pixel) {
      const Place in(pixel, s.in);
      const PoolWindow outputs[] = {pool_outputs(s, 0, in.at[0]), pool_outputs(s, 1, in.at[1]),
                                    pool_outputs(s, 2, in.at[2])};
      const T* gradients = dy.as<T>() + n * s.out_pixels() * s.channels;
      for (int64_t c = 0; c < s.channels; c += kChannels) {
        const int64_t count = std::min(kChannels, s.channels - c);
        alignas(64) F sums[kChannels] = {}, buffer[kChannels];
        for_window(outputs, s.out, [&](int64_t pixel_out) {
          const Place out(pixel_out, s.out);
          if (!holds(s, out, in)) return;
          const F size = static_cast<F>(pool_divisor(s, divisor, out.at));
          const F* gradient = widen(gradients + pixel_out * s.channels + c, buffer, count);
          for (int64_t i = 0; i < count; ++i) sums[i] += gradient[i] / size;
        });
        narrow(sums, dx.as<T>() + (n * s.in_pixels() + pixel) * s.channels + c, count);
      }
    });
  });
}

}  // namespace tern::kernels::TERN_CPU

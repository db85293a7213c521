#include "tern/kernels/pool.h"

#include <algorithm>
#include <limits>

#include "tern/kernels/cpu/rows.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

constexpr int64_t kBlockElements = 16384;  // of a block of parallel_for
constexpr int64_t kChannels = 64;          // at a time, which stay in registers

/// body(image, pixel) for all pixels of all images, on all threads.
template <class Body>
void for_pixels(int64_t batch, int64_t pixels, int64_t channels, const Body& body) {
  parallel_for(batch * pixels, std::max<int64_t>(1, kBlockElements / std::max<int64_t>(channels, 1)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t p = begin; p < end; ++p) body(p / pixels, p % pixels);
               });
}

/// kPlaces: index is written. The places take more than half of the time.
template <bool kPlaces, class T>
void max_of_pixel(const PoolShape& s, const PoolPlace& out, const T* image, T* y, int64_t* index) {
  using F = ComputeType<T>;
  const PoolWindows windows = out.inputs(s);
  for (int64_t c = 0; c < s.channels; c += kChannels) {
    const int64_t n = std::min(kChannels, s.channels - c);
    alignas(64) F best[kChannels], buffer[kChannels];
    alignas(64) int64_t place[kPlaces ? kChannels : 1];
    bool first = true;
    windows.for_each(s.in, [&](int64_t pixel) {
      const F* values = widen(image + pixel * s.channels + c, buffer, n);
      if (first) {
        for (int64_t i = 0; i < n; ++i) best[i] = values[i];
        if constexpr (kPlaces) std::fill_n(place, n, pixel);
        first = false;
        return;
      }
      for (int64_t i = 0; i < n; ++i) {
        const bool wins = values[i] > best[i] || values[i] != values[i];
        best[i] = wins ? values[i] : best[i];
        if constexpr (kPlaces) place[i] = wins ? pixel : place[i];
      }
    });
    if (first) {
      std::fill_n(best, n, -std::numeric_limits<F>::infinity());
      if constexpr (kPlaces) std::fill_n(place, n, kNoPlace);
    }
    narrow(best, y + c, n);
    if constexpr (kPlaces) std::copy_n(place, n, index + c);
  }
}

}  // namespace

void max_pool(Stream, const PoolShape& s, ConstView x, View y, View index) {
  if (y.numel() == 0) return;
  dispatch_float(x.dtype, [&]<class T>() {
    for_pixels(s.batch, s.out_pixels(), s.channels, [&](int64_t n, int64_t pixel) {
      const int64_t at = (n * s.out_pixels() + pixel) * s.channels;
      const PoolPlace out(pixel, s.out);
      const T* const image = x.as<T>() + n * s.in_pixels() * s.channels;
      if (index)
        max_of_pixel<true>(s, out, image, y.as<T>() + at, index.as<int64_t>() + at);
      else
        max_of_pixel<false, T>(s, out, image, y.as<T>() + at, nullptr);
    });
  });
}

void max_pool_backward(Stream, const PoolShape& s, ConstView dy, ConstView index, View dx) {
  if (dx.numel() == 0) return;
  dispatch_float(dx.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    for_pixels(s.batch, s.in_pixels(), s.channels, [&](int64_t n, int64_t pixel) {
      const PoolPlace in(pixel, s.in);
      const PoolWindows outputs = in.outputs(s);
      for (int64_t c = 0; c < s.channels; c += kChannels) {
        const int64_t count = std::min(kChannels, s.channels - c);
        alignas(64) F sums[kChannels] = {}, buffer[kChannels];
        outputs.for_each(s.out, [&](int64_t out) {
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
      const PoolPlace out(pixel, s.out);
      const PoolWindows windows = out.inputs(s);
      const F size = static_cast<F>(pool_divisor(s, divisor, out.at));
      const T* image = x.as<T>() + n * s.in_pixels() * s.channels;
      for (int64_t c = 0; c < s.channels; c += kChannels) {
        const int64_t count = std::min(kChannels, s.channels - c);
        alignas(64) F sums[kChannels] = {}, buffer[kChannels];
        windows.for_each(s.in,
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
      const PoolPlace in(pixel, s.in);
      const PoolWindows outputs = in.outputs(s);
      const T* gradients = dy.as<T>() + n * s.out_pixels() * s.channels;
      for (int64_t c = 0; c < s.channels; c += kChannels) {
        const int64_t count = std::min(kChannels, s.channels - c);
        alignas(64) F sums[kChannels] = {}, buffer[kChannels];
        outputs.for_each(s.out, [&](int64_t pixel_out) {
          const PoolPlace out(pixel_out, s.out);
          if (!out.reads(s, in)) return;
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

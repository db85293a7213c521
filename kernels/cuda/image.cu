// Batches of 8-bit images: one kernel resizes, one sums grey values for contrast, one does all other steps.

#include "tern/kernels/image.h"

#include <algorithm>

#include "tern/kernels/convert.h"
#include "tern/kernels/cuda/support/convert.h"
#include "tern/kernels/cuda/support/launch.h"
#include "tern/kernels/cuda/support/reduce.h"
#include "tern/kernels/cuda/support/vector.h"

namespace tern::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxImages = 2048;  // in a grid's second dimension, which then loops over further images
constexpr int64_t kItems = 4;         // per thread, about: each block builds the table of values once

struct Images {
  const uint8_t* pixels;
  int64_t count, height, width;
};
Images images_of(ConstView images) { return {images.as<uint8_t>(), images.shape[0], images.shape[1], images.shape[2]}; }

/// Arguments of the kernels that use plans.
struct AugmentCall {
  Images images;
  const ImageAugment* plans;
  ImageNormalization normalization;
  const int32_t* contrast;
  int32_t height, width;  // of a result

  __device__ AugmentedImage image(int64_t i) const {
    return {images.pixels + i * images.height * images.width * 3,
            images.height,
            images.width,
            width,
            plans + i,
            &normalization,
            contrast == nullptr ? 0 : contrast[i]};
  }
};

__global__ void __launch_bounds__(kThreads) contrast_kernel(TERN_GRID_CONSTANT(AugmentCall) call, int32_t* offsets) {
  const int32_t pixels = call.height * call.width;
  for (int64_t i = blockIdx.x; i < call.images.count; i += gridDim.x) {
    const AugmentedImage image = call.image(i);
    const int steps = image.plan->contrast_step();
    int64_t sum = 0;
    if (steps < kColorSteps) {
      for (int32_t p = static_cast<int32_t>(threadIdx.x); p < pixels; p += kThreads)
        sum += grey_of(image.colored(p / call.width, p % call.width, steps));
    }
    sum = block_reduce<kThreads>(sum, Sum{}, int64_t{0});
    if (threadIdx.x == 0)
      offsets[i] = steps < kColorSteps ? contrast_offset(image.plan->colors[steps].amount, sum, pixels) : 0;
  }
}

/// Minimum number of blocks per multiprocessor; 0: ptxas chooses. On sm_120 ptxas would choose five for the wide kernel
/// of float and spill registers; with five as a launch bound it does not spill.
template <int kWidth>
constexpr int augment_blocks() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
  return kWidth > 1 ? 5 : 0;
#else
  return 0;
#endif
}

/// Each thread computes kWidth neighbouring pixels of a row.
template <class Out, int kWidth>
__global__ void __launch_bounds__(kThreads, augment_blocks<kWidth>())
    augment_kernel(TERN_GRID_CONSTANT(AugmentCall) call, Out* out) {
  // A table, because two divisions per value would take longer than its memory traffic.
  TERN_SHARED(float, values, [3][256]);
  for (int i = static_cast<int>(threadIdx.x); i < 3 * 256; i += kThreads)
    values[i / 256][i % 256] = call.normalization.value(i / 256, i % 256);
  block_barrier();
  const auto value = [&](const AugmentedImage& image, const Rgb& pixel, int c, int32_t y, int32_t x) {
    return image.plan->erased.contains(y, x) ? call.normalization.erased[c] : values[c][pixel.channel[c]];
  };

  const int32_t pixels = call.height * call.width;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads * kWidth;
  for (int64_t i = blockIdx.y; i < call.images.count; i += gridDim.y) {
    const AugmentedImage base = call.image(i);
    const bool mixes = base.plan->mixes();
    const AugmentedImage partner = mixes ? call.image(base.plan->partner) : base;
    for (int64_t p = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kWidth; p < pixels; p += step) {
      const int32_t y = static_cast<int32_t>(p) / call.width, first = static_cast<int32_t>(p) % call.width;
      Vector<float, kWidth> results[3];
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const int32_t x = first + k;
        const Rgb pixel = base.colored(y, x, kColorSteps);
        for (int c = 0; c < 3; ++c) results[c].v[k] = value(base, pixel, c, y, x);
        if (!mixes) continue;
        const bool pasted = base.plan->pasted.contains(y, x);
        const Rgb other = partner.colored(y, x, kColorSteps);
        for (int c = 0; c < 3; ++c) {
          const float b = value(partner, other, c, y, x), a = pasted ? b : results[c].v[k];
          results[c].v[k] = fmaf(a, base.plan->weight, b * (1 - base.plan->weight));
        }
      }
      for (int c = 0; c < 3; ++c) {
        Out* const to = out + (i * 3 + c) * pixels + p;
        if constexpr (kWidth > 1)
          store_vector(to, from_compute<Out>(results[c]));
        else
          *to = convert<float, Out>(results[c].v[0]);
      }
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    resize_kernel(Images images, ResizeAxis rows, ResizeAxis columns, int32_t height, int32_t width, uint8_t* out) {
  const int64_t pixels = int64_t{height} * width, step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = blockIdx.y; i < images.count; i += gridDim.y) {
    const uint8_t* in = images.pixels + i * images.height * images.width * 3;
    for (int64_t p = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; p < pixels; p += step) {
      const int32_t y = static_cast<int32_t>(p) / width, x = static_cast<int32_t>(p) % width;
      const int32_t* row_weights = rows.weights + y * rows.taps;
      const int32_t* column_weights = columns.weights + x * columns.taps;
      const uint8_t* corner = in + (rows.first[y] * images.width + columns.first[x]) * 3;
      int32_t sums[3] = {};
      for (int32_t r = 0; r < rows.taps; ++r) {
        int32_t across[3] = {};
        for (int32_t k = 0; k < columns.taps; ++k) {
          for (int c = 0; c < 3; ++c) across[c] += column_weights[k] * corner[(r * images.width + k) * 3 + c];
        }
        for (int c = 0; c < 3; ++c) sums[c] += row_weights[r] * resized_byte(across[c]);
      }
      for (int c = 0; c < 3; ++c) out[(i * pixels + p) * 3 + c] = resized_byte(sums[c]);
    }
  }
}

/// A grid over the pixels of an image (x) and over the images (y).
dim3 grid_of(int64_t images, int64_t items) {
  const int64_t blocks = std::max<int64_t>((items + kThreads * kItems - 1) / (kThreads * kItems), 1);
  return dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(std::min(images, kMaxImages)));
}

}  // namespace

void image_contrast(Stream stream, ConstView images, const ImageAugment* plans, const ImageNormalization& normalization,
                    int64_t height, int64_t width, int32_t* offsets) {
  if (images.shape[0] == 0) return;
  const AugmentCall call{images_of(images),          plans, normalization, nullptr, static_cast<int32_t>(height),
                         static_cast<int32_t>(width)};
  launch(contrast_kernel, dim3(static_cast<unsigned>(std::min(images.shape[0], kMaxImages))), dim3(kThreads), 0, stream,
         call, offsets);
}

void augment_images(Stream stream, ConstView images, const ImageAugment* plans, const ImageNormalization& normalization,
                    const int32_t* contrast, View result) {
  if (result.numel() == 0) return;
  const int64_t height = result.shape[2], width = result.shape[3];
  const AugmentCall call{images_of(images),          plans, normalization, contrast, static_cast<int32_t>(height),
                         static_cast<int32_t>(width)};
  dispatch_float(result.dtype, [&]<class Out>() {
    const auto run = [&]<int kWidth>() {
      launch(augment_kernel<Out, kWidth>, grid_of(images.shape[0], height * width / kWidth), dim3(kThreads), 0, stream,
             call, result.as<Out>());
    };
    constexpr int kWide = 4;
    if constexpr (std::is_same_v<ComputeType<Out>, float>) {
      if (width % kWide == 0 && aligned16(result.data)) return run.template operator()<kWide>();
    }
    run.template operator()<1>();
  });
}

int64_t resize_images_workspace(Stream, ConstView, int64_t) { return 0; }

void resize_images(Stream stream, ConstView images, ResizeAxis rows, ResizeAxis columns, void*, View result) {
  if (result.numel() == 0) return;
  const int64_t height = result.shape[1], width = result.shape[2];
  launch(resize_kernel, grid_of(images.shape[0], height * width), dim3(kThreads), 0, stream, images_of(images), rows,
         columns, static_cast<int32_t>(height), static_cast<int32_t>(width), result.as<uint8_t>());
}

}  // namespace tern::kernels::cuda

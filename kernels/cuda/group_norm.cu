// Group norm in three launches: the moments of each channel of each image, those of the groups, and the elements.

#include "tern/kernels/group_norm.h"

#include <algorithm>
#include <cmath>

#include "tern/kernels/cuda/support/affine.h"
#include "tern/kernels/cuda/values.h"

namespace tern::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kColumnThreads = 16;  // threads that share the pixels of a channel, if channels are last

/// What is summed over the pixels of a channel in the forward pass: its mean, and the squared distances from it.
template <class Element>
struct ForwardMoments {
  using T = Element;
  using F = ComputeType<T>;
  const T* x;
  F* sums;  // [batch, 2, channels]

  __device__ F first(int64_t, int64_t, int64_t place) const { return to_compute(load_one(x + place)); }
  __device__ F between(F sum, int64_t pixels) const { return sum / static_cast<F>(pixels); }
  __device__ F second(int64_t n, int64_t channel, int64_t place, F mean) const {
    const F distance = first(n, channel, place) - mean;
    return distance * distance;
  }
};

/// In the backward pass: dy, and dy times the normalised x.
template <class Element>
struct BackwardMoments {
  using T = Element;
  using F = ComputeType<T>;
  const T *dy, *x;
  const F *mean, *rstd;
  int64_t groups, members;
  F* sums;

  __device__ F first(int64_t, int64_t, int64_t place) const { return to_compute(load_one(dy + place)); }
  __device__ F between(F sum, int64_t) const { return sum; }
  __device__ F second(int64_t n, int64_t channel, int64_t place, F) const {
    const int64_t group = n * groups + channel / members;
    const F normed = (to_compute(load_one(x + place)) - load_one(mean + group)) * load_one(rstd + group);
    return first(n, channel, place) * normed;
  }
};

/// Channels first: a warp for each channel of each image.
template <class Moments>
__global__ void __launch_bounds__(RowGroup<kWarpSize>::kThreads)
    row_moments_kernel(TERN_GRID_CONSTANT(GroupNormShape) s, Moments m) {
  using F = typename Moments::F;
  using Group = RowGroup<kWarpSize>;
  for (int64_t row = Group::first_row(); row < s.batch * s.channels; row += Group::row_step()) {
    const int64_t n = row / s.channels, channel = row % s.channels;
    F total = 0, product = 0;
    for (int64_t p = Group::lane(); p < s.pixels; p += kWarpSize) total += m.first(n, channel, row * s.pixels + p);
    total = m.between(Group::sum(total), s.pixels);
    for (int64_t p = Group::lane(); p < s.pixels; p += kWarpSize)
      product += m.second(n, channel, row * s.pixels + p, total);
    product = Group::sum(product);
    if (Group::lane() != 0) continue;
    store_one(m.sums + n * 2 * s.channels + channel, total);
    store_one(m.sums + (n * 2 + 1) * s.channels + channel, product);
  }
}

/// The sum of the values of the block's threads for one channel, which is that of threadIdx.x.
template <class F>
__device__ F column_total(F value, F (&parts)[kColumnThreads][kWarpSize]) {
  parts[threadIdx.y][threadIdx.x] = value;
  block_barrier();
  F total = 0;
  for (int y = 0; y < kColumnThreads; ++y) total += parts[y][threadIdx.x];
  block_barrier();
  return total;
}

/// Channels last: a block for 32 neighbouring channels of an image.
template <class Moments>
__global__ void __launch_bounds__(kWarpSize* kColumnThreads)
    column_moments_kernel(TERN_GRID_CONSTANT(GroupNormShape) s, Moments m, unsigned blocks_of_image) {
  using F = typename Moments::F;
  TERN_SHARED(F, parts, [kColumnThreads][kWarpSize]);
  const int64_t n = blockIdx.x / blocks_of_image;
  const int64_t channel = static_cast<int64_t>(blockIdx.x % blocks_of_image) * kWarpSize + threadIdx.x;
  const int64_t pixels = channel < s.channels ? s.pixels : 0, first = n * s.pixels * s.channels + channel;
  F total = 0, product = 0;
  for (int64_t p = threadIdx.y; p < pixels; p += kColumnThreads) total += m.first(n, channel, first + p * s.channels);
  total = m.between(column_total(total, parts), s.pixels);
  for (int64_t p = threadIdx.y; p < pixels; p += kColumnThreads)
    product += m.second(n, channel, first + p * s.channels, total);
  product = column_total(product, parts);
  if (threadIdx.y != 0 || channel >= s.channels) return;
  store_one(m.sums + n * 2 * s.channels + channel, total);
  store_one(m.sums + (n * 2 + 1) * s.channels + channel, product);
}

/// mean and rstd of each group from the moments of its channels; a warp for each.
template <class F>
__global__ void __launch_bounds__(RowGroup<kWarpSize>::kThreads)
    group_statistics_kernel(TERN_GRID_CONSTANT(GroupNormShape) s, const F* sums, F eps, F* mean, F* rstd) {
  using Group = RowGroup<kWarpSize>;
  for (int64_t group = Group::first_row(); group < s.batch * s.groups; group += Group::row_step()) {
    const F* means = sums + group / s.groups * 2 * s.channels + group % s.groups * s.members();
    const F* squares = means + s.channels;
    F total = 0, distances = 0;
    for (int64_t c = Group::lane(); c < s.members(); c += kWarpSize) total += load_one(means + c);
    const F center = Group::sum(total) / static_cast<F>(s.members());
    for (int64_t c = Group::lane(); c < s.members(); c += kWarpSize) {
      const F distance = load_one(means + c) - center;
      distances += load_one(squares + c) + static_cast<F>(s.pixels) * distance * distance;
    }
    const F variance = Group::sum(distances) / static_cast<F>(s.group_size());
    if (Group::lane() != 0) continue;
    store_one(mean + group, center);
    store_one(rstd + group, F(1) / sqrt(variance + eps));
  }
}

/// The means over each group of dy * gamma and of dy * gamma times the normalised x, [batch, groups, 2]; a warp for
/// each.
template <class T, class F>
__global__ void __launch_bounds__(RowGroup<kWarpSize>::kThreads)
    group_means_kernel(TERN_GRID_CONSTANT(GroupNormShape) s, const F* sums, Affine<T> gamma, F* means) {
  using Group = RowGroup<kWarpSize>;
  for (int64_t group = Group::first_row(); group < s.batch * s.groups; group += Group::row_step()) {
    const int64_t first = group % s.groups * s.members();
    const F* direct = sums + group / s.groups * 2 * s.channels + first;
    F total = 0, product = 0;
    for (int64_t c = Group::lane(); c < s.members(); c += kWarpSize) {
      const F weight = gamma.at(first + c, F(1));
      total += load_one(direct + c) * weight;
      product += load_one(direct + s.channels + c) * weight;
    }
    total = Group::sum(total);
    product = Group::sum(product);
    if (Group::lane() != 0) continue;
    store_one(means + group * 2, total / static_cast<F>(s.group_size()));
    store_one(means + group * 2 + 1, product / static_cast<F>(s.group_size()));
  }
}

/// result[c] = the sum of the images' sums.
template <class B, class F>
__global__ void __launch_bounds__(kThreads)
    add_images_kernel(TERN_GRID_CONSTANT(GroupNormShape) s, const F* sums, B* result) {
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (channel >= s.channels) return;
  F total = 0;
  for (int64_t n = 0; n < s.batch; ++n) total += load_one(sums + n * 2 * s.channels + channel);
  store_one(result + channel, from_compute<B>(static_cast<ComputeType<B>>(total)));
}

/// y = (x - center) * scale + shift, whose numbers belong to a channel of an image.
template <class Element>
struct ForwardPass {
  using T = Element;
  using F = ComputeType<T>;
  static constexpr int kInputs = 1;
  const T* inputs[kInputs];  // x
  T* result;
  Affine<T> gamma, beta;
  const F *mean, *rstd;

  struct Numbers {
    F center, scale, shift;
    __device__ F operator()(const F (&in)[kInputs]) const { return (in[0] - center) * scale + shift; }
  };
  __device__ Numbers numbers(const GroupNormShape& s, int64_t n, int64_t channel) const {
    const int64_t group = n * s.groups + channel / s.members();
    return {load_one(mean + group), load_one(rstd + group) * gamma.at(channel, F(1)), beta.at(channel, F(0))};
  }
};

/// dx = dy * weight - direct - (x - center) * slope.
template <class Element>
struct BackwardPass {
  using T = Element;
  using F = ComputeType<T>;
  static constexpr int kInputs = 2;
  const T* inputs[kInputs];  // dy and x
  T* result;
  Affine<T> gamma;
  const F *mean, *rstd, *means;

  struct Numbers {
    F center, weight, direct, slope;
    __device__ F operator()(const F (&in)[kInputs]) const { return in[0] * weight - direct - (in[1] - center) * slope; }
  };
  __device__ Numbers numbers(const GroupNormShape& s, int64_t n, int64_t channel) const {
    const int64_t group = n * s.groups + channel / s.members();
    const F factor = load_one(rstd + group);
    return {load_one(mean + group), factor * gamma.at(channel, F(1)), factor * load_one(means + group * 2),
            factor * factor * load_one(means + group * 2 + 1)};
  }
};

/// The pass of kWidth neighbouring elements; numbers(k) are those of element k.
template <int kWidth, class Pass, class Numbers>
__device__ void apply_pass(const Pass& pass, int64_t place, const Numbers& numbers) {
  using F = typename Pass::F;
  Vector<F, kWidth> values[Pass::kInputs], result;
#pragma unroll
  for (int i = 0; i < Pass::kInputs; ++i) values[i] = to_compute(load_vector<kWidth>(pass.inputs[i] + place));
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    F in[Pass::kInputs];
#pragma unroll
    for (int i = 0; i < Pass::kInputs; ++i) in[i] = values[i].v[k];
    result.v[k] = numbers(k)(in);
  }
  store_vector(pass.result + place, from_compute<typename Pass::T>(result));
}

/// Channels first: a warp or a block for each channel of each image, in gridDim.y parts.
template <class Group, int kWidth, class Pass>
__global__ void __launch_bounds__(Group::kThreads)
    row_pass_kernel(TERN_GRID_CONSTANT(GroupNormShape) s, TERN_GRID_CONSTANT(Pass) pass) {
  const int64_t step = static_cast<int64_t>(gridDim.y) * Group::kSize * kWidth;
  const int64_t first = (static_cast<int64_t>(blockIdx.y) * Group::kSize + Group::lane()) * kWidth;
  for (int64_t row = Group::first_row(); row < s.batch * s.channels; row += Group::row_step()) {
    const auto numbers = pass.numbers(s, row / s.channels, row % s.channels);
    for (int64_t p = first; p < s.pixels; p += step)
      apply_pass<kWidth>(pass, row * s.pixels + p, [&](int) { return numbers; });
  }
}

/// Channels last: a thread has kWidth neighbouring channels of an image, of every pixel of its part.
template <int kWidth, class Pass>
__global__ void __launch_bounds__(kThreads)
    column_pass_kernel(TERN_GRID_CONSTANT(GroupNormShape) s, TERN_GRID_CONSTANT(Pass) pass, unsigned blocks_of_image) {
  const int64_t n = blockIdx.x / blocks_of_image;
  const int64_t channel = (static_cast<int64_t>(blockIdx.x % blocks_of_image) * kWarpSize + threadIdx.x) * kWidth;
  if (channel >= s.channels) return;
  typename Pass::Numbers numbers[kWidth];
#pragma unroll
  for (int k = 0; k < kWidth; ++k) numbers[k] = pass.numbers(s, n, channel + k);
  const int64_t step = static_cast<int64_t>(gridDim.y) * blockDim.y;
  for (int64_t p = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y; p < s.pixels; p += step)
    apply_pass<kWidth>(pass, (n * s.pixels + p) * s.channels + channel, [&](int k) { return numbers[k]; });
}

template <class Moments>
void add_moments(Stream stream, const GroupNormShape& s, const Moments& moments) {
  using Rows = RowGroup<kWarpSize>;
  if (!s.channels_last)
    return launch(row_moments_kernel<Moments>, Rows::grid(s.batch * s.channels), dim3(Rows::kThreads), 0, stream, s,
                  moments);
  const unsigned blocks = grid_blocks(ceil_div(s.channels, kWarpSize));
  launch(column_moments_kernel<Moments>, dim3(grid_blocks(s.batch * blocks)), dim3(kWarpSize, kColumnThreads), 0,
         stream, s, moments, blocks);
}

/// Blocks along y, for `count` items of which one block takes `together` at a time.
unsigned parts_of(int64_t count, int64_t together) {
  constexpr int64_t kItems = 4;  // of a thread, at least
  return static_cast<unsigned>(std::clamp<int64_t>(count / (together * kItems), 1, 1024));
}

template <int kWidth, class Pass>
void launch_pass(Stream stream, const GroupNormShape& s, const Pass& pass) {
  using Warp = RowGroup<kWarpSize>;
  using Block = RowGroup<kRowThreads>;
  if (s.channels_last) {
    constexpr unsigned kRows = kThreads / kWarpSize;
    const unsigned blocks = grid_blocks(ceil_div(s.channels, kWarpSize * kWidth));
    const dim3 grid(grid_blocks(s.batch * blocks), parts_of(s.pixels, kRows));
    return launch(column_pass_kernel<kWidth, Pass>, grid, dim3(kWarpSize, kRows), 0, stream, s, pass, blocks);
  }
  const int64_t rows = s.batch * s.channels;
  if (s.pixels <= kRowThreads * kWidth)
    return launch(row_pass_kernel<Warp, kWidth, Pass>, Warp::grid(rows), dim3(Warp::kThreads), 0, stream, s, pass);
  const dim3 grid(Block::grid(rows).x, parts_of(s.pixels, kRowThreads * kWidth));
  launch(row_pass_kernel<Block, kWidth, Pass>, grid, dim3(Block::kThreads), 0, stream, s, pass);
}

/// With the widest accesses that sizes and addresses allow.
template <class Pass>
void run_pass(Stream stream, const GroupNormShape& s, const Pass& pass) {
  constexpr int kWide = vector_width<typename Pass::T>;
  bool wide = (s.channels_last ? s.channels : s.pixels) % kWide == 0 && aligned16(pass.result);
  for (const auto* input : pass.inputs) wide = wide && aligned16(input);
  if (wide) return launch_pass<kWide>(stream, s, pass);
  launch_pass<1>(stream, s, pass);
}

template <class F>
void add_images(Stream stream, const GroupNormShape& s, const F* sums, const View& result) {
  if (!result) return;
  dispatch_float(result.dtype, [&]<class B>() {
    launch(add_images_kernel<B, F>, dim3(grid_blocks(ceil_div(s.channels, kThreads))), dim3(kThreads), 0, stream, s,
           sums, result.as<B>());
  });
}

}  // namespace

int64_t group_norm_workspace(Stream, const GroupNormShape& s, DType) {
  return 64 + s.batch * 2 * (s.channels + s.groups) * 8;
}

void group_norm_forward(Stream stream, const GroupNormShape& s, ConstView x, ConstView gamma, ConstView beta,
                        double eps, void* workspace, View y, View mean, View rstd) {
  if (x.numel() == 0) return;
  dispatch_float(x.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    using Rows = RowGroup<kWarpSize>;
    F* const sums = static_cast<F*>(workspace);
    add_moments(stream, s, ForwardMoments<T>{x.as<T>(), sums});
    launch(group_statistics_kernel<F>, Rows::grid(s.batch * s.groups), dim3(Rows::kThreads), 0, stream, s, sums,
           static_cast<F>(eps), mean.as<F>(), rstd.as<F>());
    run_pass(stream, s,
             ForwardPass<T>{{x.as<T>()}, y.as<T>(), Affine<T>(gamma), Affine<T>(beta), mean.as<F>(), rstd.as<F>()});
  });
}

void group_norm_backward(Stream stream, const GroupNormShape& s, ConstView dy, ConstView x, ConstView gamma,
                         ConstView mean, ConstView rstd, void* workspace, View dx, View dgamma, View dbeta) {
  if (s.channels == 0) return;
  dispatch_float(x.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    using Rows = RowGroup<kWarpSize>;
    F *const sums = static_cast<F*>(workspace), *const means = sums + s.batch * 2 * s.channels;
    if (s.batch > 0)
      add_moments(stream, s,
                  BackwardMoments<T>{dy.as<T>(), x.as<T>(), mean.as<F>(), rstd.as<F>(), s.groups, s.members(), sums});
    add_images(stream, s, sums, dbeta);
    add_images(stream, s, sums + s.channels, dgamma);
    if (!dx || x.numel() == 0) return;
    launch(group_means_kernel<T, F>, Rows::grid(s.batch * s.groups), dim3(Rows::kThreads), 0, stream, s, sums,
           Affine<T>(gamma), means);
    run_pass(stream, s,
             BackwardPass<T>{{dy.as<T>(), x.as<T>()}, dx.as<T>(), Affine<T>(gamma), mean.as<F>(), rstd.as<F>(), means});
  });
}

}  // namespace tern::kernels::cuda

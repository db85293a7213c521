#pragma once
// Windows and rearranged pixels as modules, with PyTorch's names. core/ops/image/patches.h defines the functions.

#include "tern/core/ops/image/patches.h"
#include "tern/nn/module.h"

namespace tern::nn {

/// torch.nn.Unfold: nn::Unfold(scope, 3, {.padding = 1}).
class Unfold final : public Module {
 public:
  Unfold(const Scope& s, const SpatialSizes& kernel, const UnfoldOptions& options = {})
      : Module(s), kernel_(kernel), options_(options) {}
  Tensor forward(const Tensor& x) const {
    return hooked(x, [&](const Tensor& input) { return unfold(input, kernel_, options_); });
  }

 private:
  SpatialSizes kernel_;
  UnfoldOptions options_;
};

/// torch.nn.Fold: nn::Fold(scope, {height, width}, 3, {.padding = 1}).
class Fold final : public Module {
 public:
  Fold(const Scope& s, const SpatialSizes& size, const SpatialSizes& kernel, const UnfoldOptions& options = {})
      : Module(s), size_(size), kernel_(kernel), options_(options) {}
  Tensor forward(const Tensor& columns) const {
    return hooked(columns, [&](const Tensor& input) { return fold(input, size_, kernel_, options_); });
  }

 private:
  SpatialSizes size_, kernel_;
  UnfoldOptions options_;
};

/// The module whose forward is kFunction(x, number).
template <Tensor (*kFunction)(const Tensor&, int64_t)>
class PixelModule : public Module {
 public:
  PixelModule(const Scope& s, int64_t number) : Module(s), number_(number) {}
  Tensor forward(const Tensor& x) const {
    return hooked(x, [&](const Tensor& input) { return kFunction(input, number_); });
  }

 private:
  int64_t number_;
};
struct PixelShuffle final : PixelModule<tern::pixel_shuffle> {
  using PixelModule::PixelModule;
};
struct PixelUnshuffle final : PixelModule<tern::pixel_unshuffle> {
  using PixelModule::PixelModule;
};
struct ChannelShuffle final : PixelModule<tern::channel_shuffle> {
  using PixelModule::PixelModule;
};

}  // namespace tern::nn

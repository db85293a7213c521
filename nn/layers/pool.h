#pragma once
// Pooling as modules, with PyTorch's names: nn::MaxPool2d(scope, 2), nn::AvgPool2d(scope, 3, {.stride = 2}),
// nn::AdaptiveAvgPool2d(scope, 1). core/ops/image/pool.h defines the functions.

#include <vector>

#include "tern/core/ops/image/pool.h"
#include "tern/core/ops/image/unpool.h"
#include "tern/nn/module.h"

namespace tern::nn {

/// The module whose forward is kFunction(x, sizes, options).
template <class Options, Tensor (*kFunction)(const Tensor&, const SpatialSizes&, const Options&)>
class PoolModule : public Module {
 public:
  explicit PoolModule(const Scope& s, const SpatialSizes& kernel, const Options& options = {})
      : Module(s), kernel_(kernel), options_(options) {}
  Tensor forward(const Tensor& x) const {
    return hooked(x, [&](const Tensor& input) { return kFunction(input, kernel_, options_); });
  }

 private:
  SpatialSizes kernel_;
  Options options_;
};

struct MaxPool1d final : PoolModule<MaxPoolOptions, tern::max_pool1d> {
  using PoolModule::PoolModule;
};
struct MaxPool2d final : PoolModule<MaxPoolOptions, tern::max_pool2d> {
  using PoolModule::PoolModule;
};
struct MaxPool3d final : PoolModule<MaxPoolOptions, tern::max_pool3d> {
  using PoolModule::PoolModule;
};
struct AvgPool1d final : PoolModule<AvgPoolOptions, tern::avg_pool1d> {
  using PoolModule::PoolModule;
};
struct AvgPool2d final : PoolModule<AvgPoolOptions, tern::avg_pool2d> {
  using PoolModule::PoolModule;
};
struct AvgPool3d final : PoolModule<AvgPoolOptions, tern::avg_pool3d> {
  using PoolModule::PoolModule;
};

/// The module whose forward is kFunction(x, size).
template <Tensor (*kFunction)(const Tensor&, const SpatialSizes&)>
class AdaptivePoolModule : public Module {
 public:
  explicit AdaptivePoolModule(const Scope& s, const SpatialSizes& size) : Module(s), size_(size) {}
  Tensor forward(const Tensor& x) const {
    return hooked(x, [&](const Tensor& input) { return kFunction(input, size_); });
  }

 private:
  SpatialSizes size_;
};

struct AdaptiveAvgPool1d final : AdaptivePoolModule<tern::adaptive_avg_pool1d> {
  using AdaptivePoolModule::AdaptivePoolModule;
};
struct AdaptiveAvgPool2d final : AdaptivePoolModule<tern::adaptive_avg_pool2d> {
  using AdaptivePoolModule::AdaptivePoolModule;
};
struct AdaptiveAvgPool3d final : AdaptivePoolModule<tern::adaptive_avg_pool3d> {
  using AdaptivePoolModule::AdaptivePoolModule;
};
struct AdaptiveMaxPool1d final : AdaptivePoolModule<tern::adaptive_max_pool1d> {
  using AdaptivePoolModule::AdaptivePoolModule;
};
struct AdaptiveMaxPool2d final : AdaptivePoolModule<tern::adaptive_max_pool2d> {
  using AdaptivePoolModule::AdaptivePoolModule;
};
struct AdaptiveMaxPool3d final : AdaptivePoolModule<tern::adaptive_max_pool3d> {
  using AdaptivePoolModule::AdaptivePoolModule;
};

/// The module whose forward is kFunction(x, indices, kernel, options).
template <Tensor (*kFunction)(const Tensor&, const Tensor&, const SpatialSizes&, const MaxUnpoolOptions&)>
class MaxUnpoolModule : public Module {
 public:
  explicit MaxUnpoolModule(const Scope& s, const SpatialSizes& kernel, const MaxUnpoolOptions& options = {})
      : Module(s), kernel_(kernel), options_(options) {}
  /// size: of the result, one number for each spatial dimension; unless given that of the options.
  Tensor forward(const Tensor& x, const Tensor& indices, const std::vector<int64_t>& size = {}) const {
    return hooked(x, [&](const Tensor& input) {
      MaxUnpoolOptions options = options_;
      if (!size.empty()) options.size = size;
      return kFunction(input, indices, kernel_, options);
    });
  }

 private:
  SpatialSizes kernel_;
  MaxUnpoolOptions options_;
};

struct MaxUnpool1d final : MaxUnpoolModule<tern::max_unpool1d> {
  using MaxUnpoolModule::MaxUnpoolModule;
};
struct MaxUnpool2d final : MaxUnpoolModule<tern::max_unpool2d> {
  using MaxUnpoolModule::MaxUnpoolModule;
};
struct MaxUnpool3d final : MaxUnpoolModule<tern::max_unpool3d> {
  using MaxUnpoolModule::MaxUnpoolModule;
};

/// The module whose forward is kFunction(x, power, kernel, options).
template <Tensor (*kFunction)(const Tensor&, double, const SpatialSizes&, const LpPoolOptions&)>
class LpPoolModule : public Module {
 public:
  LpPoolModule(const Scope& s, double power, const SpatialSizes& kernel, const LpPoolOptions& options = {})
      : Module(s), power_(power), kernel_(kernel), options_(options) {}
  Tensor forward(const Tensor& x) const {
    return hooked(x, [&](const Tensor& input) { return kFunction(input, power_, kernel_, options_); });
  }

 private:
  double power_;
  SpatialSizes kernel_;
  LpPoolOptions options_;
};

struct LPPool1d final : LpPoolModule<tern::lp_pool1d> {
  using LpPoolModule::LpPoolModule;
};
struct LPPool2d final : LpPoolModule<tern::lp_pool2d> {
  using LpPoolModule::LpPoolModule;
};
struct LPPool3d final : LpPoolModule<tern::lp_pool3d> {
  using LpPoolModule::LpPoolModule;
};

}  // namespace tern::nn

#pragma once
// Padding as modules, with PyTorch's names: nn::ZeroPad2d(scope, 1), nn::ReflectionPad2d(scope, {left, right, top,
// bottom}), nn::ConstantPad1d(scope, 2, 0.5). core/ops/indexing/rearrange.h defines the function, pad.

#include <initializer_list>
#include <vector>

#include "tern/core/ops/indexing/rearrange.h"
#include "tern/nn/module.h"

namespace tern::nn {

/// Elements to add before and after each dimension, from the last one on; or one number for all ends.
class PaddingSizes {
 public:
  PaddingSizes(int64_t all) : values_{all} {}                               // NOLINT(google-explicit-constructor)
  PaddingSizes(std::initializer_list<int64_t> values) : values_(values) {}  // NOLINT
  /// The numbers of `dims` dimensions. Throws Error when there are neither one nor twice `dims`.
  std::vector<int64_t> of(int dims) const;

 private:
  std::vector<int64_t> values_;
};

/// The module whose forward pads the last kDims dimensions of [batch, channels, spatial...] or [channels, spatial...].
class PaddingLayer : public Module {
 public:
  Tensor forward(const Tensor& x) const;

 protected:
  PaddingLayer(const Scope& s, int dims, const PaddingSizes& padding, PadMode mode, double value = 0)
      : Module(s), dims_(dims), padding_(padding.of(dims)), mode_(mode), value_(value) {}

 private:
  int dims_;
  std::vector<int64_t> padding_;
  PadMode mode_;
  double value_;
};

template <int kDims, PadMode kMode>
class PaddingModule : public PaddingLayer {
 public:
  PaddingModule(const Scope& s, const PaddingSizes& padding) : PaddingLayer(s, kDims, padding, kMode) {}
};
template <int kDims>
class ConstantPaddingModule : public PaddingLayer {
 public:
  ConstantPaddingModule(const Scope& s, const PaddingSizes& padding, double value)
      : PaddingLayer(s, kDims, padding, PadMode::kConstant, value) {}
};

struct ZeroPad1d final : PaddingModule<1, PadMode::kConstant> {
  using PaddingModule::PaddingModule;
};
struct ZeroPad2d final : PaddingModule<2, PadMode::kConstant> {
  using PaddingModule::PaddingModule;
};
struct ZeroPad3d final : PaddingModule<3, PadMode::kConstant> {
  using PaddingModule::PaddingModule;
};
struct ConstantPad1d final : ConstantPaddingModule<1> {
  using ConstantPaddingModule::ConstantPaddingModule;
};
struct ConstantPad2d final : ConstantPaddingModule<2> {
  using ConstantPaddingModule::ConstantPaddingModule;
};
struct ConstantPad3d final : ConstantPaddingModule<3> {
  using ConstantPaddingModule::ConstantPaddingModule;
};
struct ReflectionPad1d final : PaddingModule<1, PadMode::kReflect> {
  using PaddingModule::PaddingModule;
};
struct ReflectionPad2d final : PaddingModule<2, PadMode::kReflect> {
  using PaddingModule::PaddingModule;
};
struct ReflectionPad3d final : PaddingModule<3, PadMode::kReflect> {
  using PaddingModule::PaddingModule;
};
struct ReplicationPad1d final : PaddingModule<1, PadMode::kReplicate> {
  using PaddingModule::PaddingModule;
};
struct ReplicationPad2d final : PaddingModule<2, PadMode::kReplicate> {
  using PaddingModule::PaddingModule;
};
struct ReplicationPad3d final : PaddingModule<3, PadMode::kReplicate> {
  using PaddingModule::PaddingModule;
};
struct CircularPad1d final : PaddingModule<1, PadMode::kCircular> {
  using PaddingModule::PaddingModule;
};
struct CircularPad2d final : PaddingModule<2, PadMode::kCircular> {
  using PaddingModule::PaddingModule;
};
struct CircularPad3d final : PaddingModule<3, PadMode::kCircular> {
  using PaddingModule::PaddingModule;
};

}  // namespace tern::nn

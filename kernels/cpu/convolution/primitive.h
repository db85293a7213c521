#pragma once
// One pass of a convolution of a fixed shape by oneDNN.

#include <cstdint>
#include <unordered_map>

#include "tern/kernels/cpu/convolution/methods.h"
#include "tern/kernels/cpu/gemm/blocks.h"
#include "tern/kernels/cpu/onednn.h"

namespace tern::kernels::TERN_CPU {

/// fixed_weight: by Winograd's algorithm alone, for which the weight is then packed transformed.
struct ConvolutionKey : ConvolutionCase {
  /// By Winograd's algorithm F(4 x 4, 3 x 3) (Lavin & Gray, arXiv:1509.09308), which multiplies a quarter as often;
  /// fp32.
  bool winograd = false;
  auto operator<=>(const ConvolutionKey&) const = default;
};

/// Immutable; several threads may use it at a time.
class ConvolutionPrimitive {
 public:
  explicit ConvolutionPrimitive(const ConvolutionKey& key);

  /// False where oneDNN or this CPU has no Winograd's algorithm for it. Nothing else may be called then.
  bool usable() const { return static_cast<bool>(primitive_); }
  int64_t weight_bytes() const { return align_up(static_cast<int64_t>(weight_.get_size())); }
  int64_t scratch_bytes() const { return own_scratch_bytes() + x_bytes() + y_bytes(); }
  const ConvolutionKey& key() const { return key_; }
  bool same_weight(const ConvolutionPrimitive& other) const { return weight_ == other.weight_; }

  /// From the weight as it is given to oneDNN's layout; for the gradient of the weight, which is fp32, back.
  void reorder_weight(const void* from, void* to) const;

 private:
  friend class ConvolutionCall;
  using Desc = dnnl::memory::desc;
  dnnl::memory memory(const Desc& desc, const void* data = nullptr) const {
    return dnnl::memory(desc, onednn_engine(), const_cast<void*>(data));
  }
  template <class Primitive>
  void choose(const typename Primitive::primitive_desc& chosen);
  void create();
  int64_t own_scratch_bytes() const { return align_up(static_cast<int64_t>(scratch_.get_size())); }
  int64_t x_bytes() const { return inner_x_ == x_ ? 0 : align_up(static_cast<int64_t>(inner_x_.get_size())); }
  int64_t y_bytes() const { return inner_y_ == y_ ? 0 : align_up(static_cast<int64_t>(inner_y_.get_size())); }

  ConvolutionKey key_;
  Desc x_, y_, bias_, plain_weight_, weight_, scratch_;
  Desc inner_x_, inner_y_;  // the layouts that the primitive takes: others than x_ and y_ for Winograd's algorithm
  dnnl::primitive primitive_;
  dnnl::reorder reorder_weight_, reorder_x_, reorder_y_;
  bool is_product_ = false;  // by another library's code within oneDNN
  bool guarded_ = false;     // runs with a SignalGuard
};

/// One thread's calls of a primitive, which must live as long: oneDNN's objects for its arguments are made once.
class ConvolutionCall {
 public:
  explicit ConvolutionCall(const ConvolutionPrimitive& primitive);
  const ConvolutionPrimitive& primitive() const { return primitive_; }
  /// x and y: the input and the output, or their gradients, with their channels last; weight: in oneDNN's layout. The
  /// pass writes one of them. bias: fp32, read by forward.
  void run(const void* x, const void* weight, const void* bias, const void* y, void* scratch);

 private:
  const ConvolutionPrimitive& primitive_;
  dnnl::stream stream_;
  dnnl::memory x_, y_, inner_x_, inner_y_, weight_, bias_, scratch_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

std::shared_ptr<const ConvolutionPrimitive> find_convolution(const ConvolutionKey& key);

}  // namespace tern::kernels::TERN_CPU

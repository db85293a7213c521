#pragma once
// The arguments of convolutions, checked and cast, and the pass of kernels/convolution.

#include "tern/core/ops/convolution/convolution.h"
#include "tern/core/tensor.h"
#include "tern/kernels/convolution/convolution.h"

namespace tern::detail {

/// What conv2d and conv_transpose2d check and compute alike.
struct ConvolutionCall {
  const char* op;
  int dims;
  Tensor x, weight, bias;
  bool batched = true;

  ConvolutionCall(const char* name, int spatial, const Tensor& input, const Tensor& weight_in, const Tensor& bias_in);
  void check_groups(int64_t groups, int64_t in, int64_t out) const;
  Tensor result(const Tensor& y) const { return batched ? y : y.squeeze(0); }
};

/// Checks the arguments of a convolution.
kernels::ConvolutionShape shape_of(const ConvolutionCall& call, const ConvolutionOptions& options);

/// Counts the operations of a pass.
void count_operations(const kernels::ConvolutionShape& s, DType dtype);
/// x and y with their channels last, the others contiguous.
void run_forward(const kernels::ConvolutionShape& s, const Tensor& x, const Tensor& weight,
                 const kernels::ConvolutionEpilogue& epilogue, const Tensor& y);

}  // namespace tern::detail

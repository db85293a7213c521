#pragma once
// The derivatives of the built-in element-wise ops, made of ops: what a derivative of higher order goes through.

#include <span>

#include "tern/core/tensor.h"

namespace tern::detail {

/// dy times the derivative by input `input` of an op struct, at the tensors that it saves (Saves in
/// kernels/pointwise/pointwise.h; one that the derivative does not read may be undefined).
using DerivativeOfOps = Tensor (*)(const void* op, int input, const Tensor& dy, std::span<const Tensor> saved);

/// By the op's index in BuiltinOps; null for -1, a user's op, and for an op whose derivative does not depend on what it
/// saves.
DerivativeOfOps derivative_of_ops(int builtin);

/// Whether it is as cheap as the kernel, and so is used for a second derivative too.
bool derivative_is_cheap(int builtin);

}  // namespace tern::detail

#pragma once
// Element-wise kernels. An op is one struct that gives every dtype, both devices and its derivatives:
//
//   struct LeakyRelu {
//     static constexpr const char* name = "leaky_relu";
//     static constexpr Saves saves = Saves::kInputs;
//     double slope;                                        // members are the op's parameters
//     template <class F> TERN_HD F forward(F x) const { return math::select(x > F(0), x, F(slope) * x); }
//     template <class F> TERN_HD F derivative(F x) const { return math::select(x > F(0), F(1), F(slope)); }
//   };
//
// F is the compute type (float for 16-bit storage, double, math::Integer for integer dtypes when `integral` is true) or
// a dual number over it: the second derivative is the tangent of derivative(Dual(x, 1)), so no op writes it down. The
// structs are in pointwise_ops.h, the functions they may use (select, exp, tanh, erf...) in math.h; pointwise_tiles.h
// makes a call out of an op. Ops work on tiles of the compute type, loaded and stored with conversion: dtypes and
// strides multiply neither code nor compile time.

#include "tern/kernels/kernel.h"

namespace tern::kernels {

/// What derivative() takes: nothing, the inputs, the output (tanh), or the inputs and then the output.
enum class Saves : uint8_t { kNone, kInputs, kOutput, kBoth };

/// Which function of the op a call evaluates, and its inputs in order. `input` and `saved` count from 0.
///   kForward:  x_0 .. x_n-1                       -> forward(x...)
///   kBackward: dy, saved...                       -> dy * derivative_input(saved...)
///   kSecond:   g, dy, saved...                    -> g * dy * d derivative_input / d saved_saved
struct PointwisePass {
  enum Kind : uint8_t { kForward, kBackward, kSecond } kind = kForward;
  int input = 0;
  int saved = 0;
};

/// Evaluates n elements held in contiguous arrays of the compute type.
template <class F>
using TileFunction = void (*)(const void* op, const F* const* in, F* out, int64_t n);

/// The loops of one op and pass; a member is null when the op does not compute in that type.
struct TileFunctions {
  TileFunction<float> f32 = nullptr;
  TileFunction<double> f64 = nullptr;
  TileFunction<int64_t> i64 = nullptr;
};

struct PointwiseCall;
/// The type of `pointwise` below.
using PointwiseFunction = void(Stream stream, const PointwiseCall& call, const ConstView* inputs, int count, View y);

/// One call. `builtin` is the op's index in BuiltinOps (pointwise_ops.h), or -1 for an op that a user defined: then
/// `custom` holds its loops and `on_cuda` its kernels, if it has any (cuda/pointwise_kernel.h).
struct PointwiseCall {
  int builtin = -1;
  PointwisePass pass;
  const void* op = nullptr;  // the struct, for its parameters
  TileFunctions custom;
  PointwiseFunction* on_cuda = nullptr;
  DType compute = DType::kFloat32;  // float32, float64 or int64: inputs are converted to it, the result from it
};

/// y = op(inputs) over y's shape. The inputs have y's number of dimensions; a broadcast dimension has stride 0. Any
/// dtypes, any strides; y may be identical to an input (same pointer, strides and dtype) but not overlap it otherwise.
/// A saved tensor that the derivative does not read (needed_saves in pointwise_tiles.h) may be absent. Bool results
/// hold 0 or 1. count <= 6.
TERN_KERNEL(void, pointwise, Stream stream, const PointwiseCall& call, const ConstView* inputs, int count, View y);

}  // namespace tern::kernels

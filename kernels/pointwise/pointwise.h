#pragma once
// Element-wise kernels. One struct defines an op for every dtype and device, with its derivatives:
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
// a dual number over it. No op defines its second derivative: it is the tangent of derivative(Dual(x, 1)). The structs
// are in pointwise/ops.h and may use the functions of math.h (select, exp, tanh, erf...); pointwise/tiles.h creates the
// calls. Ops run on tiles of the compute type that are converted when loaded and stored, so neither code size nor
// compile time grows with the number of dtypes and strides.

#include "tern/kernels/kernel.h"

namespace tern::kernels {

/// The arguments of derivative(): none, the inputs, the output (tanh), or the inputs followed by the output.
enum class Saves : uint8_t { kNone, kInputs, kOutput, kBoth };

/// The function of the op that a call evaluates, and its inputs in order. `input` and `saved` are indices from 0.
///   kForward:  x_0 .. x_n-1                       -> forward(x...)
///   kBackward: dy, saved...                       -> dy * derivative_input(saved...)
///   kSecond:   g, dy, saved...                    -> g * dy * d derivative_input / d saved_saved
struct PointwisePass {
  enum Kind : uint8_t { kForward, kBackward, kSecond } kind = kForward;
  int input = 0;
  int saved = 0;
};

/// The bits of infinity in a 16-bit format; those of a NaN without the sign are a larger number.
template <class T>
inline constexpr uint16_t kInfinityBits = std::is_same_v<T, BFloat16> ? 0x7f80 : 0x7c00;

/// Evaluates n elements held in contiguous arrays of the compute type.
template <class F>
using TileFunction = void (*)(const void* op, const F* const* in, F* out, int64_t n);

/// The loops of one op and pass; a member is null when the op does not support that compute type.
struct TileFunctions {
  TileFunction<float> f32 = nullptr;
  TileFunction<double> f64 = nullptr;
  TileFunction<int64_t> i64 = nullptr;
};

struct PointwiseCall;
/// The signature of `pointwise` below.
using PointwiseFunction = void(Stream stream, const PointwiseCall& call, const ConstView* inputs, int count, View y);

/// One call. `builtin`: the op's index in BuiltinOps (pointwise/ops.h), or -1 for a user-defined op, whose loops are in
/// `custom` and whose CUDA kernels, if any, are in `on_cuda` (cuda/pointwise/kernel.h).
struct PointwiseCall {
  int builtin = -1;
  PointwisePass pass;
  const void* op = nullptr;  // the op's struct, which holds its parameters
  TileFunctions custom;
  PointwiseFunction* on_cuda = nullptr;
  DType compute = DType::kFloat32;  // float32, float64 or int64; inputs and result are converted
};

/// y = op(inputs) over y's shape. The inputs have y's number of dimensions; a broadcast dimension has stride 0. Any
/// dtypes and strides; y may be identical to an input (same pointer, strides and dtype) but must not overlap it
/// otherwise. A saved tensor that the derivative does not use (needed_saves in pointwise/tiles.h) may be absent. Bool
/// results are 0 or 1. count <= 6.
TERN_KERNEL(void, pointwise, Stream stream, const PointwiseCall& call, const ConstView* inputs, int count, View y);

}  // namespace tern::kernels

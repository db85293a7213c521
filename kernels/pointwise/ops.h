#pragma once
// The built-in element-wise ops. Each struct gives forward and its derivatives; BuiltinOps lists them all, and the
// kernels of both devices, the tests and autograd are generated from that list. Derivatives at kinks are PyTorch's.
//
// Members of an op:
//   name                        for messages
//   saves                       what derivative takes (Saves)
//   forward(x...)               F, or bool: then the op gives a bool tensor
//   derivative(saved...)        of a unary op; derivative0, derivative1, derivative2 of the others; absent: no gradient
// and where they say more than the default:
//   integral = true             computes in int64 too
//   masks = true                a derivative of 0 means that the output does not depend on the input: the gradient is 0
//                               there even when dy is infinite or NaN (relu, where, clamp)
//   is_near(x...)               of float: the CPU's loops compute elements for which it is true with numbers of type
//                               math::Near (math/near.h); near_derivative = true: the derivative of a unary op too
//   on_bits<T>(bits...)         of an op that only changes signs: forward of elements of T, BFloat16 or Float16, given
//                               as their bits (uint16_t); the CPU computes such elements by it
//   needs[] = {0b10, 0b01}      per derivative, which saved tensors it reads (bit 0 the first); default: all of them

#include "tern/kernels/pointwise/activation.h"
#include "tern/kernels/pointwise/binary.h"
#include "tern/kernels/pointwise/bitwise.h"
#include "tern/kernels/pointwise/gamma.h"
#include "tern/kernels/pointwise/integer.h"
#include "tern/kernels/pointwise/loss.h"
#include "tern/kernels/pointwise/random.h"
#include "tern/kernels/pointwise/special.h"
#include "tern/kernels/pointwise/ternary.h"
#include "tern/kernels/pointwise/trigonometric.h"
#include "tern/kernels/pointwise/unary.h"
#include "tern/kernels/type_list.h"

namespace tern::kernels {

using BuiltinOps =
    TypeList<Neg, Abs, Exp, Expm1, Exp2, Log, Log1p, Log2, Log10, Sqrt, Rsqrt, Square, Cube, Reciprocal, Erf, Erfinv,
             Erfc, Lgamma, Polygamma, I0, I0e, I1, I1e, Erfcx, LogNdtr, Sign, Floor, Ceil, Trunc, Round, Sin, Cos, Tan,
             Asin, Acos, Atan, Sinh, Cosh, Tanh, Asinh, Acosh, Atanh, Sigmoid, Relu, LeakyRelu, Gelu, GeluTanh, Silu,
             Softplus, LogSigmoid, Elu, Selu, Mish, HardSigmoid, HardSwish, Softsign, Softshrink, Hardshrink, NanToNum,
             PowScalar, AddScalar, MulScalar, Clamp, Hardtanh, LogicalNot, IsNan, IsFinite, Add, Sub, Mul, Div, Maximum,
             Minimum, Pow, Remainder, Fmod, FloorDivide, Atan2, LogAddExp, Swiglu, Hypot, Copysign, PRelu, Equal,
             NotEqual, Less, LessEqual, Greater, GreaterEqual, LogicalAnd, LogicalOr, LogicalXor, BitwiseAnd, BitwiseOr,
             BitwiseXor, ShiftLeft, ShiftRight, Gcd, Lcm, NextAfter, Igamma, Igammac, Poisson, Binomial, Where, Lerp,
             Addcmul, Addcdiv, SquaredDifference, Huber, BceWithLogits>;

}  // namespace tern::kernels

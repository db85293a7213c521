#pragma once
// CUDA kernels from an op struct, for the built-in ops and for those of other projects. An op of another project
// declares one more member and defines it in a file that nvcc compiles:
//
//   struct Bump {                                                     // bump.h
//     ...                                                             // as kernels/pointwise/pointwise.h says
//     static tern::kernels::PointwiseFunction on_cuda;
//   };
//
//   #include "tern/kernels/cuda/pointwise/kernel.h"                   // bump.cu
//   void Bump::on_cuda(tern::kernels::Stream stream, const tern::kernels::PointwiseCall& call,
//                      const tern::kernels::ConstView* inputs, int count, tern::kernels::View y) {
//     tern::kernels::cuda::pointwise_op<Bump>(stream, call, inputs, count, y);
//   }

#include "tern/kernels/cuda/strided.h"
#include "tern/kernels/pointwise/tiles.h"

namespace tern::kernels::cuda {
namespace elementwise {

/// Whether the op computes floats in double, with series of many terms (`kInDouble` of its struct).
template <class Op>
inline constexpr bool kComputesInDouble = requires {
  requires Op::kInDouble;
};

template <class Op, class F>
struct ForwardBody {
  static constexpr int kInputs = arity_of<Op>();
  static constexpr bool kInDouble = kComputesInDouble<Op>;
  static constexpr bool reads(int) { return true; }
  Op op;
  __device__ F operator()(const F* in) const {
    using S = kernels::detail::Scalar<F>;
    if constexpr (kInputs == 1)
      return kernels::detail::to_element<F>(op.forward(S(in[0])));
    else if constexpr (kInputs == 2)
      return kernels::detail::to_element<F>(op.forward(S(in[0]), S(in[1])));
    else
      return kernels::detail::to_element<F>(op.forward(S(in[0]), S(in[1]), S(in[2])));
  }
};

/// Computes dy, saved... -> dy * derivative_kInput(saved...).
template <class Op, int kInput, class F>
struct BackwardBody {
  static constexpr int kInputs = 1 + saved_count<Op>();
  static constexpr bool kInDouble = kComputesInDouble<Op>;
  static constexpr bool reads(int k) { return k == 0 || (needed_saves<Op>(kInput) >> (k - 1) & 1) != 0; }
  Op op;
  __device__ F operator()(const F* in) const { return evaluate(in, std::make_index_sequence<saved_count<Op>()>()); }
  template <size_t... I>
  __device__ F evaluate(const F* in, std::index_sequence<I...>) const {
    const F slope = kernels::detail::derivative_by<F, kInput>(op, in[I + 1]...);
    return kernels::detail::chain<masks_gradient<Op>()>(in[0], slope);
  }
};

/// Computes g, dy, saved... -> g * dy * d derivative_kInput / d saved_kSaved.
template <class Op, int kInput, int kSaved, class F>
struct SecondBody {
  static constexpr int kInputs = 2 + saved_count<Op>();
  static constexpr bool kOneByOne = true;
  static constexpr bool kInDouble = kComputesInDouble<Op>;
  static constexpr bool kManyRegisters = std::is_same_v<Op, Silu> || std::is_same_v<Op, Sin> || std::is_same_v<Op, Cos>;
  static constexpr bool reads(int k) { return k <= 1 || (needed_saves<Op>(kInput) >> (k - 2) & 1) != 0; }
  Op op;
  __device__ F operator()(const F* in) const { return evaluate(in, std::make_index_sequence<saved_count<Op>()>()); }
  template <size_t... I>
  __device__ F evaluate(const F* in, std::index_sequence<I...>) const {
    using D = math::Dual<F>;
    const D slope = kernels::detail::derivative_by<D, kInput>(op, D(in[I + 2], F(I == kSaved ? 1 : 0))...);
    return kernels::detail::chain<masks_gradient<Op>()>(in[0] * in[1], slope.tangent);
  }
};

/// One pass of an op over the arguments of a call.
template <class Op, class F>
class Passes {
 public:
  Passes(Stream stream, const PointwiseCall& call, const ConstView* inputs, View y)
      : stream_(stream), call_(call), inputs_(inputs), y_(y), op_(*static_cast<const Op*>(call.op)) {}

  void run_pass() const {
    if (call_.pass.kind == PointwisePass::kForward) return run<F>(stream_, inputs_, y_, ForwardBody<Op, F>{op_});
    if constexpr (std::is_floating_point_v<F>) derivative<0>();
  }

 private:
  template <int kInput>
  void derivative() const {
    if constexpr (kInput < arity_of<Op>()) {
      if (call_.pass.input != kInput) return derivative<kInput + 1>();
      if constexpr (has_derivative<Op, kInput>()) {
        if (call_.pass.kind == PointwisePass::kBackward)
          return run<F>(stream_, inputs_, y_, BackwardBody<Op, kInput, F>{op_});
        second<kInput, 0>();
      }
    }
  }
  template <int kInput, int kSaved>
  void second() const {
    if constexpr (kSaved < saved_count<Op>()) {
      if (call_.pass.saved != kSaved) return second<kInput, kSaved + 1>();
      run<F>(stream_, inputs_, y_, SecondBody<Op, kInput, kSaved, F>{op_});
    }
  }

  Stream stream_;
  const PointwiseCall& call_;
  const ConstView* inputs_;
  View y_;
  Op op_;
};

}  // namespace elementwise

/// kernels::pointwise for one op computed in F. Compiles the op's kernels for every pass where it is instantiated. F is
/// float, double, or int64_t for an op with `integral`.
template <class Op, class F>
void pointwise_in(Stream stream, const PointwiseCall& call, const ConstView* inputs, int, View y) {
  elementwise::Passes<Op, F>(stream, call, inputs, y).run_pass();
}

/// kernels::pointwise for one op.
template <class Op>
void pointwise_op(Stream stream, const PointwiseCall& call, const ConstView* inputs, int count, View y) {
  if (call.compute == DType::kFloat64) return pointwise_in<Op, double>(stream, call, inputs, count, y);
  if (call.compute == DType::kFloat32) return pointwise_in<Op, float>(stream, call, inputs, count, y);
  if constexpr (is_integral_op<Op>()) return pointwise_in<Op, int64_t>(stream, call, inputs, count, y);
}

}  // namespace tern::kernels::cuda

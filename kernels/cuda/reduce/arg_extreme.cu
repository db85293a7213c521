// Positions of extreme elements along a dimension.

#include "tern/kernels/cuda/reduce/kernel.h"

namespace tern::kernels::cuda {
namespace {

/// The extreme element so far; position -1: none.
template <class F>
struct Candidate {
  F value;
  int64_t position;
};

struct PositionSink {
  int64_t* index;
  template <class F>
  __device__ void store(int64_t offset, const Candidate<F>& best) const {
    store_one(index + offset, best.position);
  }
};

/// Selects the first of the largest (smallest) elements; NaN precedes everything except NaN.
template <class F>
struct ArgExtreme {
  using Value = F;
  using State = Candidate<F>;
  using Sink = PositionSink;
  static constexpr bool kRuns = false;
  bool largest;

  __device__ static State none() { return {F(0), -1}; }
  __device__ bool beats(F a, F b) const { return (largest ? a > b : a < b) || (a != a && b == b); }
  /// Elements must be passed in ascending order of position.
  __device__ void take(State& state, F value, int64_t position) const {
    if (state.position < 0 || beats(value, state.value)) state = {value, position};
  }
  __device__ void join(State& state, const State& other) const {
    if (other.position < 0) return;
    const bool first = other.position < state.position;
    if (state.position < 0 || beats(other.value, state.value) || (first && !beats(state.value, other.value)))
      state = other;
  }
};

/// The type in which elements are compared.
template <class T>
using Compared = std::conditional_t<std::is_integral_v<T> && sizeof(T) <= 4, int32_t, Accumulator<T>>;

}  // namespace

int64_t arg_extreme_workspace(Stream, ConstView x, int dim, View index) {
  if (index.numel() == 0) return 0;
  return plan_reduction(x, 1u << dim, index).workspace_bytes(sizeof(Candidate<double>));
}

void arg_extreme(Stream stream, bool largest, ConstView x, int dim, void* workspace, View index) {
  if (index.numel() == 0) return;
  const ReducePlan plan = plan_reduction(x, 1u << dim, index);
  dispatch_any(x.dtype, [&]<class T>() {
    using Op = ArgExtreme<Compared<T>>;
    run_reduction<Op, T>(stream, plan, x.data, Op{largest}, workspace, PositionSink{index.as<int64_t>()});
  });
}

}  // namespace tern::kernels::cuda

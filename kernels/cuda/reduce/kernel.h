#pragma once
// The kernels of reductions over any dimensions and strides. In the first, blocks share the elements according to
// ReducePlan; where a result has several parts, a second one combines them. The order of operations is fixed.
//
// reduce_kernel has more than 60 lines: its loops and its fold work on the states that a thread has in registers.

#include "tern/kernels/cuda/reduce/ops.h"
#include "tern/kernels/cuda/reduce/plan.h"

namespace tern::kernels::cuda {

/// Offset of the index-th element of the outer `dims` dimensions, in iteration order.
__device__ inline int64_t offset_of(const Layout<2>& layout, const WideDivider* sizes, int operand, int64_t index,
                                    int dims) {
  int64_t offset = 0;
#pragma unroll 1
  for (int d = dims - 1; d > 0; --d) {
    const int64_t next = sizes[d].quotient(index);
    offset += (index - next * layout.shape[d]) * layout.strides[operand][d];
    index = next;
  }
  return dims == 0 ? 0 : offset + index * layout.strides[operand][0];
}
/// Offset in x of the first element of the kept dimensions except the inner `without`; below: the result's offset.
__device__ inline int64_t kept_offset(const ReducePlan& plan, int64_t index, int without = 0) {
  return offset_of(plan.kept, plan.kept_sizes, 0, index, plan.kept.dims - without);
}
__device__ inline int64_t result_offset(const ReducePlan& plan, int64_t index) {
  return offset_of(plan.kept, plan.kept_sizes, 1, index, plan.kept.dims);
}
__device__ inline int64_t reduced_offset(const ReducePlan& plan, int64_t index, int without = 0) {
  return offset_of(plan.reduced, plan.reduced_sizes, 0, index, plan.reduced.dims - without);
}

/// Joins the threads of each unit pairwise into its first thread. A unit has `along` threads, `apart` positions from
/// each other; `element` is this thread's number among them.
template <class Op, class State, int kStates>
__device__ void fold(const Op& op, State (&shared)[kStates][kReduceThreads], int element, int along, int apart) {
  const int own = static_cast<int>(threadIdx.x);
  for (int half = along / 2; half > 0; half /= 2) {
    block_barrier();
    if (element >= half) continue;
#pragma unroll
    for (int k = 0; k < kStates; ++k) op.join(shared[k][own], shared[k][own + half * apart]);
  }
}

/// A state in accesses of at most 16 bytes.
template <class State>
struct StateWords {
  static constexpr int kWidth = sizeof(State) > 16 ? 4 : sizeof(State) / 4, kCount = sizeof(State) / (4 * kWidth);
  Vector<uint32_t, kWidth> words[kCount];
};
template <class State>
__device__ void store_state(State* to, const State& state) {
  using Words = StateWords<State>;
  const Words value = std::bit_cast<Words>(state);
#pragma unroll
  for (int i = 0; i < Words::kCount; ++i)
    store_vector(reinterpret_cast<uint32_t*>(to) + i * Words::kWidth, value.words[i]);
}
template <class State>
__device__ State load_state(const State* from) {
  using Words = StateWords<State>;
  Words value;
#pragma unroll
  for (int i = 0; i < Words::kCount; ++i)
    value.words[i] = load_vector<Words::kWidth>(reinterpret_cast<const uint32_t*>(from) + i * Words::kWidth);
  return std::bit_cast<State>(value);
}

template <class T, ReduceAccess kAccess>
inline constexpr int kReduceWidth = kAccess == ReduceAccess::kElements ? 1 : vector_width<T>;

/// Reads the elements of one unit step by step.
template <class Op, class T, ReduceAccess kAccess>
struct UnitReader {
  static constexpr int kWidth = kReduceWidth<T, kAccess>;
  using Raw = Vector<Stored<T>, kWidth>;

  const ReducePlan& plan;
  const Stored<T>* x;       // the unit's elements
  int64_t result;           // the unit's first result
  int64_t steps, head = 0;  // number of accesses; kAlong: elements before the first

  __device__ UnitReader(const ReducePlan& p, const Stored<T>* data, int64_t unit)
      : plan(p), result(unit * (kAccess == ReduceAccess::kAcross ? kWidth : 1)), steps(p.steps) {
    if constexpr (kAccess == ReduceAccess::kAcross) {
      const int64_t row = plan.by_vectors.quotient(unit);
      x = data + kept_offset(plan, row, 1) + result - row * plan.columns;
    } else {
      x = data + kept_offset(plan, unit);
    }
    if constexpr (kAccess == ReduceAccess::kAlong) {
      const int shift = row_shift(x);
      if (shift == 0) return;
      head = kWidth - shift;
      steps = (plan.columns - head) / kWidth;
    }
  }

  __device__ Raw load(int64_t step) const {
    if constexpr (kAccess == ReduceAccess::kAlong) {
      const int64_t run = plan.reduced.dims > 1 ? plan.by_vectors.quotient(step) : 0;
      const int64_t column = head + step * kWidth - run * plan.columns;
      return load_vector<kWidth>(x + reduced_offset(plan, run, 1) + column);
    } else {
      return load_vector<kWidth>(x + reduced_offset(plan, step));
    }
  }

  /// Adds the step's elements to the states of the unit's results.
  template <class State, int kStates>
  __device__ void take(const Op& op, const Raw& raw, int64_t step, State (&states)[kStates]) const {
    using F = typename Op::Value;
    if constexpr (kAccess != ReduceAccess::kAlong) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k) op.take(states[k], convert<T, F>(raw.v[k]), step);
    } else {
      State own = op.none();
#pragma unroll
      for (int k = 0; k < kWidth; ++k) op.take(own, convert<T, F>(raw.v[k]), head + step * kWidth + k);
      op.join(states[0], own);
    }
  }

  /// kAlong: adds the elements outside whole vectors, which the unit's `along` threads share.
  template <class State>
  __device__ void take_ends(const Op& op, int element, int along, State& state) const {
    using F = typename Op::Value;
    if (plan.reduced.dims > 1) return;
    const int64_t ends = plan.columns - steps * kWidth;
#pragma unroll 1
    for (int64_t i = element; i < ends; i += along) {
      const int64_t position = i < head ? i : i + steps * kWidth;
      State own = op.none();
      op.take(own, convert<T, F>(load_one(x + position)), position);
      op.join(state, own);
    }
  }
};

/// Number of consecutive steps that a thread combines before adding them to its total.
inline constexpr int64_t kReduceRun = 64;

/// Number of results per thread.
template <class T, ReduceAccess kAccess>
inline constexpr int kReduceStates = kAccess == ReduceAccess::kAcross ? vector_width<T> : 1;

template <class Op, class T, ReduceAccess kAccess>
__global__ void __launch_bounds__(kReduceThreads, kReduceStates<T, kAccess> * sizeof(typename Op::State) <= 128 ? 2 : 1)
    reduce_kernel(TERN_GRID_CONSTANT(ReducePlan) plan, const Stored<T>* x, const Op op, typename Op::State* parts,
                  TERN_GRID_CONSTANT(typename Op::Sink) sink) {
  using State = typename Op::State;
  using Reader = UnitReader<Op, T, kAccess>;
  constexpr int kStates = kReduceStates<T, kAccess>;
  const int thread = static_cast<int>(threadIdx.x), along = plan.along(), across = plan.across;
  const int element = plan.neighbours_reduced ? thread % along : thread / across;
  const int64_t tile = plan.by_parts.quotient(blockIdx.x), part = blockIdx.x - tile * plan.parts;
  const int64_t unit = tile * across + (plan.neighbours_reduced ? thread / along : thread % across);
  const bool busy = unit < plan.units;
  const Reader reader(plan, x, busy ? unit : 0);

  State totals[kStates];
#pragma unroll
  for (int k = 0; k < kStates; ++k) totals[k] = op.none();
  const auto sweep = [&](State(&states)[kStates], int64_t begin, int64_t end) {
    for (int64_t step = begin + element; step < end; step += kReduceAhead * along) {
      typename Reader::Raw raw[kReduceAhead] = {};
#pragma unroll
      for (int a = 0; a < kReduceAhead; ++a)
        if (step + a * along < end) raw[a] = reader.load(step + a * along);
#pragma unroll
      for (int a = 0; a < kReduceAhead; ++a)
        if (step + a * along < end) reader.take(op, raw[a], step + a * along, states);
    }
  };
  if (busy) {
    const int64_t begin = part * plan.part_steps;
    const int64_t end = begin + plan.part_steps < reader.steps ? begin + plan.part_steps : reader.steps;
    if constexpr (Op::kRuns) {
      for (int64_t first = begin; first < end; first += kReduceRun * along) {
        const int64_t stop = first + kReduceRun * along;
        State run[kStates];
#pragma unroll
        for (int k = 0; k < kStates; ++k) run[k] = op.none();
        sweep(run, first, stop < end ? stop : end);
#pragma unroll
        for (int k = 0; k < kStates; ++k) op.join(totals[k], run[k]);
      }
    } else {
      sweep(totals, begin, end);
    }
    if constexpr (kAccess == ReduceAccess::kAlong)
      if (part == 0) reader.take_ends(op, element, along, totals[0]);
  }

  // As many states as fit into shared memory are folded at a time.
  constexpr int kFit = static_cast<int>(16384 / (kReduceThreads * sizeof(State))),
                kFold = kStates < kFit ? kStates : kFit;
  TERN_SHARED(State, shared, [kFold][kReduceThreads]);
#pragma unroll
  for (int first = 0; first < kStates; first += kFold) {
    if (first > 0) block_barrier();
#pragma unroll
    for (int k = 0; k < kFold; ++k) shared[k][thread] = totals[first + k];
    fold(op, shared, element, along, plan.neighbours_reduced ? 1 : across);
    if (element > 0 || !busy) continue;
#pragma unroll 1
    for (int k = 0; k < kFold; ++k) {
      const int64_t result = reader.result + first + k;
      if (plan.parts > 1)
        store_state(parts + result * plan.parts + part, shared[k][thread]);
      else
        sink.store(result_offset(plan, result), shared[k][thread]);
    }
  }
}

/// Joins the parts of the results. A block has several results with `along` threads each.
template <class Op>
__global__ void __launch_bounds__(kReduceThreads)
    join_parts_kernel(const typename Op::State* parts, TERN_GRID_CONSTANT(ReducePlan) plan, int along, const Op op,
                      TERN_GRID_CONSTANT(typename Op::Sink) sink) {
  using State = typename Op::State;
  TERN_SHARED(State, shared, [1][kReduceThreads]);
  const int thread = static_cast<int>(threadIdx.x), element = thread % along;
  const int64_t result = static_cast<int64_t>(blockIdx.x) * (kReduceThreads / along) + thread / along;
  State total = op.none();
  if (result < plan.results) {
    // More joins of deviations at a time would spill registers.
    [[maybe_unused]] constexpr int kAhead = Op::kRuns && sizeof(State) > 8 ? 1 : 4;
#pragma unroll kAhead
    for (int64_t part = element; part < plan.parts; part += along)
      op.join(total, load_state(parts + result * plan.parts + part));
  }
  shared[0][thread] = total;
  fold(op, shared, element, along, 1);
  if (element == 0 && result < plan.results) sink.store(result_offset(plan, result), shared[0][thread]);
}

/// Runs a plan on x. workspace: plan.workspace_bytes(sizeof(Op::State)), aligned to 16 bytes.
template <class Op, class T>
void run_reduction(Stream stream, const ReducePlan& plan, const void* x, const Op& op, void* workspace,
                   const typename Op::Sink& sink) {
  auto* const parts = static_cast<typename Op::State*>(workspace);
  const auto start = [&]<ReduceAccess kAccess>() {
    launch(reduce_kernel<Op, T, kAccess>, grid_blocks(plan.blocks()), kReduceThreads, 0, stream, plan,
           static_cast<const Stored<T>*>(x), op, parts, sink);
  };
  switch (plan.access) {
    case ReduceAccess::kElements:
      start.template operator()<ReduceAccess::kElements>();
      break;
    case ReduceAccess::kAlong:
      start.template operator()<ReduceAccess::kAlong>();
      break;
    case ReduceAccess::kAcross:
      start.template operator()<ReduceAccess::kAcross>();
      break;
  }
  if (plan.parts == 1) return;
  const int along = plan.results < kReduceBlocks ? kReduceThreads : kWarpSize;
  launch(join_parts_kernel<Op>, grid_blocks(ceil_div(plan.results, kReduceThreads / along)), kReduceThreads, 0, stream,
         parts, plan, along, op, sink);
}

/// kernels::reduce of x with elements T. Instantiated in several files, which compile in parallel.
template <class T>
void reduce_elements(Stream stream, Reduction reduction, const ReducePlan& plan, const void* x, void* workspace,
                     const ValueSink& sink) {
  using F = Accumulator<T>;
  const auto run = [&]<class Op>(Op op) { run_reduction<Op, T>(stream, plan, x, op, workspace, {sink}); };
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kMean:
      return run(ValueReduction<Add, F>());
    case Reduction::kMax:
      return run(ValueReduction<Largest, F>());
    case Reduction::kMin:
      return run(ValueReduction<Smallest, F>());
    case Reduction::kProduct:
      return run(ValueReduction<Multiply, F>());
    case Reduction::kSumOfSquares:
      return run(ValueReduction<AddSquares, F>());
    case Reduction::kAll:
      return run(ValueReduction<All, F>());
    case Reduction::kAny:
      return run(ValueReduction<Any, F>());
    case Reduction::kSumOfMagnitudes:
      if constexpr (std::is_floating_point_v<F>) return run(ValueReduction<AddMagnitudes, F>());
      return;
    case Reduction::kDeviations:
      if constexpr (std::is_floating_point_v<F>) return run(Deviations<F>());
      return;
    case Reduction::kLogSumExp:
      if constexpr (std::is_floating_point_v<F>) return run(LogSumExp<F>());
      return;
  }
}

extern template void reduce_elements<double>(Stream, Reduction, const ReducePlan&, const void*, void*,
                                             const ValueSink&);
extern template void reduce_elements<float>(Stream, Reduction, const ReducePlan&, const void*, void*, const ValueSink&);
extern template void reduce_elements<BFloat16>(Stream, Reduction, const ReducePlan&, const void*, void*,
                                               const ValueSink&);
extern template void reduce_elements<Float16>(Stream, Reduction, const ReducePlan&, const void*, void*,
                                              const ValueSink&);
extern template void reduce_elements<int64_t>(Stream, Reduction, const ReducePlan&, const void*, void*,
                                              const ValueSink&);
extern template void reduce_elements<int32_t>(Stream, Reduction, const ReducePlan&, const void*, void*,
                                              const ValueSink&);
extern template void reduce_elements<uint8_t>(Stream, Reduction, const ReducePlan&, const void*, void*,
                                              const ValueSink&);
extern template void reduce_elements<bool>(Stream, Reduction, const ReducePlan&, const void*, void*, const ValueSink&);

}  // namespace tern::kernels::cuda

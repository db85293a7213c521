// The cells of recurrent layers.

#include "tern/kernels/cuda/recurrent/steps.h"
#include "tern/kernels/cuda/support/rows.h"
#include "tern/kernels/recurrent/cells.h"

namespace tern::kernels::cuda {
namespace {

template <class T>
__device__ ComputeType<T> load(const T* from) {
  return to_compute(load_one(from));
}
template <class T>
__device__ void store(T* to, ComputeType<T> value) {
  store_one(to, from_compute<T>(value));
}

__device__ int64_t row_of(const RecurrentStep& step, int64_t i) { return load_one(step.first + i) + step.shift; }
__device__ int64_t state_row_of(const RecurrentStep& step, int64_t i) { return load_one(step.order + i); }

/// One thread for each element of [rows, width].
struct Place {
  int64_t row, column;
  __device__ static Place of(int64_t width) {
    const int64_t item = static_cast<int64_t>(blockIdx.x) * kRowThreads + threadIdx.x;
    return {item / width, item % width};
  }
};
dim3 grid_of(int64_t rows, int64_t width) { return dim3(grid_blocks(ceil_div(rows * width, kRowThreads))); }

/// to[i] = row order[i] of from, or 0 where from is null; or the other way, to[order[i]] = row i.
template <class From, class To, bool kBack>
__global__ void __launch_bounds__(kRowThreads)
    recurrent_order_kernel(const From* from, const int64_t* order, int64_t batch, int64_t width, To* to) {
  const Place at = Place::of(width);
  if (at.row >= batch) return;
  const int64_t i = at.row * width + at.column, j = load_one(order + at.row) * width + at.column;
  store_one(to + (kBack ? j : i),
            static_cast<To>(from ? static_cast<ComputeType<To>>(to_compute(load_one(from + (kBack ? i : j))))
                                 : ComputeType<To>(0)));
}

/// What the state gives to a gate.
template <class T>
__device__ ComputeType<T> of_state(const RecurrentForwardCall<T>& call, int64_t i, int64_t column, int64_t width) {
  return load_one(call.product + i * width + column) + (call.bias ? load(call.bias + column) : ComputeType<T>(0));
}

/// Returns the state, and writes what is kept.
template <class T, RecurrentKind kKind>
__device__ ComputeType<T> forward_unit(const RecurrentForwardCall<T>& call, int64_t i, int64_t u, int64_t row) {
  using F = ComputeType<T>;
  constexpr int kGates = static_cast<int>(gates_of(kKind));
  const int64_t width = kGates * call.hidden, place = i * call.hidden + u;
  T* const gates = call.gates + row * width + u;
  if constexpr (kKind == RecurrentKind::kLstm) {
    LstmCell<F> unit{{}, F(0), F(0)};
#pragma unroll
    for (int g = 0; g < 4; ++g)
      unit.gates[g] = load(gates + g * call.hidden) + of_state(call, i, g * call.hidden + u, width);
    unit.forward(load_one(call.cells + place));
    store_one(call.cells + place, unit.cell);
    if (call.kept_cells) {
      store_one(call.kept_cells + row * call.hidden + u, unit.cell);
#pragma unroll
      for (int g = 0; g < 4; ++g) store(gates + g * call.hidden, unit.gates[g]);
    }
    return unit.state;
  } else if constexpr (kKind == RecurrentKind::kGru) {
    GruCell<F> unit{{load(gates), load(gates + call.hidden), load(gates + 2 * call.hidden)},
                    of_state(call, i, 2 * call.hidden + u, width),
                    F(0)};
    unit.forward(of_state(call, i, u, width), of_state(call, i, call.hidden + u, width), load(call.states + place));
    if (call.kept_hidden) {
      store(call.kept_hidden + row * call.hidden + u, unit.hidden);
#pragma unroll
      for (int g = 0; g < 3; ++g) store(gates + g * call.hidden, unit.gates[g]);
    }
    return unit.state;
  } else {
    return PlainCell<F, kKind == RecurrentKind::kRelu>::forward(load(gates) + of_state(call, i, u, width));
  }
}

template <class T, RecurrentKind kKind>
__global__ void __launch_bounds__(kRowThreads)
    recurrent_forward_kernel(TERN_GRID_CONSTANT(RecurrentForwardCall<T>) call) {
  const Place at = Place::of(call.hidden);
  if (at.row >= call.step.running) return;
  const int64_t row = row_of(call.step, at.row), place = at.row * call.hidden + at.column;
  const ComputeType<T> state = forward_unit<T, kKind>(call, at.row, at.column, row);
  store(call.states + place, state);
  if (call.output) store(call.output + row * call.hidden + at.column, state);
  if (at.row < call.step.next) return;
  const int64_t end = state_row_of(call.step, at.row) * call.hidden + at.column;
  if (call.last) store(call.last + end, state);
  if (call.last_cell) store(call.last_cell + end, load_one(call.cells + place));
}

/// The projected states [running, width] as output and last states.
template <class T>
__global__ void __launch_bounds__(kRowThreads)
    recurrent_output_kernel(TERN_GRID_CONSTANT(RecurrentStep) step, const T* states, int64_t width, T* output,
                            T* last) {
  const Place at = Place::of(width);
  if (at.row >= step.running) return;
  const T state = load_one(states + at.row * width + at.column);
  store_one(output + row_of(step, at.row) * width + at.column, state);
  if (at.row >= step.next) store_one(last + state_row_of(step, at.row) * width + at.column, state);
}

/// A value of the state before this step.
template <class T>
__device__ T previous_state(const RecurrentBackwardCall<T>& call, int64_t i, int64_t row, int64_t column) {
  if (!call.step.is_first) return load_one(call.output + (row - call.step.stride) * call.state + column);
  if (!call.initial) return T(ComputeType<T>(0));
  return load_one(call.initial + state_row_of(call.step, i) * call.state + column);
}
template <class T>
__device__ ComputeType<T> previous_cell(const RecurrentBackwardCall<T>& call, int64_t i, int64_t row, int64_t u) {
  if (!call.step.is_first) return load_one(call.kept_cells + (row - call.step.stride) * call.hidden + u);
  return call.initial_cell ? load(call.initial_cell + state_row_of(call.step, i) * call.hidden + u) : ComputeType<T>(0);
}

template <class T, RecurrentKind kKind>
__device__ void backward_unit(const RecurrentBackwardCall<T>& call, int64_t i, int64_t u, int64_t row,
                              ComputeType<T> dstate) {
  using F = ComputeType<T>;
  constexpr int kGates = static_cast<int>(gates_of(kKind));
  const int64_t width = kGates * call.hidden, place = i * call.hidden + u;
  const T* const gates = call.gates + row * width + u;
  T *const dgates = call.dgates + row * width + u, *const dproduct = call.dproduct + i * width + u;
  if constexpr (kKind == RecurrentKind::kLstm) {
    LstmCell<F> unit{{}, load_one(call.kept_cells + row * call.hidden + u), F(0)};
#pragma unroll
    for (int g = 0; g < 4; ++g) unit.gates[g] = load(gates + g * call.hidden);
    unit.backward(previous_cell(call, i, row, u), dstate, load_one(call.dcells + place));
#pragma unroll
    for (int g = 0; g < 4; ++g) {
      store(dgates + g * call.hidden, unit.gates[g]);
      store(dproduct + g * call.hidden, unit.gates[g]);
    }
    store_one(call.dcells + place, unit.cell);
    if (call.unprojected) store(call.unprojected + row * call.hidden + u, unit.state);
  } else if constexpr (kKind == RecurrentKind::kGru) {
    GruCell<F> unit{{load(gates), load(gates + call.hidden), load(gates + 2 * call.hidden)},
                    load(call.kept_hidden + row * call.hidden + u),
                    F(0)};
    unit.backward(to_compute(previous_state(call, i, row, u)), dstate);
    T* const state_gates = call.state_gates + row * width + u;
#pragma unroll
    for (int g = 0; g < 3; ++g) {
      const F of_state = g == 2 ? unit.hidden : unit.gates[g];
      store(dgates + g * call.hidden, unit.gates[g]);
      store(state_gates + g * call.hidden, of_state);
      store(dproduct + g * call.hidden, of_state);
    }
    store_one(call.dstates + place, unit.state);
  } else {
    const F state = load(call.output + row * call.hidden + u);
    const F d = PlainCell<F, kKind == RecurrentKind::kRelu>::backward(state, dstate);
    store(dgates, d);
    store(dproduct, d);
  }
}

template <class T, RecurrentKind kKind>
__global__ void __launch_bounds__(kRowThreads)
    recurrent_backward_kernel(TERN_GRID_CONSTANT(RecurrentBackwardCall<T>) call) {
  using F = ComputeType<T>;
  const Place at = Place::of(call.hidden);
  if (at.row >= call.step.running) return;
  const int64_t row = row_of(call.step, at.row);
  F dstate = load_one(call.dstates + at.row * call.hidden + at.column);
  if (call.doutput) dstate += load(call.doutput + row * call.hidden + at.column);
  backward_unit<T, kKind>(call, at.row, at.column, row, dstate);
  if (call.previous && at.column < call.state)
    store_one(call.previous + row * call.state + at.column, previous_state(call, at.row, row, at.column));
}

/// The whole gradient of the projected states: in order of rows, and of sequences for the product.
template <class T>
__global__ void __launch_bounds__(kRowThreads)
    recurrent_total_kernel(TERN_GRID_CONSTANT(RecurrentStep) step, const ComputeType<T>* dstates, const T* doutput,
                           int64_t width, T* by_row, T* by_sequence) {
  const Place at = Place::of(width);
  if (at.row >= step.running) return;
  const int64_t place = at.row * width + at.column, row = row_of(step, at.row) * width + at.column;
  const ComputeType<T> total = load_one(dstates + place) + (doutput ? load(doutput + row) : ComputeType<T>(0));
  store(by_row + row, total);
  store(by_sequence + place, total);
}

/// body.operator()<kind>().
template <class Body>
void with_kind(RecurrentKind kind, const Body& body) {
  switch (kind) {
    case RecurrentKind::kLstm:
      return body.template operator()<RecurrentKind::kLstm>();
    case RecurrentKind::kGru:
      return body.template operator()<RecurrentKind::kGru>();
    case RecurrentKind::kTanh:
      return body.template operator()<RecurrentKind::kTanh>();
    default:
      return body.template operator()<RecurrentKind::kRelu>();
  }
}

}  // namespace

template <class T>
void launch_recurrent_forward(Stream stream, RecurrentKind kind, const RecurrentForwardCall<T>& call) {
  with_kind(kind, [&]<RecurrentKind kKind>() {
    launch(recurrent_forward_kernel<T, kKind>, grid_of(call.step.running, call.hidden), dim3(kRowThreads), 0, stream,
           call);
  });
}
template <class T>
void launch_recurrent_backward(Stream stream, RecurrentKind kind, const RecurrentBackwardCall<T>& call) {
  with_kind(kind, [&]<RecurrentKind kKind>() {
    launch(recurrent_backward_kernel<T, kKind>, grid_of(call.step.running, call.hidden), dim3(kRowThreads), 0, stream,
           call);
  });
}
template <class T>
void launch_recurrent_output(Stream stream, const RecurrentStep& step, const T* states, int64_t width, T* output,
                             T* last) {
  launch(recurrent_output_kernel<T>, grid_of(step.running, width), dim3(kRowThreads), 0, stream, step, states, width,
         output, last);
}
template <class T>
void launch_recurrent_total(Stream stream, const RecurrentStep& step, const ComputeType<T>* dstates, const T* doutput,
                            int64_t width, T* by_row, T* by_sequence) {
  launch(recurrent_total_kernel<T>, grid_of(step.running, width), dim3(kRowThreads), 0, stream, step, dstates, doutput,
         width, by_row, by_sequence);
}
template <class T, class To>
void launch_recurrent_gather(Stream stream, const T* from, const int64_t* order, int64_t batch, int64_t width, To* to) {
  launch(recurrent_order_kernel<T, To, false>, grid_of(batch, width), dim3(kRowThreads), 0, stream, from, order, batch,
         width, to);
}
template <class T>
void launch_recurrent_scatter(Stream stream, const ComputeType<T>* from, const int64_t* order, int64_t batch,
                              int64_t width, T* to) {
  launch(recurrent_order_kernel<ComputeType<T>, T, true>, grid_of(batch, width), dim3(kRowThreads), 0, stream, from,
         order, batch, width, to);
}

#define TERN_RECURRENT(T)                                                                                             \
  template void launch_recurrent_forward<T>(Stream, RecurrentKind, const RecurrentForwardCall<T>&);                   \
  template void launch_recurrent_backward<T>(Stream, RecurrentKind, const RecurrentBackwardCall<T>&);                 \
  template void launch_recurrent_output<T>(Stream, const RecurrentStep&, const T*, int64_t, T*, T*);                  \
  template void launch_recurrent_total<T>(Stream, const RecurrentStep&, const ComputeType<T>*, const T*, int64_t, T*, \
                                          T*);                                                                        \
  template void launch_recurrent_gather<T, T>(Stream, const T*, const int64_t*, int64_t, int64_t, T*);                \
  template void launch_recurrent_scatter<T>(Stream, const ComputeType<T>*, const int64_t*, int64_t, int64_t, T*)
TERN_RECURRENT(double);
TERN_RECURRENT(float);
TERN_RECURRENT(BFloat16);
TERN_RECURRENT(Float16);
template void launch_recurrent_gather<BFloat16, float>(Stream, const BFloat16*, const int64_t*, int64_t, int64_t,
                                                       float*);
template void launch_recurrent_gather<Float16, float>(Stream, const Float16*, const int64_t*, int64_t, int64_t, float*);

}  // namespace tern::kernels::cuda

#pragma once
// The kernels of recurrent layers: each is one step of all sequences that still run, one thread for a unit.

#include "tern/kernels/recurrent/recurrent.h"

namespace tern::kernels::cuda {

/// The sequences of a step.
struct RecurrentStep {
  const int64_t *first, *order;
  int64_t shift;          // from a sequence's first row
  int64_t stride;         // to the row of the next step
  int64_t running, next;  // sequences of this step, and of those the ones that have a next step
  bool is_first;
};

template <class T>
struct RecurrentForwardCall {
  using F = ComputeType<T>;
  RecurrentStep step;
  int64_t hidden;
  const F* product;                                    // [running, gates * hidden]: of the states
  const T* bias;                                       // or null
  T *gates, *kept_hidden, *output, *last, *last_cell;  // output and last are null with a projection
  F *kept_cells, *cells;                               // cells: [batch, hidden]
  T* states;  // [batch, hidden]: in, of GRU the previous ones; out, the new ones
};

template <class T>
struct RecurrentBackwardCall {
  using F = ComputeType<T>;
  RecurrentStep step;
  int64_t hidden, state;
  const T *gates, *kept_hidden, *output, *initial, *initial_cell;
  const F* kept_cells;
  const T* doutput;  // null with a projection, or where there is none
  F* dstates;        // [batch, hidden]: in, of the states; out, of GRU, what passes by the product
  F* dcells;         // [batch, hidden]
  T* dproduct;       // [running, gates * hidden]: what the product takes
  T *dgates, *state_gates, *unprojected, *previous;  // RecurrentGradients::gates and so on
};

// Defined for the floating types.
template <class T>
void launch_recurrent_forward(Stream stream, RecurrentKind kind, const RecurrentForwardCall<T>& call);
template <class T>
void launch_recurrent_backward(Stream stream, RecurrentKind kind, const RecurrentBackwardCall<T>& call);
/// The projected states [running, width] as output and last states.
template <class T>
void launch_recurrent_output(Stream stream, const RecurrentStep& step, const T* states, int64_t width, T* output,
                             T* last);
/// The whole gradient of the projected states: in order of rows, and of sequences for the product. doutput may be null.
template <class T>
void launch_recurrent_total(Stream stream, const RecurrentStep& step, const ComputeType<T>* dstates, const T* doutput,
                            int64_t width, T* by_row, T* by_sequence);
/// to[i] = row order[i] of from, or 0 where from is null; To is T or its compute type.
template <class T, class To>
void launch_recurrent_gather(Stream stream, const T* from, const int64_t* order, int64_t batch, int64_t width, To* to);
/// to[order[i]] = row i of from.
template <class T>
void launch_recurrent_scatter(Stream stream, const ComputeType<T>* from, const int64_t* order, int64_t batch,
                              int64_t width, T* to);

}  // namespace tern::kernels::cuda

// Recurrent layers: the batch is divided among the threads, each of which takes all steps of its sequences without
// waiting for the others. The product with the state and the cell are one pass, panel by panel of the packed weight.

#include "tern/kernels/recurrent/recurrent.h"

#include "tern/kernels/cpu/recurrent/numbers.h"
#include "tern/kernels/cpu/recurrent/product.h"
#include "tern/kernels/recurrent/cells.h"
#include "tern/kernels/workspace_parts.h"

namespace tern::kernels::TERN_CPU {
namespace {

constexpr int64_t kPart = 64;  // alignment of the parts of a workspace

/// The sequences of one thread: every pieces-th, so that all threads have long and short ones.
struct Piece {
  const RecurrentSteps& steps;
  int64_t index, pieces;

  int64_t of(int64_t sequences) const { return (sequences - index + pieces - 1) / pieces; }
  int64_t count() const { return of(steps.first.size(0)); }
  /// Its sequences that run in a step.
  int64_t running(int64_t step) const { return step < steps.steps ? of(std::max(steps.counts[step], index)) : 0; }
  int64_t row(int64_t i, int64_t step) const {
    return steps.first.as<int64_t>()[index + i * pieces] + step * steps.stride;
  }
  int64_t state_row(int64_t i) const { return steps.order.as<int64_t>()[index + i * pieces]; }
};

template <class F>
int64_t pieces_of(const RecurrentLayer& layer) {
  constexpr int64_t kLeast = Panels<F, 4>::kRows;  // fewer rows do not repay reading the weight
  return std::clamp<int64_t>(num_threads(), 1, std::max<int64_t>(1, (layer.batch() + kLeast - 1) / kLeast));
}

/// Panels::pack() of a view.
template <class F, int kVectors>
[[gnu::noinline]] void pack_view(Panels<F, kVectors>& panels, const ConstView& matrix, int64_t row_step,
                                 int64_t column_step, void* memory) {
  dispatch_float(matrix.dtype, [&]<class T>() {
    if constexpr (std::is_same_v<ComputeType<T>, F>)
      panels.pack(matrix.as<T>(), row_step, column_step, static_cast<F*>(memory));
  });
}

// ---- forward ----

/// The layer with 4 gates (LSTM), 3 (GRU) or 1 (the elementary RNN). A panel has the columns of all gates of some
/// units, or of more units where there is one gate.
template <class F, int kGates>
class Forward {
  using Gates = Panels<F, kGates == 1 ? 4 : kGates>;
  using Projection = Panels<F, 4>;
  static constexpr int64_t kUnits = Gates::kWidth / kGates;

 public:
  Forward(const RecurrentLayer& layer, void* memory)
      : layer_(layer),
        hidden_(layer.hidden()),
        state_(layer.state()),
        pieces_(pieces_of<F>(layer)),
        weight_(state_, hidden_, kUnits),
        projection_(hidden_, layer.projection ? state_ : 0),
        memory_(memory, kPart) {
    weight_at_ = memory_.template take<F>(layer.packed_weight ? 0 : weight_.numbers());
    projection_at_ = memory_.template take<F>(projection_.numbers());
    const int64_t rows = (layer.batch() + pieces_ - 1) / pieces_;  // of a piece, at most
    bias_ = memory_.template take<F>(kGates * hidden_ + kUnits);   // the last panel's units are read beyond the end
    piece_states_ = rows * state_ + kUnits;
    piece_cells_ = rows * hidden_ + kUnits;
    for (F*& states : states_) states = memory_.template take<F>(pieces_ * piece_states_);
    cells_ = memory_.template take<F>(pieces_ * piece_cells_);
    unprojected_ = memory_.template take<F>(layer.projection ? pieces_ * piece_cells_ : 0);
  }
  int64_t bytes() const { return memory_.bytes(); }
  int64_t packed_bytes() const { return weight_.numbers() * static_cast<int64_t>(sizeof(F)); }

  void pack_weight(void* memory) { pack_view(weight_, layer_.weight, 1, state_, memory); }

  void run(const RecurrentKept& kept, View output, View last, View last_cell) {
    gates_ = Numbers<F>(kept.gates);
    kept_cells_ = Numbers<F>(kept.cells);
    kept_hidden_ = Numbers<F>(kept.hidden);
    output_ = Numbers<F>(output);
    last_ = Numbers<F>(last);
    last_cell_ = Numbers<F>(last_cell);
    if (layer_.packed_weight)
      weight_.set_packed(layer_.packed_weight);
    else
      pack_weight(weight_at_);
    if (layer_.projection) pack_view(projection_, layer_.projection, 1, hidden_, projection_at_);
    Numbers<F>(layer_.bias).load_row(0, kGates * hidden_, bias_);
    parallel_for(pieces_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) run_piece({layer_.steps, p, pieces_});
    });
  }

 private:
  void run_piece(const Piece& piece) {
    const int64_t at = piece.index * piece_states_, cells_at = piece.index * piece_cells_;
    F *states[] = {states_[0] + at, states_[1] + at}, *const cells = cells_ + cells_at;
    for (int64_t i = 0; i < piece.count(); ++i) {
      Numbers<F>(layer_.initial).load_row(piece.state_row(i), state_, states[0] + i * state_);
      Numbers<F>(layer_.initial_cell).load_row(piece.state_row(i), hidden_, cells + i * hidden_);
    }
    for (int64_t t = 0, running = piece.running(0); running > 0; ++t) {
      F* const unprojected = layer_.projection ? unprojected_ + cells_at : states[1];
      weight_.multiply(running, states[0], state_, [&](int64_t panel, int64_t i, const F* sums) {
        const int64_t unit = panel * kUnits, count = std::min(hidden_ - unit, kUnits);
        finish(count, piece.row(i, t), unit, sums, states[0] + i * state_ + unit, cells + i * hidden_ + unit,
               unprojected + i * hidden_ + unit);
      });
      if (layer_.projection) project(piece, t, running, unprojected, states[1]);
      const int64_t next = piece.running(t + 1);
      for (int64_t i = next; i < running; ++i) {
        last_.store_row(states[1] + i * state_, piece.state_row(i), state_);
        last_cell_.store_row(cells + i * hidden_, piece.state_row(i), hidden_);
      }
      std::swap(states[0], states[1]);
      running = next;
    }
  }

  void project(const Piece& piece, int64_t t, int64_t running, const F* unprojected, F* states) {
    projection_.multiply(running, unprojected, hidden_, [&](int64_t panel, int64_t i, const F* sums) {
      const int64_t column = panel * Projection::kWidth, count = std::min<int64_t>(Projection::kWidth, state_ - column);
      write_state<Projection::kWidth>(count, sums, piece.row(i, t) * state_ + column, states + i * state_ + column);
    });
  }

  /// The next step takes the state as the output stores it.
  template <int64_t kCount>
  void write_state(int64_t count, const F* values, int64_t at, F* state) const {
    output_.template store_whole<kCount>(values, at, count);
    if (output_.is_wide())
      copy_whole<kCount>(values, count, state);
    else
      output_.load(at, count, state);
  }

  /// `count` units from `unit` on, from the products of the state; all kUnits are computed, which makes vectors of
  /// loops.
  void finish(int64_t count, int64_t row, int64_t unit, const F* sums, const F* previous, F* cell, F* to) const {
    alignas(64) F gates[kGates][kUnits], values[kUnits], wide[kUnits] = {};
    const int64_t kept = row * kGates * hidden_ + unit;
    const F* const bias = bias_ + unit;
    for (int g = 0; g < kGates; ++g) {
      const F* const x = gates_.template load_whole<kUnits>(kept + g * hidden_, count, wide);
      for (int64_t u = 0; u < kUnits; ++u)
        gates[g][u] = kGates == 3 ? x[u] : x[u] + (sums[g * kUnits + u] + bias[g * hidden_ + u]);
    }
    if constexpr (kGates == 4) {
      finish_lstm(gates, cell, values, wide);
      copy_whole<kUnits>(wide, count, cell);
      if (kept_cells_) kept_cells_.template store_whole<kUnits>(wide, row * hidden_ + unit, count);
    } else if constexpr (kGates == 3) {
      finish_gru(gates, sums, bias, previous, values, wide);
      if (kept_hidden_) kept_hidden_.template store_whole<kUnits>(wide, row * hidden_ + unit, count);
    } else if (layer_.kind == RecurrentKind::kRelu) {
      for (int64_t u = 0; u < kUnits; ++u) values[u] = PlainCell<F, true>::forward(gates[0][u]);
    } else {
      for (int64_t u = 0; u < kUnits; ++u) values[u] = PlainCell<F, false>::forward(gates[0][u]);
    }
    if (kept_cells_ || kept_hidden_)
      for (int g = 0; g < kGates; ++g) gates_.template store_whole<kUnits>(gates[g], kept + g * hidden_, count);
    if (layer_.projection)
      copy_whole<kUnits>(values, count, to);
    else
      write_state<kUnits>(count, values, row * state_ + unit, to);
  }

  [[gnu::always_inline]] static void finish_lstm(F (&gates)[kGates][kUnits], const F* before, F* state, F* cell) {
#pragma GCC ivdep
    for (int64_t u = 0; u < kUnits; ++u) {
      LstmCell<F> unit{{gates[0][u], gates[1][u], gates[2][u], gates[3][u]}, F(0), F(0)};
      unit.forward(before[u]);
      for (int g = 0; g < 4; ++g) gates[g][u] = unit.gates[g];
      cell[u] = unit.cell;
      state[u] = unit.state;
    }
  }
  [[gnu::always_inline]] void finish_gru(F (&gates)[kGates][kUnits], const F* sums, const F* bias, const F* previous,
                                         F* state, F* hidden) const {
#pragma GCC ivdep
    for (int64_t u = 0; u < kUnits; ++u) {
      GruCell<F> unit{{gates[0][u], gates[1][u], gates[2][u]}, sums[2 * kUnits + u] + bias[2 * hidden_ + u], F(0)};
      unit.forward(sums[u] + bias[u], sums[kUnits + u] + bias[hidden_ + u], previous[u]);
      for (int g = 0; g < 3; ++g) gates[g][u] = unit.gates[g];
      hidden[u] = unit.hidden;
      state[u] = unit.state;
    }
  }

  const RecurrentLayer& layer_;
  int64_t hidden_, state_, pieces_, piece_states_, piece_cells_;
  Gates weight_;
  Projection projection_;
  WorkspaceParts memory_;
  F *weight_at_, *projection_at_, *bias_, *states_[2], *cells_, *unprojected_;
  Numbers<F> gates_, kept_cells_, kept_hidden_, output_, last_, last_cell_;
};

// ---- backward ----

template <class F, int kGates>
class Backward {
  using Product = Panels<F, 4>;

 public:
  Backward(const RecurrentLayer& layer, void* memory)
      : layer_(layer),
        hidden_(layer.hidden()),
        state_(layer.state()),
        pieces_(pieces_of<F>(layer)),
        weight_(kGates * hidden_, state_),
        projection_(state_, layer.projection ? hidden_ : 0),
        memory_(memory, kPart) {
    weight_at_ = memory_.template take<F>(layer.packed_weight ? 0 : weight_.numbers());
    projection_at_ = memory_.template take<F>(projection_.numbers());
    per_piece_ = (layer.batch() + pieces_ - 1) / pieces_;
    const int64_t rows = pieces_ * per_piece_;
    states_ = memory_.template take<F>(rows * state_);
    cells_ = memory_.template take<F>(rows * hidden_);
    gates_ = memory_.template take<F>(rows * kGates * hidden_);
    unprojected_ = memory_.template take<F>(layer.projection ? rows * hidden_ : 0);
  }
  int64_t bytes() const { return memory_.bytes(); }
  int64_t packed_bytes() const { return weight_.numbers() * static_cast<int64_t>(sizeof(F)); }

  void pack_weight(void* memory) { pack_view(weight_, layer_.weight, state_, 1, memory); }

  void run(const RecurrentKept& kept, ConstView output, const RecurrentGradients& gradients) {
    kept_gates_ = Numbers<F>(kept.gates);
    kept_cells_ = kept.cells;
    kept_hidden_ = Numbers<F>(kept.hidden);
    output_ = output;
    gradients_ = gradients;
    if (layer_.packed_weight)
      weight_.set_packed(layer_.packed_weight);
    else
      pack_weight(weight_at_);
    if (layer_.projection) pack_view(projection_, layer_.projection, hidden_, 1, projection_at_);
    parallel_for(pieces_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) run_piece({layer_.steps, p, pieces_});
    });
  }

 private:
  void run_piece(const Piece& piece) {
    const int64_t at = piece.index * per_piece_;
    F *states = states_ + at * state_, *cells = cells_ + at * hidden_, *gates = gates_ + at * kGates * hidden_;
    F* const unprojected = layer_.projection ? unprojected_ + at * hidden_ : states;
    for (int64_t i = 0; i < piece.count(); ++i) {
      Numbers<F>(gradients_.last).load_row(piece.state_row(i), state_, states + i * state_);
      Numbers<F>(gradients_.last_cell).load_row(piece.state_row(i), hidden_, cells + i * hidden_);
    }
    for (int64_t t = layer_.steps.steps - 1; t >= 0; --t) {
      const int64_t running = piece.running(t);
      for (int64_t i = 0; i < running; ++i) add_output(piece.row(i, t), states + i * state_);
      if (layer_.projection)
        projection_.multiply(running, states, state_, [&](int64_t panel, int64_t i, const F* sums) {
          const int64_t column = panel * Product::kWidth, count = std::min<int64_t>(Product::kWidth, hidden_ - column);
          std::copy_n(sums, count, unprojected + i * hidden_ + column);
        });
      for (int64_t i = 0; i < running; ++i) {
        run_cells(piece, i, t, unprojected + i * hidden_, cells + i * hidden_, gates + i * kGates * hidden_);
        write_previous(piece, i, t);
      }
      weight_.multiply(running, gates, kGates * hidden_, [&](int64_t panel, int64_t i, const F* sums) {
        const int64_t column = panel * Product::kWidth, count = std::min<int64_t>(Product::kWidth, state_ - column);
        F* const to = states + i * state_ + column;
        for (int64_t u = 0; u < count; ++u) to[u] = kGates == 3 ? to[u] + sums[u] : sums[u];
      });
    }
    for (int64_t i = 0; i < piece.count(); ++i) {
      Numbers<F>(gradients_.initial).store_row(states + i * state_, piece.state_row(i), state_);
      Numbers<F>(gradients_.initial_cell).store_row(cells + i * hidden_, piece.state_row(i), hidden_);
    }
  }

  /// The whole gradient of a step's state.
  void add_output(int64_t row, F* state) const {
    F wide[kTile];
    const Numbers<F> output(gradients_.output);
    for (int64_t u = 0; output && u < state_; u += kTile) {
      const int64_t count = std::min(kTile, state_ - u);
      add_to(state + u, output.load(row * state_ + u, count, wide), count);
    }
    Numbers<F>(gradients_.projected).store_row(state, row, state_);
  }

  /// The matrix, absent where it is 0, and the row of the state before a step.
  std::pair<Numbers<F>, int64_t> previous_state(const Piece& piece, int64_t i, int64_t t) const {
    if (t > 0) return {output_, piece.row(i, t - 1)};
    return {layer_.initial, piece.state_row(i)};
  }
  void write_previous(const Piece& piece, int64_t i, int64_t t) const {
    if (!gradients_.previous) return;
    const auto [from, row] = previous_state(piece, i, t);
    const Numbers<F> to(gradients_.previous);
    if (from)
      from.copy_row(row, state_, to, piece.row(i, t));
    else
      to.clear_row(piece.row(i, t), state_);
  }

  /// dstate: the gradient of the state before projection; of GRU it becomes the previous state's without the product.
  /// gates: where the gradients go that the product takes.
  void run_cells(const Piece& piece, int64_t i, int64_t t, F* dstate, F* cell, F* gates) const {
    const int64_t row = piece.row(i, t);
    for (int64_t u = 0; u < hidden_; u += kTile) {
      const int64_t count = std::min(kTile, hidden_ - u);
      if constexpr (kGates == 4)
        lstm_units(piece, i, t, u, count, dstate + u, cell + u, gates + u);
      else if constexpr (kGates == 3)
        gru_units(piece, i, t, u, count, dstate + u, gates + u);
      else
        plain_units(row, u, count, dstate + u, gates + u);
      const Numbers<F> to(kGates == 3 ? gradients_.state_gates : gradients_.gates);
      for (int g = 0; g < kGates; ++g) to.store(gates + g * hidden_ + u, (row * kGates + g) * hidden_ + u, count);
    }
  }

  void lstm_units(const Piece& piece, int64_t i, int64_t t, int64_t first, int64_t count, const F* dstate, F* dcell,
                  F* gates) const {
    alignas(64) F wide[4][kTile], initial[kTile] = {}, state[kTile];
    const int64_t row = piece.row(i, t);
    const F* in[4];
    for (int g = 0; g < 4; ++g) in[g] = kept_gates_.load((row * 4 + g) * hidden_ + first, count, wide[g]);
    const F *a = in[0], *b = in[1], *c = in[2], *d = in[3];
    const F* const cells = kept_cells_.template as<F>() + first;
    const F *cell = cells + row * hidden_, *previous = initial;
    if (t > 0)
      previous = cells + piece.row(i, t - 1) * hidden_;
    else if (layer_.initial_cell)
      previous = Numbers<F>(layer_.initial_cell).load(piece.state_row(i) * hidden_ + first, count, initial);
#pragma GCC ivdep
    for (int64_t u = 0; u < count; ++u) {
      LstmCell<F> unit{{a[u], b[u], c[u], d[u]}, cell[u], F(0)};
      unit.backward(previous[u], dstate[u], dcell[u]);
      for (int g = 0; g < 4; ++g) gates[g * hidden_ + u] = unit.gates[g];
      dcell[u] = unit.cell;
      state[u] = unit.state;
    }
    if (gradients_.unprojected) Numbers<F>(gradients_.unprojected).store(state, row * hidden_ + first, count);
  }

  void gru_units(const Piece& piece, int64_t i, int64_t t, int64_t first, int64_t count, F* dstate, F* gates) const {
    alignas(64) F wide[4][kTile], before[kTile] = {}, dnew[kTile];
    const int64_t row = piece.row(i, t);
    const auto gate = [&](int g) { return kept_gates_.load((row * 3 + g) * hidden_ + first, count, wide[g]); };
    const F *const a = gate(0), *const b = gate(1), *const c = gate(2);
    const F *const product = kept_hidden_.load(row * hidden_ + first, count, wide[3]), *previous = before;
    const auto [states, state_row] = previous_state(piece, i, t);
    if (states) previous = states.load(state_row * state_ + first, count, before);
#pragma GCC ivdep
    for (int64_t u = 0; u < count; ++u) {
      GruCell<F> unit{{a[u], b[u], c[u]}, product[u], F(0)};
      unit.backward(previous[u], dstate[u]);
      gates[u] = unit.gates[0];
      gates[hidden_ + u] = unit.gates[1];
      gates[2 * hidden_ + u] = unit.hidden;
      dnew[u] = unit.gates[2];
      dstate[u] = unit.state;
    }
    const Numbers<F> to(gradients_.gates);
    const int64_t at = row * 3 * hidden_ + first;
    to.store(gates, at, count);
    to.store(gates + hidden_, at + hidden_, count);
    to.store(dnew, at + 2 * hidden_, count);
  }

  void plain_units(int64_t row, int64_t first, int64_t count, const F* dstate, F* gates) const {
    F wide[kTile];
    const F* const state = output_.load(row * hidden_ + first, count, wide);
    const auto backward = [&]<bool kRelu>() {
#pragma GCC ivdep
      for (int64_t u = 0; u < count; ++u) gates[u] = PlainCell<F, kRelu>::backward(state[u], dstate[u]);
    };
    layer_.kind == RecurrentKind::kRelu ? backward.template operator()<true>() : backward.template operator()<false>();
  }

  const RecurrentLayer& layer_;
  int64_t hidden_, state_, pieces_, per_piece_ = 0;
  Product weight_, projection_;
  WorkspaceParts memory_;
  F *weight_at_, *projection_at_, *states_, *cells_, *gates_, *unprojected_;
  Numbers<F> kept_gates_, kept_hidden_, output_;
  ConstView kept_cells_;
  RecurrentGradients gradients_;
};

/// body.operator()<Pass<F, gates>>().
template <template <class, int> class Pass, class Body>
auto with_pass(const RecurrentLayer& layer, const Body& body) {
  const auto of_type = [&]<class F>() {
    switch (layer.kind) {
      case RecurrentKind::kLstm:
        return body.template operator()<Pass<F, 4>>();
      case RecurrentKind::kGru:
        return body.template operator()<Pass<F, 3>>();
      default:
        return body.template operator()<Pass<F, 1>>();
    }
  };
  return layer.weight.dtype == DType::kFloat64 ? of_type.template operator()<double>()
                                               : of_type.template operator()<float>();
}

}  // namespace

int64_t recurrent_packed_bytes(Stream, RecurrentLayer layer, bool backward) {
  const auto bytes = [&]<class Pass>() { return Pass(layer, nullptr).packed_bytes(); };
  return backward ? with_pass<Backward>(layer, bytes) : with_pass<Forward>(layer, bytes);
}
void recurrent_pack(Stream, RecurrentLayer layer, bool backward, void* packed) {
  const auto pack = [&]<class Pass>() { Pass(layer, nullptr).pack_weight(packed); };
  return backward ? with_pass<Backward>(layer, pack) : with_pass<Forward>(layer, pack);
}

int64_t recurrent_forward_workspace(Stream, RecurrentLayer layer) {
  return with_pass<Forward>(layer, [&]<class Pass>() { return Pass(layer, nullptr).bytes(); });
}
void recurrent_forward(Stream, RecurrentLayer layer, RecurrentKept kept, View output, View last, View last_cell,
                       void* workspace) {
  if (layer.batch() == 0) return;
  with_pass<Forward>(layer, [&]<class Pass>() { Pass(layer, workspace).run(kept, output, last, last_cell); });
}

int64_t recurrent_backward_workspace(Stream, RecurrentLayer layer) {
  return with_pass<Backward>(layer, [&]<class Pass>() { return Pass(layer, nullptr).bytes(); });
}
void recurrent_backward(Stream, RecurrentLayer layer, RecurrentKept kept, ConstView output,
                        RecurrentGradients gradients, void* workspace) {
  if (layer.batch() == 0) return;
  with_pass<Backward>(layer, [&]<class Pass>() { Pass(layer, workspace).run(kept, output, gradients); });
}

}  // namespace tern::kernels::TERN_CPU

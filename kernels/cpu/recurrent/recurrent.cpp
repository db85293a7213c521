// Recurrent layers: the batch is divided among the threads, each of which takes all steps of its sequences without
// waiting for the others. The product with the state and the cell are one pass, panel by panel of the packed weight.

#if !defined(__clang__)  // GCC 12 warns at level v3 of 2^62 rounds of a loop over at most kUnits elements
#pragma GCC diagnostic ignored "-Waggressive-loop-optimizations"
#endif

#include "tern/kernels/recurrent/recurrent.h"

#include "tern/kernels/cpu/recurrent/product.h"
#include "tern/kernels/cpu/rows.h"
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

/// to = row of x, or 0 where x is absent.
template <class T, class F>
void load_row(ConstView x, int64_t row, int64_t width, F* to) {
  if (!x) {
    std::fill_n(to, width, F(0));
    return;
  }
  const F* const wide = widen(x.as<T>() + row * width, to, width);
  if (wide != to) std::copy_n(wide, width, to);
}
template <class T, class F>
void store_row(const F* from, View x, int64_t row, int64_t width) {
  if (x) narrow(from, x.as<T>() + row * width, width);
}

/// Columns as they are.
template <class P>
auto in_order(int64_t width) {
  return [width](int64_t panel, int i) { return panel * P::kWidth + i < width ? panel * P::kWidth + i : -1; };
}
template <class P>
int64_t panels_for(int64_t width) {
  return (width + P::kWidth - 1) / P::kWidth;
}

// ---- forward ----

/// The layer of one kind. A panel has the columns of all gates of some units, or of more units where there is one gate.
template <class T, RecurrentKind kKind>
class Forward {
  using F = ComputeType<T>;
  static constexpr int kGates = static_cast<int>(gates_of(kKind));
  using Gates = Panels<F, kGates == 1 ? 4 : kGates>;
  using Projection = Panels<F, 4>;
  static constexpr int64_t kUnits = Gates::kWidth / kGates;

 public:
  Forward(const RecurrentLayer& layer, void* memory)
      : layer_(layer),
        hidden_(layer.hidden()),
        state_(layer.state()),
        pieces_(pieces_of<F>(layer)),
        weight_(state_, (hidden_ + kUnits - 1) / kUnits),
        projection_(hidden_, layer.projection ? panels_for<Projection>(state_) : 0),
        memory_(memory, kPart) {
    weight_at_ = memory_.template take<F>(layer.packed_weight ? 0 : weight_.numbers());
    projection_at_ = memory_.template take<F>(projection_.numbers());
    bias_ = memory_.template take<F>(kGates * hidden_);
    per_piece_ = (layer.batch() + pieces_ - 1) / pieces_;
    for (F*& states : states_) states = memory_.template take<F>(pieces_ * per_piece_ * state_);
    cells_ = memory_.template take<F>(pieces_ * per_piece_ * hidden_);
    unprojected_ = memory_.template take<F>(layer.projection ? pieces_ * per_piece_ * hidden_ : 0);
  }
  int64_t bytes() const { return memory_.bytes(); }
  int64_t packed_bytes() const { return weight_.numbers() * static_cast<int64_t>(sizeof(F)); }

  void pack_weight(void* memory) {
    const T* const weight = layer_.weight.template as<T>();
    weight_.pack(
        static_cast<F*>(memory),
        [&](int64_t panel, int i) {
          const int64_t unit = panel * kUnits + i % kUnits;
          return unit < hidden_ ? i / kUnits * hidden_ + unit : -1;
        },
        [&](int64_t k, int64_t column) { return static_cast<F>(weight[column * state_ + k]); });
  }

  void run(const RecurrentKept& kept, View output, View last, View last_cell) {
    kept_ = kept;
    output_ = output;
    last_ = last;
    last_cell_ = last_cell;
    if (layer_.packed_weight)
      weight_.set_packed(layer_.packed_weight);
    else
      pack_weight(weight_at_);
    if (layer_.projection) {
      const T* const projection = layer_.projection.template as<T>();
      projection_.pack(projection_at_, in_order<Projection>(state_),
                       [&](int64_t k, int64_t column) { return static_cast<F>(projection[column * hidden_ + k]); });
    }
    load_row<T>(layer_.bias, 0, kGates * hidden_, bias_);
    parallel_for(pieces_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) run_piece({layer_.steps, p, pieces_});
    });
  }

 private:
  void run_piece(const Piece& piece) {
    const int64_t at = piece.index * per_piece_;
    F *states[] = {states_[0] + at * state_, states_[1] + at * state_}, *cells = cells_ + at * hidden_;
    for (int64_t i = 0; i < piece.count(); ++i) {
      load_row<T>(layer_.initial, piece.state_row(i), state_, states[0] + i * state_);
      load_row<T>(layer_.initial_cell, piece.state_row(i), hidden_, cells + i * hidden_);
    }
    for (int64_t t = 0, running = piece.running(0); running > 0; ++t) {
      F* const unprojected = layer_.projection ? unprojected_ + at * hidden_ : states[1];
      weight_.multiply(running, states[0], state_, [&](int64_t panel, int64_t i, const F* sums) {
        const int64_t unit = panel * kUnits, count = std::clamp<int64_t>(hidden_ - unit, 1, kUnits);
        const F* const state = kKind == RecurrentKind::kGru ? states[0] + i * state_ + unit : nullptr;
        F *cell = cells + i * hidden_ + unit, *to = unprojected + i * hidden_ + unit;
        if (count == kUnits)  // a constant, so that loops become vectors
          finish(kUnits, piece.row(i, t), unit, sums, state, cell, to);
        else
          finish(count, piece.row(i, t), unit, sums, state, cell, to);
      });
      if (layer_.projection) project(piece, t, running, unprojected, states[1]);
      const int64_t next = piece.running(t + 1);
      for (int64_t i = next; i < running; ++i) {
        store_row<T>(states[1] + i * state_, last_, piece.state_row(i), state_);
        store_row<T>(cells + i * hidden_, last_cell_, piece.state_row(i), hidden_);
      }
      std::swap(states[0], states[1]);
      running = next;
    }
  }

  void project(const Piece& piece, int64_t t, int64_t running, const F* unprojected, F* states) {
    projection_.multiply(running, unprojected, hidden_, [&](int64_t panel, int64_t i, const F* sums) {
      const int64_t column = panel * Projection::kWidth, count = std::min<int64_t>(Projection::kWidth, state_ - column);
      write_state(count, sums, output_.as<T>() + piece.row(i, t) * state_ + column, states + i * state_ + column);
    });
  }

  /// The next step takes the state as the output stores it.
  [[gnu::always_inline]] static void write_state(int64_t count, const F* values, T* output, F* state) {
    if constexpr (kIsHalf<T>) {
      narrow(values, output, count);
      for (int64_t u = 0; u < count; ++u) state[u] = static_cast<F>(output[u]);
    } else {
      for (int64_t u = 0; u < count; ++u) output[u] = state[u] = values[u];
    }
  }

  /// The units from `unit` on, from the products of the state.
  [[gnu::always_inline]] void finish(int64_t count, int64_t row, int64_t unit, const F* sums, const F* previous,
                                     F* cell, F* to) const {
    alignas(64) F gates[kGates][kUnits], values[kUnits] = {}, wide[kUnits];
    T* const kept = kept_.gates.template as<T>() + row * kGates * hidden_ + unit;
    for (int g = 0; g < kGates; ++g) {
      const F *x = widen(kept + g * hidden_, wide, count), *bias = bias_ + g * hidden_ + unit;
      const F* const sum = sums + g * kUnits;
      for (int64_t u = 0; u < count; ++u) gates[g][u] = kKind == RecurrentKind::kGru ? x[u] : x[u] + (sum[u] + bias[u]);
    }
    if constexpr (kKind == RecurrentKind::kLstm) {
      finish_lstm(count, gates, cell, values);
      if (kept_.cells) std::copy_n(cell, count, kept_.cells.template as<F>() + row * hidden_ + unit);
    } else if constexpr (kKind == RecurrentKind::kGru) {
      finish_gru(count, gates, sums, bias_ + unit, previous, values, wide);
      if (kept_.hidden) narrow(wide, kept_.hidden.template as<T>() + row * hidden_ + unit, count);
    } else {
      for (int64_t u = 0; u < count; ++u) values[u] = PlainCell<F, kKind == RecurrentKind::kRelu>::forward(gates[0][u]);
    }
    if (kept_.cells || kept_.hidden)
      for (int g = 0; g < kGates; ++g) narrow(gates[g], kept + g * hidden_, count);
    if (layer_.projection)
      std::copy_n(values, count, to);
    else
      write_state(count, values, output_.as<T>() + row * state_ + unit, to);
  }

  [[gnu::always_inline]] static void finish_lstm(int64_t count, F (&gates)[kGates][kUnits], F* cell, F* state) {
#pragma GCC ivdep
    for (int64_t u = 0; u < count; ++u) {
      LstmCell<F> unit{{gates[0][u], gates[1][u], gates[2][u], gates[3][u]}, F(0), F(0)};
      unit.forward(cell[u]);
      for (int g = 0; g < 4; ++g) gates[g][u] = unit.gates[g];
      cell[u] = unit.cell;
      state[u] = unit.state;
    }
  }
  [[gnu::always_inline]] void finish_gru(int64_t count, F (&gates)[kGates][kUnits], const F* sums, const F* bias,
                                         const F* previous, F* state, F* hidden) const {
#pragma GCC ivdep
    for (int64_t u = 0; u < count; ++u) {
      GruCell<F> unit{{gates[0][u], gates[1][u], gates[2][u]}, sums[2 * kUnits + u] + bias[2 * hidden_ + u], F(0)};
      unit.forward(sums[u] + bias[u], sums[kUnits + u] + bias[hidden_ + u], previous[u]);
      for (int g = 0; g < 3; ++g) gates[g][u] = unit.gates[g];
      hidden[u] = unit.hidden;
      state[u] = unit.state;
    }
  }

  const RecurrentLayer& layer_;
  int64_t hidden_, state_, pieces_, per_piece_ = 0;
  Gates weight_;
  Projection projection_;
  WorkspaceParts memory_;
  F *weight_at_, *projection_at_, *bias_, *states_[2], *cells_, *unprojected_;
  RecurrentKept kept_;
  View output_, last_, last_cell_;
};

// ---- backward ----

template <class T, RecurrentKind kKind>
class Backward {
  using F = ComputeType<T>;
  static constexpr int kGates = static_cast<int>(gates_of(kKind));
  using Product = Panels<F, 4>;

 public:
  Backward(const RecurrentLayer& layer, void* memory)
      : layer_(layer),
        hidden_(layer.hidden()),
        state_(layer.state()),
        pieces_(pieces_of<F>(layer)),
        weight_(kGates * hidden_, panels_for<Product>(state_)),
        projection_(state_, layer.projection ? panels_for<Product>(hidden_) : 0),
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

  void pack_weight(void* memory) {
    const T* const weight = layer_.weight.template as<T>();
    weight_.pack(static_cast<F*>(memory), in_order<Product>(state_),
                 [&](int64_t k, int64_t column) { return static_cast<F>(weight[k * state_ + column]); });
  }

  void run(const RecurrentKept& kept, ConstView output, const RecurrentGradients& gradients) {
    kept_ = kept;
    output_ = output;
    gradients_ = gradients;
    if (layer_.packed_weight)
      weight_.set_packed(layer_.packed_weight);
    else
      pack_weight(weight_at_);
    if (layer_.projection) {
      const T* const projection = layer_.projection.template as<T>();
      projection_.pack(projection_at_, in_order<Product>(hidden_),
                       [&](int64_t k, int64_t column) { return static_cast<F>(projection[k * hidden_ + column]); });
    }
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
      load_row<T>(gradients_.last, piece.state_row(i), state_, states + i * state_);
      load_row<T>(gradients_.last_cell, piece.state_row(i), hidden_, cells + i * hidden_);
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
        for (int64_t u = 0; u < count; ++u) to[u] = kKind == RecurrentKind::kGru ? to[u] + sums[u] : sums[u];
      });
    }
    for (int64_t i = 0; i < piece.count(); ++i) {
      store_row<T>(states + i * state_, gradients_.initial, piece.state_row(i), state_);
      store_row<T>(cells + i * hidden_, gradients_.initial_cell, piece.state_row(i), hidden_);
    }
  }

  /// The whole gradient of a step's state.
  void add_output(int64_t row, F* state) const {
    F wide[kTile];
    for (int64_t u = 0; gradients_.output && u < state_; u += kTile) {
      const int64_t count = std::min(kTile, state_ - u);
      add_to(state + u, widen(gradients_.output.as<T>() + row * state_ + u, wide, count), count);
    }
    store_row<T>(state, gradients_.projected, row, state_);
  }

  /// The row of the state before a step, or null where it is 0.
  const T* previous_state(const Piece& piece, int64_t i, int64_t t) const {
    if (t > 0) return output_.as<T>() + piece.row(i, t - 1) * state_;
    return layer_.initial ? layer_.initial.template as<T>() + piece.state_row(i) * state_ : nullptr;
  }
  void write_previous(const Piece& piece, int64_t i, int64_t t) const {
    if (!gradients_.previous) return;
    T* const to = gradients_.previous.as<T>() + piece.row(i, t) * state_;
    if (const T* from = previous_state(piece, i, t))
      std::copy_n(from, state_, to);
    else
      std::fill_n(to, state_, T{});
  }

  /// dstate: the gradient of the state before projection; of GRU it becomes the previous state's without the product.
  /// gates: where the gradients go that the product takes.
  void run_cells(const Piece& piece, int64_t i, int64_t t, F* dstate, F* cell, F* gates) const {
    const int64_t row = piece.row(i, t);
    for (int64_t u = 0; u < hidden_; u += kTile) {
      const int64_t count = std::min(kTile, hidden_ - u);
      if constexpr (kKind == RecurrentKind::kLstm)
        lstm_units(piece, i, t, u, count, dstate + u, cell + u, gates + u);
      else if constexpr (kKind == RecurrentKind::kGru)
        gru_units(piece, i, t, u, count, dstate + u, gates + u);
      else
        plain_units(row, u, count, dstate + u, gates + u);
      const View to = kKind == RecurrentKind::kGru ? gradients_.state_gates : gradients_.gates;
      for (int g = 0; g < kGates; ++g)
        narrow(gates + g * hidden_ + u, to.as<T>() + (row * kGates + g) * hidden_ + u, count);
    }
  }

  void lstm_units(const Piece& piece, int64_t i, int64_t t, int64_t first, int64_t count, const F* dstate, F* dcell,
                  F* gates) const {
    alignas(64) F wide[4][kTile], initial[kTile] = {}, state[kTile];
    const int64_t row = piece.row(i, t);
    const T* const kept = kept_.gates.template as<T>() + row * 4 * hidden_ + first;
    const F* in[4];
    for (int g = 0; g < 4; ++g) in[g] = widen(kept + g * hidden_, wide[g], count);
    const F *a = in[0], *b = in[1], *c = in[2], *d = in[3];
    const F* const cells = kept_.cells.template as<F>() + first;
    const F *cell = cells + row * hidden_, *previous = initial;
    if (t > 0)
      previous = cells + piece.row(i, t - 1) * hidden_;
    else if (layer_.initial_cell)
      previous = widen(layer_.initial_cell.template as<T>() + piece.state_row(i) * hidden_ + first, initial, count);
#pragma GCC ivdep
    for (int64_t u = 0; u < count; ++u) {
      LstmCell<F> unit{{a[u], b[u], c[u], d[u]}, cell[u], F(0)};
      unit.backward(previous[u], dstate[u], dcell[u]);
      for (int g = 0; g < 4; ++g) gates[g * hidden_ + u] = unit.gates[g];
      dcell[u] = unit.cell;
      state[u] = unit.state;
    }
    if (gradients_.unprojected) narrow(state, gradients_.unprojected.as<T>() + row * hidden_ + first, count);
  }

  void gru_units(const Piece& piece, int64_t i, int64_t t, int64_t first, int64_t count, F* dstate, F* gates) const {
    alignas(64) F wide[4][kTile], before[kTile] = {}, dnew[kTile];
    const int64_t row = piece.row(i, t);
    const T* const kept = kept_.gates.template as<T>() + row * 3 * hidden_ + first;
    const F *a = widen(kept, wide[0], count), *b = widen(kept + hidden_, wide[1], count);
    const F* const c = widen(kept + 2 * hidden_, wide[2], count);
    const F* const product = widen(kept_.hidden.template as<T>() + row * hidden_ + first, wide[3], count);
    const F* previous = before;
    if (const T* state = previous_state(piece, i, t)) previous = widen(state + first, before, count);
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
    T* const to = gradients_.gates.as<T>() + row * 3 * hidden_ + first;
    narrow(gates, to, count);
    narrow(gates + hidden_, to + hidden_, count);
    narrow(dnew, to + 2 * hidden_, count);
  }

  void plain_units(int64_t row, int64_t first, int64_t count, const F* dstate, F* gates) const {
    F wide[kTile];
    const F* const state = widen(output_.as<T>() + row * hidden_ + first, wide, count);
#pragma GCC ivdep
    for (int64_t u = 0; u < count; ++u)
      gates[u] = PlainCell<F, kKind == RecurrentKind::kRelu>::backward(state[u], dstate[u]);
  }

  const RecurrentLayer& layer_;
  int64_t hidden_, state_, pieces_, per_piece_ = 0;
  Product weight_, projection_;
  WorkspaceParts memory_;
  F *weight_at_, *projection_at_, *states_, *cells_, *gates_, *unprojected_;
  RecurrentKept kept_;
  ConstView output_;
  RecurrentGradients gradients_;
};

/// body.operator()<Pass<T, kind>>().
template <template <class, RecurrentKind> class Pass, class Body>
auto with_pass(const RecurrentLayer& layer, const Body& body) {
  return dispatch_float(layer.weight.dtype, [&]<class T>() {
    switch (layer.kind) {
      case RecurrentKind::kLstm:
        return body.template operator()<Pass<T, RecurrentKind::kLstm>>();
      case RecurrentKind::kGru:
        return body.template operator()<Pass<T, RecurrentKind::kGru>>();
      case RecurrentKind::kTanh:
        return body.template operator()<Pass<T, RecurrentKind::kTanh>>();
      default:
        return body.template operator()<Pass<T, RecurrentKind::kRelu>>();
    }
  });
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

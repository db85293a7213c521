// Recurrent layers in the shapes of a text classifier, by cuDNN and by Tern's kernels, against float64 on the CPU.
//
// Each step is checked with the state that the device itself had before it, which its output says exactly: what it adds
// to the error is one step's rounding, whatever the number of steps. The cells of an LSTM are not an output; their
// error follows from step to step by the forget gate.

#include "tern/core/ops/recurrent/recurrent.h"
#include "tern/kernels/cuda/cudnn/recurrent.h"
#include "tern/tests/cuda/large_shapes.h"

namespace tern {
namespace {

struct Layer {
  RecurrentKind kind;
  std::vector<int64_t> lengths;
  Tensors tensors;  // x, the two weights, the two biases
};

class LargeRecurrent : public LargeParity {
 protected:
  void TearDown() override { kernels::cuda::set_cudnn_recurrent(before_); }

  Layer layer(RecurrentKind kind, DType dtype, int64_t in, int64_t hidden, int64_t batch, int64_t shortest,
              int64_t longest) {
    Layer made{kind, {}, {}};
    int64_t rows = 0;
    for (int64_t i = 0; i < batch; ++i) made.lengths.push_back(i == 0 ? longest : whole_in(shortest, longest));
    for (const int64_t length : made.lengths) rows += length;
    const int64_t width = kernels::gates_of(kind) * hidden;
    const auto draw = [&](const Shape& shape, int64_t terms) {
      return mul(normal(shape, float32), 1 / std::sqrt(static_cast<double>(terms))).to(dtype);
    };
    made.tensors = {draw({rows, in}, 1), draw({width, in}, in), draw({width, hidden}, hidden), draw({width}, 1),
                    draw({width}, 1)};
    return made;
  }

  /// A value in float64, and how far the device's may be from it.
  struct Bounded {
    Tensor value, error;
  };
  static Bounded sigmoid_of(const Bounded& x, double extra) {
    return {sigmoid(x.value), add(mul(x.error, 0.25), extra)};
  }
  static Bounded tanh_of(const Bounded& x, double extra) { return {tanh(x.value), add(x.error, extra)}; }
  static Bounded product(const Bounded& a, const Bounded& b) {
    return {mul(a.value, b.value),
            add(add(mul(abs(a.value), b.error), mul(abs(b.value), a.error)), mul(a.error, b.error))};
  }
  static Bounded plus(const Bounded& a, const Bounded& b) { return {add(a.value, b.value), add(a.error, b.error)}; }
  static Bounded part(const Bounded& x, int64_t gate, int64_t hidden) {
    return {x.value.slice(1, gate * hidden, (gate + 1) * hidden), x.error.slice(1, gate * hidden, (gate + 1) * hidden)};
  }
  /// x weight^T + bias, whose sums and stores in `dtype` have errors.
  static Bounded sums(const Tensor& x, const Tensor& weight, const Tensor& bias, DType dtype) {
    const Tensor value = linear(x, weight, bias), size = linear(abs(x), abs(weight), abs(bias));
    const double addition = dtype == float32 ? unit_of(float32) : kSum;
    return {value, add(mul(size, static_cast<double>(x.size(1) + 1) * addition), mul(abs(value), 2 * unit_of(dtype)))};
  }

  void expect_steps(const Layer& layer, DType dtype, const RecurrentLayout& layout, const RecurrentResult& found,
                    const std::string& what) {
    Tensors t;
    for (const Tensor& x : layer.tensors) t.push_back(x.to(float64));
    const Tensor y = found.output.detach().to(cpu).to(float64);
    const int64_t hidden = t[2].size(1), batch = layout.batch();
    const double unit = unit_of(dtype) + 0x1p-20;  // of storing a value, or of exp and tanh
    const Bounded of_input = sums(t[0], t[1], t[3], dtype);
    const bool is_lstm = layer.kind == RecurrentKind::kLstm;
    Tensor state = zeros({batch, hidden}, {.dtype = float64});
    Bounded cell{state, state};
    const Tensor order = layout.order().to(cpu);
    for (int64_t step = 0; step < layout.steps(false).steps; ++step) {
      const Tensor rows = layout.rows_of_step(step, false).to(cpu);
      const int64_t running = rows.numel();
      const Tensor before = state.slice(0, 0, running);
      const Bounded x{index_select(of_input.value, 0, rows), index_select(of_input.error, 0, rows)};
      const Bounded h = sums(before, t[2], t[4], dtype), both = plus(x, h);
      Bounded after;
      if (is_lstm) {
        const auto gate = [&](int64_t g) { return sigmoid_of(part(both, g, hidden), unit); };
        const Bounded old{cell.value.slice(0, 0, running), cell.error.slice(0, 0, running)};
        cell = plus(product(gate(1), old), product(gate(0), tanh_of(part(both, 2, hidden), unit)));
        cell.error = add(cell.error, mul(abs(cell.value), 2 * unit));  // of the sum, and where the cell is stored
        after = product(gate(3), tanh_of(cell, unit));
      } else {
        const Bounded reset = sigmoid_of(part(both, 0, hidden), unit), update = sigmoid_of(part(both, 1, hidden), unit);
        const Bounded fresh = tanh_of(plus(part(x, 2, hidden), product(reset, part(h, 2, hidden))), 3 * unit);
        const Bounded difference{sub(before, fresh.value), add(fresh.error, 2 * unit)};
        after = plus(fresh, product(update, difference));
      }
      const Tensor actual = index_select(y, 0, rows);
      const Tensor bound = add(after.error, add(mul(abs(after.value), 2 * unit), smallest_of(dtype)));
      ASSERT_TRUE(all(le(abs(sub(actual, after.value)), bound)).item<bool>())
          << what << ", step " << step << ": off by " << max(abs(sub(actual, after.value))).item<double>()
          << ", bounds up to " << max(bound).item<double>();
      state = actual;
      // The sequences that end here: their last states.
      const int64_t next = step + 1 < layout.steps(false).steps ? layout.rows_of_step(step + 1, false).numel() : 0;
      for (int64_t i = next; i < running; ++i) {
        const auto sequence = order[i].item<int64_t>();
        expect_equal(found.last[sequence].detach().to(cpu).to(float64),
                     found.output[rows[i].item<int64_t>()].to(float64), what + ", last state");
        if (is_lstm)
          expect_within(cell.value[i], add(cell.error[i], mul(abs(cell.value[i]), 2 * unit)),
                        found.last_cell[sequence].to(float64), what + ", last cell");
      }
    }
  }

  /// The gradients of a layer's tensors in float64 on the CPU.
  static Tensors gradients_of(const Layer& layer, const Tensor& dy) {
    Tensors wide, gradients;
    for (const Tensor& t : layer.tensors) wide.push_back(t.to(float64).set_requires_grad(true));
    recurrent(layer.kind, wide[0], RecurrentLayout::packed(layer.lengths), {wide[1], wide[2], wide[3], wide[4]})
        .output.backward(dy.to(float64));
    for (const Tensor& t : wide) gradients.push_back(t.grad());
    return gradients;
  }

  void expect_layer(const Layer& layer, DType dtype) {
    int64_t rows = 0;
    for (const int64_t length : layer.lengths) rows += length;
    const Tensor dy = normal({rows, layer.tensors[2].size(1)}, dtype);
    const Tensors expected = gradients_of(layer, dy);
    for (const bool library : {true, false}) {
      kernels::cuda::set_cudnn_recurrent(library);
      const std::string what = std::string(layer.kind == RecurrentKind::kLstm ? "LSTM" : "GRU") +
                               (library ? " by cuDNN, " : ", ") + name_of(dtype);
      const Tensors leaves = leaves_of(layer.tensors);
      const auto layout = RecurrentLayout::packed(layer.lengths, kCuda);
      const RecurrentResult found =
          recurrent(layer.kind, leaves[0], layout, {leaves[1], leaves[2], leaves[3], leaves[4]});
      found.output.backward(dy.to(kCuda));
      expect_steps(layer, dtype, layout, found, what);
      if (HasFailure()) return;
      // Relative to the largest of each tensor. Rounding errors of steps are independent and pass on like the gradients
      // themselves, whose slopes with these weights shrink by half or more in each step: those of a few steps count.
      for (size_t i = 0; i < leaves.size(); ++i) {
        const double largest = max(abs(expected[i])).item<double>(), error = 16 * unit_of(dtype) + 1e-4;
        expect_rounded(expected[i], full(expected[i].shape(), largest * error, {.dtype = float64}), leaves[i].grad(),
                       what + ", gradient " + std::to_string(i));
      }
    }
  }

 private:
  const bool before_ = kernels::cuda::cudnn_recurrent();
};

/// The first and the second layer of an LSTM of 256 for 32 texts of 50 to 400 tokens.
TEST_F(LargeRecurrent, Lstm) {
  for (const DType dtype : {float32, bfloat16})
    for (const int64_t in : {300, 256}) {
      const int64_t hidden = size(256, 4, 8);
      expect_layer(
          layer(RecurrentKind::kLstm, dtype, size(in, 3, 9), hidden, size(32, 3, 5), size(50, 1, 2), size(400, 6, 9)),
          dtype);
      if (HasFailure()) return;
    }
}

TEST_F(LargeRecurrent, Gru) {
  for (const DType dtype : {float32, bfloat16}) {
    expect_layer(layer(RecurrentKind::kGru, dtype, size(256, 3, 9), size(512, 4, 8), size(24, 3, 5), size(20, 1, 2),
                       size(150, 6, 9)),
                 dtype);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace tern

// Recurrent layers over a batch of equal sequences, and over one of lengths from an eighth to the whole; a step by
// hand.

#include "tern/bench/benchmark.h"
#include "tern/core/autograd/engine.h"
#include "tern/core/ops/ops.h"

namespace tern::bench {
namespace {

constexpr int64_t kBatch = 32;

/// From steps / 8 to steps, or all of them `steps`.
std::vector<int64_t> lengths_of(int64_t steps, bool equal) {
  std::vector<int64_t> lengths;
  const int64_t batch = scaled(kBatch, 3);
  for (int64_t i = 0; i < batch; ++i)
    lengths.push_back(equal ? steps : steps / 8 + i * (steps - steps / 8) / (batch - 1));
  return lengths;
}

void add_recurrent(RecurrentKind kind, const char* name, int64_t full_steps, int64_t full_width, bool equal) {
  const int64_t steps = scaled(full_steps, 8), width = scaled(full_width);
  const int64_t gates = kernels::gates_of(kind) * width;
  for (const bool backward : {false, true}) {
    const auto layout_of = [=] { return RecurrentLayout::packed(lengths_of(steps, equal), place()); };
    const double rows = static_cast<double>(RecurrentLayout::packed(lengths_of(steps, equal)).rows());
    const double flops = 4 * rows * static_cast<double>(gates * width) * (backward ? 3 : 1);
    add(name_of_row(name, equal ? "equal" : "lengths", backward ? "with_backward" : "forward", kBatch, full_steps,
                    full_width),
        {.flops = flops}, [=]() -> Call {
          Generator generator(1);
          const auto random = [&](int64_t m, int64_t n) {
            return (randn({m, n}, generator, {.device = place()}) * 0.05).set_requires_grad(backward);
          };
          const RecurrentLayout layout = layout_of();
          const Tensor x = random(layout.rows(), width), input = random(gates, width), state = random(gates, width);
          return [=] {
            const Tensor y = recurrent(kind, x, layout, {input, state}).output;
            if (backward) keep(grad({sum(y)}, {x, input, state})[0]);
          };
        });
  }
}

const Rows registered([] {
  for (const bool equal : {true, false}) {
    add_recurrent(RecurrentKind::kLstm, "lstm", 128, 256, equal);
    add_recurrent(RecurrentKind::kGru, "gru", 128, 256, equal);
  }
  add_recurrent(RecurrentKind::kLstm, "lstm", 1, 256, true);
});

}  // namespace
}  // namespace tern::bench

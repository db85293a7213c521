// The CTC loss of a batch of speech, with its gathers; the gradient is that by the log-probabilities.

#include "tern/bench/benchmark.h"
#include "tern/core/autograd/engine.h"
#include "tern/core/ops/ops.h"

namespace tern::bench {
namespace {

void add_ctc(int64_t full_frames, int64_t full_batch, int64_t classes, int64_t full_labels) {
  const int64_t frames = scaled(full_frames, 30), batch = scaled(full_batch, 2), labels = scaled(full_labels, 5);
  for (const bool backward : {false, true})
    add(name_of_row("ctc_loss", backward ? "with_backward" : "forward", full_frames, full_batch, classes, full_labels),
        {}, [=]() -> Call {
          Generator generator(1);
          Tensor leaf = log_softmax(randn({frames, batch, classes}, generator, {.device = place()}));
          leaf.set_requires_grad(true);
          const Tensor targets = randint(1, classes, {batch, labels}, generator);
          const Tensor lengths = full({batch}, static_cast<double>(frames), {.dtype = int64});
          const Tensor counts = full({batch}, static_cast<double>(labels), {.dtype = int64});
          return [=] {
            const Tensor loss = ctc_loss(leaf, targets, lengths, counts);
            if (backward) keep(grad({loss}, {leaf})[0]);
          };
        });
}

const Rows registered([] {
  add_ctc(500, 16, 100, 80);
  add_ctc(200, 32, 30, 30);
});

}  // namespace
}  // namespace tern::bench

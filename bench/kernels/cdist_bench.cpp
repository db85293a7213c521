// Distances between the rows of two matrices, and their gradients by both.

#include "tern/bench/benchmark.h"
#include "tern/core/autograd/engine.h"
#include "tern/core/ops/ops.h"

namespace tern::bench {
namespace {

void add_cdist(int64_t rows, int64_t cols, int64_t depth, double order, const char* name) {
  for (const bool backward : {false, true})
    add(name_of_row("cdist", name, backward ? "with_backward" : "forward", rows, cols, depth), {}, [=]() -> Call {
      Generator generator(1);
      const int64_t m = scaled(rows, 40), n = scaled(cols, 40);
      const auto random = [&](int64_t height, int64_t width) {
        return randn({height, width}, generator, {.device = place()});
      };
      Tensor x = random(m, depth), z = random(n, depth);
      const Tensor dy = random(m, n);
      x.set_requires_grad(backward);
      z.set_requires_grad(backward);
      return [=] {
        const Tensor y = cdist(x, z, order);
        if (backward) keep(grad({y}, {x, z}, {.gradients = {dy}})[0]);
      };
    });
}

const Rows registered([] {
  add_cdist(512, 512, 64, 2, "euclidean");
  add_cdist(1024, 1024, 16, 2, "euclidean");
  add_cdist(512, 512, 64, 1, "manhattan");
});

}  // namespace
}  // namespace tern::bench

// Rotary embeddings of queries: tokens, heads, head_dim.

#include "tern/core/ops/attention/rotary.h"

#include "tern/bench/benchmark.h"

namespace tern::bench {
namespace {

const Rows rows([] {
  const int64_t tokens = scaled(device().is_cuda() ? 16384 : 2048);
  for (const DType dtype : {float32, bfloat16})
    add_op_with_backward(
        name_of_row("rotary", dtype), [](const Tensor& x, const Tensor& positions) { return rotary(x, positions); },
        Input({tokens, 12, 64}, dtype), Input({tokens}, int64, 4096));
});

}  // namespace
}  // namespace tern::bench

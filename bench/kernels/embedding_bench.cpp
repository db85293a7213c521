// BERT's token embedding: 30,522 rows, and the tokens of a batch. Backward writes the whole gradient.

#include "tern/kernels/embedding.h"

#include <memory>

#include "tern/bench/benchmark.h"
#include "tern/core/memory/index_check.h"

namespace tern::bench {
namespace {

int64_t words() { return scaled(30522, 500); }
int64_t tokens() { return scaled(device().is_cuda() ? 16384 : 4096); }

void add_embedding(int64_t width) {
  const double rows_read = static_cast<double>(tokens() * (2 * width * 4 + 8));
  add(name_of_row("embedding/forward", width), {.bytes = rows_read}, [=]() -> Call {
    const Buffer weight(float32, {words(), width}), ids(int64, {tokens()}, words()), y(float32, {tokens(), width});
    const auto check = std::make_shared<IndexCheck>("embedding", place());
    return [=] { kernels::embedding_forward(stream(), weight.view(), ids.view(), y.view(), check->data()); };
  });
  const double all_rows = static_cast<double>((tokens() + words()) * width * 4 + tokens() * 8);
  add(name_of_row("embedding/backward", width), {.bytes = all_rows}, [=]() -> Call {
    const Buffer dy(float32, {tokens(), width}), ids(int64, {tokens()}, words()), dweight(float32, {words(), width});
    const Scratch workspace(kernels::embedding_backward_workspace(stream(), tokens(), words(), width));
    return [=] { kernels::embedding_backward(stream(), dy.view(), ids.view(), 0, workspace.data(), dweight.view()); };
  });
}

void add_gather() {  // one logit per row
  add("gather", {.bytes = static_cast<double>(tokens() * 16)}, []() -> Call {
    const Buffer x(float32, {tokens(), 1024}), index(int64, {tokens(), 1}, 1024), y(float32, {tokens(), 1});
    const auto check = std::make_shared<IndexCheck>("gather", place());
    return [=] { kernels::gather(stream(), x.view(), 1, index.view(), y.view(), check->data()); };
  });
}

const Rows rows([] {
  add_embedding(scaled(128));
  if (!is_tiny()) add_embedding(768);
  add_gather();
});

}  // namespace
}  // namespace tern::bench

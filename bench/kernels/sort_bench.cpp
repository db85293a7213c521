// Sorting and selecting within rows: few long rows, as a vocabulary's logits, and many short ones. Bytes: values read,
// values and indices written.

#include "tern/kernels/sort.h"

#include <utility>
#include <vector>

#include "tern/bench/benchmark.h"

namespace tern::bench {
namespace {

void add_sort(DType dtype, int64_t rows, int64_t cols) {
  const double bytes = static_cast<double>(rows * cols * (2 * size_of(dtype) + 8));
  add(name_of_row("sort_rows", dtype, rows, cols), {.bytes = bytes, .dtype = dtype}, [=]() -> Call {
    const Buffer x(dtype, {rows, cols}, 1000), values(dtype, {rows, cols}), index(int64, {rows, cols});
    const Scratch workspace(kernels::sort_rows_workspace(stream(), rows, cols, dtype));
    return [=] { kernels::sort_rows(stream(), x.view(), true, workspace.data(), values.view(), index.view()); };
  });
}

void add_top_k(DType dtype, int64_t rows, int64_t cols, int64_t k) {
  const double bytes = static_cast<double>(rows * (cols * size_of(dtype) + k * (size_of(dtype) + 8)));
  add(name_of_row("top_k_rows", dtype, rows, cols, k), {.bytes = bytes, .dtype = dtype}, [=]() -> Call {
    const Buffer x(dtype, {rows, cols}, 1000), values(dtype, {rows, k}), index(int64, {rows, k});
    const Scratch workspace(kernels::top_k_rows_workspace(stream(), rows, cols, k, dtype));
    return [=] { kernels::top_k_rows(stream(), x.view(), true, true, workspace.data(), values.view(), index.view()); };
  });
}

/// The gradient of top_k_rows.
void add_scatter(int64_t rows, int64_t cols, int64_t k) {
  const double bytes = static_cast<double>(rows * (cols * 4 + k * (4 + 8)));
  add(name_of_row("scatter_rows", float32, rows, cols, k), {.bytes = bytes}, [=]() -> Call {
    const Buffer x(float32, {rows, cols}), y(float32, {rows, k}), index(int64, {rows, k});
    const Scratch workspace(kernels::top_k_rows_workspace(stream(), rows, cols, k, float32));
    kernels::top_k_rows(stream(), x.view(), true, true, workspace.data(), y.view(), index.view());
    return [=] { kernels::scatter_rows(stream(), y.view(), index.view(), x.view()); };
  });
}

std::vector<std::pair<int64_t, int64_t>> sizes() {
  if (is_tiny()) return {{3, 100}};
  return {{64, 30522}, {device().is_cuda() ? 65536 : 4096, 256}};
}

const Rows registered([] {
  for (const auto& [rows, cols] : sizes()) {
    for (const DType dtype : {float32, bfloat16, int64}) add_sort(dtype, rows, cols);
    for (const int64_t k : {int64_t{1}, int64_t{50}}) add_top_k(float32, rows, cols, k);
    add_scatter(rows, cols, 50);
  }
});

}  // namespace
}  // namespace tern::bench

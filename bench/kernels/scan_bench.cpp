// Running sums and extremes within rows, and the positions that a mask selects.

#include "tern/kernels/scan.h"

#include "tern/bench/benchmark.h"

namespace tern::bench {
namespace {

void add_cumulative_sum(DType dtype, bool reverse, int64_t rows, int64_t cols) {
  const DType result = is_floating(dtype) ? dtype : int64;
  const double bytes = static_cast<double>(rows * cols * (size_of(dtype) + size_of(result)));
  add(name_of_row("cumulative_sum", reverse ? "reverse" : "forward", dtype, rows, cols),
      {.bytes = bytes, .dtype = dtype}, [=]() -> Call {
        const Buffer x(dtype, {rows, cols}), y(result, {rows, cols});
        const Scratch workspace(kernels::cumulative_sum_workspace(stream(), rows, cols, dtype));
        return [=] { kernels::cumulative_sum(stream(), x.view(), reverse, workspace.data(), y.view()); };
      });
}

void add_cumulative_extreme(DType dtype, int64_t rows, int64_t cols) {
  const double bytes = static_cast<double>(rows * cols * (2 * size_of(dtype) + size_of(int64)));
  add(name_of_row("cumulative_extreme", dtype, rows, cols), {.bytes = bytes, .dtype = dtype}, [=]() -> Call {
    const Buffer x(dtype, {rows, cols}), y(dtype, {rows, cols}), index(int64, {rows, cols});
    const Scratch workspace(kernels::cumulative_extreme_workspace(stream(), rows, cols, dtype));
    return [=] { kernels::cumulative_extreme(stream(), true, x.view(), workspace.data(), y.view(), index.view()); };
  });
}

/// A mask that selects every fourth element.
void add_select(int64_t n) {
  const int64_t selected = (n + 3) / 4;
  add(name_of_row("select_positions", n), {.bytes = static_cast<double>(n + 8 * selected)}, [=]() -> Call {
    std::vector<bool> chosen(static_cast<size_t>(n));
    for (size_t i = 0; i < chosen.size(); i += 4) chosen[i] = true;
    const Tensor mask = from_vector(chosen, {n}, {.dtype = boolean, .device = place()});
    const Buffer positions(int64, {selected});
    const Scratch workspace(kernels::select_positions_workspace(stream(), n));
    return [=] { kernels::select_positions(stream(), mask.view(), workspace.data(), positions.view()); };
  });
}

void add_unravel(int64_t n) {
  add(name_of_row("unravel_positions", n), {.bytes = static_cast<double>(n * 8 * (1 + 3))}, [=]() -> Call {
    const int64_t cols = 64, planes = 16;
    const Buffer positions(int64, {n}, n * cols * planes), y(int64, {n, 3});
    return [=] {
      const int64_t shape[] = {n, cols, planes};
      kernels::unravel_positions(stream(), positions.view(), 3, shape, y.view());
    };
  });
}

const Rows registered([] {
  const int64_t rows = scaled(device().is_cuda() ? 16384 : 4096), cols = scaled(1024), all = rows * cols;
  for (const DType dtype : {float32, bfloat16, int64}) add_cumulative_sum(dtype, false, rows, cols);
  add_cumulative_sum(float32, true, rows, cols);
  add_cumulative_sum(float32, false, 1, all);  // one row: cut into parts
  add_cumulative_extreme(float32, rows, cols);
  add_cumulative_extreme(float32, 1, all);
  add_select(all);
  add_unravel(all / 4);
});

}  // namespace
}  // namespace tern::bench

// Reductions of a matrix: over all elements, along rows, along columns. optimizer_bench.cpp has the gradient norm.

#include "tern/kernels/reduce.h"

#include "tern/bench/benchmark.h"

namespace tern::bench {
namespace {

using kernels::Reduction;

Shape matrix() { return {scaled(device().is_cuda() ? 16384 : 4096), scaled(device().is_cuda() ? 3072 : 1024)}; }
double bytes_of(DType dtype) { return static_cast<double>(matrix().numel() * size_of(dtype)); }

void add_reduction(const std::string& name, Reduction reduction, uint32_t dims, DType dtype) {
  const Shape result{dims & 1 ? 1 : matrix()[0], dims & 2 ? 1 : matrix()[1]};
  add(name_of_row("reduce", name, dtype), {.bytes = bytes_of(dtype), .dtype = dtype}, [=]() -> Call {
    const Buffer x(dtype, matrix()), y(dtype, result);
    const Scratch workspace(kernels::reduce_workspace(stream(), x.view(), dims, y.view()));
    return [=] { kernels::reduce(stream(), reduction, x.view(), dims, workspace.data(), y.view()); };
  });
}

void add_arg_max() {
  add("arg_max", {.bytes = bytes_of(float32)}, []() -> Call {
    const Buffer x(float32, matrix()), index(int64, {matrix()[0], 1});
    const Scratch workspace(kernels::arg_extreme_workspace(stream(), x.view(), 1, index.view()));
    return [=] { kernels::arg_extreme(stream(), true, x.view(), 1, workspace.data(), index.view()); };
  });
}

void add_column_sum(DType dtype) {  // the bias gradient
  add(name_of_row("column_sum", dtype), {.bytes = bytes_of(dtype), .dtype = dtype}, [=]() -> Call {
    const Buffer x(dtype, matrix()), y(dtype, {matrix()[1]});
    const Scratch workspace(kernels::column_sum_workspace(stream(), matrix()[0], matrix()[1], dtype));
    return [=] { kernels::column_sum(stream(), x.view(), false, workspace.data(), y.view()); };
  });
}

const Rows rows([] {
  for (const DType dtype : {float32, bfloat16}) {
    add_reduction("sum_of_rows", Reduction::kSum, 2, dtype);
    add_reduction("sum_of_columns", Reduction::kSum, 1, dtype);
    add_column_sum(dtype);
  }
  add_reduction("sum_of_all", Reduction::kSum, 3, float32);
  add_reduction("max_of_rows", Reduction::kMax, 2, float32);
  for (const uint32_t dims : {1u, 2u}) {
    const std::string of = dims == 1 ? "_of_columns" : "_of_rows";
    add_reduction("deviations" + of, Reduction::kDeviations, dims, float32);
    add_reduction("log_sum_exp" + of, Reduction::kLogSumExp, dims, float32);
  }
  add_arg_max();
});

}  // namespace
}  // namespace tern::bench

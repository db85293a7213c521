// What ops count for the profiler, of known shapes: bytes of memory and floating-point operations.

#include "tern/core/autograd/checkpoint.h"
#include "tern/core/profiler/profiler.h"
#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

const TensorOptions kLeaf{.requires_grad = true};

ProfileReport profiled(const std::function<void()>& fn) {
  Profiler profiler;
  fn();
  return profiler.stop();
}

void expect_counts(const ProfileReport& report, const std::string& name, int64_t calls, double bytes, double flops) {
  const ProfileRow row = report.row(name);
  EXPECT_EQ(row.calls, calls) << name;
  EXPECT_EQ(row.bytes, bytes) << name;
  EXPECT_EQ(row.flops, flops) << name;
}

TEST(ProfilerCounts, Linear) {
  const int64_t rows = 5, in = 7, out = 3;
  const Tensor x = ones({rows, in}, kLeaf), weight = ones({out, in}, kLeaf), bias = ones({out}, kLeaf);
  const ProfileReport report = profiled([&] { linear(x, weight, bias).backward(ones({rows, out})); });
  expect_counts(report, "linear", 1, 4.0 * (rows * in + out * in + out + rows * out), 2.0 * rows * in * out);
  // dy, x and weight are read; dx, dweight and dbias written.
  expect_counts(report, "linear backward", 1, 4.0 * (rows * out + 2 * (rows * in + out * in) + out),
                4.0 * rows * in * out);
}

TEST(ProfilerCounts, RowChain) {
  const int64_t rows = 6, in = 5, hidden = 9, out = 4;
  const ProfileReport report = profiled([&] {
    RowChain chain(ones({rows, in}));
    chain.linear(ones({hidden, in}), ones({hidden}), Activation::kGelu);
    chain.linear(ones({out, hidden}));
    chain.result();
  });
  expect_counts(report, "row_chain", 1, 4.0 * (rows * in + hidden * in + hidden + out * hidden + rows * out),
                2.0 * rows * hidden * (in + out));  // the hidden rows are not in memory
}

TEST(ProfilerCounts, MatmulAndItsBackwardMadeOfOps) {
  const int64_t b = 2, m = 3, k = 5, n = 4;
  const Tensor x = ones({b, m, k}, {.dtype = float64, .requires_grad = true}),
               y = ones({b, k, n}, {.dtype = float64, .requires_grad = true});
  const ProfileReport report = profiled([&] { matmul(x, y).backward(ones({b, m, n}, {.dtype = float64})); });
  const double product = 8.0 * (b * m * k + b * k * n + b * m * n);
  expect_counts(report, "matmul", 3, 3 * product, 3 * 2.0 * b * m * n * k);
  expect_counts(report, "matmul backward", 1, 0, 0);  // its products count theirs
}

TEST(ProfilerCounts, Attention) {
  const int64_t heads = 2, size = 8;
  const std::vector<int64_t> lengths = {3, 0, 5};
  const Tensor qkv = ones({8, 3, heads, size}, kLeaf);
  const auto run = [&](const AttentionOptions& options) {
    return profiled([&] { sum(self_attention(qkv, packed_layout(lengths), options)).backward(); });
  };
  const double pairs = 3 * 3 + 5 * 5;
  const ProfileReport full = run({});
  expect_counts(full, "attention", 1, 4.0 * (qkv.numel() + qkv.numel() / 3), 4 * pairs * heads * size);
  EXPECT_EQ(full.row("attention backward").flops, 10 * pairs * heads * size);
  EXPECT_EQ(run({.causal = true}).row("attention").flops, 4.0 * (6 + 15) * heads * size);
  // Each query sees itself and one neighbour on each side.
  EXPECT_EQ(run({.window = 1}).row("attention").flops, 4.0 * (7 + 13) * heads * size);
}

TEST(ProfilerCounts, PointwiseBroadcastsAndViews) {
  const Tensor x = ones({6, 10}), row = ones({10});
  const ProfileReport report = profiled([&] {
    add(x, row);
    add(x, x);
    add(x, row.expand({6, 10}));
    x.reshape({60}).slice(0, 3, 9);
    x.to(bfloat16);
    Tensor y = x.clone();
    y.add_(x);
  });
  // add(x, row); add(x, x): x once; the expanded row is still ten numbers; in place: both are read, one written.
  expect_counts(report, "add", 4, 4.0 * (60 + 10 + 60) + 4.0 * (60 + 60) + 4.0 * (60 + 10 + 60) + 4.0 * 180, 0);
  expect_counts(report, "reshape", 1, 0, 0);
  expect_counts(report, "slice", 1, 0, 0);
  expect_counts(report, "to", 1, 60 * 4 + 60 * 2, 0);
}

TEST(ProfilerCounts, EmbeddingReadsOnlyItsRows) {
  const Tensor weight = ones({1000, 8}, kLeaf);
  const Tensor ids = from_vector(std::vector<int64_t>{1, 5, 5}, {3});
  const ProfileReport report = profiled([&] { embedding(weight, ids).backward(ones({3, 8})); });
  expect_counts(report, "embedding", 1, 2 * 3 * 8 * 4 + 3 * 8, 0);
  expect_counts(report, "embedding backward", 1, 3 * 8 * 4 + 3 * 8 + 1000 * 8 * 4, 0);  // dy, ids, dweight
}

TEST(ProfilerCounts, RecomputationIsASeparateRange) {
  const Tensor x = ones({4, 4}, kLeaf);
  const auto fn = [](const Tensor& in) { return gelu(gelu(in)); };
  const ProfileReport report = profiled([&] { sum(checkpoint(fn, x)).backward(); });
  EXPECT_EQ(report.row("recomputation").calls, 1);
  EXPECT_EQ(report.row("gelu").calls, 4);
  EXPECT_EQ(report.row("gelu backward").calls, 2);
}

}  // namespace
}  // namespace tern::test

// split, chunk and unbind as one op, and slices that add to one gradient: values, aliasing, gradients of any order, and
// how often a gradient is filled with zeros.

#include <cmath>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/profiler/profiler.h"
#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

/// Number of calls of the op with this name in fn, in forward and in backward.
int64_t calls_of(const std::string& op, const std::function<void()>& fn) {
  Profiler profiler;
  fn();
  int64_t calls = 0;
  for (const ProfileRow& row : profiler.stop().rows())
    if (row.name == op) calls += row.calls;
  return calls;
}

TEST(Split, PiecesAreViewsInOrder) {
  const Tensor x = arange(0, 24).reshape({2, 4, 3});
  const auto equal = [](const Tensor& got, const Tensor& want) {
    expect_equal(got, want.contiguous());
    EXPECT_EQ(got.storage(), want.storage());
    EXPECT_EQ(got.storage_offset(), want.storage_offset());
    EXPECT_EQ(got.is_contiguous(), want.is_contiguous());
  };
  const Tensors pieces = x.split({1, 0, 3}, -2);
  ASSERT_EQ(pieces.size(), 3u);
  equal(pieces[0], x.slice(1, 0, 1));
  EXPECT_EQ(pieces[1].shape(), Shape({2, 0, 3}));
  equal(pieces[2], x.slice(1, 1, 4));
  for (int d = 0; d < 3; ++d) {
    const Tensors rows = x.unbind(d);
    ASSERT_EQ(static_cast<int64_t>(rows.size()), x.size(d));
    for (int64_t i = 0; i < x.size(d); ++i) equal(rows[static_cast<size_t>(i)], x.select(d, i));
    const Tensors columns = x.transpose(0, 2).unbind(-1 - d);
    for (size_t i = 0; i < columns.size(); ++i)
      equal(columns[i], x.transpose(0, 2).select(-1 - d, static_cast<int64_t>(i)));
  }
  EXPECT_EQ(x.chunk(2, 1)[1].shape(), Shape({2, 2, 3}));
  EXPECT_EQ(zeros({0, 2}).split({}, 0).size(), 0u);
  EXPECT_EQ(zeros({0, 2}).unbind(0).size(), 0u);
  EXPECT_EQ(zeros({2, 0}).unbind(0)[1].shape(), Shape({0}));
  expect_error([&] { x.split({1, 2}, 1); }, {"split", "dimension 1"});
  expect_error([&] { x.split({5, -1}, 1); }, {"split"});
  expect_error([&] { x.split({INT64_MAX, INT64_MAX}, 1); }, {"split"});
  expect_error([&] { zeros({}).unbind(); }, {});
}

TEST(Split, WritesReachTheBaseAndAreNoticed) {
  Tensor base = zeros({2, 3});
  Tensors rows = base.unbind(0);
  rows[1].fill_(5);
  EXPECT_EQ(base.to_vector<double>(), (std::vector<double>{0, 0, 0, 5, 5, 5}));
  EXPECT_EQ(base.version(), rows[0].version());

  const Tensor x = ones({4}).set_requires_grad(true);
  Tensor y = x * 2.0;
  Tensors halves = y.chunk(2);
  expect_error([&] { halves[0].add_(1.0); }, {"view"});
  y.mul_(3.0);
  expect_error([&] { sum(halves[1] * 2.0); }, {"modified in place"});
  Tensor z = x * 2.0;
  halves = z.chunk(2);
  const Tensor out = sum(halves[0] * halves[1]);
  {
    const NoGrad off;
    halves[1].fill_(0);
  }
  expect_error([&] { out.backward(); }, {"modified in place"});
}

TEST(Split, GradientsOfAnyOrder) {
  kernels::set_num_threads(1);
  Generator g(fresh_seed());
  const auto check = [&](const TensorOp& op, const Shape& shape) { expect_derivatives(op, {leaf(shape, g)}); };
  check([](const Tensors& in) { return square(in[0].split({1, 3, 2}, 1)[1]); }, {2, 6});
  check([](const Tensors& in) { return cat(in[0].t().split({2, 0, 4}), 0) * in[0].t(); }, {2, 6});
  check([](const Tensors& in) { return in[0].chunk(3, 1)[0] * in[0].chunk(3, 1)[2]; }, {2, 6});
  check([](const Tensors& in) { return in[0].unbind(1)[0] * in[0].unbind(1)[2]; }, {2, 3, 2});
  check([](const Tensors& in) { return stack(in[0].unbind(-1), 1) * square(in[0]); }, {2, 2, 2});
  check([](const Tensors& in) { return cat({in[0], square(in[0]), in[0] * 2.0, in[0], in[0]}, 1); }, {2, 3});
  // Slices of one tensor: the second and third add to the first's gradient.
  check([](const Tensors& in) { return in[0][0] * in[0][1] + in[0][2] * in[0].slice(0, 0, 3, 2)[1]; }, {3, 2});
}

TEST(Split, OneNodeJoinsTheGradients) {
  const Tensor x = ones({6, 4}).set_requires_grad(true);
  const auto run = [&](const Tensors& pieces) {
    Tensor total = zeros({});
    for (size_t i = 0; i < pieces.size(); ++i) total = total + sum(pieces[i] * static_cast<double>(i + 1));
    total.backward();
  };
  const auto fills = [&](const std::function<Tensors(const Tensor&)>& cut) {
    Tensor(x).set_grad({});
    const Tensor y = x * 1.0;
    return calls_of("slice_backward", [&] { run(cut(y)); });
  };
  EXPECT_EQ(fills([](const Tensor& y) { return y.split({1, 2, 3}); }), 0);
  EXPECT_EQ(x.grad().to_vector<double>(),
            (std::vector<double>{1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3}));
  EXPECT_EQ(fills([](const Tensor& y) { return y.chunk(2, 1); }), 0);
  EXPECT_EQ(fills([](const Tensor& y) { return y.unbind(0); }), 0);
  // Only the first of several slices fills.
  EXPECT_EQ(fills([](const Tensor& y) { return Tensors{y[0], y[1], y[2], y[5]}; }), 1);
  EXPECT_EQ(x.grad().to_vector<double>(),
            (std::vector<double>{1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4}));
}

TEST(Split, SlicesDoNotWriteWhatOthersHold) {
  const Tensor x = ones({4}).set_requires_grad(true);
  const Tensor y = x * 1.0;
  Tensor seen;
  // A hook holds the gradient of y + 0; the slice's gradient must not be added to it.
  const Tensor same_as_y = y + 0.0;
  Tensor(same_as_y).register_hook([&](const Tensor& g) { return seen = g, Tensor(); });
  (sum(y.slice(0, 0, 2) * 10.0) + sum(same_as_y * 3.0)).backward();
  EXPECT_EQ(seen.to_vector<double>(), (std::vector<double>{3, 3, 3, 3}));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{13, 13, 3, 3}));
}

/// A hand-written LSTM; x: [steps, batch, in].
Tensor lstm(const Tensor& x, const Tensor& w, const Tensor& u, const Tensor& b) {
  const int64_t batch = x.size(1), width = u.size(1);
  Tensor h = zeros({batch, width}), c = h;
  for (const Tensor& step : linear(x, w, b).unbind(0)) {
    const Tensors gates = (step + linear(h, u)).chunk(4, 1);
    c = sigmoid(gates[0]) * c + sigmoid(gates[1]) * tanh(gates[2]);
    h = sigmoid(gates[3]) * tanh(c);
  }
  return h;
}

TEST(Split, AnLstmWrittenByHandFillsNothing) {
  Generator g(fresh_seed());
  const Tensor x = randn({7, 3, 5}, g).set_requires_grad(true), w = randn({16, 5}, g).set_requires_grad(true);
  const Tensor u = randn({16, 4}, g).set_requires_grad(true), b = randn({16}, g).set_requires_grad(true);
  EXPECT_EQ(calls_of("slice_backward", [&] { sum(lstm(x, w, u, b)).backward(); }), 0);
  // One step by loops: gates are sigmoid(i) etc. of z = W x + b, with h = c = 0.
  const Tensor one = x.detach().slice(0, 0, 1), h = lstm(one, w, u, b);
  const Tensor z = linear(one[0], w, b).detach();
  const auto logistic = [](double v) { return 1 / (1 + std::exp(-v)); };
  const std::vector<double> gate = z.to_vector<double>(), got = h.to_vector<double>();
  for (size_t r = 0; r < 3; ++r)
    for (size_t i = 0; i < 4; ++i) {
      const double* row = gate.data() + 16 * r;
      const double cell = logistic(row[4 + i]) * std::tanh(row[8 + i]);
      // Values below 1, with the rounding of three functions of at most 3 units in the last place and two products.
      EXPECT_NEAR(got[4 * r + i], logistic(row[12 + i]) * std::tanh(cell), 12 * 0x1p-23);
    }
}

}  // namespace
}  // namespace tern::test

// Views against naive indexing. split, chunk and unbind as one op, and slices that add to one gradient: values,
// aliasing, gradients of any order, and how often a gradient is filled with zeros.

#include <algorithm>
#include <numeric>

#include "tern/core/profiler/profiler.h"
#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

/// An independent model of a tensor: values in row-major order and a shape.
struct Model {
  std::vector<double> values;
  Shape shape;

  /// The model of shape `to` whose element at each index is this model's at the index that `source` makes of it.
  Model rearranged(const Shape& to, const std::function<void(const int64_t* index, int64_t* from)>& source) const {
    Model result{{}, to};
    for (int64_t i = 0; i < to.numel(); ++i) {
      int64_t index[8] = {}, from[8] = {}, rest = i, offset = 0;
      for (int d = to.dims() - 1; d >= 0; --d) {
        index[d] = rest % to[d];
        rest /= to[d];
      }
      source(index, from);
      for (int d = 0; d < shape.dims(); ++d) offset = offset * shape[d] + from[d];
      result.values.push_back(values[static_cast<size_t>(offset)]);
    }
    return result;
  }
};

/// A random chain of view ops, applied to a tensor and to its model.
class RandomViews {
 public:
  explicit RandomViews(uint64_t seed) : random_(seed) {
    std::vector<int64_t> shape;
    for (int64_t d = below(4); d >= 0; --d) shape.push_back(1 + below(4));
    x_ = arange(0, static_cast<double>(Shape(shape).numel()), 1, {.dtype = float32}).reshape(shape);
    model_ = {x_.to_vector<double>(), Shape(shape)};
  }
  void step() {
    const int64_t what = below(6);
    if (what == 0) permute();
    if (what == 1 && dims() > 0) slice(static_cast<int>(below(dims())));
    if (what == 2 && dims() > 0 && model_.shape[dims() - 1] > 0) select();
    if (what == 3) reshape();
    if (what == 4 && dims() < 5) expand();
    if (what == 5 && dims() < 6) unsqueeze(static_cast<int>(below(dims() + 1)));
    ASSERT_EQ(x_.shape(), model_.shape);
    EXPECT_EQ(x_.to_vector<double>(), model_.values);
    EXPECT_EQ(x_.clone().to_vector<double>(), model_.values);
  }

 private:
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  int dims() const { return model_.shape.dims(); }

  void permute() {
    std::vector<int> order(static_cast<size_t>(dims()));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    std::vector<int64_t> to;
    for (const int d : order) to.push_back(model_.shape[d]);
    model_ = model_.rearranged(Shape(to), [&](const int64_t* index, int64_t* from) {
      for (const int d : order) from[d] = *index++;
    });
    x_ = x_.permute(order);
  }
  void slice(int d) {
    const int64_t size = model_.shape[d], begin = below(size + 1), end = begin + below(size - begin + 1),
                  by = 1 + below(3);
    const Shape to = model_.shape.with(d, (end - begin + by - 1) / by);
    model_ = model_.rearranged(to, [&](const int64_t* index, int64_t* from) {
      std::copy_n(index, to.dims(), from);
      from[d] = begin + index[d] * by;
    });
    x_ =
        below(2) || end == 0 || end == size ? x_.slice(d, begin, end, by) : x_.slice(d - dims(), begin, end - size, by);
  }
  void select() {
    const Shape to = model_.shape.without(-1);
    const int64_t last = model_.shape[to.dims()], at = below(last);
    model_ = model_.rearranged(to, [&](const int64_t* index, int64_t* from) {
      std::copy_n(index, to.dims(), from);
      from[to.dims()] = at;
    });
    x_ = x_.select(-1, below(2) ? at : at - last);
  }
  /// Flattens everything and splits off a factor, often not a view of the permuted memory, or joins two dimensions.
  void reshape() {
    const int64_t n = model_.shape.numel();
    if (below(2) && dims() >= 2)
      model_.shape = model_.shape.without(0).with(0, model_.shape[0] * model_.shape[1]);
    else
      model_.shape = n > 0 && n % 2 == 0 ? Shape{2, n / 2} : Shape{n, 1};
    x_ = x_.reshape(model_.shape.vec());
  }
  void expand() {
    const Shape to = model_.shape.inserted(0, 1 + below(3));
    model_ = model_.rearranged(to, [&](const int64_t* index, int64_t* from) { std::copy_n(index + 1, dims(), from); });
    x_ = x_.expand(to.vec());
  }
  void unsqueeze(int d) {
    x_ = x_.unsqueeze(d);
    if (below(2))
      x_ = x_.squeeze(d);
    else
      model_.shape = model_.shape.inserted(d, 1);
  }

  std::mt19937_64 random_;
  Tensor x_;
  Model model_;
};

TEST(Views, RandomChainsAgreeWithIndexing) {
  for (uint64_t i = 0; i < 1500 && !HasFailure(); ++i) {
    const uint64_t seed = fresh_random(i)();
    RandomViews views(seed);
    for (int step = 0; step < 6; ++step) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << " step " << step);
      views.step();
    }
  }
}

TEST(Views, ReshapeCopiesOnlyWhenItMust) {
  const Tensor x = arange(0, 24, 1).reshape({2, 3, 4});
  EXPECT_EQ(x.reshape({6, 4}).storage(), x.storage());
  EXPECT_EQ(x.permute({1, 2, 0}).reshape({12, 2}).storage(), x.storage());  // dimensions 1, 2 are still neighbours
  EXPECT_NE(x.permute({2, 0, 1}).reshape({24}).storage(), x.storage());
  EXPECT_EQ(x.slice(1, 0, 2).reshape({2, 8}).storage(), x.storage());  // rows of 8 adjacent elements, 12 apart
  EXPECT_NE(x.slice(1, 0, 2).reshape({16}).storage(), x.storage());
  EXPECT_EQ(x.slice(2, 0, 4, 2).reshape({6, 2}).storage(), x.storage());
  expect_equal(x.slice(1, 0, 2).reshape({16}), cat({x[0].slice(0, 0, 2).flatten(), x[1].slice(0, 0, 2).flatten()}));
  EXPECT_TRUE(same(x.reshape({2, 3, 4}), x));
}

TEST(Views, ReshapeErrors) {
  const Tensor x = zeros({2, 3});
  expect_error([&] { x.reshape({4}); }, {"reshape", "[2, 3]", "[4]"});
  expect_error([&] { x.reshape({-1, -1}); }, {"only one"});
  expect_error([&] { x.reshape({4, -1}); }, {"multiple of 4"});
  expect_error([&] { x.reshape({-2, -3}); }, {">= 0"});
  expect_error([&] { zeros({0}).reshape({0, -1}); }, {"reshape"});
  expect_error([&] { x.reshape({int64_t{1} << 40, int64_t{1} << 40, -1}); }, {"64 bits"});
  EXPECT_EQ(zeros({0, 3}).reshape({3, 0}).shape(), Shape({3, 0}));
  EXPECT_EQ(zeros({0, 3}).reshape({-1, 3}).shape(), Shape({0, 3}));
}

TEST(Views, SliceClampsLikePython) {
  const Tensor x = arange(0, 10, 1);
  EXPECT_EQ(x.slice(0, -3).to_vector<int64_t>(), (std::vector<int64_t>{7, 8, 9}));
  EXPECT_EQ(x.slice(0, -100, -8).to_vector<int64_t>(), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(x.slice(0, 5, 2).numel(), 0);
  EXPECT_EQ(x.slice(0, 20, 30).numel(), 0);
  EXPECT_EQ(x.slice(0, 1, 10, 4).to_vector<int64_t>(), (std::vector<int64_t>{1, 5, 9}));
  EXPECT_EQ(x.slice(0, 3, INT64_MAX, INT64_MAX).to_vector<int64_t>(), (std::vector<int64_t>{3}));
  EXPECT_EQ(x.slice(0, INT64_MIN, INT64_MAX).numel(), 10);
  expect_error([&] { x.slice(0, 0, 5, 0); }, {"step"});
  expect_error([&] { x.slice(1, 0, 5); }, {"dimension 1"});
  expect_error([&] { x[10]; }, {"index 10", "[10]"});
  expect_error([&] { x[-11]; }, {"-11"});
  expect_error([&] { zeros({})[0]; }, {"dimension 0"});
}

TEST(Views, OthersAndErrors) {
  const Tensor x = arange(0, 12, 1).reshape({3, 4});
  expect_error([&] { x.chunk(3, 1); }, {"equal pieces"});
  expect_error([&] { x.permute({0, 0}); }, {"repeated"});
  expect_error([&] { x.permute({0}); }, {"permute"});
  expect_error([&] { x.expand({3, 5}); }, {"[3, 4]", "[3, 5]"});
  expect_error([&] { x.expand({4}); }, {"more dimensions"});
  expect_error([&] { x.expand({-1, 3, 4}); }, {"-1"});
  EXPECT_EQ(x.expand({2, -1, 4}).shape(), Shape({2, 3, 4}));
  EXPECT_EQ(x.flatten().shape(), Shape({12}));
  EXPECT_EQ(zeros({2, 3, 4, 5}).flatten(1, 2).shape(), Shape({2, 12, 5}));
  EXPECT_EQ(zeros({}).flatten().shape(), Shape({1}));
  expect_error([&] { x.flatten(1, 0); }, {"after"});
  EXPECT_EQ(x.squeeze(0).shape(), x.shape());
  EXPECT_EQ(x.t().strides()[0], 1);
  expect_error([&] { zeros(Shape(std::vector<int64_t>(8, 1))).unsqueeze(0); }, {"at most 8"});
}

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
  equal(x.chunk(2, -2)[1], x.slice(1, 2, 4));
  EXPECT_EQ(zeros({0, 2}).split({}, 0).size(), 0u);
  EXPECT_EQ(zeros({0, 2}).unbind(0).size(), 0u);
  EXPECT_EQ(zeros({2, 0}).unbind(0)[1].shape(), Shape({0}));
  expect_error([&] { x.split({1, 2}, 1); }, {"split", "dimension 1", "add up to 3"});
  expect_error([&] { x.split({5}, 1); }, {"split"});
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
  without_grad([&] { halves[1].fill_(0); });
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

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
  /// Indices of elements that `rearranged` makes up.
  static constexpr int64_t kOutside = INT64_MIN, kZero = INT64_MIN + 1;
  static constexpr double kOutsideValue = -5;
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
      const bool outside = std::count(from, from + shape.dims(), kOutside) > 0;
      const bool zero = std::count(from, from + shape.dims(), kZero) > 0;
      for (int d = 0; d < shape.dims() && !outside && !zero; ++d) offset = offset * shape[d] + from[d];
      result.values.push_back(outside ? kOutsideValue : zero ? 0 : values[static_cast<size_t>(offset)]);
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
    const int64_t what = below(13);
    if (what == 0) permute();
    if (what == 1 && dims() > 0) slice(static_cast<int>(below(dims())));
    if (what == 2 && dims() > 0 && model_.shape[dims() - 1] > 0) select();
    if (what == 3) reshape();
    if (what == 4 && dims() < 5) expand();
    if (what == 5 && dims() < 6) unsqueeze(static_cast<int>(below(dims() + 1)));
    if (what == 6) turn();
    if (what == 7 && dims() > 0) repeat_along(static_cast<int>(below(dims())));
    if (what == 8 && dims() > 0) pad_along(static_cast<int>(below(dims())));
    if (what == 9 && dims() > 1) diagonal();
    if (what == 10 && dims() > 1) move(static_cast<int>(below(dims())), static_cast<int>(below(dims())));
    if (what == 11 && dims() > 1) zero_outside_triangle();
    if (what == 12 && dims() > 0) embed_diagonal();
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

  /// flip of some dimensions, or a roll.
  void turn() {
    std::vector<int> chosen;
    std::vector<int64_t> shifts;
    for (int d = 0; d < dims(); ++d)
      if (below(2)) {
        chosen.push_back(d - (below(2) ? dims() : 0));
        shifts.push_back(below(9) - 4);
      }
    const bool flips = chosen.empty() || below(2);
    model_ = model_.rearranged(Shape(model_.shape), [&](const int64_t* index, int64_t* from) {
      std::copy_n(index, dims(), from);
      for (size_t i = 0; i < chosen.size(); ++i) {
        const int d = (chosen[i] + dims()) % dims();
        const int64_t size = model_.shape[d];
        from[d] = flips ? size - 1 - index[d] : ((index[d] - shifts[i]) % size + size) % size;
      }
    });
    x_ = flips ? flip(x_, chosen) : roll(x_, shifts, chosen);
  }
  void repeat_along(int d) {
    const int64_t times = model_.shape.numel() > 500 ? 1 : below(3), size = model_.shape[d], what = below(3);
    model_ = model_.rearranged(model_.shape.with(d, size * times), [&](const int64_t* index, int64_t* from) {
      std::copy_n(index, dims(), from);
      from[d] = what == 0 ? index[d] % size : index[d] / times;
    });
    std::vector<int64_t> repeats(static_cast<size_t>(dims()), 1);
    repeats[static_cast<size_t>(d)] = times;
    x_ = what == 0   ? repeat(x_, repeats)
         : what == 1 ? repeat_interleave(x_, times, d - dims())
                     : repeat_interleave(x_, full({size}, static_cast<double>(times), {.dtype = int64}), d);
  }
  void pad_along(int d) {
    const int64_t size = model_.shape[d];
    const auto mode = static_cast<PadMode>(below(4));
    const bool constant = mode == PadMode::kConstant;
    const int64_t most = constant ? 2 : mode == PadMode::kReflect ? size - 1 : size, least = constant ? -(size / 2) : 0;
    const auto draw = [&] { return least + below(std::max<int64_t>(std::min<int64_t>(most, 2) - least, 0) + 1); };
    const int64_t before = draw(), after = draw();
    model_ = model_.rearranged(model_.shape.with(d, before + size + after), [&](const int64_t* index, int64_t* from) {
      std::copy_n(index, dims(), from);
      int64_t i = index[d] - before;
      if (mode == PadMode::kReflect) i = i < 0 ? -i : i >= size ? 2 * size - 2 - i : i;
      if (mode == PadMode::kReplicate) i = std::clamp<int64_t>(i, 0, size - 1);
      if (mode == PadMode::kCircular) i = (i + size) % size;
      from[d] = i < 0 || i >= size ? Model::kOutside : i;
    });
    std::vector<int64_t> padding(static_cast<size_t>(2 * (dims() - d)), 0);
    padding.end()[-2] = before;
    padding.end()[-1] = after;
    x_ = pad(x_, padding, mode, Model::kOutsideValue);
  }
  void diagonal() {
    const int cols = static_cast<int>(below(dims() - 1)) + 1;
    const int64_t offset = below(5) - 2, rows = model_.shape[0], width = model_.shape[cols];
    const int64_t count =
        std::max<int64_t>(0, offset < 0 ? std::min(rows + offset, width) : std::min(rows, width - offset));
    std::vector<int64_t> to = model_.shape.vec();
    to.erase(to.begin() + cols);
    to.erase(to.begin());
    to.push_back(count);
    model_ = model_.rearranged(Shape(to), [&](const int64_t* index, int64_t* from) {
      for (int d = 1; d < dims(); ++d)
        if (d != cols) from[d] = *index++;
      from[0] = *index - std::min<int64_t>(offset, 0);
      from[cols] = *index + std::max<int64_t>(offset, 0);
    });
    x_ = x_.diagonal(offset, 0, cols);
  }
  void embed_diagonal() {
    const int64_t offset = below(4) - 1, size = model_.shape[dims() - 1] + std::abs(offset);
    if (dims() > 4 || model_.shape.numel() > 500) return;
    const Shape to = model_.shape.with(-1, size).inserted(-1, size);
    model_ = model_.rearranged(to, [&](const int64_t* index, int64_t* from) {
      std::copy_n(index, dims(), from);
      const int64_t row = index[dims() - 1], col = index[dims()];
      from[dims() - 1] = col - row == offset ? std::min(row, col) : Model::kZero;
    });
    x_ = diag_embed(x_, offset);
  }
  void move(int source, int destination) {
    std::vector<int64_t> to = model_.shape.vec();
    to.erase(to.begin() + source);
    to.insert(to.begin() + destination, model_.shape[source]);
    model_ = model_.rearranged(Shape(to), [&](const int64_t* index, int64_t* from) {
      std::vector<int64_t> rest(index, index + dims());
      rest.erase(rest.begin() + destination);
      rest.insert(rest.begin() + source, index[destination]);
      std::copy(rest.begin(), rest.end(), from);
    });
    x_ = x_.movedim(source, destination - dims());
  }
  void zero_outside_triangle() {
    const int64_t diagonal = below(5) - 2;
    const bool lower = below(2) == 0;
    model_ = model_.rearranged(Shape(model_.shape), [&](const int64_t* index, int64_t* from) {
      std::copy_n(index, dims(), from);
      const int64_t above = index[dims() - 1] - index[dims() - 2];
      if (lower ? above > diagonal : above < diagonal) from[0] = Model::kZero;
    });
    x_ = lower ? tril(x_, diagonal) : triu(x_, diagonal);
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

TEST(Views, RepeatInterleaveOfTheFlattenedTensor) {
  Generator generator = fresh_generator(1);
  const Tensor x = randn({4, 3}, generator).t(), repeats = randint(0, 4, {12}, generator);
  const auto values = x.to_vector<double>();
  const auto times = repeats.to_vector<int64_t>();
  std::vector<double> expected;
  for (size_t i = 0; i < values.size(); ++i) expected.insert(expected.end(), static_cast<size_t>(times[i]), values[i]);
  EXPECT_EQ(repeat_interleave(x, repeats).to_vector<double>(), expected);
  EXPECT_EQ(repeat_interleave(x, full({1}, 2, {.dtype = int64})).shape(), Shape({24}));
  EXPECT_EQ(repeat_interleave(zeros({2, 0}), zeros({0}, {.dtype = int64})).shape(), Shape({0}));
}

TEST(Views, OthersAndErrors) {
  const Tensor x = arange(0, 12, 1).reshape({3, 4});
  expect_error([&] { x.chunk(0, 1); }, {"chunk", "positive"});
  expect_error([&] { x.movedim({0, 0}, {0, 1}); }, {"dimension 0", "repeated"});
  expect_error([&] { x.movedim({0, 1}, {1, -1}); }, {"destination -1", "repeated"});
  expect_error([&] { x.unflatten(1, {3, -1}); }, {"unflatten", "dimension 1"});
  expect_error([&] { x.narrow(1, 2, 3); }, {"narrow", "start 2", "[3, 4]"});
  expect_error([&] { x.diagonal(0, 1, -1); }, {"diagonal", "same"});
  expect_error([&] { x.split(0); }, {"split", "positive"});
  expect_error([&] { pad(x, {1}); }, {"pad", "two numbers"});
  expect_error([&] { pad(x, {4, 0}, PadMode::kReflect); }, {"at most 3", "got 4"});
  expect_error([&] { pad(x, {5, 0}, PadMode::kCircular); }, {"at most 4"});
  expect_error([&] { pad(zeros({2, 0}), {1, 0}, PadMode::kReplicate); }, {"at most 0"});
  expect_error([&] { pad(x, {-3, -2}); }, {"remove more"});
  expect_error([&] { pad(x, {-1, 0}, PadMode::kReplicate); }, {"negative"});
  expect_error([&] { flip(x, {1, -1}); }, {"repeated"});
  expect_error([&] { roll(x, {1, 2}, {0}); }, {"2 shifts"});
  expect_error([&] { repeat(x, {2}); }, {"repeat", "fewer"});
  expect_error([&] { repeat_interleave(x, from_vector<int64_t>({1, -1, 0}, {3}), 0); }, {"negative", "-1"});
  expect_error([&] { repeat_interleave(x, from_vector<int64_t>({1, 1}, {2}), 0); }, {"2 repeats for 3"});
  expect_error([&] { repeat_interleave(x, from_vector<int64_t>({1, 1, 1}, {3})); }, {"3 repeats for 12"});
  expect_error([&] { tril(zeros({3})); }, {"tril", "matrices"});
  expect_error([&] { meshgrid({x}); }, {"vectors"});
  EXPECT_EQ(zeros({2, 6}).unflatten(-1, {2, -1}).shape(), Shape({2, 2, 3}));
  EXPECT_EQ(zeros({1, 2, 1, 1}).squeeze({0, 1, -1}).shape(), Shape({2, 1}));
  EXPECT_EQ(zeros({1, 2, 1, 1}).squeeze().shape(), Shape({2}));
  EXPECT_EQ(hstack({zeros({2}), zeros({})}).shape(), Shape({3}));
  EXPECT_EQ(vstack({zeros({2}), zeros({3, 2})}).shape(), Shape({4, 2}));
  EXPECT_NE(repeat(ones({1, 3}), {4, 1}).storage(), x.storage());
  expect_equal(eye(2, 3), from_vector<float>({1, 0, 0, 0, 1, 0}, {2, 3}));
  EXPECT_EQ(trace(x).item<int64_t>(), 0 + 5 + 10);
  expect_equal(diag(diag(arange(1, 4), 1), 1), arange(1, 4));
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
  const auto sizes_of = [](const Tensors& all) {
    std::vector<int64_t> sizes;
    for (const Tensor& piece : all) sizes.push_back(piece.size(0));
    return sizes;
  };
  using Sizes = std::vector<int64_t>;
  EXPECT_EQ(sizes_of(arange(0, 5).chunk(4)), (Sizes{2, 2, 1}));
  EXPECT_EQ(sizes_of(arange(0, 0).chunk(2)), (Sizes{0, 0}));
  EXPECT_EQ(sizes_of(arange(0, 7).tensor_split(3)), (Sizes{3, 2, 2}));
  EXPECT_EQ(sizes_of(arange(0, 7).tensor_split({2, 1, -3, 9})), (Sizes{2, 0, 3, 3, 0}));
  EXPECT_EQ(sizes_of(arange(0, 7).split(3)), (Sizes{3, 3, 1}));
  EXPECT_EQ(sizes_of(arange(0, 7).tensor_split({3})), (Sizes{3, 4}));  // one index, not a number of pieces
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

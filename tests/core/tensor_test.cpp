// Factories, views, indexing, conversions and in-place ops against naive indexing.

#include <algorithm>
#include <array>
#include <sstream>

#include "tern/core/autograd/node.h"
#include "tern/core/memory/allocator.h"
#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

/// An independent model of a tensor: values in row-major order and a shape.
struct Model {
  std::vector<double> values;
  std::vector<int64_t> shape;

  double at(const std::vector<int64_t>& index) const {
    int64_t offset = 0;
    for (size_t d = 0; d < shape.size(); ++d) offset = offset * shape[d] + index[d];
    return values[static_cast<size_t>(offset)];
  }
  /// The model of the given shape whose element at each index is this model's element at source(index).
  Model rearranged(const std::vector<int64_t>& new_shape,
                   const std::function<std::vector<int64_t>(const std::vector<int64_t>&)>& source) const {
    Model result{{}, new_shape};
    std::vector<int64_t> index(new_shape.size(), 0);
    int64_t count = 1;
    for (int64_t n : new_shape) count *= n;
    for (int64_t i = 0; i < count; ++i) {
      result.values.push_back(at(source(index)));
      for (size_t d = new_shape.size(); d-- > 0;) {
        if (++index[d] < new_shape[d]) break;
        index[d] = 0;
      }
    }
    return result;
  }
};

void expect_model(const Tensor& x, const Model& model) {
  ASSERT_EQ(x.shape().vec(), model.shape);
  EXPECT_EQ(x.to_vector<double>(), model.values);
  EXPECT_EQ(x.clone().to_vector<double>(), model.values);
}

struct Random {
  uint64_t state;
  int64_t below(int64_t n) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(n));
  }
};

/// A random chain of view ops, applied to the model too.
void random_views(uint64_t seed) {
  Random r{seed};
  std::vector<int64_t> shape;
  for (int64_t d = r.below(4); d >= 0; --d) shape.push_back(1 + r.below(4));
  Tensor x = arange(0, static_cast<double>(Shape(shape).numel()), 1, {.dtype = float32}).reshape(shape);
  Model m{x.to_vector<double>(), shape};
  for (int step = 0; step < 6; ++step) {
    const int dims = static_cast<int>(m.shape.size());
    const auto any = [&] { return static_cast<int>(r.below(dims)); };
    switch (r.below(6)) {
      case 0: {
        std::vector<int> order(static_cast<size_t>(dims));
        for (int d = 0; d < dims; ++d) order[static_cast<size_t>(d)] = d;
        for (int d = dims - 1; d > 0; --d)
          std::swap(order[static_cast<size_t>(d)], order[static_cast<size_t>(r.below(d + 1))]);
        std::vector<int64_t> to;
        for (int d : order) to.push_back(m.shape[static_cast<size_t>(d)]);
        m = m.rearranged(to, [&](const auto& i) {
          std::vector<int64_t> from(i.size());
          for (size_t d = 0; d < i.size(); ++d) from[static_cast<size_t>(order[d])] = i[d];
          return from;
        });
        x = x.permute(order);
        break;
      }
      case 1: {
        if (dims == 0) break;
        const int d = any();
        const int64_t size = m.shape[static_cast<size_t>(d)], begin = r.below(size + 1),
                      end = begin + r.below(size - begin + 1), by = 1 + r.below(3);
        std::vector<int64_t> to = m.shape;
        to[static_cast<size_t>(d)] = (end - begin + by - 1) / by;
        m = m.rearranged(to,
                         [&](auto i) { return i[static_cast<size_t>(d)] = begin + i[static_cast<size_t>(d)] * by, i; });
        x = r.below(2) || end == 0 || end == size ? x.slice(d, begin, end, by)
                                                  : x.slice(d - dims, begin, end - size, by);
        break;
      }
      case 2: {
        if (dims == 0 || m.shape[static_cast<size_t>(dims - 1)] == 0) break;
        const int64_t at = r.below(m.shape.back());
        std::vector<int64_t> to(m.shape.begin(), m.shape.end() - 1);
        const int64_t last = m.shape.back();
        m = m.rearranged(to, [&](auto i) { return i.push_back(at), i; });
        x = x.select(-1, r.below(2) ? at : at - last);
        break;
      }
      case 3: {
        // Flattens everything and splits off a factor: often not a view of the permuted memory.
        int64_t n = 1;
        for (int64_t s : m.shape) n *= s;
        std::vector<int64_t> to = n > 0 && n % 2 == 0 ? std::vector<int64_t>{2, n / 2} : std::vector<int64_t>{n, 1};
        if (r.below(2) && dims >= 2) {
          to.assign(m.shape.begin() + 1, m.shape.end());
          to[0] *= m.shape[0];
        }
        m.shape = to;
        x = x.reshape(to);
        break;
      }
      case 4: {
        if (dims >= 5) break;
        const int64_t repeat = 1 + r.below(3);
        std::vector<int64_t> to = m.shape;
        to.insert(to.begin(), repeat);
        m = m.rearranged(to, [](auto i) { return i.erase(i.begin()), i; });
        x = x.expand(to);
        break;
      }
      default: {
        if (dims >= 6) break;
        const int d = static_cast<int>(r.below(dims + 1));
        m.shape.insert(m.shape.begin() + d, 1);
        x = x.unsqueeze(d);
        if (r.below(2)) {
          m.shape.erase(m.shape.begin() + d);
          x = x.squeeze(d);
        }
      }
    }
    expect_model(x, m);
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed << " step " << step;
  }
}

TEST(Views, RandomChainsAgreeWithIndexing) {
  for (uint64_t i = 0; i < 1500 && !HasFailure(); ++i) random_views(fresh_random(i)());
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
  const std::vector<Tensor> parts = x.split({1, 0, 3}, 1);
  EXPECT_EQ(parts[1].shape(), Shape({3, 0}));
  EXPECT_EQ(parts[2].to_vector<int64_t>(), (std::vector<int64_t>{1, 2, 3, 5, 6, 7, 9, 10, 11}));
  EXPECT_EQ(x.chunk(2, -1)[1][0].to_vector<int64_t>(), (std::vector<int64_t>{2, 3}));
  expect_error([&] { x.split({1, 2}, 1); }, {"add up to 3"});
  expect_error([&] { x.split({5}, 1); }, {"split"});
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

TEST(Factories, Values) {
  EXPECT_EQ(arange(0, 1, 0.25, {.dtype = float64}).to_vector<double>(), (std::vector<double>{0, 0.25, 0.5, 0.75}));
  EXPECT_EQ(arange(5, 0, -2).to_vector<int64_t>(), (std::vector<int64_t>{5, 3, 1}));
  EXPECT_EQ(arange(1, 1).numel(), 0);
  EXPECT_EQ(arange(0, 3, -1).numel(), 0);
  expect_error([] { arange(0, 1, 0); }, {"arange"});
  expect_error([] { arange(0, NAN); }, {"finite"});
  expect_error([] { arange(-1e308, 1e308); }, {"too many"});
  EXPECT_EQ(full({2}, 3.5, {.dtype = int32}).to_vector<int32_t>(), (std::vector<int32_t>{3, 3}));
  EXPECT_EQ(tensor({1, 2}).dtype(), float32);
  expect_error([] { from_vector<float>({1, 2}, {3}); }, {"2 values", "[3]"});
  expect_error([] { ones({2}, {.dtype = int64, .requires_grad = true}); }, {"int64"});
  EXPECT_TRUE(zeros({2}, {.requires_grad = true}).requires_grad());
  EXPECT_EQ(from_vector<bool>({true, false}, {2}).to_vector<bool>(), (std::vector<bool>{true, false}));
  EXPECT_EQ(zeros_like(ones({2, 3}, {.dtype = float16})).describe(), "float16 [2, 3] on cpu");
  Generator g;
  expect_error([&] { rand({2}, g, {.dtype = int64}); }, {"rand", "int64"});
  expect_error([] { empty({1}, {.device = {DeviceType::kCUDA, 0}}); }, {"cuda:0"});
}

TEST(Factories, BlobsReleaseOnceAndAreNotCopied) {
  int released = 0;
  std::array<float, 6> memory = {0, 1, 2, 3, 4, 5};
  {
    Tensor x = from_blob(memory.data(), {2, 3}, float32, [&] { ++released; });
    const Tensor view = x[1];
    x.mul_(2);
    x = Tensor();
    EXPECT_EQ(released, 0);
    EXPECT_EQ(view.to_vector<float>(), (std::vector<float>{6, 8, 10}));
  }
  EXPECT_EQ(released, 1);
  EXPECT_EQ(memory[5], 10);
  expect_error([] { from_blob(nullptr, {1}, float32); }, {"null"});
  EXPECT_EQ(from_blob(nullptr, {0, 4}, float32).numel(), 0);
  const auto storage = std::make_shared<Storage>(16, cpu);
  expect_error([&] { from_storage(storage, 1, {4}, {1}, float32); }, {"inside"});
  expect_error([&] { from_storage(storage, 0, {2}, {-1}, float32); }, {"inside"});
  expect_error([&] { from_storage(storage, 0, {3}, {INT64_MAX / 2 + 1}, float32); }, {"inside"});
  EXPECT_EQ(from_storage(storage, 3, {4}, {-1}, float32).numel(), 4);
}

TEST(Values, ItemAndDataAreChecked) {
  expect_error([] { zeros({2}).item<float>(); }, {"item", "[2]"});
  expect_error([] { zeros({2}).data<double>(); }, {"float32", "float64"});
  expect_error([] { Tensor().shape(); }, {"undefined"});
  EXPECT_EQ(full({1, 1}, 2.75).item<int64_t>(), 2);
  EXPECT_TRUE(full({}, 0.5).item<bool>());
  EXPECT_EQ(full({1}, NAN).item<int64_t>(), 0);
  EXPECT_EQ(full({1}, 1e30).item<int32_t>(), INT32_MAX);
  EXPECT_EQ(full({1}, 70000).to(float16).item<double>(), INFINITY);
}

TEST(Values, ItemIsTheElementInPlace) {
  const std::vector<double> values = {-3, 0.375, 2, 1e20};
  for (const DType dtype : {float64, float32, bfloat16, float16, int64, int32, uint8, boolean}) {
    const Tensor row = from_vector(values, {4}).to(dtype);
    for (int64_t i = 0; i < 4; ++i) {
      // The reference: a copy of the element, converted by the copy kernel.
      const Tensor x = row.slice(0, i, i + 1), copied = x.clone();
      EXPECT_EQ(x.item<float>(), copied.to(float32).data<float>()[0]) << dtype << i;
      EXPECT_EQ(x.item<double>(), copied.to(float64).data<double>()[0]) << dtype << i;
      EXPECT_EQ(x.item<int64_t>(), copied.to(int64).data<int64_t>()[0]) << dtype << i;
      EXPECT_EQ(x.item<int32_t>(), copied.to(int32).data<int32_t>()[0]) << dtype << i;
      EXPECT_EQ(x.item<uint8_t>(), copied.to(uint8).data<uint8_t>()[0]) << dtype << i;
      EXPECT_EQ(x.item<bool>(), copied.to(boolean).data<bool>()[0]) << dtype << i;
    }
  }
  const Tensor x = full({}, 2.5).set_requires_grad(true);
  const int64_t before = allocator(cpu).statistics().allocations;
  EXPECT_EQ(x.item<double>(), 2.5);
  EXPECT_EQ(x.item<int64_t>(), 2);
  EXPECT_EQ(allocator(cpu).statistics().allocations, before);
}

TEST(InPlace, ReadsOverlappingSourcesBeforeWriting) {
  Generator g = fresh_generator();
  Tensor x = randn({67, 67}, g);
  const Tensor before = x.clone();
  x.add_(x.t());
  expect_equal(x, before + before.t());
  Tensor y = before.clone();
  y.mul_(y[3]);
  expect_equal(y, before * before[3]);
  Tensor z = before.clone();
  z.copy_(z.t());
  expect_equal(z, before.t());
  Tensor w = arange(0, 10, 1);
  w.slice(0, 1).copy_(w.slice(0, 0, 9));
  EXPECT_EQ(w.to_vector<int64_t>(), (std::vector<int64_t>{0, 0, 1, 2, 3, 4, 5, 6, 7, 8}));
  Tensor v = before.clone();
  v.sub_(v);
  expect_equal(v, zeros({67, 67}));
}

TEST(InPlace, ConvertsAndBroadcasts) {
  Tensor x = zeros({2, 3}, {.dtype = int32});
  x.copy_(tensor({1.9, -1.9, 300}));
  EXPECT_EQ(x.to_vector<int32_t>(), (std::vector<int32_t>{1, -1, 300, 1, -1, 300}));
  Tensor h = ones({2}, {.dtype = float16});
  h.add_(tensor({0.5, 1.5}));
  EXPECT_EQ(h.dtype(), float16);
  EXPECT_EQ(h.to_vector<double>(), (std::vector<double>{1.5, 2.5}));
  h.add_(ones({2}), -0.5);
  EXPECT_EQ(h.to_vector<double>(), (std::vector<double>{1, 2}));
  h.div_(full({}, 4));
  EXPECT_EQ(h.to_vector<double>(), (std::vector<double>{0.25, 0.5}));
  Tensor s = zeros({3, 4});
  s.t()[1].fill_(7);
  s.select(0, 2).slice(0, 0, 4, 3).add_(1);
  EXPECT_EQ(s.to_vector<double>(), (std::vector<double>{0, 7, 0, 0, 0, 7, 0, 0, 1, 7, 0, 1}));
  Tensor repeated = ones({2});  // so often that threads share it out
  repeated.expand({1 << 20, 2}).fill_(5);
  EXPECT_EQ(repeated.to_vector<double>(), (std::vector<double>{5, 5}));
  Tensor e = zeros({0, 3});
  e.add_(1).mul_(2).copy_(ones({3}));
  EXPECT_EQ(e.numel(), 0);
}

TEST(InPlace, RejectsWhatCannotBeStored) {
  Tensor i = ones({2}, {.dtype = int64}), x = ones({2});
  expect_error([&] { i.add_(0.5); }, {"add_", "0.5", "int64"});
  expect_error([&] { i.mul_(NAN); }, {"mul_"});
  expect_error([&] { i.add_(x); }, {"add", "float32", "int64"});
  expect_error([&] { i.div_(i); }, {"div", "float32", "int64"});
  EXPECT_EQ(i.add_(2).mul_(3).to_vector<int64_t>(), (std::vector<int64_t>{9, 9}));
  expect_error([&] { x.add_(ones({3})); }, {"add_", "[3]", "[2]"});
  expect_error([&] { x.add_(ones({1, 2})); }, {"add_"});
  Tensor wide = x.slice(0, 0, 1).expand({4});
  expect_error([&] { wide.add_(1); }, {"same address"});
  expect_error([&] { wide.copy_(ones({4})); }, {"same address"});
}

TEST(InPlace, CountsVersions) {
  Tensor x = zeros({4});
  const Tensor view = x.slice(0, 1, 3);
  const uint32_t before = x.version();
  x.add_(1);
  EXPECT_EQ(view.version(), before + 1);
  EXPECT_EQ(view.detach().version(), before + 1);
  EXPECT_EQ(x.clone().version(), 0u);
}

TEST(Conversion, KeepsTheTensorWhenNothingChanges) {
  const Tensor x = ones({2, 2});
  EXPECT_TRUE(same(x.to(float32), x));
  EXPECT_TRUE(same(x.contiguous(), x));
  EXPECT_FALSE(same(x.t().contiguous(), x));
  EXPECT_EQ(tensor({0, 0.4, -2, NAN}).to(boolean).to_vector<bool>(), (std::vector<bool>{false, true, true, true}));
  expect_error([&] { x.to(Device{DeviceType::kCUDA, 1}); }, {"cuda:1"});
}

TEST(Empty, EveryOpTakesEmptyTensors) {
  Generator g = fresh_generator();
  const Tensor x = zeros({0, 3}, {.requires_grad = true}), w = randn({4, 3}, g), b = zeros({4});
  const Tensor ids = zeros({0}, {.dtype = int64}), none = zeros({0}, {.dtype = int64});
  const std::vector<std::pair<Tensor, Shape>> results = {
      {x + x, {0, 3}},
      {gelu(x), {0, 3}},
      {pow(x, 2), {0, 3}},
      {where(ge(x, x), x, x), {0, 3}},
      {matmul(x, w.t()), {0, 4}},
      {matmul(x.t(), x), {3, 3}},
      {matmul(zeros({2, 0, 3}), zeros({2, 3, 4})), {2, 0, 4}},
      {matmul(zeros({0, 2, 3}), zeros({3, 4})), {0, 2, 4}},
      {linear(x, w, b, Activation::kGelu), {0, 4}},
      {linear(zeros({5, 0}), zeros({4, 0}), b), {5, 4}},
      {softmax(x), {0, 3}},
      {softmax(x.t()), {3, 0}},
      {log_softmax(x, 0), {0, 3}},
      {layer_norm(x, zeros({3}), zeros({3})), {0, 3}},
      {embedding(w, ids), {0, 3}},
      {index_select(w, 1, none), {4, 0}},
      {gather(x, 0, zeros({0, 3}, {.dtype = int64})), {0, 3}},
      {cat({x, w}), {4, 3}},
      {stack({x, x}), {2, 0, 3}},
      {sum(x, {0}), {3}},
      {sum(x), {}},
      {max(x, {1}), {0}},
      {argmax(x, 1), {0}},
      {cross_entropy(x, ids), {}},
      {dropout(x, {.p = 0.5, .generator = &g}), {0, 3}},
      {self_attention(zeros({0, 3, 2, 4}), packed_layout({})), {0, 8}},
      {self_attention(zeros({0, 3, 2, 4}), packed_layout({0, 0})), {0, 8}},
      {x.slice(1, 0, 2).contiguous().to(float64), {0, 2}}};
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].first.shape(), results[i].second) << i;
    if (!results[i].first.requires_grad()) continue;
    results[i].first.backward(ones(results[i].second, results[i].first.options()));
  }
  EXPECT_EQ(sum(x).item<double>(), 0);
  EXPECT_TRUE(std::isnan(mean(x).item<double>()));
  EXPECT_EQ(matmul(x.t(), x).to_vector<double>(), std::vector<double>(9, 0.0));
  EXPECT_TRUE(all(x).item<bool>());
  EXPECT_FALSE(any(x).item<bool>());
  EXPECT_EQ(x.grad().shape(), Shape({0, 3}));
  expect_error([&] { max(x); }, {"max", "[0, 3]"});
  expect_error([&] { argmax(x, 0); }, {"argmax", "empty"});
  expect_error([&] { softmax(from_vector<int64_t>({1}, {1})); }, {"softmax", "int64"});
}

std::string printed(const Tensor& x) {
  std::ostringstream out;
  out << x;
  return out.str();
}

TEST(Printing, IsPyTorchs) {
  EXPECT_EQ(printed(tensor({1, 2.5, -3})), "tensor([ 1.0000,  2.5000, -3.0000])");
  EXPECT_EQ(printed(tensor({1, 2})), "tensor([1., 2.])");
  EXPECT_EQ(printed(full({}, 3.25)), "tensor(3.2500)");
  EXPECT_EQ(printed(arange(0, 4).reshape({2, 2})), "tensor([[0, 1],\n        [2, 3]], dtype=int64)");
  EXPECT_EQ(printed(from_vector<bool>({true, false}, {2})), "tensor([ true, false], dtype=bool)");
  EXPECT_EQ(printed(tensor({NAN, INFINITY, 1})), "tensor([nan, inf,  1.])");
  EXPECT_EQ(printed(tensor({1e-8, 1})), "tensor([1.0000e-08, 1.0000e+00])");
  EXPECT_EQ(printed(zeros({2, 0})), "tensor([], shape=[2, 0])");
  EXPECT_EQ(printed(Tensor()), "tensor(undefined)");
  EXPECT_EQ(printed(ones({1}, {.dtype = float64, .requires_grad = true})),
            "tensor([1.], dtype=float64, requires_grad=true)");
  EXPECT_EQ(printed(arange(0, 8).reshape({2, 2, 2})),
            "tensor([[[0, 1],\n         [2, 3]],\n\n        [[4, 5],\n         [6, 7]]], dtype=int64)");
}

TEST(Printing, IntegersAreExact) {
  const int64_t beyond = (int64_t{1} << 53) + 1;
  const std::vector<int64_t> values = {beyond, -beyond, INT64_MAX, INT64_MIN, INT64_MIN + 1, 0};
  const Tensor x = from_vector(values, {6});
  EXPECT_EQ(printed(x),
            "tensor([    9007199254740993,    -9007199254740993,  9223372036854775807, -9223372036854775808, "
            "-9223372036854775807,                    0], dtype=int64)");
  EXPECT_EQ(x.to_vector<int64_t>(), values);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(x[static_cast<int64_t>(i)].item<int64_t>(), values[i]);
    EXPECT_EQ(printed(x[static_cast<int64_t>(i)]), "tensor(" + std::to_string(values[i]) + ", dtype=int64)");
  }
  EXPECT_EQ(printed(from_vector(std::vector<int32_t>{INT32_MAX, INT32_MIN}, {2})),
            "tensor([ 2147483647, -2147483648], dtype=int32)");
  EXPECT_EQ(printed(from_vector(std::vector<uint8_t>{0, 7, 255}, {3})), "tensor([  0,   7, 255], dtype=uint8)");
  EXPECT_EQ(printed(from_vector(std::vector<int64_t>{0, 1 << 30}, {2}).to(boolean)),
            "tensor([false,  true], dtype=bool)");
}

TEST(Printing, SummarizesAboveAThousand) {
  EXPECT_EQ(printed(arange(0, 1001)), "tensor([   0,    1,    2, ...,  998,  999, 1000], dtype=int64)");
  EXPECT_EQ(printed(arange(0, 1000)).find("..."), std::string::npos);
  EXPECT_EQ(printed(zeros({1000, 2})).substr(0, 60), "tensor([[0., 0.],\n        [0., 0.],\n        [0., 0.],\n      ");
  EXPECT_LT(printed(zeros({200, 200, 200})).size(), 2000u);
}

TEST(Tensor, StackPutsANewDimensionAnywhere) {
  const Tensor a = tensor({1, 2, 3}), b = tensor({4, 5, 6});
  for (const int d : {0, -2}) EXPECT_EQ(stack({a, b}, d).to_vector<double>(), (std::vector<double>{1, 2, 3, 4, 5, 6}));
  for (const int d : {1, -1}) EXPECT_EQ(stack({a, b}, d).to_vector<double>(), (std::vector<double>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(stack({a, b}, -1).shape(), Shape({3, 2}));
  EXPECT_THROW(stack({a, b}, -3), Error);
  EXPECT_THROW(stack({a, b}, 2), Error);
}

}  // namespace
}  // namespace tern::test

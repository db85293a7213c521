// Shapes, broadcasting and type promotion; factories, conversions, in-place ops and printing.

#include <array>
#include <concepts>
#include <sstream>
#include <type_traits>

#include "tern/core/autograd/node.h"
#include "tern/core/autograd/parameter.h"
#include "tern/core/memory/allocator.h"
#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

// x[0] = y, x.index({0}) = y, x.narrow(0, 0, 1) = y and find(state, "w") = y would write nothing.
static_assert(!std::is_assignable_v<Tensor&&, Tensor> && !std::is_assignable_v<Tensor, const Tensor&>);
static_assert(!std::is_assignable_v<decltype(std::declval<Tensor&>()[0]), Tensor>);
static_assert(!std::is_assignable_v<decltype(std::declval<Tensor&>().index({0})), Tensor>);
// A null pointer is no tensor, and Tensor(0) no number.
static_assert(!std::is_constructible_v<Tensor, std::nullptr_t> && !std::is_convertible_v<int, Tensor> &&
              !std::is_convertible_v<double, Tensor> && !std::is_convertible_v<Tensor, bool>);
template <class T>
constexpr bool kComparesWithNull = requires(const T& x) {
  x == nullptr;
};
template <class T>
constexpr bool kNegates = requires(const T& x) {
  !x;
};
template <class T>
constexpr bool kChains = requires(const T& x) {
  0 < x < 1;
};
static_assert(!kComparesWithNull<Tensor> && !kNegates<Tensor> && !kChains<Tensor>);
// An element has a whole number: x[1.5] would be cut off, and x[true] is a mask in Python.
template <class Index>
constexpr bool kTakesIndex = requires(const Tensor& x, Index index) {
  x[index];
};
static_assert(kTakesIndex<int> && kTakesIndex<int64_t> && kTakesIndex<size_t> && !kTakesIndex<double> &&
              !kTakesIndex<float> && !kTakesIndex<bool> && !kTakesIndex<Tensor>);
// tensor({{1., 2.}}) would be the vector {1, 2}.
template <class T>
constexpr bool kTakesRows = requires(std::initializer_list<std::initializer_list<T>> rows) {
  tensor(rows);
};
static_assert(!kTakesRows<double> && !kTakesRows<int>);
// A constant tensor and a parameter are not written by operators.
template <class T>
constexpr bool kIsAddedTo = requires(T&& x, const Tensor& y) {
  std::forward<T>(x) += y;
};
static_assert(kIsAddedTo<Tensor&> && kIsAddedTo<Tensor> && !kIsAddedTo<const Tensor&> && !kIsAddedTo<Parameter&>);
// Handles themselves are assigned, moved and exchanged.
static_assert(std::is_assignable_v<Tensor&, Tensor> && std::is_assignable_v<Tensor&, const Tensor&>);
static_assert(std::copyable<Tensor> && std::is_nothrow_move_assignable_v<Tensor> &&
              std::is_nothrow_move_constructible_v<Tensor> && std::is_nothrow_swappable_v<Tensor>);

TEST(Factories, Values) {
  EXPECT_EQ(arange(0, 1, 0.25, {.dtype = float64}).to_vector<double>(), (std::vector<double>{0, 0.25, 0.5, 0.75}));
  EXPECT_EQ(arange(5, 0, -2).to_vector<int64_t>(), (std::vector<int64_t>{5, 3, 1}));
  EXPECT_EQ(arange(1, 1).numel(), 0);
  EXPECT_EQ(arange(0, 3, -1).numel(), 0);
  EXPECT_EQ(arange(0, 2.5).to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2}));
  expect_error([] { arange(0, 1, 0); }, {"arange"});
  expect_error([] { arange(0, 1, 0.25); }, {"int64", "0.25", "float32"});
  expect_error([] { arange(0.5, 3); }, {"int64", "0.5", "float32"});
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

TEST(InPlaceOperators, WriteThroughViewsThatNothingHolds) {
  Tensor x = tensor({1, 2, 3, 4}).reshape({2, 2});
  const Tensor y = tensor({10, 20});
  x[0] += y;
  x[1] -= 1;
  x.select(1, 0) *= 2;
  x.t()[1] /= y;
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{22, 2.2F, 4, 0.15F}));
  StateView state{{"x", tensor({1, 2})}};
  find(state, "x") += 1;
  EXPECT_EQ(state[0].tensor.to_vector<float>(), (std::vector<float>{2, 3}));
  for (const auto& lost : std::vector<std::function<void()>>{[&] { x.index({x > 3.0}) += 1; }, [&] { x + x -= y; },
                                                             [&] { x.clone() *= y; }, [&] { exp(x) /= 2; }})
    expect_error(lost, {"would be lost", "index_put_"});
  Tensor whole = arange(0, 2);  // as PyTorch: the result's type cannot become the tensor's
  expect_error([&] { whole += y; }, {"int64", "float32"});
  expect_error([&] { whole /= whole; }, {"int64", "float32"});
}

TEST(Factories, BlobsWithStrides) {
  int released = 0;
  const auto release = [&] { ++released; };
  std::array<float, 6> memory = {0, 1, 2, 3, 4, 5};
  {
    Tensor x = from_blob(memory.data(), {3, 2}, {1, 3}, float32, release);
    EXPECT_FALSE(x.is_contiguous());
    EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{0, 3, 1, 4, 2, 5}));
    x[2].fill_(9);
    EXPECT_EQ(memory, (std::array<float, 6>{0, 1, 9, 3, 4, 9}));
    EXPECT_EQ(x.t().raw_data(), memory.data());
  }
  EXPECT_EQ(released, 1);
  EXPECT_EQ(from_blob(memory.data() + 1, {2, 2}, {0, 2}, float32).to_vector<float>(), (std::vector<float>{1, 3, 1, 3}));
  EXPECT_EQ(from_blob(memory.data(), {1, 1}, {-5, INT64_MAX}, float32).numel(), 1);  // without effect
  EXPECT_EQ(from_blob(memory.data(), {}, std::vector<int64_t>{}, float32).item<float>(), 0);
  EXPECT_EQ(from_blob(nullptr, {0, 4}, {-1, -1}, float32).numel(), 0);
  expect_error([&] { from_blob(memory.data(), {3, 2}, {1}, float32, release); }, {"2 strides", "got 1"});
  expect_error([&] { from_blob(memory.data(), {3, 2}, {-1, 3}, float32, release); }, {"stride -1 of dimension 0"});
  expect_error([&] { from_blob(memory.data(), {3, 2}, {INT64_MAX, 1}, float32, release); }, {"larger than any memory"});
  expect_error([&] { from_blob(memory.data(), {2, 2}, {INT64_MAX / 4, 1}, float32, release); }, {"larger than any"});
  expect_error([&] { from_blob(memory.data(), {2}, float32, release, {DeviceType::kCUDA, 1000}); }, {"cuda:1000"});
  EXPECT_EQ(released, 1);
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
  EXPECT_EQ(from_blob(nullptr, {0, 4}, float32).numel(), 0);
  expect_error([&] { from_blob(nullptr, {2}, float32, [&] { ++released; }); }, {"null"});
  EXPECT_EQ(released, 1);
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
  Tensor u = before.reshape({67 * 67}).clone();  // longer than a tile: a later one reads what an earlier one wrote
  u.slice(0, 1).add_(u.slice(0, 0, 67 * 67 - 1));
  const Tensor flat = before.reshape({67 * 67});
  expect_equal(u.slice(0, 1), flat.slice(0, 1) + flat.slice(0, 0, 67 * 67 - 1));
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

TEST(InPlace, NumbersAreNotRoundedTo16Bits) {
  Tensor x = full({3}, 1.9921875, {.dtype = bfloat16});  // 2^-8 below the next number, 2
  x.mul_(1.0035);                                        // in bfloat16 1
  EXPECT_EQ(x.to_vector<double>(), (std::vector<double>{2, 2, 2}));
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
  const auto expect_shape = [](const Shape& shape, const Tensors& results) {
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(results[i].shape(), shape) << i;
      if (results[i].requires_grad()) results[i].backward(ones(shape, results[i].options()));
    }
  };
  expect_shape({0, 3}, {x + x, gelu(x), pow(x, 2), where(ge(x, x), x, x), softmax(x), embedding(w, ids)});
  expect_shape({0, 3}, {layer_norm(x, zeros({3}), zeros({3})), dropout(x, {.p = 0.5, .generator = &g})});
  expect_shape({0, 3}, {gather(x, 0, zeros({0, 3}, {.dtype = int64})), log_softmax(x, 0)});
  expect_shape({0, 4}, {matmul(x, w.t()), linear(x, w, b, Activation::kGelu)});
  expect_shape({3, 3}, {matmul(x.t(), x)});
  expect_shape({2, 0, 4}, {matmul(zeros({2, 0, 3}), zeros({2, 3, 4}))});
  expect_shape({0, 2, 4}, {matmul(zeros({0, 2, 3}), zeros({3, 4}))});
  expect_shape({5, 4}, {linear(zeros({5, 0}), zeros({4, 0}), b)});
  expect_shape({3, 0}, {softmax(x.t())});
  expect_shape({4, 0}, {index_select(w, 1, none)});
  expect_shape({4, 3}, {cat({x, w})});
  expect_shape({2, 0, 3}, {stack({x, x})});
  expect_shape({3}, {sum(x, {0})});
  expect_shape({0}, {max(x, {1}), argmax(x, 1)});
  expect_shape({}, {sum(x), cross_entropy(x, ids)});
  for (const std::vector<int64_t>& lengths : std::vector<std::vector<int64_t>>{{}, {0, 0}})
    expect_shape({0, 8}, {self_attention(zeros({0, 3, 2, 4}), packed_layout(lengths))});
  expect_shape({0, 2}, {x.slice(1, 0, 2).contiguous().to(float64)});
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

TEST(Shape, HoldsSizes) {
  const Shape s{2, 3, 4};
  EXPECT_EQ(s.dims(), 3);
  EXPECT_EQ(s.numel(), 24);
  EXPECT_EQ(s.size(-1), 4);
  EXPECT_EQ(s.with(1, 7), Shape({2, 7, 4}));
  EXPECT_EQ(s.without(-1), Shape({2, 3}));
  EXPECT_EQ(s.inserted(0, 5), Shape({5, 2, 3, 4}));
  EXPECT_EQ(s.inserted(-1, 5), Shape({2, 3, 4, 5}));
  EXPECT_EQ(s.str(), "[2, 3, 4]");
  EXPECT_EQ(Shape().numel(), 1);
  EXPECT_EQ(Shape().str(), "[]");
  EXPECT_EQ(Shape({3, 0, 5}).numel(), 0);
  EXPECT_NE(Shape({2}), Shape({2, 1}));
  EXPECT_EQ(contiguous_strides(Shape{2, 3, 4})[0], 12);
}

TEST(Shape, RejectsWhatDoesNotFit) {
  expect_error([] { Shape({2, -1}); }, {"[2, -1]", ">= 0"});
  expect_error([] { Shape(std::vector<int64_t>(9, 1)); }, {"at most 8", "9"});
  expect_error([] { Shape({int64_t{1} << 32, int64_t{1} << 31}); }, {"64 bits"});
  expect_error([] { Shape({0, int64_t{1} << 62, 4}); }, {"64 bits"});
  EXPECT_EQ(Shape({int64_t{1} << 31, int64_t{1} << 31}).numel(), int64_t{1} << 62);
  expect_error([] { Shape({2, 3}).size(2); }, {"dimension 2", "[2, 3]"});
  expect_error([] { Shape({2, 3}).wrap(-3); }, {"dimension -3"});
  expect_error([] { Shape({2, 3}).inserted(4, 1); }, {"inserted"});
  expect_error([] { Shape(std::vector<int64_t>(8, 1)).inserted(0, 1); }, {"at most 8"});
}

TEST(Broadcast, FollowsNumPy) {
  const auto b = [](const Shape& x, const Shape& y) { return broadcast_shapes("op", x, y); };
  EXPECT_EQ(b({3, 1}, {4}), Shape({3, 4}));
  EXPECT_EQ(b({}, {2, 3}), Shape({2, 3}));
  EXPECT_EQ(b({1}, {0}), Shape({0}));
  EXPECT_EQ(b({5, 1, 4}, {3, 1}), Shape({5, 3, 4}));
  expect_error([&] { b({3}, {4}); }, {"op", "[3]", "[4]"});
  expect_error([&] { b({0}, {2}); }, {"[0]", "[2]"});
  expect_error([&] { b({int64_t{1} << 40, 1}, {1, int64_t{1} << 40}); }, {"64 bits"});
  EXPECT_TRUE(broadcasts_to({1, 3}, {2, 2, 3}));
  EXPECT_FALSE(broadcasts_to({2, 3}, {3}));
  EXPECT_FALSE(broadcasts_to({2}, {1}));
}

TEST(Broadcast, ValuesAgreeWithIndexing) {
  Generator g = fresh_generator();
  const Tensor a = randn({4, 1, 3}, g), b = randn({5, 1}, g), c = a * b;
  ASSERT_EQ(c.shape(), Shape({4, 5, 3}));
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 5; ++j)
      for (int k = 0; k < 3; ++k) EXPECT_EQ(c[i][j][k].item<float>(), a[i][0][k].item<float>() * b[j][0].item<float>());
}

/// PyTorch's table for two tensors with dimensions.
TEST(Promotion, OfTwoDtypes) {
  EXPECT_EQ(promote(float16, bfloat16), float32);
  EXPECT_EQ(promote(float16, float32), float32);
  EXPECT_EQ(promote(float64, bfloat16), float64);
  EXPECT_EQ(promote(int64, float16), float16);
  EXPECT_EQ(promote(boolean, bfloat16), bfloat16);
  EXPECT_EQ(promote(uint8, int32), int32);
  EXPECT_EQ(promote(int64, int32), int64);
  EXPECT_EQ(promote(boolean, uint8), uint8);
  for (DType d : {float64, float32, bfloat16, float16, int64, int32, uint8, boolean}) EXPECT_EQ(promote(d, d), d);
}

TEST(Promotion, TensorsWithDimensionsCountFirst) {
  const auto of = [](DType d, const Shape& s) { return ones(s, {.dtype = d}); };
  EXPECT_EQ(add(of(float32, {2}), of(float64, {})).dtype(), float32);
  EXPECT_EQ(add(of(float64, {}), of(bfloat16, {2})).dtype(), bfloat16);
  EXPECT_EQ(add(of(int32, {2}), of(int64, {})).dtype(), int32);
  EXPECT_EQ(add(of(int64, {2}), of(float16, {})).dtype(), float16);  // a float scalar tensor turns integers into floats
  EXPECT_EQ(add(of(boolean, {2}), of(int32, {})).dtype(), int32);    // and an integer one turns bools into integers
  EXPECT_EQ(add(of(int64, {}), of(boolean, {2})).dtype(), int64);
  EXPECT_EQ(add(of(float32, {}), of(float64, {})).dtype(), float64);
  EXPECT_EQ(add(of(float16, {2}), of(bfloat16, {2})).dtype(), float32);
  EXPECT_EQ(add(of(float16, {2}), of(int64, {2})).dtype(), float16);
  EXPECT_EQ(where(of(boolean, {2}), of(float32, {2}), of(float64, {})).dtype(), float32);
  EXPECT_EQ(where(of(boolean, {}), of(int32, {2}), of(int64, {})).dtype(), int32);
  EXPECT_EQ(where(of(boolean, {2}), of(float16, {}), of(int64, {2})).dtype(), float16);
}

TEST(Promotion, OfScalarsAndSpecialOps) {
  const Tensor i = ones({2}, {.dtype = int64}), b = ones({2}, {.dtype = boolean}), h = ones({2}, {.dtype = float16});
  expect_dtype(int64, {i + 1, b + 1, sum(b), max(i)});
  expect_dtype(float32, {i * 0.5, i + INFINITY, i + 1e300, div(i, i), i / 2, exp(i)});
  expect_dtype(float16, {h * 0.5, sum(h)});
  expect_dtype(boolean, {lt(i, i), isnan(h)});
  EXPECT_TRUE(std::isnan((i + NAN)[0].item<double>()));
  EXPECT_EQ((b + 1)[0].item<int64_t>(), 2);
  EXPECT_EQ((i / 2)[0].item<double>(), 0.5);
  EXPECT_EQ(sum(ones({300}, {.dtype = boolean})).item<int64_t>(), 300);
  EXPECT_EQ(sum(full({300}, 255, {.dtype = uint8})).item<int64_t>(), 76500);
  expect_error([&] { mean(i); }, {"mean", "int64"});
  EXPECT_EQ(neg(i).to_vector<int64_t>(), (std::vector<int64_t>{-1, -1}));
}

TEST(Promotion, LargeIntegersStayExact) {
  const int64_t big = (int64_t{1} << 62) + 1;
  const Tensor x = from_vector<int64_t>({big, -big}, {2});
  EXPECT_EQ((x + zeros({2}, {.dtype = int64})).to_vector<int64_t>(), (std::vector<int64_t>{big, -big}));
  EXPECT_EQ((x - 1).to_vector<int64_t>(), (std::vector<int64_t>{big - 1, -big - 1}));
  EXPECT_EQ(max(x).item<int64_t>(), big);
  EXPECT_TRUE(eq(x, x + 1).to_vector<bool>() == std::vector<bool>({false, false}));
}

}  // namespace
}  // namespace tern::test

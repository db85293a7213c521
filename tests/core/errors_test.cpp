// What is refused, and what the error says: masks of another convention, moved-from objects, null pointers, and advice
// where the obvious advice would be wrong.

#include <algorithm>
#include <cstring>
#include <sstream>

#include "tern/core/autograd/autocast.h"
#include "tern/core/memory/stream.h"
#include "tern/core/ops/tensor/transfer.h"
#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

// A message is what a stream gives for its parts one after another, whatever their types.
TEST(Messages, PartsAreStreamedInOrder) {
  std::mt19937_64 random = fresh_random();
  const auto streamed = [](const auto&... parts) {
    std::ostringstream out;
    (out << ... << parts);
    return out.str();
  };
  const auto compare = [&](const auto&... parts) {
    EXPECT_EQ(error_of([&] { fail(parts...); }), streamed(parts...));
    EXPECT_EQ(error_of([&] { TERN_CHECK(false, parts...); }), streamed(parts...));
    EXPECT_EQ(detail::concatenate(parts...), streamed(parts...));
  };
  for (int i = 0; i < 50; ++i) {
    const auto bits = static_cast<int64_t>(random());
    const std::string name = std::to_string(random());
    char shorter[32] = {};  // text that ends before its array does
    std::memcpy(shorter, name.data(), std::min<size_t>(name.size(), 7));
    compare(name);
    compare("x: ", bits, ' ', static_cast<int32_t>(bits), static_cast<uint64_t>(bits), " ",
            static_cast<double>(bits) / 3);
    compare(shorter, name.c_str(), std::string_view(name).substr(1), (bits & 1) != 0, static_cast<float>(bits) / 7);
    compare(Shape{bits & 255, 3}, float16, cpu, std::vector<std::string>{name}.front(), "", static_cast<uint8_t>('A'));
  }
}

TEST(Messages, Float64InAutocastIsNotPromisedAConversion) {
  const Tensor wide = ones({4, 3}, {.dtype = float64}), narrow = ones({5, 3}), bias = ones({5}, {.dtype = float64});
  const std::string never = "autocast never converts float64";
  const auto expect_in_autocast = [](auto fn, const std::vector<std::string>& parts) {
    expect_error([&] { autocast(cpu, bfloat16, fn); }, parts, {"converts both"});
  };
  expect_in_autocast([&] { return linear(wide, narrow); }, {"float64", never, "to(float32)"});
  expect_in_autocast([&] { return matmul(wide, narrow.t()); }, {"float64", never, "to(float32)"});
  expect_in_autocast([&] { return linear(narrow, wide); }, {"float64", never, "to(float32)"});
  expect_in_autocast([&] { return linear(ones({4, 3}), narrow, bias); }, {"float64", never, "to(float32)"});
  const Tensor q = ones({3, 1, 2}), k = ones({3, 1, 2}, {.dtype = float64});
  const Tensor kv = ones({3, 2, 1, 2}, {.dtype = float64});
  const SequenceLayout layout = packed_layout({3});
  expect_in_autocast([&] { return attention(q, k, k, layout, layout); }, {never});
  expect_in_autocast([&] { return cross_attention(q, kv, layout, layout); }, {never});
  // Outside a region the message mentions autocast only when it would help.
  expect_error([&] { linear(wide, narrow); }, {}, {"autocast"});
  expect_error([&] { matmul(narrow.to(bfloat16), narrow.t()); }, {"autocast region"});
  expect_error([&] { matmul(narrow.to(int64), narrow.t()); }, {"int64", "to(float32)"});
}

TEST(Messages, IndexSelectNamesItself) {
  const Tensor x = arange(0, 24, 1, {}).reshape({2, 3, 4});
  const auto indices = [](const std::vector<int64_t>& values) {
    return from_vector(values, {static_cast<int64_t>(values.size())});
  };
  for (int d = 0; d < 3; ++d) {
    const std::string size = std::to_string(x.size(d)), beyond = std::to_string(x.size(d) + 7);
    expect_error(
        [&] {
          index_select(x, d, indices({0, 1, x.size(d) + 7, -3}));
        },
        {"index_select: index " + beyond + " at position 2 is outside [0, " + size + ")", "(2 in all)"},
        {"embedding", "gather", "id "});
    expect_error([&] { index_select(x, d - 3, indices({-1})); }, {"index_select: index -1 at position 0"});
  }
  expect_error(
      [&] {
        index_select(arange(0, 5), 0, indices({4, 5}));
      },
      {"index_select: index 5 at position 1 is outside [0, 5)", "(1 in all)"});
  expect_error([&] { embedding(ones({5, 2}), indices({4, 5})); }, {"embedding: id 5 at position 1"});
  expect_error(
      [&] {
        gather(ones({2, 3}), 1, indices({0, 1, 2, 3}).reshape({2, 2}));
      },
      {"gather: index 3 at position 3 is outside [0, 3)", "(1 in all)"});
  expect_error([&] { gather(ones({3}), 0, indices({0, 4})); }, {"gather: index 4 at position 1 is outside [0, 3)"});
}

TEST(Messages, IndexedWritesNameIndexAndPosition) {
  const Tensor x = ones({2, 3, 4}), y = ones({3, 2}), ids = from_vector<int64_t>({0, 3, 1, -4}, {2, 2});
  expect_error(
      [&] {
        x.index({0, ids});
      },
      {"index: index 3 at position 1 is outside [-3, 3)", "(2 in all) of dimension 0"});
  expect_error([&] { Tensor(x).index_put_({0, ids}, 1); }, {"index_put: index 3 at position 1", "[-3, 3)"});
  expect_error([&] { take(y, ids - 6.0); }, {"take: index -10 at position 3 is outside [-6, 6)", "1 in all"});
  expect_error([&] { scatter(y, 0, ids, 1.0); }, {"scatter: index 3 at position 1 is outside [0, 3)", "2 in all"});
  expect_error([&] { Tensor(y).scatter_add_(0, ids, y); }, {"scatter_add_: index 3 at position 1"});
  expect_error([&] { index_add(y, 0, ids[0], y.slice(0, 1)); }, {"index_add: index 3 at position 1", "1 in all"});
  expect_error([&] { one_hot(ids, 3); }, {"one_hot: index 3 at position 1"});
  expect_error([&] { x.index({1, 2, 3, 0}); }, {"4 dimensions", "[2, 3, 4]"});
  expect_error([&] { x.index({0, 3}); }, {"index 3", "dimension 1"});
  expect_error([&] { x.index({Ellipsis{}, 0, Ellipsis{}}); }, {"Ellipsis", "once"});
  expect_error([&] { x.index({ones({3}, {.dtype = boolean})}); }, {"mask [3]", "[2, 3, 4]"});
  expect_error([&] { x.index({ones({2})}); }, {"int64, int32 or bool", "float32"});
  expect_error([&] { x.index({ids[0], ones({3}, {.dtype = int64})}); }, {"[2] and [3]", "broadcast"});
  expect_error([&] { Tensor(x).index_put_({0}, ones({2, 4})); }, {"index_put_", "[2, 4]", "[3, 4]"});
  expect_error([&] { Tensor(y).expand({2, 3, 2}).index_put_({0}, 1); }, {"index_put_", "same address"});
  expect_error([&] { scatter(y, 0, ids, ones({1, 2})); }, {"scatter", "larger", "[1, 2]"});
  expect_error([&] { scatter(y, 0, ids, y.to(float64)); }, {"float32", "float64"});
  expect_error([&] { masked_scatter(y, y > 0.0, ones({5})); }, {"6", "5"});
}

TEST(Messages, SayWhatToDo) {
  const Tensor x = ones({2, 3}), leaf = ones({2}, {.requires_grad = true}), rows = arange(0, 2);
  expect_error([&] { sum(x, {2}); }, {"dimension 2", "[2, 3]", "expected -2 to 1"});
  expect_error([&] { x[0][0].unbind(); }, {"dimension 0", "no dimensions"});
  expect_error([&] { sum(Tensor()); }, {"undefined", "defined() tells"});
  expect_error([&] { (leaf * 2.0).backward(); }, {"output 0 has shape [2]", "sum() or mean()"});
  expect_error(
      [&] {
        const NoGrad off;
        sum(leaf * 2.0).backward();
      },
      {"output 0", "NoGrad"});
  expect_error([&] { scatter_add(x, 0, rows, x); }, {"scatter_add: index", "2 dimensions", "index_add"});
  expect_error([&] { gather(x, 1, ones({2, 1}, {.dtype = int32})); }, {"gather", "int32", ".to(int64)"});
  expect_error([&] { x.index({ones({2}, {.dtype = uint8})}); }, {"uint8", ".to(boolean)"});
}

TEST(Messages, OrdersAndProductsSayWhatDoesNotFit) {
  const Tensor x = ones({2, 3});
  expect_error([&] { kthvalue(x, 4); }, {"kthvalue", "[1, 3]", "got 4"});
  expect_error([&] { median(zeros({0, 2}), 0); }, {"median", "no elements"});
  expect_error([&] { quantile(x, 1.5); }, {"quantile", "[0, 1]", "1.5"});
  expect_error([&] { searchsorted(x, ones({3, 3})); }, {"searchsorted", "[3, 3]", "[2, 3]"});
  expect_error([&] { searchsorted(arange(0, 3), x); }, {"one dtype", "int64", "float32"});
  expect_error([&] { bincount(arange(-1, 3)); }, {"bincount", "negative", "-1"});
  expect_error([&] { histc(x, 0); }, {"histc", "one bin", "0 bins"});
  expect_error([&] { histc(x / 0.0); }, {"histc", "not finite"});
  expect_error([&] { cdist(x, ones({2})); }, {"cdist", "[2, 3] and [2]"});
  expect_error([&] { einsum("ij,jk", {x}); }, {"2 operands, got 1"});
  expect_error([&] { einsum("ij,jk->ik", {x, x}); }, {"index j", "2", "3"});
  expect_error([&] { einsum("ijk", {x}); }, {"3 indices", "[2, 3]"});
  expect_error([&] { einsum("ii", {x}); }, {"index i", "repeated", "2 and 3"});
  expect_error([&] { einsum("ij->ik", {x}); }, {"index k", "no operand"});
  expect_error([&] { einsum("ij->ii", {x}); }, {"index i", "repeated in the result"});
  expect_error([&] { einsum("i1", {x}); }, {"letters", "1"});
  expect_error([&] { einsum("..ij", {x}); }, {"ellipsis"});
  expect_error([&] { tensordot(x, x, 1); }, {"tensordot", "different sizes"});
  expect_error([&] { bmm(x, x); }, {"bmm", "[2, 3]"});
  expect_error([&] { cross(ones({2}), ones({2})); }, {"cross", "3 elements"});
  expect_error([&] { matmul(x > 0.0, x > 0.0); }, {"matmul", "bool"});
}

TEST(Messages, MatmulShowsBothShapesWhole) {
  expect_error([] { matmul(ones({2, 5, 3, 4}), ones({3, 5, 4, 6})); }, {"matmul", "[2, 5, 3, 4]", "[3, 5, 4, 6]"});
  expect_error([] { matmul(ones({7, 3, 4}), ones({2, 3, 4, 6})); }, {"[7, 3, 4]", "[2, 3, 4, 6]"});
  expect_error([] { matmul(ones({4}), ones({5, 3})); }, {"[4]", "[5, 3]"});
  EXPECT_EQ(matmul(ones({2, 1, 3, 4}), ones({5, 4, 6})).shape(), Shape({2, 5, 3, 6}));
}

TEST(Messages, CrossEntropyHintsAtInt64) {
  const Tensor logits = ones({4, 3});
  for (const DType dtype : {int32, float32, uint8})
    expect_error([&] { cross_entropy(logits, zeros({4}, {.dtype = dtype})); },
                 {std::string(name_of(dtype)), ".to(int64)"});
  expect_error([&] { cross_entropy(logits, zeros({5}, {.dtype = int64})); }, {}, {".to("});
}

TEST(MovedFrom, AGeneratorStaysAHandle) {
  Generator first(fresh_seed());
  first.next();
  Generator second = std::move(first);
  EXPECT_EQ(first.seed(), fresh_seed());  // NOLINT(bugprone-use-after-move): what is tested
  EXPECT_EQ(first.offset(), 1u);
  second.next();
  EXPECT_EQ(first.offset(), 2u);
  Generator third(fresh_seed() + 2);
  third = std::move(second);
  second.set_seed(fresh_seed() + 4);
  EXPECT_EQ(third.seed(), fresh_seed() + 4);
  EXPECT_TRUE(first == third);
  EXPECT_NO_THROW(randn({3}, first));
}

TEST(MovedFrom, StreamsAndEventsStayHandles) {
  Stream stream(cpu);
  Stream other = std::move(stream);
  EXPECT_NO_THROW(stream.synchronize());
  EXPECT_TRUE(stream.handle().device == other.handle().device && stream.handle().handle == other.handle().handle);
  Event event(cpu, true);
  event.record();
  Event moved = std::move(event);
  EXPECT_TRUE(event.done());
  EXPECT_NO_THROW(event.synchronize());
  EXPECT_NO_THROW(event.make_wait(stream.handle()));
  event.record();
  EXPECT_GE(event.seconds_since(moved), 0);
  const StreamGuard guard(stream);
}

TEST(MovedFrom, ATensorIsUndefined) {
  Tensor x = ones({2, 3});
  const Tensor y = std::move(x);
  EXPECT_FALSE(x.defined());
  const Tensor qkv = y.reshape({2, 3, 1, 1});
  const auto expect_errors = [](const char* kind, const auto&... uses) {
    const std::function<void()> all[] = {uses...};
    for (size_t i = 0; i < std::size(all); ++i) EXPECT_THROW(all[i](), Error) << kind << " " << i;
  };
  expect_errors(
      "method", [&] { x.shape(); }, [&] { x.numel(); }, [&] { x.item<double>(); }, [&] { x.to_vector<float>(); },
      [&] { x.to(float64); }, [&] { x.to(cpu); }, [&] { x.clone(); }, [&] { x.contiguous(); }, [&] { x.reshape({6}); },
      [&] { x.t(); }, [&] { x.slice(0, 0); }, [&] { x.select(0, 0); }, [&] { x.split({1}); }, [&] { x.copy_(y); },
      [&] { Tensor(y).copy_(x); }, [&] { x.fill_(1); }, [&] { x.add_(1.0); }, [&] { x.add_(y); },
      [&] { Tensor(y).add_(x); }, [&] { x.version(); }, [&] { x.requires_grad(); }, [&] { x.set_requires_grad(true); },
      [&] { x.grad(); }, [&] { x.set_grad({}); }, [&] { x.set_grad(y); }, [&] { x.retain_grad(); }, [&] { x.detach(); },
      [&] { x.backward(); }, [&] { x.grad_fn(); }, [&] { x.storage(); }, [&] { x.data<float>(); },
      [&] { x.register_hook([](const Tensor& g) { return g; }); });
  expect_errors(
      "op", [&] { add(x, y); }, [&] { matmul(x, y); }, [&] { sum(x); }, [&] { norm(x); }, [&] { softmax(x); },
      [&] { linear(x, y); }, [&] { linear(y, x); }, [&] { cat({x}); }, [&] { stack({x}); }, [&] { gather(x, 0, y); },
      [&] { index_select(x, 0, y); }, [&] { embedding(x, y); }, [&] { embedding(y, x); }, [&] { layer_norm(x, y, y); },
      [&] { cross_entropy(x, y); }, [&] { cross_entropy(y, x); }, [&] { self_attention(x, SequenceLayout()); },
      [&] { self_attention(qkv, SequenceLayout()); }, [&] { HostCopy copy(x); }, [&] { zeros_like(x); });
  EXPECT_EQ(x.describe(), "an undefined tensor");
  std::ostringstream text;
  text << x;
  EXPECT_EQ(text.str(), "tensor(undefined)");
  EXPECT_NO_THROW(x.remove_hook(3));
  EXPECT_FALSE(x.view().data);
}

TEST(MovedFrom, AHostCopyHasNoTensor) {
  HostCopy copy(ones({2}));
  const HostCopy other = std::move(copy);
  EXPECT_THROW(copy.values(), Error);
  EXPECT_TRUE(copy.ready());
  EXPECT_EQ(other.values(), (std::vector<double>{1, 1}));
}

TEST(NullPointers, FromStorage) {
  const auto hollow = std::make_shared<Storage>(nullptr, 64, cpu, nullptr);
  expect_error([&] { from_storage(nullptr, 0, {2}, contiguous_strides({2}), float32); }, {"null"});
  expect_error([&] { from_storage(nullptr, 0, {0}, contiguous_strides({0}), float32); }, {"null"});
  expect_error([&] { from_storage(hollow, 0, {2}, contiguous_strides({2}), float32); }, {"null"});
  EXPECT_NO_THROW(from_storage(hollow, 0, {0}, contiguous_strides({0}), float32));
  expect_error([] { from_blob(nullptr, {2}, float32); }, {"null"});
}

/// Each with what is wrong and what is expected.
TEST(RotaryErrors, SayWhatDoesNotFit) {
  const Tensor x = ones({3, 2, 6}), at = arange(0, 3);
  expect_error([&] { rotary(x, at, {.rotary_dim = 3}); }, {"rotary_dim", "even", "3"});
  expect_error([&] { rotary(x, at, {.rotary_dim = 8}); }, {"rotary_dim", "head_dim (6)", "8"});
  expect_error([&] { rotary(x, at, {.rotary_dim = -2}); }, {"rotary_dim", "-2"});
  expect_error([&] { rotary(ones({3, 1, 300}), at); }, {"256", "300"});
  expect_error([&] { rotary(ones({3, 2, 5}), at); }, {"even", "5"});
  expect_error([&] { rotary(x, at, {.base = 0}); }, {"base", "0"});
  expect_error([&] { rotary(x, arange(0, 4)); }, {"positions", "[3]", "[4]"});
  expect_error([&] { rotary(x, at.to(float32)); }, {"positions", "int64 or int32", "float32"});
  expect_error([&] { rotary(x, {}); }, {"positions"});
  expect_error([&] { rotary(x, at.reshape({3, 1})); }, {"positions", "[3, 1]"});
  expect_error([&] { rotary(x, at - 2.0); }, {"2 of the positions", "negative", "token 0"});
  expect_error([&] { rotary(ones({3, 6}), at); }, {"[tokens, heads, head_dim]"});
  expect_error([&] { rotary(at.reshape({3, 1, 1}), at); }, {"floating", "int64"});
}

/// 0 is padding. PyTorch's floating masks mean the opposite.
TEST(AttentionMask, FloatingOnesAreRefusedEverywhere) {
  const Tensor x = ones({6, 2, 4}), kv = ones({6, 2, 2, 4}), qkv = ones({6, 3, 2, 4});
  for (const DType dtype : {float32, float64, bfloat16, float16}) {
    const Tensor additive = zeros({2, 3}, {.dtype = dtype});
    SequenceLayout plain = padded_layout(2, 3), masked = plain;
    masked.key_mask = additive.reshape({6});
    const std::vector<std::string> parts = {"key_mask", std::string(name_of(dtype)), "PyTorch", "additive", "bias"};
    RowChain chain(ones({6, 5}));
    chain.linear(ones({24, 5}));
    expect_error([&] { padded_layout(2, 3, additive); }, parts);
    expect_error([&] { attention(x, x, x, plain, masked); }, parts);
    expect_error([&] { cross_attention(x, kv, plain, masked); }, parts);
    expect_error([&] { self_attention(qkv, masked); }, parts);
    expect_error([&] { chain.self_attention(2, masked); }, parts);
  }
}

TEST(AttentionMask, BoolAndIntegersAreAccepted) {
  Generator g = fresh_generator();
  const Tensor qkv = randn({6, 3, 2, 4}, g);
  const Tensor open = self_attention(qkv, padded_layout(2, 3, ones({2, 3}, {.dtype = boolean})));
  const std::vector<int64_t> tokens = {1, 256, 0, -1, 7, 1};  // anything but 0 is a token
  const Tensor want = self_attention(
      qkv, padded_layout(2, 3, from_vector(std::vector<bool>{true, true, false, true, true, true}, {2, 3})));
  for (const DType dtype : {int64, int32}) {
    const Tensor mask = from_vector(tokens, {2, 3}).to(dtype);
    EXPECT_EQ(self_attention(qkv, padded_layout(2, 3, mask)).to_vector<float>(), want.to_vector<float>());
  }
  EXPECT_NE(open.to_vector<float>(), want.to_vector<float>());
  const Tensor bytes = from_vector(std::vector<uint8_t>{1, 255, 0, 2, 7, 1}, {2, 3});
  EXPECT_EQ(self_attention(qkv, padded_layout(2, 3, bytes)).to_vector<float>(), want.to_vector<float>());
  SequenceLayout layout = padded_layout(2, 3);
  layout.key_mask = from_vector(tokens, {6});
  expect_error([&] { self_attention(qkv, layout); }, {"uint8 or bool", "int64"});
}

}  // namespace
}  // namespace tern::test

// Advice in error messages where the obvious advice would be wrong.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <sstream>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/engine.h"
#include "tern/core/autograd/function.h"
#include "tern/core/ops/ops.h"
#include "tern/tests/core/core_test.h"
#include "tern/tests/support/seed.h"

namespace tern::test {
namespace {

void expect_contains(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << "\nin: " << text;
}
void expect_without(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_EQ(text.find(part), std::string::npos) << part << "\nin: " << text;
}

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
  const auto in_autocast = [](auto fn) { return error_of([&] { autocast(cpu, bfloat16, fn); }); };
  for (const std::string& message : {in_autocast([&] { return linear(wide, narrow); }),
                                     in_autocast([&] { return matmul(wide, narrow.t()); }), in_autocast([&] {
                                       return linear(narrow, ones({2, 3}, {.dtype = float64}));
                                     }),
                                     in_autocast([&] {
                                       return linear(ones({4, 3}), narrow, bias);
                                     })}) {
    expect_contains(message, {"float64", "autocast never converts float64", "to(float32)"});
    expect_without(message, {"converts both"});
  }
  const Tensor q = ones({3, 1, 2}), k = ones({3, 1, 2}, {.dtype = float64});
  const SequenceLayout layout = packed_layout({3});
  expect_contains(in_autocast([&] { return attention(q, k, k, layout, layout); }), {"autocast never converts float64"});
  const Tensor kv = ones({3, 2, 1, 2}, {.dtype = float64});
  expect_contains(in_autocast([&] { return cross_attention(q, kv, layout, layout); }),
                  {"autocast never converts float64"});
  // Outside a region the message mentions autocast only when it would help.
  expect_without(error_of([&] { linear(wide, narrow); }), {"autocast"});
  expect_contains(error_of([&] { matmul(ones({2, 3}, {.dtype = bfloat16}), ones({3, 2})); }), {"autocast region"});
  expect_contains(error_of([&] { matmul(ones({2, 3}, {.dtype = int64}), ones({3, 2})); }), {"int64", "to(float32)"});
}

struct Once final : Function<Once> {
  static constexpr const char* kName = "once";
  Tensor forward(const Tensor& x) { return x * 3.0; }
  Grads backward(const Tensor& dy) override { return {dy * 3.0}; }
};

TEST(Messages, AnErrorExplainsHowToDeclareASecondDerivative) {
  const Tensor x = Tensor(ones({3})).set_requires_grad(true);
  const Tensor first = grad({sum(square(Once::apply(x)))}, {x}, {.create_graph = true})[0];
  const std::string message = error_of([&] { sum(first).backward(); });
  expect_contains(message, {"once", "kTwiceDifferentiable"});
  expect_without(message, {"kernel"});
}

TEST(Messages, IndexSelectNamesItself) {
  const Tensor x = arange(0, 24, 1, {}).reshape({2, 3, 4});
  const auto select = [&](int d, const std::vector<int64_t>& index) {
    return error_of([&] { index_select(x, d, from_vector(index, {static_cast<int64_t>(index.size())})); });
  };
  for (int d = 0; d < 3; ++d) {
    const int64_t size = x.size(d);
    const std::string message = select(d, {0, 1, size + 7, -3});
    expect_contains(message, {"index_select: index " + std::to_string(size + 7) + " at position 2 is outside [0, " +
                                  std::to_string(size) + ")",
                              "(2 in all)"});
    expect_without(message, {"embedding", "gather", "id "});
    expect_contains(select(d - 3, {-1}), {"index_select: index -1 at position 0"});
  }
  expect_contains(error_of([&] {
                    index_select(arange(0, 5), 0, from_vector(std::vector<int64_t>{4, 5}, {2}));
                  }),
                  {"index_select: index 5 at position 1 is outside [0, 5)", "(1 in all)"});
  expect_contains(error_of([&] {
                    embedding(ones({5, 2}), from_vector(std::vector<int64_t>{4, 5}, {2}));
                  }),
                  {"embedding: id 5 at position 1"});
  expect_contains(error_of([&] {
                    gather(ones({2, 3}), 1, from_vector(std::vector<int64_t>{0, 1, 2, 3}, {2, 2}));
                  }),
                  {"gather: index 3 at position 3 is outside [0, 3)", "(1 in all)"});
  expect_contains(error_of([&] {
                    gather(ones({3}), 0, from_vector(std::vector<int64_t>{0, 4}, {2}));
                  }),
                  {"gather: index 4 at position 1 is outside [0, 3)"});
}

TEST(Messages, MatmulShowsBothShapesWhole) {
  expect_contains(error_of([] {
                    matmul(ones({2, 5, 3, 4}), ones({3, 5, 4, 6}));
                  }),
                  {"matmul", "[2, 5, 3, 4]", "[3, 5, 4, 6]"});
  expect_contains(error_of([] { matmul(ones({7, 3, 4}), ones({2, 3, 4, 6})); }), {"[7, 3, 4]", "[2, 3, 4, 6]"});
  expect_contains(error_of([] { matmul(ones({4}), ones({5, 3})); }), {"[4]", "[5, 3]"});
  EXPECT_EQ(matmul(ones({2, 1, 3, 4}), ones({5, 4, 6})).shape(), Shape({2, 5, 3, 6}));
}

TEST(Messages, CrossEntropyHintsAtInt64) {
  const Tensor logits = ones({4, 3});
  for (const DType dtype : {int32, float32, uint8})
    expect_contains(error_of([&] { cross_entropy(logits, zeros({4}, {.dtype = dtype})); }),
                    {std::string(name_of(dtype)), ".to(int64)"});
  expect_without(error_of([&] { cross_entropy(logits, zeros({5}, {.dtype = int64})); }), {".to("});
}

}  // namespace
}  // namespace tern::test

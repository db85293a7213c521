// self_attention with its projection has the bits of the two ops that it stands for: at every CPU level, number of
// threads, dtype, and way in which blocks are made.

#include <cmath>
#include <cstdlib>
#include <random>

#include "tern/core/autocast.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/kernels/attention.h"
#include "tern/tests/core/core_test.h"
#include "tern/tests/core/rounding.h"
#include "tern/tests/core/tolerance.h"
#include "tern/tests/support/levels.h"

namespace tern {
namespace {

using test::expect_equal;
using test::expect_error;

struct Projection {
  int64_t heads;
  Tensor weight, bias;

  Projection(int64_t in, int64_t heads, int64_t head_dim, DType dtype, bool with_bias, Generator& generator)
      : heads(heads), weight((randn({3 * heads * head_dim, in}, generator) * 0.3).to(dtype)) {
    if (with_bias) bias = randn({3 * heads * head_dim}, generator).to(dtype);
  }
  Tensor in_one(const Tensor& x, const SequenceLayout& layout, const AttentionOptions& options = {}) const {
    return self_attention(x, weight, bias, heads, layout, options);
  }
  Tensor in_two(const Tensor& x, const SequenceLayout& layout, const AttentionOptions& options = {}) const {
    return self_attention(linear(x, weight, bias).reshape({x.size(0), 3, heads, -1}), layout, options);
  }
  /// Whether the kernel that keeps the projection in cache takes the call.
  bool pays(const Tensor& x, const SequenceLayout& layout) const {
    kernels::AttentionParams p;
    p.sequences = layout.sequences();
    p.query_offsets = p.key_offsets = layout.offsets.data<int32_t>();
    p.max_query_length = p.max_key_length = layout.max_length;
    p.heads = p.kv_heads = heads;
    p.head_dim = weight.size(0) / (3 * heads);
    return kernels::self_attention_pays({}, p, x.view(), weight.view());
  }
};

bool has_packed_products() {
  const char* const limit = std::getenv("TERN_CPU_LEVEL");
  return kernels::has_cpu_level(kernels::CpuLevel::kV4) && (!limit || std::string(limit) == "v4");
}

TEST(ProjectedSelfAttention, HasTheBitsOfTwoOps) {
  const test::RestoreKernels restore;
  const uint64_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Generator generator(seed);
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  int64_t paid = 0;
  for (const kernels::CpuLevel level : {kernels::CpuLevel::kV2, kernels::CpuLevel::kV3, kernels::CpuLevel::kV4}) {
    if (!can_test_level(level)) continue;
    kernels::set_cpu_level(level);
    for (const DType dtype : {float32, bfloat16, float16, float64})
      // Many short sequences, some in a block each; sequences longer than a block of scores; few.
      for (const auto& [sequences, length] : {std::pair{40 + below(60), 26 + below(14)},
                                              {17, 65 + below(10)},
                                              {130 + below(20), 8 + below(3)},
                                              {8 + below(8), 128 + below(90)},
                                              {1 + below(3), 1 + below(80)}}) {
        const int64_t heads = 1 + below(3), head_dim = 8 + below(30), in = 16 + below(50);
        const Projection projection(in, heads, head_dim, dtype, below(3) > 0, generator);
        const Tensor x = randn({sequences * length, in}, generator).to(dtype);
        Tensor mask;
        if (below(3) == 0) mask = gt(rand({sequences, length}, generator), full({sequences, length}, 0.3));
        const SequenceLayout layout = padded_layout(sequences, length, mask);
        const AttentionOptions options{
            .scale = below(2) ? 0.0 : 0.3, .causal = below(3) == 0, .window = below(3) == 0 ? below(length) : -1};
        SCOPED_TRACE(x.describe() + ", " + std::to_string(sequences) + " sequences, " + std::to_string(heads) +
                     " heads of " + std::to_string(head_dim));
        kernels::set_num_threads(1 + static_cast<int>(below(3)));
        paid += projection.pays(x, layout);
        expect_equal(projection.in_one(x, layout, options), projection.in_two(x, layout, options));
        if (testing::Test::HasFailure()) return;
      }
  }
  if (has_packed_products()) {
    EXPECT_GE(paid, 3);  // otherwise two ways were compared that are one
  }
}

TEST(ProjectedSelfAttention, AgainstDouble) {
  const test::RestoreKernels restore;
  kernels::set_num_threads(2);
  Generator generator(fresh_seed());
  const int64_t n = 40, length = 33, heads = 3, head_dim = 20, in = 50;
  const Projection projection(in, heads, head_dim, float32, true, generator);
  const Tensor x = randn({n * length, in}, generator);
  ASSERT_EQ(projection.pays(x, padded_layout(n, length)), has_packed_products());
  const test::Rounded qkv = linear(test::Rounded(x), projection.weight, projection.bias);
  const auto part = [&](int64_t i) {
    return qkv.map([&](const Tensor& t) {
      return t.reshape({n, length, 3, heads, head_dim}).select(2, i).transpose(1, 2);
    });
  };
  const auto turned = [](const Tensor& t) { return t.transpose(-2, -1); };
  const test::Rounded p = softmax(matmul(part(0), part(1).map(turned)) * (1 / std::sqrt(20.0)));
  const test::Rounded want = matmul(p, part(2)).map([&](const Tensor& t) {
    return t.transpose(1, 2).reshape({n * length, heads * head_dim});
  });
  test::expect_within(projection.in_one(x, padded_layout(n, length)), want);
}

TEST(ProjectedSelfAttention, UnderAutocast) {
  const test::RestoreKernels restore;
  kernels::set_num_threads(2);
  Generator generator(fresh_seed());
  const Projection projection(40, 2, 16, float32, true, generator);
  const Tensor x = randn({1600, 40}, generator);
  const SequenceLayout layout = padded_layout(50, 32);
  for (const DType dtype : {bfloat16, float16}) {
    const Autocast region(cpu, dtype);
    const Tensor got = projection.in_one(x, layout);
    EXPECT_EQ(got.dtype(), dtype);
    expect_equal(got, projection.in_two(x, layout));
  }
}

TEST(ProjectedSelfAttention, WithGradients) {
  Generator generator(fresh_seed());
  const Projection projection(21, 2, 9, float32, true, generator);
  const SequenceLayout layout = padded_layout(40, 30);
  const Tensor input = randn({1200, 21}, generator);
  const auto gradients = [&](auto way) {
    Projection own = projection;
    Tensor x = input;
    std::vector<Tensor> leaves;
    for (Tensor* t : {&x, &own.weight, &own.bias}) leaves.push_back(*t = t->detach().clone().set_requires_grad(true));
    sum(square(way(own, x))).backward();
    for (Tensor& t : leaves) t = t.grad();
    return leaves;
  };
  const auto one = gradients([&](const Projection& p, const Tensor& x) { return p.in_one(x, layout); });
  const auto two = gradients([&](const Projection& p, const Tensor& x) { return p.in_two(x, layout); });
  for (size_t i = 0; i < one.size(); ++i) expect_equal(one[i], two[i]);
  // Without recording, inputs that want gradients give a result that has none.
  const Tensor x = input.detach().clone().set_requires_grad(true);
  const NoGrad off;
  EXPECT_FALSE(projection.in_one(x, layout).requires_grad());
}

TEST(ProjectedSelfAttention, OtherLayouts) {
  Generator generator(fresh_seed());
  const Projection projection(24, 3, 8, float32, true, generator);
  const Tensor x = randn({24, 1300}, generator).t();
  // Sequences of several lengths, empty ones, and tokens behind the last one.
  std::vector<int64_t> mixed(100, 13);  // as many tokens as if all were like the first
  for (size_t i = 10; i < 90; i += 2) --mixed[i], ++mixed[i + 1];
  for (const std::vector<int64_t>& lengths :
       {std::vector<int64_t>(100, 13), std::vector<int64_t>(99, 13), mixed, {1000, 300}, {0, 1300}, {}, {0, 0}}) {
    const SequenceLayout layout = packed_layout(lengths);
    expect_equal(projection.in_one(x, layout), projection.in_two(x.contiguous(), layout));
  }
  EXPECT_EQ(projection.in_one(zeros({0, 24}), packed_layout({})).shape(), (Shape{0, 24}));
  // Dropout draws the same numbers, a bias of the scores counts.
  const SequenceLayout layout = packed_layout(std::vector<int64_t>(100, 13));
  Generator one = test::fresh_generator(5), two = test::fresh_generator(5);
  expect_equal(projection.in_one(x, layout, {.dropout = 0.3, .generator = &one}),
               projection.in_two(x, layout, {.dropout = 0.3, .generator = &two}));
  const Tensor bias = randn({1, 3, 13, 13}, generator);
  expect_equal(projection.in_one(x, layout, {.bias = bias}), projection.in_two(x, layout, {.bias = bias}));
}

TEST(ProjectedSelfAttention, BadInput) {
  const Tensor x = zeros({4, 5}), weight = zeros({12, 5});
  const SequenceLayout layout = packed_layout({4});
  const auto call = [&](const Tensor& input, const Tensor& w, const Tensor& b, int64_t heads) {
    return [=] { self_attention(input, w, b, heads, layout); };
  };
  expect_error(call(zeros({2, 2, 5}), weight, {}, 2), {"expected x [tokens, in]", "[2, 2, 5]"});
  expect_error(call(x, zeros({13, 5}), {}, 2), {"weight [3 * heads * head_dim, in]", "[13, 5] and 2 heads"});
  expect_error(call(x, weight, {}, 0), {"0 heads"});
  expect_error(call(x, weight, {}, -2), {"-2 heads"});
  expect_error(call(x, zeros({12}), {}, 2), {"[12]"});
  expect_error(call(x, zeros({12, 6}), {}, 2), {"linear: x is [4, 5], expected [..., 6]"});
  expect_error(call(x, weight, zeros({11}), 2), {"linear: bias is [11], expected [12]"});
  expect_error(call(x, weight.to(float64), {}, 2), {"x is float32 and weight float64"});
  expect_error(call(zeros({3, 5}), weight, {}, 2), {"sequences end at token 4, there are 3 tokens"});
  expect_error(call(x, zeros({0, 5}), {}, 2), {"head_dim must be 1 to 256, got 0"});
}

TEST(Attention, OffsetsBeginWithZero) {
  SequenceLayout layout = packed_layout({2, 2});
  layout.offsets = from_vector<int32_t>({1, 2, 4}, {3});
  const std::vector<std::string> parts = {"offsets run from 1 to 4", "expected from 0 to at most 4"};
  expect_error([&] { self_attention(zeros({4, 3, 1, 2}), layout); }, parts);
  expect_error([&] { self_attention(zeros({4, 5}), zeros({6, 5}), {}, 1, layout); }, parts);
}

}  // namespace
}  // namespace tern

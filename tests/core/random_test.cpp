// Random numbers: Philox's published results, generators, masks, and independence of layout, threads and CPU level.

#include <algorithm>

#include "tern/tests/core/core_test.h"
#include "tern/tests/core/moments.h"
#include "tern/tests/support/levels.h"

namespace tern::test {
namespace {

using kernels::Philox4;

/// Random123's known answers for philox4x32 with 10 rounds (Salmon et al., SC 2011): counter words c0..c3, key words.
TEST(Philox, KnownAnswers) {
  struct Answer {
    uint32_t counter[4], key[2], result[4];
  };
  const uint32_t ones = 0xffffffff;
  const Answer answers[] = {{{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
                            {{ones, ones, ones, ones}, {ones, ones}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
                            {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                             {0xa4093822, 0x299f31d0},
                             {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
  for (const Answer& a : answers) {
    const uint64_t key = a.key[0] | static_cast<uint64_t>(a.key[1]) << 32;
    const uint64_t row = a.counter[2] | static_cast<uint64_t>(a.counter[3]) << 32;
    const Philox4 words = kernels::philox(key, row, a.counter[1], a.counter[0]);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(words.word[i], a.result[i]);
  }
}

TEST(Philox, ABaseIsAddedToTheOffset) {
  const uint64_t base = 0xfffffffffffffff0;
  EXPECT_EQ(kernels::philox_key({3, 20, &base}), kernels::philox_key({3, 4}));  // modulo 2^64
  EXPECT_EQ(kernels::philox_key({3, 7, &base}), kernels::philox_key({3, base + 7}));
  EXPECT_NE(kernels::philox_key({3, 7, &base}), kernels::philox_key({3, 7}));
}

TEST(Generator, IsTwoIntegers) {
  Generator a = fresh_generator(7), b = fresh_generator(7);
  expect_equal(rand({5}, a), rand({5}, b));
  const Tensor second = rand({5}, a);
  b.set_offset(1);
  expect_equal(rand({5}, b), second);
  EXPECT_EQ(a.offset(), 2u);
  Generator copy = a;  // a shared handle
  copy.next();
  EXPECT_EQ(a.offset(), 3u);
  a.set_seed(a.seed() + 1);
  EXPECT_EQ(copy.offset(), 0u);
  EXPECT_NE(rand({5}, a).to_vector<double>(), second.to_vector<double>());
}

TEST(Distributions, IntegersPermutationsAndCoins) {
  Generator g = fresh_generator();
  std::vector<int64_t> counts(7, 0);
  for (const int64_t v : randint(-3, 4, {70'000}, g).to_vector<int64_t>()) ++counts.at(static_cast<size_t>(v + 3));
  for (const int64_t count : counts) EXPECT_NEAR(count, 10'000, 6 * 93);  // sqrt(70000 * 6 / 49) = 93
  const std::vector<int64_t> whole = randint(INT64_MIN, INT64_MAX, {1000}, g).to_vector<int64_t>();
  EXPECT_NEAR(std::count_if(whole.begin(), whole.end(), [](int64_t v) { return v < 0; }), 500, 6 * 16);
  EXPECT_EQ(randint(5, 6, {2, 0, 3}, g, {.dtype = uint8}).shape(), (Shape{2, 0, 3}));
  expect_error([&] { randint(2, 2, {1}, g); }, {"randint: low must be below high, got 2 and 2"});

  std::vector<int64_t> firsts(5, 0);
  for (int i = 0; i < 5000; ++i) ++firsts.at(randperm(5, g).to_vector<int64_t>()[0]);
  for (const int64_t count : firsts) EXPECT_NEAR(count, 1000, 6 * 28.3);
  std::vector<int64_t> order = randperm(1001, g).to_vector<int64_t>();
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
  std::sort(order.begin(), order.end());
  expect_equal(from_vector(order, {1001}), arange(0, 1001));

  const Tensor p = tensor({0, 0.25, 1, -1, 2, NAN}, {.dtype = float32}).expand({40'000, 6});
  const std::vector<double> shares = mean(bernoulli(p, g), {0}).to_vector<double>();
  EXPECT_NEAR(shares[1], 0.25, 6 * 0.0022);
  EXPECT_EQ((std::vector{shares[0], shares[2], shares[3], shares[4], shares[5]}), (std::vector<double>{0, 1, 0, 1, 0}));
}

TEST(Distributions, CategoriesByTheirWeights) {
  Generator g = fresh_generator();
  const Tensor weights = tensor({1, 0, 3, 4, 0}).unsqueeze(0).expand({20'000, 5});
  const double root = std::sqrt(20'000.0);
  for (const bool replacement : {true, false}) {
    const Tensor drawn = multinomial(weights, 3, g, replacement);
    const std::vector<int64_t> first = drawn.slice(1, 0, 1).flatten().to_vector<int64_t>();
    for (const auto& [category, share] : std::vector<std::pair<int64_t, double>>{{0, 0.125}, {2, 0.375}, {3, 0.5}})
      EXPECT_NEAR(std::count(first.begin(), first.end(), category), 20'000 * share, 6 * root / 2);
    if (!replacement)  // each row has all three categories
      expect_equal(sum(drawn, {1}), full({20'000}, 5, {.dtype = int64}));
  }
  EXPECT_EQ(multinomial(tensor({0, 0, 2}), 4, g, true).to_vector<int64_t>(), (std::vector<int64_t>{2, 2, 2, 2}));
  expect_error([&] { multinomial(tensor({0, 1, 2}), 3, g); }, {"3 different categories", "2 weights above 0"});
  expect_error([&] { multinomial(tensor({0, 0}), 1, g, true); }, {"sum is 0"});
  expect_error([&] { multinomial(tensor({1, -1}), 1, g); }, {"not negative"});
  expect_error([&] { multinomial(tensor({1, NAN}), 1, g); }, {"finite"});
}

TEST(Distributions, NormalsWithMeansAndBounds) {
  Generator g = fresh_generator();
  const Tensor centre = tensor({-10, 0, 100}), width = tensor({1, 0, 5}).unsqueeze(1).expand({3, 3});
  const Tensor x = normal(centre.expand({20'000, 3, 3}), width, g);
  const std::vector<double> means = mean(x, {0}).flatten().to_vector<double>();
  const std::vector<double> stds = tern::std(x, {0}).flatten().to_vector<double>();
  for (size_t i = 0; i < 9; ++i) {
    const double expected = i / 3 == 0 ? 1 : i / 3 == 1 ? 0 : 5;
    EXPECT_NEAR(means[i], i % 3 == 0 ? -10 : i % 3 == 1 ? 0 : 100, 6 * expected * 0.0071 + 1e-4);
    EXPECT_NEAR(stds[i], expected, 6 * expected * 0.0051 + 1e-4);
  }
  EXPECT_NEAR(mean(normal(3, 2, {40'000}, g)).item<double>(), 3, 6 * 0.01);
  const Tensor bounded = truncated_normal({40'000}, g, 1, 2, 0, 2);
  EXPECT_TRUE(all(logical_and(bounded >= 0.0, bounded <= 2.0)).item<bool>());
  EXPECT_NEAR(tern::std(bounded).item<double>(), 0.5678, 6 * 0.0025);  // of the normal distribution within half a std
}

/// Against the probabilities of each count, which are products here; limits are six standard errors of a frequency.
TEST(Distributions, CountsHaveTheirProbabilities) {
  Generator g = fresh_generator();
  const int64_t n = 100'000;
  const auto check = [&](const Tensor& counts, const std::function<double(int)>& probability, int most) {
    std::vector<int64_t> found(static_cast<size_t>(most) + 1, 0);
    for (const int64_t v : counts.to_vector<int64_t>()) ++found.at(static_cast<size_t>(v));
    for (int k = 0; k <= most; ++k) {
      const double p = probability(k), deviation = std::sqrt(static_cast<double>(n) * p * (1 - p));
      EXPECT_NEAR(found[static_cast<size_t>(k)], static_cast<double>(n) * p, 6 * deviation + 2) << k;
    }
  };
  for (const double rate : {0.3, 4.0, 25.5})
    check(
        poisson(full({n}, rate, {.dtype = rate == 4 ? float32 : float64}), g).to(int64),
        [=](int k) {
          double p = std::exp(-rate);
          for (int i = 1; i <= k; ++i) p *= rate / i;
          return p;
        },
        80);
  for (const double p : {0.02, 0.4, 0.5, 0.93})
    for (const int trials : {1, 7, 40})
      check(
          binomial(full({n}, trials), full({}, p, {.dtype = float64}), g).to(int64),
          [=](int k) {
            double result = std::pow(1 - p, trials - k);
            for (int i = 1; i <= k; ++i) result *= p * (trials - k + i) / i;
            return result;
          },
          trials);
}

TEST(Distributions, CountsHaveTheirMoments) {
  Generator g = fresh_generator();
  const int64_t n = 40'000;
  for (const double rate : {300.0, 9e3, 1.1e4, 1e12}) {
    const Moments m(poisson(full({n}, rate, {.dtype = float64}), g).to_vector<double>());
    EXPECT_NEAR((m.mean - rate) / std::sqrt(rate), 0, 6 * 0.005);
    EXPECT_NEAR(m.variance / rate, 1, 6 * 0.0073);
    EXPECT_NEAR(m.skew, 1 / std::sqrt(rate), 6 * 0.0125);
  }
  for (const auto& [trials, p] :
       std::vector<std::pair<double, double>>{{1e4, 0.1}, {1e4, 0.97}, {1e9, 1e-6}, {1e8, 0.3}}) {
    const double variance = trials * p * (1 - p);
    const Moments m(
        binomial(full({n}, trials, {.dtype = float64}), full({}, p, {.dtype = float64}), g).to_vector<double>());
    EXPECT_NEAR((m.mean - trials * p) / std::sqrt(variance), 0, 6 * 0.005) << trials;
    EXPECT_NEAR(m.variance / variance, 1, 6 * 0.0073) << trials;
    EXPECT_NEAR(m.skew, (1 - 2 * p) / std::sqrt(variance), 6 * 0.0125) << trials;
  }
  EXPECT_EQ(sum(poisson(zeros({9}), g)).item<double>(), 0);
  EXPECT_EQ(poisson(ones({0, 2}, {.dtype = bfloat16}), g).dtype(), bfloat16);
  expect_equal(binomial(full({3}, 5), tensor({0, 1, 1}), g), tensor({0, 5, 5}));
  EXPECT_EQ(binomial(ones({2, 1}), full({3}, 0.5), g).shape(), Shape({2, 3}));
  const auto fails = [](const char* text, const std::function<void()>& call) { expect_error(call, {text}); };
  fails("poisson: the rates must be finite and not negative", [&] { poisson(tensor({1, -1}), g); });
  fails("poisson: expected floating rates", [&] { poisson(ones({2}, {.dtype = int64}), g); });
  fails("binomial: the counts must be whole", [&] { binomial(tensor({1.5}), tensor({0.5}), g); });
  fails("binomial: the probabilities must be in [0, 1]", [&] { binomial(tensor({2}), tensor({NAN}), g); });
}

TEST(Distributions, HaveTheirMoments) {
  Generator g = fresh_generator();
  // Limits are at least six standard errors, which two runs in 10^9 exceed: 0.289 / sqrt(n), 0.0745 / sqrt(n) (uniform)
  // and 1, sqrt(2), sqrt(6), sqrt(24) over sqrt(n) (normal).
  const int64_t n = 200'000;
  for (DType dtype : {float32, float64}) {
    const std::vector<double> u = rand({n}, g, {.dtype = dtype}).to_vector<double>();
    for (double v : u) ASSERT_TRUE(v >= 0 && v < 1);
    const Moments uniform(u);
    EXPECT_NEAR(uniform.mean, 0.5, 0.004);
    EXPECT_NEAR(uniform.variance, 1.0 / 12, 0.001);
    const Moments normal(randn({n}, g, {.dtype = dtype}).to_vector<double>());
    EXPECT_NEAR(normal.mean, 0, 0.014);
    EXPECT_NEAR(normal.variance, 1, 0.02);
    EXPECT_NEAR(normal.skew, 0, 0.035);
    EXPECT_NEAR(normal.kurtosis, 3, 0.08);
  }
  EXPECT_NEAR(Moments(randn({n}, g, {.dtype = bfloat16}).to_vector<double>()).variance, 1, 0.02);
}

/// An independent version of dropout's rule over Philox's words, which KnownAnswers checks: a column uses one of the
/// eight halves of its block's words, the low half when the column is even.
bool is_kept(uint64_t seed, uint64_t offset, int64_t row, int64_t column, double p) {
  uint64_t key = seed + 0x9e3779b97f4a7c15 * (offset + 1);  // SplitMix64
  key = (key ^ key >> 30) * 0xbf58476d1ce4e5b9;
  key = (key ^ key >> 27) * 0x94d049bb133111eb;
  key ^= key >> 31;
  const Philox4 words = kernels::philox(key, static_cast<uint64_t>(row), 0, static_cast<uint32_t>(column / 8));
  const uint32_t word = words.word[column % 8 / 2], half = column % 2 == 0 ? word & 0xffff : word >> 16;
  return half >= std::round(p * 65536);
}

TEST(Dropout, IsTheMaskOfItsKey) {
  for (const double p : {0.1, 0.3, 0.5, 0.75})
    for (const int64_t cols : {1, 7, 8, 33, 300}) {
      Generator g = fresh_generator(static_cast<uint64_t>(cols));
      g.set_offset(4);
      const std::vector<double> y = dropout(ones({5, cols}), {.p = p, .generator = &g}).to_vector<double>();
      for (int64_t r = 0; r < 5; ++r)
        for (int64_t c = 0; c < cols; ++c)
          ASSERT_EQ(y[static_cast<size_t>(r * cols + c)],
                    is_kept(g.seed(), 4, r, c, p) ? static_cast<double>(static_cast<float>(1 / (1 - p))) : 0.0);
      EXPECT_EQ(g.offset(), 5u);
    }
}

/// Draw `offset` with a base of b is draw offset + b; backward draws the same.
TEST(Generators, DrawsCountFromANumberInMemory) {
  Tensor base = zeros({1}, {.dtype = int64});
  Generator plain = fresh_generator(5), based = fresh_generator(5);
  based.set_base(base);
  Generator handle = based;  // a second handle to the same state
  for (const int64_t b : {0, 1, 41, 1'000'000'007}) {
    base.fill_(static_cast<double>(b));
    plain.set_offset(static_cast<uint64_t>(b) + 3);
    handle.set_offset(3);
    expect_equal(rand({3, 37}, based), rand({3, 37}, plain));
    expect_equal(randn({131}, based, {.dtype = float64}), randn({131}, plain, {.dtype = float64}));
    const auto masks = [](Generator& g) {
      Generator values = fresh_generator(9);
      const TensorOptions leaf{.requires_grad = true};
      const Tensor x = rand({52, 32}, values, leaf), r = rand({52, 32}, values), w = ones({32}, leaf),
                   qkv = rand({52, 3, 2, 16}, values, leaf);
      const Tensor y = dropout(x, {.p = 0.4, .generator = &g}),
                   z = dropout_residual_layer_norm(y, r, w, w, 1e-5, {.p = 0.3, .generator = &g}),
                   a = self_attention(qkv, packed_layout({17, 5, 30}), {.dropout = 0.2, .generator = &g});
      (sum(square(z)) + sum(square(a))).backward();
      return Tensors{y, z, a, x.grad(), qkv.grad()};
    };
    expect_equal(masks(based), masks(plain));
    EXPECT_EQ(based.offset(), 8u);
  }
  base.fill_(2);
  handle.set_offset(3);
  const Tensor first = rand({64}, based);
  base.fill_(3);
  handle.set_offset(3);
  EXPECT_NE(rand({64}, based).to_vector<float>(), first.to_vector<float>());
  expect_error([&] { based.set_base(zeros({2}, {.dtype = int64})); }, {"base", "int64", "2"});
  expect_error([&] { based.set_base(zeros({1})); }, {"base", "int64", "float32"});
  expect_error([&] { based.next({DeviceType::kCUDA, 0}); }, {"Generator", "cpu", "cuda:0", "set_base"});
  based.set_base({});
  handle.set_offset(5);
  plain.set_offset(5);
  expect_equal(rand({64}, based), rand({64}, plain));
  EXPECT_NO_THROW(based.next({DeviceType::kCUDA, 0}));
}

TEST(Dropout, RateGradientAndEdges) {
  Generator g = fresh_generator();
  const Tensor x = ones({200, 500}, {.requires_grad = true}), y = dropout(x, {.p = 0.25, .generator = &g});
  double kept = 0;
  for (double v : y.to_vector<double>()) kept += v != 0;
  EXPECT_NEAR(kept / 100'000, 0.75, 0.0085);  // 6.2 standard errors
  y.backward(ones({200, 500}));
  expect_equal(x.grad(), y);
  EXPECT_TRUE(same(dropout(x, {.p = 0, .generator = &g}), x));
  EXPECT_EQ(g.offset(), 1u);  // no dropout draws nothing
  expect_equal(dropout(x, {.p = 1, .generator = &g}), zeros({200, 500}));
  expect_error([&] { dropout(x, {.p = 1.5}); }, {"dropout", "1.5"});
  expect_error([&] { dropout(x, {.p = NAN}); }, {"dropout", "nan"});
  expect_error([&] { dropout(x, {.p = 0.5, .row_keys = zeros({3}, {.dtype = int64})}); }, {"row_keys", "[200]"});
  expect_error([&] { dropout(arange(0, 3), {.p = 0.5}); }, {"dropout", "int64"});
  EXPECT_NO_THROW(dropout(full({}, 1), {.p = 0.5}));
}

TEST(Dropout, RowsFollowTheirKeysWhateverTheLayout) {
  const auto run = [](const std::vector<int64_t>& keys) {
    Generator g = fresh_generator(6);
    const int64_t n = static_cast<int64_t>(keys.size());
    return dropout(ones({n, 40}), {.p = 0.5, .generator = &g, .row_keys = from_vector(keys, {n})});
  };
  const Tensor padded = run({100, 101, 102, -1, 200, -1, -1, -1}), packed = run({200, 100, 101, 102});
  expect_equal(packed[0], padded[4]);
  for (int i = 0; i < 3; ++i) expect_equal(packed[i + 1], padded[i]);
  EXPECT_NE(packed[0].to_vector<double>(), packed[1].to_vector<double>());
}

TEST(Random, DoesNotDependOnThreadsOrLevel) {
  const RestoreKernels restore;
  const auto draw_all = [] {
    Generator g = fresh_generator(5);
    return Tensors{rand({70'001}, g),
                   randn({70'001}, g, {.dtype = float64}),
                   dropout(ones({301, 211}), {.p = 0.1, .generator = &g}),
                   dropout(ones({7}, {.dtype = bfloat16}), {.p = 0.1, .generator = &g}),
                   poisson(full({70'001}, 3.5), g),
                   binomial(full({70'001}, 9), full({}, 0.3), g)};
  };
  const Tensors reference = draw_all();
  for (const int count : {1, 2, 5}) {
    kernels::set_num_threads(count);
    expect_equal(draw_all(), reference);
  }
  for (const kernels::CpuLevel level : testable_levels()) {
    kernels::set_cpu_level(level);
    const Tensors drawn = draw_all();
    for (const size_t i : {0, 2, 3, 4, 5}) expect_equal(drawn[i], reference[i]);
    // Fused multiply-adds differ by level. Sines and cosines are fp32's, within 2^-23 at every level; the radius is at
    // most sqrt(-2 log 2^-24) < 5.8.
    expect_near(drawn[1], reference[1], 2 * 5.8 * 0x1p-23);
  }
}

}  // namespace
}  // namespace tern::test

// Attention with grouped heads, rotary embeddings and windows, at once and token by token from a cache, against loops
// in double precision.

#include <numeric>

#include "tern/nn/nn.h"
#include "tern/tests/core/core_test.h"
#include "tern/tests/core/fresh.h"

namespace tern::test {
namespace {

using Counts = std::vector<int64_t>;
using Numbers = std::vector<double>;

struct Case {
  int64_t heads, kv_heads, window;
  std::optional<RotaryOptions> rotary = {};
};
const Case kCases[] = {{3, 3, -1},
                       {4, 2, -1, RotaryOptions{}},
                       {4, 1, 2, RotaryOptions{.base = 50, .rotary_dim = 4}},
                       {2, 1, -1},
                       {2, 2, 3, RotaryOptions{.interleaved = true}}};
constexpr int64_t kHeadDim = 6;

nn::Scope scope(DType dtype = float64) { return nn::Scope({.dtype = dtype, .generator = fresh_generator(3)}); }

nn::PackedAttention attention_of(const Case& c) {
  return nn::PackedAttention(scope(), c.heads * kHeadDim, c.heads,
                             {.causal = true,
                              .window = c.window,
                              .kv_heads = c.kv_heads,
                              .rotary = c.rotary,
                              .weight_init = nn::init::normal(0, 0.5)});
}

/// x weight^T.
Numbers product(const Numbers& x, const Tensor& weight) {
  const Numbers w = weight.to_vector<double>();
  const size_t out = static_cast<size_t>(weight.size(0)), in = static_cast<size_t>(weight.size(1));
  Numbers y(x.size() / in * out, 0);
  for (size_t i = 0; i < y.size(); ++i)
    for (size_t c = 0; c < in; ++c) y[i] += x[i / out * in + c] * w[i % out * in + c];
  return y;
}

void rotate(double* x, int64_t position, const RotaryOptions& options) {
  const int64_t size = options.rotary_dim == 0 ? kHeadDim : options.rotary_dim;
  for (int64_t i = 0; i < size / 2; ++i) {
    double& first = x[options.interleaved ? 2 * i : i];
    double& second = x[options.interleaved ? 2 * i + 1 : i + size / 2];
    const double angle = static_cast<double>(position) *
                         std::pow(options.base, -2.0 * static_cast<double>(i) / static_cast<double>(size));
    const double a = first * std::cos(angle) - second * std::sin(angle);
    second = first * std::sin(angle) + second * std::cos(angle);
    first = a;
  }
}

/// Causal self-attention of one sequence x [tokens, width].
Numbers defined(const nn::PackedAttention& layer, const Case& c, const Tensor& x) {
  const int64_t tokens = x.size(0), row = (c.heads + 2 * c.kv_heads) * kHeadDim;
  const StateView state = layer.state_dict();
  Numbers qkv = product(x.to_vector<double>(), find(state, "qkv.weight"));  // the biases are 0 at first
  const auto at = [&](int64_t token, int64_t head) { return &qkv[static_cast<size_t>(token * row + head * kHeadDim)]; };
  for (int64_t t = 0; t < tokens && c.rotary; ++t)
    for (int64_t h = 0; h < c.heads + c.kv_heads; ++h) rotate(at(t, h), t, *c.rotary);
  Numbers y(static_cast<size_t>(tokens * c.heads * kHeadDim), 0);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t h = 0; h < c.heads; ++h) {
      const int64_t kv = h / (c.heads / c.kv_heads), first = c.window < 0 ? 0 : std::max<int64_t>(0, t - c.window);
      double total = 0;
      Numbers sums(kHeadDim, 0);
      for (int64_t key = first; key <= t; ++key) {
        const double* k = at(key, c.heads + kv);
        const double power = std::exp(std::inner_product(k, k + kHeadDim, at(t, h), 0.0) / std::sqrt(kHeadDim));
        total += power;
        for (int64_t e = 0; e < kHeadDim; ++e) sums[e] += power * at(key, c.heads + c.kv_heads + kv)[e];
      }
      for (int64_t e = 0; e < kHeadDim; ++e) y[static_cast<size_t>((t * c.heads + h) * kHeadDim + e)] = sums[e] / total;
    }
  return product(y, find(state, "out.weight"));
}

void expect_numbers(const Tensor& got, const Numbers& want) {
  const Numbers values = got.to_vector<double>();
  ASSERT_EQ(values.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(values[i], want[i], 1e-9 * (1 + std::abs(want[i]))) << i;
}

/// The outputs of each sequence x[s], whose tokens come in the steps; steps[i][s] are sequence s's in step i.
std::vector<Tensor> through_cache(const nn::PackedAttention& layer, nn::KeyValueCache& cache,
                                  const std::vector<Tensor>& x, const std::vector<Counts>& steps) {
  const NoGrad off;
  std::vector<std::vector<Tensor>> parts(x.size());
  for (const Counts& counts : steps) {
    std::vector<Tensor> rows;
    for (size_t s = 0; s < x.size(); ++s)
      rows.push_back(x[s].slice(0, cache.lengths()[s], cache.lengths()[s] + counts[s]));
    cache.extend(counts);
    const std::vector<Tensor> y = layer.forward(cat(rows), cache, 0).split(counts);
    for (size_t s = 0; s < x.size(); ++s) parts[s].push_back(y[s]);
  }
  std::vector<Tensor> result;
  for (const auto& part : parts) result.push_back(cat(part));
  return result;
}

TEST(PackedAttention, GroupsRotaryAndWindowsWithAndWithoutACache) {
  const std::vector<Counts> steps = {{5, 0, 3}, {1, 1, 1}, {0, 7, 20}, {1, 0, 1}, {1, 2, 1}};  // grows at the third
  const Counts lengths = {8, 10, 26};
  for (const Case& c : kCases)
    for (const int64_t capacity : {int64_t{0}, int64_t{27}}) {
      SCOPED_TRACE(testing::Message() << c.heads << " heads, " << c.kv_heads << ", window " << c.window);
      const nn::PackedAttention layer = attention_of(c);
      std::vector<Tensor> x;
      for (size_t s = 0; s < 3; ++s) x.push_back(fresh_normal({lengths[s], c.heads * kHeadDim}, 20 + s, float64));
      nn::KeyValueCache cache(1, 3, {.capacity = capacity});
      const std::vector<Tensor> cached = through_cache(layer, cache, x, steps);
      const std::vector<Tensor> packed = layer.forward(cat(x), packed_layout(lengths)).split(lengths);
      for (size_t s = 0; s < 3; ++s) {
        const Numbers want = defined(layer, c, x[s]);
        expect_numbers(packed[s], want);
        expect_numbers(cached[s], want);
      }
      EXPECT_EQ(cache.lengths(), lengths);
      EXPECT_EQ(cache.bytes(), 2 * 3 * (capacity == 0 ? 32 : 27) * c.kv_heads * kHeadDim * 8);
      // In a padded batch positions start at 0 in each sequence; positions in the layout replace them.
      const Tensor two = stack({x[0], x[1].slice(0, 0, 8)});
      expect_numbers(layer.forward(two)[1], defined(layer, c, two[1]));
      SequenceLayout moved = packed_layout({8});
      moved.positions = arange(1000, 1008).to(int32);  // only distances count
      expect_numbers(layer.forward(x[0], moved), defined(layer, c, x[0]));
    }
}

TEST(KeyValueCache, TruncatesSelectsAndStartsAnew) {
  const Case& c = kCases[1];
  const nn::PackedAttention layer = attention_of(c);
  const Tensor a = fresh_normal({20, 24}, 1, float64), b = fresh_normal({20, 24}, 2, float64);
  const auto last = [](const Tensor& x, int64_t first, int64_t end) { return x.slice(0, first, end); };
  nn::KeyValueCache cache(1, 2);
  through_cache(layer, cache, {a, b}, {{6, 4}});
  cache.truncate({3, 4});
  EXPECT_EQ(cache.lengths(), (Counts{3, 4}));
  // Sequence 0 goes on with b's rows behind a's first three, as if a's others had not been.
  const Tensor other = cat({last(a, 0, 3), last(b, 3, 9)});
  const std::vector<Tensor> forked = through_cache(layer, cache, {other, b}, {{2, 1}, {4, 0}});
  expect_numbers(forked[0], last(from_vector(defined(layer, c, other), {9, 24}), 3, 9).to_vector<double>());
  cache.select({1, 0, 0});
  EXPECT_EQ(cache.lengths(), (Counts{5, 9, 9}));
  const Tensor more = cat({other, last(a, 0, 12)});
  const std::vector<Tensor> chosen = through_cache(layer, cache, {b, more, other}, {{12, 12, 0}});
  expect_numbers(chosen[0], last(from_vector(defined(layer, c, b), {20, 24}), 5, 17).to_vector<double>());
  expect_numbers(chosen[1], last(from_vector(defined(layer, c, more), {21, 24}), 9, 21).to_vector<double>());
  cache.reset();
  EXPECT_EQ(cache.lengths(), (Counts{0, 0, 0}));
  expect_numbers(through_cache(layer, cache, {a, b, a}, {{2, 20, 1}})[1], defined(layer, c, b));
}

TEST(KeyValueCache, Errors) {
  const nn::PackedAttention layer = attention_of(kCases[1]);
  const Tensor x = fresh_normal({4, 24}, 1, float64);
  expect_error([] { nn::KeyValueCache(0, 1); }, {"at least 1 layer"});
  expect_error([] { nn::KeyValueCache(1, 1, {.capacity = -1}); }, {"capacity", "-1"});
  expect_error([] { nn::KeyValueCache(1, 3, {.capacity = 1 << 30}); }, {"32-bit", "smaller capacity"});
  nn::KeyValueCache cache(2, 2, {.capacity = 3});
  {
    const NoGrad off;
    expect_error([&] { layer.forward(x, cache, 0); }, {"4 rows", "0 new tokens", "extend()"});
    expect_error([&] { cache.extend({1}); }, {"1 sequences", "has 2"});
    expect_error([&] { cache.extend({1, -1}); }, {"sequence 1", "-1"});
    expect_error([&] { cache.extend({1, 4}); }, {"sequence 1", "4 tokens", "capacity is 3", "truncate()"});
    cache.extend({2, 2});
    expect_error([&] { layer.forward(x, cache, 2); }, {"layer 2 of 2"});
    expect_error([&] { layer.forward(x.slice(0, 0, 3), cache, 0); }, {"3 rows", "4 new tokens"});
    expect_error([&] { cache.attention(0, ones({3, 1, 2}), ones({3, 1, 2}), ones({3, 1, 2})); }, {"[4, heads"});
    layer.forward(x, cache, 0);
    expect_error([&] { layer.forward(x, cache, 0); }, {"layer 0", "extend()"});
    expect_error([&] { cache.extend({1, 1}); }, {"layer 1", "2 layers"});
    expect_error([&] { cache.select({0}); }, {"layer 1", "2 layers"});
    expect_error([&] { cache.truncate({1, 0}); }, {"layer 1", "2 layers"});
    cache.truncate({0, 0});
    cache.extend({3, 1});
    const Tensor k = ones({4, 2, 6});
    expect_error([&] { cache.attention(0, k, k, k); }, {"float32", "this layer has float64", "2 heads", "6"});
    expect_error([&] { cache.attention(1, k, k, k, {.bias = ones({1, 1, 3, 4})}); }, {"bias is [1, 1, 3, 4]", "3, 3]"});
    cache.attention(1, k, k, k);
    layer.forward(x, cache, 0);
    expect_error([&] { cache.truncate({4, 1}); }, {"sequence 0", "to 4", "has 3"});
    expect_error([&] { cache.select({2}); }, {"sequence 2", "has 2"});
  }
  cache.reset();
  cache.extend({2, 2});
  expect_error([&] { layer.forward(x, cache, 0); }, {"NoGrad"});
  const nn::PackedAttention open(scope(), 24, 4);
  expect_error([&] { open.forward(x, cache, 0); }, {"must be causal"});
}

/// forward() is the output's projection of the values that probabilities() weights; the first sequence begins with a
/// token that is none, so that with causal its query sees nothing.
TEST(PackedAttention, ProbabilitiesAreThoseOfForward) {
  constexpr int64_t kSequences = 2, kLength = 7;
  for (const Case& c : kCases)
    for (const bool causal : {false, true})
      for (const bool padded : {false, true}) {
        SCOPED_TRACE(std::to_string(c.heads) + " heads, " + std::to_string(c.kv_heads) + " of keys, window " +
                     std::to_string(c.window) + (causal ? ", causal" : "") + (padded ? ", padded" : ""));
        const int64_t width = c.heads * kHeadDim, kv_width = c.kv_heads * kHeadDim;
        const nn::PackedAttention layer(
            scope(), width, c.heads,
            {.causal = causal, .window = c.window, .kv_heads = c.kv_heads, .rotary = c.rotary});
        Tensor mask = ones({kSequences, kLength}, {.dtype = int64});
        for (const int64_t column : {0, 3}) mask.select(0, 0).select(0, column).copy_(zeros({}, {.dtype = int64}));
        const SequenceLayout layout = padded_layout(kSequences, kLength, padded ? mask : Tensor());
        const Tensor x = fresh_normal({kSequences * kLength, width}, 2, float64);
        const Tensor p = layer.probabilities(x, layout);
        const StateView state = layer.state_dict();
        const auto entry = [&](const std::string& name) {
          for (const NamedTensor& e : state)
            if (e.name == name) return e.tensor;
          return Tensor();
        };
        const Tensor v = linear(x, entry("qkv.weight").slice(0, width + kv_width, width + 2 * kv_width));
        Tensor attended = zeros({kSequences, kLength, width}, {.dtype = float64});
        for (int64_t s = 0; s < kSequences; ++s)
          for (int64_t h = 0; h < c.heads; ++h) {
            const int64_t of = h / (c.heads / c.kv_heads);
            const Tensor values =
                v.slice(0, s * kLength, (s + 1) * kLength).slice(1, of * kHeadDim, (of + 1) * kHeadDim);
            const NoGrad off;
            attended.select(0, s)
                .slice(1, h * kHeadDim, (h + 1) * kHeadDim)
                .copy_(matmul(p.select(0, s).select(0, h), values));
          }
        const Tensor expected = linear(attended.reshape({-1, width}), entry("out.weight"), entry("out.bias"));
        expect_near(layer.forward(x, layout), expected, 1e-12);
      }
}

/// Steps from a cache with their rows of a bias are attention of all tokens with the whole bias.
TEST(KeyValueCache, ABiasIsThatOfTheNewTokens) {
  const NoGrad off;
  constexpr int64_t kHeads = 4, kKvHeads = 2, kLongest = 9;
  for (const int64_t of : {1, 2}) {  // one bias for both sequences, or one each
    const Tensor bias = fresh_normal({of, of == 1 ? 1 : kHeads, kLongest, kLongest}, 3, float64);
    nn::KeyValueCache cache(1, 2);
    const Counts lengths = {9, 4};
    const auto values = [&](uint64_t salt, int64_t heads) {
      return fresh_normal({13, heads, kHeadDim}, salt, float64);
    };
    const Tensor q = values(4, kHeads), k = values(5, kKvHeads), v = values(6, kKvHeads);
    const SequenceLayout layout = packed_layout(lengths);
    const Tensor expected = attention(q, k, v, layout, layout, {.causal = true, .bias = bias});
    Counts done = {0, 0};
    for (const Counts& counts : std::vector<Counts>{{3, 1}, {1, 1}, {5, 2}}) {
      std::vector<int64_t> rows;
      for (int64_t s = 0; s < 2; ++s)
        for (int64_t i = 0; i < counts[static_cast<size_t>(s)]; ++i)
          rows.push_back((s == 0 ? 0 : lengths[0]) + done[static_cast<size_t>(s)] + i);
      const Tensor at = from_vector(rows, {static_cast<int64_t>(rows.size())});
      cache.extend(counts);
      const int64_t most = std::max(counts[0], counts[1]), longest = std::max(done[0] + counts[0], done[1] + counts[1]);
      // The rows of each sequence's new tokens.
      Tensor step = zeros({2, bias.size(1), most, longest}, {.dtype = float64});
      for (int64_t s = 0; s < 2; ++s) {
        const int64_t from = done[static_cast<size_t>(s)], n = counts[static_cast<size_t>(s)];
        step.select(0, s).slice(1, 0, n).copy_(
            bias.select(0, of == 1 ? 0 : s).slice(1, from, from + n).slice(2, 0, longest));
      }
      const Tensor got =
          cache.attention(0, index_select(q, 0, at), index_select(k, 0, at), index_select(v, 0, at), {.bias = step});
      expect_near(got, index_select(expected, 0, at), 1e-12);
      for (size_t s = 0; s < 2; ++s) done[s] += counts[s];
    }
  }
}

TEST(PackedAttention, RefusesWhatGroupsAndRotaryDoNotHave) {
  expect_error([] { nn::PackedAttention(scope(), 24, 4, {.kv_heads = 3}); }, {"kv_heads", "4", "3"});
  expect_error([] { nn::PackedAttention(scope(), 24, 4, {.kv_heads = -1}); }, {"kv_heads", "-1"});
  const nn::PackedAttention grouped = attention_of(kCases[3]), rotated = attention_of(kCases[4]);
  const Tensor x = fresh_normal({4, 12}, 1, float64);
  const SequenceLayout layout = packed_layout({4});
  expect_error([&] { grouped.probabilities(x, packed_layout({1, 3})); }, {"one length", "4 tokens in 2 sequences"});
  expect_error([&] { rotated.forward(x, layout, x, layout); }, {"rotary", "self-attention"});
  expect_numbers(grouped.forward(x, layout, x, layout), grouped.forward(x, layout).to_vector<double>());
}

}  // namespace
}  // namespace tern::test

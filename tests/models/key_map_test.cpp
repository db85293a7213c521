#include "tern/models/key_map.h"

#include <cmath>

#include "tern/core/ops/ops.h"
#include "tern/tests/errors.h"

namespace tern::models {
namespace {

const KeyMap kMap = {{"layer.*.qkv", {"h.*.q", "h.*.k", "h.*.v"}}, {"head.weight", {"classifier.weight"}}};

Tensor numbers(double begin, double end) { return arange(begin, end, 1, {.dtype = DType::kFloat32}); }

StateView own_state() {
  return {{"layer.0.qkv", numbers(0, 12).reshape({6, 2})},
          {"layer.11.qkv", numbers(100, 112).reshape({6, 2})},
          {"head.weight", numbers(0, 3)}};
}

std::vector<std::string> names(const StateView& state) {
  std::vector<std::string> found;
  for (const NamedTensor& entry : state) found.push_back(entry.name);
  return found;
}

std::string error_of(const StateView& given, const FromCheckpointOptions& options = {}) {
  return test::error_of([&] { from_checkpoint_names(kMap, own_state(), given, "file", options); });
}

TEST(KeyMap, SplitsAndJoins) {
  const StateView other = to_checkpoint_names(kMap, own_state());
  EXPECT_EQ(names(other),
            (std::vector<std::string>{"h.0.q", "h.0.k", "h.0.v", "h.11.q", "h.11.k", "h.11.v", "classifier.weight"}));
  EXPECT_EQ(other[4].tensor.to_vector<double>(), (std::vector<double>{104, 105, 106, 107}));
  EXPECT_EQ(other[4].tensor.shape(), Shape({2, 2}));
  const StateView back = from_checkpoint_names(kMap, own_state(), {other.rbegin(), other.rend()}, "file");
  ASSERT_EQ(names(back), names(own_state()));
  for (size_t i = 0; i < back.size(); ++i) {
    EXPECT_EQ(back[i].tensor.to_vector<double>(), own_state()[i].tensor.to_vector<double>());
    EXPECT_EQ(back[i].tensor.shape(), own_state()[i].tensor.shape());
  }
}

TEST(KeyMap, StarsAreNumbersAndTheSameOnBothSides) {
  EXPECT_THROW(to_checkpoint_names(kMap, {{"layer.x.qkv", zeros({3})}}), Error);
  EXPECT_THROW(to_checkpoint_names(kMap, {{"layer..qkv", zeros({3})}}), Error);
  EXPECT_THROW(to_checkpoint_names(kMap, {{"head.weight.more", zeros({3})}}), Error);
}

TEST(KeyMap, ListsEverythingThatDoesNotFit) {
  StateView given = to_checkpoint_names(kMap, own_state());
  given[0].name = "h.0.query";      // one missing, one unexpected
  given[4].tensor = zeros({3, 2});  // wrong shape
  given[6].tensor = zeros({3}, {.dtype = DType::kInt64});
  test::expect_contains(error_of(given), {"file: ", "missing: h.0.q;", "unexpected: h.0.query;",
                                          "h.11.k is [3, 2], expected [2, 2]", "classifier.weight is int64"});
}

TEST(KeyMap, OptionalAndIgnoredNames) {
  StateView given = to_checkpoint_names(kMap, own_state());
  given.pop_back();
  EXPECT_NE(error_of(given), "no error");
  FromCheckpointOptions options;
  options.optional_prefixes = {"head."};
  EXPECT_EQ(error_of(given, options), "no error");
  EXPECT_EQ(from_checkpoint_names(kMap, own_state(), given, "file", options).size(), 2u);
  given.push_back({"classifier.weight", zeros({7})});  // other number of labels
  EXPECT_EQ(from_checkpoint_names(kMap, own_state(), given, "file", options).size(), 2u);
  EXPECT_NE(error_of(given), "no error");
  given.push_back({"vocab.weight", zeros({1})});
  EXPECT_NE(error_of(given, options), "no error");
  options.ignored_prefixes = {"vocab."};
  EXPECT_EQ(error_of(given, options), "no error");
}

bool has_head(const StateView& state) { return find(state, "head").defined(); }

TEST(KeyMap, SetsBehindAPrefix) {
  const Tensor x = zeros({1});
  const auto set_of = [](const StateView& state) { return find_set(state, has_head, "file"); };
  EXPECT_EQ(set_of({{"a.head", x}, {"head", x}})->prefix, "");
  EXPECT_EQ(set_of({{"a.head", x}, {"head", x}})->tensors.size(), 2u);
  EXPECT_FALSE(set_of({{"ahead", x}, {"a.heads", x}}).has_value());
  const auto set = set_of({{"a.b.head", x}, {"a.b.body.x", x}, {"a.c", x}, {"d", x}});
  EXPECT_EQ(set->prefix, "a.b.");
  EXPECT_EQ(names(set->tensors), (std::vector<std::string>{"head", "body.x"}));
  EXPECT_EQ(set->others, (std::vector<std::string>{"a.c", "d"}));
  EXPECT_EQ(set->description(), "the tensors under 'a.b.', without a.c, d");
  EXPECT_EQ(set_of({{"a.head", x}, {"a.b.head", x}})->prefix, "a.");  // the inner one is a part of it
  test::expect_contains(test::error_of([&] {
                          set_of({{"a.head", x}, {"b.c.head", x}});
                        }),
                        {"file: ", "'a.'", "'b.c.'"});
}

TEST(KeyMap, CountersAndNormsOfOldAndAveragedFiles) {
  const KeyMap map = {{"num_batches_tracked", {"n.num_batches_tracked"}}, {"steps", {"steps"}}};
  const auto read = [&](const Tensor& count) {
    const StateView state = {{"num_batches_tracked", zeros({}, {.dtype = int64})},
                             {"steps", zeros({}, {.dtype = int64})}};
    return from_checkpoint_names(map, state, {{"n.num_batches_tracked", count}, {"steps", ones({}, {.dtype = int64})}},
                                 "file")[0]
        .tensor;
  };
  EXPECT_EQ(read(full({}, 1234.75, {.dtype = float32})).item<int64_t>(), 1234);
  EXPECT_EQ(read(full({}, 300.0, {.dtype = float16})).item<int64_t>(), 300);
  EXPECT_EQ(read(full({}, -1.0, {.dtype = float64})).item<int64_t>(), 0);
  EXPECT_EQ(read(full({}, NAN, {.dtype = float32})).item<int64_t>(), 0);
  EXPECT_EQ(read(full({}, INFINITY, {.dtype = float16})).dtype(), int64);
  EXPECT_THROW(read(ones({2})), Error);
  StateView old = {{"a.LayerNorm.gamma", ones({1})}, {"b_norm.beta", ones({1})}, {"gamma.x", ones({1})}};
  modernise_norms(old);
  EXPECT_EQ(names(old), (std::vector<std::string>{"a.LayerNorm.weight", "b_norm.bias", "gamma.x"}));
}

}  // namespace
}  // namespace tern::models

// Token batches: packed, padded and of one shape, for any number of workers.

#include "tern/data/loaders/token_loader.h"

#include <algorithm>
#include <set>

#include "tern/tests/data/support.h"
#include "tern/tests/support/seed.h"

namespace tern::data {
namespace {

constexpr int32_t kPad = 7;

/// Never 0, which is padding's.
int32_t type_at(int32_t row, int32_t position) { return 1 + (row + position) % 3; }

/// Row r has 2 + (5 r mod 11) tokens: 1000 r + position.
std::shared_ptr<const TokenSet> token_rows(int32_t n) {
  auto tokens = std::make_shared<TokenSet>();
  for (int32_t row = 0; row < n; ++row) {
    for (int32_t position = 0; position < 2 + 5 * row % 11; ++position) {
      tokens->ids.push_back(1000 * row + position);
      tokens->types.push_back(type_at(row, position));
    }
    tokens->offsets.push_back(static_cast<int64_t>(tokens->ids.size()));
  }
  return tokens;
}

std::vector<int32_t> label_rows(int32_t n) {
  std::vector<int32_t> labels;
  for (int32_t row = 0; row < n; ++row) labels.push_back(row % 3);
  return labels;
}

TokenLoader token_loader(int32_t n, BatchPlanOptions plan, TokenLoaderOptions options = {}) {
  const auto tokens = token_rows(n);
  plan.seed = fresh_seed();
  options.pad_id = kPad;
  return TokenLoader(tokens, label_rows(n), BatchPlan(rows_below(n), tokens->lengths(), plan, 2), options);
}

/// Checks the properties documented at TokenBatch for every row of a real sequence.
void expect_real_rows(const TokenBatch& batch, const TokenSet& set) {
  const auto tokens = batch.tokens.to_vector<int32_t>(), offsets = batch.layout.offsets.to_vector<int32_t>();
  const auto positions = batch.positions.to_vector<int32_t>();
  const auto keys = batch.layout.row_keys.to_vector<int64_t>(), labels = batch.labels.to_vector<int64_t>();
  const auto first_rows = batch.first_rows.to_vector<int64_t>(), types = batch.token_types.to_vector<int64_t>();
  ASSERT_EQ(types.size(), tokens.size());
  ASSERT_EQ(offsets.size(), static_cast<size_t>(batch.sequences()) + 1);
  EXPECT_EQ(offsets[0], 0);
  int64_t real = 0;
  for (size_t s = 0; s < batch.rows.size(); ++s) {
    const int32_t row = batch.rows[s];
    const auto ids = set.row(row);
    real += static_cast<int64_t>(ids.size());
    EXPECT_EQ(labels[s], row % 3);
    EXPECT_EQ(first_rows[s], offsets[s]);
    EXPECT_LE(offsets[s + 1] - offsets[s], batch.layout.max_length);
    for (int32_t at = offsets[s]; at < offsets[s + 1]; ++at) {
      const int32_t position = at - offsets[s];
      const bool valid = position < static_cast<int32_t>(ids.size());
      EXPECT_EQ(tokens[at], valid ? ids[position] : kPad);
      EXPECT_EQ(types[at], valid ? type_at(row, position) : 0);
      EXPECT_EQ(positions[at], position);
      EXPECT_EQ(keys[at], (static_cast<int64_t>(row) << 32) + position);
      EXPECT_EQ(batch.padded() ? batch.layout.key_mask.to_vector<uint8_t>()[at] : 1, valid);
    }
  }
  EXPECT_EQ(batch.real_tokens, real);
  EXPECT_EQ(std::set<int64_t>(keys.begin(), keys.end()).size(), keys.size());
}

TEST(TokenLoader, Packed) {
  const TokenLoader loader = token_loader(40, {.batch_tokens = 31});
  std::vector<int32_t> seen;
  for (const TokenBatch& batch : loader.epoch(1)) {
    EXPECT_FALSE(batch.padded());
    expect_real_rows(batch, *token_rows(40));
    EXPECT_EQ(batch.tokens.numel(), batch.real_tokens);
    EXPECT_LE(batch.real_tokens, 31);
    EXPECT_EQ(batch.layout.offsets.to_vector<int32_t>().back(), batch.real_tokens);
    EXPECT_EQ(batch.epoch, 1);
    seen.insert(seen.end(), batch.rows.begin(), batch.rows.end());
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, rows_below(40));
}

TEST(TokenLoader, PaddedToTheLongest) {
  const TokenLoader loader = token_loader(23, {.batch_size = 4});
  int64_t step = 0;
  for (const TokenBatch& batch : loader.epoch(0)) {
    EXPECT_EQ(batch.step, step++);
    expect_real_rows(batch, *token_rows(23));
    int64_t longest = 0;
    for (const int32_t row : batch.rows) longest = std::max<int64_t>(longest, 2 + 5 * row % 11);
    EXPECT_EQ(batch.layout.max_length, longest);
    const auto offsets = batch.layout.offsets.to_vector<int32_t>();
    for (size_t s = 0; s < offsets.size(); ++s) EXPECT_EQ(offsets[s], static_cast<int64_t>(s) * longest);
    EXPECT_EQ(batch.layout.key_mask.numel(), batch.tokens.numel());
  }
  EXPECT_EQ(step, 6);
}

TEST(TokenLoader, FixedCapacityHasOneShape) {
  for (const bool packed : {true, false}) {
    const BatchPlanOptions plan{.batch_size = packed ? 0 : 4, .batch_tokens = packed ? 31 : 0};
    const TokenLoader loader = token_loader(23, plan, {.fixed_capacity = true});
    const int64_t sequences = packed ? loader.plan().max_batch_sequences() : 4;
    const int64_t rows = packed ? 31 : 4 * 12;
    int64_t filled = 0;
    for (int64_t epoch = 0; epoch < 2; ++epoch)
      for (const TokenBatch& batch : loader.epoch(epoch)) {
        EXPECT_EQ(batch.tokens.shape(), Shape{rows});
        EXPECT_EQ(batch.labels.shape(), Shape{sequences});
        EXPECT_EQ(batch.layout.max_length, 12);
        expect_real_rows(batch, *token_rows(23));
        const auto offsets = batch.layout.offsets.to_vector<int32_t>();
        const auto labels = batch.labels.to_vector<int64_t>();
        const auto tokens = batch.tokens.to_vector<int32_t>();
        const auto keys = batch.layout.row_keys.to_vector<int64_t>();
        for (size_t s = batch.rows.size(); s < static_cast<size_t>(sequences); ++s, ++filled) {
          EXPECT_EQ(labels[s], kIgnoredLabel);
          EXPECT_EQ(offsets[s + 1] - offsets[s], packed ? 0 : 12);
          EXPECT_EQ(batch.first_rows.to_vector<int64_t>()[s], packed ? 0 : offsets[s]);
        }
        for (size_t at = static_cast<size_t>(offsets[batch.rows.size()]); at < static_cast<size_t>(rows); ++at) {
          EXPECT_EQ(tokens[at], kPad);
          EXPECT_EQ(batch.token_types.to_vector<int32_t>()[at], 0);
          EXPECT_LT(keys[at], 0);
          EXPECT_TRUE(packed || batch.layout.key_mask.to_vector<uint8_t>()[at] == 0);
        }
      }
    EXPECT_TRUE(packed || filled > 0);  // by chance all packed batches may have the same number of sequences
  }
}

TEST(TokenLoader, TypesOnlyWhereTheTokensHaveThem) {
  auto tokens = std::make_shared<TokenSet>(*token_rows(5));
  const auto loader = [&] {
    return TokenLoader(tokens, {}, BatchPlan(rows_below(5), tokens->lengths(), {.batch_size = 2}, 1), {.workers = 0});
  };
  EXPECT_TRUE(loader().batch(0, 0).token_types.defined());
  tokens->types.pop_back();
  EXPECT_TRUE(fails([&] { loader(); }, {"token types"}));
  tokens->types.clear();
  EXPECT_FALSE(loader().batch(0, 0).token_types.defined());
}

TEST(TokenLoader, SameBatchesForAnyNumberOfWorkersAndFromAnyStep) {
  const TokenLoader reference = token_loader(200, {.batch_tokens = 64}, {.workers = 0});
  for (const int workers : {1, 2, 5}) {
    const TokenLoader loader = token_loader(200, {.batch_tokens = 64}, {.workers = workers});
    int64_t step = 4;
    for (const TokenBatch& batch : loader.epoch(1, {.first = step})) {
      const TokenBatch expected = reference.batch(1, step++);
      EXPECT_EQ(batch.rows, expected.rows);
      EXPECT_EQ(batch.tokens.to_vector<int32_t>(), expected.tokens.to_vector<int32_t>());
      EXPECT_EQ(batch.layout.row_keys.to_vector<int64_t>(), expected.layout.row_keys.to_vector<int64_t>());
    }
    EXPECT_EQ(step, reference.steps(1));
  }
}

/// A transform sees the whole batch: it replaces labels by numbers of each row, and masks tokens.
TEST(TokenLoader, TransformMakesOtherTargets) {
  const int32_t masked = 5;
  const auto transform = [&](TokenBatch& batch) {
    batch.labels = full({batch.tokens.size(0)}, static_cast<double>(kIgnoredLabel), {.dtype = DType::kInt64});
    for (int64_t row = 0; row < batch.tokens.size(0); ++row) {
      int32_t& token = batch.tokens.data<int32_t>()[row];
      if (token % 3 != 0 || batch.layout.row_keys.data<int64_t>()[row] < 0) continue;
      batch.labels.data<int64_t>()[row] = token;
      token = masked;
    }
  };
  for (const bool fixed : {false, true}) {
    const BatchPlanOptions plan{.batch_tokens = 40};
    const TokenLoader plain = token_loader(23, plan, {.fixed_capacity = fixed});
    const TokenLoader loader = token_loader(23, plan, {.fixed_capacity = fixed, .transform = transform});
    for (int64_t step = 0; step < plain.steps(1); ++step) {
      const TokenBatch before = plain.batch(1, step), after = loader.batch(1, step);
      EXPECT_EQ(after.sequences(), before.sequences());
      const auto was = before.tokens.to_vector<int32_t>(), is = after.tokens.to_vector<int32_t>();
      const auto keys = before.layout.row_keys.to_vector<int64_t>(), targets = after.labels.to_vector<int64_t>();
      ASSERT_EQ(targets.size(), was.size());
      for (size_t row = 0; row < was.size(); ++row) {
        const bool chosen = was[row] % 3 == 0 && keys[row] >= 0;
        EXPECT_EQ(is[row], chosen ? masked : was[row]);
        EXPECT_EQ(targets[row], chosen ? was[row] : kIgnoredLabel);
      }
    }
  }
}

TEST(TokenLoader, Errors) {
  const auto tokens = token_rows(5);
  const BatchPlan plan(rows_below(5), tokens->lengths(), {.batch_size = 2}, 1);
  const BatchPlan other(rows_below(5), {}, {.batch_size = 2}, 1);
  EXPECT_TRUE(fails([&] { TokenLoader(nullptr, {}, plan); }, {"no tokens"}));
  EXPECT_TRUE(fails([&] { TokenLoader(tokens, {1}, plan); }, {"5 token rows", "1 labels"}));
  EXPECT_TRUE(fails([&] { TokenLoader(token_rows(3), label_rows(3), plan); }, {"the plan names row", "of 3"}));
  EXPECT_TRUE(fails([&] { TokenLoader(tokens, label_rows(5), other); }, {"other lengths"}));
  EXPECT_TRUE(fails([&] { TokenLoader(tokens, label_rows(5), plan, {.workers = -1}); }, {"workers"}));
  const TokenLoader loader(tokens, label_rows(5), plan);
  EXPECT_TRUE(fails([&] { loader.epoch(1); }, {"epoch 1 of 1"}));
  EXPECT_TRUE(fails([&] { loader.epoch(0, {.first = 4}); }, {"batch 4 of 3"}));
  EXPECT_TRUE(fails([&] { loader.batch(0, 3); }, {"step 3 of 3"}));
}

TEST(TokenLoader, AMoveLeavesTheSourceUsable) {
  TokenLoader loader = token_loader(5, {.batch_tokens = 31});
  const TokenLoader other = std::move(loader);
  EXPECT_EQ(loader.steps(1), other.steps(1));
  const TokenBatch batch = loader.batch(1, 0), same_place = batch.to(cpu);
  EXPECT_EQ(batch.tokens.to_vector<int32_t>(), other.batch(1, 0).tokens.to_vector<int32_t>());
  EXPECT_EQ(same_place.tokens.to_vector<int32_t>(), batch.tokens.to_vector<int32_t>());
  EXPECT_FALSE(same_place.padded());
}

}  // namespace
}  // namespace tern::data

// Attention against the definition in fp64, over random shapes, layouts and options.

#include "tern/tests/kernels/contracts/attention_definition.h"

namespace tern::kernels::attention_test {
namespace {

class Attention : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, Attention, testing::ValuesIn(all_targets()), name_of_target);

/// The number of cases of a test; `emulated`: where a case takes longer.
int count_of(int on_cpu, int emulated) {
  if (kFewCases) return target().is_cpu() ? 3 : 1;
  return target().is_cpu() ? on_cpu : std::max(2, emulated / target().one_in());
}

/// Runs body for every kind of device that the target can be: with mma.sync, and with wgmma.
void for_each_device(const std::function<void()>& body) {
  for (const int capability : target().capabilities()) {
    target().set_capability(capability);
    SCOPED_TRACE(testing::Message() << "compute capability " << capability);
    body();
  }
}

std::vector<int32_t> random_offsets(std::mt19937_64& random, int64_t sequences, int64_t max_length) {
  std::vector<int32_t> offsets = {0};
  for (int64_t i = 0; i < sequences; ++i) {
    const bool empty = random() % 8 == 0;
    offsets.push_back(offsets.back() + (empty ? 0 : static_cast<int32_t>(random() % max_length + 1)));
  }
  return offsets;
}

/// `tensor_cores`: rows and options that CUDA's kernels for tensor cores take.
Case random_case(DType dtype, bool tensor_cores, std::mt19937_64& random) {
  const auto pick = [&](std::initializer_list<int64_t> options) { return options.begin()[random() % options.size()]; };
  Case c;
  c.dtype = dtype;
  c.seed = random();
  const bool on_cpu = target().is_cpu();
  const int64_t sequences = on_cpu ? pick({0, 1, 1, 2, 3, 5}) : pick({0, 1, 1, 2, 3}),
                max_length = tensor_cores ? pick({1, 17, 64, 90, 150, 200})
                             : on_cpu     ? pick({1, 3, 17, 40, 70, 130, 300})
                                          : pick({1, 3, 40, 70});
  c.query_offsets = random_offsets(random, sequences, max_length);
  c.fused = random() % 3 == 0;
  c.key_offsets = c.fused || random() % 2 ? c.query_offsets : random_offsets(random, sequences, max_length);
  c.kv_heads = pick({1, 1, 2, 3});
  c.heads = c.kv_heads * pick({1, 1, 2, 3});
  c.head_dim = tensor_cores       ? pick({8, 16, 32, 40, 48, 64, 64, 72, 80, 96, 112, 128})
               : max_length > 100 ? pick({1, 8, 32, 33, 64})
                                  : pick({1, 2, 5, 8, 16, 31, 32, 40, 64, 80, 96, 100, 128, 130, 160, 255, 256});
  c.scale = 1 / std::sqrt(static_cast<double>(c.head_dim)) * static_cast<double>(pick({1, 1, 1, 4, -1}));
  if (random() % 12 == 0) c.scale = 0;
  c.causal = random() % 3 == 0;
  c.window = random() % 4 == 0 ? static_cast<int64_t>(random() % 40) : -1;
  c.masked = random() % 3 == 0;
  c.keyed_rows = random() % 2 == 0;
  c.misalignment = tensor_cores ? pick({0, 8}) : pick({0, 0, 1, 3});
  c.spare_tokens = pick({0, 0, 5});
  if (!tensor_cores && random() % 2 == 0 && sequences > 0) {
    c.bias_sequences = random() % 2 ? 1 : sequences;
    c.bias_heads = random() % 2 ? 1 : c.heads;
  }
  if (random() % 3 == 0)
    c.dropout = {static_cast<double>(pick({1, 2, 5, 9})) / 10, key_with_base(random(), random() % 1000)};
  return c;
}

/// Compares random cases with the definition; in every run the same bits.
void check_random_cases(DType dtype, bool tensor_cores, int count, std::mt19937_64& random) {
  for (int i = 0; i < count && !testing::Test::HasFailure(); ++i) {
    Trial t(random_case(dtype, tensor_cores, random));
    SCOPED_TRACE(describe(t.c));
    t.run_in_every_way();
    expect_within(t);
    t.expect_only_results_written();
  }
}

TEST_P(Attention, SinglePrecision) { check_random_cases(float32, false, count_of(100, 40), random); }
TEST_P(Attention, DoublePrecision) { check_random_cases(float64, false, count_of(40, 16), random); }
TEST_P(Attention, SixteenBits) {
  for (const DType dtype : {bfloat16, float16}) check_random_cases(dtype, false, count_of(60, 12), random);
}
TEST_P(Attention, SixteenBitsOnTensorCores) {
  if (target().is_cpu()) return;
  for_each_device([&] {
    for (const DType dtype : {bfloat16, float16}) check_random_cases(dtype, true, count_of(0, 13), random);
  });
}

/// Where a query sees one key, the gradients of queries and keys are zero except for the rounding of the stored output.
TEST_P(Attention, OneKeyForEachQuery) {
  for (int i = 0; i < count_of(20, 2); ++i)
    for (const DType dtype : {bfloat16, float32}) {
      Case c = random_case(dtype, false, random);
      c.query_offsets = c.key_offsets = {0, 33, 34, 70};
      c.fused = c.masked = false;
      c.bias_sequences = 0;
      c.window = 0;
      c.dropout = {};
      SCOPED_TRACE(describe(c));
      Trial t(c);
      t.run();
      expect_within(t);
    }
}

/// The definition's analytic gradient against finite differences of its output.
TEST(AttentionDefinition, GradientsAreThoseOfTheOutput) {
  std::mt19937_64 random = fresh_random();
  for (int64_t n = 0; n < 6; ++n) {
    Case c;
    c.dtype = float64;
    c.query_offsets = {0, 4, 9};
    c.fused = n % 3 == 0;
    c.key_offsets = c.fused ? c.query_offsets : std::vector<int32_t>{0, 6, 11};
    c.kv_heads = 1 + n % 2;
    c.heads = 2 * c.kv_heads;
    c.head_dim = 5;
    c.scale = 0.7;
    c.causal = n % 2 == 0;
    c.masked = n == 3;
    c.window = n == 4 ? 2 : -1;
    c.bias_sequences = 1;
    c.bias_heads = n % 2 ? 1 : c.heads;
    if (n > 1) c.dropout = {0.2, {random(), random()}};
    c.seed = random();
    Trial t(c);
    SCOPED_TRACE(describe(c));
    const Results at = Definition(t, false).exact;
    const std::vector<double> dout = values_of(t.dout.view);
    const auto loss = [&] {
      const Results z = Definition(t, false).exact;
      double sum = 0;
      for (size_t i = 0; i < dout.size(); ++i) sum += dout[i] * z.out[i];
      return sum;
    };
    const auto check = [&](View view, const std::vector<double>& gradient, int64_t index, const char* what) {
      const double before = Array::read(view, index), step = 1e-5;
      Array::write(view, index, before + step);
      const double above = loss();
      Array::write(view, index, before - step);
      const double below = loss();
      Array::write(view, index, before);
      EXPECT_NEAR((above - below) / (2 * step), gradient[index], 1e-7) << what;
    };
    for (const int64_t token : {0, 3, 7}) {
      check(t.q.view, at.dq, (token * c.heads + c.heads - 1) * 5 + 2, "dq");
      check(t.k.view, at.dk, token * c.kv_heads * 5 + 4, "dk");
      check(t.v.view, at.dv, token * c.kv_heads * 5 + 1, "dv");
    }
    check(t.bias.view(), at.dbias, 2 * Case::longest(c.key_offsets) + 3, "dbias");
  }
}

/// With equal scores and the identity as values (or as dout) the results are the dropout mask.
void check_dropout_mask(DType dtype, int64_t head_dim) {
  Case c;
  c.dtype = dtype;
  c.query_offsets = {0, 61, 140};
  c.key_offsets = {0, 77, 150};
  c.heads = 3;
  c.head_dim = head_dim;
  c.keyed_rows = true;
  c.seed = fresh_seed();
  c.dropout = {0.3, key_with_base(fresh_seed(), 42)};
  Trial t(c);
  for (Heads* heads : {&t.q, &t.v, &t.dout}) heads->fill(0);
  for (int s = 0; s < 2; ++s) {
    for (int j = c.key_offsets[s]; j < c.key_offsets[s + 1]; ++j) t.v.set(j, 0, j - c.key_offsets[s], 1);
    for (int i = c.query_offsets[s]; i < c.query_offsets[s + 1]; ++i) t.dout.set(i, 1, i - c.query_offsets[s], 1);
  }
  t.run();
  const auto keeps = [&](int token, int head, int key) {
    return dropout_keeps(philox_key(c.dropout.key), t.row_keys[token], head, key, dropout_threshold(c.dropout.p));
  };
  int64_t wrong = 0, kept = 0;
  for (int s = 0; s < 2; ++s) {
    const int q0 = c.query_offsets[s], k0 = c.key_offsets[s], nk = c.key_offsets[s + 1] - k0;
    for (int i = q0; i < c.query_offsets[s + 1]; ++i)
      for (int j = 0; j < nk; ++j) {
        for (int h = 0; h < c.heads; ++h) wrong += (t.out.at(i, h, j) != 0) != keeps(i, h, j);
        wrong += (t.dv.at(k0 + j, 0, i - q0) != 0) != keeps(i, 1, j);
        kept += keeps(i, 1, j);
      }
  }
  EXPECT_EQ(wrong, 0) << describe(c);
  EXPECT_NEAR(static_cast<double>(kept) / (61 * 77 + 79 * 73), 0.7, 0.025);  // five standard deviations
}
TEST_P(Attention, DropoutMaskIsExactlyThatOfDropoutKeeps) {
  check_dropout_mask(float32, 80);
  for_each_device([] {
    check_dropout_mask(bfloat16, 96);
    check_dropout_mask(float16, 128);
  });
}

/// The same sequences packed, and padded to one length with a key mask and the packed rows' dropout keys: both within
/// the bounds of the packed case. Values in the padding must have no effect.
void check_padded(DType dtype) {
  const bool on_cpu = target().is_cpu();
  const std::vector<int32_t> lengths = on_cpu ? std::vector{37, 1, 128, 64, 0, 99} : std::vector{37, 1, 0, 70};
  const int32_t longest = on_cpu ? 140 : 75, count = static_cast<int32_t>(lengths.size());
  Case packed;
  packed.dtype = dtype;
  packed.query_offsets = {0};
  packed.heads = 4;
  packed.kv_heads = 2;
  packed.head_dim = 48;
  packed.scale = 0.2;
  packed.keyed_rows = true;
  packed.seed = fresh_seed();
  packed.dropout = {0.1, {fresh_seed(), 3}};
  Case padded = packed;
  padded.masked = true;
  std::vector<int64_t> places;  // of the packed tokens among the padded ones
  for (int32_t s = 0; s < count; ++s) {
    for (int32_t i = 0; i < lengths[s]; ++i) places.push_back(s * longest + i);
    packed.query_offsets.push_back(packed.query_offsets.back() + lengths[s]);
    padded.query_offsets.push_back((s + 1) * longest);
  }
  packed.key_offsets = packed.query_offsets;
  padded.key_offsets = padded.query_offsets;
  Trial a(packed), b(padded);
  b.dout.fill(0);
  b.k.fill(NAN);
  b.v.fill(INFINITY);
  std::fill(b.mask.begin(), b.mask.end(), 0);
  const int64_t tokens = packed.query_tokens();
  for (int64_t i = 0; i < tokens; ++i) {
    b.mask[places[i]] = 1;
    b.row_keys[places[i]] = a.row_keys[i];
    for (const auto& [from, to] : {std::pair(&a.q, &b.q), {&a.k, &b.k}, {&a.v, &b.v}, {&a.dout, &b.dout}})
      for (int64_t e = 0; e < from->view.shape[1] * 48; ++e) to->set(places[i], 0, e, from->at(i, 0, e));
  }
  a.run();
  b.run();
  const Definition definition(a);
  Results unpadded = a.results();
  const Results all = b.results();
  {
    SCOPED_TRACE("packed " + describe(packed));
    expect_within(unpadded, definition);
  }
  for (int64_t i = 0; i < tokens; ++i) {
    for (const auto& [part, width] :
         {std::pair(&Results::out, 4 * 48), {&Results::dq, 4 * 48}, {&Results::dk, 2 * 48}, {&Results::dv, 2 * 48}})
      std::copy_n((all.*part).begin() + places[i] * width, width, (unpadded.*part).begin() + i * width);
    for (int64_t h = 0; h < 4; ++h) unpadded.lse[h * tokens + i] = all.lse[h * padded.query_tokens() + places[i]];
  }
  SCOPED_TRACE("padded " + describe(padded));
  expect_within(unpadded, definition);
  for (int64_t i = 0; i < padded.query_tokens(); ++i)
    for (int64_t e = 0; b.mask[i] == 0 && e < 2 * 48; ++e)
      ASSERT_TRUE(b.dk.at(i, 0, e) == 0 && b.dv.at(i, 0, e) == 0) << "padding " << i;
}
TEST_P(Attention, PackedEqualsPadded) {
  if (!kFewCases || target().is_cpu()) check_padded(float32);
  for_each_device([] {
    check_padded(bfloat16);
    if (!kFewCases) check_padded(float16);
  });
}

TEST_P(Attention, DropsEverythingAtProbabilityOne) {
  const auto check = [&](DType dtype) {
    Case c = random_case(dtype, dtype == bfloat16, random);
    c.query_offsets = c.key_offsets = {0, 40, 90};
    c.bias_sequences = std::min<int64_t>(c.bias_sequences, 1);
    c.dropout.p = 1;
    SCOPED_TRACE(describe(c));
    Trial t(c);
    t.run();
    const Results got = t.results();
    for (const auto& [name, part] : kParts)
      EXPECT_TRUE(part == &Results::lse ||
                  std::all_of((got.*part).begin(), (got.*part).end(), [](double x) { return x == 0; }))
          << name;
    expect_within(t);
  };
  check(float32);
  for_each_device([&] { check(bfloat16); });
}

/// A NaN in one sequence affects that sequence's output and gradients, and no others.
void check_nan(DType dtype) {
  Case c;
  c.dtype = dtype;
  c.query_offsets = c.key_offsets = {0, 50, 120, 130};
  c.heads = c.kv_heads = 2;
  c.head_dim = 56;
  c.scale = 0.2;
  c.seed = fresh_seed();
  for (const auto& [name, poisoned] : {std::pair("q", &Trial::q), {"k", &Trial::k}, {"v", &Trial::v}}) {
    SCOPED_TRACE(testing::Message() << "NaN in " << name << ", " << describe(c));
    Trial t(c);
    (t.*poisoned).set(77, 1, 5, NAN);
    t.run();
    bool found_out = false, found_gradient = false;
    for (int64_t i = 0; i < 130; ++i)
      for (int64_t e = 0; e < 2 * c.head_dim; ++e) {
        const bool bad = std::isnan(t.out.at(i, 0, e));
        const bool bad_gradient =
            std::isnan(t.dq.at(i, 0, e)) || std::isnan(t.dk.at(i, 0, e)) || std::isnan(t.dv.at(i, 0, e));
        const bool elsewhere = i < 50 || i >= 120 || e < c.head_dim;
        ASSERT_FALSE(elsewhere && (bad || bad_gradient)) << "token " << i << " element " << e;
        found_out |= bad;
        found_gradient |= bad_gradient;
      }
    EXPECT_TRUE(found_out && found_gradient);
  }
}
TEST_P(Attention, NanStaysInItsSequence) {
  check_nan(float32);
  for_each_device([] { check_nan(bfloat16); });
}

/// Scores that differ by hundreds: probabilities underflow to zero without other effects.
void check_large_scores(DType dtype, int64_t head_dim) {
  Case c;
  c.dtype = dtype;
  c.query_offsets = {0, 33};
  c.key_offsets = {0, target().is_cpu() ? 290 : 150};
  c.heads = c.kv_heads = 2;
  c.head_dim = head_dim;
  c.scale = 60;
  c.seed = fresh_seed();
  Trial t(c);
  for (Heads* heads : {&t.q, &t.k})  // scores without rounding error
    for (int64_t i = 0; i < heads->view.numel(); ++i)
      Array::write(heads->view, i, std::round(Array::read(heads->view, i)));
  t.run();
  SCOPED_TRACE(describe(c));
  expect_within(t);
  if (!target().is_cpu() || dtype != float32) return;
  for (const double x : t.results().dv) ASSERT_TRUE(x == 0 || std::abs(x) > 1e-37) << x;
}
TEST_P(Attention, LargeScoresUnderflowCleanly) {
  check_large_scores(float32, 16);
  for_each_device([] { check_large_scores(bfloat16, 48); });
}

class AttentionProducts : public Attention {};
INSTANTIATE_TEST_SUITE_P(, AttentionProducts, testing::ValuesIn(counting_targets()), name_of_target);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AttentionProducts);

/// Rows that are padded to 64 or 128 values use wgmma if the device has it.
TEST_P(AttentionProducts, WgmmaIsUsedWhereTheDeviceHasIt) {
  for (const int capability : target().capabilities())
    for (const int64_t head_dim : {32, 40, 64, 88, 128}) {
      target().set_capability(capability);
      Case c;
      c.dtype = bfloat16;
      c.query_offsets = c.key_offsets = {0, 70};
      c.head_dim = head_dim;
      c.scale = 0.1;
      Trial t(c);
      const bool expected = capability == 90 && head_dim >= 40;
      EXPECT_EQ(traffic_of([&](Call& on) { t.forward(on); }).wgmma_products > 0, expected) << head_dim;
      EXPECT_EQ(traffic_of([&](Call& on) { t.backward(on); }).wgmma_products > 0, expected) << head_dim;
    }
}

}  // namespace
}  // namespace tern::kernels::attention_test

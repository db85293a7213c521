// Attention kernels against an fp64 reference, over random shapes, layouts and options.

#include "tern/tests/kernels/attention_bounds.h"
#include "tern/tests/support/levels.h"
#include "tern/tests/support/seed.h"

namespace tern::kernels::attention_test {
namespace {

std::vector<CpuLevel> levels() {
  std::vector<CpuLevel> result;
  for (CpuLevel level : {CpuLevel::kV2, CpuLevel::kV3, CpuLevel::kV4}) {
    if (can_test_level(level)) result.push_back(level);
  }
  return result;
}

/// Restores level and threads at the end of a test.
class AttentionTest : public ::testing::Test {
 protected:
  void TearDown() override {
    set_cpu_level(level_);
    set_num_threads(threads_);
  }

 private:
  CpuLevel level_ = cpu_level();
  int threads_ = num_threads();
};

std::vector<int32_t> random_offsets(std::mt19937_64& random, int64_t sequences, int64_t max_length) {
  std::vector<int32_t> offsets = {0};
  for (int64_t i = 0; i < sequences; ++i) {
    const bool empty = random() % 8 == 0;
    offsets.push_back(offsets.back() + (empty ? 0 : static_cast<int32_t>(random() % max_length + 1)));
  }
  return offsets;
}

Case random_case(uint64_t seed) {
  std::mt19937_64 random(seed * 7919 + 1);
  const auto pick = [&](std::initializer_list<int64_t> options) { return options.begin()[random() % options.size()]; };
  Case c;
  c.seed = seed;
  const int64_t sequences = pick({0, 1, 1, 2, 3, 5}), max_length = pick({1, 3, 17, 40, 70, 130, 300});
  c.query_offsets = random_offsets(random, sequences, max_length);
  c.fused = random() % 3 == 0;
  c.key_offsets = c.fused || random() % 2 ? c.query_offsets : random_offsets(random, sequences, max_length);
  c.kv_heads = pick({1, 1, 2, 3});
  c.heads = c.kv_heads * pick({1, 1, 2, 3});
  c.head_dim = max_length > 100 ? pick({1, 8, 32, 33, 64})
                                : pick({1, 2, 5, 8, 16, 31, 32, 40, 64, 80, 96, 100, 128, 160, 255, 256});
  c.scale = 1 / std::sqrt(static_cast<double>(c.head_dim)) * (random() % 4 == 0 ? 4.0 : 1.0);
  c.causal = random() % 3 == 0;
  c.window = random() % 4 == 0 ? static_cast<int64_t>(random() % 40) : -1;
  c.masked = random() % 3 == 0;
  c.keyed_rows = random() % 2 == 0;
  c.misalignment = pick({0, 0, 1, 3});
  c.spare_tokens = pick({0, 0, 5});
  if (random() % 3 == 0 && sequences > 0) {
    c.bias_sequences = random() % 2 ? 1 : sequences;
    c.bias_heads = random() % 2 ? 1 : c.heads;
  }
  if (random() % 3 == 0) c.dropout = {static_cast<double>(pick({1, 2, 5, 9})) / 10, {random(), random() % 1000}};
  return c;
}

/// `count` seeds of random cases, different in every run.
std::vector<uint64_t> seeds(uint64_t salt, size_t count) {
  std::mt19937_64 random = fresh_random(salt);
  std::vector<uint64_t> result(count);
  for (uint64_t& seed : result) seed = random();
  return result;
}

TEST_F(AttentionTest, MatchesReferenceOverRandomCases) {
  for (const uint64_t seed : seeds(1, 240)) {
    Trial<float> r(random_case(seed));
    const Results want = reference(r), bounds = Bounds<float>(r, want, Inner::kCompute).get();
    for (CpuLevel level : levels()) {
      set_cpu_level(level);
      set_num_threads(1);
      r.call();
      const Results one = results(r);
      expect_within(one, want, bounds, std::string(name_of(level)) + " " + describe(r.c));
      expect_gaps_untouched(r);
      for (int threads : {2, 3}) {
        set_num_threads(threads);
        r.call();
        ASSERT_TRUE(same_bits(results(r), one)) << threads << " threads, " << name_of(level) << " " << describe(r.c);
      }
    }
    if (HasFailure()) return;
  }
}

TEST_F(AttentionTest, DoublePrecisionMatchesReference) {
  for (const uint64_t seed : seeds(2, 80)) {
    Trial<double> r(random_case(seed));
    r.call();
    expect_within(r, Inner::kCompute, describe(r.c));
    expect_gaps_untouched(r);
  }
}

template <class T>
void check_16_bits(uint64_t salt) {
  for (const uint64_t seed : seeds(salt, 60)) {
    Trial<T> r(random_case(seed));
    const Results want = reference(r), bounds = Bounds<T>(r, want, Inner::kCompute).get();
    for (CpuLevel level : levels()) {
      set_cpu_level(level);
      r.call();
      expect_within(results(r), want, bounds, std::string(name_of(level)) + " " + describe(r.c));
    }
  }
}
TEST_F(AttentionTest, BFloat16MatchesReference) { check_16_bits<BFloat16>(3); }
TEST_F(AttentionTest, Float16MatchesReference) { check_16_bits<Float16>(4); }

/// Where a query sees one key, the gradients of queries and keys are zero except for the rounding of the stored output.
TEST_F(AttentionTest, OneKeyForEachQuery) {
  for (const uint64_t seed : seeds(5, 20)) {
    Case c = random_case(seed);
    c.query_offsets = c.key_offsets = {0, 33, 34, 70};
    c.fused = c.masked = false;
    c.bias_sequences = 0;
    c.window = 0;
    c.dropout = {};
    Trial<BFloat16> r(c);
    Trial<float> single(c);
    for (CpuLevel level : levels()) {
      set_cpu_level(level);
      r.call();
      expect_within(r, Inner::kCompute, std::string(name_of(level)) + " " + describe(c));
      single.call();
      expect_within(single, Inner::kCompute, std::string(name_of(level)) + " " + describe(c));
    }
  }
}

/// The reference's analytic gradient against finite differences of its output.
TEST_F(AttentionTest, ReferenceGradientsAreThoseOfTheDefinition) {
  for (const uint64_t seed : seeds(6, 6)) {
    Case c = random_case(seed);
    c.query_offsets = {0, 4, 9};
    c.key_offsets = c.fused ? c.query_offsets : std::vector<int32_t>{0, 6, 11};
    c.head_dim = 5;
    c.scale = 0.7;
    c.bias_sequences = 1;
    c.bias_heads = seed % 2 ? 1 : c.heads;
    Trial<double> r(c);
    const Results at = reference(r);
    const auto loss = [&] {
      const Results z = reference(r);
      const std::vector<double> dout = values(r.dout);
      double sum = 0;
      for (size_t i = 0; i < dout.size(); ++i) sum += dout[i] * z.out[i];
      return sum;
    };
    const auto check = [&](double* x, double gradient, const char* what) {
      const double before = *x, step = 1e-5;
      *x = before + step;
      const double above = loss();
      *x = before - step;
      const double below = loss();
      *x = before;
      EXPECT_NEAR((above - below) / (2 * step), gradient, 1e-7) << what << " of " << describe(c);
    };
    for (int64_t token : {0, 3, 7}) {
      check(r.q.at(token, c.heads - 1) + 2, at.dq[(token * c.heads + c.heads - 1) * 5 + 2], "dq");
      check(r.k.at(token, 0) + 4, at.dk[token * c.kv_heads * 5 + 4], "dk");
      check(r.v.at(token, 0) + 1, at.dv[token * c.kv_heads * 5 + 1], "dv");
    }
    const ConstView& b = r.params.bias;
    check(&r.bias_store[2 * b.strides[2] + 3 * b.strides[3]], at.dbias[2 * b.shape[3] + 3], "dbias");
  }
}

/// With equal scores and the identity as values (or as dout) the results are the dropout mask.
TEST_F(AttentionTest, DropoutMaskIsExactlyThatOfDropoutKeeps) {
  Case c;
  c.query_offsets = {0, 61, 150};
  c.key_offsets = {0, 77, 160};
  c.heads = 3;
  c.kv_heads = 1;
  c.head_dim = 96;
  c.keyed_rows = true;
  c.seed = fresh_seed();
  c.dropout = {0.3, {fresh_seed(), 42}};
  Trial<float> r(c);
  std::fill(r.q_store.begin(), r.q_store.end(), 0.0f);
  std::fill(r.v_store.begin(), r.v_store.end(), 0.0f);
  std::fill(r.dout_store.begin(), r.dout_store.end(), 0.0f);
  for (int s = 0; s < 2; ++s) {
    for (int j = c.key_offsets[s]; j < c.key_offsets[s + 1]; ++j) r.v.at(j, 0)[j - c.key_offsets[s]] = 1;
    for (int i = c.query_offsets[s]; i < c.query_offsets[s + 1]; ++i) r.dout.at(i, 1)[i - c.query_offsets[s]] = 1;
  }
  const auto keeps = [&](int token, int head, int key) {
    return dropout_keeps(philox_key(c.dropout.key), r.row_keys[token], head, key, dropout_threshold(c.dropout.p));
  };
  for (CpuLevel level : levels()) {
    set_cpu_level(level);
    r.call();
    int64_t wrong = 0, kept = 0;
    for (int s = 0; s < 2; ++s) {
      const int q0 = c.query_offsets[s], q1 = c.query_offsets[s + 1], k0 = c.key_offsets[s],
                nk = c.key_offsets[s + 1] - k0;
      for (int i = q0; i < q1; ++i) {
        for (int j = 0; j < nk; ++j) {
          for (int h = 0; h < c.heads; ++h) wrong += (r.out.at(i, h)[j] != 0) != keeps(i, h, j);
          wrong += (r.dv.at(k0 + j, 0)[i - q0] != 0) != keeps(i, 1, j);
          kept += keeps(i, 1, j);
        }
      }
    }
    EXPECT_EQ(wrong, 0) << name_of(level);
    EXPECT_NEAR(static_cast<double>(kept) / (61 * 77 + 89 * 83), 0.7, 0.02);
  }
}

/// The same sequences packed, and padded to one length with a key mask and the packed rows' dropout keys.
TEST_F(AttentionTest, PackedEqualsPadded) {
  const std::vector<int32_t> lengths = {37, 1, 128, 64, 0, 99};
  const int64_t longest = 140, count = static_cast<int64_t>(lengths.size());
  Case packed, padded;
  packed.query_offsets = padded.query_offsets = {0};
  for (int64_t s = 0; s < count; ++s) {
    packed.query_offsets.push_back(packed.query_offsets.back() + lengths[s]);
    padded.query_offsets.push_back(static_cast<int32_t>((s + 1) * longest));
  }
  for (Case* c : {&packed, &padded}) {
    c->key_offsets = c->query_offsets;
    c->heads = 4;
    c->kv_heads = 2;
    c->head_dim = 48;
    c->scale = 0.2;
    c->keyed_rows = true;
    c->seed = fresh_seed();
    c->dropout = {0.1, {99, 3}};
  }
  padded.masked = true;
  Trial<float> a(packed), b(padded);
  std::fill(b.dout_store.begin(), b.dout_store.end(), 0.0f);
  for (float& x : b.k_store) x = std::numeric_limits<float>::quiet_NaN();  // values in the padding must have no effect
  for (float& x : b.v_store) x = std::numeric_limits<float>::infinity();
  for (int64_t s = 0; s < count; ++s) {
    for (int64_t i = 0; i < longest; ++i) {
      const int64_t from = packed.query_offsets[s] + i, to = s * longest + i;
      b.mask[to] = i < lengths[s];
      if (i >= lengths[s]) continue;
      b.row_keys[to] = a.row_keys[from];
      for (int64_t e = 0; e < 4 * 48; ++e) {
        b.q.at(to, 0)[e] = a.q.at(from, 0)[e];
        b.dout.at(to, 0)[e] = a.dout.at(from, 0)[e];
        if (e < 2 * 48) {
          b.k.at(to, 0)[e] = a.k.at(from, 0)[e];
          b.v.at(to, 0)[e] = a.v.at(from, 0)[e];
        }
      }
    }
  }
  a.call();
  b.call();
  double worst = 0;
  for (int64_t s = 0; s < count; ++s) {
    for (int64_t i = 0; i < longest; ++i) {
      const int64_t from = packed.query_offsets[s] + i, to = s * longest + i;
      for (int64_t e = 0; e < 2 * 48; ++e) {
        if (i < lengths[s]) {
          worst = std::max({worst, std::abs(double{a.dk.at(from, 0)[e]} - b.dk.at(to, 0)[e]),
                            std::abs(double{a.dv.at(from, 0)[e]} - b.dv.at(to, 0)[e])});
        } else {
          ASSERT_EQ(b.dk.at(to, 0)[e], 0);
          ASSERT_EQ(b.dv.at(to, 0)[e], 0);
        }
      }
      for (int64_t e = 0; i < lengths[s] && e < 4 * 48; ++e) {
        ASSERT_TRUE(std::isfinite(b.out.at(to, 0)[e]));
        worst = std::max({worst, std::abs(double{a.out.at(from, 0)[e]} - b.out.at(to, 0)[e]),
                          std::abs(double{a.dq.at(from, 0)[e]} - b.dq.at(to, 0)[e])});
      }
    }
  }
  EXPECT_LE(worst, 1e-5 * std::max(1.0, largest(values(a.dv))));
}

TEST_F(AttentionTest, DropsEverythingAtProbabilityOne) {
  for (const uint64_t seed : seeds(7, 2)) {
    Case c = random_case(seed);
    c.query_offsets = c.key_offsets = {0, 40, 90};
    c.dropout.p = 1;
    Trial<float> r(c);
    r.call();
    const Results got = results(r);
    for (const auto* part : {&got.out, &got.dq, &got.dk, &got.dv, &got.dbias}) {
      EXPECT_TRUE(std::all_of(part->begin(), part->end(), [](double x) { return x == 0; }));
    }
    expect_within(r, Inner::kCompute, describe(c));
  }
}

/// A NaN in one sequence affects that sequence's output and gradients, and no others.
TEST_F(AttentionTest, NanStaysInItsSequence) {
  Case c;
  c.query_offsets = c.key_offsets = {0, 50, 120, 130};
  c.heads = c.kv_heads = 2;
  c.head_dim = 24;
  c.scale = 0.2;
  c.seed = fresh_seed();
  for (int which = 0; which < 3; ++which) {
    for (CpuLevel level : levels()) {
      set_cpu_level(level);
      Trial<float> r(c);
      const Tensor<float>& poisoned = which == 0 ? r.q : which == 1 ? r.k : r.v;
      poisoned.at(77, 1)[5] = std::numeric_limits<float>::quiet_NaN();
      r.call();
      bool found_out = false, found_gradient = false;
      for (int64_t i = 0; i < 130; ++i) {
        for (int64_t e = 0; e < 48; ++e) {
          const bool bad = std::isnan(r.out.at(i, 0)[e]);
          const bool bad_gradient =
              std::isnan(r.dq.at(i, 0)[e]) || std::isnan(r.dk.at(i, 0)[e]) || std::isnan(r.dv.at(i, 0)[e]);
          const bool elsewhere = i < 50 || i >= 120 || e < 24;
          ASSERT_FALSE(elsewhere && (bad || bad_gradient)) << "token " << i << " element " << e;
          found_out |= bad;
          found_gradient |= bad_gradient;
        }
      }
      EXPECT_TRUE(found_out);
      EXPECT_TRUE(found_gradient);
    }
  }
}

/// Scores that differ by hundreds: probabilities underflow to zero without other effects.
TEST_F(AttentionTest, LargeScoresUnderflowCleanly) {
  Case c;
  c.query_offsets = {0, 33};
  c.key_offsets = {0, 290};
  c.heads = c.kv_heads = 2;
  c.head_dim = 16;
  c.scale = 60;
  c.seed = fresh_seed();
  for (CpuLevel level : levels()) {
    set_cpu_level(level);
    Trial<float> r(c);
    for (float& x : r.q_store) x = std::round(x);  // scores without rounding error
    for (float& x : r.k_store) x = std::round(x);
    r.call();
    const Results got = results(r);
    expect_within(r, Inner::kCompute, name_of(level));
    for (double x : got.dv) ASSERT_TRUE(x == 0 || std::abs(x) > 1e-37) << x;
  }
}

}  // namespace
}  // namespace tern::kernels::attention_test

// CUDA attention kernels in the emulator against an fp64 reference, over random shapes, layouts and options.

#include "tern/tests/emulator/simt/schedules.h"
#include "tern/tests/kernels/attention_bounds.h"
#include "tern/tests/support/seed.h"

namespace tern::kernels::attention_test {
namespace {

template <class T>
void run(Trial<T>& r) {
  for (auto* store : {&r.dq_store, &r.dk_store, &r.dv_store, &r.out_store})
    std::fill(store->begin(), store->end(), T(Trial<T>::kSentinel));
  std::fill(r.lse.begin(), r.lse.end(), Trial<T>::kSentinel);
  std::fill(r.dbias.begin(), r.dbias.end(), Trial<T>::kSentinel);
  const DType dtype = dtype_of<T>();
  std::vector<char> work(cuda::attention_forward_workspace(kCuda, r.params, dtype) + 1, 42);
  cuda::attention_forward(kCuda, r.params, r.q.view(), r.k.view(), r.v.view(), r.out.view(), r.lse_view(), work.data());
  EXPECT_EQ(work.back(), 42) << "wrote past the workspace";
  work.assign(cuda::attention_backward_workspace(kCuda, r.params, dtype) + 1, 42);
  cuda::attention_backward(kCuda, r.params, r.q.view(), r.k.view(), r.v.view(), r.out.view(), r.dout.view(),
                           r.lse_view(), r.dq.view(), r.dk.view(), r.dv.view(), r.dbias_view(), work.data());
  EXPECT_EQ(work.back(), 42) << "wrote past the workspace";
}

/// Runs body once per kind of device: with the tensor-core kernels with mma.sync, and with those with wgmma.
void for_each_device(const std::function<void()>& body) {
  for (const int capability : {80, 90}) {
    simt::set_compute_capability(capability);
    SCOPED_TRACE(testing::Message() << "compute capability " << capability);
    body();
  }
  ASSERT_EQ(simt::compute_capability(), 90);  // the initial value, which other tests expect
}

/// Rows that are padded to 64 or 128 values use wgmma if the device has it.
TEST(SimtAttention, WgmmaIsUsedWhereTheDeviceHasIt) {
  for_each_device([] {
    for (const int64_t head_dim : {32, 40, 64, 88, 128}) {
      Case c;
      c.query_offsets = c.key_offsets = {0, 70};
      c.heads = c.kv_heads = 1;
      c.head_dim = head_dim;
      c.scale = 0.1;
      Trial<BFloat16> r(c);
      const bool expected = simt::compute_capability() == 90 && head_dim >= 40;
      const auto uses_it = [](const auto& call) {
        simt::reset_stats();
        call();
        return simt::stats().products > 0;
      };
      std::vector<char> work(cuda::attention_backward_workspace(kCuda, r.params, bfloat16));
      EXPECT_EQ(uses_it([&] {
                  cuda::attention_forward(kCuda, r.params, r.q.view(), r.k.view(), r.v.view(), r.out.view(),
                                          r.lse_view(), nullptr);
                }),
                expected);
      EXPECT_EQ(uses_it([&] {
                  cuda::attention_backward(kCuda, r.params, r.q.view(), r.k.view(), r.v.view(), r.out.view(),
                                           r.dout.view(), r.lse_view(), r.dq.view(), r.dk.view(), r.dv.view(),
                                           r.dbias_view(), work.data());
                }),
                expected);
    }
  });
}

/// Runs every schedule and expects the same bits, which remain in r.
template <class T>
void run_every_schedule(Trial<T>& r) {
  bool first = true;
  Results before;
  for_each_schedule([&] {
    run(r);
    const Results now = results(r);
    if (!first) {
      ASSERT_TRUE(same_bits(now, before)) << describe(r.c);
    }
    before = now;
    first = false;
  });
}

std::vector<int32_t> random_offsets(std::mt19937_64& random, int64_t sequences, int64_t max_length) {
  std::vector<int32_t> offsets = {0};
  for (int64_t i = 0; i < sequences; ++i) {
    const bool empty = random() % 8 == 0;
    offsets.push_back(offsets.back() + (empty ? 0 : static_cast<int32_t>(random() % max_length + 1)));
  }
  return offsets;
}

/// `tensor_cores`: rows and options that the tensor-core path supports.
Case random_case(uint64_t seed, bool tensor_cores) {
  std::mt19937_64 random(seed * 7919 + 1);
  const auto pick = [&](std::initializer_list<int64_t> options) { return options.begin()[random() % options.size()]; };
  Case c;
  c.seed = seed;
  const int64_t sequences = pick({0, 1, 1, 2, 3}),
                max_length = tensor_cores ? pick({1, 17, 64, 90, 150, 200}) : pick({1, 3, 40, 70});
  c.query_offsets = random_offsets(random, sequences, max_length);
  c.fused = random() % 3 == 0;
  c.key_offsets = c.fused || random() % 2 ? c.query_offsets : random_offsets(random, sequences, max_length);
  c.kv_heads = pick({1, 1, 2});
  c.heads = c.kv_heads * pick({1, 1, 2, 3});
  c.head_dim =
      tensor_cores ? pick({8, 16, 32, 40, 48, 64, 64, 72, 80, 96, 112, 128}) : pick({1, 5, 31, 32, 64, 100, 130, 256});
  c.scale = 1 / std::sqrt(static_cast<double>(c.head_dim)) * static_cast<double>(pick({1, 1, 1, 4, -1}));
  if (random() % 12 == 0) c.scale = 0;
  c.causal = random() % 3 == 0;
  c.window = random() % 4 == 0 ? static_cast<int64_t>(random() % 40) : -1;
  c.masked = random() % 3 == 0;
  c.keyed_rows = random() % 2 == 0;
  c.misalignment = tensor_cores ? pick({0, 8}) : pick({0, 1, 3});
  c.spare_tokens = pick({0, 0, 5});
  if (!tensor_cores && random() % 2 == 0 && sequences > 0) {
    c.bias_sequences = random() % 2 ? 1 : sequences;
    c.bias_heads = random() % 2 ? 1 : c.heads;
  }
  if (random() % 3 == 0)
    c.dropout = {static_cast<double>(pick({1, 2, 5, 9})) / 10, key_with_base(random(), random() % 1000)};
  return c;
}

/// `count` seeds of random cases, different in every run.
std::vector<uint64_t> seeds(uint64_t salt, size_t count) {
  std::mt19937_64 random = fresh_random(salt);
  std::vector<uint64_t> result(count);
  for (uint64_t& seed : result) seed = random();
  return result;
}

TEST(SimtAttention, SinglePrecisionMatchesReference) {
  for (const uint64_t seed : seeds(1, kFewCases ? 5 : 40)) {
    Trial<float> r(random_case(seed, false));
    run_every_schedule(r);
    expect_within(r, Inner::kCompute, describe(r.c));
    expect_gaps_untouched(r);
    if (HasFailure()) return;
  }
}

TEST(SimtAttention, DoublePrecisionMatchesReference) {
  for (const uint64_t seed : seeds(2, kFewCases ? 4 : 16)) {
    Trial<double> r(random_case(seed, false));
    run_every_schedule(r);
    expect_within(r, Inner::kCompute, describe(r.c));
    expect_gaps_untouched(r);
    if (HasFailure()) return;
  }
}

template <class T>
void check_16_bits(uint64_t salt, size_t cases, bool tensor_cores) {
  for (const uint64_t seed : seeds(salt, cases)) {
    Trial<T> r(random_case(seed, tensor_cores));
    run_every_schedule(r);
    expect_within(r, Inner::kStorage, describe(r.c));
    expect_gaps_untouched(r);
    if (testing::Test::HasFailure()) return;
  }
}
TEST(SimtAttention, BFloat16MatchesReference) {
  for_each_device([] { check_16_bits<BFloat16>(3, kFewCases ? 4 : 13, true); });
}
TEST(SimtAttention, Float16MatchesReference) {
  for_each_device([] { check_16_bits<Float16>(4, kFewCases ? 3 : 13, true); });
}
TEST(SimtAttention, PlainBlocksMatchReference) {
  check_16_bits<BFloat16>(5, kFewCases ? 4 : 12, false);
  check_16_bits<Float16>(6, kFewCases ? 4 : 12, false);
}

/// With equal scores and the identity as values (or as dout) the results are the dropout mask.
template <class T>
void check_mask(int64_t head_dim) {
  Case c;
  c.query_offsets = {0, 61, 140};
  c.key_offsets = {0, 77, 150};
  c.heads = 3;
  c.kv_heads = 1;
  c.head_dim = head_dim;
  c.keyed_rows = true;
  c.seed = fresh_seed();
  c.dropout = {0.3, key_with_base(fresh_seed(), 42)};
  Trial<T> r(c);
  for (auto* store : {&r.q_store, &r.v_store, &r.dout_store}) std::fill(store->begin(), store->end(), T(0.0f));
  for (int s = 0; s < 2; ++s) {
    for (int j = c.key_offsets[s]; j < c.key_offsets[s + 1]; ++j) r.v.at(j, 0)[j - c.key_offsets[s]] = T(1.0f);
    for (int i = c.query_offsets[s]; i < c.query_offsets[s + 1]; ++i) r.dout.at(i, 1)[i - c.query_offsets[s]] = T(1.0f);
  }
  run(r);
  const auto keeps = [&](int token, int head, int key) {
    return dropout_keeps(philox_key(c.dropout.key), r.row_keys[token], head, key, dropout_threshold(c.dropout.p));
  };
  int64_t wrong = 0;
  for (int s = 0; s < 2; ++s) {
    const int q0 = c.query_offsets[s], q1 = c.query_offsets[s + 1], k0 = c.key_offsets[s],
              nk = c.key_offsets[s + 1] - k0;
    for (int i = q0; i < q1; ++i) {
      for (int j = 0; j < nk; ++j) {
        for (int h = 0; h < c.heads; ++h) wrong += (value(r.out.at(i, h)[j]) != 0) != keeps(i, h, j);
        wrong += (value(r.dv.at(k0 + j, 0)[i - q0]) != 0) != keeps(i, 1, j);
      }
    }
  }
  EXPECT_EQ(wrong, 0);
}
TEST(SimtAttention, DropoutMaskIsExactlyThatOfDropoutKeeps) {
  for_each_device([] {
    check_mask<BFloat16>(96);
    check_mask<Float16>(128);
  });
  check_mask<float>(80);
}

/// The same sequences packed, and padded to one length with a key mask and the packed rows' dropout keys: both within
/// the bounds of the packed case. Values in the padding must have no effect.
template <class T>
void check_padded() {
  const std::vector<int32_t> lengths = {37, 1, 0, 70};
  const int64_t longest = 75, count = static_cast<int64_t>(lengths.size());
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
    c->dropout = {0.1, {fresh_seed(), 3}};
  }
  padded.masked = true;
  Trial<T> a(packed), b(padded);
  std::fill(b.dout_store.begin(), b.dout_store.end(), T(0.0f));
  for (T& x : b.k_store) x = T(std::numeric_limits<float>::quiet_NaN());
  for (T& x : b.v_store) x = T(std::numeric_limits<float>::infinity());
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
  run(a);
  run(b);
  const Results exact = reference(a);
  const Results bounds = Bounds<T>(a, exact, sizeof(T) == 2 ? Inner::kStorage : Inner::kCompute).get();
  Results unpadded = results(a);
  expect_within(unpadded, exact, bounds, "packed " + describe(packed));
  const size_t tokens = static_cast<size_t>(packed.query_tokens());
  for (int64_t s = 0; s < count; ++s) {
    for (int64_t i = 0; i < longest; ++i) {
      const int64_t from = packed.query_offsets[s] + i, to = s * longest + i;
      for (int64_t e = 0; e < 2 * 48; ++e) {
        const double dk = value(b.dk.at(to, 0)[e]), dv = value(b.dv.at(to, 0)[e]);
        if (i < lengths[s]) {
          unpadded.dk[static_cast<size_t>(from * 2 * 48 + e)] = dk;
          unpadded.dv[static_cast<size_t>(from * 2 * 48 + e)] = dv;
        } else {
          ASSERT_TRUE(dk == 0 && dv == 0) << "padding " << to << ": " << dk << " and " << dv;
        }
      }
      if (i >= lengths[s]) continue;
      for (int64_t e = 0; e < 4 * 48; ++e) {
        unpadded.out[static_cast<size_t>(from * 4 * 48 + e)] = value(b.out.at(to, 0)[e]);
        unpadded.dq[static_cast<size_t>(from * 4 * 48 + e)] = value(b.dq.at(to, 0)[e]);
      }
      for (size_t h = 0; h < 4; ++h)
        unpadded.lse[h * tokens + static_cast<size_t>(from)] = b.lse[h * b.lse.size() / 4 + static_cast<size_t>(to)];
    }
  }
  expect_within(unpadded, exact, bounds, "padded " + describe(padded));
}
TEST(SimtAttention, PackedEqualsPadded) {
  for_each_device([] {
    check_padded<BFloat16>();
    if (!kFewCases) check_padded<Float16>();
  });
  check_padded<float>();
}

template <class T>
void check_all_dropped() {
  Case c;
  c.query_offsets = c.key_offsets = {0, 40, 90};
  c.heads = 2;
  c.head_dim = 64;
  c.scale = 0.2;
  c.dropout.p = 1;
  c.seed = fresh_seed();
  Trial<T> r(c);
  run(r);
  const Results got = results(r);
  for (const auto* part : {&got.out, &got.dq, &got.dk, &got.dv})
    EXPECT_TRUE(std::all_of(part->begin(), part->end(), [](double x) { return x == 0; }));
  expect_within(r, dtype_of<T>() == float32 ? Inner::kCompute : Inner::kStorage, "everything dropped");
}
TEST(SimtAttention, DropsEverythingAtProbabilityOne) {
  for_each_device([] { check_all_dropped<BFloat16>(); });
  check_all_dropped<float>();
}

/// A NaN in one sequence affects that sequence's output and gradients, and no others.
template <class T>
void check_nan() {
  Case c;
  c.query_offsets = c.key_offsets = {0, 50, 120, 130};
  c.heads = c.kv_heads = 2;
  c.head_dim = 56;
  c.scale = 0.2;
  c.seed = fresh_seed();
  for (int which = 0; which < 3; ++which) {
    Trial<T> r(c);
    const Tensor<T>& poisoned = which == 0 ? r.q : which == 1 ? r.k : r.v;
    poisoned.at(77, 1)[5] = T(std::numeric_limits<float>::quiet_NaN());
    run(r);
    bool found_out = false, found_gradient = false;
    for (int64_t i = 0; i < 130; ++i) {
      for (int64_t e = 0; e < 2 * c.head_dim; ++e) {
        const bool bad = std::isnan(value(r.out.at(i, 0)[e]));
        const bool bad_gradient = std::isnan(value(r.dq.at(i, 0)[e])) || std::isnan(value(r.dk.at(i, 0)[e])) ||
                                  std::isnan(value(r.dv.at(i, 0)[e]));
        const bool elsewhere = i < 50 || i >= 120 || e < c.head_dim;
        ASSERT_FALSE(elsewhere && (bad || bad_gradient)) << "token " << i << " element " << e;
        found_out |= bad;
        found_gradient |= bad_gradient;
      }
    }
    EXPECT_TRUE(found_out);
    EXPECT_TRUE(found_gradient);
  }
}
TEST(SimtAttention, NanStaysInItsSequence) {
  for_each_device([] { check_nan<BFloat16>(); });
  check_nan<float>();
}

/// Scores that differ by hundreds: probabilities underflow to zero without other effects.
TEST(SimtAttention, LargeScoresUnderflowCleanly) {
  Case c;
  c.query_offsets = {0, 33};
  c.key_offsets = {0, 150};
  c.heads = c.kv_heads = 2;
  c.head_dim = 48;
  c.scale = 60;
  c.seed = fresh_seed();
  Trial<BFloat16> r(c);
  for (auto* store : {&r.q_store, &r.k_store})
    for (BFloat16& x : *store) x = BFloat16(std::round(static_cast<float>(x)));  // scores without rounding error
  for_each_device([&] {
    run(r);
    expect_within(r, Inner::kStorage, describe(c));
  });
}

}  // namespace
}  // namespace tern::kernels::attention_test

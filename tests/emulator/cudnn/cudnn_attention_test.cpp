// cuDNN's attention on the stand-in: graphs, workspaces and choices, against the definition in fp64 and Tern's kernels.

#if __has_include(<cudnn.h>)

#include <cudnn.h>

#include <cstdio>

#include "tern/kernels/cuda/attention/alternative.h"
#include "tern/kernels/cuda/cudnn/attention.h"
#include "tern/kernels/cuda/support/cudnn_info.h"
#include "tern/tests/emulator/cudnn/cudnn.h"
#include "tern/tests/emulator/messages.h"
#include "tern/tests/emulator/runtime/standin.h"
#include "tern/tests/kernels/contracts/attention_definition.h"

namespace tern::kernels::attention_test {
namespace {

class StandinCudnn : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, StandinCudnn, testing::ValuesIn(device_targets()), name_of_target);

std::string header() { return "attention choices, cuDNN " + cuda::cudnn_info().version + "\n"; }

/// The text of a choice for a case, as a run with --autotune writes it.
std::string choice(const Case& c, bool backward, bool uses_cudnn) {
  std::ostringstream s;
  s << "9 0 132 " << backward << ' ' << static_cast<int64_t>(c.dtype) << ' ' << c.sequences() << ' ' << c.heads << ' '
    << c.head_dim << ' ' << Case::longest(c.query_offsets) << ' ' << c.causal << ' ' << uses_cudnn << "\n";
  return s.str();
}
void choose_cudnn(const Case& c) {
  cuda::restore_attention_choices(header() + choice(c, false, true) + choice(c, true, true));
}

uint64_t executions() { return standin::counters().kernels_by_name["cudnnBackendExecute"]; }

Case random_case(uint64_t seed, DType dtype = bfloat16) {
  std::mt19937_64 random(seed);
  Case c;
  c.dtype = dtype;
  c.seed = seed;
  c.query_offsets = {0};
  const int64_t sequences = 1 + static_cast<int64_t>(random() % 3);
  for (int64_t i = 0; i < sequences; ++i)
    c.query_offsets.push_back(c.query_offsets.back() + static_cast<int32_t>(random() % 20));
  c.query_offsets.back() += 1;
  c.key_offsets = c.query_offsets;
  c.heads = c.kv_heads = 1 + static_cast<int64_t>(random() % 3);
  c.head_dim = 8 * (1 + static_cast<int64_t>(random() % 4));
  c.scale = 1 / std::sqrt(static_cast<double>(c.head_dim));
  c.causal = random() % 2 == 0;
  c.fused = random() % 2 == 0;
  c.spare_tokens = random() % 2 == 0 ? 0 : 3;
  return c;
}

/// Runs a case and returns how often cuDNN was called.
uint64_t executions_of(Trial& t) {
  standin::reset_counters();
  t.run();
  return executions();
}
uint64_t executions_of(const Case& c) {
  Trial t(c);
  return executions_of(t);
}

TEST_P(StandinCudnn, MatchesReference) {
  for (uint64_t n = 0; n < 12 && !HasFailure(); ++n)
    for (const DType dtype : {bfloat16, float16}) {
      Trial t(random_case(fresh_seed() + n, dtype));
      SCOPED_TRACE(describe(t.c));
      choose_cudnn(t.c);
      EXPECT_EQ(executions_of(t), 2u) << standin::cudnn_message();
      EXPECT_EQ(standin::last_cudnn_engine(), 1) << "the first suggestion is not deterministic";
      expect_within(t);
    }
}

/// cuDNN's results in every order of queues, and those of Tern's kernels.
TEST_P(StandinCudnn, AgreesWithTernsKernelsAndWithItself) {
  Case c = random_case(fresh_seed() + 7);
  c.spare_tokens = 3;
  for (const bool by_cudnn : {false, true}) {
    SCOPED_TRACE(testing::Message() << (by_cudnn ? "cuDNN's, " : "own, ") << describe(c));
    if (by_cudnn)
      choose_cudnn(c);
    else
      cuda::set_attention_alternative(nullptr);
    Trial t(c);
    t.run_in_every_way();
    expect_within(t);
  }
}

/// Whether cuDNN computes both directions of a call for which it has been chosen.
bool runs_on_cudnn(const Case& c) {
  choose_cudnn(c);
  return executions_of(c) == 2;
}

TEST_P(StandinCudnn, LeavesOtherCallsToTernsKernels) {
  Case good = random_case(fresh_seed() + 3);
  good.fused = false;
  EXPECT_TRUE(runs_on_cudnn(good));
  const std::vector<std::function<void(Case&)>> changes = {
      [](Case& c) { c.dtype = float32; },
      [](Case& c) { c.window = 0; },
      [](Case& c) { c.window = 4; },
      [](Case& c) {
        c.dropout = Dropout{0.1, key_with_base(1, 2)};
      },
      [](Case& c) { c.head_dim = 12; },
      [](Case& c) { c.head_dim = 136; },
      [](Case& c) { c.heads = 2 * c.kv_heads; },
      [](Case& c) { c.misalignment = 1; },
      [](Case& c) { c.masked = true; },
      [](Case& c) { c.bias_sequences = c.bias_heads = 1; },
      [](Case& c) { ++c.key_offsets.back(); },
  };
  for (const auto& change : changes) {
    Case c = good;
    change(c);
    EXPECT_FALSE(runs_on_cudnn(c)) << describe(c);
  }
  cuda::restore_attention_choices(header() + choice(good, false, false) + choice(good, true, false));
  EXPECT_EQ(executions_of(good), 0u);
}

TEST_P(StandinCudnn, TooMuchWorkspaceIsNotTaken) {
  Case c = random_case(fresh_seed() + 4);
  c.head_dim = 40;  // needs another plan
  choose_cudnn(c);
  standin::set_cudnn_engines(int64_t{1} << 30, true);
  EXPECT_EQ(executions_of(c), 0u);
  standin::set_cudnn_engines(4096, true);
}

TEST_P(StandinCudnn, AutotuneTimesOnceAndKeepsWhatItFound) {
  cuda::set_attention_autotune(true);
  Case c = random_case(fresh_seed() + 5);
  c.head_dim = 48;
  SCOPED_TRACE(describe(c));
  Trial t(c);
  EXPECT_GT(executions_of(t), 2u);
  expect_within(t);
  const std::string kept = cuda::attention_choices();
  EXPECT_TRUE(kept.starts_with(header())) << kept;
  EXPECT_TRUE(has(kept, choice(c, false, true)) || has(kept, choice(c, false, false)));
  EXPECT_LE(executions_of(t), 2u);
  cuda::set_attention_autotune(false);
  EXPECT_EQ(cuda::attention_choices(), kept);
}

TEST_P(StandinCudnn, EveryCallMayFail) {
  uint64_t seed = fresh_seed() + 50;
  int64_t heads = 4;
  for (const auto& [name, n] : std::vector<std::pair<const char*, int>>{{"cudnnBackendCreateDescriptor", 1},
                                                                        {"cudnnBackendCreateDescriptor", 40},
                                                                        {"cudnnBackendSetAttribute", 7},
                                                                        {"cudnnBackendSetAttribute", 200},
                                                                        {"cudnnBackendFinalize", 3},
                                                                        {"cudnnBackendGetAttribute", 1},
                                                                        {"cudnnBackendGetAttribute", 3},
                                                                        {"cudnnSetStream", 1},
                                                                        {"cudnnBackendExecute", 1}}) {
    SCOPED_TRACE(testing::Message() << name << " " << n);
    Case c = random_case(seed++);
    c.head_dim = 56;
    c.heads = c.kv_heads = heads++;  // no plan is left from another case
    choose_cudnn(c);
    Trial t(c);
    standin::fail_call(name, n, CUDNN_STATUS_INTERNAL_ERROR);
    expect_error([&] { t.run(); }, {std::string(name).substr(5), "CUDNN_STATUS_INTERNAL_ERROR: injected"});
    standin::clear_faults();
    EXPECT_EQ(executions_of(t), 2u);  // the next call works
  }
}

TEST_P(StandinCudnn, WrongDescriptorsAreFound) {
  cudnnBackendDescriptor_t tensor = nullptr;
  ASSERT_EQ(cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &tensor), CUDNN_STATUS_SUCCESS);
  const int64_t one = 1, dims[] = {1, 2, 3, 4};
  const auto set = [&](cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count) {
    return cudnnBackendSetAttribute(tensor, name, type, count, dims);
  };
  EXPECT_EQ(set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 3), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT32, 4), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(set(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(cudnnBackendFinalize(tensor), CUDNN_STATUS_BAD_PARAM);
  EXPECT_TRUE(has(standin::cudnn_message(), "is not set"));
  EXPECT_EQ(cudnnBackendSetAttribute(&tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &one),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(cudnnBackendDestroyDescriptor(tensor), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(cudnnBackendDestroyDescriptor(tensor), CUDNN_STATUS_BAD_PARAM);
}

TEST_P(StandinCudnn, DamagedChoicesAreErrors) {
  const std::string kept = cuda::attention_choices();
  for (const std::string& text : {std::string("attention choices, cuDNN 1.2.3\n"), header() + "1 2 3\n",
                                  header() + "9 0 132 0 1 1 1 8 4 0 2\n", header() + "9 0 132 0 1 1 1 8 4 0 1 7\n"})
    EXPECT_TRUE(has(error_of([&] { cuda::restore_attention_choices(text); }), "the recorded choices of attention"))
        << text;
  EXPECT_EQ(cuda::attention_choices(), kept);
}

TEST_P(StandinCudnn, DISABLED_AutotunesWithoutTheLibrary) {
  cuda::set_attention_autotune(true);
  Trial t(random_case(fresh_seed() + 5));
  t.run();
  expect_within(t);
  std::printf("choices: '%s'\nreason: %s\n", cuda::attention_choices().c_str(), cuda::cudnn_info().reason.c_str());
}

TEST_P(StandinCudnn, WithoutTheLibraryTernsKernelsAreUsed) {
  expect_contains(output_of("TERN_CUDNN=/nowhere/libcudnn.so.9", "StandinCudnn.DISABLED_AutotunesWithoutTheLibrary/*"),
                  {"[  PASSED  ] 1 test", "choices: ''", "reason: /nowhere/libcudnn.so.9: cannot open"});
}

}  // namespace
}  // namespace tern::kernels::attention_test

#endif

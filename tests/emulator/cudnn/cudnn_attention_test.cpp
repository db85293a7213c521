// cuDNN's attention on the stand-in: graphs, workspaces and choices, against the definition in fp64 and Tern's kernels.

#if __has_include(<cudnn.h>)

#include <cudnn.h>

#include <cstdio>

#include "tern/kernels/cuda/attention_alternative.h"
#include "tern/kernels/cuda/cudnn_attention.h"
#include "tern/tests/emulator/cudnn/cudnn.h"
#include "tern/tests/emulator/runtime/device_array.h"
#include "tern/tests/emulator/runtime/standin.h"
#include "tern/tests/kernels/attention_bounds.h"
#include "tern/tests/support/seed.h"

namespace tern::kernels::attention_test {
namespace {

constexpr Stream kStream{DeviceType::kCUDA, 0, nullptr};

/// The memory of a trial on the device.
template <class T>
class Twin {
 public:
  explicit Twin(std::vector<T>& host)
      : host_(host), bytes_(host.size() * sizeof(T)), memory_(static_cast<int64_t>(bytes_)) {
    if (bytes_ > 0) cuda_call(cudaMemcpy(memory_.get(), host.data(), bytes_, cudaMemcpyHostToDevice));
  }
  void download() {
    if (bytes_ > 0) cuda_call(cudaMemcpy(host_.data(), memory_.get(), bytes_, cudaMemcpyDeviceToHost));
  }
  View moved(View view) const {
    view.data = static_cast<char*>(memory_.get()) +
                (static_cast<char*>(view.data) - reinterpret_cast<const char*>(host_.data()));
    return view;
  }
  T* data() const { return static_cast<T*>(memory_.get()); }

 private:
  std::vector<T>& host_;
  size_t bytes_;
  DeviceMemory memory_;
};

/// Runs forward and backward of a trial on the device.
template <class T>
void run(Trial<T>& r) {
  for (auto* store : {&r.dq_store, &r.dk_store, &r.dv_store, &r.out_store})
    std::fill(store->begin(), store->end(), T(Trial<T>::kSentinel));
  Twin<T> q(r.q_store), k(r.c.fused ? r.q_store : r.k_store), v(r.c.fused ? r.q_store : r.v_store), out(r.out_store),
      dout(r.dout_store), dq(r.dq_store), dk(r.dk_store), dv(r.dv_store);
  Twin<float> lse(r.lse);
  Twin<int32_t> offsets(r.c.query_offsets), key_offsets(r.c.key_offsets);
  AttentionParams p = r.params;
  p.query_offsets = offsets.data();
  p.key_offsets = r.c.key_offsets == r.c.query_offsets ? offsets.data() : key_offsets.data();
  const Twin<T>&dk_memory = r.c.fused ? dq : dk, &dv_memory = r.c.fused ? dq : dv;
  const View tq = q.moved(r.q.view()), tk = k.moved(r.k.view()), tv = v.moved(r.v.view());
  const View to = out.moved(r.out.view()), tl = lse.moved(r.lse_view());
  {
    const DeviceMemory memory(cuda::attention_forward_workspace(kStream, p, dtype_of<T>()));
    cuda::attention_forward(kStream, p, tq, tk, tv, to, tl, memory.get());
    cuda_call(cudaStreamSynchronize(nullptr));
  }
  const DeviceMemory memory(cuda::attention_backward_workspace(kStream, p, dtype_of<T>()));
  cuda::attention_backward(kStream, p, tq, tk, tv, to, dout.moved(r.dout.view()), tl, dq.moved(r.dq.view()),
                           dk_memory.moved(r.dk.view()), dv_memory.moved(r.dv.view()), View(), memory.get());
  cuda_call(cudaStreamSynchronize(nullptr));
  out.download();
  lse.download();
  dq.download();
  if (!r.c.fused) {
    dk.download();
    dv.download();
  }
}

std::string header() { return "attention choices, cuDNN " + cuda::cudnn_info().version + "\n"; }

/// The text of a choice for a case, as a run with --autotune writes it.
std::string choice(const Case& c, DType dtype, bool backward, bool uses_cudnn) {
  std::ostringstream s;
  s << "9 0 132 " << backward << ' ' << static_cast<int64_t>(dtype) << ' ' << c.sequences() << ' ' << c.heads << ' '
    << c.head_dim << ' ' << Case::longest(c.query_offsets) << ' ' << c.causal << ' ' << uses_cudnn << "\n";
  return s.str();
}
void choose_cudnn(const Case& c, DType dtype) {
  cuda::restore_attention_choices(header() + choice(c, dtype, false, true) + choice(c, dtype, true, true));
}

uint64_t executions() { return standin::counters().kernels_by_name["cudnnBackendExecute"]; }

Case random_case(uint64_t seed) {
  std::mt19937_64 random(seed);
  Case c;
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

template <class T>
void expect_reference(uint64_t seed) {
  Trial<T> r(random_case(seed));
  choose_cudnn(r.c, dtype_of<T>());
  standin::reset_counters();
  run(r);
  EXPECT_EQ(executions(), 2u) << describe(r.c) << ": " << standin::cudnn_message();
  EXPECT_EQ(standin::last_cudnn_engine(), 1) << "the first suggestion is not deterministic";
  expect_within(r, Inner::kStorage, describe(r.c));
}

TEST(StandinCudnn, MatchesReference) {
  for (uint64_t n = 0; n < 12 && !testing::Test::HasFailure(); ++n) {
    expect_reference<BFloat16>(fresh_seed() + n);
    expect_reference<Float16>(fresh_seed() + 100 + n);
  }
}

TEST(StandinCudnn, AgreesWithTernsKernelsAndWithItself) {
  Case c = random_case(fresh_seed() + 7);
  c.spare_tokens = 3;
  Trial<BFloat16> own(c), first(c), second(c);
  cuda::set_attention_alternative(nullptr);
  run(own);
  choose_cudnn(c, bfloat16);
  run(first);
  run(second);
  EXPECT_TRUE(same_bits(results(first), results(second)));
  expect_within(first, Inner::kStorage, "cuDNN's, " + describe(c));
  expect_within(own, Inner::kStorage, "own, " + describe(c));
}

/// Whether cuDNN computes both directions of a call for which it has been chosen.
template <class T>
bool runs_on_cudnn(const Case& c) {
  choose_cudnn(c, dtype_of<T>());
  Trial<T> r(c);
  standin::reset_counters();
  run(r);
  return executions() == 2;
}

TEST(StandinCudnn, LeavesOtherCallsToTernsKernels) {
  Case good = random_case(fresh_seed() + 3);
  good.fused = false;
  EXPECT_TRUE(runs_on_cudnn<BFloat16>(good));
  EXPECT_FALSE(runs_on_cudnn<float>(good));
  const std::vector<std::function<void(Case&)>> changes = {
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
    EXPECT_FALSE(runs_on_cudnn<BFloat16>(c)) << describe(c) << " misaligned by " << c.misalignment;
  }
  Case c = good;
  cuda::restore_attention_choices(header() + choice(c, bfloat16, false, false) + choice(c, bfloat16, true, false));
  Trial<BFloat16> r(c);
  standin::reset_counters();
  run(r);
  EXPECT_EQ(executions(), 0u);
}

TEST(StandinCudnn, TooMuchWorkspaceIsNotTaken) {
  Case c = random_case(fresh_seed() + 4);
  c.head_dim = 40;  // needs another plan
  choose_cudnn(c, bfloat16);
  standin::set_cudnn_engines(int64_t{1} << 30, true);
  Trial<BFloat16> r(c);
  standin::reset_counters();
  run(r);
  EXPECT_EQ(executions(), 0u);
  standin::set_cudnn_engines(4096, true);
}

TEST(StandinCudnn, AutotuneTimesOnceAndKeepsWhatItFound) {
  cuda::set_attention_autotune(true);
  Case c = random_case(fresh_seed() + 5);
  c.head_dim = 48;
  Trial<BFloat16> r(c);
  standin::reset_counters();
  run(r);
  EXPECT_GT(executions(), 2u);
  expect_within(r, Inner::kStorage, describe(c));
  const std::string kept = cuda::attention_choices();
  EXPECT_TRUE(kept.starts_with(header())) << kept;
  EXPECT_TRUE(contains(kept, choice(c, bfloat16, false, true)) || contains(kept, choice(c, bfloat16, false, false)));
  standin::reset_counters();
  run(r);
  EXPECT_LE(executions(), 2u);
  cuda::set_attention_autotune(false);
  EXPECT_EQ(cuda::attention_choices(), kept);
}

TEST(StandinCudnn, EveryCallMayFail) {
  uint64_t seed = fresh_seed() + 50;
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
    choose_cudnn(c, bfloat16);
    Trial<BFloat16> r(c);
    standin::fail_call(name, n, CUDNN_STATUS_INTERNAL_ERROR);
    const std::string message = error_of([&] { run(r); });
    EXPECT_TRUE(contains(message, std::string(name).substr(5))) << message;
    EXPECT_TRUE(contains(message, "CUDNN_STATUS_INTERNAL_ERROR: injected")) << message;
    standin::clear_faults();
    standin::reset_counters();
    run(r);  // the next call works
    EXPECT_EQ(executions(), 2u);
  }
}

TEST(StandinCudnn, WrongDescriptorsAreFound) {
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
  EXPECT_TRUE(contains(standin::cudnn_message(), "is not set")) << standin::cudnn_message();
  EXPECT_EQ(cudnnBackendSetAttribute(&tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &one),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(cudnnBackendDestroyDescriptor(tensor), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(cudnnBackendDestroyDescriptor(tensor), CUDNN_STATUS_BAD_PARAM);
}

TEST(StandinCudnn, DamagedChoicesAreErrors) {
  const std::string kept = cuda::attention_choices();
  for (const std::string& text : {std::string("attention choices, cuDNN 1.2.3\n"), header() + "1 2 3\n",
                                  header() + "9 0 132 0 1 1 1 8 4 0 2\n", header() + "9 0 132 0 1 1 1 8 4 0 1 7\n"})
    EXPECT_TRUE(contains(error_of([&] { cuda::restore_attention_choices(text); }), "the recorded choices of attention"))
        << text;
  EXPECT_EQ(cuda::attention_choices(), kept);
}

/// The output of another process: this program with a changed environment, running the disabled test of that name.
std::string output_of(const std::string& environment, const std::string& test) {
  const std::string command = environment + " '" + std::string(program_invocation_name) +
                              "' --gtest_also_run_disabled_tests --gtest_filter='" + test + "' 2>&1";
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  char buffer[256];
  while (pipe && std::fgets(buffer, sizeof buffer, pipe)) text += buffer;
  if (pipe) pclose(pipe);
  return text;
}

TEST(InAnotherProcess, DISABLED_AutotunesWithoutTheLibrary) {
  cuda::set_attention_autotune(true);
  Trial<BFloat16> r(random_case(fresh_seed() + 5));
  run(r);
  expect_within(r, Inner::kStorage, "own kernels");
  std::printf("choices: '%s'\nreason: %s\n", cuda::attention_choices().c_str(), cuda::cudnn_info().reason.c_str());
}

TEST(StandinCudnn, WithoutTheLibraryTernsKernelsAreUsed) {
  const std::string text =
      output_of("TERN_CUDNN=/nowhere/libcudnn.so.9", "InAnotherProcess.DISABLED_AutotunesWithoutTheLibrary");
  EXPECT_TRUE(contains(text, "[  PASSED  ] 1 test")) << text;
  EXPECT_TRUE(contains(text, "choices: ''")) << text;
  EXPECT_TRUE(contains(text, "reason: /nowhere/libcudnn.so.9: cannot open")) << text;
}

}  // namespace
}  // namespace tern::kernels::attention_test

#endif

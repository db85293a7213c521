// The rule of kernels/kernel.h: a kernel allocates little by itself, however large its tensors are.

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "tern/kernels/attention.h"
#include "tern/kernels/batch_norm.h"
#include "tern/kernels/gemm.h"
#include "tern/kernels/optimizer/layerwise.h"
#include "tern/kernels/recurrent/recurrent.h"
#include "tern/kernels/resample.h"
#include "tern/kernels/row_chain.h"
#include "tern/kernels/sort.h"
#include "tern/tests/kernels/contracts/convolution.h"
#include "tern/tests/kernels/kernel_test.h"

namespace {

std::atomic<bool> counting = false;
std::atomic<int64_t> held = 0, most = 0;

/// Adds what the code at `caller` allocates (below 0: frees), if it is Tern's kernels'.
void count(int64_t bytes, const void* caller) {
  Dl_info place{};
  if (!counting || dladdr(caller, &place) == 0 || place.dli_fname == nullptr) return;
  if (std::strstr(place.dli_fname, "tern_kernels_") == nullptr) return;
  const int64_t now = held += bytes;
  for (int64_t before = most; now > before && !most.compare_exchange_weak(before, now);) {
  }
}

}  // namespace

// The program's own operator new, also for its shared objects.
void* operator new(size_t bytes) {
  count(static_cast<int64_t>(bytes), __builtin_return_address(0));
  if (void* const memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  count(static_cast<int64_t>(bytes), __builtin_return_address(0));
  const auto step = static_cast<size_t>(alignment);
  if (void* const memory = std::aligned_alloc(step, (bytes + step - 1) / step * step)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t bytes) noexcept {
  count(-static_cast<int64_t>(bytes), __builtin_return_address(0));
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t bytes, std::align_val_t) noexcept {
  count(-static_cast<int64_t>(bytes), __builtin_return_address(0));
  std::free(memory);
}

namespace tern::kernels {
namespace {

constexpr int64_t kBound = 64 << 10;  // bytes at a time
const Stream kCpu{};

/// The most that the kernels' own code holds at a time while `call` runs.
template <class Call>
int64_t held_by(const Call& call) {
  held = most = 0;
  counting = true;
  call();
  counting = false;
  return most;
}

/// What the second of two calls holds at every CPU level: in the first what is kept for later calls is made.
template <class Bytes, class Kernel>
void expect_little(const char* name, const Bytes& bytes, const Kernel& kernel) {
  for_each_level([&] {
    MarkedWorkspace workspace(bytes());
    kernel(workspace.data());
    EXPECT_LE(held_by([&] { kernel(workspace.data()); }), kBound)
        << name << ": memory of this size comes from the caller, as a workspace";
  });
}
template <class Kernel>
void expect_little(const char* name, const Kernel& kernel) {
  expect_little(
      name, [] { return int64_t{0}; }, [&](void*) { kernel(); });
}

class Allocation : public OnCpu {
 protected:
  void SetUp() override {
    if (test::kSanitized) GTEST_SKIP() << "sanitizer: it has an operator new of its own";
    set_num_threads(2);
  }
};

TEST_F(Allocation, IsCounted) {
  // The list of a row chain's steps is the kernels' own.
  const Array x = filled(float32, {2, 16}), weight = filled(float32, {16, 16});
  Array y(float32, x.shape());
  const std::vector<RowStep> steps(2, LinearStep{weight.cview(), {}, Activation::kNone});
  MarkedWorkspace workspace(row_chain_workspace(kCpu, x.cview(), steps));
  EXPECT_GT(held_by([&] { row_chain(kCpu, x.cview(), steps, y.view(), workspace.data()); }), 0);
}

TEST_F(Allocation, BatchNorm) {
  constexpr int64_t kChannels = 30000;
  Array x = filled(float32, {4, kChannels}), y(float32, x.shape()), sums(float32, {2, kChannels});
  Array mean = filled(float32, {kChannels}), scale = filled(float32, {kChannels});
  const BatchNormMap map{mean.view(), scale.view(), {}, ImageActivation::kSilu};
  expect_little("batch_norm_apply", [&] { batch_norm_apply(kCpu, x.view(), map, {}, y.view()); });
  expect_little(
      "batch_norm_backward_sums", [&] { return batch_norm_workspace(kCpu, 4, kChannels, float32); },
      [&](void* work) { batch_norm_backward_sums(kCpu, x.view(), {}, x.view(), map, sums.view(), {}, work); });
  expect_little("batch_norm_backward_apply",
                [&] { batch_norm_backward_apply(kCpu, x.view(), x.view(), map, mean.view(), scale.view(), y.view()); });
}

TEST_F(Allocation, Resample) {
  const ResampleAxis axis{ResampleMode::kCubic, 12000, 9000, false, true};
  Array x = filled(float32, {2, axis.in, 1}), y(float32, {2, axis.out, 1}), dx(float32, x.shape());
  Array first(int32, {axis.out}), weights(float32, {axis.out, axis.taps()});
  resample_table(kCpu, axis, first.view(), weights.view());
  expect_little(
      "resample", [&] { return resample_workspace(kCpu, x.view(), first.view(), weights.view(), y.view()); },
      [&](void* work) { resample(kCpu, x.view(), first.view(), weights.view(), y.view(), work); });
  expect_little(
      "resample_transposed",
      [&] { return resample_transposed_workspace(kCpu, y.view(), first.view(), weights.view(), dx.view()); },
      [&](void* work) { resample_transposed(kCpu, y.view(), first.view(), weights.view(), dx.view(), work); });
}

TEST_F(Allocation, Products) {
  struct Case {
    DType dtype;
    bool transpose_a, transpose_b;
    int64_t m, n, k;
  };
  for (const Case& s : {Case{float32, false, false, 16, 16, 16}, Case{float32, false, true, 600, 96, 80},
                        Case{float32, true, false, 200, 300, 700}, Case{float32, true, false, 16, 16, 30000},
                        Case{float32, false, false, 200, 1024, 160}, Case{bfloat16, false, true, 600, 96, 80},
                        Case{bfloat16, true, false, 96, 80, 600}, Case{float16, false, false, 90, 80, 1500},
                        Case{float64, false, true, 200, 300, 100}}) {
    SCOPED_TRACE(testing::Message() << name_of(s.dtype) << " " << s.m << " x " << s.n << " x " << s.k);
    const auto stored = [&](bool transposed, int64_t rows, int64_t cols) {
      return filled(s.dtype, transposed ? Shape{cols, rows} : Shape{rows, cols});
    };
    const Array a = stored(s.transpose_a, s.m, s.k), b = stored(s.transpose_b, s.k, s.n);
    Array c(s.dtype, {s.m, s.n});
    expect_little(
        "gemm", [&] { return gemm_workspace(kCpu, s.transpose_a, s.transpose_b, a.cview(), b.cview(), c.view()); },
        [&](void* work) { gemm(kCpu, s.transpose_a, s.transpose_b, 1, a.cview(), b.cview(), 0, c.view(), work); });
  }
}

TEST_F(Allocation, RowChain) {
  constexpr int64_t kWidth = 64, kRows = 3000;
  const Array x = filled(float32, {kRows, kWidth}), weight = filled(float32, {kWidth, kWidth});
  Array y(float32, x.shape());
  const std::vector<RowStep> steps(12, LinearStep{weight.cview(), {}, Activation::kRelu});
  expect_little(
      "row_chain", [&] { return row_chain_workspace(kCpu, x.cview(), steps); },
      [&](void* work) { row_chain(kCpu, x.cview(), steps, y.view(), work); });
}

TEST_F(Allocation, Convolutions) {
  for (const ConvolutionShape& s :
       {convolution_shape(2, 512, 512, 512, {{14, 3, 1, 1}, {14, 3, 1, 1}}),     // depthwise
        convolution_shape(2, 512, 512, 512, {{29, 3, 2, 1}, {300, 3, 2, 1}}),    // depthwise, rows
        convolution_shape(2, 512, 512, 512, {{14, 5, 2, 4, 2}, {90, 5, 1, 2}}),  // depthwise, wide
        convolution_shape(4, 24, 136, 1, {{28, 1}, {28, 1}}),                    // a product
        convolution_shape(40, 32, 32, 1, {{14, 3, 1, 1}, {14, 3, 1, 1}}),        // Winograd's
        convolution_shape(2, 24, 72, 1, {{30, 5, 2, 2}, {40, 5, 2, 2}}),         // direct
        convolution_shape(64, 16, 24, 1, {{200, 9, 1, 4}}),                      // one dimension
        convolution_shape(2, 24, 36, 3, {{30, 3, 1, 1}, {70, 3, 2, 1}})})        // groups
    for (const DType dtype : {float32, bfloat16}) {
      SCOPED_TRACE(testing::Message() << name_of(dtype) << " " << s.in_channels << " to " << s.out_channels
                                      << ", kernel " << s.kernel[1] << " x " << s.kernel[2]);
      const int64_t group_in = s.in_channels / s.groups;
      const Array x = filled(dtype, {s.batch, s.in_pixels(), s.in_channels}),
                  weight = filled(dtype, {s.out_channels, group_in, s.kernel_size()});
      Array y(dtype, {s.batch, s.out_pixels(), s.out_channels}), dx(dtype, x.shape()), dweight(float32, weight.shape());
      expect_little(
          "convolution_forward", [&] { return convolution_workspace(kCpu, s, dtype, false); },
          [&](void* work) { convolution_forward(kCpu, s, x.cview(), weight.cview(), {}, y.view(), work); });
      expect_little(
          "convolution_backward_input", [&] { return convolution_backward_input_workspace(kCpu, s, dtype); },
          [&](void* work) { convolution_backward_input(kCpu, s, y.view(), weight.cview(), dx.view(), work); });
      expect_little(
          "convolution_backward_weight", [&] { return convolution_backward_weight_workspace(kCpu, s, dtype); },
          [&](void* work) { convolution_backward_weight(kCpu, s, y.view(), x.cview(), dweight.view(), work); });
    }
}

TEST_F(Allocation, Recurrent) {
  constexpr int64_t kBatch = 9, kSteps = 200, kHidden = 96;
  const std::vector<int64_t> counts(kSteps, kBatch);
  Array first(int64, {kBatch}), weight = filled(float32, {4 * kHidden, kHidden});
  for (int64_t i = 0; i < kBatch; ++i) first.set(i, static_cast<double>(i * kSteps));
  RecurrentLayer layer;
  layer.steps = {counts.data(), kSteps, 1, first.view(), first.view()};
  Array order(int64, {kBatch});
  for (int64_t i = 0; i < kBatch; ++i) order.set(i, static_cast<double>(i));
  layer.steps.order = order.view();
  layer.weight = weight.view();
  Array gates = filled(float32, {kBatch * kSteps, 4 * kHidden}), cells(float32, {kBatch * kSteps, kHidden});
  Array output(float32, cells.shape()), last(float32, {kBatch, kHidden}), last_cell(float32, last.shape());
  Array dgates(float32, gates.shape());
  const RecurrentKept kept{gates.view(), cells.view(), {}};
  expect_little(
      "recurrent_forward", [&] { return recurrent_forward_workspace(kCpu, layer); },
      [&](void* work) { recurrent_forward(kCpu, layer, kept, output.view(), last.view(), last_cell.view(), work); });
  RecurrentGradients gradients;
  gradients.output = output.view();
  gradients.gates = dgates.view();
  expect_little(
      "recurrent_backward", [&] { return recurrent_backward_workspace(kCpu, layer); },
      [&](void* work) { recurrent_backward(kCpu, layer, kept, output.view(), gradients, work); });
}

TEST_F(Allocation, Attention) {
  constexpr int64_t kTokens = 700, kHeads = 3, kDim = 40;
  const int32_t offsets[] = {0, kTokens};
  AttentionParams params;
  params.sequences = 1;
  params.heads = params.kv_heads = kHeads;
  params.head_dim = kDim;
  params.query_offsets = params.key_offsets = offsets;
  params.max_query_length = params.max_key_length = kTokens;
  params.scale = 0.1;
  for (const DType dtype : {float32, float64}) {
    const Array q = filled(dtype, {kTokens, kHeads, kDim});
    Array out(dtype, q.shape()), dq(dtype, q.shape()), dk(dtype, q.shape()), dv(dtype, q.shape());
    Array lse(dtype == float64 ? float64 : float32, {kHeads, kTokens});
    expect_little(
        "attention_forward", [&] { return attention_forward_workspace(kCpu, params, dtype); },
        [&](void* work) {
          attention_forward(kCpu, params, q.cview(), q.cview(), q.cview(), out.view(), lse.view(), work);
        });
    expect_little(
        "attention_backward", [&] { return attention_backward_workspace(kCpu, params, dtype); },
        [&](void* work) {
          attention_backward(kCpu, params, q.cview(), q.cview(), q.cview(), out.view(), q.cview(), lse.view(),
                             dq.view(), dk.view(), dv.view(), {}, work);
        });
  }
}

TEST_F(Allocation, OptimizersOfWholeParameters) {
  constexpr int64_t kTensors = 3000, kSize = 6;
  Array weight = filled(float32, {kTensors * kSize}), gradient = filled(float32, weight.shape());
  Array state1(float32, weight.shape()), state2(float32, weight.shape());
  state1.fill(0);
  state2.fill(0);
  std::vector<OptimizerTensor> tensors(kTensors);
  for (int64_t t = 0; t < kTensors; ++t) {
    const auto at = [&](Array& array) { return array.view().as<float>() + t * kSize; };
    tensors[t].weight = at(weight);
    tensors[t].gradient = at(gradient);
    tensors[t].states[0] = at(state1);
    tensors[t].states[1] = tensors[t].states[2] = at(state2);
    tensors[t].size = kSize;
  }
  int64_t updates = 0;
  OptimizerStep step;
  step.step = &updates;
  const LambRule lamb;
  const AdafactorRule adafactor;
  expect_little(
      "update_lamb", [&] { return lamb_workspace(kCpu, tensors.data(), kTensors); },
      [&](void* work) { update_lamb(kCpu, &lamb, tensors.data(), kTensors, step, work); });
  expect_little(
      "update_adafactor", [&] { return adafactor_workspace(kCpu, tensors.data(), kTensors); },
      [&](void* work) { update_adafactor(kCpu, &adafactor, tensors.data(), kTensors, step, work); });
}

TEST_F(Allocation, RowsAndDistances) {
  constexpr int64_t kColumns = 40000;
  const Array x = filled(float32, {2, kColumns});
  Array values(float32, x.shape()), index(int64, x.shape());
  expect_little(
      "sort_rows", [&] { return sort_rows_workspace(kCpu, 2, kColumns, float32); },
      [&](void* work) { sort_rows(kCpu, x.cview(), false, work, values.view(), index.view()); });
}

}  // namespace
}  // namespace tern::kernels

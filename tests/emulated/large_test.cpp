// Tensors of more than 2^31 elements, without as many threads: launches that are recorded instead of run, plans of
// reductions, also of smaller ones, and kernels over few elements that lie further apart than 32 bits count.

#include <limits>
#include <numeric>

#include "tern/kernels/copy.h"
#include "tern/kernels/cuda/reduce/plan.h"
#include "tern/kernels/embedding.h"
#include "tern/kernels/norm.h"
#include "tern/kernels/optimizer/tiles.h"
#include "tern/kernels/pointwise/tiles.h"
#include "tern/kernels/softmax.h"
#include "tern/tests/emulator/messages.h"
#include "tern/tests/emulator/simt/schedules.h"
#include "tern/tests/kernels/contracts/reduce.h"
#include "tern/tests/kernels/sparse_memory.h"

namespace tern::kernels {
namespace {

// --- launches ---

std::vector<int64_t> recorded;  // blocks of each launch

/// The grids that body() would launch.
std::vector<int64_t> grids_of(const std::function<void()>& body) {
  recorded.clear();
  simt::set_launcher([](simt::Launch&& launch) {
    recorded.push_back(int64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2]);
    return simt::Refusal();
  });
  const struct AtEnd {
    ~AtEnd() { simt::set_launcher(nullptr); }
  } at_end;
  body();
  return recorded;
}

/// A contiguous tensor of which no element exists.
View imagined(DType dtype, const Shape& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (int d = static_cast<int>(shape.size()) - 2; d >= 0; --d) strides[d] = strides[d + 1] * shape[d + 1];
  return View(reinterpret_cast<void*>(uintptr_t{1} << 20), dtype, static_cast<int>(shape.size()), shape.data(),
              strides.data());
}

struct LaunchCase {
  const char* name;
  std::function<void(int64_t n)> launch;  // over n elements or rows
  int64_t too_many;                       // n that no grid holds; 0: any number is cut into launches
};

const OptimizerTensor& imagined_parameter(int64_t n) {
  static OptimizerTensor t;
  t.weight = t.states[0] = t.states[1] = imagined(float32, {n}).data;
  t.gradient = t.weight;
  t.size = n;
  return t;
}

const AdamRule kAdam;

const LaunchCase kLaunchCases[] = {
    {"add",
     [](int64_t n) {
       const ConstView inputs[] = {imagined(bfloat16, {n}), imagined(float32, {n})};
       cuda::pointwise(kCuda, make_call(Add{}, {}, float32), inputs, 2, imagined(bfloat16, {n}));
     },
     0},
    {"copy", [](int64_t n) { cuda::copy(kCuda, imagined(uint8, {n}), imagined(uint8, {n})); }, 0},
    {"transposing copy",
     [](int64_t n) {
       View x = imagined(float16, {64, n});
       std::swap(x.shape[0], x.shape[1]);
       std::swap(x.strides[0], x.strides[1]);
       cuda::copy(kCuda, x, imagined(float16, {n, 64}));
     },
     int64_t{1} << 38},
    {"fill", [](int64_t n) { cuda::fill(kCuda, 1, imagined(uint8, {n})); }, 0},
    {"fill_uniform", [](int64_t n) { cuda::fill_uniform(kCuda, {}, 0, 1, imagined(float32, {n})); }, int64_t{1} << 42},
    {"arange", [](int64_t n) { cuda::arange(kCuda, 0, 1, imagined(int64, {n})); }, int64_t{1} << 40},
    {"copy_many",
     [](int64_t n) {
       const ConstView x = imagined(float32, {n});
       const View y = imagined(bfloat16, {n});
       cuda::copy_many(kCuda, &x, &y, 1);
     },
     int64_t{1} << 46},
    {"softmax",
     [](int64_t n) {
       cuda::softmax_forward(kCuda, false, imagined(bfloat16, {n, 8}), imagined(bfloat16, {n, 8}));
     },
     int64_t{1} << 35},
    {"softmax of columns",
     [](int64_t n) {
       cuda::softmax_columns_forward(kCuda, false, imagined(bfloat16, {1, 8, n}), imagined(bfloat16, {1, 8, n}));
     },
     int64_t{1} << 36},
    {"cross_entropy",
     [](int64_t n) {
       cuda::cross_entropy_forward(kCuda, imagined(bfloat16, {n, 8}), imagined(int64, {n}), {}, -1, 0,
                                   imagined(float32, {n}), imagined(float32, {n}), nullptr);
     },
     int64_t{1} << 35},
    {"dropout",
     [](int64_t n) {
       cuda::dropout(kCuda, imagined(bfloat16, {n, 8}), {0.5, {}}, {}, imagined(bfloat16, {n, 8}));
     },
     int64_t{1} << 42},
    {"gradient_norm",
     [](int64_t n) {
       const ConstView x = imagined(float32, {n});
       cuda::gradient_norm(kCuda, &x, 1, imagined(int64, {1}).data, imagined(int32, {1}).data, nullptr);
     },
     int64_t{1} << 46},
    {"adam",
     [](int64_t n) {
       OptimizerStep step;
       step.step = imagined(int64, {1}).as<int64_t>();
       cuda::update_weights(kCuda, make_rules(&kAdam), &imagined_parameter(n), 1, step);
     },
     int64_t{1} << 46},
};

TEST(SimtLarge, GridsGrowWithTheTensorBeyond32Bits) {
  constexpr int64_t kSmall = int64_t{1} << 20, kTimes = 4099;  // more than 2^32
  for (const LaunchCase& c : kLaunchCases) {
    SCOPED_TRACE(c.name);
    const std::vector<int64_t> small = grids_of([&] { c.launch(kSmall); });
    const std::vector<int64_t> large = grids_of([&] { c.launch(kSmall * kTimes); });
    // A launch may end in a block that is not full, or be no more than a counter.
    const int64_t slack = static_cast<int64_t>(small.size()) * kTimes + static_cast<int64_t>(large.size());
    const int64_t expected = kTimes * std::accumulate(small.begin(), small.end(), int64_t{0});
    EXPECT_LE(std::llabs(std::accumulate(large.begin(), large.end(), int64_t{0}) - expected), slack);
    for (const int64_t blocks : large) {
      EXPECT_LE(blocks, std::numeric_limits<int32_t>::max());
      if (c.too_many == 0) {  // these count a launch's elements in 31 bits
        EXPECT_LE(blocks, (int64_t{1} << 31) / (kSmall / small[0])) << "one launch takes more than 2^31 elements";
      }
    }
  }
}

TEST(SimtLarge, MoreThanAGridIsOneClearError) {
  for (const LaunchCase& c : kLaunchCases) {
    if (c.too_many == 0) continue;
    SCOPED_TRACE(c.name);
    expect_error([&] { grids_of([&] { c.launch(c.too_many); }); }, {"CUDA allows 2147483647"});
  }
  const int64_t rows = int64_t{1} << 32;
  EXPECT_THROW(grids_of([&] {
                 cuda::embedding_backward(kCuda, imagined(bfloat16, {rows, 8}), imagined(int64, {rows}), -1,
                                          imagined(int64, {1}).data, imagined(float32, {100, 8}));
               }),
               Error);
}

// --- plans of reductions ---

cuda::ReducePlan plan_of(DType dtype, const Shape& shape, uint32_t dims) {
  return cuda::plan_reduction(imagined(dtype, shape), dims, imagined(dtype, reduced_shape(shape, dims)));
}

TEST(ReducePlan, DividesByMultiplication) {
  std::mt19937_64 random = fresh_random();
  for (int i = 0; i < 200000; ++i) {
    const int64_t d = static_cast<int64_t>(random() >> (1 + random() % 62)) + 1;
    int64_t n = static_cast<int64_t>(random() >> (1 + random() % 62));
    if (i % 2 == 0) n = n / d * d;  // an error would be visible there
    if (i % 4 == 0 && n > 0) --n;
    ASSERT_EQ(cuda::WideDivider(d).quotient(n), n / d) << n << " / " << d;
  }
}

TEST(ReducePlan, PlansFillTheDevice) {
  for (DType dtype : kAllTypes) {
    const int64_t n = 1 << 28;
    for (const auto& [shape, dims] : std::vector<std::pair<Shape, uint32_t>>{{{n}, 1},
                                                                             {{n + 1}, 1},
                                                                             {{3, n / 3}, 2},
                                                                             {{n / 3, 3}, 1},
                                                                             {{n / 768, 768}, 1},
                                                                             {{n / 768, 768}, 2},
                                                                             {{n / 999, 999}, 1},
                                                                             {{8, n / 512, 64}, 5},
                                                                             {{8, n / 512, 64}, 2}}) {
      SCOPED_TRACE(testing::Message() << name_of(dtype) << " " << shape[0] << " dims " << dims);
      const cuda::ReducePlan plan = plan_of(dtype, shape, dims);
      EXPECT_GE(plan.blocks(), 2 * 132);  // two for each multiprocessor of an H100
      // Parts cover all steps, and no part is empty.
      EXPECT_GE(plan.parts * plan.part_steps, plan.steps);
      EXPECT_LT((plan.parts - 1) * plan.part_steps, plan.steps);
      EXPECT_LE(plan.workspace_bytes(16), plan.results * plan.length * size_of(dtype) / 10);
    }
  }
  EXPECT_EQ(plan_of(float32, {1000}, 1).parts, 1);  // a small reduction takes one launch
  EXPECT_EQ(plan_of(float32, {100000, 1000}, 2).parts, 1);
}

TEST(SimtLarge, ReductionsArePlannedIn64Bits) {
  const int64_t many = (int64_t{1} << 33) + 24;
  const std::vector<std::pair<Shape, uint32_t>> cases = {{{many}, 1},         {{many + 1}, 1},         {{many, 8}, 1},
                                                         {{many, 8}, 2},      {{8, many}, 1},          {{8, many}, 2},
                                                         {{3, many, 8}, 5},   {{16, many / 8, 16}, 2}, {{many, 9}, 2},
                                                         {{70000, 70000}, 1}, {{70000, 70000}, 2}};
  for (const auto& [shape, dims] : cases)
    for (const DType dtype : {uint8, bfloat16, float64}) {
      SCOPED_TRACE(testing::Message() << testing::PrintToString(shape) << " dims " << dims << " " << name_of(dtype));
      int64_t results = 1, length = 1;
      for (size_t d = 0; d < shape.size(); ++d) (dims >> d & 1 ? length : results) *= shape[d];
      const cuda::ReducePlan plan = plan_of(dtype, shape, dims);
      EXPECT_EQ(plan.results, results);
      EXPECT_EQ(plan.length, length);
      const int64_t width = plan.access == cuda::ReduceAccess::kElements ? 1 : 16 / size_of(dtype);
      const bool across = plan.access == cuda::ReduceAccess::kAcross;
      EXPECT_EQ(plan.units, across ? results / width : results);
      EXPECT_EQ(plan.steps, across ? length : length / width);
      EXPECT_GE(plan.tiles() * plan.across, plan.units);
      EXPECT_GE(plan.parts * plan.part_steps, plan.steps);
      EXPECT_LT((plan.parts - 1) * plan.part_steps, plan.steps);
      EXPECT_LE(plan.blocks(), std::numeric_limits<int32_t>::max());
      EXPECT_GE(plan.workspace_bytes(16), 0);
      std::mt19937_64 random = fresh_random();
      for (int i = 0; i < 1000; ++i) {
        const int64_t n = static_cast<int64_t>(random() >> (1 + random() % 40));
        ASSERT_EQ(plan.by_parts.quotient(n), n / plan.parts);
        ASSERT_EQ(plan.by_vectors.quotient(n), n / static_cast<int64_t>(plan.by_vectors.divisor));
      }
    }
}

// --- far apart ---

constexpr int64_t kFar = (int64_t{1} << 31) + 16;

/// Shapes and strides of elements that are 2^31 and more apart, with and without 16-byte vectors in between; the last
/// is beyond 2^33.
const std::vector<std::pair<Shape, Shape>> kFarCases = {
    {{5, 72}, {kFar, 1}},
    {{4, 7}, {kFar + 5, 3}},
    {{9, 10}, {1, kFar / 2}},
    {{2, 3, 20}, {2 * kFar, kFar / 2 + 3, 1}},
};

TEST(SimtLarge, CopyAddAndReduceOverFarApartElements) {
  const SparseMemory memory((5 * kFar + 4096) * 4);
  if (!memory) GTEST_SKIP() << "memory: the system gives out no address space of 43 GB";
  std::mt19937_64 random = fresh_random();
  for (const DType dtype : {float32, uint8})
    for (const auto& [shape, strides] : kFarCases) {
      SCOPED_TRACE(testing::Message() << testing::PrintToString(strides) << " " << name_of(dtype));
      const View far = memory.view(dtype, shape, strides);
      Array near_by(dtype, shape), back(dtype, shape), sum(dtype, shape);
      fill_with_random(near_by, random, 0, 100);
      cuda::copy(kCuda, near_by.cview(), far);
      for (int64_t i = 0; i < near_by.numel(); ++i) ASSERT_EQ(Array::read(far, i), near_by.at(i)) << "element " << i;
      cuda::copy(kCuda, far, back.view());
      EXPECT_EQ(back.values(), near_by.values());
      const ConstView inputs[] = {far, near_by.cview()};
      cuda::pointwise(kCuda, make_call(Add{}, {}, dtype == uint8 ? int64 : float32), inputs, 2, sum.view());
      for (int64_t i = 0; i < sum.numel(); ++i)
        ASSERT_EQ(sum.at(i), round_to(dtype, near_by.at(i) + near_by.at(i))) << "element " << i;
      for (uint32_t dims = 1; dims < 1u << shape.size(); ++dims) {
        const DType out = dtype == uint8 ? int64 : float32;
        Array from_far(out, reduced_shape(shape, dims)), from_near(out, reduced_shape(shape, dims));
        std::vector<double> workspace(4096);
        ASSERT_LE(cuda::reduce_workspace(kCuda, far, dims, from_far.view()), 4096 * 8);
        cuda::reduce(kCuda, Reduction::kMax, far, dims, workspace.data(), from_far.view());
        reduce(Stream{}, Reduction::kMax, near_by.cview(), dims, workspace.data(), from_near.view());
        EXPECT_EQ(from_far.values(), from_near.values()) << "dims " << dims;
      }
    }
}

TEST(SimtLarge, GatherAndEmbeddingOfFarRows) {
  const int64_t rows = kFar / 64 + 1, cols = 64;  // more than 2^31 elements
  const SparseMemory memory(rows * cols * 4);
  if (!memory) GTEST_SKIP() << "memory: the system gives out no address space of 9 GB";
  const View table = memory.view(float32, {rows, cols}, {cols, 1});
  const std::vector<int64_t> selected = {rows - 1, 0, rows - 2, 3};
  const int64_t n = static_cast<int64_t>(selected.size());
  Array ids(int64, {n}), index(int64, {n, cols}), y(float32, {n, cols}), gathered(float32, {n, cols});
  for (int64_t i = 0; i < n; ++i) {
    ids.set(i, static_cast<double>(selected[i]));
    for (int64_t c = 0; c < cols; ++c) {
      table.as<float>()[selected[i] * cols + c] = static_cast<float>(100 * i + c + 1);
      index.set(i * cols + c, static_cast<double>(selected[i]));
    }
  }
  IndexFault fault;
  cuda::embedding_forward(kCuda, table, ids.cview(), y.view(), &fault);
  cuda::gather(kCuda, table, 0, index.cview(), gathered.view(), &fault);
  EXPECT_EQ(fault.count, 0);
  for (int64_t i = 0; i < n * cols; ++i) {
    ASSERT_EQ(y.at(i), 100 * (i / cols) + i % cols + 1);
    ASSERT_EQ(gathered.at(i), y.at(i));
  }
}

}  // namespace
}  // namespace tern::kernels

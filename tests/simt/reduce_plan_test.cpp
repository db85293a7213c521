// How CUDA's reductions are divided among threads.

#include "tern/kernels/cuda/reduce_plan.h"

#include "tern/tests/kernels/contracts/reduce.h"

namespace tern::kernels {
namespace {

cuda::ReducePlan plan_of(DType dtype, const Shape& shape, uint32_t dims) {
  const auto view = [&](const Shape& sizes, DType type) {
    std::vector<int64_t> strides(sizes.size(), 1);
    for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
    return View(nullptr, type, static_cast<int>(sizes.size()), sizes.data(), strides.data());
  };
  return cuda::plan_reduction(view(shape, dtype), dims, view(reduced_shape(shape, dims), dtype));
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

}  // namespace
}  // namespace tern::kernels

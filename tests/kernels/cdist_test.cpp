// Distances between rows and their gradients, against loops in double precision.

#include "tern/tests/kernels/contracts/cdist.h"

namespace tern::kernels {
namespace {

class Cdist : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, Cdist, testing::ValuesIn(all_targets()), name_of_target);

/// Batch, rows, other rows, depth: whole and partial blocks, one element, and nothing.
const std::vector<Shape> kSizes = {{1, 1, 1, 1},    {2, 3, 5, 4},   {1, 65, 70, 3}, {1, 64, 64, 20}, {1, 9, 66, 130},
                                   {2, 70, 5, 33},  {3, 5, 4, 0},   {0, 2, 3, 4},   {2, 0, 3, 4},    {1, 4, 0, 5},
                                   {1, 130, 67, 6}, {1, 3, 2, 300}, {1, 1, 200, 2}, {1, 66, 65, 65}};

TEST_P(Cdist, DistancesAndGradients) {
  for (const DType dtype : kFloatTypes)
    for (const double order : {0.0, 1.0, 2.0, 3.0, 1.5, 0.5, double{INFINITY}})
      for (const Shape& sizes : kSizes) {
        if (!takes_case(20 * sizes[0] * sizes[1] * sizes[2] * sizes[3], random)) continue;
        if (sizes[1] * sizes[2] > 4000 && random() % 4 != 0) continue;
        if (order == 0.5 && is_low_precision(dtype)) continue;  // its slopes exceed fp16
        cdist_test::Rows of(dtype, order, sizes, 0, random);
        cdist_test::check(of);
        if (HasFatalFailure()) return;
      }
}

/// Many elements have no difference, or the largest.
TEST_P(Cdist, EqualDifferences) {
  for (const DType dtype : kFloatTypes)
    for (const double order : {0.0, 1.0, 2.0, 2.5, double{INFINITY}})
      for (const Shape& sizes : std::vector<Shape>{{2, 5, 6, 7}, {1, 66, 20, 3}, {1, 10, 70, 70}}) {
        if (!takes_case(20 * sizes[0] * sizes[1] * sizes[2] * sizes[3], random)) continue;
        cdist_test::Rows of(dtype, order, sizes, 2, random);
        cdist_test::check(of);
        if (HasFatalFailure()) return;
      }
}

/// Each gradient without the other has the same bits.
TEST_P(Cdist, OneGradientAlone) {
  for (const double order : {0.0, 2.0, double{INFINITY}}) {
    cdist_test::Rows both(float32, order, {2, 7, 9, 5}, 0, random);
    both.run();
    for (const bool first : {true, false}) {
      Array alone(float32, (first ? both.dx : both.dz).shape());
      run_kernel([&](Call& on) {
        void* const workspace = on.workspace(cdist_backward_workspace(on.stream(), order, on(both.y)));
        cdist_backward(on.stream(), order, on(both.x), on(both.z), on(both.y), on(both.dy), workspace,
                       on.when(first, alone), on.when(!first, alone));
      });
      EXPECT_EQ(alone.values(), (first ? both.dx : both.dz).values());
    }
  }
}

/// NaN reaches the distances and gradients of its row alone; order 1 has no slope at NaN.
TEST_P(Cdist, NanStaysInItsRow) {
  for (const double order : {1.0, 2.0, 3.0, double{INFINITY}}) {
    cdist_test::Rows of(float32, order, {1, 3, 4, 5}, 0, random);
    const auto element = static_cast<int64_t>(random() % 5);
    of.x.set(5 + element, NAN);
    of.run();
    for (int64_t i = 0; i < of.y.numel(); ++i) EXPECT_EQ(std::isnan(of.y.at(i)), i / 4 == 1) << i;
    for (int64_t i = 0; i < of.dx.numel(); ++i) {
      if (i / 5 != 1) {
        EXPECT_FALSE(std::isnan(of.dx.at(i))) << i;
      } else if (order > 1) {
        EXPECT_TRUE(std::isnan(of.dx.at(i))) << "order " << order << ", element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace tern::kernels

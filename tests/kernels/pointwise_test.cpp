// Element-wise kernels: every op of BuiltinOps against independent formulas, derivatives against finite differences,
// and the driver over dtypes, strides and broadcasts.

#include "tern/kernels/pointwise.h"

#include "tern/tests/kernels/pointwise_cases.h"

namespace tern::kernels {
namespace {

/// Calls the kernel; `inputs` are broadcast to y's shape.
void call(const PointwiseCall& call, const std::vector<const Array*>& inputs, Array& y) {
  std::vector<ConstView> views;
  for (const Array* input : inputs) views.push_back(input ? input->expand(y.shape()) : ConstView());
  pointwise({}, call, views.data(), static_cast<int>(views.size()), y.view());
}

void check_forward(const TestedOp& op, DType storage, DType compute, const Shape& shape, Order order) {
  SCOPED_TRACE(op.name + " " + name_of(storage) + " computed in " + name_of(compute));
  std::mt19937_64 random = fresh_random();
  const std::vector<Array> inputs = random_inputs(op, random, storage, shape, order);
  Array y(op.bool_result ? boolean : storage, shape, order);
  expect_same_for_any_threads(y, [&] { call(op.call({}, compute), pointers(inputs), y); });
  const double relative = epsilon_of(y.dtype()) * 1.01 + (compute == float32 ? 1e-6 : 1e-14);
  for (int64_t i = 0; i < y.numel(); ++i) {
    const double expected = round_to(y.dtype(), op.at(inputs, i));
    ASSERT_TRUE(
        near(y.at(i), expected, is_floating(y.dtype()) ? 2 * relative : 0, is_floating(y.dtype()) ? relative : 0))
        << "element " << i << ": got " << y.at(i) << ", expected " << expected;
  }
}

TEST(Pointwise, EveryOpHasAReference) {
  BuiltinOps::for_each([]<class Op>() { EXPECT_TRUE(cases().count(Op::name)) << Op::name; });
  EXPECT_EQ(static_cast<int>(cases().size()), BuiltinOps::size);
}

TEST(Pointwise, Forward) {
  for_each_level([] {
    for (const TestedOp& op : tested_ops())
      for (Order order : kAllOrders) {
        check_forward(op, float32, float32, {3, 37, 11}, order);
        check_forward(op, float64, float64, {5, 301}, order);
        check_forward(op, bfloat16, float32, {2, 1030}, order);
        check_forward(op, float16, float32, {257}, order);
        if (op.integral) {
          check_forward(op, int64, int64, {3, 301}, order);
          check_forward(op, int32, int64, {41}, order);
        }
      }
  });
}

TEST(Pointwise, DerivativesMatchFiniteDifferences) {
  for_each_level([] {
    for (const TestedOp& op : tested_ops()) {
      for (int input = 0; input < op.arity; ++input)
        if (op.derivable[input]) check_derivative(op, input, call);
      EXPECT_TRUE(op.bool_result == !(op.derivable[0] || op.derivable[op.arity - 1])) << op.name;
    }
  });
}

template <class Op, int kInput>
void expect_no_derivative() {
  if constexpr (!has_derivative<Op, kInput>()) {
    EXPECT_EQ(tile_functions<Op>({PointwisePass::kBackward, kInput}).f32, nullptr) << Op::name;
  }
}

/// Where an op has no derivative, the table must not contain one.
TEST(Pointwise, TablesHoldNoOtherDerivatives) {
  BuiltinOps::for_each([]<class Op>() {
    expect_no_derivative<Op, 0>();
    if constexpr (arity_of<Op>() > 1) expect_no_derivative<Op, 1>();
    if constexpr (arity_of<Op>() > 2) expect_no_derivative<Op, 2>();
  });
}

/// Backward and second passes in fp32, which has separate vectorised code, against fp64.
TEST(Pointwise, Fp32DerivativesMatchFp64) {
  for_each_level([] {
    for (const TestedOp& op : tested_ops()) {
      SCOPED_TRACE(op.name);
      std::mt19937_64 random = fresh_random();
      const int input = op.arity - 1;
      if (!op.derivable[input]) continue;
      for (PointwisePass pass : {PointwisePass{PointwisePass::kBackward, input}, {PointwisePass::kSecond, input, 0}}) {
        if (pass.kind == PointwisePass::kSecond && op.saved == 0) continue;
        std::vector<Array> in;
        for (int k = 0; k < op.inputs[pass.kind]; ++k)
          fill_with_random(in.emplace_back(float32, Shape{1027}), random, std::max(op.reference.low, -0.9),
                           std::min(op.reference.high, 0.9));
        Array narrow(float32, {1027}), wide(float64, {1027});
        call(op.call(pass, float32), pointers(in), narrow);
        call(op.call(pass, float64), pointers(in), wide);
        for (int64_t i = 0; i < 1027; ++i)
          ASSERT_TRUE(near(narrow.at(i), wide.at(i), 1e-5, 2e-6)) << i << ": " << narrow.at(i) << " " << wide.at(i);
      }
    }
  });
}

/// Applies an op and pass to one element, in fp32.
template <class Op>
double one(const Op& op, PointwisePass pass, const std::vector<double>& in) {
  std::vector<Array> arrays;
  for (double v : in) arrays.emplace_back(float32, Shape{1}).set(0, v);
  Array y(float32, {1});
  call(make_call(op, pass, float32), pointers(arrays), y);
  return y.at(0);
}

TEST(Pointwise, KinksAndSpecialValuesFollowPyTorch) {
  const PointwisePass backward{PointwisePass::kBackward};
  const PointwisePass backward1{PointwisePass::kBackward, 1};
  const double nan = NAN, inf = INFINITY;
  for_each_level([&] {
    EXPECT_EQ(one(Relu{}, backward, {2, 0}), 0);
    EXPECT_TRUE(std::isnan(one(Relu{}, {}, {nan})));
    EXPECT_EQ(one(Relu{}, backward, {inf, 0}), 0);  // masked: not inf * 0
    EXPECT_EQ(one(Relu{}, backward, {nan, 0}), 0);
    EXPECT_EQ(one(Abs{}, backward, {2, 0}), 0);
    EXPECT_EQ(one(Sqrt{}, backward, {2, 0}), inf);
    const Clamp clamp{-1, 2};
    EXPECT_EQ(one(clamp, backward, {3, -1}), 3);
    EXPECT_EQ(one(clamp, backward, {3, 2}), 3);
    EXPECT_EQ(one(clamp, backward, {inf, 2.5}), 0);
    EXPECT_TRUE(std::isnan(one(clamp, {}, {nan})));
    for (const PointwisePass& pass : {backward, backward1}) {
      EXPECT_EQ(one(Maximum{}, pass, {3, 1, 1}), 1.5);
      EXPECT_EQ(one(Minimum{}, pass, {3, 1, 1}), 1.5);
    }
    for (const std::vector<double>& in : {std::vector<double>{nan, 1}, {1, nan}, {nan, inf}, {-inf, nan}}) {
      EXPECT_TRUE(std::isnan(one(Maximum{}, {}, in)));
      EXPECT_TRUE(std::isnan(one(Minimum{}, {}, in)));
    }
    EXPECT_EQ(one(Where{}, {}, {0, nan, 5}), 5);
    EXPECT_EQ(one(Where{}, {PointwisePass::kBackward, 1}, {inf, 0, 0, 0}), 0);
    EXPECT_EQ(one(Where{}, {}, {nan, 4, 5}), 4);  // NaN is true
    EXPECT_EQ(one(Pow{}, backward, {1, 0, 0}), 0);
    EXPECT_EQ(one(Pow{}, backward1, {1, 0, 2}), 0);
    EXPECT_EQ(one(Pow{}, backward, {1, -2, 3}), 12);
    EXPECT_EQ(one(PowScalar{0}, backward, {1, 0}), 0);
    EXPECT_EQ(one(Softplus{}, {}, {200}), 200);
    EXPECT_EQ(one(Softplus{}, {}, {-200}), 0);
    EXPECT_EQ(one(Silu{}, {}, {-200}), 0);
    EXPECT_EQ(one(IsNan{}, {}, {nan}), 1);
    EXPECT_EQ(one(IsFinite{}, {}, {inf}), 0);
    EXPECT_EQ(one(IsFinite{}, {}, {nan}), 0);
    EXPECT_EQ(one(Equal{}, {}, {nan, nan}), 0);
    EXPECT_EQ(one(NotEqual{}, {}, {nan, nan}), 1);
  });
}

TEST(Pointwise, IntegersWrapAndClampAtInfinity) {
  for_each_level([] {
    const int64_t low = std::numeric_limits<int64_t>::min(), high = std::numeric_limits<int64_t>::max();
    const int64_t a[] = {high, low, 3}, b[] = {1, -1, 4};
    int64_t y[3];
    const ConstView in[] = {make_view(a, 3), make_view(b, 3)};
    const Add add;
    pointwise({}, make_call(add, {}, int64), in, 2, make_view(y, 3));
    EXPECT_EQ(y[0], low);
    EXPECT_EQ(y[1], high);
    EXPECT_EQ(y[2], 7);
    const Clamp clamp{0};
    pointwise({}, make_call(clamp, {}, int64), in, 1, make_view(y, 3));
    EXPECT_EQ(y[0], high);
    EXPECT_EQ(y[1], 0);
    EXPECT_EQ(y[2], 3);
  });
}

TEST(Pointwise, EveryPairOfDTypesAndOrders) {
  const Add add;
  for_each_level([&] {
    std::mt19937_64 random = fresh_random();
    for (DType from : kAllTypes)
      for (DType to : kAllTypes)
        for (Order order : kAllOrders)
          for (Order out : {Order::kContiguous, Order::kTransposed, Order::kSliced}) {
            Array a(from, {3, 5, 7}, order), b(float32, {3, 5, 7}), y(to, {3, 5, 7}, out);
            fill_with_random(a, random, 0, 20);
            fill_with_random(b, random, 0, 20);
            const DType compute = from == float64 || to == float64 ? float64 : float32;
            call(make_call(add, {}, compute), {&a, &b}, y);
            for (int64_t i = 0; i < y.numel(); ++i) {
              const double sum = a.at(i) + b.at(i);
              const double expected = round_to(to, compute == float32 ? round_to(float32, sum) : sum);
              ASSERT_EQ(y.at(i), expected) << name_of(from) << " to " << name_of(to) << " element " << i;
            }
          }
  });
}

TEST(Pointwise, Broadcasts) {
  const Sub sub;
  const std::vector<std::pair<Shape, std::vector<Shape>>> shapes = {
      {{4, 300}, {{300}, {4, 1}, {1, 300}, {1}, {4, 300}}},
      {{70, 3}, {{3}, {70, 1}, {1, 1}}},
      {{3, 1, 500, 2}, {{500, 2}, {3, 1, 1, 1}, {1, 1, 500, 1}, {2}}},
      {{2, 1, 3, 1, 2, 2, 1, 3}, {{2, 1, 3, 1, 1, 2, 1, 1}, {3}, {2, 1, 1, 1, 2, 1, 1, 3}}},
      {{1}, {{1}}},
      {{0, 5}, {{5}, {1, 1}}},
      {{3000}, {{1}, {3000}}},
      {{}, {{}}},
  };
  for_each_level([&] {
    std::mt19937_64 random = fresh_random();
    for (const auto& [shape, inputs] : shapes)
      for (const Shape& a_shape : inputs)
        for (const Shape& b_shape : inputs)
          for (DType dtype : {float32, bfloat16, float64}) {
            Array a(dtype, a_shape), b(dtype, b_shape, Order::kSliced), y(dtype, shape);
            fill_with_random(a, random, -4, 4);
            fill_with_random(b, random, -4, 4);
            call(make_call(sub, {}, dtype == float64 ? float64 : float32), {&a, &b}, y);
            const ConstView va = a.expand(shape), vb = b.expand(shape);
            for (int64_t i = 0; i < y.numel(); ++i)
              ASSERT_EQ(y.at(i), round_to(dtype, round_to(dtype == float64 ? float64 : float32,
                                                          Array::read(va, i) - Array::read(vb, i))));
          }
  });
}

TEST(Pointwise, InPlaceAndGapsUntouched) {
  const Neg neg;
  for_each_level([&] {
    std::mt19937_64 random = fresh_random();
    for (DType dtype : kFloatTypes)
      for (Order order : kAllOrders) {
        Array x(dtype, {9, 1300}, order);
        fill_with_random(x, random, -4, 4);
        const std::vector<double> before = x.values();
        std::vector<char> memory = x.bytes();
        call(make_call(neg, {}, dtype == float64 ? float64 : float32), {&x}, x);
        for (int64_t i = 0; i < x.numel(); ++i) ASSERT_EQ(x.at(i), -before[i]);
        for (int64_t i = 0; i < x.numel(); ++i) x.set(i, before[i]);
        EXPECT_TRUE(memory == x.bytes()) << "memory outside the view was written";
      }
  });
}

TEST(Pointwise, ManyBlocksOnTwoThreads) {
  const Mul mul;
  for_each_level([&] {
    std::mt19937_64 random = fresh_random();
    for (DType dtype : {float32, float16}) {
      Array x(dtype, {301, 1001}), bias(dtype, {1001}), y(dtype, {301, 1001});
      fill_with_random(x, random, -4, 4);
      fill_with_random(bias, random, -4, 4);
      expect_same_for_any_threads(y, [&] { call(make_call(mul, {}, float32), {&x, &bias}, y); });
      for (int64_t i = 0; i < y.numel(); ++i)
        ASSERT_EQ(y.at(i), round_to(dtype, round_to(float32, x.at(i) * bias.at(i % 1001))));
    }
  });
}

/// An op that is not part of the library: x^2 + 3 when x > 0.
struct UserOp {
  static constexpr const char* name = "user";
  static constexpr Saves saves = Saves::kBoth;
  double shift = 3;
  template <class F>
  F forward(F x) const {
    return math::select(x > F(0), x * x + F(shift), F(0));
  }
  template <class F>
  F derivative(F x, F y) const {
    return math::select(y > F(0), x + x, F(0));
  }
};

TEST(Pointwise, UserDefinedOp) {
  static_assert(index_of<UserOp>() == -1 && index_of<Neg>() == 0 && saved_count<UserOp>() == 2);
  for_each_level([] {
    EXPECT_EQ(one(UserOp{}, {}, {2}), 7);
    EXPECT_EQ(one(UserOp{5}, {}, {2}), 9);
    EXPECT_EQ(one(UserOp{}, {PointwisePass::kBackward}, {10, 2, 7}), 40);
    EXPECT_EQ(one(UserOp{}, {PointwisePass::kSecond, 0, 0}, {3, 10, 2, 7}), 60);
    EXPECT_EQ(one(UserOp{}, {PointwisePass::kSecond, 0, 1}, {3, 10, 2, 7}), 0);
  });
}

}  // namespace
}  // namespace tern::kernels

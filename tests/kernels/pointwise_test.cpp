// Element-wise kernels: every op of BuiltinOps against independent formulas, derivatives against finite differences,
// and the kernels over dtypes, strides, broadcasts, tails and misaligned memory.

#include "tern/tests/kernels/contracts/pointwise.h"

namespace tern::kernels {
namespace {

class Pointwise : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, Pointwise, testing::ValuesIn(all_targets()), name_of_target);

TEST(PointwiseOps, EveryOpHasADefinition) {
  BuiltinOps::for_each([]<class Op>() { EXPECT_TRUE(definitions().count(Op::name)) << Op::name; });
  EXPECT_EQ(static_cast<int>(definitions().size()), BuiltinOps::size);
}

template <class Op, int kInput>
void expect_no_derivative() {
  if constexpr (!has_derivative<Op, kInput>()) {
    EXPECT_EQ(tile_functions<Op>({PointwisePass::kBackward, kInput}).f32, nullptr) << Op::name;
  }
}

/// Where an op has no derivative, the table must not contain one.
TEST(PointwiseOps, TablesHoldOnlyTheDerivativesOfTheirOp) {
  BuiltinOps::for_each([]<class Op>() {
    expect_no_derivative<Op, 0>();
    if constexpr (arity_of<Op>() > 1) expect_no_derivative<Op, 1>();
    if constexpr (arity_of<Op>() > 2) expect_no_derivative<Op, 2>();
  });
}

TEST_P(Pointwise, ForwardOfEveryOpAndDType) {
  for (const TestedOp& op : tested_ops()) {
    for (Order order : kAllOrders) {
      check_forward(op, float32, float32, {3, 37, 11}, order, random);
      check_forward(op, float64, float64, {5, 301}, order, random);
      check_forward(op, bfloat16, float32, {2, 1030}, order, random);
      check_forward(op, float16, float32, {257}, order, random);
      if (!op.integral) continue;
      check_forward(op, int64, int64, {3, 301}, order, random);
      check_forward(op, int64, int64, {2, 3, 50}, order, random);
      check_forward(op, int32, int64, {41}, order, random);
    }
    check_forward(op, bfloat16, float32, {4, 128}, Order::kContiguous, random);
    check_forward(op, float16, float32, {403}, Order::kContiguous, random);
  }
}

/// Several blocks with all steps of a thread; ends that are ragged, just below a block's end, and at it.
TEST_P(Pointwise, LongArrays) {
  for (const TestedOp& op : tested_ops()) {
    for (DType dtype : {float32, bfloat16, float16})
      check_forward(op, dtype, float32, {9013}, Order::kContiguous, random);
    for (int64_t n : {8189, 8192}) {
      check_forward(op, float32, float32, {n}, Order::kContiguous, random);
      check_forward(op, float64, float64, {n}, Order::kContiguous, random);
      if (op.integral) check_forward(op, int64, int64, {n}, Order::kContiguous, random);
    }
  }
}

TEST_P(Pointwise, DerivativesMatchFiniteDifferences) {
  for (const TestedOp& op : tested_ops()) {
    for (int input = 0; input < op.arity; ++input)
      if (op.derivable[input]) check_derivative(op, input);
    static const std::set<std::string> counts = {"gcd", "lcm", "nextafter", "poisson", "binomial"};
    const bool has_none = op.name.starts_with("bitwise_") || counts.contains(op.name);
    EXPECT_TRUE((op.bool_result || has_none) == !(op.derivable[0] || op.derivable[op.arity - 1])) << op.name;
  }
}

/// Every pass in float, from 32-bit and 16-bit storage, against the same pass in double.
void check_narrow_derivative(const TestedOp& op, PointwisePass pass, std::mt19937_64& random) {
  const Case& c = op.reference;
  for (DType dtype : {float32, bfloat16}) {
    constexpr int64_t n = 6007;
    std::vector<Array> in;
    for (int k = 0; k < op.inputs[pass.kind]; ++k)
      in.push_back(random_array(random, dtype, {n}, std::max(c.low, -0.9), std::min(c.high, 0.9)));
    Array narrow(dtype, {n}), wide(float64, {n});
    call(op.call(pass, float32), pointers(in), narrow);
    call(op.call(pass, float64), pointers(in), wide);
    for (int64_t i = 0; i < n; ++i)
      ASSERT_TRUE(near(narrow.at(i), wide.at(i), 1e-5 + epsilon_of(dtype), 2e-6))
          << op.name << " " << i << ": " << narrow.at(i) << " " << wide.at(i);
  }
}

TEST_P(Pointwise, NarrowDerivativesMatchDouble) {
  for (const TestedOp& op : tested_ops())
    for (int input = 0; input < op.arity; ++input) {
      if (!op.derivable[input]) continue;
      check_narrow_derivative(op, {PointwisePass::kBackward, input}, random);
      for (int s = 0; s < op.saved; ++s)
        if (op.needed[input] >> s & 1) check_narrow_derivative(op, {PointwisePass::kSecond, input, s}, random);
    }
}

/// Special values in forward and backward. PyTorch's values follow below.
TEST_P(Pointwise, SpecialValuesAgreeWithTheCpu) {
  const std::vector<double> special = {0,   -0.0, 1,     -1,  2,        -1e-30,    1e-40, 88,
                                       -88, 3e38, -3e38, 200, INFINITY, -INFINITY, NAN};
  const int64_t side = static_cast<int64_t>(special.size()), n = side * side;
  for (const TestedOp& op : tested_ops()) {
    const auto check = [&](PointwisePass pass) {
      SCOPED_TRACE(op.name + " pass " + std::to_string(pass.kind) + " by " + std::to_string(pass.input));
      std::vector<Array> in;
      for (int k = 0; k < op.inputs[pass.kind]; ++k) {
        Array& a = in.emplace_back(float32, Shape{n});
        for (int64_t i = 0; i < n; ++i) a.set(i, special[(k % 2 == 0 ? i / side : i + k / 2) % side]);
      }
      Array got(float32, {n}), expected(float32, {n});
      call(op.call(pass, float32), pointers(in), got);
      std::vector<ConstView> views;
      for (const Array& a : in) views.push_back(a.cview());
      pointwise({}, op.call(pass, float32), views.data(), static_cast<int>(views.size()), expected.view());
      for (int64_t i = 0; i < n; ++i)
        ASSERT_TRUE(near(got.at(i), expected.at(i), 1e-5, 1e-37)) << i << ": " << got.at(i) << " " << expected.at(i);
    };
    // What a conversion of 3e38 or NaN to an integer gives is not defined.
    const bool of_integers = op.name.starts_with("bitwise_") || op.name == "gcd" || op.name == "lcm";
    if (of_integers || !takes_case(n, random)) continue;
    check({});
    for (int input = 0; input < 2; ++input)
      if (op.derivable[input]) check({PointwisePass::kBackward, input});
  }
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

TEST_P(Pointwise, KinksAndSpecialValuesFollowPyTorch) {
  const PointwisePass backward{PointwisePass::kBackward};
  const PointwisePass backward1{PointwisePass::kBackward, 1};
  const double nan = NAN, inf = INFINITY;
  for_each_run([&] {
    EXPECT_EQ(one(Relu{}, backward, {2, 0}), 0);
    EXPECT_TRUE(std::isnan(one(Relu{}, {}, {nan})));
    EXPECT_EQ(one(Relu{}, backward, {inf, 0}), 0);  // masked: not inf * 0
    EXPECT_EQ(one(Relu{}, backward, {nan, 0}), 0);
    EXPECT_EQ(one(Abs{}, backward, {2, 0}), 0);
    EXPECT_EQ(one(Sqrt{}, backward, {2, 0}), inf);
    const Clamp clamp{-1, 2};
    EXPECT_EQ(one(clamp, backward, {3, 0.5}), 3);
    EXPECT_EQ(one(clamp, backward, {3, -1}), 0);
    EXPECT_EQ(one(clamp, backward, {3, 2}), 0);
    EXPECT_EQ(one(clamp, backward, {inf, 2.5}), 0);
    EXPECT_EQ(one(Clamp{-1, inf}, backward, {3, inf}), 3);
    EXPECT_EQ(one(Clamp{-inf, 2}, backward, {3, -inf}), 3);
    EXPECT_EQ(one(HardSigmoid{}, {}, {-3}), 0);
    EXPECT_EQ(one(HardSwish{}, {}, {-3}), 0);
    for (const double above : {0x1p-10, 0x1p-16, 0x1p-20}) {  // x + 3, without a rounding error
      EXPECT_NEAR(one(HardSigmoid{}, {}, {above - 3}) / (above / 6), 1, 3e-7);
      EXPECT_NEAR(one(HardSwish{}, {}, {above - 3}) / ((above - 3) * above / 6), 1, 3e-7);
    }
    EXPECT_EQ(one(Atan2{}, backward, {1, 0, 0}), 0);
    EXPECT_EQ(one(Atan2{}, backward1, {1, 0, 0}), 0);
    for (const double x : {-89.0, 89.0, -1e4, 1e4}) {
      const PointwisePass second{PointwisePass::kSecond}, of_gate{PointwisePass::kSecond, 1, 0};
      EXPECT_NEAR(one(Silu{}, second, {1, 1, x}), 0, 1e-30);
      EXPECT_NEAR(one(Softplus{}, second, {1, 1, x}), 0, 1e-30);
      EXPECT_NEAR(one(LogSigmoid{}, second, {1, 1, x}), 0, 1e-30);
      EXPECT_NEAR(one(Swiglu{}, of_gate, {1, 1, x, 1}), x > 0, 1e-30);
    }
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
    EXPECT_EQ(one(FloorDivide{}, {}, {1, 0.1}), 9);  // 1 / 0.1 is 10 in float
    EXPECT_EQ(one(FloorDivide{}, {}, {-7, 2}), -4);
    EXPECT_EQ(one(FloorDivide{}, {}, {-1, inf}), -1);
    EXPECT_EQ(one(FloorDivide{}, {}, {3, 0}), inf);
    EXPECT_TRUE(std::isnan(one(FloorDivide{}, {}, {inf, 2})));
    EXPECT_TRUE(std::signbit(one(FloorDivide{}, {}, {0, -2})));
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

TEST_P(Pointwise, IntegersWrapAndClampAtInfinity) {
  const int64_t low = std::numeric_limits<int64_t>::min(), high = std::numeric_limits<int64_t>::max();
  int64_t a[] = {high, low, 3}, b[] = {1, -1, 4}, sum[3], clamped[3];
  run_kernel([&](Call& on) {
    const ConstView in[] = {make_view(on.memory(a, 3), 3), make_view(on.memory(b, 3), 3)};
    pointwise(on.stream(), make_call(Add{}, {}, int64), in, 2, make_view(on.memory(sum, 3), 3));
    pointwise(on.stream(), make_call(Clamp{0}, {}, int64), in, 1, make_view(on.memory(clamped, 3), 3));
  });
  EXPECT_EQ(std::vector(sum, sum + 3), (std::vector<int64_t>{low, high, 7}));
  EXPECT_EQ(std::vector(clamped, clamped + 3), (std::vector<int64_t>{high, 0, 3}));
}

TEST_P(Pointwise, IntegersAreExact) {
  const int64_t low = std::numeric_limits<int64_t>::min(), high = std::numeric_limits<int64_t>::max();
  int64_t a[] = {high, low, low, -7, 7, 5}, b[] = {3, 7, -1, 2, -2, 0}, y[6], powers[6];
  run_kernel([&](Call& on) {
    const ConstView in[] = {make_view(on.memory(a, 6), 6), make_view(on.memory(b, 6), 6)};
    pointwise(on.stream(), make_call(FloorDivide{}, {}, int64), in, 2, make_view(on.memory(y, 6), 6));
    pointwise(on.stream(), make_call(Pow{}, {}, int64), in, 2, make_view(on.memory(powers, 6), 6));
  });
  EXPECT_EQ(std::vector(y, y + 6), (std::vector<int64_t>{3074457345618258602, -1317624576693539402, low, -4, -4, 0}));
  EXPECT_EQ(std::vector(powers, powers + 6), (std::vector<int64_t>{high, 0, 0, 49, 0, 1}));
}

TEST_P(Pointwise, EveryPairOfDTypesAndOrders) {
  for (DType from : kAllTypes)
    for (DType to : kAllTypes)
      for (Order order : kAllOrders)
        for (Order out : kAllOrders)
          for (const Shape& shape : {Shape{3, 5, 7}, Shape{2, 3, 16}}) {
            if (!takes_case(0, random)) continue;
            const Array a = random_array(random, from, shape, 0, 20, order);
            const Array b = random_array(random, float32, shape, 0, 20);
            Array y(to, shape, out);
            const DType compute = from == float64 || to == float64 ? float64 : float32;
            call(make_call(Add{}, {}, compute), {&a, &b}, y);
            for (int64_t i = 0; i < y.numel(); ++i) {
              const double sum = a.at(i) + b.at(i);
              const double expected = round_to(to, compute == float32 ? round_to(float32, sum) : sum);
              ASSERT_EQ(y.at(i), expected) << name_of(from) << " to " << name_of(to) << " element " << i;
            }
          }
}

/// Every bit pattern of both 16-bit formats, in a length that leaves a remainder.
TEST_P(Pointwise, EveryHalf) {
  constexpr int64_t n = 65536 + 5;
  for (DType dtype : {bfloat16, float16}) {
    Array x(dtype, {n}), other(dtype, {n}), y(dtype, {n}), is_less(boolean, {n});
    for (int64_t i = 0; i < n; ++i) {
      x.view().as<uint16_t>()[i] = static_cast<uint16_t>(i);
      other.view().as<uint16_t>()[i] = static_cast<uint16_t>(random());
    }
    const auto check = [&](const auto& op, const std::vector<const Array*>& inputs, auto expected) {
      SCOPED_TRACE(testing::Message() << op.name << " of " << name_of(dtype));
      if (!takes_case(n, random)) return;
      call(make_call(op, {}, float32), inputs, y);
      for (int64_t i = 0; i < n; ++i) {
        const double value = expected(x.at(i), other.at(i));
        ASSERT_TRUE(near(y.at(i), value, 0, 0) && (std::isnan(value) || std::signbit(y.at(i)) == std::signbit(value)))
            << x.at(i) << " and " << other.at(i) << ": " << y.at(i) << " instead of " << value;
      }
    };
    check(Neg{}, {&x}, [](double a, double) { return -a; });
    check(Abs{}, {&x}, [](double a, double) { return std::fabs(a); });
    check(Copysign{}, {&x, &other}, [](double a, double b) { return std::copysign(a, std::isnan(b) ? 1.0 : b); });
    check(Relu{}, {&x}, [](double a, double) { return a <= 0 ? 0.0 : a; });
    check(Square{}, {&x}, [&](double a, double) { return round_to(dtype, round_to(float32, a * a)); });
    call(make_call(Less{}, {}, float32), {&x, &other}, is_less);
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(is_less.at(i), x.at(i) < other.at(i)) << x.at(i) << " " << other.at(i);
  }
}

/// The last two dimensions of the first input are exchanged in memory; the second is one value per row.
TEST_P(Pointwise, TransposedOperands) {
  for (const Shape& shape : {Shape{20, 300}, {16, 1030}, {3, 40, 257}, {5, 17, 256}, {2, 15, 400}, {33, 64}})
    for (DType dtype : {float32, bfloat16, float16, float64})
      for (Order out : {Order::kContiguous, Order::kPitched}) {
        if (!takes_case(0, random)) continue;
        const int dims = static_cast<int>(shape.size());
        Shape stored = shape, single = shape;
        std::swap(stored[dims - 2], stored[dims - 1]);
        single[dims - 1] = 1;
        const Array a = random_array(random, dtype, stored, -4, 4), b = random_array(random, dtype, single, -4, 4);
        Array y(dtype, shape, out);
        ConstView turned = a.cview(), spread = b.expand(shape);
        std::swap(turned.shape[dims - 2], turned.shape[dims - 1]);
        std::swap(turned.strides[dims - 2], turned.strides[dims - 1]);
        const DType compute = dtype == float64 ? float64 : float32;
        run_kernel([&](Call& on) {
          const ConstView inputs[] = {on(a, turned), on(b, spread)};
          pointwise(on.stream(), make_call(Sub{}, {}, compute), inputs, 2, on(y));
        });
        for (int64_t i = 0; i < y.numel(); ++i)
          ASSERT_EQ(y.at(i), round_to(dtype, round_to(compute, Array::read(turned, i) - Array::read(spread, i))))
              << name_of(dtype) << " element " << i;
      }
}

/// A mask decides between elements of every floating dtype.
TEST_P(Pointwise, MasksOfEveryOrder) {
  for (DType dtype : kFloatTypes)
    for (Order order : kAllOrders)
      for (const Shape& mask_shape : {Shape{37, 301}, {37, 1}, {301}, {1}}) {
        if (!takes_case(0, random)) continue;
        const Array mask = random_array(random, boolean, mask_shape, 0, 2, order);
        const Array a = random_array(random, dtype, {37, 301}, -4, 4, order),
                    b = random_array(random, dtype, {1}, 5, 6);
        Array y(dtype, {37, 301});
        call(make_call(Where{}, {}, dtype == float64 ? float64 : float32), {&mask, &a, &b}, y);
        const ConstView chosen = mask.expand(y.shape());
        for (int64_t i = 0; i < y.numel(); ++i) ASSERT_EQ(y.at(i), Array::read(chosen, i) != 0 ? a.at(i) : b.at(0));
      }
}

TEST_P(Pointwise, Broadcasts) {
  const std::vector<std::pair<Shape, std::vector<Shape>>> shapes = {
      {{4, 300}, {{300}, {4, 1}, {1, 300}, {1}, {4, 300}}},
      {{70, 3}, {{3}, {70, 1}, {1, 1}}},
      {{40, 128}, {{128}, {40, 1}, {1}, {40, 128}}},
      {{12, 5, 4, 24}, {{24}, {5, 1, 24}, {12, 1, 4, 1}, {12, 5, 1, 24}, {4, 24}}},
      {{3, 1, 500, 2}, {{500, 2}, {3, 1, 1, 1}, {1, 1, 500, 1}, {2}}},
      // Groups of equal rows, which end within tiles of ten rows and with them.
      {{3, 47, 100}, {{3, 1, 100}, {3, 47, 100}, {3, 47, 1}}},
      {{3, 20, 100}, {{3, 1, 100}, {3, 20, 100}}},
      {{2, 1, 3, 1, 2, 2, 1, 3}, {{2, 1, 3, 1, 1, 2, 1, 1}, {3}, {2, 1, 1, 1, 2, 1, 1, 3}}},
      {{1}, {{1}}},
      {{0, 5}, {{5}, {1, 1}}},
      {{3000}, {{1}, {3000}}},
      {{}, {{}}},
  };
  for (const auto& [shape, inputs] : shapes)
    for (const Shape& a_shape : inputs)
      for (const Shape& b_shape : inputs)
        for (DType dtype : {float32, bfloat16, float64})
          for (Order order : {Order::kContiguous, Order::kSliced}) {
            if (!takes_case(0, random)) continue;
            const Array a = random_array(random, dtype, a_shape, -4, 4);
            const Array b = random_array(random, dtype == bfloat16 ? float32 : dtype, b_shape, -4, 4, order);
            Array y(dtype, shape);
            const DType compute = dtype == float64 ? float64 : float32;
            call(make_call(Sub{}, {}, compute), {&a, &b}, y);
            const ConstView va = a.expand(shape), vb = b.expand(shape);
            for (int64_t i = 0; i < y.numel(); ++i)
              ASSERT_EQ(y.at(i), round_to(dtype, round_to(compute, Array::read(va, i) - Array::read(vb, i))));
          }
}

/// Matrices of several blocks whose rows may have gaps: both those that the vector path supports and others.
TEST_P(Pointwise, LargeMatricesWithPitch) {
  for (auto [cols, pitch] : std::vector<std::pair<int64_t, int64_t>>{
           {6, 8}, {12, 16}, {16, 18}, {16, 20}, {24, 24}, {10, 10}, {64, 72}, {8, 8}, {1000, 1000}})
    for (DType dtype : {float32, bfloat16, float64}) {
      SCOPED_TRACE(testing::Message() << name_of(dtype) << " columns " << cols << " pitch " << pitch);
      const int64_t rows = (kFewCases ? 1500 : 9000) / cols;
      const Shape shape = {rows, cols};
      Array a(dtype, {rows, pitch}), row(dtype, {cols}), column(dtype, {rows, 1}), one(dtype, {1});
      for (Array* array : {&a, &row, &column, &one}) fill_with_random(*array, random, -4, 4);
      ConstView pitched = a.cview();
      pitched.shape[1] = cols;
      const std::pair<Array*, ConstView> operands[] = {
          {&a, pitched}, {&row, row.expand(shape)}, {&column, column.expand(shape)}, {&one, one.expand(shape)}};
      const DType compute = dtype == float64 ? float64 : float32;
      for (const auto& [left_array, left] : operands)
        for (const auto& [right_array, right] : operands) {
          if (!takes_case(0, random)) continue;
          Array memory(dtype, {rows, pitch});
          mark(memory.view());
          View y = memory.view();
          y.shape[1] = cols;
          run_kernel([&, left_array = left_array, left = left, right_array = right_array, right = right](Call& on) {
            const ConstView inputs[] = {on(*left_array, left), on(*right_array, right)};
            pointwise(on.stream(), make_call(Sub{}, {}, compute), inputs, 2, on(memory, y));
          });
          for (int64_t i = 0; i < rows * cols; ++i)
            ASSERT_EQ(Array::read(y, i),
                      round_to(dtype, round_to(compute, Array::read(left, i) - Array::read(right, i))))
                << "element " << i;
          for (int64_t r = 0; r < rows; ++r)
            for (int64_t c = cols * size_of(dtype); c < pitch * size_of(dtype); ++c)
              ASSERT_EQ(y.as<char>()[r * pitch * size_of(dtype) + c], 0x5a) << "written between the rows";
        }
    }
}

TEST_P(Pointwise, InPlaceAndGapsUntouched) {
  for_each_run([&] {
    for (DType dtype : kFloatTypes)
      for (Order order : kAllOrders)
        for (int64_t cols : {1300, 1027}) {
          Array x = random_array(random, dtype, {9, cols}, -4, 4, order);
          const std::vector<double> before = x.values();
          const std::vector<char> memory = x.bytes();
          call(make_call(Neg{}, {}, dtype == float64 ? float64 : float32), {&x}, x);
          for (int64_t i = 0; i < x.numel(); ++i) ASSERT_EQ(x.at(i), -before[i]);
          x.set(before);
          EXPECT_TRUE(memory == x.bytes()) << "memory outside the view was written";
        }
  });
}

TEST_P(Pointwise, ManyBlocks) {
  for (DType dtype : {float32, float16}) {
    const Shape shape = target().is_cpu() ? Shape{301, 1001} : Shape{50, 1001};
    const Array x = random_array(random, dtype, shape, -4, 4), bias = random_array(random, dtype, {1001}, -4, 4);
    Array y(dtype, shape);
    expect_same_in_every_run({&y}, [&](Call& on) { call(on, make_call(Mul{}, {}, float32), {&x, &bias}, y); });
    for (int64_t i = 0; i < y.numel(); ++i)
      ASSERT_EQ(y.at(i), round_to(dtype, round_to(float32, x.at(i) * bias.at(i % 1001))));
  }
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

class PointwiseOnCpu : public Pointwise {};
INSTANTIATE_TEST_SUITE_P(, PointwiseOnCpu, testing::ValuesIn(cpu_targets()), name_of_target);

/// On CUDA it needs a kernel: tests/emulated/pointwise_kernel_test.cpp.
TEST_P(PointwiseOnCpu, UserDefinedOp) {
  static_assert(index_of<UserOp>() == -1 && index_of<Neg>() == 0 && saved_count<UserOp>() == 2);
  EXPECT_EQ(one(UserOp{}, {}, {2}), 7);
  EXPECT_EQ(one(UserOp{5}, {}, {2}), 9);
  EXPECT_EQ(one(UserOp{}, {PointwisePass::kBackward}, {10, 2, 7}), 40);
  EXPECT_EQ(one(UserOp{}, {PointwisePass::kSecond, 0, 0}, {3, 10, 2, 7}), 60);
  EXPECT_EQ(one(UserOp{}, {PointwisePass::kSecond, 0, 1}, {3, 10, 2, 7}), 0);
}

class PointwiseTraffic : public Pointwise {
 protected:
  static constexpr int64_t kElements = 70001;
  template <class Op>
  void check(const Op& op, PointwisePass pass, const std::vector<DType>& dtypes, DType result, int reads) {
    std::vector<Array> in;
    for (DType dtype : dtypes) in.push_back(random_array(random, dtype, {kElements}, 0, 1));
    Array y(result, {kElements});
    const Traffic traffic = traffic_of([&](Call& on) { call(on, make_call(op, pass, float32), pointers(in), y); });
    EXPECT_EQ(traffic.launches, 1u);
    const double loaded = traffic.bytes - bytes_of(y), least = static_cast<double>(reads) * kElements;
    EXPECT_GE(loaded, least);
    EXPECT_LE(loaded, least * 1.01 + 4096);
  }
};
INSTANTIATE_TEST_SUITE_P(, PointwiseTraffic, testing::ValuesIn(counting_targets()), name_of_target);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PointwiseTraffic);

TEST_P(PointwiseTraffic, ContiguousCallsMoveEachByteOnce) {
  const PointwisePass backward{PointwisePass::kBackward}, backward1{PointwisePass::kBackward, 1};
  check(Gelu{}, {}, {float32}, float32, 4);
  check(Gelu{}, {}, {bfloat16}, bfloat16, 2);
  check(Gelu{}, backward, {bfloat16, bfloat16}, bfloat16, 4);
  check(Add{}, {}, {float32, float32}, float32, 8);
  check(Add{}, {}, {float16, float32}, float16, 6);
  check(Mul{}, backward, {bfloat16, bfloat16, bfloat16}, bfloat16, 4);  // reads only dy and b
  const PointwisePass second{PointwisePass::kSecond};
  check(Gelu{}, second, {float32, float32, float32}, float32, 12);
  check(Mul{}, second, {bfloat16, bfloat16, bfloat16, bfloat16}, bfloat16, 6);  // reads only g, dy and b
  check(Where{}, {}, {boolean, float32, float32}, float32, 9);
  check(Where{}, backward1, {float32, boolean, float32, float32}, float32, 5);
  check(Less{}, {}, {float32, float32}, boolean, 8);
}

}  // namespace
}  // namespace tern::kernels

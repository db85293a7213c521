// Element-wise CUDA kernels in the emulator: every op and pass against formulas written in the tests; the kernel over
// dtypes, strides, broadcasts, tails and misaligned memory; and the bytes that it moves.

#include "tern/kernels/cuda/pointwise_kernel.h"
#include "tern/tests/emulator/simt/schedules.h"
#include "tern/tests/kernels/pointwise_cases.h"

namespace tern::kernels {
namespace {

/// Calls the kernel; `inputs` are broadcast to y's shape.
void call(const PointwiseCall& call, const std::vector<const Array*>& inputs, Array& y) {
  std::vector<ConstView> views;
  for (const Array* input : inputs) views.push_back(input ? input->expand(y.shape()) : ConstView());
  cuda::pointwise(kCuda, call, views.data(), static_cast<int>(views.size()), y.view());
}

void check_forward(const TestedOp& op, DType storage, DType compute, const Shape& shape, Order order) {
  SCOPED_TRACE(op.name + " " + name_of(storage) + " computed in " + name_of(compute));
  std::mt19937_64 random = fresh_random();
  const std::vector<Array> inputs = random_inputs(op, random, storage, shape, order);
  Array y(op.bool_result ? boolean : storage, shape, order);
  call(op.call({}, compute), pointers(inputs), y);
  // The result has the compute type's error and is then rounded once.
  const double computed = compute == float32 ? 1e-6 : 1e-14, relative = epsilon_of(y.dtype()) * 1.01 + 2 * computed;
  for (int64_t i = 0; i < y.numel(); ++i) {
    const double exact = op.at(inputs, i), rounded = round_to(y.dtype(), exact);
    const bool right = is_floating(y.dtype()) && std::isfinite(rounded) ? near(y.at(i), exact, relative, computed)
                                                                        : near(y.at(i), rounded, 0, 0);
    ASSERT_TRUE(right) << "element " << i << ": got " << y.at(i) << ", expected " << exact;
  }
  expect_gaps_untouched(y);
}

TEST(SimtPointwise, ForwardOfEveryOpAndDType) {
  for_each_schedule([] {
    for (const TestedOp& op : tested_ops()) {
      for (Order order : kAllOrders) {
        check_forward(op, float32, float32, {3, 37, 11}, order);
        check_forward(op, float64, float64, {5, 101}, order);
        if (op.integral) check_forward(op, int64, int64, {2, 3, 50}, order);
      }
      check_forward(op, bfloat16, float32, {4, 128}, Order::kContiguous);
      check_forward(op, float16, float32, {403}, Order::kContiguous);
    }
  });
}

/// Several blocks with all steps of a thread; ends that are ragged, just below a block's end, and at it.
TEST(SimtPointwise, LongArrays) {
  for (const TestedOp& op : tested_ops()) {
    for (DType dtype : {float32, bfloat16, float16}) check_forward(op, dtype, float32, {9013}, Order::kContiguous);
    for (int64_t n : {8189, 8192}) {
      check_forward(op, float32, float32, {n}, Order::kContiguous);
      check_forward(op, float64, float64, {n}, Order::kContiguous);
      if (op.integral) check_forward(op, int64, int64, {n}, Order::kContiguous);
    }
  }
}

TEST(SimtPointwise, DerivativesMatchFiniteDifferences) {
  for (const TestedOp& op : tested_ops())
    for (int input = 0; input < op.arity; ++input)
      if (op.derivable[input]) check_derivative(op, input, call);
}

/// Every pass in float, from 32-bit and 16-bit storage, against the same pass in double.
void check_narrow_derivative(const TestedOp& op, PointwisePass pass) {
  const Case& c = op.reference;
  std::mt19937_64 random = fresh_random();
  for (DType dtype : {float32, bfloat16}) {
    constexpr int64_t n = 6007;
    std::vector<Array> in;
    for (int k = 0; k < op.inputs[pass.kind]; ++k)
      fill_with_random(in.emplace_back(dtype, Shape{n}), random, std::max(c.low, -0.9), std::min(c.high, 0.9));
    Array narrow(dtype, {n}), wide(float64, {n});
    call(op.call(pass, float32), pointers(in), narrow);
    call(op.call(pass, float64), pointers(in), wide);
    for (int64_t i = 0; i < n; ++i)
      ASSERT_TRUE(near(narrow.at(i), wide.at(i), 1e-5 + epsilon_of(dtype), 2e-6))
          << op.name << " " << i << ": " << narrow.at(i) << " " << wide.at(i);
  }
}

TEST(SimtPointwise, NarrowDerivativesMatchDouble) {
  for (const TestedOp& op : tested_ops())
    for (int input = 0; input < op.arity; ++input) {
      if (!op.derivable[input]) continue;
      check_narrow_derivative(op, {PointwisePass::kBackward, input});
      for (int s = 0; s < op.saved; ++s)
        if (op.needed[input] >> s & 1) check_narrow_derivative(op, {PointwisePass::kSecond, input, s});
    }
}

/// Special values in forward and backward. The CPU kernels' own tests compare those with PyTorch's values.
TEST(SimtPointwise, SpecialValuesAgreeWithTheCpu) {
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
    check({});
    for (int input = 0; input < 2; ++input)
      if (op.derivable[input]) check({PointwisePass::kBackward, input});
  }
}

TEST(SimtPointwise, IntegersWrapAndClampAtInfinity) {
  const int64_t low = std::numeric_limits<int64_t>::min(), high = std::numeric_limits<int64_t>::max();
  const int64_t a[] = {high, low, 3}, b[] = {1, -1, 4};
  int64_t y[3];
  const ConstView in[] = {make_view(a, 3), make_view(b, 3)};
  const Add add;
  cuda::pointwise(kCuda, make_call(add, {}, int64), in, 2, make_view(y, 3));
  EXPECT_EQ(y[0], low);
  EXPECT_EQ(y[1], high);
  EXPECT_EQ(y[2], 7);
  const Clamp clamp{0};
  cuda::pointwise(kCuda, make_call(clamp, {}, int64), in, 1, make_view(y, 3));
  EXPECT_EQ(y[0], high);
  EXPECT_EQ(y[1], 0);
  EXPECT_EQ(y[2], 3);
}

TEST(SimtPointwise, EveryPairOfDTypesAndOrders) {
  const Add add;
  std::mt19937_64 random = fresh_random();
  for (DType from : kAllTypes)
    for (DType to : kAllTypes)
      for (Order order : kAllOrders)
        for (Order out : kAllOrders)
          for (const Shape& shape : {Shape{3, 5, 7}, Shape{2, 3, 16}}) {
            Array a(from, shape, order), b(float32, shape), y(to, shape, out);
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
}

TEST(SimtPointwise, Broadcasts) {
  const Sub sub;
  const std::vector<std::pair<Shape, std::vector<Shape>>> shapes = {
      {{4, 300}, {{300}, {4, 1}, {1, 300}, {1}, {4, 300}}},
      {{70, 3}, {{3}, {70, 1}, {1, 1}}},
      {{40, 128}, {{128}, {40, 1}, {1}, {40, 128}}},
      {{12, 5, 4, 24}, {{24}, {5, 1, 24}, {12, 1, 4, 1}, {12, 5, 1, 24}, {4, 24}}},
      {{3, 1, 500, 2}, {{500, 2}, {3, 1, 1, 1}, {1, 1, 500, 1}, {2}}},
      {{2, 1, 3, 1, 2, 2, 1, 3}, {{2, 1, 3, 1, 1, 2, 1, 1}, {3}, {2, 1, 1, 1, 2, 1, 1, 3}}},
      {{1}, {{1}}},
      {{0, 5}, {{5}, {1, 1}}},
      {{3000}, {{1}, {3000}}},
      {{}, {{}}},
  };
  std::mt19937_64 random = fresh_random();
  for (const auto& [shape, inputs] : shapes)
    for (const Shape& a_shape : inputs)
      for (const Shape& b_shape : inputs)
        for (DType dtype : {float32, bfloat16, float64})
          for (Order order : {Order::kContiguous, Order::kSliced}) {
            Array a(dtype, a_shape), b(dtype == bfloat16 ? float32 : dtype, b_shape, order), y(dtype, shape);
            fill_with_random(a, random, -4, 4);
            fill_with_random(b, random, -4, 4);
            const DType compute = dtype == float64 ? float64 : float32;
            call(make_call(sub, {}, compute), {&a, &b}, y);
            const ConstView va = a.expand(shape), vb = b.expand(shape);
            for (int64_t i = 0; i < y.numel(); ++i)
              ASSERT_EQ(y.at(i), round_to(dtype, round_to(compute, Array::read(va, i) - Array::read(vb, i))));
          }
}

/// Matrices of several blocks whose rows may have gaps: both those that the vector path supports and others.
TEST(SimtPointwise, LargeMatricesWithPitch) {
  std::mt19937_64 random = fresh_random();
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
      const ConstView operands[] = {pitched, row.expand(shape), column.expand(shape), one.expand(shape)};
      const DType compute = dtype == float64 ? float64 : float32;
      for (const ConstView& left : operands)
        for (const ConstView& right : operands) {
          Array memory(dtype, {rows, pitch});
          View y = memory.view();
          y.shape[1] = cols;
          const ConstView inputs[] = {left, right};
          const Sub sub;
          cuda::pointwise(kCuda, make_call(sub, {}, compute), inputs, 2, y);
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

TEST(SimtPointwise, InPlaceAndGapsUntouched) {
  const Neg neg;
  for_each_schedule([&] {
    std::mt19937_64 random = fresh_random();
    for (DType dtype : kFloatTypes)
      for (Order order : kAllOrders)
        for (int64_t cols : {1300, 1027}) {
          Array x(dtype, {9, cols}, order);
          fill_with_random(x, random, -4, 4);
          const std::vector<double> before = x.values();
          const std::vector<char> memory = x.bytes();
          call(make_call(neg, {}, dtype == float64 ? float64 : float32), {&x}, x);
          for (int64_t i = 0; i < x.numel(); ++i) ASSERT_EQ(x.at(i), -before[i]);
          for (int64_t i = 0; i < x.numel(); ++i) x.set(i, before[i]);
          EXPECT_TRUE(memory == x.bytes()) << "memory outside the view was written";
        }
  });
}

TEST(SimtPointwise, ContiguousCallsMoveEachByteOnce) {
  const auto check = [](const auto& op, PointwisePass pass, const std::vector<DType>& dtypes, DType result,
                        uint64_t reads) {
    constexpr int64_t n = 70001;
    std::mt19937_64 random = fresh_random();
    std::vector<Array> in;
    for (DType dtype : dtypes) fill_with_random(in.emplace_back(dtype, Shape{n}), random, 0, 1);
    Array y(result, {n});
    simt::reset_stats();
    call(make_call(op, pass, float32), pointers(in), y);
    const simt::Stats stats = simt::stats();
    EXPECT_EQ(stats.launches, 1u);
    EXPECT_GE(stats.loaded_bytes, reads * n);
    EXPECT_LE(stats.loaded_bytes, reads * n * 1.01 + 4096);
    EXPECT_EQ(stats.stored_bytes, static_cast<uint64_t>(n * size_of(result)));
  };
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

TEST(SimtPointwise, Divider) {
  std::mt19937_64 random = fresh_random();
  for (int trial = 0; trial < 20000; ++trial) {
    const uint32_t d = static_cast<uint32_t>(random() >> (33 + random() % 31)) | 1u;
    const uint32_t bounded = trial % 3 == 0 ? 0x7fffffffu : d;
    const uint32_t n = static_cast<uint32_t>(random()) & 0x7fffffffu;
    const cuda::Divider divider(bounded), exact(d + 1 < 0x80000000u ? d + 1 : d);
    ASSERT_EQ(divider.quotient(n), n / bounded) << n << " / " << bounded;
    ASSERT_EQ(exact.quotient(n), n / exact.divisor) << n << " / " << exact.divisor;
    ASSERT_EQ(divider.quotient(0x7fffffffu), 0x7fffffffu / bounded);
    ASSERT_EQ(divider.quotient(n / bounded * bounded), n / bounded);
  }
}

/// Calls with more elements than an index can count are divided.
TEST(SimtPointwise, CutsLargeCalls) {
  std::mt19937_64 random = fresh_random();
  for (const Shape& shape : {Shape{5000}, {3, 700, 2}, {40, 128}, {1, 999}})
    for (DType dtype : {float32, bfloat16}) {
      Array a(dtype, shape), b(dtype, {shape.back()}, Order::kSliced), y(dtype, shape);
      fill_with_random(a, random, -4, 4);
      fill_with_random(b, random, -4, 4);
      const ConstView views[] = {a.cview(), b.expand(shape)};
      simt::reset_stats();
      cuda::elementwise::run<float>(kCuda, views, y.view(), cuda::elementwise::ForwardBody<Sub, float>{}, 600);
      EXPECT_GE(simt::stats().launches, static_cast<uint64_t>(y.numel() / 600));
      for (int64_t i = 0; i < y.numel(); ++i)
        ASSERT_EQ(y.at(i), round_to(dtype, round_to(float32, a.at(i) - Array::read(views[1], i))));
    }
}

/// An op that is not part of the library: x^2 + 3 when x > 0.
struct UserOp {
  static constexpr const char* name = "user";
  static constexpr Saves saves = Saves::kBoth;
  static PointwiseFunction on_cuda;
  double shift = 3;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::select(x > F(0), x * x + F(shift), F(0));
  }
  template <class F>
  TERN_HD F derivative(F x, F y) const {
    return math::select(y > F(0), x + x, F(0));
  }
};
void UserOp::on_cuda(Stream stream, const PointwiseCall& call, const ConstView* inputs, int count, View y) {
  cuda::pointwise_op<UserOp>(stream, call, inputs, count, y);
}

TEST(SimtPointwise, UserDefinedOp) {
  const auto one = [](PointwisePass pass, const std::vector<float>& in, bool with_kernels) {
    float y = -1;
    std::vector<ConstView> views;
    for (const float& v : in) views.push_back(make_view(&v, 1));
    const UserOp op{5};
    PointwiseCall call = make_call(op, pass, float32);
    call.on_cuda = with_kernels ? &UserOp::on_cuda : nullptr;
    cuda::pointwise(kCuda, call, views.data(), static_cast<int>(views.size()), make_view(&y, 1));
    return y;
  };
  EXPECT_EQ(one({}, {2}, true), 9);
  EXPECT_EQ(one({PointwisePass::kBackward}, {10, 2, 7}, true), 40);
  EXPECT_EQ(one({PointwisePass::kSecond, 0, 0}, {3, 10, 2, 7}, true), 60);
  EXPECT_EQ(one({PointwisePass::kSecond, 0, 1}, {3, 10, 2, 7}, true), 0);
  try {
    one({}, {2}, false);
    FAIL() << "an op without kernels ran";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("on_cuda"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tern::kernels

// What CUDA's element-wise kernels are made of, in the emulator: their division, the cutting of large calls, and
// kernels of ops that are not part of the library. The ops themselves: tests/kernels/pointwise_test.cpp.

#include "tern/kernels/cuda/pointwise/kernel.h"
#include "tern/tests/emulator/messages.h"
#include "tern/tests/emulator/simt/schedules.h"
#include "tern/tests/kernels/contracts/pointwise.h"

namespace tern::kernels {
namespace {

TEST(PointwiseKernel, Divider) {
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
TEST(PointwiseKernel, CutsLargeCalls) {
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

TEST(PointwiseKernel, UserDefinedOp) {
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
  expect_error([&] { one({}, {2}, false); }, {"on_cuda"});
}

}  // namespace
}  // namespace tern::kernels

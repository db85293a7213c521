// oneDNN's calls fail, each in turn: the kernel that made the call throws, on whichever thread that was, and the next
// call is right. The functions below stand before oneDNN's of the same names.

#include <dlfcn.h>

#include <atomic>

#include "tern/kernels/parallel.h"
#include "tern/kernels/row_chain.h"
#include "tern/tests/errors.h"
#include "tern/tests/kernels/contracts/gemm.h"

namespace {

std::atomic<int64_t> calls = 0, failing = 0;  // the failing-th call fails; 0: none

bool fails() { return ++calls == failing; }

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

constexpr int kOutOfMemory = 1;

}  // namespace

extern "C" {

int dnnl_sgemm(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
               int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  static const auto real = next<decltype(&dnnl_sgemm)>("dnnl_sgemm");
  return fails() ? kOutOfMemory : real(transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

int dnnl_primitive_execute(const void* primitive, void* stream, int count, const void* arguments) {
  static const auto real = next<decltype(&dnnl_primitive_execute)>("dnnl_primitive_execute");
  return fails() ? kOutOfMemory : real(primitive, stream, count, arguments);
}

int dnnl_primitive_create(void** primitive, const void* description) {
  static const auto real = next<decltype(&dnnl_primitive_create)>("dnnl_primitive_create");
  return fails() ? kOutOfMemory : real(primitive, description);
}
}

namespace tern::kernels {
namespace {

class GemmFailure : public OnCpu {
 protected:
  void SetUp() override { set_num_threads(3); }
  void TearDown() override {
    failing = 0;
    OnCpu::TearDown();
  }

  /// Runs a kernel with each of its calls of oneDNN's failing, or some of them when there are many.
  void check(const Array& result, const std::function<void()>& run) {
    const auto count = [&] {
      const int64_t before = calls;
      run();
      return calls - before;
    };
    const int64_t first = count();  // makes products too
    const std::vector<char> want = result.bytes();
    const int64_t all = count();
    EXPECT_GE(first, all);
    ASSERT_GT(all, 0) << "the kernel does not call oneDNN, or not by the functions of this test";
    used_ += all;
    for (int64_t i = 1; i <= all; i += 1 + all / 10) {
      SCOPED_TRACE("call " + std::to_string(i) + " of " + std::to_string(all) + " fails");
      failing = calls + i;
      const std::string text = test::error_of(run);
      EXPECT_TRUE(text.find("gemm [") != std::string::npos && text.find("oneDNN: ") != std::string::npos) << text;
      failing = 0;
      run();
      EXPECT_TRUE(want == result.bytes());
    }
  }

  void check_gemm(DType dtype, const Case& t) {
    SCOPED_TRACE(describe(t, dtype, dtype));
    Operands operands(dtype, dtype, t, random_);
    Matrices &a = operands.a, &b = operands.b, &c = operands.c;
    check(c.memory, [&] {
      std::vector<char> workspace(gemm_workspace(Stream{}, t.transpose_a, t.transpose_b, a.view(), b.view(), c.view()));
      gemm(Stream{}, t.transpose_a, t.transpose_b, t.alpha, a.view(), b.view(), 0, c.view(), workspace.data());
    });
  }

  int64_t used_ = 0;
};

TEST_F(GemmFailure, ProductsThrow) {
  for_each_level([&] {
    for (const DType dtype : {float32, bfloat16, float16}) {
      check_gemm(dtype, {1, 200 + below(100), 1030 + below(90), 20 + below(12), false, true});
      check_gemm(dtype, {1, 300 + below(99), 40 + below(30), 50 + below(50), false, false, 0.5});
      check_gemm(dtype, {1, 40 + below(30), 200 + below(300), 90 + below(30), true, true, 1, 0, 3});
      check_gemm(dtype, {1, 1024, 65 + below(9), 512 + below(9), true, false});  // 64 columns call no oneDNN
      check_gemm(dtype, {1, 20 + below(40), 20 + below(40), 15'000 + below(99), true, false});
      check_gemm(dtype, {20, 20 + below(40), 20 + below(40), 30 + below(9), false, false});
    }
  });
}

TEST_F(GemmFailure, LayersThrow) {
  for_each_level([&] {
    for (const DType dtype : {float32, bfloat16}) {
      const int64_t rows = 1030 + below(90), in = 20 + below(30), hidden = 30 + below(60);
      const Array x = filled(dtype, {rows, in}), weight1 = filled(dtype, {hidden, in}), bias1 = filled(dtype, {hidden}),
                  weight2 = filled(dtype, {in, hidden}), bias2 = filled(dtype, {in});
      Array y(dtype, {rows, hidden}), z(dtype, {rows, in}), norm(dtype, {rows, hidden});
      check(y, [&] {
        std::vector<char> workspace(linear_workspace(Stream{}, x.cview(), weight1.cview(), y.view()));
        linear_forward(Stream{}, x.cview(), weight1.cview(), bias1.cview(), Activation::kGelu, {}, y.view(),
                       workspace.data());
      });
      const auto check_chain = [&](Array& out, const std::vector<RowStep>& steps) {
        check(out, [&] {
          std::vector<char> workspace(row_chain_workspace(Stream{}, x.cview(), steps));
          row_chain(Stream{}, x.cview(), steps, out.view(), workspace.data());
        });
      };
      check_chain(z, {LinearStep{weight1.cview(), bias1.cview(), Activation::kRelu},
                      LinearStep{weight2.cview(), bias2.cview()}});
      check_chain(norm, {LinearStep{weight1.cview(), bias1.cview()}, AddNormStep{y.cview(), {}, {}, 1e-5, {}}});
    }
  });
}

/// Products that are not in the cache yet. (Where a part of the rearrangement cannot be made, the whole is.)
TEST_F(GemmFailure, WhatCannotBeMadeThrows) {
  const char* const limit = std::getenv("TERN_CPU_LEVEL");
  if (!can_test_level(CpuLevel::kV4) || (limit && std::string(limit) != "v4"))
    GTEST_SKIP() << "cpu: only CPU level v4 has packed products";
  int64_t errors = 0;
  for (int64_t i = 1; i < 20; ++i) {
    const int64_t rows = 200 + i, in = 30 + below(30), out = 100 + below(200);  // of no other test
    const Array x = filled(float32, {rows, in}), weight = filled(float32, {out, in});
    Array y(float32, {rows, out});
    const auto run = [&] {
      std::vector<char> workspace(linear_workspace(Stream{}, x.cview(), weight.cview(), y.view()));
      linear_forward(Stream{}, x.cview(), weight.cview(), {}, Activation::kNone, {}, y.view(), workspace.data());
    };
    failing = calls + i;
    const std::string text = test::error_of(run);
    const bool failed = text != "no error";
    EXPECT_TRUE(!failed || text.find("oneDNN: ") != std::string::npos) << text;
    errors += failed;
    failing = 0;
    run();
    const double want = [&] {
      double sum = 0;
      for (int64_t p = 0; p < in; ++p) sum += x.at((rows - 1) * in + p) * weight.at((out - 1) * in + p);
      return sum;
    }();
    EXPECT_NEAR(y.at(rows * out - 1), want, 1e-4);
  }
  EXPECT_GT(errors, 3);
}

}  // namespace
}  // namespace tern::kernels

// Another thread sets the number of threads between the sizing of a workspace and the kernel that uses it.
#include "tern/kernels/fixed_threads.h"

#include <thread>

#include "tern/kernels/attention.h"
#include "tern/kernels/gemm.h"
#include "tern/kernels/parallel.h"
#include "tern/kernels/row_chain.h"
#include "tern/tests/kernels/kernel_test.h"

namespace tern::kernels {
namespace {

void set_on_another_thread(int threads) {
  std::thread([&] { set_num_threads(threads); }).join();
}

class FixedThreadsTest : public OnCpu {
 protected:
  /// A call whose workspace is sized with `few` threads and used when `many` are set, and the other way round, leaves
  /// `result` as without a change, and what is behind the workspace as it was.
  void check(Array& result, const std::function<int64_t()>& bytes, const std::function<void(void*)>& run) {
    for (const auto& [first, second] : {std::pair{2, 9}, {7, 1}, {1, 7}, {3, 2}}) {
      if (kFewCases && first <= 3 && second != 9) continue;
      SCOPED_TRACE(std::to_string(first) + " threads, then " + std::to_string(second));
      set_num_threads(first);
      {
        MarkedWorkspace workspace(bytes());
        run(workspace.data());
      }
      const std::vector<char> want = result.bytes();
      const FixedThreads fixed;
      MarkedWorkspace workspace(bytes());
      set_on_another_thread(second);
      EXPECT_EQ(num_threads(), first);
      run(workspace.data());
      EXPECT_TRUE(want == result.bytes());
    }
  }

  void check_gemm(DType dtype, int64_t m, int64_t n, int64_t k, bool ta, bool tb, double alpha) {
    SCOPED_TRACE(testing::Message() << "gemm " << name_of(dtype) << " " << m << " " << n << " " << k << " " << ta << tb
                                    << " alpha " << alpha);
    const Array a = filled(dtype, ta ? Shape{k, m} : Shape{m, k}), b = filled(dtype, tb ? Shape{n, k} : Shape{k, n});
    Array c(dtype, {m, n});
    check(
        c, [&] { return gemm_workspace(Stream{}, ta, tb, a.cview(), b.cview(), c.view()); },
        [&](void* workspace) { gemm(Stream{}, ta, tb, alpha, a.cview(), b.cview(), 0, c.view(), workspace); });
  }

  void check_linear(DType dtype, int64_t rows, int64_t in, int64_t out) {
    SCOPED_TRACE(testing::Message() << "linear " << name_of(dtype) << " " << rows << " " << in << " " << out);
    const Array x = filled(dtype, {rows, in}), weight = filled(dtype, {out, in}), bias = filled(dtype, {out}),
                weight2 = filled(dtype, {in, out}), bias2 = filled(dtype, {in});
    Array y(dtype, {rows, out}), z(dtype, {rows, in}), norm(dtype, {rows, out});
    check(
        y, [&] { return linear_workspace(Stream{}, x.cview(), weight.cview(), y.view()); },
        [&](void* workspace) {
          linear_forward(Stream{}, x.cview(), weight.cview(), bias.cview(), Activation::kGelu, {}, y.view(), workspace);
        });
    check_chain(
        z, x,
        {LinearStep{weight.cview(), bias.cview(), Activation::kRelu}, LinearStep{weight2.cview(), bias2.cview()}});
    check_chain(norm, x, {LinearStep{weight.cview(), bias.cview()}, AddNormStep{y.cview(), {}, {}, 1e-5, {}}});
  }

  void check_chain(Array& result, const Array& x, const std::vector<RowStep>& steps) {
    check(
        result, [&] { return row_chain_workspace(Stream{}, x.cview(), steps); },
        [&](void* workspace) { row_chain(Stream{}, x.cview(), steps, result.view(), workspace); });
  }

  /// The parameters of sequences of one length, one after another.
  AttentionParams attention_params(int64_t sequences, int64_t length, int64_t heads, int64_t head_dim) {
    offsets_.clear();
    for (int64_t s = 0; s <= sequences; ++s) offsets_.push_back(static_cast<int32_t>(s * length));
    AttentionParams params;
    params.sequences = sequences;
    params.query_offsets = params.key_offsets = offsets_.data();
    params.max_query_length = params.max_key_length = length;
    params.heads = params.kv_heads = heads;
    params.head_dim = head_dim;
    params.scale = 0.3;
    return params;
  }
  void check_attention(DType dtype, int64_t sequences, int64_t length, int64_t heads, int64_t head_dim);

 private:
  std::vector<int32_t> offsets_;
};

void FixedThreadsTest::check_attention(DType dtype, int64_t sequences, int64_t length, int64_t heads,
                                       int64_t head_dim) {
  SCOPED_TRACE(testing::Message() << "attention " << name_of(dtype) << " " << sequences << " x " << length << ", "
                                  << heads << " heads of " << head_dim);
  const int64_t tokens = sequences * length;
  const AttentionParams params = attention_params(sequences, length, heads, head_dim);
  const Shape shape = {tokens, heads, head_dim};
  const Array q = filled(dtype, shape), k = filled(dtype, shape), v = filled(dtype, shape), dout = filled(dtype, shape);
  Array out(dtype, shape), dq(dtype, shape), dk(dtype, shape), dv(dtype, shape);
  Array lse(dtype == float64 ? float64 : float32, {heads, tokens});
  check(
      out, [&] { return attention_forward_workspace(Stream{}, params, dtype); },
      [&](void* workspace) {
        attention_forward(Stream{}, params, q.cview(), k.cview(), v.cview(), out.view(), lse.view(), workspace);
      });
  check(
      dk, [&] { return attention_backward_workspace(Stream{}, params, dtype); },
      [&](void* workspace) {
        attention_backward(Stream{}, params, q.cview(), k.cview(), v.cview(), out.cview(), dout.cview(), lse.cview(),
                           dq.view(), dk.view(), dv.view(), {}, workspace);
      });
  const int64_t width = heads * head_dim, in = 20;
  const Array x = filled(dtype, {tokens, in}), weight = filled(dtype, {3 * width, in}),
              bias = filled(dtype, {3 * width});
  check_chain(out, x, {LinearStep{weight.cview(), bias.cview()}, SelfAttentionStep{params}});
}

TEST_F(FixedThreadsTest, Products) {
  for_each_level([&] {
    for (const DType dtype : kFloatTypes) {
      check_gemm(dtype, 1024, 64 + below(9), 512 + below(9), true, false, 1);  // fp32: the swapped order
      check_gemm(dtype, 300 + below(90), 70 + below(90), 40 + below(50), true, true, -0.5);
      check_gemm(dtype, 500 + below(90), 30 + below(90), 40 + below(50), false, false, 0.5);
      check_gemm(dtype, 40 + below(90), 260 + below(300), 600 + below(30), true, false, 1);
      check_linear(dtype, 700 + below(99), 30 + below(30), 40 + below(60));
      check_linear(dtype, 100 + below(99), 30 + below(30), 40 + below(60));
    }
  });
}

TEST_F(FixedThreadsTest, Attention) {
  for_each_level([&] {
    for (const DType dtype : kFloatTypes) {
      check_attention(dtype, 12 + below(5), 20 + below(20), 2, 8 + below(20));
      check_attention(dtype, 40 + below(5), 30, 1 + below(2), 16);
      check_attention(dtype, 2, 150 + below(40), 1, 20);
    }
  });
}

/// With one thread attention takes blocks of sequences, with many it does not.
TEST_F(FixedThreadsTest, BlocksForFewThreadsAlone) {
  const int64_t length = 8, sequences = 32, width = 16;
  for_each_level([&] {
    const AttentionParams params = attention_params(sequences, length, 1, width);
    const Array x = filled(float32, {sequences * length, 20}), weight = filled(float32, {3 * width, 20});
    Array out(float32, {sequences * length, 1, width});
    const std::vector<RowStep> steps = {LinearStep{weight.cview(), {}}, SelfAttentionStep{params}};
    std::vector<std::vector<char>> results;
    for (const int threads : {1, 1000}) {
      set_num_threads(threads);
      const FixedThreads fixed;
      MarkedWorkspace workspace(row_chain_workspace(Stream{}, x.cview(), steps));
      row_chain(Stream{}, x.cview(), steps, out.view(), workspace.data());
      results.push_back(out.bytes());
    }
    EXPECT_TRUE(results[0] == results[1]);
  });
}

TEST_F(FixedThreadsTest, TheOutermostCounts) {
  set_num_threads(2);
  {
    const FixedThreads outer;
    set_on_another_thread(5);
    {
      const FixedThreads inner;
      EXPECT_EQ(num_threads(), 2);
    }
    EXPECT_EQ(num_threads(), 2);
    std::thread([] { EXPECT_EQ(num_threads(), 5); }).join();
  }
  EXPECT_EQ(num_threads(), 5);
}

}  // namespace
}  // namespace tern::kernels

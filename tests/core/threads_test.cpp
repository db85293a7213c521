// Ops while another thread changes the number of threads without end: no workspace is too small, and results have the
// same bits.

#include "tern/tests/core/core_test.h"
#include "tern/tests/support/levels.h"

namespace tern::test {
namespace {

/// Every op that has a workspace for each thread, forward and backward.
class Ops {
 public:
  Ops(DType dtype, Generator& generator) : dtype_(dtype), generator_(generator) {}

  Tensors run() const {
    Tensors results;
    const auto with_gradients = [&](const Tensors& leaves, const auto& op) {
      Tensors inputs;
      for (const Tensor& leaf : leaves) inputs.push_back(leaf.detach().clone().set_requires_grad(true));
      const Tensor y = op(inputs);
      results.push_back(y.detach());
      y.backward(dy_of(y));
      for (const Tensor& input : inputs) results.push_back(input.grad());
    };
    with_gradients({wide_, square_}, [](const Tensors& t) { return matmul(t[0].t(), t[1]); });
    with_gradients({x_, weight1_, bias1_},
                   [](const Tensors& t) { return linear(t[0], t[1], t[2], Activation::kGelu); });
    with_gradients({qkv_}, [&](const Tensors& t) { return self_attention(t[0], layout_); });
    const NoGrad off;
    RowChain layers(x_), attention(x_);
    layers.linear(weight1_, bias1_, Activation::kRelu);
    layers.linear(weight2_, bias2_);
    results.push_back(layers.result());
    attention.linear(projection_);
    attention.self_attention(kHeads, layout_);
    results.push_back(attention.result());
    return results;
  }

 private:
  static constexpr int64_t kSequences = 40, kLength = 30, kHeads = 2, kHeadDim = 16, kIn = 40, kHidden = 50;

  Tensor random(const Shape& shape) const { return (randn(shape, generator_) * 0.3).to(dtype_); }
  static Tensor dy_of(const Tensor& y) { return full(y.shape(), 0.5, y.options()); }

  DType dtype_;
  Generator& generator_;
  Tensor wide_ = random({520, 1024}), square_ = random({520, 70});
  Tensor x_ = random({kSequences * kLength, kIn}), weight1_ = random({kHidden, kIn}), bias1_ = random({kHidden}),
         weight2_ = random({kIn, kHidden}), bias2_ = random({kIn});
  Tensor qkv_ = random({kSequences * kLength, 3, kHeads, kHeadDim}), projection_ = random({3 * kHeads * kHeadDim, kIn});
  SequenceLayout layout_ = padded_layout(kSequences, kLength);
};

TEST(Threads, TheirNumberChangesWhileOpsRun) {
  const RestoreKernels restore;
  Generator generator(fresh_seed());
  for (const kernels::CpuLevel level : testable_levels()) {
    kernels::set_cpu_level(level);
    for (const DType dtype : {float32, bfloat16, float16, float64}) {
      SCOPED_TRACE(std::string(name_of(level)) + " " + std::string(name_of(dtype)));
      const Ops ops(dtype, generator);
      kernels::set_num_threads(1);
      const Tensors want = ops.run();
      // Sets 1 to 9 threads in turn as long as it lives.
      const std::jthread changer([](const std::stop_token& stop) {
        std::mt19937_64 random = fresh_random(1);
        while (!stop.stop_requested()) kernels::set_num_threads(1 + static_cast<int>(random() % 9));
      });
      for (int i = 0; i < 4; ++i) {
        expect_equal(ops.run(), want);
        if (HasFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace tern::test

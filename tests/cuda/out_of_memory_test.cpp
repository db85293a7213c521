// A step that runs out of memory at any point gives one clear error and changes nothing, and it can be repeated.

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/captured_step.h"
#include "tern/tests/cuda/device_test.h"
#include "tern/tests/cuda/free_memory.h"
#include "tern/tests/cuda/small_net.h"

namespace tern {
namespace {

/// A model in training with its generator, optimizer, scaler and step.
struct Job {
  Generator generator{fresh_seed() + 1};
  SmallNet net;
  optim::AdamW optimizer;
  optim::GradScaler scaler;
  CapturedStep step;

  Job(Device device, DType dtype, bool capture)
      : net(nn::Scope({.device = device, .generator = generator}), 40, 72),
        optimizer(net.parameters(), {.lr = 1e-2, .capturable = true}),
        scaler({.enabled = dtype == float16, .init_scale = 1024}),
        step(
            [this, device, dtype](const Tensors& batch) {
              const Tensor loss =
                  autocast(device, dtype, [&] { return cross_entropy(net.forward(batch[0]), batch[1]); });
              scaler.scale(loss).backward();
              scaler.clip_grad_norm(optimizer, 0.5);
              scaler.step(optimizer);
              scaler.update();
              optimizer.zero_grad();
              return Tensors{loss};
            },
            {.warmup = 2, .enabled = capture}) {}

  std::vector<test::Values> state() const {
    return {values_of(net.state_dict()), values_of(optimizer.state_dict()), values_of(scaler.state_dict())};
  }
};

class OutOfMemory : public DeviceTest {
 protected:
  void expect_nothing_lost(Device device, bool capture) {
    for (const DType dtype : {float32, float16})
      for (const int64_t rows : {3, 30, 300}) expect_nothing_lost(device, dtype, capture, rows);
  }

  /// Trains twice: with enough memory, and with varying limits that are too low for most attempts at a step.
  void expect_nothing_lost(Device device, DType dtype, bool capture, int64_t rows) {
    SCOPED_TRACE(testing::Message() << device << " " << dtype << (capture ? " captured, " : ", ") << rows << " rows");
    std::mt19937_64 random(fresh_seed());
    Generator data(random());
    rows += static_cast<int64_t>(random() % 10);
    const Tensor x = randn({rows, 40}, data).to(device);
    const Tensor targets = floor(mul(rand({rows}, data), 5.0)).to(int64).to(device);
    Job plenty(device, dtype, capture), scarce(device, dtype, capture);
    CachingAllocator& memory = allocator(device);
    constexpr int kSteps = 4, kAttempts = 25;
    // The workspace of matrix products is far larger than all else: it stays cached, next to a live tensor.
    if (device.is_cuda()) empty({int64_t{40} << 20}, {.dtype = uint8, .device = device});
    const Tensor beside = empty({int64_t{3} << 20}, {.dtype = uint8, .device = device});
    memory.empty_cache();
    memory.reset_peak();
    for (int i = 0; i < kSteps; ++i) plenty.step({x, targets});
    const int64_t max_bytes = memory.statistics().peak_live_bytes - memory.statistics().live_bytes;

    const Tensors filler = fill_free_memory(device);
    int failures = 0;
    for (int i = 0; i < kSteps; ++i) {
      for (int attempt = 0; attempt <= kAttempts; ++attempt) {
        const auto before = scarce.state();
        const uint64_t offset = scarce.generator.offset();
        memory.empty_cache();
        // From almost no memory to enough, in growing steps.
        const double share = (attempt + std::uniform_real_distribution<double>(0, 1)(random)) / kAttempts;
        const auto more = static_cast<int64_t>(512 * std::pow(static_cast<double>(max_bytes) / 512, share));
        if (attempt < kAttempts) memory.set_limit(memory.statistics().reserved_bytes + more + 1);
        std::string message;
        try {
          scarce.step({x, targets});
        } catch (const OutOfMemoryError& error) {
          message = error.what();
        }
        memory.set_limit(0);
        if (message.empty()) break;
        EXPECT_TRUE(message.starts_with("out of memory on " + device.str())) << message;
        expect_contains(message, {"try", "parameters "});
        ++failures;
        scarce.optimizer.zero_grad();
        scarce.generator.set_offset(offset);
        ASSERT_EQ(scarce.state(), before) << "after " << message;
      }
    }
    EXPECT_EQ(scarce.step.captured(), capture);
    EXPECT_EQ(scarce.state(), plenty.state());
    EXPECT_GE(failures, 5);
  }
};

TEST_F(OutOfMemory, OnTheCpu) { expect_nothing_lost(cpu, false); }
TEST_F(OutOfMemory, OnTheDevice) { expect_nothing_lost(kCuda, false); }
TEST_F(OutOfMemory, InACapturedStep) { expect_nothing_lost(kCuda, true); }

}  // namespace
}  // namespace tern

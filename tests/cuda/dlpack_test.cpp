// DLPack and from_blob with memory of a device.

#include "tern/core/interop/dlpack.h"

#include "tern/core/interop/dlpack_abi.h"
#include "tern/tests/cuda/device_test.h"

namespace tern {
namespace {

class DeviceMemory : public DeviceTest {
 protected:
  /// Another library's tensor on x's memory; its deleter calls `deleted`.
  DLManagedTensorVersioned* foreign(const Tensor& x, std::function<void()> deleted) {
    struct Context {
      DLManagedTensorVersioned managed{};
      std::vector<int64_t> sizes;
      Tensor keep;
      std::function<void()> deleted;
    };
    auto* const context = new Context;
    context->sizes = x.shape().vec();
    context->keep = x;
    context->deleted = std::move(deleted);
    DLManagedTensorVersioned& managed = context->managed;
    managed.version = {1, 0};
    managed.manager_ctx = context;
    managed.deleter = [](DLManagedTensorVersioned* self) {
      auto* const own = static_cast<Context*>(self->manager_ctx);
      own->deleted();
      delete own;
    };
    managed.dl_tensor = {
        x.raw_data(), {dlpack::kCUDA, 0}, x.dim(), {dlpack::kFloat, 32, 1}, context->sizes.data(), nullptr, 0};
    return &managed;
  }
};

TEST_F(DeviceMemory, GoesOutAndComesBack) {
  const Tensor x = normal({3, 4}, float32).to(kCuda);
  DLManagedTensorVersioned* const managed = to_dlpack(x.t());
  EXPECT_EQ(managed->dl_tensor.device.device_type, dlpack::kCUDA);
  EXPECT_EQ(managed->dl_tensor.device.device_id, 0);
  EXPECT_EQ(managed->dl_tensor.data, x.raw_data());
  Tensor y = from_dlpack(managed);
  EXPECT_EQ(y.device(), kCuda);
  y.mul_(2);
  expect_same(y.to(cpu).t(), x, 0, "one memory");
}

TEST_F(DeviceMemory, IsReleasedAfterTheWorkOnIt) {
  const Tensor x = ones({1 << 20}).to(kCuda);
  int deleted = 0;
  Event last(kCuda);
  Tensor sums;
  {
    Tensor y = from_dlpack(foreign(x, [&] {
      ++deleted;
      EXPECT_TRUE(last.done());
    }));
    for (int i = 0; i < 20; ++i) y.add_(1);
    sums = sum(y);
    last.record(current_stream(kCuda));
  }
  EXPECT_EQ(deleted, 1);
  EXPECT_EQ(sums.item<double>(), 21.0 * (1 << 20));
}

TEST_F(DeviceMemory, IsCopiedByRequest) {
  const Tensor x = normal({2, 3}, float32).to(kCuda);
  int deleted = 0;
  DLManagedTensorVersioned* managed = foreign(x, [&] { ++deleted; });
  managed->flags = dlpack::kReadOnly;
  expect_error([&] { from_dlpack(managed); }, {"read-only"});
  EXPECT_EQ(deleted, 0);
  Tensor copy = from_dlpack(managed, DLPackCopy::kIfNeeded);
  EXPECT_EQ(deleted, 1);
  expect_same(x.to(cpu), copy, 0, "copied");
  copy.zero_();
  EXPECT_NE(norm(x).item<double>(), 0);

  Tensor bytes = zeros({25}, {.dtype = uint8, .device = kCuda});
  bytes.slice(0, 1).copy_(from_blob(x.raw_data(), {24}, uint8, {}, kCuda));
  managed = foreign(x, [&] { ++deleted; });
  managed->dl_tensor.data = bytes.raw_data();
  managed->dl_tensor.byte_offset = 1;
  expect_error([&] { from_dlpack(managed); }, {"no multiple"});
  expect_same(x.to(cpu), from_dlpack(managed, DLPackCopy::kIfNeeded), 0, "aligned");
  EXPECT_EQ(deleted, 2);
}

TEST_F(DeviceMemory, Blobs) {
  const Tensor x = arange(0, 6, 1, {}).to(kCuda);
  int released = 0;
  {
    const Tensor y = from_blob(
        x.raw_data(), {3, 2}, {1, 3}, float32, [&] { ++released; }, kCuda);
    EXPECT_EQ(y.device(), kCuda);
    EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{0, 3, 1, 4, 2, 5}));
    expect_error([&] { y.data<float>(); }, {"on cuda:0"});
  }
  EXPECT_EQ(released, 1);
}

}  // namespace
}  // namespace tern

// DLPack: what to_dlpack gives is the tensor's memory, and what from_dlpack is given is checked. The other library is
// the test itself, which writes the structs by hand; dlpack_python_slow_test.cpp has NumPy and PyTorch.

#include "tern/core/interop/dlpack.h"

#include <atomic>

#include "tern/core/interop/dlpack_abi.h"
#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

using Deleter = std::unique_ptr<DLManagedTensorVersioned, void (*)(DLManagedTensorVersioned*)>;
Deleter exported(const Tensor& tensor) {
  return {to_dlpack(tensor), [](DLManagedTensorVersioned* managed) { release_dlpack(managed); }};
}

/// Another library's tensor of 2 x 3 float32, which counts the calls of its deleter.
struct Foreign {
  explicit Foreign(void* data) {
    managed.version = {1, 0};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensorVersioned* self) { ++static_cast<Foreign*>(self->manager_ctx)->deleted; };
    managed.dl_tensor = {data, {dlpack::kCPU, 0}, 2, {dlpack::kFloat, 32, 1}, sizes, strides, 0};
  }
  int64_t sizes[9] = {2, 3}, strides[9] = {3, 1};
  DLManagedTensorVersioned managed{};
  std::atomic<int> deleted = 0;
};

class ForeignTensors : public testing::Test {
 protected:
  /// from_dlpack throws an Error that has these parts, and does not call the deleter.
  void expect_refused(const std::vector<std::string>& parts, DLPackCopy copy = DLPackCopy::kNever) {
    expect_error([&] { from_dlpack(&foreign_.managed, copy); }, parts);
    EXPECT_EQ(foreign_.deleted, 0);
  }
  DLTensor& dl() { return foreign_.managed.dl_tensor; }

  alignas(64) float memory_[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  Foreign foreign_{memory_};
};

TEST(DLPackExport, DescribesTheTensor) {
  const Tensor whole = arange(0, 24).reshape({2, 3, 4});
  const Tensor x = whole.slice(0, 1).transpose(1, 2).slice(1, 0, 4, 2);
  const Deleter managed = exported(x);
  EXPECT_EQ(managed->version.major, 1u);
  EXPECT_EQ(managed->flags, 0u);
  const DLTensor& t = managed->dl_tensor;
  EXPECT_EQ(static_cast<char*>(t.data) + t.byte_offset, static_cast<char*>(whole.raw_data()) + 12 * 8);
  EXPECT_EQ(t.device.device_type, dlpack::kCPU);
  EXPECT_EQ(t.device.device_id, 0);
  ASSERT_EQ(t.ndim, 3);
  EXPECT_EQ(std::vector<int64_t>(t.shape, t.shape + 3), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(std::vector<int64_t>(t.strides, t.strides + 3), (std::vector<int64_t>{12, 2, 4}));
}

TEST(DLPackExport, EveryTypeHasItsCodeAndComesBack) {
  const struct {
    DType dtype;
    uint8_t code, bits;
  } types[] = {{float64, 2, 64}, {float32, 2, 32}, {float16, 2, 16}, {bfloat16, 4, 16},
               {int64, 0, 64},   {int32, 0, 32},   {uint8, 1, 8},    {boolean, 6, 8}};
  for (const auto& type : types) {
    const Tensor x = arange(0, 2).to(type.dtype);
    DLManagedTensorVersioned* const managed = to_dlpack(x);
    EXPECT_EQ(managed->dl_tensor.dtype.code, type.code) << type.dtype;
    EXPECT_EQ(managed->dl_tensor.dtype.bits, type.bits) << type.dtype;
    EXPECT_EQ(managed->dl_tensor.dtype.lanes, 1) << type.dtype;
    const Tensor back = from_dlpack(managed);
    EXPECT_EQ(back.dtype(), type.dtype);
    EXPECT_EQ(back.raw_data(), x.raw_data());
    expect_equal(back, x);
  }
}

TEST(DLPackExport, ShapesAtTheEdges) {
  for (const Tensor& x : {full({}, 5), empty({0, 3}), ones({1}).expand({4, 3}), ones({1, 1, 1, 1, 1, 1, 2, 1}),
                          empty({2, 0}).expand({5, 2, 0})}) {
    const Deleter managed = exported(x);
    const DLTensor& t = managed->dl_tensor;
    EXPECT_EQ(t.ndim, x.dim());
    EXPECT_NE(t.strides, nullptr);
    EXPECT_EQ(t.data == nullptr, x.numel() == 0);
    const Tensor back = from_dlpack(to_dlpack(x));
    expect_equal(back, x);
    for (int d = 0; d < x.dim() && x.numel() > 0; ++d) {
      const auto at = static_cast<size_t>(d);
      EXPECT_TRUE(x.size(d) == 1 || back.strides()[at] == x.strides()[at]) << "dimension " << d;
    }
  }
}

TEST(DLPackExport, MemoryLivesUntilTheDeleterOnAnyThread) {
  int released = 0;
  float memory[2] = {1, 2};
  DLManagedTensorVersioned* managed = to_dlpack(from_blob(memory, {2}, float32, [&] { ++released; }));
  DLManagedTensor* older = to_dlpack_unversioned(from_dlpack(managed));  // a chain of three owners
  EXPECT_EQ(released, 0);
  EXPECT_EQ(static_cast<float*>(older->dl_tensor.data)[1], 2);
  in_threads(1, [&](size_t) { older->deleter(older); });
  EXPECT_EQ(released, 1);
}

TEST(DLPackExport, WritesAreSeenOnBothSides) {
  Tensor x = zeros({2, 2});
  Tensor y = from_dlpack(to_dlpack(x));
  y[0].fill_(3);
  x.add_(1);
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{4, 4, 1, 1}));
  EXPECT_FALSE(same(x, y));
}

TEST(DLPackExport, ATensorWithAGradientIsRefused) {
  Tensor x = ones({2}, {.requires_grad = true});
  expect_error([&] { to_dlpack(x); }, {"requires a gradient", "detach()"});
  expect_error([&] { to_dlpack(x * 2); }, {"detach()"});
  expect_error([&] { to_dlpack_unversioned(x); }, {"detach()"});
  expect_error([] { to_dlpack(Tensor()); }, {"undefined"});
  EXPECT_EQ(exported(x.detach())->dl_tensor.data, x.raw_data());
}

TEST(DLPackExport, FromManyThreads) {
  const Tensor x = arange(0, 100);
  in_threads(4, [&](size_t) {
    for (int i = 0; i < 200; ++i) EXPECT_EQ(from_dlpack(to_dlpack(x))[99].item<int64_t>(), 99);
  });
}

TEST_F(ForeignTensors, AreSharedAndReleasedOnce) {
  Tensor view;
  {
    const Tensor x = from_dlpack(&foreign_.managed);
    EXPECT_EQ(x.raw_data(), memory_);
    view = x[1];
  }
  view.mul_(10);
  EXPECT_EQ(memory_[5], 50);
  memory_[3] = 7;
  EXPECT_EQ(view[0].item<float>(), 7);
  EXPECT_EQ(foreign_.deleted, 0);
  in_threads(1, [&](size_t) { view = Tensor(); });
  EXPECT_EQ(foreign_.deleted, 1);
}

TEST_F(ForeignTensors, TakePartInAutograd) {
  Tensor x = from_dlpack(&foreign_.managed).set_requires_grad(true);
  sum(x * x).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0, 2, 4, 6, 8, 10}));
  expect_error([&] { x.add_(1); }, {"leaf"});
}

TEST_F(ForeignTensors, OffsetsStridesAndTheirAbsence) {
  dl().byte_offset = 4;
  EXPECT_EQ(from_dlpack(&foreign_.managed).to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  dl().strides = nullptr;
  EXPECT_EQ(from_dlpack(&foreign_.managed).to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  dl().strides = foreign_.strides;
  foreign_.strides[0] = 0, foreign_.strides[1] = 2;
  EXPECT_EQ(from_dlpack(&foreign_.managed).to_vector<float>(), (std::vector<float>{1, 3, 5, 1, 3, 5}));
  foreign_.sizes[0] = 1, foreign_.strides[0] = -77;  // a stride without effect
  EXPECT_EQ(from_dlpack(&foreign_.managed).to_vector<float>(), (std::vector<float>{1, 3, 5}));
  dl().ndim = 0;
  dl().shape = dl().strides = nullptr;
  EXPECT_EQ(from_dlpack(&foreign_.managed).item<float>(), 1);
  EXPECT_EQ(foreign_.deleted, 5);
}

TEST_F(ForeignTensors, EmptyOnesNeedNoMemory) {
  dl().data = nullptr;
  foreign_.sizes[0] = 0, foreign_.strides[1] = INT64_MIN;
  const Tensor x = from_dlpack(&foreign_.managed);
  EXPECT_EQ(x.shape(), Shape({0, 3}));
  EXPECT_TRUE(x.is_contiguous());
}

TEST_F(ForeignTensors, ANullDeleterIsNotCalled) {
  foreign_.managed.deleter = nullptr;
  EXPECT_EQ(from_dlpack(&foreign_.managed).numel(), 6);
  DLManagedTensor older{dl(), nullptr, nullptr};
  EXPECT_EQ(sum(from_dlpack(&older)).item<float>(), 15);
  release_dlpack(static_cast<DLManagedTensor*>(nullptr));
}

TEST_F(ForeignTensors, ReadOnlyMemoryIsCopiedOnlyByRequest) {
  foreign_.managed.flags = dlpack::kReadOnly;
  expect_refused({"read-only", "kIfNeeded"});
  for (const DLPackCopy copy : {DLPackCopy::kIfNeeded, DLPackCopy::kAlways}) {
    foreign_.deleted = 0;
    Tensor x = from_dlpack(&foreign_.managed, copy);
    EXPECT_EQ(foreign_.deleted, 1);
    x.fill_(9);
    EXPECT_EQ(memory_[1], 1);
  }
}

TEST_F(ForeignTensors, CopiesWhereTheyAreRequested) {
  foreign_.managed.flags = dlpack::kIsCopied;
  EXPECT_EQ(from_dlpack(&foreign_.managed, DLPackCopy::kIfNeeded).raw_data(), memory_);
  const Tensor x = from_dlpack(&foreign_.managed, DLPackCopy::kAlways);
  EXPECT_NE(x.raw_data(), memory_);
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(foreign_.deleted, 2);
}

TEST_F(ForeignTensors, ThatAreNotAligned) {
  unsigned char bytes[64] = {};
  std::copy_n(reinterpret_cast<unsigned char*>(memory_), 32, bytes + 1);
  for (const uint64_t offset : {1, 0}) {  // the offset counts, or the pointer is odd itself
    dl().data = bytes + 1 - offset;
    dl().byte_offset = offset;
    if (reinterpret_cast<uintptr_t>(bytes + 1) % 4 == 0) GTEST_FAIL() << "the array is not aligned";
    foreign_.deleted = 0;
    expect_refused({"no multiple of their 4 bytes", "kIfNeeded"});
    foreign_.strides[0] = 1, foreign_.strides[1] = 2;
    const Tensor x = from_dlpack(&foreign_.managed, DLPackCopy::kIfNeeded);
    EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{0, 2, 4, 1, 3, 5}));
    EXPECT_TRUE(x.is_contiguous());
    EXPECT_EQ(foreign_.deleted, 1);
  }
}

/// A copy that does not fit leaves the memory with its owner too.
TEST_F(ForeignTensors, CopiesThatFitNoMemory) {
  foreign_.sizes[0] = int64_t{1} << 50, foreign_.strides[0] = 0;
  expect_refused({"out of memory"}, DLPackCopy::kAlways);
  dl().byte_offset = 1;
  expect_refused({"out of memory"}, DLPackCopy::kIfNeeded);
}

TEST_F(ForeignTensors, OtherVersionsAndDevicesAreNamed) {
  foreign_.managed.version = {2, 5};
  expect_refused({"version 2.5", "1.x"});
  foreign_.managed.version = {0, 8};
  expect_refused({"version 0.8"});
  foreign_.managed.version = {1, 99};
  EXPECT_EQ(from_dlpack(&foreign_.managed).numel(), 6);
  foreign_.deleted = 0;
  dl().device = {dlpack::kCUDAHost, 1};
  EXPECT_EQ(from_dlpack(&foreign_.managed).device(), cpu);
  foreign_.deleted = 0;
  const std::pair<int32_t, const char*> devices[] = {{10, "ROCm"},     {8, "Metal"},  {13, "CUDA managed"},
                                                     {0, "type 0"},    {5, "type 5"}, {-1, "type -1"},
                                                     {999, "type 999"}};
  for (const auto& [type, name] : devices) {
    dl().device = {type, 0};
    expect_refused({name, "copy the tensor"}, DLPackCopy::kAlways);
  }
  dl().device = {dlpack::kCUDA, -1};
  expect_refused({"negative"});
  dl().device = {dlpack::kCUDA, 1000};
  expect_refused({"cuda:1000"});
  expect_error([] { from_dlpack(static_cast<DLManagedTensorVersioned*>(nullptr)); }, {"null"});
  expect_error([] { from_dlpack(static_cast<DLManagedTensor*>(nullptr)); }, {"null"});
}

TEST_F(ForeignTensors, OtherTypesAreNamed) {
  const std::tuple<int, int, const char*> types[] = {
      {0, 8, "int8"},           {0, 16, "int16"},     {1, 16, "uint16"}, {1, 32, "uint32"},
      {1, 64, "uint64"},        {5, 64, "complex64"}, {2, 8, "float8"},  {10, 8, "float8_e4m3fn"},
      {17, 4, "float4_e2m1fn"}, {0, 4, "int4"},       {6, 1, "bool1"},   {3, 64, "opaque handle64"},
      {200, 8, "code 200"}};
  for (const auto& [code, bits, name] : types) {
    dl().dtype = {static_cast<uint8_t>(code), static_cast<uint8_t>(bits), 1};
    expect_refused({"Tern has no", name});
  }
  dl().dtype = {dlpack::kFloat, 32, 4};
  expect_refused({"vectors of 4 float32"});
  dl().dtype.lanes = 0;
  expect_refused({"lanes"});
}

TEST_F(ForeignTensors, NumbersThatFitNoMemory) {
  const auto refuse_sizes = [&](int64_t a, int64_t b, int64_t step_a, int64_t step_b, const char* part) {
    foreign_.sizes[0] = a, foreign_.sizes[1] = b, foreign_.strides[0] = step_a, foreign_.strides[1] = step_b;
    expect_refused({part}, DLPackCopy::kNever);
    expect_refused({part}, DLPackCopy::kAlways);
  };
  refuse_sizes(2, -3, 3, 1, ">= 0");
  refuse_sizes(INT64_MAX, 3, 3, 1, "64 bits");
  refuse_sizes(INT64_MAX / 2, 1, 1, 1, "64 bits");
  refuse_sizes(2, 3, -3, 1, "stride -3 of dimension 0 is negative");
  refuse_sizes(2, 3, 3, INT64_MIN, "negative");
  refuse_sizes(2, 3, INT64_MAX, 1, "larger than any memory");
  refuse_sizes(3, 3, INT64_MAX / 2, 1, "larger than any memory");
  refuse_sizes(2, 2, INT64_MAX / 4, 1, "larger than any memory");
  dl().ndim = 9;
  expect_refused({"9 dimensions"});
  dl().ndim = -1;
  expect_refused({"-1 dimensions"});
  dl().ndim = 2;
  dl().shape = nullptr;
  expect_refused({"null pointer"});
  dl().shape = foreign_.sizes;
  foreign_.sizes[0] = 2, foreign_.sizes[1] = 3, foreign_.strides[0] = 3, foreign_.strides[1] = 1;
  dl().data = nullptr;
  expect_refused({"data", "null pointer"});
}

}  // namespace
}  // namespace tern::test

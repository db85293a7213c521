// Copies between host and device, streams and events, and errors that a device reports late.

#include "tern/core/ops/tensor/transfer.h"
#include "tern/optim/adam.h"
#include "tern/optim/grad_scaler.h"
#include "tern/tests/cuda/device_test.h"

namespace tern {
namespace {

using Transfer = DeviceTest;

TEST_F(Transfer, EveryDTypeAndStrideThereAndBack) {
  for (const DType dtype : {float64, float32, bfloat16, float16, int64, int32, uint8, boolean})
    for (const Shape& shape : {Shape{}, Shape{1}, Shape{0}, Shape{3, 0}, Shape{7, 33}, Shape{2, 3, 4, 5}}) {
      const Tensor x = mul(randn(shape, generator), 50.0).to(dtype);
      expect_same(x, x.to(kCuda), 0, "contiguous");
      if (x.dim() >= 2) {
        expect_same(x.t(), x.t().to(kCuda), 0, "transposed on the host");
        const Tensor back = x.to(kCuda).t().to(cpu);
        EXPECT_EQ(back.to_vector<double>(), x.t().to_vector<double>());
      }
    }
}

TEST_F(Transfer, LargerThanThePinnedPieces) {
  const int64_t n = (int64_t{75} << 20) + 3;
  Tensor x = empty({n}, {.dtype = uint8});
  uint8_t* data = x.data<uint8_t>();
  for (int64_t i = 0; i < n; ++i) data[i] = static_cast<uint8_t>(i * 2654435761u >> 13);
  const Tensor back = x.to(kCuda).to(cpu);
  EXPECT_EQ(std::memcmp(back.raw_data(), data, static_cast<size_t>(n)), 0);
}

TEST_F(Transfer, TheSourceMayChangeAtOnce) {
  Tensor x = full({1000}, 3);
  const Tensor y = x.to(kCuda);
  x.fill_(4);
  EXPECT_EQ(sum(y).item<double>(), 3000);
  Tensor z = zeros({1000}, {.device = kCuda});
  z.copy_(x);
  x.fill_(5);
  EXPECT_EQ(sum(z).item<double>(), 4000);
  z.slice(0, 0, 500, 2).copy_(x.slice(0, 0, 250));  // strided on the device
  EXPECT_EQ(sum(z).item<double>(), 4250);
}

TEST_F(Transfer, GradientsCrossDevices) {
  const Tensor x = full({3, 4}, 2, {.requires_grad = true});
  const Tensor y = mul(x.to(kCuda), 3.0).to(cpu);
  sum(square(y)).backward();
  EXPECT_EQ(x.grad().device(), cpu);
  EXPECT_EQ(x.grad().to_vector<double>(), std::vector<double>(12, 36));
}

TEST_F(Transfer, PinnedMemoryIsNotReusedUnderACopy) {
  // The copies are still queued when the pinned tensors are destroyed; their memory must not be reused by later ones.
  Tensors on_device;
  for (int i = 0; i < 20; ++i) {
    Tensor host = empty_pinned({4096}, DType::kFloat32);
    host.fill_(i);
    on_device.push_back(host.to(kCuda));
  }
  for (int i = 0; i < 20; ++i) EXPECT_EQ(sum(on_device[static_cast<size_t>(i)]).item<double>(), 4096.0 * i) << i;
}

TEST_F(Transfer, APinnedTargetIsNotReusedUnderACopy) {
  const Tensor x = full({4096}, 7, {.device = kCuda});
  Tensors others;
  for (int i = 0; i < 5; ++i) {
    { const HostCopy dropped(x); }  // still queued
    others.push_back(empty_pinned({4096}, DType::kFloat32));
    others.back().fill_(i);
  }
  synchronize(kCuda);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(sum(others[static_cast<size_t>(i)]).item<double>(), 4096.0 * i) << i;
}

TEST_F(Transfer, HostCopyDoesNotSeeLaterChanges) {
  Tensor x = full({5, 3}, 7, {.device = kCuda});
  const HostCopy early(x.t());
  x.fill_(9);
  const HostCopy late(x);
  EXPECT_EQ(early.values(), std::vector<double>(15, 7));
  EXPECT_EQ(late.values(), std::vector<double>(15, 9));
  EXPECT_TRUE(early.ready());
  EXPECT_EQ(HostCopy(full({2}, 4)).values(), std::vector<double>(2, 4));
}

TEST_F(Transfer, StreamsAreOrderedByEvents) {
  const Stream side(kCuda);
  for (int round = 0; round < 10; ++round) {
    Tensor x = full({100000}, round, {.device = kCuda});
    Event made(kCuda);
    made.record();
    Tensor y;
    {
      const StreamGuard guard(side);
      side.wait(made);
      y = add(x, 1);
      x.storage()->record_stream(side.handle());
    }
    x = Tensor();  // its memory must not be reused before `side` has read it
    const Tensor other = full({100000}, -1, {.device = kCuda});
    side.synchronize();
    EXPECT_EQ(sum(y).item<double>(), 100000.0 * (round + 1));
    EXPECT_EQ(sum(other).item<double>(), -100000.0);
  }
}

TEST_F(Transfer, EventsMeasureTime) {
  Event start(kCuda, true), end(kCuda, true);
  EXPECT_TRUE(start.done());
  start.record();
  const Tensor x = full({1000000}, 1, {.device = kCuda});
  end.record();
  end.synchronize();
  EXPECT_TRUE(end.done());
  EXPECT_GE(end.seconds_since(start), 0);
  EXPECT_THROW(Event(kCuda, true).seconds_since(start), Error);
}

TEST_F(Transfer, ValuesOnTheDeviceAreNotReadByTheHost) {
  const Tensor x = full({3}, 1, {.device = kCuda});
  EXPECT_THROW(x.data<float>(), Error);
  EXPECT_THROW(full({1}, 1, {.device = {DeviceType::kCUDA, 63}}), Error);
}

/// Each op with each input in turn on the other device: an error that names the op and both devices.
TEST_F(Transfer, TensorsOnTwoDevicesAreRefused) {
  struct Case {
    const char* name;
    Tensors inputs;
    Op op;
  };
  const Tensor matrix = full({4, 6}, 0.5), square = full({6, 6}, 0.5), row = full({6}, 0.5);
  const Tensor ids = tensor({0, 3, 1, 2}, {.dtype = int64}), mask = full({4, 6}, 1, {.dtype = boolean});
  const Tensor heads = full({4, 2, 6}, 0.5), bias = full({1, 2, 4, 4}, 0.5), keys = full({4}, 1, {.dtype = int64});
  const auto layout = [](const Tensor& of) { return packed_layout({1, 3}, of.device()); };
  const std::vector<Case> cases = {
      {"add", {matrix, row}, [](const Tensors& in) { return add(in[0], in[1]); }},
      {"add", {matrix.clone(), row}, [](const Tensors& in) { return Tensor(in[0]).add_(in[1]); }},
      {"where", {mask, matrix, row}, [](const Tensors& in) { return where(in[0], in[1], in[2]); }},
      {"matmul", {matrix, square}, [](const Tensors& in) { return matmul(in[0], in[1]); }},
      {"linear", {matrix, square, row}, [](const Tensors& in) { return linear(in[0], in[1], in[2]); }},
      {"layer_norm", {matrix, row, row}, [](const Tensors& in) { return layer_norm(in[0], in[1], in[2]); }},
      {"layer_norm",
       {matrix, matrix, row, row},
       [](const Tensors& in) { return dropout_residual_layer_norm(in[0], in[1], in[2], in[3], 1e-5); }},
      {"dropout", {matrix, keys}, [](const Tensors& in) { return dropout(in[0], {.p = 0.5, .row_keys = in[1]}); }},
      {"embedding", {matrix, ids}, [](const Tensors& in) { return embedding(in[0], in[1]); }},
      {"gather", {matrix, ids.reshape({4, 1})}, [](const Tensors& in) { return gather(in[0], 1, in[1]); }},
      {"scatter_add",
       {square, ids.reshape({4, 1}), matrix},
       [](const Tensors& in) { return scatter_add(in[0], 0, in[1], in[2]); }},
      {"searchsorted", {row, matrix}, [](const Tensors& in) { return searchsorted(in[0], in[1]); }},
      {"index_select", {matrix, ids}, [](const Tensors& in) { return index_select(in[0], 1, in[1]); }},
      {"masked_select", {matrix, mask}, [](const Tensors& in) { return masked_select(in[0], in[1]); }},
      {"cat", {matrix, square, square}, [](const Tensors& in) { return cat(in); }},
      {"cat", {row, row}, [](const Tensors& in) { return stack(in); }},
      {"mse_loss", {matrix, matrix}, [](const Tensors& in) { return mse_loss(in[0], in[1]); }},
      {"cross_entropy",
       {matrix, ids, full({4}, 0.5)},
       [](const Tensors& in) { return cross_entropy(in[0], in[1], {.row_weights = in[2]}); }},
      {"attention",
       {heads, heads, heads, bias},
       [&](const Tensors& in) {
         return attention(in[0], in[1], in[2], layout(in[0]), layout(in[0]), {.bias = in[3]});
       }},
      {"attention",
       {heads, full({4, 2, 2, 6}, 1), bias},
       [&](const Tensors& in) { return cross_attention(in[0], in[1], layout(in[0]), layout(in[0]), {.bias = in[2]}); }},
      {"attention",
       {full({4, 3, 2, 6}, 1), bias},
       [&](const Tensors& in) { return self_attention(in[0], layout(in[0]), {.bias = in[1]}); }},
  };
  for (const Case& c : cases)
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      Tensors inputs = c.inputs;
      inputs[i] = inputs[i].to(kCuda);
      SCOPED_TRACE(testing::Message() << c.name << ", input " << i);
      const std::string message = error_of([&] { c.op(inputs); });
      EXPECT_TRUE(message.starts_with(c.name)) << message;
      expect_contains(message, {"cpu", "cuda:0"});
    }
}

TEST_F(Transfer, AScalerAndItsOptimizerAreOnOneDevice) {
  const Tensor weight = full({3}, 2, {.requires_grad = true});
  optim::AdamW optimizer({{"weight", weight}});
  optim::GradScaler scaler;
  const Tensor loss = sum(square(weight.to(kCuda)));
  scaler.scale(loss).backward();
  expect_error([&] { scaler.step(optimizer); }, {"on cpu, where the parameters are, got float32 [] on cuda:0"});
  expect_error([&] { scaler.unscale(optimizer); }, {"parameters are on cpu, the scale is on cuda:0"});
  EXPECT_EQ(weight.to_vector<double>(), std::vector<double>(3, 2));
}

TEST_F(Transfer, BadIndicesAreReportedWhenTheHostWaits) {
  const Tensor weight = full({10, 4}, 1, {.device = kCuda});
  const Tensor rows = embedding(weight, tensor({3, 99, -1, 5}, {.dtype = int64}).to(kCuda));
  expect_error([] { synchronize(kCuda); }, {"embedding: 2 indices", "position 1"});
  EXPECT_EQ(rows.to_vector<double>(), (std::vector<double>{1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1}));
  const Tensor bad = tensor({3, 10, -11, -1}, {.dtype = int64}).to(kCuda), written = weight.clone();
  Tensor(written).index_put_({bad, 0}, 5);
  expect_error([] { synchronize(kCuda); }, {"index_put: 2 indices", "position 1"});
  EXPECT_EQ(sum(eq(written, 5)).item<int64_t>(), 2);  // rows 3 and 9

  const Tensor logits = full({3, 2}, 1, {.device = kCuda});
  const Tensor loss = cross_entropy(logits, tensor({0, 2, 1}, {.dtype = int64}).to(kCuda));
  expect_error([&] { loss.item<double>(); }, {"cross_entropy: 1 indices"});
  const Tensor picked = gather(logits, 1, tensor({-7, 1, 0}, {.dtype = int64}).reshape({3, 1}).to(kCuda));
  expect_error([&] { picked.to(cpu); }, {"gather: 1 indices"});
  EXPECT_NO_THROW(synchronize(kCuda));
}

}  // namespace
}  // namespace tern

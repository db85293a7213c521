// Moved-from objects and null pointers: an Error or a valid handle, never a crash.

#include <gtest/gtest.h>

#include <utility>

#include "tern/core/memory/stream.h"
#include "tern/core/ops/ops.h"
#include "tern/core/ops/transfer.h"
#include "tern/core/tensor/generator.h"
#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

TEST(MovedFrom, AGeneratorStaysAHandle) {
  Generator first(fresh_seed());
  first.next();
  Generator second = std::move(first);
  EXPECT_EQ(first.seed(), fresh_seed());  // NOLINT(bugprone-use-after-move): what is tested
  EXPECT_EQ(first.offset(), 1u);
  second.next();
  EXPECT_EQ(first.offset(), 2u);
  Generator third(fresh_seed() + 2);
  third = std::move(second);
  second.set_seed(fresh_seed() + 4);
  EXPECT_EQ(third.seed(), fresh_seed() + 4);
  EXPECT_TRUE(first == third);
  EXPECT_NO_THROW(randn({3}, first));
}

TEST(MovedFrom, StreamsAndEventsStayHandles) {
  Stream stream(cpu);
  Stream other = std::move(stream);
  EXPECT_NO_THROW(stream.synchronize());
  EXPECT_TRUE(stream.handle().device == other.handle().device && stream.handle().handle == other.handle().handle);
  Event event(cpu, true);
  event.record();
  Event moved = std::move(event);
  EXPECT_TRUE(event.done());
  EXPECT_NO_THROW(event.synchronize());
  EXPECT_NO_THROW(event.make_wait(stream.handle()));
  event.record();
  EXPECT_GE(event.seconds_since(moved), 0);
  const StreamGuard guard(stream);
}

TEST(MovedFrom, ATensorIsUndefined) {
  Tensor x = ones({2, 3});
  const Tensor y = std::move(x);
  EXPECT_FALSE(x.defined());
  const std::vector<std::function<void()>> uses = {
      [&] { x.shape(); },
      [&] { x.numel(); },
      [&] { x.item<double>(); },
      [&] { x.to_vector<float>(); },
      [&] { x.to(float64); },
      [&] { x.to(cpu); },
      [&] { x.clone(); },
      [&] { x.contiguous(); },
      [&] { x.reshape({6}); },
      [&] { x.t(); },
      [&] { x.slice(0, 0); },
      [&] { x.select(0, 0); },
      [&] { x.split({1}); },
      [&] { x.copy_(y); },
      [&] { Tensor(y).copy_(x); },
      [&] { x.fill_(1); },
      [&] { x.add_(1.0); },
      [&] { x.add_(y); },
      [&] { Tensor(y).add_(x); },
      [&] { x.version(); },
      [&] { x.requires_grad(); },
      [&] { x.set_requires_grad(true); },
      [&] { x.grad(); },
      [&] { x.set_grad({}); },
      [&] { x.set_grad(y); },
      [&] { x.retain_grad(); },
      [&] { x.detach(); },
      [&] { x.backward(); },
      [&] { x.grad_fn(); },
      [&] { x.storage(); },
      [&] { x.data<float>(); },
      [&] { x.register_hook([](const Tensor& g) { return g; }); },
      [&] { add(x, y); },
      [&] { matmul(x, y); },
      [&] { sum(x); },
      [&] { norm(x); },
      [&] { softmax(x); },
      [&] { linear(x, y); },
      [&] { linear(y, x); },
      [&] { cat({x}); },
      [&] { stack({x}); },
      [&] { gather(x, 0, y); },
      [&] { index_select(x, 0, y); },
      [&] { embedding(x, y); },
      [&] { embedding(y, x); },
      [&] { layer_norm(x, y, y); },
      [&] { cross_entropy(x, y); },
      [&] { cross_entropy(y, x); },
      [&] { self_attention(x, SequenceLayout()); },
      [&] {
        self_attention(y.reshape({2, 3, 1, 1}), SequenceLayout());
      },
      [&] { HostCopy copy(x); },
      [&] { zeros_like(x); },
  };
  for (size_t i = 0; i < uses.size(); ++i) EXPECT_THROW(uses[i](), Error) << "use " << i;
  EXPECT_EQ(x.describe(), "an undefined tensor");
  std::ostringstream text;
  text << x;
  EXPECT_EQ(text.str(), "tensor(undefined)");
  EXPECT_NO_THROW(x.remove_hook(3));
  EXPECT_FALSE(x.view().data);
}

TEST(MovedFrom, AHostCopyHasNoTensor) {
  HostCopy copy(ones({2}));
  const HostCopy other = std::move(copy);
  EXPECT_THROW(copy.values(), Error);
  EXPECT_TRUE(copy.ready());
  EXPECT_EQ(other.values(), (std::vector<double>{1, 1}));
}

TEST(NullPointers, FromStorage) {
  EXPECT_NE(error_of([] { from_storage(nullptr, 0, {2}, contiguous_strides({2}), float32); }).find("null"),
            std::string::npos);
  EXPECT_NE(error_of([] { from_storage(nullptr, 0, {0}, contiguous_strides({0}), float32); }).find("null"),
            std::string::npos);
  const auto hollow = std::make_shared<Storage>(nullptr, 64, cpu, nullptr);
  EXPECT_NE(error_of([&] { from_storage(hollow, 0, {2}, contiguous_strides({2}), float32); }).find("null"),
            std::string::npos);
  EXPECT_NO_THROW(from_storage(hollow, 0, {0}, contiguous_strides({0}), float32));
  EXPECT_NE(error_of([] { from_blob(nullptr, {2}, float32); }).find("null"), std::string::npos);
}

}  // namespace
}  // namespace tern::test

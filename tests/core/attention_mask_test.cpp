// Which masks attention takes: 0 is padding. PyTorch's floating masks mean the opposite and are refused.

#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

TEST(AttentionMask, FloatingOnesAreRefusedEverywhere) {
  const Tensor x = ones({6, 2, 4}), kv = ones({6, 2, 2, 4}), qkv = ones({6, 3, 2, 4});
  for (const DType dtype : {float32, float64, bfloat16, float16}) {
    const Tensor additive = zeros({2, 3}, {.dtype = dtype});
    SequenceLayout plain = padded_layout(2, 3), masked = plain;
    masked.key_mask = additive.reshape({6});
    const Tensor weight = ones({24, 5});
    const std::vector<std::function<void()>> uses = {
        [&] { padded_layout(2, 3, additive); },
        [&] { attention(x, x, x, plain, masked); },
        [&] { cross_attention(x, kv, plain, masked); },
        [&] { self_attention(qkv, masked); },
        [&] {
          RowChain chain(ones({6, 5}));
          chain.linear(weight);
          chain.self_attention(2, masked);
        },
    };
    for (const auto& use : uses)
      expect_error(use, {"key_mask", std::string(name_of(dtype)), "PyTorch", "additive", "bias"});
  }
}

TEST(AttentionMask, BoolAndIntegersAreAccepted) {
  Generator g = fresh_generator();
  const Tensor qkv = randn({6, 3, 2, 4}, g);
  const Tensor open = self_attention(qkv, padded_layout(2, 3, ones({2, 3}, {.dtype = boolean})));
  const std::vector<int64_t> tokens = {1, 256, 0, -1, 7, 1};  // anything but 0 is a token
  const Tensor want = self_attention(
      qkv, padded_layout(2, 3, from_vector(std::vector<bool>{true, true, false, true, true, true}, {2, 3})));
  for (const DType dtype : {int64, int32}) {
    const Tensor mask = from_vector(tokens, {2, 3}).to(dtype);
    EXPECT_EQ(self_attention(qkv, padded_layout(2, 3, mask)).to_vector<float>(), want.to_vector<float>());
  }
  EXPECT_NE(open.to_vector<float>(), want.to_vector<float>());
  const Tensor bytes = from_vector(std::vector<uint8_t>{1, 255, 0, 2, 7, 1}, {2, 3});
  EXPECT_EQ(self_attention(qkv, padded_layout(2, 3, bytes)).to_vector<float>(), want.to_vector<float>());
  SequenceLayout layout = padded_layout(2, 3);
  layout.key_mask = from_vector(tokens, {6});
  expect_error([&] { self_attention(qkv, layout); }, {"uint8 or bool", "int64"});
}

}  // namespace
}  // namespace tern::test

#include <gtest/gtest.h>
#include <iostream>
#include "tern/core/autograd/gradcheck.h"
#include "tern/core/ops/ops.h"
using namespace tern;
TEST(Smoke, Basics) {
  Generator g(1);
  Tensor x = randn({3, 4}, g, {.dtype = float64, .requires_grad = true});
  Tensor w = randn({5, 4}, g, {.dtype = float64, .requires_grad = true});
  Tensor b = randn({5}, g, {.dtype = float64, .requires_grad = true});
  std::cout << x << std::endl;
  gradcheck([](const std::vector<Tensor>& in) { return gelu(in[0] * 2.0 + 1.0) * in[0]; }, {x}, {.second = true});
  gradcheck([](const std::vector<Tensor>& in) { return matmul(in[0], in[1].t()); }, {x, w}, {.second = true});
  gradcheck([](const std::vector<Tensor>& in) { return linear(in[0], in[1], in[2], Activation::kGelu); }, {x, w, b});
  gradcheck([](const std::vector<Tensor>& in) { return layer_norm(in[0], in[1][0], in[1][1]); }, {x, w});
  gradcheck([](const std::vector<Tensor>& in) { return softmax(in[0]); }, {x}, {.second=true});
  Tensor t = from_vector<int64_t>({1, 0, 3}, {3});
  gradcheck([&](const std::vector<Tensor>& in) { return cross_entropy(in[0], t, {.label_smoothing = 0.1}); }, {x});
  Tensor qkv = randn({7, 3, 2, 4}, g, {.dtype = float64, .requires_grad = true});
  gradcheck([&](const std::vector<Tensor>& in) { Generator d(3); return self_attention(in[0], packed_layout({3, 4}), {.dropout = 0.3, .generator = &d}); }, {qkv});
  Tensor ids = from_vector<int32_t>({1, 0, 1}, {3});
  gradcheck([&](const std::vector<Tensor>& in) { return embedding(in[0], ids); }, {w});
}
TEST(Smoke, Chain) {
  Tensor x = ones({1}, {.requires_grad = true});
  Tensor y = x;
  for (int i = 0; i < 1000000; ++i) y = y + 1e-6;
  y.backward();
  EXPECT_EQ(x.grad().item<double>(), 1.0);
}
